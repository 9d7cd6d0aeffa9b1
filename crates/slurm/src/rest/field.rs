//! Single fields as slurmrestd writes them, in all the forms that its versions have used.
//!
//! Reading a field never fails. A value that cannot be understood becomes `Bad`, and the code that needs the
//! field decides how to handle that. So one odd value does not spoil the answer, which is read in one pass.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Slurm's mark for "no value" in plain integers of 32 and 64 bits.
const NO_VALUES: [u64; 2] = [0xffff_fffe, 0xffff_ffff_ffff_fffe];

/// Slurm's mark for "infinite" in plain integers of 32 and 64 bits.
const INFINITES: [u64; 2] = [0xffff_ffff, 0xffff_ffff_ffff_ffff];

/// Largest number that is accepted. Beyond it doubles are not exact, and no counter of Slurm gets there.
const MAX_NUMBER: i64 = 1 << 53;

/// Most words in one list. A node is in a handful of partitions and has at most dozens of features.
const MAX_WORDS: usize = 10_000;

/// Most items in one list. A job's lists have one item for each of its nodes.
const MAX_ITEMS: usize = 100_000;

/// A number, which may be written as text or as `{set, infinite, number}`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum WireNumber {
    /// Missing, null, or marked as not set.
    #[default]
    Unset,
    /// Marked as infinite.
    Infinite,
    /// A value.
    Value(i64),
    /// Something else.
    Bad,
}

/// A text, which may be written as a number or a list. Borrowed from the answer if it has no escapes there.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum WireText<'a> {
    /// Missing or null.
    #[default]
    Unset,
    /// A value.
    Value(Cow<'a, str>),
    /// Something else.
    Bad,
}

/// A list of words, which may be written as one text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum WireWords<'a> {
    /// Missing or null.
    #[default]
    Unset,
    /// A value.
    Value(Vec<Cow<'a, str>>),
    /// Something else.
    Bad,
}

/// An object.
#[derive(Clone, Debug, Default)]
pub(super) enum WireObject<T> {
    /// Missing or null.
    #[default]
    Unset,
    /// A value.
    Value(T),
    /// Something else.
    Bad,
}

/// A list of anything.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum WireList<T> {
    /// Missing or null.
    #[default]
    Unset,
    /// A value.
    Value(Vec<T>),
    /// Something else.
    Bad,
}

/// A value that is rarely needed and slow to read: it is parsed on demand.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct LazyValue<'a>(#[serde(borrow)] Option<&'a RawValue>);

impl<'a> LazyValue<'a> {
    /// Parses the value. Returns the default if it is missing, null, or of another type.
    pub(super) fn parse_or_default<T: Deserialize<'a> + Default>(self) -> T {
        self.0.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

fn bounded_number(n: i64) -> WireNumber {
    if (-MAX_NUMBER..=MAX_NUMBER).contains(&n) { WireNumber::Value(n) } else { WireNumber::Bad }
}

fn unsigned_number(n: u64) -> WireNumber {
    match n {
        n if NO_VALUES.contains(&n) => WireNumber::Unset,
        n if INFINITES.contains(&n) => WireNumber::Infinite,
        n => i64::try_from(n).map_or(WireNumber::Bad, bounded_number),
    }
}

fn float_number(n: f64) -> WireNumber {
    // `as` saturates, and turns NaN into 0: test for finite values first.
    if n.is_finite() { bounded_number(n.trunc() as i64) } else { WireNumber::Bad }
}

fn number_in_text(text: &str) -> WireNumber {
    match text.trim() {
        "" => WireNumber::Unset,
        t if t.eq_ignore_ascii_case("infinite") || t.eq_ignore_ascii_case("unlimited") => {
            WireNumber::Infinite
        }
        t => t
            .parse::<u64>()
            .map(unsigned_number)
            .or_else(|_| t.parse::<i64>().map(bounded_number))
            .or_else(|_| t.parse::<f64>().map(float_number))
            .unwrap_or(WireNumber::Bad),
    }
}

/// Consumes a list where another type was expected.
fn drain_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<(), A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

/// Consumes an object where another type was expected.
fn drain_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<(), A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

/// The members of a number that is written as an object.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum NumberMember {
    Set,
    Infinite,
    Number,
    #[serde(other)]
    Other,
}

struct NumberVisitor;

