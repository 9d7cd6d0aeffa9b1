//! SchemaCollector of requests and answers, from the types that are read and written.

use std::collections::BTreeSet;

use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};

use infill_api::SCHEMA_VERSION;

use super::descriptions::plain_text;

/// Where the document has its schemas.
const SCHEMAS: &str = "#/components/schemas/";

/// Where the schemas of requests are until [`SchemaCollector::finish`] has compared them with those of
/// answers.
const REQUESTS: &str = "#/components/requests/";

/// Ending of a schema's name if requests and answers differ: answers have fields that requests may leave out.
const REQUEST_ENDING: &str = "Input";

/// Collects the schemas of all messages.
pub(super) struct SchemaCollector {
    answers: SchemaGenerator,
    requests: SchemaGenerator,
}

impl SchemaCollector {
    pub(super) fn new() -> SchemaCollector {
        let generator = |folder: &str, contract: Contract| {
            let settings = SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = format!("/{}", folder.trim_matches(['#', '/'])).into();
                settings.meta_schema = None;
                settings.contract = contract;
            });
            settings.into_generator()
        };
        SchemaCollector {
            answers: generator(SCHEMAS, Contract::Serialize),
            requests: generator(REQUESTS, Contract::Deserialize),
        }
    }

    /// The schema of an answer.
    pub(super) fn answer<T: JsonSchema>(&mut self) -> Value {
        self.answers.subschema_for::<T>().to_value()
    }

    /// The schema of a request's body.
    pub(super) fn body<T: JsonSchema>(&mut self) -> Value {
        self.requests.subschema_for::<T>().to_value()
    }

    /// The schema of a parameter, without a reference.
    pub(super) fn parameter<T: JsonSchema>(&mut self) -> Value {
        let mut schema = T::json_schema(&mut self.requests).to_value();
        edit_all(&mut schema, &mut tidy_schema);
        schema
    }

    /// The fields of a query as parameters.
    pub(super) fn query<T: JsonSchema>(&mut self) -> Vec<Value> {
        let query = T::json_schema(&mut self.requests).to_value();
        let fields = query["properties"].as_object().expect("fields");
        let required: Vec<&str> =
            query["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut parameters = Vec::new();
        for (name, field) in fields {
            let mut schema = self.without_reference(field);
            edit_all(&mut schema, &mut tidy_schema);
            let schema = schema.as_object_mut().expect("a schema");
            let description = field["description"].as_str().map(plain_text).unwrap_or_default();
            schema.remove("description");
            parameters.push(json!({
                "name": name, "in": "query", "required": required.contains(&name.as_str()),
                "description": description, "schema": schema,
            }));
        }
        parameters
    }

    /// The schema of a field of a query. Queries have no null: what is null elsewhere is left out.
    fn without_reference(&self, field: &Value) -> Value {
        let mut field = field.clone();
        let choices = field.as_object_mut().and_then(|field| field.remove("anyOf"));
        if let Some(Value::Array(choices)) = choices {
            field = choices.into_iter().find(|choice| choice["type"] != "null").expect("a choice");
        }
        let name = field["$ref"].as_str().and_then(|path| path.strip_prefix(REQUESTS));
        if let Some(name) = name {
            let default = field.get("default").cloned();
            field = self.requests.definitions()[name].clone();
            if let Some(default) = default {
                field["default"] = default;
            }
        }
        if let Some(kinds) = field["type"].as_array() {
            field["type"] = kinds.iter().find(|kind| **kind != "null").expect("a type").clone();
        }
        let fields = field.as_object_mut().expect("a schema");
        if fields.get("default").is_some_and(Value::is_null) {
            fields.remove("default");
        }
        field
    }

    /// All schemas by name. Changes the references in the paths of the document to these names.
    pub(super) fn finish(mut self, paths: &mut Value) -> Map<String, Value> {
        let mut answers = self.answers.take_definitions(false);
        let mut requests = self.requests.take_definitions(false);
        for schema in answers.values_mut() {
            // Later versions may add fields.
            let fields = schema.as_object_mut().expect("a schema");
            if fields.get("additionalProperties") == Some(&Value::Bool(false)) {
                fields.remove("additionalProperties");
            }
            edit_all(schema, &mut tidy_schema);
            edit_all(schema, &mut drop_unused_defaults);
        }
        requests.values_mut().for_each(|schema| edit_all(schema, &mut tidy_schema));
        let differing = differing_names(&answers, &requests);
        let mut rename = |fields: &mut Map<String, Value>| {
            let Some(Value::String(path)) = fields.get_mut("$ref") else { return };
            if let Some(name) = path.strip_prefix(REQUESTS) {
                *path = format!("{SCHEMAS}{}", request_name(name, &differing));
            }
        };
        edit_all(paths, &mut rename);
        for (name, mut schema) in requests {
            edit_all(&mut schema, &mut rename);
            answers.insert(request_name(&name, &differing), schema);
        }
        name_choices(answers)
    }
}

fn request_name(name: &str, differing: &BTreeSet<String>) -> String {
    if differing.contains(name) { format!("{name}{REQUEST_ENDING}") } else { name.to_owned() }
}

