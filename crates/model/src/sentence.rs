//! Reasons as values, which become sentences only when someone reads them.

/// Implements JSON for an enum of reasons: it is written as its sentence and read back as `Said`. The text
/// describes the sentence in the schema.
macro_rules! sentence {
    ($name:ident: $description:literal) => {
        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "description": $description })
            }
        }

        impl From<String> for $name {
            fn from(sentence: String) -> Self {
                $name::Said(sentence)
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
