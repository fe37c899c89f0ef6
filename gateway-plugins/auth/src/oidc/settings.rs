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
    /// The URL of its discovery document, whose `issuer` must be the same. Default: the issuer and
    /// `/.well-known/openid-configuration`.
    pub(super) discovery_url: Option<String>,
    /// The PEM file with the only roots that are trusted for the provider's URLs. Default: the public roots.
    #[schemars(extend("format" = "path"))]
    pub(super) ca_path: Option<PathBuf>,
    /// The name under which the gateway is known to the provider. Required.
    pub(super) client_id: String,
    /// The secret that goes with `client_id`. Default none: a public client.
    #[schemars(extend("format" = "secret"))]
    pub(super) client_secret: Option<String>,
    /// How the gateway says which client it is: `client_secret_basic`, `client_secret_post` or `private_key_jwt`. Default
    /// `client_secret_basic`.
    pub(super) client_auth: ClientMethod,
    /// The private key that signs for the gateway with `private_key_jwt` (RFC 7523): PKCS#8 in PEM, of RSA, P-256, P-384, P-521 or
    /// Ed25519, which signs by RS256, ES256, ES384, ES512 or EdDSA. Default none.
    #[schemars(extend("format" = "secret"))]
    pub(super) client_private_key: Option<String>,
    /// The key's `kid`, by which the server finds the public one. Default none.
    pub(super) client_key_id: Option<String>,
    /// The `aud` of what is signed. Default the URL that is asked.
    pub(super) client_assertion_audience: Option<String>,
    /// Scopes that are asked for; `openid` is among them in any case. Default `[openid, profile, email]`.
    #[schemars(length(max = 100))]
    pub(super) scopes: Vec<String>,
    /// The secret that sessions are encrypted with, at least 32 bytes; the same for all gateways that share them. A session counts
    /// only where `issuer` and `client_id` are those of its login. Where the provider takes each refresh token once, have the load
    /// balancer send a browser to one gateway: each refreshes on its own. Required.
    #[schemars(extend("format" = "secret"))]
    pub(super) session_secret: String,
    /// The secret of before, so that its sessions go on while it is replaced. Default none.
    #[schemars(extend("format" = "secret"))]
    pub(super) previous_session_secret: Option<String>,
    /// The path at which browsers come back from the provider; a path that this proxy does not match is refused. The plugin answers it
    /// whatever `when` says. A login that is over or unknown by then begins anew, once, or ends at a page. Default `/oidc/callback`.
    pub(super) redirect_path: String,
    /// The whole URL of `redirect_path` as the provider knows it. Default: scheme and host of the request.
    pub(super) redirect_uri: Option<String>,
    /// The path that begins a login, after which the browser comes to `/`. Default none: every page does.
    pub(super) login_path: Option<String>,
    /// The path that ends the session, here and at the provider, where its refresh token is revoked (RFC 7009). This gateway takes
    /// copies of its cookies no more; another one takes them until they have to be refreshed. Pages of this site link or post there; where
    /// another site sends a browser, or none says that it does, a page asks the user first. Default `/oidc/logout`.
    pub(super) logout_path: String,
    /// Where the browser comes to after a logout: a URL that the provider knows. Default: the provider decides.
    pub(super) post_logout_redirect_uri: Option<String>,
    /// The path at which the provider says who has logged out (back-channel). All plugin configs of this gateway with this issuer and
    /// client learn of it, other gateways don't. A logout token is taken once. Default none.
    pub(super) backchannel_logout_path: Option<String>,
    /// The path that the provider's logout page loads in a frame (front-channel): it ends the session of that browser. Browsers send
    /// cookies to frames of other sites only with `cookie_same_site: none`. Default none.
    pub(super) frontchannel_logout_path: Option<String>,
    /// How long a session lasts, however often it is refreshed. Default 8 h.
    #[schemars(range(min = 60, max = 2_592_000))]
    pub(super) session_ttl: Seconds,
    /// Gets new tokens when the access token has expired and the provider gave a refresh token; a session that the provider
    /// does not refresh is over. Default true.
    pub(super) refresh: bool,
    /// The cookies' name; long sessions have several, with `_1`, `_2` and so on. Plugin configs with other issuers or clients on
    /// one host need other names, or a login at one ends the session of the other. Default `ferrum_session`.
    pub(super) cookie_name: String,
    /// The cookies' path; `redirect_path` and `logout_path` have to be under it. Default `/`.
    pub(super) cookie_path: String,
    /// The cookies' domain. Default: the host alone.
    pub(super) cookie_domain: Option<String>,
    /// `lax`, `strict` or `none`. Default `lax`.
    pub(super) cookie_same_site: SameSite,
    /// How long requests wait for an answer of the provider; then they get 503. A refresh goes on for 30 s, so that a slow provider
    /// costs no session; one that fails is not repeated for 5 s. Default 5 s.
    #[schemars(range(min = 0.001, max = 60))]
    pub(super) timeout: Millis,
    /// Time by which the clocks of provider and gateway may differ. Default 1m, at most 300.
    #[schemars(range(max = 300))]
    pub(super) leeway: Seconds,
    /// Algorithms of the provider's tokens that are accepted; those with a shared secret can't be. Default all others.
    pub(super) algorithms: Vec<Algorithm>,
    /// The claim that names the caller: a consumer's username or custom id, or anything else. Default `sub`.
    pub(super) consumer_claim: String,
    /// Refuses callers who are no consumers. Default false.
    pub(super) require_consumer: bool,
    /// Roles of which the ID token must have one. Default none.
    pub(super) required_roles: Vec<String>,
    /// The claim with the roles, which also count as the caller's groups; a dotted path leads into objects. Default
    /// `roles`.
    pub(super) role_claim: String,
    /// Claims that targets get as header fields, by claim: `{email: X-Email}`. What a client sends under these names is
    /// removed. Lists have commas between their parts. Default none.
    pub(super) claims_to_headers: BTreeMap<String, String>,
    /// The header field in which targets get the access token until it expires; for `Authorization` with `Bearer` before it. Default
    /// none.
    pub(super) access_token_header: Option<String>,
    /// The consumer that a request without a session counts as, by username; only `login_path` begins a login then.
    /// Default none: a login is required.
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
