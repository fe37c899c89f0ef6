//! The admin API's requests, typed; the one place to change when the API does.

use std::net::SocketAddr;

use serde::Serialize;

/// Where a batch goes: all of it is applied, or none.
pub const BATCH_PATH: &str = "/v1/batch";
/// The header that carries a consumer's key.
pub const KEY_HEADER: &str = "x-api-key";

/// One atomic change of several resource types.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Batch {
    pub consumers: Vec<Consumer>,
    pub proxies: Vec<Proxy>,
    pub plugin_configs: Vec<PluginConfig>,
}

/// Who may ask.
#[derive(Debug, Clone, Serialize)]
pub struct Consumer {
    pub id: String,
    pub username: String,
    pub credentials: Credentials,
}

/// A consumer's secrets.
#[derive(Debug, Clone, Serialize)]
pub struct Credentials {
    pub keyauth: KeyCredential,
}

/// A key for `key_auth`.
#[derive(Debug, Clone, Serialize)]
pub struct KeyCredential {
    pub key: String,
}

/// A route with its backend.
#[derive(Debug, Clone, Serialize)]
pub struct Proxy {
    pub id: String,
    pub listen_path: String,
    pub backend_scheme: &'static str,
    pub backend_host: String,
    pub backend_port: u16,
    pub backend_path: String,
    pub strip_listen_path: bool,
    pub plugins: Vec<PluginReference>,
}

/// A plugin that a proxy uses.
#[derive(Debug, Clone, Serialize)]
pub struct PluginReference {
    pub plugin_config_id: String,
}

/// A plugin, configured for one proxy.
#[derive(Debug, Clone, Serialize)]
pub struct PluginConfig {
    pub id: String,
    pub plugin_name: &'static str,
    pub scope: &'static str,
    pub proxy_id: String,
    pub config: PluginSettings,
}

/// Settings of the two plugins of the test.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum PluginSettings {
    KeyAuth { key_location: &'static str },
    AccessControl { allowed_consumers: Vec<String> },
}

/// The batch that adds these proxies, each with its consumer and its two plugins.
#[must_use]
pub fn batch(numbers: std::ops::Range<u64>, backend: SocketAddr) -> Batch {
    let mut batch = Batch::default();
    for number in numbers {
        batch.consumers.push(Consumer {
            id: format!("consumer-{number}"),
            username: username(number),
            credentials: Credentials { keyauth: KeyCredential { key: key(number) } },
        });
        let (authentication, access) = (format!("keyauth-{number}"), format!("acl-{number}"));
        let reference = |id: &String| PluginReference { plugin_config_id: id.clone() };
        batch.proxies.push(Proxy {
            id: proxy_id(number),
            listen_path: format!("/svc/{number}"),
            backend_scheme: "http",
            backend_host: backend.ip().to_string(),
            backend_port: backend.port(),
            // Differs from proxy to proxy, so that the answer tells which one was asked.
            backend_path: format!("/b/{number}"),
            strip_listen_path: true,
            plugins: vec![reference(&authentication), reference(&access)],
        });
        let plugin = |id, plugin_name, config| PluginConfig {
            id,
            plugin_name,
            scope: "proxy",
            proxy_id: proxy_id(number),
            config,
        };
        let key_auth = PluginSettings::KeyAuth { key_location: "header:X-API-Key" };
        let access_control = PluginSettings::AccessControl { allowed_consumers: vec![username(number)] };
        batch.plugin_configs.push(plugin(authentication, "key_auth", key_auth));
        batch.plugin_configs.push(plugin(access, "access_control", access_control));
    }
    batch
}

/// A proxy's id.
#[must_use]
pub fn proxy_id(number: u64) -> String {
    format!("proxy-{number}")
}

/// The consumer of a proxy.
#[must_use]
pub fn username(number: u64) -> String {
    format!("user-{number}")
}

/// The consumer's key; not to be guessed from its number at a glance, and the same in every run.
#[must_use]
pub fn key(number: u64) -> String {
    // SplitMix64, so that keys are spread like random ones.
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    format!("key-{number}-{:016x}", mixed ^ (mixed >> 31))
}

/// The path a client asks.
#[must_use]
pub fn path(number: u64) -> String {
    format!("/svc/{number}/whoami")
}

/// The answer that proves proxy and consumer.
#[must_use]
pub fn right_answer(number: u64) -> Vec<u8> {
    crate::backend::answer::who(&format!("/b/{number}/whoami"), &username(number))
}