/// Names of schemas that differ in requests and answers, themselves or in what they refer to.
fn differing_names(answers: &Map<String, Value>, requests: &Map<String, Value>) -> BTreeSet<String> {
    let mut differing = BTreeSet::new();
    loop {
        let before = differing.len();
        for (name, request) in requests {
            let Some(answer) = answers.get(name) else { continue };
            let text = request.to_string().replace(REQUESTS, SCHEMAS);
            let answer = answer.to_string();
            let refers = differing.iter().any(|other| text.contains(&format!("\"{SCHEMAS}{other}\"")));
            if refers || text != answer {
                differing.insert(name.clone());
            }
        }
        if differing.len() == before {
            return differing;
        }
    }
}

/// Edits each object of a JSON value, the inner ones first.
pub(super) fn edit_all(value: &mut Value, edit: &mut impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(|field| edit_all(field, edit));
            edit(fields);
        }
        Value::Array(items) => items.iter_mut().for_each(|item| edit_all(item, edit)),
        _ => {}
    }
}

/// Changes a schema from what is written for Rust to what is read by others.
fn tidy_schema(schema: &mut Map<String, Value>) {
    // Messages may have fields of these names. Then the values are not strings.
    if let Some(Value::String(text)) = schema.get_mut("description") {
        if text.starts_with("[`SCHEMA_VERSION`]") {
            *schema = Map::new();
            schema.insert("type".to_owned(), "integer".into());
            schema.insert("const".to_owned(), SCHEMA_VERSION.into());
            schema.insert("description".to_owned(), "The version of the document.".into());
            return;
        }
        *text = plain_text(text);
        if text.is_empty() {
            schema.remove("description");
        }
    }
    // `usize`.
    if schema.get("format").is_some_and(|format| format == "uint") {
        schema.insert("format".to_owned(), "uint64".into());
    }
    join_words(schema);
}

/// Drops defaults of fields that are always there.
fn drop_unused_defaults(schema: &mut Map<String, Value>) {
    let Some(Value::Array(required)) = schema.get("required").cloned() else { return };
    let Some(Value::Object(fields)) = schema.get_mut("properties") else { return };
    for name in required.iter().filter_map(Value::as_str) {
        let field = fields.get_mut(name).and_then(Value::as_object_mut);
        field.and_then(|field| field.remove("default"));
    }
}

/// Makes one list of the words that a value may be. Programs that generate clients know what that is.
fn join_words(schema: &mut Map<String, Value>) {
    let Some(choices) = schema.get("oneOf").and_then(Value::as_array) else { return };
    let words: Vec<Value> = choices.iter().filter_map(|choice| choice.get("const").cloned()).collect();
    if words.is_empty() || words.len() < choices.len() {
        return;
    }
    let mut description = schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    for choice in choices {
        let word = choice["const"].as_str().expect("a word");
        let line_break = if description.contains("\n- ") { "\n" } else { "\n\n" };
        description += &format!("{line_break}- `{word}`: {}", choice["description"].as_str().expect("text"));
    }
    schema.remove("oneOf");
    schema.insert("type".to_owned(), "string".into());
    schema.insert("enum".to_owned(), words.into());
    schema.insert("description".to_owned(), description.into());
}

/// Gives each object that a value may be a schema and a name. Programs that generate clients make types of
/// these, and do not combine fields of a value with those of its choices.
fn name_choices(mut schemas: Map<String, Value>) -> Map<String, Value> {
    let mut named = Map::new();
    for (name, schema) in &mut schemas {
        let Some(Value::Array(choices)) = schema.get("oneOf").cloned() else { continue };
        let schema = schema.as_object_mut().expect("a schema");
        let common = [schema.remove("properties"), schema.remove("required")];
        schema.remove("type");
        let choices = choices.into_iter().map(|mut choice| {
            if choice["type"] != "object" {
                return choice;
            }
            let choice_name = format!("{name}{}", pascal_case(choice_word(&choice)));
            add_common(&mut choice, &common);
            let reference = json!({ "$ref": format!("{SCHEMAS}{choice_name}") });
            let other = named.insert(choice_name, choice);
            assert!(other.is_none(), "two choices of {name} have one name");
            reference
        });
        schema.insert("oneOf".to_owned(), choices.collect());
    }
    for (name, schema) in named {
        let other = schemas.insert(name.clone(), schema);
        assert!(other.is_none(), "two schemas have the name {name}");
    }
    schemas
}

/// The word that distinguishes a choice: its only field, or the value of a field that has only one.
fn choice_word(choice: &Value) -> &str {
    let fields = choice["properties"].as_object().expect("fields");
    let word = fields.values().find_map(|field| field["const"].as_str());
    word.or_else(|| fields.keys().next().map(String::as_str)).expect("a word")
}

/// Adds the fields that all choices have in common.
fn add_common(choice: &mut Value, common: &[Option<Value>; 2]) {
    let [fields, required] = common;
    if let Some(fields) = fields {
        choice["properties"]
            .as_object_mut()
            .expect("fields")
            .extend(fields.as_object().expect("fields").clone());
    }
    if let Some(required) = required {
        choice["required"].as_array_mut().expect("names").extend(required.as_array().expect("names").clone());
    }
}

/// `TimeLimit` of `time_limit`.
fn pascal_case(word: &str) -> String {
    let capital =
        |part: &str| part.get(..1).unwrap_or_default().to_uppercase() + part.get(1..).unwrap_or_default();
    word.split(['_', '-']).map(capital).collect()
}
