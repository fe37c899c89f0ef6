//! Canaries of ingress-nginx: by header and cookie as proxies of their own, by weight as shares of the main Ingress's requests.

use std::collections::HashMap;

use super::annotations::{get, says};
use super::{Common, Ingress, defaults};
use crate::cond::Cond;
use crate::draft::{Match, Matcher, Override, Plug, Route, Split, Target, TrafficSplit, Upstream, draft};
use crate::text;
use crate::tree::Node;

/// What the main Ingress says of a host and path, which holds for its canary, too.
#[derive(Debug)]
pub(super) struct Main {
    pub(super) common: Common,
    /// The path with its type; none for what no rule means.
    pub(super) path: Option<Node>,
    pub(super) redirects_plain: bool,
}

/// A host and path of a namespace.
pub(super) type HostPath = (String, String, String);

/// A canary's share of a place's requests.
#[derive(Debug, Clone)]
pub(super) struct Share {
    upstream: String,
    weight: u64,
    total: u64,
    is_tls: bool,
    /// The header and cookie that keep a request away from it.
    never: Vec<Override>,
}

impl Share {
    /// What the main Ingress's proxies do with it; `None` where the two are asked in different ways.
    pub(super) fn plug(&self, is_tls: bool) -> Option<Plug> {
        let main = self.total.saturating_sub(self.weight);
        let own = draft!(Split { upstream_id: &self.upstream, weight: self.weight.min(self.total) });
        let splits = [draft!(Split { weight: main }), own];
        (is_tls == self.is_tls)
            .then(|| Plug::of(draft!(TrafficSplit { splits, overrides: self.never.clone() })))
    }
}

