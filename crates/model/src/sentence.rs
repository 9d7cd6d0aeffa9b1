//! Reasons as values: a sentence only when somebody reads them.

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

pub(crate) use sentence;
