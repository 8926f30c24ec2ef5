//! `openapi.yaml` and `asyncapi.yaml`, to hold real answers and frames against.
//!
//! Both are part of the product, so they must say what the code does. `tests/suite/tests/api_documents` compares them with the
//! sources; the end-to-end tests hand every answer they get to [`Contract::check_answer`] and every frame to
//! [`Contract::check_server_frame`]. Schemas in both files are JSON Schema 2020-12.

#![allow(clippy::expect_used, clippy::panic, reason = "whatever fails here fails a test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use jsonschema::{Draft, Validator};
use serde_json::{Map, Value, json};

/// The methods that an OpenAPI path may have; its other members are not operations.
const METHODS: [&str; 4] = ["get", "post", "put", "delete"];

/// The two documents.
#[derive(Debug)]
pub struct Contract {
    http: Value,
    socket: Value,
}

/// A method on a path, as `openapi.yaml` describes it.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    pub method: &'a str,
    /// With its parameters in braces.
    pub path: &'a str,
    /// What the path has for all its operations, and the operation itself.
    shared: &'a Value,
    own: &'a Value,
}

/// An answer as it came over HTTP.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    pub status: u16,
    /// By name in lower case.
    pub headers: &'a BTreeMap<String, String>,
    pub body: &'a [u8],
}

/// Where something differs from what the documents say.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Drift {
    what: String,
    why: String,
}

/// The checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders below the checkout").to_owned()
}

