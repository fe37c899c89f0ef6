//! The configuration that is being made, and how importers add to it.

mod access;
mod accounts;
mod authentication;
mod condition;
mod consumer;
mod content;
mod gateway;
mod limits;
mod matcher;
mod plugin;
mod proxy;
mod settings;
mod targets;
mod transformation;
mod upstream;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::Options;
use crate::report::{At, Conversion, Report};
use crate::text;
pub(crate) use access::*;
use accounts::Accounts;
pub(crate) use accounts::{Password, basic_auth, only_group};
pub(crate) use authentication::*;
pub(crate) use condition::*;
pub(crate) use consumer::*;
pub(crate) use content::*;
pub(crate) use gateway::*;
pub(crate) use limits::*;
pub(crate) use matcher::Matcher;
pub(crate) use plugin::*;
pub(crate) use proxy::*;
pub use settings::Declared;
pub(crate) use settings::{List, Settings, Text, Texts, draft};
use targets::join_targets;
pub(crate) use targets::{Targets, without_target};
pub(crate) use transformation::*;
pub(crate) use upstream::*;

/// Every type of settings that importers write: its place in the schema, and its fields.
pub const DECLARED: [&[Declared]; 12] = [
    access::DECLARED,
    authentication::DECLARED,
    condition::DECLARED,
    consumer::DECLARED,
    content::DECLARED,
    gateway::DECLARED,
    limits::DECLARED,
    matcher::COMPARED,
    plugin::DECLARED,
    proxy::DECLARED,
    transformation::DECLARED,
    upstream::DECLARED,
];

/// An imported configuration.
#[derive(Debug, Clone, Default)]
pub struct Import {
    /// Settings of the gateway as a whole.
    pub(crate) gateway: Gateway,
    /// Named groups of targets.
    pub upstreams: Vec<Value>,
    /// Plugins and where they run.
    pub plugin_configs: Vec<Value>,
    /// How many proxies answer 503 to everything, for they stand for what can't be converted.
    pub closed_proxies: usize,
    /// Of how many locations of the original some or all requests answer 503 for that reason, and how many it has; none where a
    /// format has no locations.
    pub closed_locations: (usize, usize),
    /// Everything that takes traffic.
    pub proxies: Vec<Value>,
    /// Everybody who may be recognised.
    pub consumers: Vec<Value>,
    /// What became of each construct.
    pub report: Report,
    /// Where the importer is, for [`Import::not_converted_here`].
    pub(crate) here: At,
    open: bool,
    /// Whether its proxies would have more plugins than an import may make.
    pub(crate) has_too_many_plugins: bool,
    /// Plugin configs that count by a zone: their places, and its name.
    pub(crate) zones: Vec<(usize, Arc<str>)>,
    /// How often each id was asked for, by kind.
    ids: HashMap<&'static str, HashMap<String, usize>>,
    accounts: Accounts,
}

impl Import {
    pub(crate) fn new(options: Options) -> Self {
        Self { open: options.open, ..Self::default() }
    }