impl Ingress<'_> {
    /// The shares of all canaries by weight.
    pub(super) fn shares(&mut self, ingresses: &[((String, String), Node)]) -> HashMap<HostPath, Share> {
        let mut made = HashMap::new();
        for ((namespace, name), ingress) in ingresses {
            let number = |key: &str| get(ingress, key).and_then(|it| it.parse::<u64>().ok());
            let weight = number("canary-weight").unwrap_or(0).min(1_000_000);
            if !says(ingress, "canary") || weight == 0 {
                continue;
            }
            let protocol = get(ingress, "backend-protocol").unwrap_or_default().to_ascii_uppercase();
            let mut never = Vec::new();
            if let Some(header) = get(ingress, "canary-by-header") {
                never.push(draft!(Override { header, value: "never" }));
            }
            if let Some(cookie) = get(ingress, "canary-by-cookie") {
                never.push(draft!(Override { cookie, value: "never" }));
            }
            for rule in ingress.path(&["spec", "rules"]).map_or(&[][..], Node::items) {
                let host = rule.text_of("host").unwrap_or("").to_ascii_lowercase();
                for path in rule.path(&["http", "paths"]).map_or(&[][..], Node::items) {
                    // A backend that is not known is told of where its own proxy is made.
                    let Some(Ok((target, port))) = path.get("backend").map(|it| self.target(namespace, it))
                    else {
                        continue;
                    };
                    let upstream = self.out.id("upstream", &format!("{name}-canary"));
                    let targets = [draft!(Target { host: target, port })];
                    self.out.upstreams.push(draft!(Upstream { id: &upstream, targets }).into());
                    let place =
                        (namespace.clone(), host.clone(), path.text_of("path").unwrap_or("/").to_owned());
                    let share = Share {
                        upstream,
                        weight,
                        total: number("canary-weight-total").unwrap_or(100).max(weight),
                        is_tls: matches!(protocol.as_str(), "HTTPS" | "GRPCS"),
                        never: never.clone(),
                    };
                    made.insert(place, share);
                }
            }
        }
        made
    }

    /// Gives a main Ingress's route its canary's share of the requests.
    pub(super) fn share(
        &mut self,
        what: &str,
        namespace: &str,
        host: &str,
        path: &Node,
        common: &Common,
        route: &mut Route,
    ) {
        let text = path.text_of("path").unwrap_or("/").to_owned();
        let share = self.shares.get(&(namespace.to_owned(), host.to_owned(), text));
        match share.filter(|_| !common.is_closed).map(|share| share.plug(common.is_tls)) {
            Some(Some(plug)) => route.plugins.push(plug),
            Some(None) => {
                let what = format!("{what}: canary-weight");
                let why = "its canary is asked in another way; the main one gets all requests";
                self.out.not_converted(path.at, what, why, "use the plugin `traffic_split`");
            }
            None => {}
        }
    }

    /// A canary's proxies: its own backend, and all else as its main Ingress says.
    pub(super) fn canary_ingress(&mut self, namespace: &str, name: &str, ingress: &Node) {
        let what = format!("Ingress {namespace}/{name}");
        let own = self.canary_common(&what, ingress);
        let spec = ingress.get("spec").cloned().unwrap_or_default();
        for tls in spec.each("tls") {
            self.out.not_needed(
                tls.at,
                format_args!("{what}: tls"),
                "ingress-nginx takes it from the main Ingress",
            );
        }
        let mut places: Vec<(String, Option<&Node>, &Node)> = Vec::new();
        places.extend(spec.get("defaultBackend").map(|backend| (String::new(), None, backend)));
        for rule in spec.each("rules") {
            let host = rule.text_of("host").unwrap_or("").to_ascii_lowercase();
            for path in rule.path(&["http", "paths"]).map_or(&[][..], Node::items) {
                // Its type is that of the main Ingress's path.
                path.get("pathType");
                places.extend(path.get("backend").map(|backend| (host.clone(), Some(path), backend)));
            }
        }
        for (host, path, backend) in places {
            let text = path.and_then(|path| path.text_of("path")).unwrap_or("/").to_owned();
            let main = self.mains.get(&(host.clone(), text.clone()));
            let (mut common, as_main, redirects_plain) = match main {
                Some(main) => (main.common.clone(), main.path.clone(), main.redirects_plain),
                None => {
                    let why = "its main Ingress, whose guards it has, is not in the files";
                    let place = format!("{what}: {host}{text}");
                    let todo = "add the manifest of the main Ingress";
                    let is_closed = self.out.guard_not_converted(backend.at, place, why, todo);
                    (Common { settings: defaults(), is_closed, ..Common::default() }, path.cloned(), false)
                }
            };
            common.is_closed |= own.is_closed;
            (common.is_canary, common.canary) = (true, own.canary.clone());
            let mut route = self.route(&what, namespace, name, backend, &common);
            if !host.is_empty() {
                route.hosts = vec![host.clone()];
            }
            match as_main {
                Some(path) => self.path(&what, &path, &host, &common, &mut route),
                None => route.matches.push(draft!(Match { path: Matcher::prefix("/") })),
            }
            self.place(route, &common, redirects_plain);
        }
        self.out.converted(ingress.at, what);
    }

    pub(super) fn canary(&mut self, what: &str, value: &Node, ingress: &Node, made: &mut Common) {
        if value.plain().as_deref() != Some("true") {
            return;
        }
        made.is_canary = true;
        let mut ways = Vec::new();
        if let Some(header) = get(ingress, "canary-by-header") {
            let field = header.to_ascii_lowercase();
            let how = match (get(ingress, "canary-by-header-value"), get(ingress, "canary-by-header-pattern"))
            {
                (Some(value), _) => Matcher::exact(value),
                (None, Some(pattern)) => Matcher::regex(text::anywhere(&pattern)),
                (None, None) => Matcher::exact("always"),
            };
            ways.push(Cond::header(field, how));
        }
        if let Some(cookie) = get(ingress, "canary-by-cookie") {
            ways.push(Cond::cookie(cookie, Matcher::exact("always")));
        }
        self.out.converted(value.at, what);
        made.canary = Some(ways).filter(|ways| !ways.is_empty());
    }
}