impl<'de> Visitor<'de> for NumberVisitor {
    type Value = WireNumber;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }
    fn visit_bool<E>(self, b: bool) -> Result<WireNumber, E> {
        Ok(WireNumber::Value(i64::from(b)))
    }
    fn visit_i64<E>(self, n: i64) -> Result<WireNumber, E> {
        Ok(bounded_number(n))
    }
    fn visit_u64<E>(self, n: u64) -> Result<WireNumber, E> {
        Ok(unsigned_number(n))
    }
    fn visit_f64<E>(self, n: f64) -> Result<WireNumber, E> {
        Ok(float_number(n))
    }
    fn visit_str<E>(self, text: &str) -> Result<WireNumber, E> {
        Ok(number_in_text(text))
    }
    fn visit_unit<E>(self) -> Result<WireNumber, E> {
        Ok(WireNumber::Unset)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<WireNumber, A::Error> {
        drain_seq(seq).map(|()| WireNumber::Bad)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<WireNumber, A::Error> {
        let mut set = None;
        let mut infinite = false;
        let mut value = None;
        while let Some(part) = map.next_key::<NumberMember>()? {
            match part {
                NumberMember::Set => set = Some(map.next_value::<WireNumber>()? == WireNumber::Value(1)),
                NumberMember::Infinite => infinite = map.next_value::<WireNumber>()? == WireNumber::Value(1),
                NumberMember::Number => value = Some(map.next_value::<WireNumber>()?),
                NumberMember::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(match (infinite, set, value) {
            (true, _, _) => WireNumber::Infinite,
            (false, Some(false), _) => WireNumber::Unset,
            (false, _, Some(value)) => value,
            (false, Some(true), None) => WireNumber::Bad,
            (false, None, None) => WireNumber::Bad,
        })
    }
}

impl<'de> Deserialize<'de> for WireNumber {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(NumberVisitor)
    }
}

/// The words of one text, separated by commas or plus signs.
fn split_words(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', '+']).map(str::trim).filter(|w| !w.is_empty()).take(MAX_WORDS)
}

struct WordsVisitor;

impl<'de> Visitor<'de> for WordsVisitor {
    type Value = WireWords<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of words")
    }
    fn visit_bool<E>(self, _: bool) -> Result<WireWords<'de>, E> {
        Ok(WireWords::Bad)
    }
    fn visit_i64<E>(self, _: i64) -> Result<WireWords<'de>, E> {
        Ok(WireWords::Bad)
    }
    fn visit_u64<E>(self, _: u64) -> Result<WireWords<'de>, E> {
        Ok(WireWords::Bad)
    }
    fn visit_f64<E>(self, _: f64) -> Result<WireWords<'de>, E> {
        Ok(WireWords::Bad)
    }
    fn visit_str<E>(self, text: &str) -> Result<WireWords<'de>, E> {
        Ok(WireWords::Value(split_words(text).map(|w| Cow::Owned(w.to_owned())).collect()))
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<WireWords<'de>, E> {
        Ok(WireWords::Value(split_words(text).map(Cow::Borrowed).collect()))
    }
    fn visit_unit<E>(self) -> Result<WireWords<'de>, E> {
        Ok(WireWords::Unset)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<WireWords<'de>, A::Error> {
        let mut words = Vec::new();
        let mut bad = false;
        while let Some(item) = seq.next_element::<WireText<'de>>()? {
            match item {
                WireText::Value(word) if words.len() < MAX_WORDS => words.push(word),
                _ => bad = true,
            }
        }
        Ok(if bad { WireWords::Bad } else { WireWords::Value(words) })
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WireWords<'de>, A::Error> {
        drain_map(map).map(|()| WireWords::Bad)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for WireWords<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(WordsVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = WireText<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }
    fn visit_bool<E>(self, _: bool) -> Result<WireText<'de>, E> {
        Ok(WireText::Bad)
    }
    fn visit_i64<E>(self, n: i64) -> Result<WireText<'de>, E> {
        Ok(WireText::Value(Cow::Owned(n.to_string())))
    }
    fn visit_u64<E>(self, n: u64) -> Result<WireText<'de>, E> {
        Ok(WireText::Value(Cow::Owned(n.to_string())))
    }
    fn visit_f64<E>(self, _: f64) -> Result<WireText<'de>, E> {
        Ok(WireText::Bad)
    }
    fn visit_str<E>(self, text: &str) -> Result<WireText<'de>, E> {
        Ok(WireText::Value(Cow::Owned(text.to_owned())))
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<WireText<'de>, E> {
        Ok(WireText::Value(Cow::Borrowed(text)))
    }
    fn visit_string<E>(self, text: String) -> Result<WireText<'de>, E> {
        Ok(WireText::Value(Cow::Owned(text)))
    }
    fn visit_unit<E>(self) -> Result<WireText<'de>, E> {
        Ok(WireText::Unset)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<WireText<'de>, A::Error> {
        Ok(match WordsVisitor.visit_seq(seq)? {
            WireWords::Value(words) => WireText::Value(Cow::Owned(words.join(","))),
            _ => WireText::Bad,
        })
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WireText<'de>, A::Error> {
        drain_map(map).map(|()| WireText::Bad)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for WireText<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(TextVisitor)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = WireObject<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_bool<E>(self, _: bool) -> Result<WireObject<T>, E> {
        Ok(WireObject::Bad)
    }
    fn visit_i64<E>(self, _: i64) -> Result<WireObject<T>, E> {
        Ok(WireObject::Bad)
    }
    fn visit_u64<E>(self, _: u64) -> Result<WireObject<T>, E> {
        Ok(WireObject::Bad)
    }
    fn visit_f64<E>(self, _: f64) -> Result<WireObject<T>, E> {
        Ok(WireObject::Bad)
    }
    fn visit_str<E>(self, _: &str) -> Result<WireObject<T>, E> {
        Ok(WireObject::Bad)
    }
    fn visit_unit<E>(self) -> Result<WireObject<T>, E> {
        Ok(WireObject::Unset)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<WireObject<T>, A::Error> {
        drain_seq(seq).map(|()| WireObject::Bad)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WireObject<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(WireObject::Value)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WireObject<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ObjectVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = WireList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }
    fn visit_bool<E>(self, _: bool) -> Result<WireList<T>, E> {
        Ok(WireList::Bad)
    }
    fn visit_i64<E>(self, _: i64) -> Result<WireList<T>, E> {
        Ok(WireList::Bad)
    }
    fn visit_u64<E>(self, _: u64) -> Result<WireList<T>, E> {
        Ok(WireList::Bad)
    }
    fn visit_f64<E>(self, _: f64) -> Result<WireList<T>, E> {
        Ok(WireList::Bad)
    }
    fn visit_str<E>(self, _: &str) -> Result<WireList<T>, E> {
        Ok(WireList::Bad)
    }
    fn visit_unit<E>(self) -> Result<WireList<T>, E> {
        Ok(WireList::Unset)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<WireList<T>, A::Error> {
        let mut items = Vec::new();
        while items.len() < MAX_ITEMS {
            match seq.next_element()? {
                Some(item) => items.push(item),
                None => return Ok(WireList::Value(items)),
            }
        }
        drain_seq(seq).map(|()| WireList::Bad)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<WireList<T>, A::Error> {
        drain_map(map).map(|()| WireList::Bad)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for WireList<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ListVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_many_forms() {
        let number = |json: &str| serde_json::from_str::<WireNumber>(json).unwrap();
        for json in ["7", "7.0", "\"7\"", r#"{"set":true,"infinite":false,"number":7}"#, r#"{"number":"7"}"#]
        {
            assert_eq!(number(json), WireNumber::Value(7), "{json}");
        }
        for json in ["null", "4294967294", "18446744073709551614", r#"{"set":false,"number":0}"#, "\"\""] {
            assert_eq!(number(json), WireNumber::Unset, "{json}");
        }
        for json in ["4294967295", r#"{"set":false,"infinite":true,"number":0}"#, "\"INFINITE\""] {
            assert_eq!(number(json), WireNumber::Infinite, "{json}");
        }
        for json in ["1e300", "[1]", "{}", "\"x\"", "9223372036854775807", r#"{"set":true,"number":[]}"#] {
            assert_eq!(number(json), WireNumber::Bad, "{json}");
        }
    }

    #[test]
    fn words_come_as_list_or_text() {
        let words = |json: &'static str| serde_json::from_str::<WireWords<'_>>(json).unwrap();
        let both = WireWords::Value(vec!["IDLE".into(), "DRAIN".into()]);
        assert_eq!(words(r#"["IDLE","DRAIN"]"#), both);
        assert_eq!(words(r#"["IDLE","DRAIN"]"#), both);
        assert_eq!(words(r#""IDLE+DRAIN""#), both);
        assert_eq!(words("null"), WireWords::Unset);
        assert_eq!(words("[null]"), WireWords::Bad);
        assert_eq!(words("3"), WireWords::Bad);
    }

    #[test]
    fn a_list_may_have_bad_items() {
        let list = |json: &'static str| serde_json::from_str::<WireList<WireNumber>>(json).unwrap();
        assert_eq!(
            list("[7, [], null]"),
            WireList::Value(vec![WireNumber::Value(7), WireNumber::Bad, WireNumber::Unset])
        );
        assert_eq!((list("[]"), list("null")), (WireList::Value(vec![]), WireList::Unset));
        for json in ["7", "-1", "0.5", "true", "\"x\"", r#"{"a": [1]}"#] {
            assert_eq!(list(json), WireList::Bad, "{json}");
        }
        let long = format!("[{}1]", "1,".repeat(MAX_ITEMS));
        assert_eq!(serde_json::from_str::<WireList<WireNumber>>(&long).unwrap(), WireList::Bad);
    }
}
