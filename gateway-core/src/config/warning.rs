//! What is valid and probably not meant. Each warning has a code, by which it can be silenced.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use super::model::{
    Consumer, Credential, HttpRules, Match, Model, PathPattern, PluginConfig, Proxy, Scope, Traffic, Upstream,
};

/// Every code, and what it says.
pub const CODES: &[(&str, &str)] = &[
    ("no_proxies", "there is no proxy, so that nothing is served"),
    ("proxy_shadowed", "a proxy with a higher priority takes every request of another one"),
    ("plugin_unused", "no proxy names a plugin config of scope `proxy_group`"),
    ("upstream_unused", "no proxy names an upstream"),
    ("access_without_identity", "`access_control` lets callers in by name where nobody is identified"),
    ("unknown_consumer", "`access_control` names a consumer or a group that does not exist"),
    ("consumer_unusable", "a consumer has no credential that a plugin checks"),
    ("target_documentation", "a target is in a range or domain reserved for documentation"),
    ("target_unverified", "a target's certificate is not checked"),
    ("admin_exposed", "the admin API can be reached from other machines"),
    ("certificate_expires", "a certificate has expired or does so within 30 days"),
];

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

/// Whether a code is one of [`CODES`].
pub fn is_code(text: &str) -> bool {
    CODES.iter().any(|(code, _)| *code == text)
}

/// Everything odd in a configuration that is not silenced. Files are not looked into.
pub fn warnings(model: &Model) -> Vec<Warning> {
    let mut found = Found(Vec::new());
    found.settings(model);
    found.shadowed(&model.proxies.iter().map(|proxy| &**proxy).collect::<Vec<_>>());
    found.unused(model);
    found.consumers(model);
    for proxy in &model.proxies {
        found.targets(proxy);
    }
    silenced(found.0, model)
}

/// Without what the settings silence.
pub fn silenced(mut warnings: Vec<Warning>, model: &Model) -> Vec<Warning> {
    let silent = &model.settings.silence_warnings;
    warnings.retain(|warning| !silent.iter().any(|code| **code == *warning.code));
    warnings
}

struct Found(Vec<Warning>);

impl Found {
    fn add(
        &mut self,
        code: &'static str,
        path: impl Into<String>,
        message: impl Into<String>,
        remedy: &'static str,
    ) {
        self.0.push(Warning { code, path: path.into(), message: message.into(), remedy });
    }

    fn settings(&mut self, model: &Model) {
        let settings = &model.settings;
        if model.proxies.is_empty() {
            self.add("no_proxies", "proxies", "there are none, so that nothing is served", "add a proxy");
        }
        if let Some(address) = settings.admin.filter(|address| !address.ip().is_loopback()) {
            let message = format!("the admin API on {address} can be reached from other machines");
            self.add(
                "admin_exposed",
                "gateway.admin",
                message,
                "listen on 127.0.0.1, or keep others out by a firewall",
            );
        }
    }

