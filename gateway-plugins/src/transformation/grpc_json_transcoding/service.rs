//! What a descriptor set offers: which request, by method and path, is which call.

use std::collections::{HashMap, HashSet};

use gateway_core::config::problem::Problems;
use http::Method;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, MethodDescriptor,
};

use super::field_path::{self, FieldPathError};
use super::template::{Table, Template, TemplateError};

/// Bindings that all services may have together.
const MAX_BINDINGS: usize = 10_000;

/// A call as one HTTP rule offers it.
#[derive(Debug)]
pub(super) struct Binding {
    /// `/package.Service/Method`.
    pub(super) path: Box<str>,
    pub(super) template: Template,
    pub(super) input: MessageDescriptor,
    pub(super) output: MessageDescriptor,
    pub(super) body: BodyTo,
    /// The field of the response that is the answer; `None` is all of it.
    pub(super) response_body: Option<FieldDescriptor>,
    pub(super) is_streamed: bool,
}

/// What the body of a request is.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum BodyTo {
    /// There is none; the query has the fields that the path has not.
    Nothing,
    /// The whole message, but for what the path says.
    All,
    /// This field; the query has the others.
    Field(FieldDescriptor),
}

/// An HTTP rule as it is written.
struct HttpRule {
    verb: Method,
    /// The text of its template.
    path: String,
    /// The field that the body is; `*` is the whole message.
    body: String,
    /// The field that the answer is; empty is the whole message.
    response_body: String,
}

/// Why a rule can't be offered.
#[derive(Debug, thiserror::Error)]
enum RuleError {
    #[error("a rule has no path")]
    NoPath,
    #[error("`{0}` is not a method")]
    Verb(String),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Field(#[from] FieldPathError),
    #[error("there are more than {MAX_BINDINGS} rules")]
    TooMany,
    #[error("{verb} {path} is {other} already")]
    Taken { verb: Method, path: String, other: String },
}

/// All calls.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) bindings: Vec<Binding>,
    by_method: HashMap<Method, Table>,
    /// `/package.Service/Method` of every binding.
    paths: HashSet<Box<str>>,
}

