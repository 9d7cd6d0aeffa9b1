//! Reasons as values: a word to count them by, a sentence only when somebody reads it.

/// An enum of small values, each with a word that stays: for metrics and for questions to stored rounds.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$doc])* $value,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$value,)+];

            /// The word; it never changes.
            pub fn word(self) -> &'static str {
                match self {
                    $($name::$value => $word,)+
                }
            }
        }
    };
}

/// Makes an enum of reasons its sentence in JSON, which is read back as `Said`.
macro_rules! sentence {
    ($name:ident) => {
        impl From<String> for $name {
            fn from(why: String) -> Self {
                $name::Said(why)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(deserializer).map($name::Said)
            }
        }
    };
}

pub(crate) use {sentence, words};
