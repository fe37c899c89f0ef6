//! Warnings about where a proxy leads.

use std::net::IpAddr;

use ipnet::IpNet;

use super::WarningList;
use crate::model::{PluginConfig, Proxy, Upstream};

impl WarningList {
    pub(super) fn targets(&mut self, proxy: &Proxy) {
        let path = || format!("proxies.{}", proxy.id);
        if proxy.backend.tls.as_ref().is_some_and(|tls| !tls.verify) {
            let message =
                "its targets' certificates are not checked, so that anybody in between can read along";
            self.add("target_unverified", path(), message, "name their root by `backend_tls_ca_path`");
        }
        let answers = |plugin: &PluginConfig| plugin.needs_no_target(&proxy.traffic);
        let mut answering = proxy.plugins.iter().filter(|plugin| answers(plugin)).peekable();
        let is_without_target = !proxy.backend.is_named && proxy.backend.upstream.targets.is_empty();
        if is_without_target && answering.peek().is_some() && answering.all(|plugin| plugin.when.is_some()) {
            let message = "it has no target, and requests that `when` of its plugins leaves out get 503";
            self.add(
                "target_missing",
                path(),
                message,
                "give it a target, or a plugin that answers the rest",
            );
        }
        if let Some(host) = documentation_host(&proxy.backend.upstream) {
            let message = format!("the target `{host}` is reserved for documentation");
            self.add("target_documentation", path(), message, "write the real target");
        }
    }
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
