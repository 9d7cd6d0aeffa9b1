//! Single fields as slurmrestd writes them, in all the forms that its versions have used.
//!
//! Reading a field never fails: what cannot be understood becomes `Bad`, and whoever needs the field decides
//! what that means. So one odd value never costs the whole answer, and there is only one pass over it.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Slurm's marks for "no value" and "infinite" in plain integers of 32 and 64 bits.
const NO_VALUES: [u64; 2] = [0xffff_fffe, 0xffff_ffff_ffff_fffe];
const INFINITES: [u64; 2] = [0xffff_ffff, 0xffff_ffff_ffff_ffff];

/// Largest number that is believed: beyond it, doubles are not exact, and nothing in Slurm counts that far.
const MAX_NUMBER: i64 = 1 << 53;

/// Most words in one list. A node is in a handful of partitions and has at most dozens of features.
const MAX_WORDS: usize = 10_000;

/// Most items in one list: a job has one for each of its nodes.
const MAX_ITEMS: usize = 100_000;

/// A number, also as text or as `{set, infinite, number}`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Number {
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

/// A text, also given as a number or a list. Borrowed from the answer where that has it without escapes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Text<'a> {
    /// Missing or null.
    #[default]
    Unset,
    /// A value.
    Value(Cow<'a, str>),
    /// Something else.
    Bad,
}

/// A list of words, also given as one text.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Words<'a> {
    /// Missing or null.
    #[default]
    Unset,
    /// A value.
    Value(Vec<Cow<'a, str>>),
    /// Something else.
    Bad,
}

/// An object, or whatever stands in its place.
#[derive(Clone, Debug, Default)]
pub(super) enum Object<T> {
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
pub(super) enum List<T> {
    /// Missing or null.
    #[default]
    Unset,
    /// A value.
    Value(Vec<T>),
    /// Something else.
    Bad,
}

/// A value that few need and that takes long to read: it is read once somebody asks for it.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Unread<'a>(#[serde(borrow)] Option<&'a RawValue>);

impl<'a> Unread<'a> {
    /// The value; its default if it is missing, null, or nothing like it.
    pub(super) fn read<T: Deserialize<'a> + Default>(self) -> T {
        self.0.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
    }
}

fn number(n: i64) -> Number {
    if (-MAX_NUMBER..=MAX_NUMBER).contains(&n) { Number::Value(n) } else { Number::Bad }
}

fn natural(n: u64) -> Number {
    match n {
        n if NO_VALUES.contains(&n) => Number::Unset,
        n if INFINITES.contains(&n) => Number::Infinite,
        n => i64::try_from(n).map_or(Number::Bad, number),
    }
}

fn real(n: f64) -> Number {
    // `as` saturates and turns NaN into 0, which the range test must see first.
    if n.is_finite() { number(n.trunc() as i64) } else { Number::Bad }
}

fn number_in_text(text: &str) -> Number {
    match text.trim() {
        "" => Number::Unset,
        t if t.eq_ignore_ascii_case("infinite") || t.eq_ignore_ascii_case("unlimited") => Number::Infinite,
        t => t
            .parse::<u64>()
            .map(natural)
            .or_else(|_| t.parse::<i64>().map(number))
            .or_else(|_| t.parse::<f64>().map(real))
            .unwrap_or(Number::Bad),
    }
}

/// Consumes a list that has no business where it stands.
fn drain_seq<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<(), A::Error> {
    while seq.next_element::<IgnoredAny>()?.is_some() {}
    Ok(())
}

fn drain_map<'de, A: MapAccess<'de>>(mut map: A) -> Result<(), A::Error> {
    while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
    Ok(())
}

/// The members of a number that is an object.
#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum Part {
    Set,
    Infinite,
    Number,
    #[serde(other)]
    Other,
}

struct NumberVisitor;

