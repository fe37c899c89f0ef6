//! Certificates that the gateway gets by itself, as written.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where certificates that are named by `acme` under `gateway.tls.certificates` come from (RFC 8555), and how this gateway
/// shows that the names are its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Acme {
    /// The CA's directory, an `https` URL. Default Let's Encrypt, `https://acme-v02.api.letsencrypt.org/directory`.
    #[schemars(length(min = 1, max = 2048))]
    pub directory_url: Option<String>,
    /// Where the CA writes to when something is wrong with a certificate. Default none.
    #[schemars(length(min = 3, max = 254))]
    pub email: Option<String>,
    /// Says that you accept the CA's terms of service. Required to be true.
    pub accept_terms: Option<bool>,
    /// The folder in which the account, the certificates with their keys, and challenges are kept; made where it does not
    /// exist. Gateways that share it get each certificate once. Required.
    #[schemars(length(min = 1, max = 4096))]
    pub storage: Option<String>,
    /// How the CA checks that the names are this gateway's. Default `http-01`.
    pub challenge: Option<AcmeChallenge>,
    /// The account at the CA that the one made here belongs to, where the CA asks for that. Default none.
    pub external_account: Option<ExternalAccount>,
    /// PEM file of the only roots that the CA's own certificate may come from, for a private CA. Default the public roots.
    #[schemars(length(min = 1, max = 4096))]
    pub root_ca_path: Option<String>,
    /// Days before its end at which a certificate is renewed, where the CA does not say when (RFC 9773); never before half of
    /// its life is over. Default a third of its life.
    #[schemars(range(min = 1, max = 365))]
    pub renew_before_days: Option<u32>,
}

/// How a CA checks that names are this gateway's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AcmeChallenge {
    /// By a request to port 80 of each name, answered on the plain HTTP listeners.
    #[serde(rename = "http-01")]
    Http01,
    /// By a TLS handshake on port 443 of each name (RFC 8737), answered on the https listeners.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

/// An account that exists at the CA (RFC 8555, section 7.3.4). Both are required.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExternalAccount {
    /// What the CA calls the key.
    #[schemars(length(min = 1, max = 1024))]
    pub key_id: Option<String>,
    /// The key, in base64url as the CA gives it.
    #[schemars(length(min = 1, max = 1024))]
    pub hmac_key: Option<String>,
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is secret.
        f.debug_struct("ExternalAccount").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}
