//! Which servers get the secrets of a plugin config: kept ones don't go to others.

use serde_json::Value;

use super::{changed, is_one_of, walk};
use crate::store::seal::{Keys, SealError, is_sealed, open_value};

/// Names of settings that say which server gets a secret, and how it is reached, and endings of them after a `_`.
const SERVERS: &[&str] = &[
    "address",
    "addresses",
    "broker",
    "brokers",
    "ca_path",
    "endpoint",
    "endpoints",
    "host",
    "hosts",
    "issuer",
    "issuers",
    "port",
    "protocol",
    "scheme",
    "server",
    "servers",
    "tls",
    "uri",
    "uris",
    "upstream",
    "upstream_id",
    "url",
    "urls",
    "verify",
];
/// Plugins that send secrets of their settings to no server that these name. A header that a transformer adds goes where the
/// traffic goes.
const CALL_NOBODY: &[&str] = &[
    "csrf",
    "jwt_auth",
    "request_termination",
    "request_transformer",
    "response_mock",
    "response_transformer",
];
/// Plugins that have all their servers in settings of these names. With others, any URL may be one.
const NAME_SERVERS: &[&str] =
    &["ext_proc", "forward_auth", "jwks_auth", "ldap_auth", "oauth2_introspection", "oidc", "otel_tracing"];
/// Names of settings where browsers go or come from, which get no secret, and endings of them after a `_`.
const OF_BROWSERS: &[&str] = &["redirect_uri"];
/// Settings with secrets that are never sent.
const NEVER_SENT: &[&str] = &["/session_secret", "/previous_session_secret", "/revoked_tokens"];

/// Holds a plugin config's new document against the `stored` one: whoever may change settings but does not know the secrets must
/// not have them sent to another server. `request` is what was sent, in which secrets count as known; references don't, for
/// everybody can write them.
///
/// # Errors
/// [`SealError::Moved`] when a stored secret is kept while the settings name another server or plugin.
pub fn check_servers(request: &Value, document: &str, stored: &str, keys: &Keys) -> Result<(), SealError> {
    let (now, before) = (Servers::read(document)?, Servers::read(stored)?);
    if now == before {
        return Ok(());
    }
    let mut known: Vec<Value> = Vec::new();
    changed(stored, |id, place, value| {
        known.push(plain(value, id, place, keys));
        Ok(())
    })?;
    let referred: Vec<String> = known.iter().flat_map(references).collect();
    changed(document, |id, place, value| {
        if now.plugin == before.plugin && NEVER_SENT.contains(&place) {
            return Ok(());
        }
        let is_sent = request.pointer(&format!("/config{place}")) == Some(&*value);
        let plain = plain(value, id, place, keys);
        let refers = references(&plain).iter().any(|reference| referred.contains(reference));
        match refers || known.contains(&plain) && !is_sent {
            true => Err(SealError::Moved(place.to_owned())),
            false => Ok(()),
        }
    })
    .map(drop)
}

/// Whether the document's plugin asks no server.
pub(super) fn calls_nobody(document: &str) -> bool {
    Servers::read(document).is_ok_and(|read| read.is_one_of(CALL_NOBODY))
}

/// A secret in the clear, as far as there is a key.
fn plain(value: &Value, id: &str, place: &str, keys: &Keys) -> Value {
    let sealed = value.as_object().filter(|fields| is_sealed(fields));
    sealed.and_then(|fields| open_value(fields, id, place, keys).ok()).unwrap_or_else(|| value.clone())
}

/// The references to secrets of the machine in a setting.
fn references(value: &Value) -> Vec<String> {
    let text = value.to_string();
    let starts = text.match_indices("${").filter_map(|(start, _)| text.get(start..));
    let found = starts.filter(|rest| rest.starts_with("${env:") || rest.starts_with("${file:"));
    found.filter_map(|rest| Some(rest.split_once('}')?.0.to_owned())).collect()
}

/// The plugin, and the settings that say which servers it asks, by their places.
#[derive(PartialEq)]
struct Servers {
    plugin: Value,
    found: Vec<(String, Value)>,
}

impl Servers {
    fn read(document: &str) -> Result<Self, SealError> {
        let mut read: Value =
            serde_json::from_str(document).map_err(|_| SealError::PluginConfig("it is not JSON"))?;
        let mut servers = Self { plugin: read["plugin_name"].take(), found: Vec::new() };
        if servers.is_one_of(CALL_NOBODY) {
            return Ok(servers);
        }
        let mut config = read["config"].take();
        walk(&mut config, &mut String::new(), 0, &mut |_: &str, value: &mut Value| {
            *value = Value::Null;
            Ok(())
        })?;
        servers.find(&config, "", false);
        servers.found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(servers)
    }

    fn is_one_of(&self, plugins: &[&str]) -> bool {
        self.plugin.as_str().is_some_and(|name| plugins.contains(&name))
    }

    fn find(&mut self, value: &Value, place: &str, is_server: bool) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.find(value, &format!("{place}/{name}"), is_server || self.is_server(name));
                }
            }
            Value::Array(values) => {
                for (n, value) in values.iter().enumerate() {
                    self.find(value, &format!("{place}/{n}"), is_server);
                }
            }
            Value::Null => {}
            value if is_server || self.may_be_server(value) => {
                self.found.push((place.to_owned(), value.clone()));
            }
            _ => {}
        }
    }

    fn is_server(&self, name: &str) -> bool {
        // Introspection only holds the answer's issuer against it.
        let is_compared = name == "issuer" && self.plugin == "oauth2_introspection";
        is_one_of(SERVERS, name)
            && !is_compared
            && !(self.is_one_of(NAME_SERVERS) && is_one_of(OF_BROWSERS, name))
    }

    fn may_be_server(&self, value: &Value) -> bool {
        !self.is_one_of(NAME_SERVERS) && value.as_str().is_some_and(|text| text.contains("://"))
    }
}
