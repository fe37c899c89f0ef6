//! Settings of `oidc`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gateway_core::config::units::{Millis, Seconds};
use schemars::JsonSchema;
use serde::Deserialize;

use super::cookies::SameSite;
use crate::jose::Algorithm;
use crate::oauth::ClientMethod;

/// Where browsers log out unless the settings say otherwise.
pub(super) const LOGOUT_PATH: &str = "/oidc/logout";

/// Settings of `oidc`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// The issuer (`iss`) of the provider's tokens. Required.
    pub(super) issuer: String,
    /// URL of its discovery document, which must contain the same `issuer`. Default: the issuer and
    /// `/.well-known/openid-configuration`.
    pub(super) discovery_url: Option<String>,
    /// The PEM file with the only roots that are trusted for the provider's URLs. Default: the public roots.
    #[schemars(extend("format" = "path"))]
    pub(super) ca_path: Option<PathBuf>,
    /// Client ID of the gateway at the provider. Required.
    pub(super) client_id: String,
    /// Secret for `client_id`. Default none: a public client.
    #[schemars(extend("format" = "secret"))]
    pub(super) client_secret: Option<String>,
    /// How the gateway authenticates itself: `client_secret_basic`, `client_secret_post` or `private_key_jwt`. Default
    /// `client_secret_basic`.
    pub(super) client_auth: ClientMethod,
    /// Private key of the gateway for `private_key_jwt` (RFC 7523): PKCS#8 in PEM, RSA, P-256, P-384, P-521 or Ed25519.
    /// It signs with RS256, ES256, ES384, ES512 or EdDSA. Default none.
    #[schemars(extend("format" = "secret"))]
    pub(super) client_private_key: Option<String>,
    /// The key's `kid`, by which the server finds the public key. Default none.
    pub(super) client_key_id: Option<String>,
    /// The `aud` of the signed JWT. Default the URL of the endpoint.
    pub(super) client_assertion_audience: Option<String>,
    /// Requested scopes; `openid` is always among them. Default `[openid, profile, email]`.
    #[schemars(length(max = 100))]
    pub(super) scopes: Vec<String>,
    /// Secret that encrypts sessions, at least 32 bytes; the same on all gateways that share them. A session is valid
    /// only with the `issuer` and `client_id` of its login. If the provider accepts each refresh token only once,
    /// configure the load balancer so that a browser always reaches the same gateway: each gateway refreshes on its
    /// own. Required.
    #[schemars(extend("format" = "secret"))]
    pub(super) session_secret: String,
    /// Previous secret, so that its sessions stay valid while you rotate it. Default none.
    #[schemars(extend("format" = "secret"))]
    pub(super) previous_session_secret: Option<String>,
    /// Path to which the provider redirects browsers; this proxy must match it. The plugin handles it regardless of
    /// `when`. If a login is expired or unknown, it starts again once, and then ends with a page. Default
    /// `/oidc/callback`.
    pub(super) redirect_path: String,
    /// Complete URL of `redirect_path` as registered with the provider. Default: scheme and host of the request.
    pub(super) redirect_uri: Option<String>,
    /// Path that starts a login, after which the browser is sent to `/`. Default none: every page does.
    pub(super) login_path: Option<String>,
    /// Path that ends the session, here and at the provider, and revokes its refresh token (RFC 7009). This gateway
    /// rejects copies of the session cookie immediately; other gateways accept them until the next refresh. Link or
    /// post to it from pages of this site; if another site sends the browser, or the origin is unknown, a page asks the
    /// user first. Default `/oidc/logout`.
    pub(super) logout_path: String,
    /// Where the browser is sent after a logout: a URL that is registered with the provider. Default: the provider
    /// decides.
    pub(super) post_logout_redirect_uri: Option<String>,
    /// Path for back-channel logout. It takes effect for all plugin configs of this gateway with this issuer and
    /// client, but not on other gateways. A logout token is accepted once. Default none.
    pub(super) backchannel_logout_path: Option<String>,
    /// Path for front-channel logout, which the provider's logout page loads in a frame: it ends the session of that
    /// browser. Browsers send cookies to frames of other sites only with `cookie_same_site: none`. Default none.
    pub(super) frontchannel_logout_path: Option<String>,
    /// Lifetime of a session, regardless of refreshes. Default 8 h.
    #[schemars(range(min = 60, max = 2_592_000))]
    pub(super) session_ttl: Seconds,
    /// Refreshes the tokens when the access token expires, if the provider issued a refresh token. If the provider
    /// rejects the refresh, the session ends. Default true.
    pub(super) refresh: bool,
    /// Name of the cookies; long sessions have several, with `_1`, `_2` and so on. On one host, plugin configs with
    /// different issuers or clients need different names, or a login at one ends the session of the other. Default
    /// `ferrum_session`.
    pub(super) cookie_name: String,
    /// Path of the cookies; it must contain `redirect_path` and `logout_path`. Default `/`.
    pub(super) cookie_path: String,
    /// Domain of the cookies. Default: this host only.
    pub(super) cookie_domain: Option<String>,
    /// `lax`, `strict` or `none`. Default `lax`.
    pub(super) cookie_same_site: SameSite,
    /// How long requests wait for a response of the provider; they get 503 after that. A refresh continues for 30 s, so
    /// a slow provider does not end sessions. A failed refresh is not repeated for 5 s. Default 5 s.
    #[schemars(range(min = 0.001, max = 60))]
    pub(super) timeout: Millis,
    /// Largest difference between the clocks of provider and gateway. Default 1m, at most 300.
    #[schemars(range(max = 300))]
    pub(super) leeway: Seconds,
    /// Accepted algorithms of the provider's tokens; those with a shared secret are not allowed. Default all others.
    pub(super) algorithms: Vec<Algorithm>,
    /// Claim that names the caller: a consumer's username or custom ID, or any other name. Default `sub`.
    pub(super) consumer_claim: String,
    /// Rejects callers that are not consumers. Default false.
    pub(super) require_consumer: bool,
    /// Roles of which the ID token must have at least one. Default none.
    pub(super) required_roles: Vec<String>,
    /// Claim with the roles, which are also the caller's groups; a dotted path leads into objects. Default `roles`.
    pub(super) role_claim: String,
    /// Header fields that targets receive, by claim: `{email: X-Email}`. The gateway removes these fields from client
    /// requests. Elements of lists are separated by commas. Default none.
    pub(super) claims_to_headers: BTreeMap<String, String>,
    /// Header field in which targets receive the access token until it expires; in `Authorization`, it follows
    /// `Bearer`. Default none.
    pub(super) access_token_header: Option<String>,
    /// Username of the consumer for requests without a session; only `login_path` starts a login then. Default none: a
    /// login is required.
    pub(super) anonymous: Option<String>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            discovery_url: None,
            ca_path: None,
            client_id: String::new(),
            client_secret: None,
            client_auth: ClientMethod::ClientSecretBasic,
            client_private_key: None,
            client_key_id: None,
            client_assertion_audience: None,
            scopes: ["openid", "profile", "email"].map(str::to_owned).to_vec(),
            session_secret: String::new(),
            previous_session_secret: None,
            redirect_path: "/oidc/callback".into(),
            redirect_uri: None,
            login_path: None,
            logout_path: LOGOUT_PATH.into(),
            post_logout_redirect_uri: None,
            backchannel_logout_path: None,
            frontchannel_logout_path: None,
            session_ttl: Seconds(8 * 3600),
            refresh: true,
            cookie_name: "ferrum_session".into(),
            cookie_path: "/".into(),
            cookie_domain: None,
            cookie_same_site: SameSite::Lax,
            timeout: Millis(5000),
            leeway: Seconds(60),
            algorithms: Algorithm::ALL.into_iter().filter(|name| !name.is_symmetric()).collect(),
            consumer_claim: "sub".into(),
            require_consumer: false,
            required_roles: Vec::new(),
            role_claim: "roles".into(),
            claims_to_headers: BTreeMap::new(),
            access_token_header: None,
            anonymous: None,
        }
    }
}
