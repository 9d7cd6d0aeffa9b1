//! Enums whose values are words, the same in JSON, tables, flags and the store.

/// The error for a word that is not a value of its enum.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not one of {expected}")]
pub struct UnknownWord {
    /// The word as written.
    pub word: String,
    /// The valid words.
    pub expected: &'static str,
}

/// Declares an enum and the word of each value, for all representations.
#[macro_export]
macro_rules! words {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $(#[$first_note:meta])*
            $first:ident = $first_word:literal,
            $( $(#[$note:meta])* $value:ident = $word:literal, )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $(#[$first_note])*
            #[serde(rename = $first_word)]
            $first,
            $( $(#[$note])* #[serde(rename = $word)] $value, )*
        }

        impl $name {
            /// All values, in their order.
            pub const ALL: &'static [$name] = &[$name::$first, $($name::$value),*];

            /// The words of all values, for messages.
            pub const WORDS: &'static str = concat!($first_word, $(", ", $word),*);

            /// The word of this value.
            pub fn word(self) -> &'static str {
                match self {
                    $name::$first => $first_word,
                    $( $name::$value => $word, )*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::words::UnknownWord;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                let value = Self::ALL.iter().copied().find(|value| value.word() == word);
                value.ok_or_else(|| $crate::words::UnknownWord {
                    word: word.to_owned(),
                    expected: Self::WORDS,
                })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::{AgentEventKind, BatchMode, ControlState, DaemonMode, FaultSource, MalleableState};

    /// Checks that every value is the same word everywhere, and that nothing else is read.
    macro_rules! check {
        ($($name:ident),+) => {$(
            for value in $name::ALL {
                let word = value.to_string();
                assert_eq!(word.parse(), Ok(*value));
                assert_eq!(serde_json::to_value(value).unwrap(), word.as_str());
                assert_eq!(serde_json::from_value::<$name>(word.into()).unwrap(), *value);
            }
            assert!("".parse::<$name>().is_err() && "Normal".parse::<$name>().is_err());
        )+};
    }

    #[test]
    fn a_value_is_the_same_word_everywhere() {
        check!(BatchMode, FaultSource, ControlState, AgentEventKind, MalleableState, DaemonMode);
        let error = "parked".parse::<ControlState>().unwrap_err();
        assert_eq!(error.to_string(), r#""parked" is not one of normal, paused, draining"#);
    }
}
