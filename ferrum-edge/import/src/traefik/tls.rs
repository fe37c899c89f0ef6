//! Traefik's TLS options: which of them ask for clients' certificates.

use std::collections::{HashMap, HashSet};

use super::{Traefik, switched};
use crate::draft::{Match, PluginConfig, RequestTermination, Settings, draft};
use crate::tree::Node;

/// The set of options that holds where a router names none.
const DEFAULT: &str = "default";

/// The sets of options by their names, and whether they ask for clients' certificates.
pub(super) fn options(documents: &[Node]) -> HashMap<String, bool> {
    let all = documents.iter().filter_map(|it| it.path(&["tls", "options"])).flat_map(Node::entries);
    let asks = |options: &Node| {
        let kind = options.path(&["clientAuth", "clientAuthType"]).and_then(Node::str);
        options.get("clientAuth").is_some_and(|it| !it.is_empty())
            && !matches!(kind, Some("NoClientCert" | "RequestClientCert"))
    };
    all.map(|(name, options)| (name.clone(), asks(options))).collect()
}

impl Traefik<'_> {
    /// Whether a router's options ask for clients' certificates, or may do so; it is closed then. One that says nothing of TLS
    /// has the options of its entry points.
    pub(super) fn asks_for_certificates(&mut self, what: &str, router: &Node, entries: &[String]) -> bool {
        if switched(router.get("tls")).is_some() {
            return router.path(&["tls", "options"]).is_some_and(|options| self.options_ask(what, options));
        }
        let on: HashSet<String> = self.points(entries).into_iter().collect();
        let mine = self.entry_points.iter().filter(|it| on.contains(&it.name));
        let all: Vec<Node> = mine.filter_map(|it| it.tls_options.clone()).collect();
        all.iter().any(|options| self.options_ask(what, options))
    }

    fn options_ask(&mut self, what: &str, options: &Node) -> bool {
        let called = options.plain().unwrap_or_default();
        let name = called.split('@').next().unwrap_or(&called);
        let why = match self.tls_options.get(name) {
            Some(false) => return false,
            Some(true) => "it asks for clients' certificates, which the gateway does on all ports or on none",
            None if name == DEFAULT => return false,
            None => "it is not in the files, and may ask for clients' certificates",
        };
        let what = format!("{what}: tls.options {name}");
        self.out.guard_not_converted(options.at, what, why, "set gateway.tls.client_ca_path")
    }

    /// Whether a stream whose TLS ends here asks for clients' certificates.
    pub(super) fn stream_asks(&mut self, what: &str, router: &Node) -> bool {
        let Some(tls) = switched(router.get("tls")) else { return false };
        if switched(tls.get("passthrough")).is_some() {
            return false;
        }
        let is_asked = self.tls_options.get(DEFAULT) == Some(&true) && tls.get("options").is_none();
        if is_asked {
            self.out.route_closed(tls.at, what, "the default TLS options ask for clients' certificates", "");
        }
        is_asked || tls.get("options").is_some_and(|options| self.options_ask(what, options))
    }

    /// Closes everything over TLS where the options of all routers that name none ask for clients' certificates.
    pub(super) fn default_options(&mut self, documents: &[Node]) {
        let Some(true) = self.tls_options.get(DEFAULT) else { return };
        let find = |it: &Node| it.path(&["tls", "options", DEFAULT, "clientAuth"]).map(|it| it.at);
        let at = documents.iter().find_map(find).unwrap_or_default();
        let why = "clients' certificates are asked for by the whole gateway; everything over TLS is closed";
        if self.out.guard_not_converted(at, "tls.options: clientAuth", why, "set gateway.tls.client_ca_path")
        {
            let closed = draft!(PluginConfig {
                id: "closed-for-want-of-certificates",
                plugin_name: RequestTermination::PLACE,
                scope: "global",
                config: RequestTermination::of_closed_route(),
                when: draft!(Match { scheme: "https" }),
            });
            self.out.plugin_configs.push(closed.into());
        }
    }
}
