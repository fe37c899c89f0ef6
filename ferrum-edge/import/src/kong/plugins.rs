//! Kong's plugins and credentials as ours.

use std::collections::HashSet;

use serde_json::Value;

use super::counterparts::{Counterpart, counterpart};
use super::secrets::secret;
use super::{is_off, list, name, replace_uri, some, text};
use crate::draft::{
    BasicCredential, Credentials, HmacCredential, Import, JwtCredential, KeyCredential, Plug, PluginConfig,
    PluginRef, RequestTermination, draft,
};
use crate::tree::{Node, NodeValue};

/// Where a plugin runs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Where<'a> {
    /// For these proxies, by their positions.
    Proxies(&'a [usize]),
    /// For all.
    Everywhere,
}

/// Converts a plugin and puts it where it runs.
pub(super) fn plugin(out: &mut Import, place: &str, plugin: &Node, at: Where<'_>) {
    let theirs = name(plugin);
    let place = format!("{place}, plugin {theirs}");
    out.here = plugin.at;
    if is_off(plugin) {
        plugin.see_all();
        return out.not_needed(plugin.at, place, "it is switched off");
    }
    super::defaults::see(&theirs, plugin);
    if theirs == "prometheus" {
        plugin.see_all();
        return out.not_needed(plugin.at, place, "metrics are at /metrics of the admin port");
    }
    let proxies = match at {
        Where::Proxies(proxies) => Some(proxies),
        Where::Everywhere => None,
    };
    if super::logs::sink(out, &place, &theirs, plugin, proxies) {
        return;
    }
    let nothing = Node::new(plugin.at, NodeValue::Null);
    let config = plugin.get("config").unwrap_or(&nothing);
    let made = counterpart(out, &place, &theirs, config).and_then(|made| {
        let lacks = |plug: &Plug| replace_uri::lacks_groups(out, plug, proxies);
        match lacks(&made.plug) || made.second.as_ref().is_some_and(lacks) {
            true => {
                Err("`replace.uri`: not every path of its routes has the groups that it names".to_owned())
            }
            false => Ok(made),
        }
    });
    let Counterpart { plug, second } = match made {
        Ok(made) => made,
        Err(why) => {
            config.see_all();
            return plugin_not_converted(out, &place, &theirs, &why, plugin, at);
        }
    };
    for plug in [Some(plug), second].into_iter().flatten() {
        place_plugin(out, &theirs, &plug, at);
    }
    out.converted(plugin.at, &place);
    if proxies.is_some_and(<[usize]>::is_empty) {
        out.not_converted_here(&place, "nothing it runs for was converted");
    }
}

/// Adds a plugin config of ours, and has it run where theirs does.
fn place_plugin(out: &mut Import, theirs: &str, plug: &Plug, at: Where<'_>) {
    let id = out.id("plugin", &format!("{theirs}-{}", out.plugin_configs.len() + 1));
    let scope = match at {
        Where::Everywhere => "global",
        Where::Proxies(_) => "proxy_group",
    };
    let (plugin_name, config, when) = (plug.name, &*plug.config, plug.when.as_deref());
    out.plugin_configs.push(draft!(PluginConfig { id: &id, plugin_name, scope, config, when }).into());
    if let Where::Proxies(proxies) = at {
        attach(out, proxies, &id);
    }
}

/// Plugins of ours that ask callers who they are.
const AUTHENTICATION: [&str; 7] =
    ["key_auth", "basic_auth", "hmac_auth", "jwt_auth", "ldap_auth", "oauth2_introspection", "jwks_auth"];

/// Whether a plugin config of ours asks callers who they are.
pub(super) fn authenticates(config: &Value) -> bool {
    config.get("plugin_name").and_then(Value::as_str).is_some_and(|name| AUTHENTICATION.contains(&name))
}

/// Plugins that keep nobody out: without them more is answered slower, or less is counted, and nothing is opened.
const HARMLESS: &[&str] = &[
    "acme",
    "aws-request-signing",
    "correlation-id",
    "cors",
    "datadog",
    "file-log",
    "grpc-web",
    "http-log",
    "kafka-log",
    "loggly",
    "opentelemetry",
    "prometheus",
    "proxy-cache",
    "proxy-cache-advanced",
    "rate-limiting",
    "rate-limiting-advanced",
    "request-size-limiting",
    "request-transformer",
    "request-transformer-advanced",
    "response-ratelimiting",
    "response-transformer",
    "response-transformer-advanced",
    "statsd",
    "statsd-advanced",
    "syslog",
    "tcp-log",
    "udp-log",
    "zipkin",
];

/// Whether requests are answered as before without this plugin: it keeps nobody out, and leaves them their path.
pub(super) fn is_harmless(theirs: &str, plugin: &Node) -> bool {
    let moves = plugin.get("config").is_some_and(|config| replace_uri::new_path(config).is_some());
    HARMLESS.contains(&theirs) && !moves
}

/// Reports a plugin that is not converted, and closes the proxies that it may have guarded.
pub(super) fn plugin_not_converted(
    out: &mut Import,
    place: &str,
    theirs: &str,
    why: &str,
    plugin: &Node,
    at: Where<'_>,
) {
    if is_harmless(theirs, plugin) {
        out.not_converted_here(place, why);
        return;
    }
    if !out.guard_not_converted(
        plugin.at,
        place,
        why,
        "guard it with a plugin of ferrum-edge, then remove `request_termination`",
    ) {
        return;
    }
    let config = RequestTermination::of_closed_route().into();
    let id = out.shared_plugin(&format!("closed-{theirs}"), "request_termination", config);
    match at {
        Where::Everywhere => {
            let all: Vec<usize> = (0..out.proxies.len()).collect();
            attach(out, &all, &id);
        }
        Where::Proxies(proxies) => attach(out, proxies, &id),
    }
}

