//! An OpenAPI document (3.0 or 3.1) as rules for requests.

use std::io;
use std::path::Path;
use std::sync::Arc;

use gateway_core::config::file::{self, Origin};
use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::World;
use gateway_plugin_common::headers;
use gateway_plugin_common::parse;
use http::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::ValidationRefusal;
use super::content::{BodyContent, ObjectSchema};
use super::dialect::SchemaDialect;
use super::parameter::Parameter;
use super::schema::Schema;
use super::values;

/// Bytes a document may have.
const MAX_DOCUMENT: u64 = 16 << 20;
/// Operations of a document.
const MAX_OPERATIONS: usize = 5000;
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];

/// What happens to a request that the document does not describe.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unknown {
    /// It is rejected.
    #[default]
    Deny,
    /// It passes.
    Allow,
}

/// What becomes of requests that the document does not have.
#[derive(Debug, Clone, Copy)]
pub(super) struct OnUnknown {
    pub(super) path: Unknown,
    pub(super) query: Unknown,
}

/// The document, compiled.
pub(super) struct OpenApi {
    base: String,
    /// Those with more fixed segments come first.
    paths: Vec<PathRule>,
    unknown: OnUnknown,
}

struct PathRule {
    segments: Vec<Segment>,
    operations: Vec<(Method, Operation)>,
}

#[derive(Debug, PartialEq, Eq)]
enum Segment {
    Fixed(String),
    /// A name, and what stands around it.
    Named {
        before: String,
        name: String,
        after: String,
    },
}

#[derive(Default)]
struct Operation {
    parameters: Vec<Parameter>,
    body: Option<Arc<BodyContent>>,
}

struct DocumentReader<'d> {
    root: &'d Value,
    components: Arc<Value>,
    written: SchemaDialect,
    problems: &'d mut Problems,
}

impl OpenApi {
    /// Reads a document; all that is wrong with it goes to `problems`.
    pub(super) fn read(
        path: &Path,
        base: Option<&str>,
        unknown: OnUnknown,
        world: &World,
        problems: &mut Problems,
    ) -> Option<Self> {
        let root = match load(path, world) {
            Ok(root) => root,
            Err(why) => {
                problems.add("config.openapi", format!("{} can't be used: {why}", path.display()));
                return None;
            }
        };
        let written = match root.get("openapi").and_then(Value::as_str) {
            Some(version) if version.starts_with("3.1") => SchemaDialect::Standard,
            Some(version) if version.starts_with("3.0") => SchemaDialect::OpenApi30,
            _ => {
                problems.add("config.openapi", "this is not an OpenAPI document of version 3.0 or 3.1");
                return None;
            }
        };
        let base = base.map_or_else(|| server_path(&root), str::to_owned);
        let components = written.components(root.get("components").unwrap_or(&Value::Null));
        let mut reading = DocumentReader { root: &root, components, written, problems };
        let paths = reading.paths();
        let base = parse::request_path("config.base_path", base.trim_end_matches('/'), problems)?;
        Some(Self { base, paths, unknown })
    }

    /// Checks a request's path, method and parameters; says what its body may be.
    pub(super) fn check(&self, exchange: &Exchange) -> Result<Option<Arc<BodyContent>>, ValidationRefusal> {
        let path = exchange.path();
        let inner = path.strip_prefix(&self.base).filter(|inner| inner.is_empty() || inner.starts_with('/'));
        let found = inner.and_then(|inner| {
            let segments: Vec<&str> = inner.split('/').skip(1).collect();
            self.paths.iter().find_map(|rule| rule.matches(&segments).map(|names| (rule, names)))
        });
        let Some((rule, names)) = found else {
            return self.unknown(StatusCode::NOT_FOUND, "path_unknown", "the document has no such path");
        };
        let method = exchange.method();
        let get =
            || rule.operations.iter().find(|(known, _)| *method == Method::HEAD && *known == Method::GET);
        let Some((_, operation)) = rule.operations.iter().find(|(known, _)| known == method).or_else(get)
        else {
            let detail = "the document does not have this method for the path";
            let refused = self.unknown(StatusCode::METHOD_NOT_ALLOWED, "method_unknown", detail);
            let methods = rule.operations.iter().map(|(known, _)| known);
            return refused.map_err(|fault| ValidationRefusal { allow: headers::allow(methods), ..fault });
        };
        let mut faults = Vec::new();
        let Some(query) = values::pairs(exchange.request.uri.query().unwrap_or_default()) else {
            return Err(ValidationRefusal::invalid(&["query: it is not UTF-8".to_owned()]));
        };
        for parameter in &operation.parameters {
            parameter.check(exchange, &names, &query, &mut faults);
        }
        if self.unknown.query == Unknown::Deny {
            let is_known = |name: &str| operation.parameters.iter().any(|it| it.is_query(name));
            if query.iter().any(|(name, _)| !is_known(name)) {
                faults.push("query: a parameter is not known".into());
            }
        }
        if faults.is_empty() { Ok(operation.body.clone()) } else { Err(ValidationRefusal::invalid(&faults)) }
    }