fn read(name: &str) -> Value {
    let text = fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    serde_yaml_ng::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

impl Contract {
    pub fn read() -> Self {
        Self { http: read("openapi.yaml"), socket: read("asyncapi.yaml") }
    }

    /// `openapi.yaml`.
    pub fn http(&self) -> &Value {
        &self.http
    }

    pub fn operations(&self) -> Vec<Operation<'_>> {
        members(&self.http["paths"])
            .flat_map(|(path, shared)| {
                members(shared).filter(|(method, _)| METHODS.contains(method)).map(move |(method, own)| Operation {
                    method,
                    path,
                    shared,
                    own,
                })
            })
            .collect()
    }

    /// The operation that a request meets. Of two paths that fit, the one with fewer parameters, as at the gateway.
    pub fn operation(&self, method: &str, path: &str) -> Option<Operation<'_>> {
        let fitting = self
            .operations()
            .into_iter()
            .filter(|operation| operation.method.eq_ignore_ascii_case(method) && fits(operation.path, path));
        fitting.min_by_key(|operation| operation.path.matches('{').count())
    }

    /// A schema of `components` in `openapi.yaml`.
    pub fn schema(&self, name: &str) -> &Value {
        let schema = &self.http["components"]["schemas"][name];
        assert!(schema.is_object(), "openapi.yaml has no schema {name}");
        schema
    }

    /// Whether an answer is one that `openapi.yaml` describes for this request: its status, headers and body. `path` is
    /// without the query.
    pub fn check_answer(&self, method: &str, path: &str, answer: Answer<'_>) -> Result<(), Drift> {
        let what = format!("{method} {path} answered {}", answer.status);
        let drift = |why: String| Drift { what: what.clone(), why };
        let operation = self.operation(method, path).ok_or_else(|| drift("not a documented operation".into()))?;
        let response =
            self.response(operation, answer.status).ok_or_else(|| drift("not a documented status".into()))?;
        for (name, header) in members(&response["headers"]) {
            let header = resolve(&self.http, header);
            match answer.headers.get(&name.to_lowercase()) {
                Some(value) => self
                    .validator(&self.http, &header["schema"])
                    .judge(&json!(value))
                    .map_err(|why| drift(format!("header {name}: {why}")))?,
                None if header["required"] == true => return Err(drift(format!("no header {name}"))),
                None => {}
            }
        }
        let mut contents = members(&response["content"]);
        let Some((media_type, content)) = contents.next() else {
            return if answer.body.is_empty() { Ok(()) } else { Err(drift("has a body".into())) };
        };
        let told = answer.headers.get("content-type").map(String::as_str).unwrap_or_default();
        if told.split(';').next() != Some(media_type) {
            return Err(drift(format!("is {told:?}, not {media_type}")));
        }
        let body = serde_json::from_slice(answer.body).map_err(|error| drift(format!("no JSON: {error}")))?;
        self.validator(&self.http, &content["schema"]).judge(&body).map_err(drift)
    }

    /// Whether `openapi.yaml` lets a client send this body.
    pub fn check_request(&self, method: &str, path: &str, body: &Value) -> Result<(), Drift> {
        let drift = |why: String| Drift { what: format!("body of {method} {path}"), why };
        let operation = self.operation(method, path).ok_or_else(|| drift("not a documented operation".into()))?;
        let schema = &operation.own["requestBody"]["content"]["application/json"]["schema"];
        if schema.is_null() {
            return Err(drift("no body is documented".into()));
        }
        self.validator(&self.http, schema).judge(body).map_err(drift)
    }

    /// Whether a frame is one that `asyncapi.yaml` has the server send.
    pub fn check_server_frame(&self, frame: &Value) -> Result<(), Drift> {
        self.check_frame("toClient", frame)
    }

    /// Whether a frame is one that `asyncapi.yaml` lets a client send.
    pub fn check_client_frame(&self, frame: &Value) -> Result<(), Drift> {
        self.check_frame("fromClient", frame)
    }

    fn check_frame(&self, operation: &str, frame: &Value) -> Result<(), Drift> {
        let kind = frame["type"].as_str().unwrap_or_default();
        let drift = |why: String| Drift { what: format!("frame {frame}"), why };
        let messages = self.messages(operation);
        let message = messages.get(kind).ok_or_else(|| drift(format!("{operation} has no such type")))?;
        self.validator(&self.socket, &message["payload"]).judge(frame).map_err(drift)
    }

    /// The messages of an operation of `asyncapi.yaml` (`fromClient`, `toClient`), by title: the `type` of their frames. (Both sides
    /// say `typing` and `status`, each its own way, so the names in the channel are not that.)
    pub fn messages(&self, operation: &str) -> BTreeMap<String, &Value> {
        let messages = self.socket["operations"][operation]["messages"].as_array().expect("an operation with messages");
        messages
            .iter()
            .map(|reference| {
                let message = resolve(&self.socket, reference);
                (message["title"].as_str().expect("a title").to_owned(), message)
            })
            .collect()
    }

    /// The payload of a message of `asyncapi.yaml`.
    pub fn payload<'a>(&'a self, message: &'a Value) -> &'a Value {
        resolve(&self.socket, &message["payload"])
    }

    /// What `openapi.yaml` says of one status of an operation.
    pub fn response<'a>(&'a self, operation: Operation<'a>, status: u16) -> Option<&'a Value> {
        let response = operation.own["responses"].get(status.to_string())?;
        Some(resolve(&self.http, response))
    }

    /// Every schema, header, parameter and example of both documents is well-formed, and each example is valid.
    pub fn check_examples(&self) -> Result<usize, Drift> {
        let mut examples = 0;
        for (document, name) in [(&self.http, "openapi.yaml"), (&self.socket, "asyncapi.yaml")] {
            self.walk(document, document, &mut vec![name.to_owned()], &mut examples)?;
        }
        Ok(examples)
    }

    fn walk(&self, document: &Value, value: &Value, path: &mut Vec<String>, examples: &mut usize) -> Result<(), Drift> {
        let schema = if value["payload"].is_object() { &value["payload"] } else { &value["schema"] };
        if !schema.is_null() {
            let validator = self.validator(document, schema);
            let listed = value["examples"].as_array().into_iter().flatten().map(|example| &example["payload"]);
            let named = members(&value["examples"]).map(|(_, example)| &example["value"]);
            for example in value.get("example").into_iter().chain(listed).chain(named) {
                *examples += 1;
                validator
                    .judge(example)
                    .map_err(|why| Drift { what: format!("example at {}", path.join("/")), why })?;
            }
        }
        let children: Vec<(String, &Value)> = match value {
            Value::Object(_) => members(value)
                .filter(|(name, _)| !["example", "examples"].contains(name))
                .map(|(name, member)| (name.to_owned(), member))
                .collect(),
            Value::Array(items) => items.iter().enumerate().map(|(index, item)| (index.to_string(), item)).collect(),
            Value::String(_) | Value::Number(_) | Value::Bool(_) | Value::Null => Vec::new(),
        };
        for (name, child) in children {
            path.push(name);
            self.walk(document, child, path, examples)?;
            path.pop();
        }
        Ok(())
    }

    fn validator(&self, document: &Value, schema: &Value) -> Judge {
        // References point into the components, so these come along.
        let whole = json!({"allOf": [schema], "components": document["components"]});
        let options = jsonschema::options().with_draft(Draft::Draft202012).should_validate_formats(true);
        Judge(options.build(&whole).unwrap_or_else(|error| panic!("a schema is not well-formed: {error}: {schema}")))
    }
}

