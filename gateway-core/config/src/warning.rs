//! What is valid and probably not meant. Each warning has a code, by which it can be silenced.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::file::OldSpelling;
use super::model::{
    Consumer, Credential, Id, Model, PathPattern, PluginConfig, Proxy, Scope, Settings, Traffic,
};

mod acme;
pub mod codes;
mod covers;
mod targets;

pub use codes::{CODES, is_code};
use covers::{Covers, Why};

/// Something valid that is probably not meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// One of [`CODES`].
    pub code: &'static str,
    /// What it is about, such as `proxies.shop`.
    pub path: String,
    /// What is odd.
    pub message: String,
    /// What to do.
    pub remedy: &'static str,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { code, path, message, remedy } = self;
        write!(f, "{path}: {message} ({remedy}) [{code}]")
    }
}

/// Everything odd in a configuration that is not silenced. Files are not looked into.
pub fn warnings(model: &Model) -> Vec<Warning> {
    let mut found = WarningList(Vec::new());
    found.settings(model);
    found.shadowed(&model.proxies.iter().map(|proxy| &**proxy).collect::<Vec<_>>());
    found.unused(model);
    found.sinks(model);
    found.consumers(model);
    found.certificates(model);
    found.acme(model);
    found.old_spellings(model);
    for proxy in &model.proxies {
        found.targets(proxy);
        found.placeholders(proxy);
        found.displaced(proxy, model);
    }
    silenced(found.0, model)
}

/// Without what the settings silence.
pub fn silenced(mut warnings: Vec<Warning>, model: &Model) -> Vec<Warning> {
    let silent = &model.settings.silence_warnings;
    warnings.retain(|warning| !silent.iter().any(|code| **code == *warning.code));
    warnings
}

/// Warnings as they are found.
#[derive(Debug, Default)]
pub struct WarningList(pub Vec<Warning>);

impl WarningList {
    /// Adds one.
    pub fn add(
        &mut self,
        code: &'static str,
        path: impl Into<String>,
        message: impl Into<String>,
        remedy: &'static str,
    ) {
        self.0.push(Warning { code, path: path.into(), message: message.into(), remedy });
    }

    fn old_spellings(&mut self, model: &Model) {
        let mut tell = |at: String, old: &OldSpelling| {
            let path = if at.is_empty() { old.path.clone() } else { format!("{at}.{}", old.path) };
            let message = match old.new.as_str() {
                "" => "it says nothing any more".to_owned(),
                new => format!("it is called `{new}` now"),
            };
            let remedy = if old.new.is_empty() { "remove it" } else { "write that" };
            self.add("old_spelling", path, message, remedy);
        };
        for old in &model.settings.old_spellings {
            tell(String::new(), old);
        }
        for plugin in &model.plugin_configs {
            for old in plugin.built.iter().flat_map(|built| built.old_spellings()) {
                tell(format!("plugin_configs.{}", plugin.id), old);
            }
        }
    }

    fn settings(&mut self, model: &Model) {
        let settings = &model.settings;
        if model.proxies.is_empty() {
            self.add("no_proxies", "proxies", "there are none, so that nothing is served", "add a proxy");
        }
        self.listeners(model);
        let is_exposed = |address: &SocketAddr| !address.ip().is_loopback() && settings.admin_tls.is_none();
        if let Some(address) = settings.admin.filter(is_exposed) {
            let message =
                format!("the admin API on {address} can be reached from other machines, in plain HTTP");
            self.add(
                "admin_exposed",
                "gateway.admin",
                message,
                "listen on 127.0.0.1, or set `gateway.admin_tls`",
            );
        }
    }