    fn unknown(
        &self,
        status: StatusCode,
        reason: &'static str,
        detail: &str,
    ) -> Result<Option<Arc<BodyContent>>, ValidationRefusal> {
        match self.unknown.path {
            Unknown::Allow => Ok(None),
            Unknown::Deny => Err(ValidationRefusal::with(status, reason, detail)),
        }
    }
}

/// Why a document can't be read.
#[derive(Debug, thiserror::Error)]
enum DocumentError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("it is not UTF-8")]
    NotUtf8,
    #[error(transparent)]
    Syntax(#[from] Problems),
}

fn load(path: &Path, world: &World) -> Result<Value, DocumentError> {
    let bytes = world.settings_file(path, MAX_DOCUMENT)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| DocumentError::NotUtf8)?;
    // By the rules of the gateway's own file, YAML 1.2: `no` and `on` are text, `012` is twelve.
    Ok(file::foreign(text, &Origin::default())?)
}

/// The path of the document's first server; one with variables has none.
fn server_path(root: &Value) -> String {
    let url = root.pointer("/servers/0/url").and_then(Value::as_str).unwrap_or_default();
    let path = match url.split_once("://") {
        Some((_, rest)) => rest.find('/').and_then(|n| rest.get(n..)).unwrap_or_default(),
        None => url,
    };
    if path.starts_with('/') && !path.contains('{') { path.to_owned() } else { String::new() }
}

