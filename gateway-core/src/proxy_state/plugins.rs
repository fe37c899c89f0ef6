//! What is known of a proxy's plugins without running them.

use std::sync::Arc;

use http::HeaderName;

use crate::config::model::PluginConfig;

/// What is known of a proxy's plugins.
#[derive(Debug, Default)]
pub struct Plugins {
    /// Their configs, in execution order.
    pub configs: Box<[Arc<PluginConfig>]>,
    /// Where they read credentials, beside the well-known fields; `None` where no plugin says so.
    pub credentials: Option<Box<CredentialPlaces>>,
}

/// Where the plugins of a proxy read credentials.
#[derive(Debug, Default)]
pub struct CredentialPlaces {
    /// Query parameters, in lower case.
    pub query: Vec<Box<str>>,
    /// Header fields.
    pub fields: Vec<HeaderName>,
    /// Cookies.
    pub cookies: Vec<Box<str>>,
}

impl CredentialPlaces {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.query.is_empty() && self.fields.is_empty() && self.cookies.is_empty()
    }
}

impl Plugins {
    /// The query parameters whose values are credentials, in lower case.
    pub fn secrets(&self) -> &[Box<str>] {
        self.credentials.as_ref().map_or(&[], |places| &*places.query)
    }

    /// Whether one of them reads a credential from this header field.
    pub fn read_credential_in(&self, name: &HeaderName) -> bool {
        self.credentials.as_ref().is_some_and(|places| places.fields.contains(name))
    }

    /// The config of the plugin at this place of the chain; the first has place 1.
    pub fn at(&self, place: u16) -> Option<&Arc<PluginConfig>> {
        self.configs.get(usize::from(place).checked_sub(1)?)
    }
}