    /// Proxies that no request comes to because one with a higher priority takes it. Without priorities the more
    /// specific goes first, and nothing is hidden.
    fn shadowed(&mut self, proxies: &[&Proxy]) {
        let rules = |proxy: &Proxy| match &proxy.traffic {
            Traffic::Http(rules) => Some(rules.clone()),
            Traffic::Stream(_) => None,
        };
        let above: Vec<(&Proxy, HttpRules)> = proxies
            .iter()
            .filter_map(|proxy| Some((*proxy, rules(proxy)?)))
            .filter(|(_, rules)| rules.priority > i32::MIN)
            .collect();
        let least = above.iter().map(|(_, rules)| rules.priority).min();
        let highs: Vec<_> = above.iter().filter(|(_, rules)| Some(rules.priority) > least).collect();
        for (proxy, low) in &above {
            let hides = |high: &HttpRules, taken: &Match| high.matches.iter().any(|by| covers(by, taken));
            let by = highs.iter().find(|(_, high)| {
                high.priority > low.priority && low.matches.iter().all(|taken| hides(high, taken))
            });
            if let Some((by, high)) = by {
                let message = format!(
                    "no request comes here: `{}` has priority {} and takes them all",
                    by.id, high.priority
                );
                self.add(
                    "proxy_shadowed",
                    format!("proxies.{}", proxy.id),
                    message,
                    "change the priorities, or remove it",
                );
            }
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
        let mut upstreams: HashSet<&str> =
            model.proxies.iter().map(|proxy| proxy.backend.upstream.id.as_str()).collect();
        // A plugin that chooses or calls an upstream names it somewhere in its settings.
        let settings: Vec<String> =
            model.plugin_configs.iter().map(|config| config.config.value().to_string()).collect();
        for upstream in &model.upstreams {
            let quoted = format!("\"{}\"", upstream.id);
            if settings.iter().any(|settings| settings.contains(&quoted)) {
                upstreams.insert(upstream.id.as_str());
            }
            if !upstreams.contains(upstream.id.as_str()) {
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
                    self.names(config, (&known, &groups));
                }
            }
        }
        let checked: BTreeSet<&str> =
            model.plugin_configs.iter().map(|config| &*config.plugin_name).collect();
        for consumer in &model.consumers {
            if !others && !is_usable(consumer, &checked) {
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

    fn names(&mut self, config: &PluginConfig, (known, groups): (&HashSet<&str>, &HashSet<&str>)) {
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
                self.add(
                    "unknown_consumer",
                    path,
                    format!("there is no {kind} `{name}`"),
                    "correct the name, or add it",
                );
            }
        }
    }

    fn targets(&mut self, proxy: &Proxy) {
        let path = || format!("proxies.{}", proxy.id);
        if proxy.backend.tls.as_ref().is_some_and(|tls| !tls.verify) {
            let message =
                "its targets' certificates are not checked, so that anybody in between can read along";
            self.add(
                "target_unverified",
                path(),
                message,
                "name their root by `backend_tls_server_ca_cert_path`",
            );
        }
        if let Some(host) = documentation_host(&proxy.backend.upstream) {
            let message = format!("the target `{host}` is reserved for documentation");
            self.add("target_documentation", path(), message, "write the real target");
        }
    }
}

/// Whether every request of `taken` is one of `by`. A condition of `by` may be false, and is then no cover.
fn covers(by: &Match, taken: &Match) -> bool {
    let hosts = by.hosts.is_empty() && taken.hosts.is_empty()
        || !taken.hosts.is_empty() && taken.hosts.iter().all(|host| by.hosts.contains(host));
    let conditions = by.condition.is_none() || by.condition == taken.condition;
    hosts && conditions && covers_path(&by.path, &taken.path)
}

fn covers_path(by: &PathPattern, taken: &PathPattern) -> bool {
    let under = |prefix: &str, path: &str| {
        prefix == "/"
            || path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match (by, taken) {
        (PathPattern::HostOnly, _) => true,
        (PathPattern::Prefix(prefix), PathPattern::Prefix(path) | PathPattern::Exact(path)) => {
            under(prefix, path)
        }
        (PathPattern::Prefix(prefix), _) => &**prefix == "/",
        (PathPattern::Exact(by), PathPattern::Exact(path)) => by == path,
        (PathPattern::Regex(by), PathPattern::Regex(path)) => by.as_str() == path.as_str(),
        _ => false,
    }
}

fn authenticates(config: &PluginConfig) -> bool {
    config.built.as_ref().is_some_and(|built| built.hooks().authenticates())
}

/// Whether callers can be somebody without a credential of a consumer: another party vouches for them.
fn identifies_others(config: &PluginConfig) -> bool {
    const OWN: [&str; 5] = ["key_auth", "basic_auth", "jwt_auth", "hmac_auth", "mtls_auth"];
    authenticates(config) && !OWN.contains(&&*config.plugin_name)
}

fn is_usable(consumer: &Consumer, checked: &BTreeSet<&str>) -> bool {
    consumer.credentials.iter().any(|credential| match credential {
        Credential::Digest { kind, .. } | Credential::Secret { kind, .. } => checked.contains(kind),
    })
}

/// RFC 5737, RFC 3849 and RFC 2606.
fn documentation_host(upstream: &Upstream) -> Option<&str> {
    const NETWORKS: [&str; 4] = ["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "2001:db8::/32"];
    const DOMAINS: [&str; 5] = ["example", "invalid", "example.com", "example.net", "example.org"];
    let is_reserved = |host: &str| match host.parse::<IpAddr>() {
        Ok(address) => {
            NETWORKS.iter().filter_map(|net| net.parse::<IpNet>().ok()).any(|net| net.contains(&address))
        }
        Err(_) => DOMAINS.iter().any(|domain| {
            host == *domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
        }),
    };
    upstream.targets.iter().map(|target| &*target.host).find(|host| is_reserved(host))
}

/// A certificate and when it ends.
#[derive(Debug, Clone)]
pub struct Expiry {
    /// The file it is in.
    pub file: PathBuf,
    /// Seconds from now; negative when it has ended.
    pub seconds: i64,
}

/// Days before its end from which on a certificate is warned of.
const WARNED_DAYS: i64 = 30;

/// The warnings of certificates' ends. Each file is named once.
pub fn expiring(certificates: impl IntoIterator<Item = (String, Expiry)>) -> Vec<Warning> {
    let mut known = BTreeMap::new();
    for (path, expiry) in certificates {
        known.entry(expiry.file.clone()).or_insert((path, expiry));
    }
    let mut found = Found(Vec::new());
    for (path, expiry) in known.into_values() {
        let (file, days) = (expiry.file.display(), expiry.seconds.div_euclid(24 * 3600));
        let message = match expiry.seconds {
            ..=0 => format!("the certificate in {file} has expired"),
            _ if days < WARNED_DAYS => format!("the certificate in {file} expires in {days} days"),
            _ => continue,
        };
        found.add("certificate_expires", path, message, "renew it; the file is read again when it changes");
    }
    found.0
}

#[cfg(test)]
mod tests;
