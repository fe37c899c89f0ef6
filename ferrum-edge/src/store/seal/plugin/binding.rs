//! What the secrets of a plugin config are bound to: everything that decides where they go. A kept secret does not follow its
//! settings to another server, another header or other code.

use serde_json::Value;

use super::{changed, is_one_of, previous_of, walk};
use crate::store::seal::{Keys, SealError, is_sealed, open_value};
use gateway_core::http::credentials::is_credential_url;

/// What decides where the secrets of a plugin go, beside their own place and the list item they are in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binding {
    /// Nothing: no server of theirs gets them. A header that a transformer adds goes where the traffic goes.
    Place,
    /// Settings with the names of [`SERVERS`].
    Servers,
    /// All texts, for any may be a server or a template; and [`SERVERS`].
    Texts,
    /// All settings but limits: the plugin runs code, which gets every one of them.
    Code,
}

/// Plugins that are not bound by all their [texts](Binding::Texts).
const BINDINGS: &[(&str, Binding)] = &[
    ("csrf", Binding::Place),
    ("jwks_auth", Binding::Servers),
    ("jwt_auth", Binding::Place),
    ("ldap_auth", Binding::Servers),
    ("oauth2_introspection", Binding::Servers),
    ("oidc", Binding::Servers),
    ("otel_tracing", Binding::Servers),
    ("request_termination", Binding::Place),
    ("request_transformer", Binding::Place),
    ("response_mock", Binding::Place),
    ("response_transformer", Binding::Place),
    ("rewrite", Binding::Place),
    ("script", Binding::Code),
    ("wasm", Binding::Code),
];
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
    "plaintext",
    "port",
    "protocol",
    "scheme",
    "server",
    "servers",
    "start_tls",
    "tls",
    "uri",
    "uris",
    "upstream",
    "upstream_id",
    "url",
    "urls",
    "verify",
];
/// Names of settings where browsers go or come from, which get no secret, and endings of them after a `_`.
const OF_BROWSERS: &[&str] = &["redirect_uri"];
/// Secrets that are never sent, by plugin.
const NEVER_SENT: &[(&str, &str)] = &[
    ("csrf", "/secret"),
    ("jwks_auth", "/revoked_tokens"),
    ("jwt_auth", "/revoked_tokens"),
    ("oauth2_introspection", "/revoked_tokens"),
    ("oidc", "/session_secret"),
];
/// Settings that are handed to code as they are.
const OF_CODE: &[&str] = &["/settings", "/vm_settings", "/environment"];
/// Settings of plugins with code that only limit it, beside `max_…`.
const LIMITS: &[&str] = &["on_error", "refresh", "start_timeout", "stream_timeout", "timeout"];

/// Compares a plugin config's new document with the `stored` one. A caller who may change settings but does not know the secrets
/// must not learn them by redirecting them. The caller knows the secrets in `request`, the document as sent; references do not
/// count, because every caller can write them.
///
/// # Errors
/// [`SealError::Moved`] when a stored secret is kept while something changes that decides where it goes.
pub fn check_binding(request: &Value, document: &str, stored: &str, keys: &Keys) -> Result<(), SealError> {
    let known = bound_secrets(stored, keys)?;
    for secret in bound_secrets(document, keys)? {
        let is_sent = request.pointer(&format!("/config{}", secret.place)) == Some(&secret.value);
        let references = references(&secret.plain);
        let is_kept = |it: &&BoundSecret| {
            it.plain == secret.plain && !is_sent
                || self::references(&it.plain).iter().any(|reference| references.contains(reference))
        };
        let mut kept = known.iter().filter(is_kept).peekable();
        if kept.peek().is_some() && !kept.any(|it| it.context == secret.context) {
            return Err(SealError::Moved(secret.place));
        }
    }
    Ok(())
}

/// A secret, and what it is bound to.
struct BoundSecret {
    place: String,
    /// As it stands in the document.
    value: Value,
    plain: Value,
    context: Context,
}

/// What a secret is bound to.
#[derive(Debug, PartialEq)]
struct Context {
    plugin: Value,
    /// Its place, without numbers of list items.
    setting: Vec<String>,
    /// The list items that it is in, outermost first, without secrets.
    items: Vec<Value>,
    /// Further settings, by their places.
    settings: Vec<(String, Value)>,
}