    /// Proxies without a listener, and certificates that no listener shows.
    fn listeners(&mut self, model: &Model) {
        const CODE: &str = "setting_without_effect";
        let settings = &model.settings;
        // The listeners are those of other processes.
        if !settings.carries_traffic {
            return;
        }
        let has_certificates = !settings.tls.certificates.is_empty();
        let any = |wanted: fn(&Traffic) -> bool| model.proxies.iter().any(|proxy| wanted(&proxy.traffic));
        let is_served = settings.http_addresses().chain(settings.https_addresses()).next().is_some()
            || settings.http_socket.is_some();
        if any(|traffic| matches!(traffic, Traffic::Http(_))) && !is_served {
            let message = "no listener serves the HTTP proxies: `http` is off, and `https` is off or has no certificate";
            self.add(CODE, "gateway.http", message, "give `http` an address, or `tls.certificates`");
        }
        let is_given = settings.https != Settings::default().https || !settings.additional_https.is_empty();
        if is_given && settings.https.is_some() && !has_certificates {
            let message = "nobody listens there: there is no certificate";
            self.add(CODE, "gateway.https", message, "give `tls.certificates`, or remove it");
        }
        self.ports(model);
        let terminates = |traffic: &Traffic| matches!(traffic, Traffic::Stream(rules) if rules.frontend_tls);
        if has_certificates && settings.https.is_none() && !any(terminates) {
            let message =
                "nobody is shown these certificates: `https` is off, and no proxy has `frontend_tls`";
            self.add(CODE, "gateway.tls.certificates", message, "give `https` an address, or remove them");
        }
    }

    /// Matches that ask for ports on which no request comes.
    fn ports(&mut self, model: &Model) {
        let settings = &model.settings;
        let open: Vec<u16> =
            settings.http_addresses().chain(settings.https_addresses()).map(|it| it.port()).collect();
        // The system chooses these.
        if open.contains(&0) {
            return;
        }
        for proxy in &model.proxies {
            let Traffic::Http(rules) = &proxy.traffic else { continue };
            let ports = rules.matches.iter().filter_map(|rule| rule.condition.as_ref()?.ports());
            if let Some(port) = ports.flatten().find(|port| !open.contains(port)) {
                self.add(
                    "setting_without_effect",
                    format!("proxies.{}.matches", proxy.id),
                    format!("no listener has the port {port}"),
                    "add an address with it to `gateway.additional_http` or `additional_https`",
                );
            }
        }
    }

