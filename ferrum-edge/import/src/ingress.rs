//! Kubernetes: Ingresses with their Services, and the annotations of ingress-nginx that people use.

mod accounts;
mod annotations;
mod canary;
mod controller;
mod hosts;

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::cond::Cond;
use crate::draft::{Import, Match, Matcher, Plug, Proxy, Redirect, Rewrite, Route, To, draft};
use crate::error::Failure;
use crate::text;
use crate::tree::{self, Node};
use crate::unread;

/// Documents that one import may have.
const MAX_DOCUMENTS: usize = 20_000;

/// An import under way.
struct Ingress<'o> {
    out: &'o mut Import,
    /// Services by namespace and name.
    services: HashMap<(String, String), Node>,
    /// Secrets by namespace and name.
    secrets: HashMap<(String, String), Node>,
    /// Hosts whose paths are all regexes.
    regex_hosts: HashSet<String>,
    /// Lists of accounts so far.
    accounts: usize,
    /// What canaries have of the requests for a host and path.
    shares: HashMap<canary::HostPath, canary::Share>,
    /// What main Ingresses say of a host and path.
    mains: HashMap<(String, String), canary::Main>,
    /// Hosts and paths that are said to be exact.
    exact: HashSet<(String, String)>,
    /// The controller's ConfigMaps, and what they say for all Ingresses.
    controllers: Vec<Node>,
    all: controller::Controller,
    /// What Ingresses say of a host as a whole.
    hosts: hosts::HostSettings,
}

/// What all paths of one Ingress have in common.
#[derive(Debug, Clone, Default)]
struct Common {
    settings: Proxy,
    plugins: Vec<Plug>,
    shared: Vec<String>,
    is_tls: bool,
    rewrite: Option<String>,
    redirect: Option<Redirect>,
    app_root: Option<String>,
    /// Which requests are a canary's, where that is not by weight only.
    canary: Option<Vec<Cond>>,
    is_canary: bool,
    is_closed: bool,
}

/// Imports manifests.
///
/// # Errors
/// When there is no Ingress in them.
pub(crate) fn import(out: &mut Import, sources: &[(String, String)]) -> Result<(), Failure> {
    let documents = documents(out, sources)?;
    let mut this = Ingress {
        out,
        services: HashMap::new(),
        secrets: HashMap::new(),
        regex_hosts: HashSet::new(),
        accounts: 0,
        shares: HashMap::new(),
        mains: HashMap::new(),
        exact: HashSet::new(),
        controllers: Vec::new(),
        all: controller::Controller::default(),
        hosts: hosts::HostSettings::default(),
    };
    let ingresses: Vec<Named> = documents.into_iter().filter_map(|document| this.sorted(document)).collect();
    if ingresses.is_empty() {
        let name = sources.first().map_or("", |(name, _)| name.as_str());
        return Err(Failure::new(name, 1, "there is no Ingress of networking.k8s.io/v1 in it"));
    }
    for (_, ingress) in &ingresses {
        let is_regex =
            annotations::says(ingress, "use-regex") || annotations::get(ingress, "rewrite-target").is_some();
        if is_regex && !annotations::says(ingress, "canary") {
            let hosts = ingress.path(&["spec", "rules"]).map_or(&[][..], Node::items);
            let names = hosts.iter().map(|rule| rule.text_of("host").unwrap_or("").to_ascii_lowercase());
            this.regex_hosts.extend(names);
        }
    }
    for document in std::mem::take(&mut this.controllers) {
        this.controller(&document);
    }
    this.hosts = hosts::HostSettings::of(&ingresses);
    this.exact = exact_paths(&ingresses);
    this.shares = this.shares(&ingresses);
    // A canary has the guards of its main Ingress, which therefore comes first.
    let (canaries, mains): (Vec<&Named>, Vec<&Named>) =
        ingresses.iter().partition(|(_, ingress)| annotations::says(ingress, "canary"));
    for ((namespace, name), ingress) in mains {
        this.ingress(namespace, name, ingress);
    }
    for ((namespace, name), ingress) in canaries {
        this.canary_ingress(namespace, name, ingress);
    }
    this.aliases();
    this.duplicates();
    for ((namespace, name), ingress) in &ingresses {
        if let Some(spec) = ingress.get("spec") {
            unread::name(out, &format!("Ingress {namespace}/{name}"), spec, &["ingressClassName"]);
        }
    }
    Ok(())
}

/// An object with its namespace and name.
type Named = ((String, String), Node);

