//! Logins to the console by an OpenID provider.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// An OpenID provider whose users may log in to the console.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminOidc {
    /// The issuer of its tokens.
    pub issuer: Box<str>,
    /// The URL of its discovery document; `None` is below the issuer.
    pub discovery_url: Option<Box<str>>,
    /// PEM file of the only roots that are trusted for its URLs; `None` is the public ones.
    pub ca_path: Option<PathBuf>,
    /// The gateway's name there.
    pub client_id: Box<str>,
    /// The secret that goes with it; `None` is a public client.
    pub client_secret: Option<Box<str>>,
    /// Scopes that are asked for.
    pub scopes: Box<[Box<str>]>,
    /// Where browsers come back to; `None` is by scheme and host of the request.
    pub redirect_uri: Option<Box<str>>,
    /// The text of the button on the login page.
    pub label: Box<str>,
    /// The claim with the user's name.
    pub name_claim: Box<str>,
    /// The claim with the user's groups.
    pub groups_claim: Box<str>,
    /// Groups with the role `admin`; [`EVERYBODY`] is all.
    pub admin: Box<[Box<str>]>,
    /// Groups with the role `write`.
    pub write: Box<[Box<str>]>,
    /// Groups with the role `read`.
    pub read: Box<[Box<str>]>,
    /// Grants of groups.
    pub grants: Box<[ProviderGrant]>,
    /// How long a login waits for an answer of the provider.
    pub timeout: Duration,
}

/// A role of the members of some groups for some objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderGrant {
    /// The groups; [`EVERYBODY`] is all.
    pub groups: Box<[Box<str>]>,
    /// As the grants of a user are written in JSON.
    pub grant: serde_json::Value,
}

/// The group of everybody whom the provider logs in.
pub const EVERYBODY: &str = "*";

impl fmt::Debug for AdminOidc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest may be secret.
        f.debug_struct("AdminOidc")
            .field("issuer", &self.issuer)
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}