    /// Proxies that no request comes to because others take them all: those with a higher priority, and prefixes before
    /// regexes of the same priority. Costs as much as there are matches, however many proxies have a priority.
    fn shadowed(&mut self, proxies: &[&Proxy]) {
        let http = |proxy: &&Proxy| matches!(proxy.traffic, Traffic::Http(_));
        let rules = |proxy: &'_ Proxy| match &proxy.traffic {
            Traffic::Http(rules) => Some((rules.priority, rules.matches.clone())),
            Traffic::Stream(_) => None,
        };
        let all: Vec<_> = proxies.iter().filter(|proxy| http(proxy)).collect();
        let mut covers = Covers::default();
        for proxy in &all {
            let Some((priority, matches)) = rules(proxy) else { continue };
            matches.iter().for_each(|one| covers.add(one, priority, proxy));
        }
        for proxy in &all {
            let Some((priority, matches)) = rules(proxy) else { continue };
            let by: Option<Vec<_>> = matches.iter().map(|one| covers.above(one, priority)).collect();
            let path = format!("proxies.{}", proxy.id);
            match by.as_ref().and_then(|by| by.first()) {
                Some((by, Why::Priority)) => {
                    let message =
                        format!("no request comes here: `{by}` has a higher priority and takes them");
                    self.add("proxy_shadowed", path, message, "change the priorities, or remove it");
                }
                Some((by, Why::Kind)) => {
                    let message =
                        format!("no request comes here: the prefix of `{by}` goes before this regex");
                    self.add("proxy_shadowed", path, message, "give it a higher `priority`, such as 1");
                }
                None => {}
            }
        }
    }

    /// Segments that are names for other gateways.
    fn placeholders(&mut self, proxy: &Proxy) {
        let Traffic::Http(rules) = &proxy.traffic else { return };
        let is_name = |segment: &&str| {
            segment.strip_prefix(':').is_some_and(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
        };
        let mut paths = rules.matches.iter().filter_map(|one| match &one.path {
            PathPattern::Prefix(path) | PathPattern::Exact(path) => path.split('/').find(is_name),
            _ => None,
        });
        if let Some(segment) = paths.next() {
            let name = segment.trim_start_matches(':');
            let message =
                format!("`{segment}` in its path is matched as it is written; a name is `{{{name}}}`");
            let remedy = "write names in braces, as in `/users/{id}`";
            self.add("path_placeholder", format!("proxies.{}", proxy.id), message, remedy);
        }
    }

    /// Plugin configs of the proxy's own that run for some requests only, and keep a global one from all of them.
    fn displaced(&mut self, proxy: &Proxy, model: &Model) {
        let own = || proxy.plugins.iter().filter(|config| config.scope != Scope::Global);
        let is_whole = |name: &str| own().any(|config| *config.plugin_name == *name && config.when.is_none());
        let mut told = HashSet::new();
        for config in own().filter(|config| config.when.is_some()) {
            let name = &*config.plugin_name;
            let is_global =
                |other: &&Arc<PluginConfig>| other.scope == Scope::Global && *other.plugin_name == *name;
            let Some(global) = model.plugin_configs.iter().find(is_global) else { continue };
            if is_whole(name) || !told.insert(name) {
                continue;
            }
            let message = format!(
                "`{}` takes the place of the global `{}`, and runs for some requests only: the others have no `{name}`",
                config.id, global.id
            );
            let remedy =
                "add a config of the plugin to the proxy for the other requests, or take its `when` out";
            self.add("global_displaced", format!("proxies.{}", proxy.id), message, remedy);
        }
    }

    fn unused(&mut self, model: &Model) {
        let named: HashSet<&str> =
            model.proxies.iter().flat_map(|proxy| &proxy.plugins).map(|plugin| plugin.id.as_str()).collect();
        for config in model.plugin_configs.iter().filter(|config| config.scope == Scope::ProxyGroup) {
            if !named.contains(config.id.as_str()) {
                let path = format!("plugin_configs.{}", config.id);
                let message = "no proxy names it, so that it does nothing";
                self.add(
                    "plugin_unused",
                    path,
                    message,
                    "name it under `plugins` of a proxy, or write `scope: global`",
                );
            }
        }
        let owners: HashSet<&Id> = model.proxies.iter().filter_map(|proxy| proxy.owner()).collect();
        for config in &model.plugin_configs {
            let Scope::Owner(owner) = &config.scope else { continue };
            if !owners.contains(owner) {
                let path = format!("plugin_configs.{}", config.id);
                let message = format!("no proxy has the owner `{owner}`, so that it does nothing");
                self.add("plugin_unused", path, message, "write the owner of the proxies, or remove it");
            }
        }
        let upstreams: HashSet<&str> =
            model.proxies.iter().map(|proxy| proxy.backend.upstream.id.as_str()).collect();
        // A plugin that chooses or calls an upstream names it somewhere in its settings.
        let mut named = HashSet::new();
        model.plugin_configs.iter().for_each(|config| texts(&config.config.value(), &mut named));
        for upstream in &model.upstreams {
            if !upstreams.contains(upstream.id.as_str()) && !named.contains(upstream.id.as_str()) {
                let path = format!("upstreams.{}", upstream.id);
                self.add(
                    "upstream_unused",
                    path,
                    "no proxy names it",
                    "name it by `upstream_id`, or remove it",
                );
            }
        }
    }

    /// Proxies that a sink waits for, and that are not there.
    fn sinks(&mut self, model: &Model) {
        let known: HashSet<&str> = model.proxies.iter().map(|proxy| proxy.id.as_str()).collect();
        for (n, sink) in model.settings.log_sinks.iter().enumerate() {
            let named = sink.proxies.as_deref().unwrap_or_default().iter();
            for id in named.filter(|id| !known.contains(id.as_str())) {
                let path = format!("gateway.access_log.sinks[{n}].proxies");
                let message = format!("there is no proxy `{id}`, so that no record of it comes");
                self.add("unknown_proxy", path, message, "correct the id, or add the proxy");
            }
        }
    }

    /// `mtls_auth` without client certificates refuses everybody.
    fn certificates(&mut self, model: &Model) {
        let forwarded = |config: &PluginConfig| config.config.value()["trust_forwarded"] == true;
        for config in model.plugin_configs.iter().filter(|config| &*config.plugin_name == "mtls_auth") {
            if forwarded(config) && model.settings.trusted_proxies.is_empty() {
                let path = format!("plugin_configs.{}.config.trust_forwarded", config.id);
                let message = "no certificate is forwarded: nobody is a trusted proxy";
                self.add("certificate_not_asked", path, message, "set `gateway.trusted_proxies`");
            }
        }
        if model.settings.tls.client_ca_path.is_some() {
            return;
        }
        for proxy in &model.proxies {
            let plugins = proxy.plugins.iter().filter(|config| &*config.plugin_name == "mtls_auth");
            for config in plugins.filter(|config| !forwarded(config)) {
                let message = format!("`{}` needs client certificates, which are not asked for", config.id);
                let path = format!("proxies.{}", proxy.id);
                self.add("certificate_not_asked", path, message, "set `gateway.tls.client_ca_path`");
            }
        }
    }

    fn consumers(&mut self, model: &Model) {
        let known: HashSet<&str> = model.consumers.iter().map(|consumer| &*consumer.username).collect();
        let groups: HashSet<&str> =
            model.consumers.iter().flat_map(|consumer| &consumer.acl_groups).map(|group| &**group).collect();
        let others = model.plugin_configs.iter().any(|config| identifies_others(config));
        let mut told = HashSet::new();
        for proxy in &model.proxies {
            for config in proxy.plugins.iter().filter(|config| &*config.plugin_name == "access_control") {
                if !proxy.plugins.iter().any(|config| authenticates(config)) {
                    let message =
                        format!("`{}` lets in by name, and no plugin identifies callers", config.id);
                    let path = format!("proxies.{}", proxy.id);
                    self.add("access_without_identity", path, message, "add a plugin such as `key_auth`");
                }
                if !others && told.insert(config.id.as_str()) {
                    self.names(config, &known, &groups);
                }
            }
        }
        for config in &model.plugin_configs {
            self.callers(config, &known, &groups, others);
        }
        let checked: BTreeSet<&str> =
            model.plugin_configs.iter().map(|config| &*config.plugin_name).collect();
        let named: HashSet<String> =
            model.plugin_configs.iter().flat_map(|config| stand_ins(config)).map(|(_, name)| name).collect();
        let owners: HashSet<&str> =
            model.proxies.iter().filter_map(|proxy| proxy.owner()).map(Id::as_str).collect();
        // Who owns a proxy needs no credential.
        let is_owner = |consumer: &Consumer| {
            let names =
                [Some(consumer.id.as_str()), Some(&*consumer.username), consumer.custom_id.as_deref()];
            names.into_iter().flatten().any(|name| owners.contains(name))
        };
        for consumer in &model.consumers {
            let is_named = named.contains(&*consumer.username) || is_owner(consumer);
            if !others && !is_usable(consumer, &checked) && !is_named {
                let path = format!("consumers.{}", consumer.id);
                let message =
                    format!("nobody can be `{}`: no plugin checks a credential it has", consumer.username);
                self.add(
                    "consumer_unusable",
                    path,
                    message,
                    "give it a credential, and configure the plugin that checks it",
                );
            }
        }
    }

    /// Whom a plugin config takes for a consumer, and whom its `when` names.
    fn callers(
        &mut self,
        config: &PluginConfig,
        known: &HashSet<&str>,
        groups: &HashSet<&str>,
        others: bool,
    ) {
        for (key, name) in stand_ins(config).into_iter().filter(|(_, name)| !known.contains(&**name)) {
            let path = format!("plugin_configs.{}.config.{key}", config.id);
            self.unknown(path, "consumer", &name);
        }
        let (mut consumers, mut named) = (Vec::new(), Vec::new());
        // Others than consumers have names and groups of their own.
        if let Some(when) = config.when.as_ref().filter(|_| !others) {
            when.names_callers(&mut consumers, &mut named);
        }
        for (kind, names, there) in [("consumer", consumers, known), ("group", named, groups)] {
            for name in names.into_iter().filter(|name| !there.contains(name)) {
                self.unknown(format!("plugin_configs.{}.when", config.id), kind, name);
            }
        }
    }

    fn unknown(&mut self, path: String, kind: &str, name: &str) {
        let message = format!("there is no {kind} `{name}`");
        self.add("unknown_consumer", path, message, "correct the name, or add it");
    }

    fn names(&mut self, config: &PluginConfig, known: &HashSet<&str>, groups: &HashSet<&str>) {
        let settings = config.config.value();
        for (key, kind, there) in [
            ("allowed_consumers", "consumer", known),
            ("disallowed_consumers", "consumer", known),
            ("allowed_groups", "group", groups),
            ("disallowed_groups", "group", groups),
        ] {
            let named = settings.get(key).and_then(|list| list.as_array()).into_iter().flatten();
            for name in named.filter_map(|name| name.as_str()).filter(|name| !there.contains(name)) {
                let path = format!("plugin_configs.{}.config.{key}", config.id);
                self.unknown(path, kind, name);
            }
        }
    }
}

