//! Values of log lines without the credentials in them.

use super::write::Sink;
use super::{Facts, Unrenderable};
use crate::config::credential_names::{REDACTED, is_credential_name, redact_field, redact_query};
use crate::config::template::{NamedVariable, Variable};
use crate::request_values;

/// Whether the value of a variable may have credentials in it.
pub(super) fn is_redacted(variable: &Variable) -> bool {
    matches!(
        variable,
        Variable::RequestHeader(_)
            | Variable::RequestQuery(_)
            | Variable::RequestCookie(_)
            | Variable::ResponseHeader(_)
            | Variable::Known(NamedVariable::Query | NamedVariable::PathAndQuery)
    )
}

/// Writes the value of such a variable, redacted.
pub(super) fn write(variable: &Variable, facts: &Facts<'_>, sink: &mut Sink<'_>) -> Result<(), Unrenderable> {
    let head = &facts.exchange.request;
    let secrets =
        facts.record.and_then(|record| record.route).map_or(&[][..], |route| route.plugins.secrets());
    let mut shown = Vec::new();
    match variable {
        Variable::RequestHeader(name) => match facts.exchange.header(name) {
            Some(value) => redact_field(&mut shown, name, &value),
            None => return Ok(()),
        },
        Variable::ResponseHeader(name) => {
            let values = facts.response.into_iter().flat_map(|(_, headers)| headers.get_all(name));
            for (n, value) in values.enumerate() {
                if n > 0 {
                    shown.extend_from_slice(b", ");
                }
                redact_field(&mut shown, name, value.as_bytes());
            }
        }
        Variable::RequestQuery(name) => match request_values::query(head.uri.query(), name) {
            Some(_) if is_credential_name(name.as_bytes(), secrets) => {
                shown.extend_from_slice(REDACTED.as_bytes());
            }
            Some(value) => return sink.some(Some(&value)),
            None => return Ok(()),
        },
        Variable::RequestCookie(name) => {
            let is_there = request_values::cookie(&head.headers, name).is_some();
            return sink.some(is_there.then_some(REDACTED.as_bytes()));
        }
        Variable::Known(NamedVariable::PathAndQuery) => {
            shown.extend_from_slice(head.uri.path().as_bytes());
            if let Some(query) = head.uri.query() {
                shown.push(b'?');
                redact_query(&mut shown, query, secrets);
            }
        }
        _ => match head.uri.query() {
            Some(query) => redact_query(&mut shown, query, secrets),
            None => return Ok(()),
        },
    }
    sink.some(Some(&shown))
}
