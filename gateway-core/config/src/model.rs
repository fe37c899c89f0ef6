//! Configuration as meant: types that cannot be invalid, made only by [`super::resolve`].
//!
//! What the user typed is [`super::file`]; nothing here can be deserialised, so no shortcut past the checks exists.

mod acme;
mod admin_approval;
mod admin_oidc;
mod built;
mod congestion;
mod fastcgi;
mod forwarded;
mod hedging;
mod log;
mod path_rules;
mod proxy;
mod redis;
mod settings;
mod sockets;
mod starttls;
mod upstream;
mod websocket;

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

pub use crate::pattern::{HostPattern, PathPattern};
pub use acme::*;
pub use admin_approval::AdminApproval;
pub use admin_oidc::{AdminOidc, EVERYBODY, ProviderGrant};
pub use built::*;
pub use congestion::*;
pub use fastcgi::*;
pub use forwarded::*;
pub use hedging::*;
pub use log::*;
pub use path_rules::*;
pub use proxy::*;
pub use redis::*;
pub use settings::*;
pub use sockets::*;
pub use starttls::*;
pub use upstream::*;
pub use websocket::*;

use crate::capabilities::Capability;
use crate::condition::Condition;
use crate::credential::CredentialType;

/// The name of a resource, unique among its kind: 1–254 characters, `[a-zA-Z0-9][a-zA-Z0-9._-]*`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(pub(crate) Arc<str>);

impl Id {
    /// The name; `None` where the text can't be one.
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = text.bytes();
        let good = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
            && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
            && text.len() <= 254;
        good.then(|| Self(Arc::from(text)))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The shared text itself, for records that outlive the configuration.
    pub fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl Borrow<str> for Id {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A whole, valid configuration.
#[derive(Debug, Clone, Default)]
pub struct Model {
    /// What holds for the gateway as a whole.
    pub settings: Arc<Settings>,
    /// Everything that takes traffic.
    pub proxies: Vec<Arc<Proxy>>,
    /// Everybody who may be recognised.
    pub consumers: Vec<Arc<Consumer>>,
    /// Named groups of targets.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Switched-on plugins, in the order of the file.
    pub plugin_configs: Vec<Arc<PluginConfig>>,
}

/// Somebody who may be recognised.
#[derive(Debug, PartialEq)]
pub struct Consumer {
    /// Unique among consumers.
    pub id: Id,
    /// Unique; what `access_control` names.
    pub username: Arc<str>,
    /// The owner's own name for it; unique when given.
    pub custom_id: Option<Arc<str>>,
    /// Groups for `access_control`.
    pub acl_groups: Vec<Arc<str>>,
    /// Of every type it may show, several of one while they are rotated.
    pub credentials: Box<[Credential]>,
}

/// The SHA-256 of a credential that identifies its owner by itself: neither memory nor the time a look-up takes tells
/// anything about the credentials there are.
pub type Digest = [u8; 32];

/// Something a consumer shows to be recognised.
#[derive(Debug, Clone, PartialEq)]
pub enum Credential {
    /// Identifies its owner by itself and only has to be recognised: its text isn't kept.
    Digest {
        /// Its type, such as `key_auth`'s.
        kind: &'static CredentialType,
        /// Of the credential's text.
        digest: Digest,
    },
    /// The plugin needs it as it is.
    Secret {
        /// Its type, such as `basic_auth`'s.
        kind: &'static CredentialType,
        /// The credential.
        secret: Box<Secret>,
    },
}

impl Consumer {
    /// The secrets of one type, in the order of the configuration.
    pub fn secrets<'a>(&'a self, wanted: &'a CredentialType) -> impl Iterator<Item = &'a Secret> {
        self.credentials.iter().filter_map(move |credential| match credential {
            Credential::Secret { kind, secret } if *kind == wanted => Some(&**secret),
            Credential::Secret { .. } | Credential::Digest { .. } => None,
        })
    }
}

/// A credential as written (a JSON object). Its text never reaches a log.
#[derive(Clone, PartialEq)]
pub struct Secret(pub(crate) serde_json::Value);

impl Secret {
    /// The credential's document, for the plugin that checks it.
    pub fn expose(&self) -> &serde_json::Value {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// One configured plugin.
pub struct PluginConfig {
    /// Unique among plugin configs.
    pub id: Id,
    /// A name from the plugin table.
    pub plugin_name: Arc<str>,
    /// The plugin's own settings; checked by building the plugin.
    pub config: PluginSettings,
    /// Where it runs.
    pub scope: Scope,
    /// Runs before or after a named plugin instead of at its place in the table.
    pub order: Option<Box<Order>>,
    /// Which requests it runs for; `None` is all.
    pub when: Option<Arc<Condition>>,
    /// The plugin that was built when these settings were checked, where it was.
    pub built: Option<BuiltPlugin>,
}

impl PluginConfig {
    /// Whether the requests that it runs for, of a proxy with this traffic, never reach a target.
    pub(crate) fn needs_no_target(&self, traffic: &Traffic) -> bool {
        let Some(built) = &self.built else { return false };
        let is_plain = |rules: &HttpRules| {
            rules.requires_plain_http() || self.when.as_ref().is_some_and(|it| it.requires_plain_http())
        };
        built.capabilities().has(Capability::NeedsNoTarget)
            || built.capabilities().has(Capability::AnswersPlainRequests)
                && matches!(traffic, Traffic::Http(rules) if is_plain(rules))
    }
}

/// Alike when written alike: what was built from the settings follows from them.
impl PartialEq for PluginConfig {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
            && self.plugin_name == other.plugin_name
            && self.config == other.config
            && self.scope == other.scope
            && self.order == other.order
            && self.when == other.when
    }
}

impl fmt::Debug for PluginConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Settings may hold secrets.
        f.debug_struct("PluginConfig")
            .field("id", &self.id)
            .field("plugin_name", &self.plugin_name)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// A plugin's own settings, as compact JSON: read when the plugin is built, then only compared and shown. There may be
/// millions of them.
#[derive(Clone, PartialEq, Eq)]
pub struct PluginSettings(Arc<str>);

impl fmt::Debug for PluginSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PluginSettings(…)")
    }
}

impl PluginSettings {
    /// These settings.
    pub fn new(settings: &serde_json::Value) -> Self {
        Self(settings.to_string().into())
    }

    /// Bytes of the text.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether this text is anywhere in the settings.
    pub fn mentions(&self, text: &str) -> bool {
        self.0.contains(text)
    }

    /// The settings as a document.
    pub fn value(&self) -> serde_json::Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// Where a plugin runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Every proxy that has none of that name of its own.
    Global,
    /// One proxy.
    Proxy(Id),
    /// The proxies that name it, sharing its state.
    ProxyGroup,
    /// The proxies of this owner, sharing its state; beside their own and global configs of the plugin, and before them.
    Owner(Id),
}

/// A plugin's place relative to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Directly before the named plugin.
    Before(Arc<str>),
    /// Directly after the named plugin.
    After(Arc<str>),
}

/// What a port carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// Byte streams.
    Tcp,
    /// Datagrams.
    Udp,
}
