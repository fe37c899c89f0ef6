//! The request as a FastCGI target receives it: the variables of the Common Gateway Interface (RFC 3875 §4.1), and the candidate
//! scripts.
//!
//! The variables do not include header fields: the adapter adds `HTTP_*` for the fields that it sends. They also do not include
//! variables that depend on the script, such as `SCRIPT_FILENAME`: the adapter, which looks up the files, adds them.

mod scripts;

use std::net::IpAddr;

use http::Version;

use crate::config::model::{FastCgi, ParamValue};
use crate::http::cgi_request::{CgiRequest, Script, Variables};
use crate::http::exchange::Exchange;
use crate::http::reply::{Cause, Reply};
use crate::route::host_name;
use crate::template::{Facts, MAX_RENDERED, Render, TextContext};

/// Maximum length of a decoded path, in bytes.
const MAX_PATH: usize = 4096;

impl CgiRequest {
    /// The CGI request by these rules. `path` is the path and query that the target receives; `stripped` is the part of the
    /// client's path that the gateway removed.
    ///
    /// # Errors
    /// The path leads to no script, or a parameter cannot be rendered.
    pub(crate) fn of(
        rules: &FastCgi,
        facts: &Facts<'_>,
        path: &str,
        stripped: &str,
    ) -> Result<Self, Box<Reply>> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let decoded = decode(path)?;
        let scripts = match &rules.scripts {
            Some(places) => scripts::of(places, facts, &decoded)?,
            None => Vec::new(),
        };
        Ok(Self {
            variables: variables(rules, facts)?,
            scripts,
            prefix: decode(stripped.trim_end_matches('/'))?,
            query: query.as_bytes().to_vec(),
            path: decoded,
        })
    }
}

/// The candidate scripts of a request, as the target receives its path: the first one that exists runs. Empty for an application
/// without scripts.
///
/// # Errors
/// The path leads to no script.
pub fn candidate_scripts(rules: &FastCgi, facts: &Facts<'_>, path: &str) -> Result<Vec<Script>, Box<Reply>> {
    let decoded = decode(path.split('?').next().unwrap_or_default())?;
    rules.scripts.as_ref().map_or_else(|| Ok(Vec::new()), |places| scripts::of(places, facts, &decoded))
}

/// The percent-decoded path.
fn decode(path: &str) -> Result<Vec<u8>, Box<Reply>> {
    let decoded: Vec<u8> = percent_encoding::percent_decode_str(path).collect();
    if decoded.len() > MAX_PATH {
        return Err(Box::new(Reply::new(Cause::UriTooLong)));
    }
    if decoded.contains(&0) {
        return Err(Box::new(Reply::new(Cause::BadRequest).detail("the path is malformed")));
    }
    Ok(decoded)
}

/// The reply if a path leads to no script.
pub fn no_script() -> Box<Reply> {
    Box::new(Reply::new(Cause::NoRoute).detail("there is no such script").reason("script_not_found"))
}

fn variables(rules: &FastCgi, facts: &Facts<'_>) -> Result<Variables, Box<Reply>> {
    let exchange = facts.exchange;
    let mut variables = Variables::default();
    let mut own = |name: &str, value: &[u8]| {
        if !rules.params.iter().any(|(param, _)| **param == *name) {
            variables.push(name, value);
        }
    };
    own("GATEWAY_INTERFACE", b"CGI/1.1");
    own("SERVER_SOFTWARE", b"ferrum-edge");
    own("REDIRECT_STATUS", b"200");
    own("REQUEST_METHOD", exchange.method().as_str().as_bytes());
    own("REQUEST_SCHEME", exchange.scheme().as_bytes());
    if exchange.scheme() == "https" {
        own("HTTPS", b"on");
    }
    own("REQUEST_URI", sent_target(exchange).as_bytes());
    own("SERVER_PROTOCOL", protocol(exchange.version()).as_bytes());
    // Programs read this variable without a check whether it is set.
    let kind = exchange.request.headers.get(http::header::CONTENT_TYPE);
    own("CONTENT_TYPE", kind.map_or(&[], |kind| kind.as_bytes()));
    if let Some(root) = rules.scripts.as_ref().map(|scripts| &scripts.root) {
        own("DOCUMENT_ROOT", root.as_bytes());
    }
    let client = &exchange.client;
    own("REMOTE_ADDR", exchange.client_address.to_string().as_bytes());
    own("REMOTE_PORT", itoa::Buffer::new().format(client.peer.port()).as_bytes());
    let local = IpAddr::to_canonical(&client.local.ip()).to_string();
    own("SERVER_ADDR", local.as_bytes());
    own("SERVER_PORT", itoa::Buffer::new().format(client.local.port()).as_bytes());
    host_name(exchange.authority(), |host| {
        own("SERVER_NAME", if host.is_empty() { local.as_bytes() } else { host.as_bytes() });
    });
    if let Some(caller) = &exchange.identity {
        own("REMOTE_USER", caller.name.as_bytes());
    }
    let mut buffer = Vec::new();
    for (name, value) in &rules.params {
        match value {
            ParamValue::Text(text) => variables.push(name, text.as_bytes()),
            ParamValue::Template(template) => {
                buffer.clear();
                template.render(facts, TextContext::Text, MAX_RENDERED, &mut buffer).map_err(|error| {
                    let detail = format!("the parameter {name} can't be made: {error}");
                    Box::new(Reply::new(Cause::BadRequest).detail(detail))
                })?;
                variables.push(name, &buffer);
            }
        }
    }
    Ok(variables)
}

/// Path and query as the client sent them.
fn sent_target(exchange: &Exchange) -> &str {
    exchange.uri().path_and_query().map_or("/", |target| target.as_str())
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        Version::HTTP_3 => "HTTP/3.0",
        _ => "HTTP/1.1",
    }
}

#[cfg(test)]
mod tests;