impl Calls {
    /// The call of a request; or the methods that the path has.
    pub(super) fn find(&self, method: &Method, path: &str) -> MatchedCall<'_> {
        let of = |method: &Method| self.by_method.get(method).and_then(|table| table.find(path));
        // What GET asks for, HEAD asks about (RFC 9110 §9.3.2).
        let here = of(method).or_else(|| of(&Method::GET).filter(|_| *method == Method::HEAD));
        if let Some(binding) = here.and_then(|number| self.bindings.get(number)) {
            return MatchedCall::Call(binding);
        }
        let others: Vec<Method> = self
            .by_method
            .iter()
            .filter(|(_, table)| table.find(path).is_some())
            .map(|(method, _)| method.clone())
            .collect();
        if others.is_empty() { MatchedCall::Nothing } else { MatchedCall::OtherMethods(others) }
    }

    /// Whether a rule offers the method that gRPC calls at this path.
    pub(super) fn offers(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// The calls of these services, or of all of them; with `auto`, those without a rule are offered at their own path.
    ///
    /// # Errors
    /// Everything that can't be offered as it is written.
    pub(super) fn read(pool: &DescriptorPool, services: &[String], auto: bool) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut calls = Self::default();
        for (n, name) in services.iter().enumerate() {
            if pool.get_service_by_name(name).is_none() {
                let known: Vec<_> = pool.services().map(|service| service.full_name().to_owned()).collect();
                let at = format!("config.services[{n}]");
                problems.add(at, format!("there is no service `{name}`")).remedy =
                    Some(format!("the descriptor set has {}", known.join(", ")));
            }
        }
        let wanted = pool
            .services()
            .filter(|it| services.is_empty() || services.iter().any(|name| name == it.full_name()));
        for method in wanted.flat_map(|service| service.methods().collect::<Vec<_>>()) {
            // A client that streams needs more than one JSON body.
            if !method.is_client_streaming() {
                calls.add(pool, &method, auto, &mut problems);
            }
        }
        if calls.bindings.is_empty() && problems.is_empty() {
            problems.add("config", "the descriptor set offers no call").remedy =
                Some("add `google.api.http` options to methods, or set `auto_mapping: true`".into());
        }
        problems.into_result(calls)
    }

    fn add(&mut self, pool: &DescriptorPool, method: &MethodDescriptor, auto: bool, problems: &mut Problems) {
        let mut rules = Vec::new();
        if let Some(rule) = annotation(pool, method) {
            let more = messages(&rule, "additional_bindings");
            rules.push(rule);
            rules.extend(more);
        }
        let mut offers: Vec<Result<HttpRule, RuleError>> = rules.iter().map(HttpRule::read).collect();
        if auto && rules.is_empty() {
            let (path, body) = (path_of(method), "*".into());
            offers.push(Ok(HttpRule { verb: Method::POST, path, body, response_body: String::new() }));
        }
        for rule in offers {
            if let Err(why) = rule.and_then(|rule| self.offer(method, &rule)) {
                problems.add("config", format!("{}: {why}", method.full_name()));
            }
        }
    }

    fn offer(&mut self, method: &MethodDescriptor, rule: &HttpRule) -> Result<(), RuleError> {
        let template = Template::read(&rule.path)?;
        let (input, output) = (method.input(), method.output());
        for variable in &template.variables {
            field_path::check(&input, &variable.field)?;
        }
        let body = match rule.body.as_str() {
            "" => BodyTo::Nothing,
            "*" => BodyTo::All,
            name => BodyTo::Field(field_path::field(&input, name)?),
        };
        let response_body = match rule.response_body.as_str() {
            "" => None,
            name => Some(field_path::field(&output, name)?),
        };
        if self.bindings.len() >= MAX_BINDINGS {
            return Err(RuleError::TooMany);
        }
        let number = self.bindings.len();
        let table = self.by_method.entry(rule.verb.clone()).or_default();
        table.add(&template, number).map_err(|known| {
            let other = self.bindings.get(known).map_or("another call", |it| &it.path);
            RuleError::Taken { verb: rule.verb.clone(), path: rule.path.clone(), other: other.to_owned() }
        })?;
        let is_streamed = method.is_server_streaming();
        let path: Box<str> = path_of(method).into();
        self.paths.insert(path.clone());
        self.bindings.push(Binding { path, template, input, output, body, response_body, is_streamed });
        Ok(())
    }
}

/// What a request is.
pub(super) enum MatchedCall<'c> {
    Call(&'c Binding),
    /// Only with these methods.
    OtherMethods(Vec<Method>),
    Nothing,
}

fn path_of(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}

/// The `google.api.http` option of a method.
fn annotation(pool: &DescriptorPool, method: &MethodDescriptor) -> Option<DynamicMessage> {
    let extension = pool.get_extension_by_name("google.api.http")?;
    let options = method.options();
    if !options.has_extension(&extension) || !matches!(extension.kind(), Kind::Message(_)) {
        return None;
    }
    options.get_extension(&extension).as_message().cloned()
}

impl HttpRule {
    fn read(rule: &DynamicMessage) -> Result<Self, RuleError> {
        let verbs = [
            ("get", Method::GET),
            ("put", Method::PUT),
            ("post", Method::POST),
            ("delete", Method::DELETE),
            ("patch", Method::PATCH),
        ];
        let known = verbs.into_iter().find(|(name, _)| rule.has_field_by_name(name));
        let (verb, path) = match known {
            Some((name, verb)) => (verb, text(rule, name)),
            None => {
                let custom = rule.get_field_by_name("custom").filter(|_| rule.has_field_by_name("custom"));
                let custom = custom.and_then(|it| it.as_message().cloned()).ok_or(RuleError::NoPath)?;
                let kind = text(&custom, "kind");
                let verb = Method::from_bytes(kind.as_bytes()).map_err(|_| RuleError::Verb(kind))?;
                (verb, text(&custom, "path"))
            }
        };
        Ok(Self { verb, path, body: text(rule, "body"), response_body: text(rule, "response_body") })
    }
}

fn text(message: &DynamicMessage, name: &str) -> String {
    let value = message.get_field_by_name(name);
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

fn messages(message: &DynamicMessage, name: &str) -> Vec<DynamicMessage> {
    let value = message.get_field_by_name(name);
    let list = value.as_ref().and_then(|value| value.as_list()).unwrap_or_default();
    list.iter().filter_map(|each| each.as_message().cloned()).collect()
}
