//! Certificates that the gateway gets by itself, as written.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Source of the certificates that `acme` under `gateway.tls.certificates` names (RFC 8555).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Acme {
    /// The CA's directory, an `https` URL. Default Let's Encrypt, `https://acme-v02.api.letsencrypt.org/directory`.
    #[schemars(length(min = 1, max = 2048))]
    pub directory_url: Option<String>,
    /// Address for notices of the CA. Default none.
    #[schemars(length(min = 3, max = 254))]
    pub email: Option<String>,
    /// Accepts the CA's terms of service. Must be true.
    pub accept_terms: Option<bool>,
    /// Folder for the account, the certificates with their keys, and challenges. The gateway creates it if it does not
    /// exist. Gateways that share it order each certificate once. Required.
    #[schemars(length(min = 1, max = 4096))]
    pub storage: Option<String>,
    /// Challenge by which the CA validates the names. Default `http-01`.
    pub challenge: Option<AcmeChallenge>,
    /// External account of the CA, if it requires one. Default none.
    pub external_account: Option<ExternalAccount>,
    /// PEM file with the only trusted roots for the CA's own certificate, for a private CA. Default the public roots.
    #[schemars(length(min = 1, max = 4096))]
    pub root_ca_path: Option<String>,
    /// Days before the expiry at which a certificate is renewed, unless the CA suggests a time (RFC 9773); never in the
    /// first half of its lifetime. Default a third of its lifetime.
    #[schemars(range(min = 1, max = 365))]
    pub renew_before_days: Option<u32>,
}

/// Challenge by which a CA validates names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum AcmeChallenge {
    /// An HTTP request to port 80 of each name, which the plain HTTP listeners answer.
    #[serde(rename = "http-01")]
    Http01,
    /// A TLS handshake on port 443 of each name (RFC 8737), which the https listeners answer.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

/// External account binding (RFC 8555, section 7.3.4). Both are required.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExternalAccount {
    /// Key ID from the CA.
    #[schemars(length(min = 1, max = 1024))]
    pub key_id: Option<String>,
    /// Key in base64url, as the CA provides it.
    #[schemars(length(min = 1, max = 1024))]
    pub hmac_key: Option<String>,
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is secret.
        f.debug_struct("ExternalAccount").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}