/// Every text in a document.
fn texts(value: &serde_json::Value, found: &mut HashSet<String>) {
    match value {
        serde_json::Value::String(text) => drop(found.insert(text.clone())),
        serde_json::Value::Array(list) => list.iter().for_each(|item| texts(item, found)),
        serde_json::Value::Object(fields) => fields.values().for_each(|field| texts(field, found)),
        _ => {}
    }
}

fn authenticates(config: &PluginConfig) -> bool {
    config.built.as_ref().is_some_and(|built| built.hooks().authenticates())
}

/// Whether callers can be somebody without a credential of a consumer: another party vouches for them.
fn identifies_others(config: &PluginConfig) -> bool {
    let is_own = config.built.as_ref().is_some_and(|built| built.credential().is_some());
    authenticates(config) && !is_own
}

/// The consumers that a plugin config takes callers for without a credential of theirs, and the setting that names each.
fn stand_ins(config: &PluginConfig) -> Vec<(&'static str, String)> {
    let settings = config.config.value();
    let keys = settings.get("public_keys").and_then(|keys| keys.as_array()).into_iter().flatten();
    let of_keys = keys.map(|key| ("public_keys", &key["consumer"]));
    let anonymous = settings.get("anonymous").filter(|_| authenticates(config));
    let all = of_keys.chain(anonymous.map(|name| ("anonymous", name)));
    let texts = all.filter_map(|(key, name)| Some((key, name.as_str()?.to_owned())));
    texts.collect()
}