    /// Has names looked up at these servers, as far as they are addresses, besides those that were named before.
    pub(crate) fn name_servers<'s>(&mut self, servers: impl IntoIterator<Item = &'s str>) {
        const MOST: usize = 8;
        let known = self.gateway.get("dns_servers").and_then(Value::as_array);
        let mut known: Vec<String> =
            known.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        for server in servers {
            let is_address = server.parse::<IpAddr>().is_ok() || server.parse::<SocketAddr>().is_ok();
            if is_address && known.len() < MOST && !known.iter().any(|it| it == server) {
                known.push(server.to_owned());
            }
        }
        self.gateway.dns_servers((!known.is_empty()).then_some(known));
    }

    /// Names a connection to Redis under `gateway.redis`; the same one has the same name.
    pub(crate) fn redis(&mut self, connection: impl Into<Value>) -> String {
        let connection = connection.into();
        let mut named = self.gateway.get("redis").and_then(Value::as_object).cloned().unwrap_or_default();
        if let Some((name, _)) = named.iter().find(|(_, known)| **known == connection) {
            return name.clone();
        }
        let name = if named.is_empty() { "main".to_owned() } else { format!("redis-{}", named.len() + 1) };
        named.insert(name.clone(), connection);
        self.gateway.redis(named);
        name
    }

    /// Settings of the gateway as a whole.
    pub fn gateway(&self) -> &Map<String, Value> {
        &self.gateway
    }

    /// The whole as a configuration file's document.
    pub fn document(&self) -> Value {
        let mut document = Map::from_iter([("version".to_owned(), json!("1"))]);
        if !self.gateway.is_empty() {
            document.insert("gateway".to_owned(), self.gateway.clone().into());
        }
        for (name, list) in [
            ("upstreams", &self.upstreams),
            ("plugin_configs", &self.plugin_configs),
            ("proxies", &self.proxies),
            ("consumers", &self.consumers),
        ] {
            if !list.is_empty() {
                document.insert(name.to_owned(), Value::Array(list.clone()));
            }
        }
        Value::Object(document)
    }

    /// Whether there are more proxies or plugins than an import may make, so that it fails anyway.
    pub(crate) fn is_too_large(&self) -> bool {
        self.proxies.len() > crate::MAX_PROXIES || self.has_too_many_plugins
    }

    /// Whether what can't be guarded stays open.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) fn finish(&mut self) {
        self.remove_own_fields();
        self.upstreams.iter_mut().for_each(join_targets);
        self.report.sort();
    }

    /// Reports a construct that means the same here.
    pub(crate) fn converted(&mut self, at: At, what: impl fmt::Display) {
        self.note(Conversion::Converted, at, what, "", "");
    }

    /// Reports a construct that needs no counterpart.
    pub(crate) fn not_needed(&mut self, at: At, what: impl fmt::Display, why: &str) {
        self.note(Conversion::NotNeeded, at, what, why, "");
    }

    /// Reports a construct that differs for some requests.
    pub(crate) fn partial(&mut self, at: At, what: impl fmt::Display, why: impl fmt::Display, todo: &str) {
        self.note(Conversion::Partial, at, what, why, todo);
    }

    /// Reports a construct that is not converted.
    pub(crate) fn not_converted(
        &mut self,
        at: At,
        what: impl fmt::Display,
        why: impl fmt::Display,
        todo: &str,
    ) {
        self.note(Conversion::NotConverted, at, what, why, todo);
    }

    /// Reports an access rule that is not converted. Returns whether the caller has to close the routes that it protected.
    pub(crate) fn guard_not_converted(
        &mut self,
        at: At,
        what: impl fmt::Display,
        why: impl fmt::Display,
        todo: &str,
    ) -> bool {
        let outcome = if self.open { Conversion::Opened } else { Conversion::Closed };
        self.note(outcome, at, what, why, todo);
        !self.open
    }

    /// Reports a construct at [`Import::here`] that is not converted.
    pub(crate) fn not_converted_here(&mut self, what: impl fmt::Display, why: impl fmt::Display) {
        self.note(Conversion::NotConverted, self.here, what, why, "");
    }

    fn note(
        &mut self,
        outcome: Conversion,
        at: At,
        what: impl fmt::Display,
        why: impl fmt::Display,
        todo: &str,
    ) {
        self.report.add(outcome, at, what.to_string(), why.to_string(), todo.to_owned());
    }

    /// Reports a route that is closed also with [`Options::open`]: it has no target that could be opened.
    pub(crate) fn route_closed(
        &mut self,
        at: At,
        what: impl fmt::Display,
        why: impl fmt::Display,
        todo: &str,
    ) {
        self.note(Conversion::Closed, at, what, why, todo);
    }

    /// A plugin config of one proxy.
    pub(crate) fn plugin(&mut self, proxy: &str, plugin: &str, config: Value) -> String {
        self.plugin_when(proxy, plugin, config, None)
    }

    /// A plugin config of one proxy, for the requests that a condition means.
    pub(crate) fn plugin_when(
        &mut self,
        proxy: &str,
        plugin: &str,
        config: Value,
        when: Option<&Value>,
    ) -> String {
        let id = self.id("plugin", &format!("{proxy}-{plugin}"));
        let made = draft!(PluginConfig { id: &id, plugin_name: plugin, proxy_id: proxy, config, when });
        self.plugin_configs.push(made.into());
        id
    }

    /// A plugin config that proxies name by its id.
    pub(crate) fn shared_plugin(&mut self, name: &str, plugin: &str, config: Value) -> String {
        let id = self.id("plugin", name);
        let made = draft!(PluginConfig { id: &id, plugin_name: plugin, scope: "proxy_group", config });
        self.plugin_configs.push(made.into());
        id
    }

    /// An id of this kind that looks like `name` and is nobody else's.
    pub(crate) fn id(&mut self, kind: &'static str, name: &str) -> String {
        let slug = slug(name).unwrap_or_else(|| kind.to_owned());
        let ids = self.ids.entry(kind).or_default();
        let Some(mut count) = ids.get(&slug).copied() else {
            ids.insert(slug.clone(), 1);
            return slug;
        };
        loop {
            count += 1;
            let numbered = format!("{slug}-{count}");
            if let Entry::Vacant(free) = ids.entry(numbered.clone()) {
                free.insert(1);
                ids.insert(slug, count);
                return numbered;
            }
        }
    }
}

