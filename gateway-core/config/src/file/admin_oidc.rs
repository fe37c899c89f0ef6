//! Logins to the console by an OpenID provider, as written.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::admin_role::AdminRole;
use crate::units::Millis;

/// An OpenID provider whose users may log in to the console.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminOidc {
    /// The issuer (`iss`) of the provider's tokens, such as `https://idp.example`. Required.
    #[schemars(length(min = 1, max = 2048))]
    pub issuer: Option<String>,
    /// URL of its discovery document, which must contain the same `issuer`. Default: the issuer and
    /// `/.well-known/openid-configuration`.
    #[schemars(length(min = 1, max = 2048))]
    pub discovery_url: Option<String>,
    /// PEM file with the only trusted roots for the provider's URLs. Default the public roots.
    #[schemars(length(min = 1, max = 4096))]
    pub ca_path: Option<String>,
    /// Client ID of the gateway at the provider. Required.
    #[schemars(length(min = 1, max = 512))]
    pub client_id: Option<String>,
    /// Secret for `client_id`. Default none: a public client.
    #[schemars(length(min = 1, max = 4096))]
    pub client_secret: Option<String>,
    /// Requested scopes; `openid` is always among them. Default `[openid, profile, email]`.
    #[schemars(length(max = 100))]
    pub scopes: Option<Vec<String>>,
    /// Complete URL of `/console/oidc/callback` as registered with the provider. Default: scheme and host of the
    /// request.
    #[schemars(length(min = 1, max = 2048))]
    pub redirect_uri: Option<String>,
    /// Text of the button on the login page. Default `Log in with` and the issuer's host.
    #[schemars(length(min = 1, max = 100))]
    pub label: Option<String>,
    /// Claim with the user's name, for the audit and the history; `sub` if the token lacks it. Default
    /// `preferred_username`.
    #[schemars(length(min = 1, max = 100))]
    pub name_claim: Option<String>,
    /// Claim with the user's groups: a text or a list of them; a dotted path leads into objects. Default `groups`.
    #[schemars(length(min = 1, max = 100))]
    pub groups_claim: Option<String>,
    /// Groups whose members have a role for all objects. A user in none of these groups and none of those of `grants`
    /// cannot log in. Required, unless there are `grants`.
    pub roles: Option<AdminOidcRoles>,
    /// Grants of groups: a role for some objects. A user has all grants of the user's groups. A role `write` or `admin`
    /// from `roles` applies to all objects, whatever the grants. With the role `read` from `roles`, the user also sees all objects but consumers. Default none.
    #[schemars(length(max = 50))]
    pub grants: Option<Vec<AdminOidcGrant>>,
    /// Time limit for a response of the provider at a login, 100 ms to 60 s. Default 5 s.
    #[schemars(range(min = 0.1, max = 60))]
    pub timeout: Option<Millis>,
}

/// Groups by role; `"*"` matches every user of the provider. A user has the highest role of the user's groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminOidcRoles {
    /// Groups with the role `admin`. Default none.
    #[schemars(length(max = 100))]
    pub admin: Option<Vec<String>>,
    /// Groups with the role `write`. Default none.
    #[schemars(length(max = 100))]
    pub write: Option<Vec<String>>,
    /// Groups with the role `read`. Default none.
    #[schemars(length(max = 100))]
    pub read: Option<Vec<String>>,
}

/// A role of the members of some groups for some objects.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdminOidcGrant {
    /// The groups; `"*"` matches every user of the provider. Required.
    #[schemars(length(max = 100))]
    pub groups: Option<Vec<String>>,
    /// The workspace that defines which objects, hosts, paths, ports and protocols the grant covers; only `groups` and `role` can be set
    /// beside it. An unknown workspace covers nothing. Default none.
    #[schemars(length(min = 1, max = 256))]
    pub workspace: Option<String>,
    /// Patterns of ids, such as `team-a-*`. Required, unless there is a `workspace`.
    #[schemars(length(min = 1, max = 100), inner(length(min = 1, max = 256)))]
    pub objects: Option<Vec<String>>,
    /// `read` or `write`. Default `write`.
    pub role: Option<AdminRole>,
    /// Hosts that HTTP proxies may have: `a.example`, `*.a.example`, or `*` for any. Default none.
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)))]
    pub hosts: Option<Vec<String>>,
    /// Paths below which HTTP proxies may match. Default all.
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)))]
    pub paths: Option<Vec<String>>,
    /// Ports that stream proxies may have: `"5432"` or `10000-10099`. Default none.
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)))]
    pub ports: Option<Vec<String>>,
    /// `http`, `tcp` and `udp`. Default all.
    #[schemars(length(max = 3))]
    pub protocols: Option<Vec<GrantProtocol>>,
}

/// A kind of traffic that a grant covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantProtocol {
    /// HTTP proxies.
    Http,
    /// Stream proxies over TCP.
    Tcp,
    /// Stream proxies over UDP.
    Udp,
}

impl fmt::Debug for AdminOidc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The rest may be secret.
        f.debug_struct("AdminOidc")
            .field("issuer", &self.issuer)
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}