/// Hosts and paths of type `Exact`.
fn exact_paths(ingresses: &[Named]) -> HashSet<(String, String)> {
    let mut made = HashSet::new();
    for (_, ingress) in ingresses {
        for rule in ingress.path(&["spec", "rules"]).map_or(&[][..], Node::items) {
            let host = rule.text_of("host").unwrap_or("").to_ascii_lowercase();
            let paths = rule.path(&["http", "paths"]).map_or(&[][..], Node::items);
            let exact = paths.iter().filter(|path| path.text_of("pathType") == Some("Exact"));
            made.extend(exact.map(|path| (host.clone(), path.text_of("path").unwrap_or("/").to_owned())));
        }
    }
    made
}

/// Whether an `Exact` path is the same as a `Prefix` on a host whose paths are regexes. The prefix is for what is below it
/// then, and of the two regexes the first one in the files goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Twin {
    None,
    Before,
    After,
}

impl Twin {
    fn ending(self) -> &'static str {
        if self == Self::None { "" } else { "/" }
    }
}

/// The objects of all files, those of lists one by one.
fn documents(out: &mut Import, sources: &[(String, String)]) -> Result<Vec<Node>, Failure> {
    let mut documents = Vec::new();
    for (name, text) in sources {
        let file = out.report.file(name);
        for document in tree::all(name, file, text)? {
            match document.text_of("kind") {
                Some(kind) if kind.ends_with("List") => {
                    documents.extend(document.each("items").iter().cloned())
                }
                _ => documents.push(document),
            }
        }
        if documents.len() > MAX_DOCUMENTS {
            return Err(Failure::new(name, 0, format!("more than {MAX_DOCUMENTS} objects")));
        }
    }
    Ok(documents)
}

impl Ingress<'_> {
    /// Keeps what Ingresses refer to, and hands an Ingress back.
    fn sorted(&mut self, document: Node) -> Option<Named> {
        let of = |key: &str| document.path(&["metadata", key]).and_then(Node::str).map(str::to_owned);
        let name = (of("namespace").unwrap_or_else(|| "default".to_owned()), of("name").unwrap_or_default());
        match document.text_of("kind") {
            Some("Ingress") if document.text_of("apiVersion") == Some("networking.k8s.io/v1") => {
                return Some((name, document));
            }
            Some("Ingress") => {
                let what = format!("Ingress {}", name.1);
                let todo = "convert it with `kubectl convert`";
                self.out.not_converted(document.at, what, "only networking.k8s.io/v1 is known", todo);
            }
            Some("Service") => drop(self.services.insert(name, document)),
            Some("ConfigMap") if controller::is_of(&document) => self.controllers.push(document),
            Some("Secret") => drop(self.secrets.insert(name, document)),
            Some(kind @ ("Gateway" | "HTTPRoute" | "Middleware" | "IngressRoute" | "KongPlugin")) => {
                self.out.not_converted(
                    document.at,
                    format_args!("{kind} {}", name.1),
                    "it is not converted",
                    "",
                );
            }
            Some(kind) => {
                let what = format!("{kind} {}", name.1);
                self.out.not_needed(document.at, what, "it is no part of the routing");
            }
            None => self.out.not_converted(document.at, "an object", "it has no kind", ""),
        }
        None
    }
}

