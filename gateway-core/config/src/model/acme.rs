//! Certificates that the gateway gets by itself.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where certificates come from that the gateway gets by itself (RFC 8555).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeRules {
    /// The CA's directory, an `https` URL. Default Let's Encrypt.
    pub directory_url: Box<str>,
    /// Where the CA writes to; `None` is nowhere.
    pub email: Option<Box<str>>,
    /// The folder of this CA's account, certificates and challenges: one of its own below the folder that is configured.
    pub storage: PathBuf,
    /// How the CA checks that names are this gateway's. Default HTTP-01.
    pub challenge: AcmeChallenge,
    /// The account at the CA that the one made here belongs to.
    pub external_account: Option<ExternalAccount>,
    /// PEM file of the only roots that are trusted for the CA's directory; `None` is the public ones.
    pub root_ca_path: Option<PathBuf>,
    /// How long before its end a certificate is renewed where the CA does not say when; `None` is a third of its life.
    pub renew_before: Option<Duration>,
}

/// The names of one certificate, in lower case, each once.
pub type AcmeNames = Arc<[Box<str>]>;

/// How a CA checks that names are this gateway's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AcmeChallenge {
    /// By a request to port 80 of each name.
    #[default]
    Http01,
    /// By a TLS handshake on port 443 of each name (RFC 8737).
    TlsAlpn01,
}

impl AcmeChallenge {
    /// What the protocol calls it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

/// An account that exists at the CA.
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// What the CA calls the key.
    pub key_id: Box<str>,
    /// The key, in base64url without padding.
    pub hmac_key: Box<str>,
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is secret.
        f.debug_struct("ExternalAccount").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}