/// What an id looks like that is made from a name; `None` where no letter of it can be in one.
fn slug(name: &str) -> Option<String> {
    const MOST: usize = 200;
    let is_good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let bytes = name.as_bytes();
    let mut made = if bytes.len() <= MOST && bytes.iter().all(|b| is_good(*b)) && !name.contains("--") {
        name.trim_start_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
    } else {
        let good = |c: char| if u8::try_from(c).is_ok_and(is_good) { c } else { '-' };
        let mut made = String::with_capacity(name.len().min(MOST));
        for c in name.chars().map(good).take(MOST) {
            let is_start = made.is_empty() && !c.is_ascii_alphanumeric();
            if !(is_start || c == '-' && made.ends_with('-')) {
                made.push(c);
            }
        }
        made
    };
    made.truncate(made.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len());
    (!made.is_empty()).then_some(made)
}

impl Proxy {
    /// How long a target may be silent, before its response and during it.
    pub(crate) fn read_timeout(&mut self, millis: u64) {
        self.backend_first_byte_timeout(text::duration(millis));
        self.backend_idle_timeout(text::duration(millis));
    }
}

impl Target {
    /// A target of an upstream. A Unix socket, `unix:/run/app.sock`, and a service, `srv:_http._tcp.shop.test`, have no port.
    pub(crate) fn new(host: &str, port: u16) -> Self {
        let has_port = !host.starts_with("unix:") && !is_service(host);
        draft!(Target { host, port: has_port.then_some(port) })
    }
}

/// Whether a target's host stands for the servers of a service, which DNS SRV records name.
pub(crate) fn is_service(host: &str) -> bool {
    host.starts_with("srv:")
}

/// Where a proxy's requests go.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum To {
    /// To a named group of targets.
    Upstream { id: String, is_tls: bool },
    /// To one target; the port of a Unix socket is not looked at.
    Host { host: String, port: u16, is_tls: bool },
    /// The gateway answers by itself: status, media type, body.
    Answer(u16, String, String),
    /// The same with a body that is a template.
    Page(u16, String, String),
    /// The gateway redirects.
    Redirect(Redirect),
    /// The gateway serves files.
    Files(StaticFiles),
    /// 503: what guards it was not imported.
    Closed,
}

/// A plugin of a route, before the route has an id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plug {
    pub(crate) name: &'static str,
    /// Its settings, shared by the routes that have it.
    pub(crate) config: Rc<Value>,
    pub(crate) when: Option<Rc<Value>>,
    /// Those of one zone that are alike share their counters.
    pub(crate) zone: Option<Arc<str>>,
}

impl Plug {
    pub(crate) fn new(name: &'static str, config: Value) -> Self {
        Self { name, config: Rc::new(config), when: None, zone: None }
    }

    /// The plugin that has these settings.
    pub(crate) fn of<S: Settings>(settings: S) -> Self {
        Self::new(S::PLACE, settings.into())
    }

    /// One of the two plugins that change fields, with its rules.
    pub(crate) fn of_rules(plugin: &'static str, rules: impl List<HeaderRule>) -> Self {
        Self::new(plugin, draft!(RequestTransformer { rules }).into())
    }

    pub(crate) fn when(self, when: Option<Value>) -> Self {
        Self { when: when.map(Rc::new), ..self }
    }
}

/// A proxy in the making.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Route {
    /// What its id is made from.
    pub(crate) name: String,
    pub(crate) hosts: Vec<String>,
    pub(crate) listen_path: Option<String>,
    pub(crate) matches: Vec<Match>,
    pub(crate) priority: Option<i64>,
    pub(crate) to: To,
    /// Further fields of the proxy.
    pub(crate) settings: Proxy,
    pub(crate) plugins: Vec<Plug>,
    /// Ids of shared plugin configs.
    pub(crate) shared: Vec<String>,
}

impl Route {
    pub(crate) fn new(name: impl Into<String>, to: To) -> Self {
        Self {
            name: name.into(),
            hosts: Vec::new(),
            listen_path: None,
            matches: Vec::new(),
            priority: None,
            to,
            settings: Proxy::default(),
            plugins: Vec::new(),
            shared: Vec::new(),
        }
    }
}