impl Ingress<'_> {
    fn ingress(&mut self, namespace: &str, name: &str, ingress: &Node) {
        let what = format!("Ingress {namespace}/{name}");
        let common = self.common(&what, namespace, ingress);
        let spec = ingress.get("spec").cloned().unwrap_or_default();
        for tls in spec.each("tls") {
            let secret = tls.text_of("secretName").unwrap_or("the controller's own");
            let why = format!("the certificate is in the Secret `{secret}`");
            self.out.not_converted(
                tls.at,
                format_args!("{what}: tls"),
                why,
                "write it to files, and name them in gateway.tls.certificates",
            );
        }
        if let Some(backend) = spec.get("defaultBackend") {
            let main = canary::Main { common: common.clone(), path: None, redirects_plain: false };
            self.mains.entry((String::new(), "/".to_owned())).or_insert(main);
            let route = self.route(&what, namespace, name, backend, &common);
            self.place(Route { listen_path: Some("/".to_owned()), ..route }, &common, false);
        }
        for rule in spec.each("rules") {
            let host = rule.text_of("host").unwrap_or("").to_ascii_lowercase();
            let good = host.is_empty() || !host.trim_start_matches("*.").contains('*');
            if !good {
                self.out.not_converted(rule.at, format_args!("{what}: host {host}"), "it is not a name", "");
                continue;
            }
            let says = |key: &str, or: bool| annotations::get(ingress, key).map_or(or, |it| it == "true");
            let mut common = common.clone();
            common.is_closed |= self.is_closed_host(&what, namespace, name, rule, &host);
            let redirects_plain = self.hosts.has_tls(&host)
                && says("ssl-redirect", self.all.redirects.unwrap_or(true))
                || says("force-ssl-redirect", self.all.forces_redirects);
            let paths = rule.path(&["http", "paths"]).map_or(&[][..], Node::items);
            for path in paths {
                let Some(backend) = path.get("backend") else { continue };
                let main = canary::Main { common: common.clone(), path: Some(path.clone()), redirects_plain };
                let text = path.text_of("path").unwrap_or("/").to_owned();
                self.mains.entry((host.clone(), text)).or_insert(main);
                let mut route = self.route(&what, namespace, name, backend, &common);
                if !host.is_empty() {
                    route.hosts = vec![host.clone()];
                }
                self.path(&what, path, &host, &common, &mut route);
                self.share(&what, namespace, &host, path, &common, &mut route);
                self.place(route, &common, redirects_plain);
            }
            if let Some(root) = &common.app_root {
                let leads = draft!(Redirect { status_code: 302, location: root, query: "drop" });
                let mut route = Route::new(format!("{name}-root"), To::Redirect(leads));
                if !host.is_empty() {
                    route.hosts = vec![host.clone()];
                }
                route.matches.push(draft!(Match { path: Matcher::exact("/") }));
                route.priority = Some(30_000);
                self.out.route(route);
            }
        }
        self.out.converted(ingress.at, what);
    }

    /// Which paths, and in which order.
    fn path(&mut self, what: &str, path: &Node, host: &str, common: &Common, route: &mut Route) {
        let text = path.text_of("path").unwrap_or("/").to_owned();
        let kind = path.text_of("pathType").unwrap_or("ImplementationSpecific");
        let length = i64::try_from(text.len()).unwrap_or(0).min(9000);
        let is_regex = self.regex_hosts.contains(host);
        let twin = if is_regex && kind == "Prefix" { self.twin(host, &text) } else { Twin::None };
        route.name = format!("{}-{}", route.name, text.trim_matches('/'));
        let path_match = match kind {
            _ if is_regex => {
                // All paths of such a host are regexes that ignore case, also those that are said to be exact.
                let start = text.trim_start_matches('^');
                let whole = format!("(?i){}", text::anywhere(&format!("^{start}{}", twin.ending())));
                if text::is_regex(&whole) {
                    Matcher::regex(whole)
                } else {
                    let why = "this regex is none here";
                    self.out.route_closed(
                        path.at,
                        format_args!("{what}: path {text}"),
                        why,
                        "write it otherwise",
                    );
                    route.to = To::Closed;
                    Matcher::prefix("/")
                }
            }
            "Exact" => Matcher::exact(text),
            "Prefix" => Matcher::prefix(trimmed(&text)),
            _ => {
                // As nginx takes a prefix: it may end within a segment.
                if text != "/" && !text.ends_with('/') {
                    let within = Matcher::regex(format!("{}[^/].*", text::literal(&text)));
                    route.matches.push(draft!(Match { path: within }));
                }
                Matcher::prefix(trimmed(&text))
            }
        };
        let groups = path_match.get("regex").and_then(Value::as_str).map_or(0, count_groups);
        route.matches.insert(0, draft!(Match { path: path_match }));
        if is_regex || route.matches.len() > 1 {
            route.priority = Some(length + if twin == Twin::Before { 0 } else { 1 });
        }
        if let (Some(rewrite), true) =
            (&common.rewrite, matches!(route.to, To::Host { .. } | To::Upstream { .. }))
        {
            route.plugins.push(Plug::of(draft!(Rewrite { path: captures(rewrite, groups) })));
        }
    }

    /// The `Exact` path that is the same as a prefix.
    fn twin(&self, host: &str, path: &str) -> Twin {
        let key = (host.to_owned(), path.to_owned());
        if path.ends_with('/') || !self.exact.contains(&key) {
            return Twin::None;
        }
        let first = self.mains.get(&key).and_then(|main| main.path.as_ref());
        if first.and_then(|it| it.text_of("pathType")) == Some("Exact") { Twin::Before } else { Twin::After }
    }

    /// A route to a backend.
    fn route(&mut self, what: &str, namespace: &str, name: &str, backend: &Node, common: &Common) -> Route {
        if common.is_closed {
            backend.see_all();
        }
        let mut to = match &common.redirect {
            _ if common.is_closed => To::Closed,
            Some(redirect) => To::Redirect(redirect.clone()),
            None => match self.target(namespace, backend) {
                Ok((host, port)) => To::Host { host, port, is_tls: common.is_tls },
                Err(why) => {
                    self.out.not_converted(
                        backend.at,
                        format_args!("{what}: backend"),
                        format_args!("{why}; it answers 503"),
                        "add the Service to the files",
                    );
                    To::Closed
                }
            },
        };
        if common.is_canary && common.canary.is_none() {
            // By weight only: everybody stays with the main one.
            to = To::Closed;
        }
        let mut route = Route::new(name, to);
        route.settings.clone_from(&common.settings);
        route.plugins.clone_from(&common.plugins);
        route.shared.clone_from(&common.shared);
        route
    }

    fn place(&mut self, mut route: Route, common: &Common, redirects_plain: bool) {
        if common.is_canary {
            let Some(conditions) = &common.canary else { return };
            let paths = std::mem::take(&mut route.matches);
            for path in &paths {
                for condition in conditions.iter().filter_map(Cond::when) {
                    route.matches.push(path.clone().with_facet(&Match::of_condition(condition)));
                }
            }
            route.priority = Some(route.priority.unwrap_or(0) + 100_000);
        }
        if redirects_plain && route.to != To::Closed && common.redirect.is_none() {
            route.plugins.insert(0, Plug::of(draft!(Redirect { status_code: 308, scheme: "https" })));
        }
        self.out.route(route);
    }

    /// Host and port of a backend.
    fn target(&self, namespace: &str, backend: &Node) -> Result<(String, u16), String> {
        let service = backend.get("service").ok_or("only Services are known")?;
        let name = service.text_of("name").ok_or("the Service has no name")?;
        let port = service.get("port").ok_or("it names no port")?;
        let manifest = self.services.get(&(namespace.to_owned(), name.to_owned()));
        let external = manifest.and_then(|it| it.path(&["spec", "externalName"])).and_then(Node::str);
        let host = external.map_or_else(|| format!("{name}.{namespace}.svc.cluster.local"), str::to_owned);
        let number = port.get("number").and_then(Node::uint).and_then(|it| u16::try_from(it).ok());
        if let Some(number) = number {
            return Ok((host, number));
        }
        let called = port.text_of("name").ok_or("it names no port")?;
        let ports = manifest.and_then(|it| it.path(&["spec", "ports"])).map_or(&[][..], Node::items);
        let found = ports.iter().find(|it| it.text_of("name") == Some(called));
        let number =
            found.and_then(|it| it.get("port")).and_then(Node::uint).and_then(|it| u16::try_from(it).ok());
        number
            .map(|number| (host, number))
            .ok_or_else(|| format!("the port `{called}` of the Service `{name}` is not known"))
    }

    /// Two Ingresses with one host and path: the first has it.
    fn duplicates(&mut self) {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        let mut lost = Vec::new();
        let mut gone = HashSet::new();
        self.out.proxies.retain(|proxy| {
            let key = format!(
                "{}{}{}{}",
                proxy["hosts"], proxy["listen_path"], proxy["matches"], proxy["priority"]
            );
            let id = proxy["id"].as_str().unwrap_or_default().to_owned();
            match seen.get(&key) {
                Some(first) => {
                    lost.push((id.clone(), first.clone()));
                    gone.insert(id);
                    false
                }
                None => {
                    seen.insert(key, id);
                    true
                }
            }
        });
        self.out
            .plugin_configs
            .retain(|config| config["proxy_id"].as_str().is_none_or(|id| !gone.contains(id)));
        for (id, first) in lost {
            self.out.partial(
                crate::report::At::default(),
                id,
                format_args!("`{first}` has the same host and path, and goes first"),
                "",
            );
        }
    }
}

/// Settings of a proxy where nothing else is said.
fn defaults() -> Proxy {
    let mut made = Proxy::default();
    made.strip_listen_path(false);
    made.preserve_host_header(true);
    made.backend_connect_timeout("5s");
    made.read_timeout(60_000);
    made.max_request_body(1 << 20);
    made
}

fn trimmed(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => "/".to_owned(),
        path => path.to_owned(),
    }
}

/// The groups of a regex.
fn count_groups(regex: &str) -> usize {
    regex::Regex::new(regex).map_or(0, |regex| regex.captures_len() - 1)
}

/// `$1` as `${capture.1}`; one that the path's regex has no group for is empty.
fn captures(text: &str, groups: usize) -> String {
    let mut made = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match rest.peek() {
            Some(digit) if c == '$' && digit.is_ascii_digit() => {
                let number = digit.to_digit(10).unwrap_or(0) as usize;
                if (1..=groups).contains(&number) {
                    made.push_str(&format!("${{capture.{digit}}}"));
                }
                rest.next();
            }
            _ => made.push(c),
        }
    }
    if made.starts_with('/') { made } else { format!("/{made}") }
}

#[cfg(test)]
mod tests;