impl<'a> Operation<'a> {
    /// As the gateway writes a route: `GET /api/order/{orderNo}`.
    pub fn route(&self) -> String {
        format!("{} {}", self.method.to_uppercase(), self.path)
    }

    pub fn statuses(&self) -> impl Iterator<Item = u16> {
        members(&self.own["responses"]).map(|(status, _)| status.parse().expect("a status"))
    }

    /// The codes that a status may carry; none for a success.
    pub fn codes(&self, contract: &'a Contract, status: u16) -> Vec<String> {
        let schema =
            contract.response(*self, status).map(|response| &response["content"]["application/problem+json"]["schema"]);
        let parts = schema.and_then(|schema| schema["allOf"].as_array()).into_iter().flatten();
        parts
            .map(|part| &part["properties"]["code"])
            .flat_map(|code| code["enum"].as_array().cloned().unwrap_or_else(|| vec![code["const"].clone()]))
            .filter_map(|code| code.as_str().map(str::to_owned))
            .collect()
    }

    /// Names of the parameters in the path.
    pub fn path_parameters(&self, contract: &'a Contract) -> Vec<String> {
        let listed =
            [self.shared, self.own].into_iter().flat_map(|level| level["parameters"].as_array().into_iter().flatten());
        listed
            .map(|parameter| resolve(&contract.http, parameter))
            .filter(|parameter| parameter["in"] == "path")
            .filter_map(|parameter| parameter["name"].as_str().map(str::to_owned))
            .collect()
    }

    /// The schemes of which one is needed; empty for what is open to anybody.
    pub fn security(&self) -> Vec<&'a str> {
        let needed = self.own["security"].as_array().expect("every operation says who may call");
        needed.iter().flat_map(|scheme| members(scheme).map(|(name, _)| name)).collect()
    }
}

struct Judge(Validator);

impl Judge {
    fn judge(&self, instance: &Value) -> Result<(), String> {
        let errors: Vec<String> = self
            .0
            .iter_errors(instance)
            .map(|error| format!("{error} at {:?}", error.instance_path().as_str()))
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }
}

/// The members of an object; none of anything else.
pub fn members(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(name, member)| (name.as_str(), member))
}

/// What a reference within `document` points at, through any number of references.
fn resolve<'a>(document: &'a Value, mut value: &'a Value) -> &'a Value {
    while let Some(reference) = value["$ref"].as_str() {
        let pointer = reference.strip_prefix('#').expect("a reference within the document");
        value = document.pointer(pointer).unwrap_or_else(|| panic!("{reference} points nowhere"));
    }
    value
}

/// Whether a path is one of those that a template stands for.
fn fits(template: &str, path: &str) -> bool {
    let (mut expected, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (expected.next(), given.next()) {
            (None, None) => return true,
            (Some(expected), Some(given)) if expected.starts_with('{') && !given.is_empty() || expected == given => {}
            (Some(_) | None, Some(_) | None) => return false,
        }
    }
}
