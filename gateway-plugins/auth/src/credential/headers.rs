//! Claims as header fields for targets.

use std::collections::BTreeMap;

use gateway_core::config::problem::Problems;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::forwarding::is_told;
use gateway_core::plugin::Hooks;
use gateway_plugin_common::headers::is_framing;
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use crate::jose::claims::find;

/// Bytes of one value; longer ones are left out.
const MAX_VALUE: usize = 8 << 10;

/// Which claim becomes which header field.
#[derive(Debug, Default)]
pub(crate) struct ClaimHeaders(Vec<(String, HeaderName)>);

impl ClaimHeaders {
    /// Reads what is written at `path`.
    pub(crate) fn read(written: BTreeMap<String, String>, path: &str) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut headers: Vec<(String, HeaderName)> = Vec::new();
        for (claim, name) in written {
            match HeaderName::from_bytes(name.as_bytes()) {
                Ok(header) if headers.iter().any(|(_, other)| *other == header) => {
                    problems.add(
                        format!("{path}.{claim}"),
                        format!("another claim is written to `{name}` already"),
                    );
                }
                Ok(header) if !is_the_gateways(&header) => headers.push((claim, header)),
                _ => {
                    let message = format!("`{name}` is not a header that a claim may be written to");
                    problems.add(format!("{path}.{claim}"), message);
                }
            }
        }
        problems.into_result(Self(headers))
    }

    /// Declares the fields as the gateway's own: clients can't send them, also where `when` leaves the plugin out.
    pub(crate) fn declare(&self, hooks: &mut Hooks) {
        self.0.iter().for_each(|(_, name)| hooks.owns_header(name));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the fields from these claims. What the client sent under these names is removed in any case.
    pub(crate) fn set(&self, exchange: &mut Exchange, claims: Option<&Map<String, Value>>) {
        for (_, name) in &self.0 {
            exchange.remove_header(name);
        }
        let Some(claims) = claims else { return };
        for (claim, name) in &self.0 {
            let text = find(claims, claim).and_then(text).filter(|text| text.len() <= MAX_VALUE);
            if let Some(Ok(value)) = text.map(HeaderValue::try_from) {
                exchange.request.headers.insert(name, value);
            }
        }
    }
}

/// Fields by which a message is framed or routed, and those in which targets are told who the caller is and how it came.
fn is_the_gateways(name: &HeaderName) -> bool {
    is_framing(name)
        || is_told(name)
        || matches!(name.as_str(), "expect" | "x-forwarded-port" | "x-forwarded-prefix")
}

/// A claim as text: lists have commas between their parts, and a comma within a part is `%2C`.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => Some(value.to_string()),
        Value::Array(parts) => {
            let part = |part: &Value| Some(text(part)?.replace('%', "%25").replace(',', "%2C"));
            Some(parts.iter().filter_map(part).collect::<Vec<_>>().join(","))
        }
    }
}