fn is_usable(consumer: &Consumer, checked: &BTreeSet<&str>) -> bool {
    consumer.credentials.iter().any(|credential| match credential {
        Credential::Digest { kind, .. } | Credential::Secret { kind, .. } => checked.contains(kind.name),
    })
}

/// A certificate and when it ends.
#[derive(Debug, Clone)]
pub struct Expiry {
    /// The file it is in.
    pub file: PathBuf,
    /// Seconds from now; negative when it has ended.
    pub seconds: i64,
    /// From how many seconds before its end on it is warned of.
    pub warned: i64,
}

/// Seconds before its end from which on a certificate is warned of that somebody has to replace.
pub const WARNED_SECONDS: i64 = 30 * 24 * 3600;

/// The warnings of certificates' ends. Each file is named once.
pub fn expiring(certificates: impl IntoIterator<Item = (String, Expiry)>) -> Vec<Warning> {
    let mut known = BTreeMap::new();
    for (path, expiry) in certificates {
        known.entry(expiry.file.clone()).or_insert((path, expiry));
    }
    let mut found = WarningList(Vec::new());
    for (path, expiry) in known.into_values() {
        let (file, days) = (expiry.file.display(), expiry.seconds.div_euclid(24 * 3600));
        let what = if path.ends_with("client_crl_path") { "revocation list" } else { "certificate" };
        let (code, message) = match expiry.seconds {
            ..=0 => ("certificate_expired", format!("the {what} in {file} has expired")),
            left if left < expiry.warned => {
                ("certificate_expires", format!("the {what} in {file} expires in {days} days"))
            }
            _ => continue,
        };
        found.add(code, path, message, "renew it; the file is read again when it changes");
    }
    found.0
}

#[cfg(test)]
mod tests;