impl DocumentReader<'_> {
    fn wrong(&mut self, pointer: &str, message: impl std::fmt::Display) {
        self.problems.add("config.openapi", format!("#{pointer}: {message}"));
    }

    fn paths(&mut self) -> Vec<PathRule> {
        let mut rules = Vec::new();
        let mut count = 0;
        let Some(Value::Object(paths)) = self.root.get("paths") else {
            self.wrong("/paths", "the document has no paths");
            return rules;
        };
        for (path, item) in paths.iter().filter(|(path, _)| !path.starts_with("x-")) {
            let at = format!("/paths/{}", escaped(path));
            let Some(segments) = segments(path) else {
                self.wrong(&at, "this is not a path");
                continue;
            };
            let Some(item) = values::resolved(self.root, item) else {
                self.wrong(&at, "the reference leads nowhere");
                continue;
            };
            let shared = self.parameters(&at, item);
            let mut operations = Vec::new();
            for name in METHODS {
                let Some(written) = item.get(name) else { continue };
                count += 1;
                let Ok(method) = Method::from_bytes(name.to_ascii_uppercase().as_bytes()) else { continue };
                operations.push((method, self.operation(&format!("{at}/{name}"), &shared, written)));
            }
            rules.push(PathRule { segments, operations });
        }
        if count > MAX_OPERATIONS {
            self.wrong("/paths", format!("there are more than {MAX_OPERATIONS} operations"));
        }
        // Fixed segments come before names, from the left (OpenAPI 3.1 §4.8.8).
        rules.sort_by_cached_key(|rule| {
            rule.segments
                .iter()
                .map(|segment| u8::from(!matches!(segment, Segment::Fixed(_))))
                .collect::<Vec<_>>()
        });
        rules
    }

    /// The parameters of a path or an operation, with where they are.
    fn parameters(&mut self, at: &str, item: &Value) -> Vec<(String, Value)> {
        let Some(Value::Array(list)) = item.get("parameters") else { return Vec::new() };
        let mut found = Vec::new();
        for (n, written) in list.iter().enumerate() {
            let at = format!("{at}/parameters/{n}");
            match values::resolved(self.root, written) {
                Some(parameter) => found.push((at, parameter.clone())),
                None => self.wrong(&at, "the reference leads nowhere"),
            }
        }
        found
    }

    fn operation(&mut self, at: &str, shared: &[(String, Value)], written: &Value) -> Operation {
        let own = self.parameters(at, written);
        let id = |parameter: &Value| (parameter.get("in").cloned(), parameter.get("name").cloned());
        let inherited = shared.iter().filter(|(_, it)| !own.iter().any(|(_, other)| id(other) == id(it)));
        let all: Vec<(String, Value)> = inherited.cloned().chain(own.iter().cloned()).collect();
        let parameters = all.iter().filter_map(|(at, parameter)| self.parameter(at, parameter)).collect();
        let body = written.get("requestBody").and_then(|body| self.body(&format!("{at}/requestBody"), body));
        Operation { parameters, body: body.map(Arc::new) }
    }

    fn parameter(&mut self, at: &str, written: &Value) -> Option<Parameter> {
        let root = self.root;
        Parameter::read(written, root, |schema| self.compile(at, schema)).unwrap_or_else(|why| {
            self.wrong(at, why);
            None
        })
    }

    fn compile(&mut self, at: &str, schema: &Value) -> Option<Schema> {
        let compiled = Schema::compile(schema, Some(&self.components), self.written);
        compiled.map_err(|why| self.wrong(at, why)).ok()
    }

    fn body(&mut self, at: &str, written: &Value) -> Option<BodyContent> {
        let Some(written) = values::resolved(self.root, written) else {
            self.wrong(at, "the reference leads nowhere");
            return None;
        };
        let mut types = Vec::new();
        let content = written.get("content").and_then(Value::as_object);
        for (media_type, content) in content.into_iter().flatten() {
            let media_type = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            let at = format!("{at}/content/{}", escaped(&media_type));
            let is_read = media_type == "application/json"
                || media_type.ends_with("+json")
                || media_type.starts_with("text/")
                || matches!(&*media_type, "application/x-www-form-urlencoded" | "multipart/form-data");
            let schema = content.get("schema").filter(|_| is_read);
            let compiled = schema.and_then(|schema| {
                let compiled = ObjectSchema::compile(self.root, schema, Some(&self.components), self.written);
                compiled.map_err(|why| self.wrong(&at, why)).ok()
            });
            types.push((media_type, compiled));
        }
        Some(BodyContent { required: written.get("required") == Some(&Value::Bool(true)), types })
    }
}

fn escaped(text: &str) -> String {
    text.replace('~', "~0").replace('/', "~1")
}

fn segments(path: &str) -> Option<Vec<Segment>> {
    path.strip_prefix('/')?.split('/').map(segment).collect()
}

fn segment(text: &str) -> Option<Segment> {
    let Some((before, rest)) = text.split_once('{') else { return Some(Segment::Fixed(text.to_owned())) };
    let (name, after) = rest.split_once('}')?;
    let is_plain = !name.is_empty() && !after.contains(['{', '}']) && !before.contains('}');
    is_plain.then(|| Segment::Named { before: before.into(), name: name.into(), after: after.into() })
}

impl PathRule {
    /// What the names stand for, where the path is this one.
    fn matches(&self, path: &[&str]) -> Option<Vec<(&str, String)>> {
        if path.len() != self.segments.len() {
            return None;
        }
        let mut names = Vec::new();
        for (segment, sent) in self.segments.iter().zip(path) {
            let decoded = percent_decode_str(sent).decode_utf8().ok()?;
            match segment {
                Segment::Fixed(text) if **text == *decoded => {}
                Segment::Fixed(_) => return None,
                Segment::Named { before, name, after } => {
                    let value = decoded.strip_prefix(before.as_str())?.strip_suffix(after.as_str())?;
                    if value.is_empty() {
                        return None;
                    }
                    names.push((name.as_str(), value.to_owned()));
                }
            }
        }
        Some(names)
    }
}
