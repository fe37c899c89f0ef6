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
    /// The URL of its discovery document, whose `issuer` must be the same. Default: the issuer and
    /// `/.well-known/openid-configuration`.
    #[schemars(length(min = 1, max = 2048))]
    pub discovery_url: Option<String>,
    /// PEM file of the only roots that are trusted for the provider's URLs. Default the public roots.
    #[schemars(length(min = 1, max = 4096))]
    pub ca_path: Option<String>,
    /// The name under which the gateway is known to the provider. Required.
    #[schemars(length(min = 1, max = 512))]
    pub client_id: Option<String>,
    /// The secret that goes with `client_id`. Default none: a public client.
    #[schemars(length(min = 1, max = 4096))]
    pub client_secret: Option<String>,
    /// Scopes that are asked for; `openid` is among them in any case. Default `[openid, profile, email]`.
    #[schemars(length(max = 100))]
    pub scopes: Option<Vec<String>>,
    /// The whole URL of `/console/oidc/callback` as the provider knows it. Default: scheme and host of the request.
    #[schemars(length(min = 1, max = 2048))]
    pub redirect_uri: Option<String>,
    /// The text of the button on the login page. Default `Log in with` and the issuer's host.
    #[schemars(length(min = 1, max = 100))]
    pub label: Option<String>,
    /// The claim with the user's name, for the audit and the history; `sub` where the token lacks it. Default
    /// `preferred_username`.
    #[schemars(length(min = 1, max = 100))]
    pub name_claim: Option<String>,
    /// The claim with the user's groups: a text or a list of them; a dotted path leads into objects. Default `groups`.
    #[schemars(length(min = 1, max = 100))]
    pub groups_claim: Option<String>,
    /// The groups whose members have a role for everything. A user in none of these groups and of those of `grants` cannot log in.
    /// Required, unless there are `grants`.
    pub roles: Option<AdminOidcRoles>,
    /// Grants of groups: a role for some objects. A user has all grants of the user's groups. A role `write` or `admin`
    /// from `roles` applies to all objects, whatever the grants. With the role `read` from `roles`, the user also sees all objects but consumers. Default none.
    #[schemars(length(max = 50))]
    pub grants: Option<Vec<AdminOidcGrant>>,
    /// How long a login waits for an answer of the provider, 100 ms to 60 s. Default 5 s.
    #[schemars(range(min = 0.1, max = 60))]
    pub timeout: Option<Millis>,
}

/// Groups by role; `"*"` is everybody whom the provider logs in. A user has the highest role of the user's groups.
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
    /// The groups; `"*"` is everybody whom the provider logs in. Required.
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
    /// Hosts that HTTP proxies may answer for: `a.example`, `*.a.example`, or `*` for any. Default none.
    #[schemars(length(max = 100), inner(length(min = 1, max = 256)))]
    pub hosts: Option<Vec<String>>,
    /// Below which paths HTTP proxies may answer. Default all.
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
