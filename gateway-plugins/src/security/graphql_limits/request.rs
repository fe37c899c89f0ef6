//! Operations as requests and messages carry them (GraphQL over HTTP, graphql-transport-ws). Where two readers could take
//! different things from one request, it is refused.

use std::collections::BTreeMap;

use bytes::Bytes;
use gateway_core::http::exchange::Exchange;
use gateway_core::request_values;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::settings::Limits;
use super::{GraphqlRefusal, form};
use crate::security::multipart;

/// One operation.
#[derive(Debug, Deserialize)]
pub(super) struct Operation {
    pub(super) query: Option<String>,
    #[serde(rename = "operationName")]
    _name: Option<String>,
    pub(super) variables: Option<Map<String, Value>>,
    #[serde(default, rename = "extensions")]
    _extensions: Option<IgnoredAny>,
    #[serde(flatten)]
    others: BTreeMap<String, IgnoredAny>,
}

/// How a body is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BodyFormat {
    /// JSON, as GraphQL over HTTP has it.
    Json,
    /// The document alone.
    Document,
    /// A form with files, and the boundary of its parts.
    Form(String),
}

const KEYS: [&str; 4] = ["query", "operationName", "variables", "extensions"];

/// How the body of a request is written.
pub(super) fn kind(exchange: &Exchange, limits: &Limits) -> Result<BodyFormat, GraphqlRefusal> {
    let unsupported = |message: &str| GraphqlRefusal {
        status: http::StatusCode::UNSUPPORTED_MEDIA_TYPE,
        reason: "graphql_unsupported",
        message: message.into(),
    };
    let headers = &exchange.request.headers;
    if headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(unsupported("compressed requests are not read"));
    }
    let query = exchange.request.uri.query();
    if KEYS.iter().any(|key| request_values::query(query, key).is_some()) {
        // Some servers take it from there, and not from the body.
        return Err(GraphqlRefusal::malformed("the operation is in the URL of a POST"));
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let (Some(kind), None) = (types.next().and_then(|kind| kind.to_str().ok()), types.next()) else {
        return Err(unsupported("the request needs one content type"));
    };
    let content_type = kind;
    let (kind, parameters) = kind.split_once(';').unwrap_or((kind, ""));
    let parameters = parameters.to_ascii_lowercase();
    if parameters.contains("charset") && !parameters.contains("utf-8") {
        return Err(unsupported("requests are read as UTF-8 only"));
    }
    match kind.trim().to_ascii_lowercase().as_str() {
        "application/json" | "application/graphql+json" => Ok(BodyFormat::Json),
        "application/graphql" => Ok(BodyFormat::Document),
        "multipart/form-data" if limits.max_upload > 0 => {
            // Of two, servers take one or the other.
            let boundary = if parameters.matches("boundary").count() == 1 {
                multipart::boundary(content_type)
            } else {
                None
            };
            boundary
                .map(BodyFormat::Form)
                .ok_or_else(|| GraphqlRefusal::malformed("the form needs one boundary"))
        }
        _ => Err(unsupported("requests are read as application/json or application/graphql")),
    }
}

/// The operations of a body.
pub(super) fn of_body(
    written: &BodyFormat,
    body: &Bytes,
    limits: &Limits,
) -> Result<Vec<Operation>, GraphqlRefusal> {
    match written {
        BodyFormat::Json => of_json(body, limits.max_batch),
        BodyFormat::Form(boundary) => of_json(&form::operations(boundary, body, limits)?, limits.max_batch),
        BodyFormat::Document => {
            let query = std::str::from_utf8(body)
                .map_err(|_| GraphqlRefusal::malformed("the document is not UTF-8"))?;
            Ok(vec![Operation {
                query: Some(query.to_owned()),
                _name: None,
                variables: None,
                _extensions: None,
                others: BTreeMap::new(),
            }])
        }
    }
}

fn of_json(body: &[u8], max_batch: usize) -> Result<Vec<Operation>, GraphqlRefusal> {
    let operations = if body.trim_ascii_start().first() == Some(&b'[') {
        let operations: Vec<Operation> = json(body)?;
        if operations.len() > max_batch || max_batch == 1 {
            return Err(GraphqlRefusal::bad(
                "graphql_batch",
                format!("a batch may have {max_batch} operations"),
            ));
        }
        operations
    } else {
        vec![json(body)?]
    };
    operations.iter().try_for_each(Operation::check)?;
    Ok(operations)
}

/// The parameter of an operation that a pair of a query is.
fn key_of(pair: &str) -> Option<&'static str> {
    let name = pair.split('=').next().unwrap_or_default();
    let decoded = percent_encoding::percent_decode_str(name).decode_utf8_lossy();
    KEYS.into_iter().find(|key| key.eq_ignore_ascii_case(decoded.trim()))
}

/// Whether a query has anything of an operation in it.
pub(super) fn is_in_query(query: &str) -> bool {
    query.split('&').any(|pair| key_of(pair).is_some())
}

/// The operation of a GET.
pub(super) fn of_query(query: &str) -> Result<Operation, GraphqlRefusal> {
    let mut values = BTreeMap::new();
    for pair in query.split('&') {
        let Some(key) = key_of(pair) else { continue };
        let value = request_values::query(Some(pair), key).map(|value| String::from_utf8(value.to_vec()));
        let Some(Ok(value)) = value else {
            return Err(GraphqlRefusal::malformed(format!("`{key}` is malformed")));
        };
        if values.insert(key, value).is_some() {
            return Err(GraphqlRefusal::malformed(format!("`{key}` is given twice")));
        }
    }
    let variables = values.remove("variables").filter(|text| !text.is_empty());
    Ok(Operation {
        query: values.remove("query"),
        _name: values.remove("operationName"),
        variables: variables.map(|text| json(text.as_bytes())).transpose()?,
        _extensions: None,
        others: BTreeMap::new(),
    })
}

/// A message of a WebSocket.
#[derive(Deserialize)]
struct SocketMessage {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    payload: Value,
    #[serde(default, rename = "id")]
    _id: Option<IgnoredAny>,
}

/// The operation of a message; `None` where it has none.
pub(super) fn of_message(payload: &[u8]) -> Result<Option<Operation>, GraphqlRefusal> {
    let said: SocketMessage = json(payload)?;
    if !matches!(said.kind.as_str(), "subscribe" | "start") {
        return Ok(None);
    }
    let operation =
        Operation::deserialize(said.payload).map_err(|error| GraphqlRefusal::malformed(error.to_string()))?;
    operation.check()?;
    Ok(Some(operation))
}

fn json<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T, GraphqlRefusal> {
    serde_json::from_slice(bytes).map_err(|error| {
        // What is wrong, without a piece of what was sent.
        let at = format!("line {}, column {}", error.line(), error.column());
        GraphqlRefusal::malformed(format!("the request is not JSON as GraphQL has it, at {at}"))
    })
}

impl Operation {
    /// Servers that read keys without regard to case would take another query than this.
    fn check(&self) -> Result<(), GraphqlRefusal> {
        let is_alike = |other: &String| KEYS.iter().any(|key| key.eq_ignore_ascii_case(other));
        match self.others.keys().any(is_alike) {
            true => Err(GraphqlRefusal::malformed("a key is given twice, in upper and lower case")),
            false => Ok(()),
        }
    }
}
