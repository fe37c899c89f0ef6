//! Preflights of CORS that no plugin gets to answer.

use http::Method;

use super::WarningList;
use crate::config::model::{Model, Traffic};

impl WarningList {
    /// `cors` answers no preflight where `OPTIONS` is refused before any plugin runs.
    pub(super) fn preflights(&mut self, model: &Model) {
        for proxy in &model.proxies {
            let Traffic::Http(rules) = &proxy.traffic else { continue };
            let refused =
                rules.allowed_methods.as_ref().is_some_and(|methods| !methods.contains(&Method::OPTIONS));
            for config in proxy.plugins.iter().filter(|config| refused && &*config.plugin_name == "cors") {
                let message =
                    format!("`{}` answers no preflights: `allowed_methods` lacks OPTIONS", config.id);
                self.add("setting_without_effect", format!("proxies.{}", proxy.id), message, "add OPTIONS");
            }
        }
    }
}