impl Import {
    /// Adds a proxy; says its id.
    pub(crate) fn route(&mut self, mut route: Route) -> String {
        let id = self.id("proxy", &route.name);
        let anything = route.hosts.is_empty() && !route.matches.iter().any(|one| one.get("path").is_some());
        let matches: Vec<Match> = route.matches.into_iter().filter(|one| !one.is_empty()).collect();
        let mut proxy = draft!(Proxy {
            id: &id,
            hosts: (!route.hosts.is_empty()).then_some(route.hosts),
            listen_path: route.listen_path.or_else(|| anything.then(|| "/".to_owned())),
            matches: (!matches.is_empty()).then_some(matches),
            priority: route.priority,
        });
        self.closed_proxies += usize::from(matches!(route.to, To::Closed));
        let is_forwarded = matches!(route.to, To::Upstream { .. } | To::Host { .. });
        let is_files = matches!(route.to, To::Files(_));
        // What answers is passed by the response on its way out where the other plugin came before it.
        let answers = match &route.to {
            To::Answer(..) | To::Page(..) | To::Closed => Some("request_termination"),
            To::Redirect(_) => Some("redirect"),
            To::Files(_) => Some("static_files"),
            To::Upstream { .. } | To::Host { .. } => None,
        };
        self.lead(&id, route.to, &mut proxy);
        if is_forwarded {
            proxy.append(&mut route.settings);
            if proxy.contains_key("backend_protocol") {
                // It says both.
                proxy.shift_remove("backend_scheme");
            }
        } else {
            without_target(&mut proxy);
            let strips = route.settings.get("strip_listen_path").and_then(Value::as_bool);
            proxy.strip_listen_path(strips.filter(|_| is_files));
        }
        let rewrites = route.plugins.iter().any(|plug| plug.name == "rewrite");
        for plug in route.plugins {
            // Files are looked for by the path as it came.
            let leads = (plug.name == "static_files" && rewrites).then_some("rewrite");
            self.plugin_when(&id, plug.name, Rc::unwrap_or_clone(plug.config), plug.when.as_deref());
            self.zones.extend(plug.zone.map(|zone| (self.plugin_configs.len() - 1, zone)));
            // Files precede an answer for paths without one.
            let precedes = matches!(plug.name, "response_transformer" | "static_files");
            let next = answers.filter(|_| precedes).or(leads);
            if let (Some(next), Some(made)) = (next, self.plugin_configs.last_mut()) {
                made["before"] = next.into();
            }
        }
        if !route.shared.is_empty() {
            let named = route.shared.iter().map(|id| draft!(PluginRef { plugin_config_id: id }));
            proxy.plugins(named.collect::<Vec<PluginRef>>());
        }
        self.proxies.push(proxy.into());
        id
    }

    /// Where a proxy's requests go, and the plugin that answers them.
    fn lead(&mut self, id: &str, to: To, proxy: &mut Proxy) {
        let scheme = |is_tls: bool| if is_tls { "https" } else { "http" };
        match to {
            To::Upstream { id: upstream, is_tls } => {
                proxy.backend_scheme(scheme(is_tls));
                proxy.upstream_id(upstream);
            }
            To::Host { host, port, is_tls } => {
                proxy.backend_scheme(scheme(is_tls));
                // A Unix socket has no port.
                proxy.backend_port((!host.starts_with("unix:")).then_some(port));
                proxy.backend_host(host);
            }
            To::Answer(status, kind, body) => self.answer(id, status, &kind, &body, None),
            To::Page(status, kind, body) => self.answer(id, status, &kind, &body, Some(true)),
            To::Redirect(config) => drop(self.plugin(id, "redirect", config.into())),
            To::Files(config) => drop(self.plugin(id, "static_files", config.into())),
            To::Closed => {
                self.plugin(id, "request_termination", RequestTermination::of_closed_route().into());
            }
        }
    }
}

impl Import {
    fn answer(&mut self, id: &str, status_code: u16, content_type: &str, body: &str, template: Option<bool>) {
        let answer = draft!(RequestTermination { status_code, content_type, body, template });
        self.plugin(id, "request_termination", answer.into());
    }
}

/// Whether a proxy has no target.
#[cfg(test)]
pub(crate) fn answers_itself(proxy: &Value) -> bool {
    ["backend_host", "backend_port", "upstream_id"].iter().all(|key| proxy[*key].is_null())
}

#[cfg(test)]
mod tests {
    use super::Import;

    #[test]
    fn ids_are_each_their_own() {
        let mut out = Import::default();
        assert_eq!(out.id("proxy", "a b/c"), "a-b-c");
        assert_eq!(out.id("proxy", "a b c"), "a-b-c-2");
        assert_eq!(out.id("proxy", "a b c"), "a-b-c-3");
        assert_eq!(out.id("proxy", "a-b-c-3"), "a-b-c-3-2");
        assert_eq!(out.id("proxy", "***"), "proxy");
        assert_eq!(out.id("upstream", "a b c"), "a-b-c");
        assert_eq!(out.id("proxy", "a - b"), "a-b");
    }
}
