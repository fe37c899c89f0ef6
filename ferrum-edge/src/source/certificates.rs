//! Certificates, keys and roots that a configuration names are read when it is checked, not when somebody connects.

use std::collections::HashSet;

use gateway_core::config::model::Model;
use gateway_core::config::problem::Problems;
use gateway_protocols::tls;
use gateway_protocols::tls::server::Certificates;

/// Every file of no use.
pub(super) fn check(model: &Model) -> Problems {
    let mut problems = Problems::default();
    let rules = &model.settings.tls;
    for (n, files) in rules.certificates.iter().enumerate() {
        if let Err(error) = Certificates::default().load(std::slice::from_ref(files)) {
            problems.add(format!("gateway.tls.certificates[{n}]"), error.to_string());
        }
    }
    if let Some(path) = &rules.client_ca_path
        && let Err(error) = tls::pem::roots(path)
    {
        problems.add("gateway.tls.client_ca_path", error.to_string());
    }
    // Many proxies share their rules; each file is read and told once.
    let mut seen = HashSet::new();
    for proxy in &model.proxies {
        let Some(rules) = proxy.backend.tls.as_deref() else { continue };
        let has_files = rules.ca_path.is_some() || rules.client_cert.is_some();
        if has_files
            && seen.insert(rules)
            && let Err(error) = tls::client::build(rules, None)
        {
            problems.add(format!("proxies.{}", proxy.id), format!("TLS towards its targets: {error}"));
        }
    }
    problems
}