impl<'de> Visitor<'de> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number")
    }
    fn visit_bool<E>(self, b: bool) -> Result<Number, E> {
        Ok(Number::Value(i64::from(b)))
    }
    fn visit_i64<E>(self, n: i64) -> Result<Number, E> {
        Ok(number(n))
    }
    fn visit_u64<E>(self, n: u64) -> Result<Number, E> {
        Ok(natural(n))
    }
    fn visit_f64<E>(self, n: f64) -> Result<Number, E> {
        Ok(real(n))
    }
    fn visit_str<E>(self, text: &str) -> Result<Number, E> {
        Ok(number_in_text(text))
    }
    fn visit_unit<E>(self) -> Result<Number, E> {
        Ok(Number::Unset)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Number, A::Error> {
        drain_seq(seq).map(|()| Number::Bad)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Number, A::Error> {
        let (mut set, mut infinite, mut value) = (None, false, None);
        while let Some(part) = map.next_key::<Part>()? {
            match part {
                Part::Set => set = Some(map.next_value::<Number>()? == Number::Value(1)),
                Part::Infinite => infinite = map.next_value::<Number>()? == Number::Value(1),
                Part::Number => value = Some(map.next_value::<Number>()?),
                Part::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(match (infinite, set, value) {
            (true, _, _) => Number::Infinite,
            (false, Some(false), _) => Number::Unset,
            (false, _, Some(value)) => value,
            (false, Some(true), None) => Number::Bad,
            (false, None, None) => Number::Bad,
        })
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(NumberVisitor)
    }
}

/// The words of one text.
fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', '+']).map(str::trim).filter(|w| !w.is_empty()).take(MAX_WORDS)
}

struct WordsVisitor;

impl<'de> Visitor<'de> for WordsVisitor {
    type Value = Words<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of words")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Words<'de>, E> {
        Ok(Words::Bad)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Words<'de>, E> {
        Ok(Words::Bad)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Words<'de>, E> {
        Ok(Words::Bad)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Words<'de>, E> {
        Ok(Words::Bad)
    }
    fn visit_str<E>(self, text: &str) -> Result<Words<'de>, E> {
        Ok(Words::Value(split(text).map(|w| Cow::Owned(w.to_owned())).collect()))
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Words<'de>, E> {
        Ok(Words::Value(split(text).map(Cow::Borrowed).collect()))
    }
    fn visit_unit<E>(self) -> Result<Words<'de>, E> {
        Ok(Words::Unset)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Words<'de>, A::Error> {
        let (mut words, mut bad) = (Vec::new(), false);
        while let Some(item) = seq.next_element::<Text<'de>>()? {
            match item {
                Text::Value(word) if words.len() < MAX_WORDS => words.push(word),
                _ => bad = true,
            }
        }
        Ok(if bad { Words::Bad } else { Words::Value(words) })
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Words<'de>, A::Error> {
        drain_map(map).map(|()| Words::Bad)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Words<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(WordsVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Text<'de>, E> {
        Ok(Text::Bad)
    }
    fn visit_i64<E>(self, n: i64) -> Result<Text<'de>, E> {
        Ok(Text::Value(Cow::Owned(n.to_string())))
    }
    fn visit_u64<E>(self, n: u64) -> Result<Text<'de>, E> {
        Ok(Text::Value(Cow::Owned(n.to_string())))
    }
    fn visit_f64<E>(self, _: f64) -> Result<Text<'de>, E> {
        Ok(Text::Bad)
    }
    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text::Value(Cow::Owned(text.to_owned())))
    }
    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text::Value(Cow::Borrowed(text)))
    }
    fn visit_string<E>(self, text: String) -> Result<Text<'de>, E> {
        Ok(Text::Value(Cow::Owned(text)))
    }
    fn visit_unit<E>(self) -> Result<Text<'de>, E> {
        Ok(Text::Unset)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Text<'de>, A::Error> {
        Ok(match WordsVisitor.visit_seq(seq)? {
            Words::Value(words) => Text::Value(Cow::Owned(words.join(","))),
            _ => Text::Bad,
        })
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Text<'de>, A::Error> {
        drain_map(map).map(|()| Text::Bad)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(TextVisitor)
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_bool<E>(self, _: bool) -> Result<Object<T>, E> {
        Ok(Object::Bad)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Object<T>, E> {
        Ok(Object::Bad)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Object<T>, E> {
        Ok(Object::Bad)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Object<T>, E> {
        Ok(Object::Bad)
    }
    fn visit_str<E>(self, _: &str) -> Result<Object<T>, E> {
        Ok(Object::Bad)
    }
    fn visit_unit<E>(self) -> Result<Object<T>, E> {
        Ok(Object::Unset)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Object<T>, A::Error> {
        drain_seq(seq).map(|()| Object::Bad)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object::Value)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ObjectVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }
    fn visit_bool<E>(self, _: bool) -> Result<List<T>, E> {
        Ok(List::Bad)
    }
    fn visit_i64<E>(self, _: i64) -> Result<List<T>, E> {
        Ok(List::Bad)
    }
    fn visit_u64<E>(self, _: u64) -> Result<List<T>, E> {
        Ok(List::Bad)
    }
    fn visit_f64<E>(self, _: f64) -> Result<List<T>, E> {
        Ok(List::Bad)
    }
    fn visit_str<E>(self, _: &str) -> Result<List<T>, E> {
        Ok(List::Bad)
    }
    fn visit_unit<E>(self) -> Result<List<T>, E> {
        Ok(List::Unset)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
        let mut items = Vec::new();
        while items.len() < MAX_ITEMS {
            match seq.next_element()? {
                Some(item) => items.push(item),
                None => return Ok(List::Value(items)),
            }
        }
        drain_seq(seq).map(|()| List::Bad)
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<List<T>, A::Error> {
        drain_map(map).map(|()| List::Bad)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        d.deserialize_any(ListVisitor(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_many_forms() {
        let number = |json: &str| serde_json::from_str::<Number>(json).unwrap();
        for json in ["7", "7.0", "\"7\"", r#"{"set":true,"infinite":false,"number":7}"#, r#"{"number":"7"}"#]
        {
            assert_eq!(number(json), Number::Value(7), "{json}");
        }
        for json in ["null", "4294967294", "18446744073709551614", r#"{"set":false,"number":0}"#, "\"\""] {
            assert_eq!(number(json), Number::Unset, "{json}");
        }
        for json in ["4294967295", r#"{"set":false,"infinite":true,"number":0}"#, "\"INFINITE\""] {
            assert_eq!(number(json), Number::Infinite, "{json}");
        }
        for json in ["1e300", "[1]", "{}", "\"x\"", "9223372036854775807", r#"{"set":true,"number":[]}"#] {
            assert_eq!(number(json), Number::Bad, "{json}");
        }
    }

    #[test]
    fn words_come_as_list_or_text() {
        let words = |json: &'static str| serde_json::from_str::<Words<'_>>(json).unwrap();
        let both = Words::Value(vec!["IDLE".into(), "DRAIN".into()]);
        assert_eq!(words(r#"["IDLE","DRAIN"]"#), both);
        assert_eq!(words(r#"["IDLE","DRAIN"]"#), both);
        assert_eq!(words(r#""IDLE+DRAIN""#), both);
        assert_eq!(words("null"), Words::Unset);
        assert_eq!(words("[null]"), Words::Bad);
        assert_eq!(words("3"), Words::Bad);
    }

    #[test]
    fn a_list_is_one_whatever_is_in_it() {
        let list = |json: &'static str| serde_json::from_str::<List<Number>>(json).unwrap();
        assert_eq!(list("[7, [], null]"), List::Value(vec![Number::Value(7), Number::Bad, Number::Unset]));
        assert_eq!((list("[]"), list("null")), (List::Value(vec![]), List::Unset));
        for json in ["7", "-1", "0.5", "true", "\"x\"", r#"{"a": [1]}"#] {
            assert_eq!(list(json), List::Bad, "{json}");
        }
        let long = format!("[{}1]", "1,".repeat(MAX_ITEMS));
        assert_eq!(serde_json::from_str::<List<Number>>(&long).unwrap(), List::Bad);
    }
}