/// Has proxies name a plugin config.
pub(super) fn attach(out: &mut Import, proxies: &[usize], id: &str) {
    for proxy in proxies {
        if let Some(Value::Object(proxy)) = out.proxies.get_mut(*proxy) {
            let list = proxy.entry("plugins").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(list) = list {
                list.push(draft!(PluginRef { plugin_config_id: id }).into());
            }
        }
    }
}

/// Kong asks every authentication plugin of a route; the gateway would be content with one.
pub(super) fn all_authenticate(out: &mut Import) {
    let id = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let (mut everywhere, mut auth, mut lenient) = (0, HashSet::new(), HashSet::new());
    for config in out.plugin_configs.iter().filter(|config| authenticates(config)) {
        everywhere += usize::from(config["scope"] == "global");
        auth.extend(id(config, "id"));
        if config["config"].get("anonymous").is_some() {
            lenient.extend(id(config, "id"));
        }
    }
    if auth.is_empty() {
        return;
    }
    for proxy in &mut out.proxies {
        let own = proxy.get("plugins").and_then(Value::as_array).into_iter().flatten();
        let own: Vec<String> = own.filter_map(|named| id(named, "plugin_config_id")).collect();
        let mine = || own.iter().filter(|id| auth.contains(*id));
        if mine().count() + everywhere > 1 {
            // Those that let anonymous callers by are content with what another one found.
            let is_any = everywhere == 0 && mine().all(|id| lenient.contains(id));
            proxy["auth_mode"] = if is_any { "multi" } else { "all" }.into();
            if !is_any {
                // Kong asks each of them, and lets them name different consumers.
                proxy["same_caller"] = false.into();
            }
        }
    }
}

/// A consumer's credentials, and the name by which its tokens know it.
pub(super) fn credentials(
    out: &mut Import,
    place: &str,
    username: &str,
    consumer: &Node,
) -> (Credentials, Option<String>) {
    let custom_id = text(consumer, "custom_id");
    let at = |kind: &str| format!("{place}.{kind}");
    let written: Vec<&str> = list(consumer, "keyauth_credentials").filter_map(|it| text(it, "key")).collect();
    let keys = written.into_iter().filter_map(|key| secret(out, &at("keyauth_credentials"), key));
    let keys: Vec<KeyCredential> = keys.map(|key| draft!(KeyCredential { key })).collect();
    let mut passwords = Vec::new();
    for credential in list(consumer, "basicauth_credentials") {
        match (text(credential, "username"), text(credential, "password")) {
            // What Kong writes out is a SHA-1, which nobody can log in with.
            (Some(name), Some(password)) if name == username && !is_digest(password) => {
                let password = secret(out, &at("basicauth_credentials"), password);
                passwords.extend(password.map(|password| draft!(BasicCredential { password })));
            }
            _ => out.not_converted_here(
                format_args!("{place}.basicauth_credentials"),
                "a username of its own, or no password in the clear",
            ),
        }
    }
    let (mut secrets, mut known_as) = (Vec::new(), None);
    for credential in list(consumer, "jwt_secrets") {
        let place = format!("{place}.jwt_secrets");
        let written = text(credential, "secret");
        let secret = written.and_then(|written| secret(out, &place, written));
        let key = match (secret.as_deref(), text(credential, "rsa_public_key")) {
            (_, Some(pem)) => draft!(JwtCredential { public_key: pem }),
            (Some(secret), None) if secret.len() >= 32 || secret.contains("${env:") => {
                draft!(JwtCredential { secret })
            }
            _ => {
                out.not_converted_here(place, "a secret has to have 32 bytes or more");
                continue;
            }
        };
        match text(credential, "key") {
            Some(name) if name == username || Some(name) == custom_id => {}
            Some(name) if custom_id.is_none() && known_as.is_none() => {
                let why = format_args!("tokens name it `{name}`, which is its custom_id now");
                out.not_converted_here(&place, why);
                known_as = Some(name.to_owned());
            }
            _ => {
                let why = "tokens have to name the consumer by its username or custom_id";
                out.not_converted_here(place, why);
                continue;
            }
        }
        secrets.push(key);
    }
    let mut hmacs = Vec::new();
    for credential in list(consumer, "hmacauth_credentials") {
        match (text(credential, "username"), text(credential, "secret")) {
            (Some(name), Some(written)) if name == username => {
                let key = secret(out, &at("hmacauth_credentials"), written);
                hmacs.extend(key.map(|key| draft!(HmacCredential { secret: key })));
            }
            _ => out.not_converted_here(
                format_args!("{place}.hmacauth_credentials"),
                "a username of its own, or no secret",
            ),
        }
    }
    let made = draft!(Credentials {
        key_auth: some(keys),
        basic_auth: some(passwords),
        jwt_auth: some(secrets),
        hmac_auth: some(hmacs),
    });
    (made, known_as)
}

/// Whether a password is written as a digest.
fn is_digest(password: &str) -> bool {
    password.len() == 40 && password.bytes().all(|c| c.is_ascii_hexdigit())
}