/// Every secret of a document.
fn bound_secrets(document: &str, keys: &Keys) -> Result<Vec<BoundSecret>, SealError> {
    let mut secrets: Vec<(String, Value, Value)> = Vec::new();
    changed(document, |id, place, value| {
        secrets.push((place.to_owned(), value.clone(), plain(value, id, place, keys)));
        Ok(())
    })?;
    let mut read: Value =
        serde_json::from_str(document).map_err(|_| SealError::PluginConfig("it is not JSON"))?;
    let plugin = read["plugin_name"].take();
    let mut config = read["config"].take();
    // Of secrets only those count that are servers: URLs with credentials in them.
    let mut plains = secrets.iter().map(|(.., plain)| plain);
    walk(&mut config, &mut String::new(), 0, &mut |_: &str, value: &mut Value| {
        let url = plains.next().filter(|plain| plain.as_str().is_some_and(is_credential_url));
        *value = url.cloned().unwrap_or_default();
        Ok(())
    })?;
    let name = plugin.as_str().unwrap_or_default();
    let settings = Settings::of(name, &config);
    Ok(secrets
        .into_iter()
        .map(|(place, value, plain)| {
            let is_sent = !NEVER_SENT.contains(&(name, &*previous_of(&place)));
            let context = Context {
                plugin: plugin.clone(),
                setting: setting(&place),
                items: if is_sent { items(&config, &place) } else { Vec::new() },
                settings: if is_sent { settings.clone() } else { Vec::new() },
            };
            BoundSecret { place, value, plain, context }
        })
        .collect())
}

/// A secret's place without the numbers of list items, and whether it is the new or the previous one.
pub(super) fn setting(place: &str) -> Vec<String> {
    let is_number = |part: &&str| part.bytes().all(|digit| digit.is_ascii_digit());
    previous_of(place).split('/').filter(|part| !is_number(part)).map(str::to_owned).collect()
}

/// The list items that a place is in.
fn items(config: &Value, place: &str) -> Vec<Value> {
    let (mut value, mut items) = (config, Vec::new());
    for part in place.split('/').skip(1) {
        let next = match value {
            Value::Array(list) => part.parse().ok().and_then(|n: usize| list.get(n)),
            other => other.get(part),
        };
        let Some(next) = next else { return items };
        // A text in a list is a secret itself.
        if value.is_array() && next.is_object() {
            items.push(next.clone());
        }
        value = next;
    }
    items
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

/// The settings of a plugin that decide where its secrets go.
struct Settings<'p> {
    plugin: &'p str,
    binding: Binding,
    found: Vec<(String, Value)>,
}

/// What a value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Within {
    Settings,
    /// A setting that says which server is asked.
    Server,
}

impl<'p> Settings<'p> {
    fn of(plugin: &'p str, config: &Value) -> Vec<(String, Value)> {
        let binding = BINDINGS.iter().find(|(name, _)| *name == plugin);
        let binding = binding.map_or(Binding::Texts, |(_, binding)| *binding);
        let mut settings = Self { plugin, binding, found: Vec::new() };
        if binding != Binding::Place {
            settings.find(config, "", Within::Settings);
        }
        settings.found.sort_by(|(one, _), (other, _)| one.cmp(other));
        settings.found
    }

    fn find(&mut self, value: &Value, place: &str, within: Within) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let within = if self.is_server(name) { Within::Server } else { within };
                    self.find(value, &format!("{place}/{name}"), within);
                }
            }
            Value::Array(values) => {
                for (n, value) in values.iter().enumerate() {
                    self.find(value, &format!("{place}/{n}"), within);
                }
            }
            value if self.decides(value, place, within) => {
                self.found.push((place.to_owned(), value.clone()));
            }
            _ => {}
        }
    }

    fn decides(&self, value: &Value, place: &str, within: Within) -> bool {
        let is_server = within == Within::Server && !value.is_null();
        match self.binding {
            Binding::Place => false,
            Binding::Servers => is_server,
            Binding::Texts => value.is_string() || is_server,
            Binding::Code => !is_limit(place),
        }
    }

    fn is_server(&self, name: &str) -> bool {
        // Introspection only holds the answer's issuer against it.
        let is_compared = name == "issuer" && self.plugin == "oauth2_introspection";
        is_one_of(SERVERS, name)
            && !is_compared
            && !(self.binding == Binding::Servers && is_one_of(OF_BROWSERS, name))
    }
}

/// Whether a setting of a plugin with code only limits what it takes.
fn is_limit(place: &str) -> bool {
    let name = place.rsplit('/').next().unwrap_or_default();
    let is_of_code = OF_CODE.iter().any(|of_code| place.starts_with(of_code));
    !is_of_code && (name.starts_with("max_") || LIMITS.contains(&name))
}
