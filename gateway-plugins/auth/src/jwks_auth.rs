//! Recognises callers by signed tokens (JWT) of issuers such as an OpenID provider, whose keys the gateway fetches.
//!
//! Keys are fetched in the background and before they are too old, kept while the issuer is away, and fetched again when
//! a token names a key that is not known, at most once in `min_refresh_interval`. A token whose key the issuer does not
//! have is refused with 401; where the issuer could not be asked, with 503 and `Retry-After`. A caller is the consumer that
//! the token names, and otherwise somebody the issuer vouches for.

mod provider;
pub(crate) mod source;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::Seconds;
use gateway_core::consumer::Identity;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::calls::CALL_TIMEOUT;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::Starter;
use gateway_core::plugin::{
    Authenticate, Claim, Family, Finding, Hooks, Need, Needs, OnRequest, Plugin, Seat, Step, World,
};
use gateway_plugin_common::one_or_many::OneOrMany;
use http::header::RETRY_AFTER;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::credential::bearer::{Bearer, BearerSettings, SignedSettings};
use crate::credential::checked::CheckCache;
use crate::credential::place::CredentialLookup;
use crate::credential::revoked::Revoked;
use crate::credential::{is_current, now};
use crate::jose::jwk::KeySet;
use crate::jose::{Algorithm, Token, TokenError, token};
use provider::Provider;
use source::{KeyFreshness, Pace};

/// Settings of `jwks_auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Config {
    /// The issuers whose tokens are accepted. At least one.
    #[schemars(length(max = 100))]
    providers: Vec<ProviderConfig>,
    #[serde(flatten)]
    bearer: BearerSettings,
    /// Interval between fetches of an issuer's keys. Default 15m.
    #[schemars(range(min = 1, max = 86400))]
    jwks_refresh_interval: Seconds,
    /// Least time between fetches that tokens with unknown keys, or requests before the first fetch, cause. Default
    /// 10s.
    #[schemars(range(min = 1, max = 3600))]
    min_refresh_interval: Seconds,
    /// How long keys are used after the last successful fetch. Requests get 503 after that. Default 1d.
    #[schemars(range(min = 60, max = 2_592_000))]
    max_stale: Seconds,
    #[serde(flatten)]
    signed: SignedSettings,
}

/// An issuer.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProviderConfig {
    /// The issuer (`iss`) of its tokens. Required.
    issuer: String,
    /// URL of its key set. Default: from the discovery document.
    jwks_uri: Option<String>,
    /// URL of its discovery document, which must contain the same `issuer`. Default: the issuer and
    /// `/.well-known/openid-configuration`.
    discovery_url: Option<String>,
    /// PEM file with the only trusted roots for these URLs. Default: the public roots.
    #[schemars(extend("format" = "path"))]
    ca_path: Option<PathBuf>,
    /// Audience (`aud`) of the token, or a list of accepted ones. Default any.
    audience: OneOrMany,
    /// Claims that a token must have, each with a value or a list of accepted values, as in `{typ: Bearer}`, which
    /// tells access tokens of Keycloak from ID tokens. If the claim is a list, one element must match. A dotted path
    /// leads into objects. Default none.
    required_claims: BTreeMap<String, OneOrMany>,
    /// Accepted algorithms; those with a shared secret are not allowed. Default all others.
    algorithms: Vec<Algorithm>,
    /// Scopes that a token must have, all of them. Default none.
    required_scopes: Vec<String>,
    /// Roles of which a token must have at least one. Default none.
    required_roles: Vec<String>,
    /// Claim with the scopes: a list, or a text separated by spaces. Default `scope`.
    scope_claim: String,
    /// Claim with the roles, which are also the caller's groups; a dotted path leads into objects. Default `roles`.
    role_claim: String,
    /// Claim that names the caller: a consumer's username or custom ID, or any other name. Default `sub`.
    consumer_identity_claim: String,
    /// Rejects callers that are not consumers. Default false.
    require_consumer: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            providers: Vec::new(),
            bearer: BearerSettings::default(),
            jwks_refresh_interval: Seconds(900),
            min_refresh_interval: Seconds(10),
            max_stale: Seconds(86400),
            signed: SignedSettings::default(),
        }
    }
}

impl Default for ProviderConfig {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            jwks_uri: None,
            discovery_url: None,
            ca_path: None,
            audience: OneOrMany::default(),
            required_claims: BTreeMap::new(),
            algorithms: Algorithm::ALL.into_iter().filter(|name| !name.is_symmetric()).collect(),
            required_scopes: Vec::new(),
            required_roles: Vec::new(),
            scope_claim: "scope".into(),
            role_claim: "roles".into(),
            consumer_identity_claim: "sub".into(),
            require_consumer: false,
        }
    }
}

/// The plugin.
pub(crate) struct JwksAuth {
    providers: Vec<Provider>,
    bearer: Bearer,
    verified: CheckCache<(Arc<Identity>, Arc<KeySet>, usize)>,
    revoked: Revoked,
    /// Tokens whose signature was good, and tokens that were remembered.
    counts: [Counter; 2],
}

const TOKENS: Metric =
    Metric::counter("ferrum_jwks_auth_tokens_total", "Accepted tokens: verified, or cached.");

impl Plugin for JwksAuth {
    const NAME: &'static str = "jwks_auth";
    const FAMILY: Family = Family::Authentication;
    const SUMMARY: &'static str =
        "Authenticates callers by signed tokens (JWT) of issuers whose keys the gateway fetches.";
    const EXAMPLE: &'static str = include_str!("../examples/jwks_auth.yaml");
    const NEEDS: &'static [Needs] = &[
        Needs::new("providers[].ca_path", Need::Begins(&["issuer", "jwks_uri", "discovery_url"], "https://")),
        Needs::new("revocation_refresh", Need::Given(&["revoked_token_files"])),
        Needs::new("providers[].scope_claim", Need::Given(&["required_scopes"])),
    ];
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        if config.providers.is_empty() {
            return Err(Problems::one("config.providers", "no issuer is accepted"));
        }
        let pace = Pace {
            refresh: config.jwks_refresh_interval.duration(),
            at_least: config.min_refresh_interval.duration(),
            at_first: config.min_refresh_interval.duration(),
            max_age: config.max_stale.duration(),
            timeout: CALL_TIMEOUT,
            timeout_setting: "",
        };
        if pace.max_age < pace.refresh {
            // Between two fetches the keys would be too old, and every request refused.
            return Err(Problems::one("config.max_stale", "is less than `jwks_refresh_interval`"));
        }
        let mut problems = Problems::default();
        let mut providers: Vec<Provider> = Vec::new();
        for (n, written) in config.providers.into_iter().enumerate() {
            let at = format!("config.providers[{n}]");
            if providers.iter().any(|other| other.issuer == written.issuer) {
                problems.add(format!("{at}.issuer"), "this issuer is there twice");
            }
            match Provider::new(written, world, &config.signed, pace, &at) {
                Ok(provider) => providers.push(provider),
                Err(more) => problems.extend(more.0),
            }
        }
        problems.into_result(())?;
        Ok(Self {
            providers,
            bearer: Bearer::read(config.bearer)?,
            verified: CheckCache::new(config.signed.cached_tokens),
            revoked: config.signed.revoked(world)?,
            counts: ["verified", "cached"].map(|it| world.meters().counter(TOKENS, &["result"], &[it])),
        })
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        self.bearer.declare(hooks);
        hooks.authenticate(self.clone());
        if self.bearer.tells() {
            hooks.on_request(self);
        }
    }

    fn start(self: &Arc<Self>, starter: &mut Starter<'_>) {
        for provider in &self.providers {
            let source = provider.source.clone();
            starter.task("keys", move |control| source.clone().keep_fresh(control));
        }
        self.revoked.start(starter);
    }
}

impl Authenticate for JwksAuth {
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Claim<'a> {
        let token = match self.bearer.find(exchange) {
            CredentialLookup::Nothing => return self.bearer.missing(seat),
            CredentialLookup::One(token) if token.len() <= token::MAX_TOKEN => token,
            CredentialLookup::One(_) | CredentialLookup::Several => {
                return Claim::Refused(TokenError::Malformed.reply());
            }
        };
        match self.identity(&token, seat, now()) {
            TokenVerdict::Known(identity) => Claim::Caller(self.bearer.recognised(exchange, seat, identity)),
            TokenVerdict::Refused(fault) => Claim::Refused(fault.reply()),
            TokenVerdict::KeysNeeded(provider, known) => {
                let token = token.into_owned();
                Claim::wait(async move {
                    let asked = provider.source.ask(known.as_ref()).await;
                    match self.identity(&token, seat, now()) {
                        TokenVerdict::Known(identity) => {
                            Finding::Caller(self.bearer.recognised(exchange, seat, identity))
                        }
                        TokenVerdict::Refused(fault) => Finding::Refused(fault.reply()),
                        TokenVerdict::KeysNeeded(_, Some(_)) if asked == KeyFreshness::Fresh => {
                            Finding::Refused(TokenError::Signature.reply())
                        }
                        // Nobody can tell whether it is good.
                        TokenVerdict::KeysNeeded(provider, known) => {
                            let reason =
                                if known.is_some() { "token_key_unknown" } else { "token_keys_missing" };
                            exchange.note_failure(format!("{}: {}", provider.issuer, provider.source.why()));
                            Finding::Refused(no_keys(provider, reason))
                        }
                    }
                })
            }
        }
    }

    fn hide(&self, exchange: &mut Exchange) {
        self.bearer.take_out(exchange);
    }
}

impl OnRequest for JwksAuth {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        self.bearer.tell(exchange, seat);
        Step::Next
    }
}

/// The refusal while an issuer's keys can't be had.
fn no_keys(provider: &Provider, reason: &'static str) -> Box<Reply> {
    let reply = Reply::new(Cause::NoTarget).detail("the issuer's keys can't be had").reason(reason);
    Box::new(reply.header(RETRY_AFTER, provider.source.retry_after()))
}

enum TokenVerdict<'a> {
    Known(Arc<Identity>),
    Refused(TokenError),
    /// Only newer keys than these can tell.
    KeysNeeded(&'a Provider, Option<Arc<KeySet>>),
}

impl JwksAuth {
    /// Whose token it is, at this second since 1970, by the keys that are known.
    fn identity(&self, text: &[u8], seat: Seat<'_>, now: u64) -> TokenVerdict<'_> {
        let print = self.verified.print(text);
        if let Some((identity, keys, n)) = self.verified.get(&print, now)
            && self.providers.get(n).is_some_and(|provider| provider.has(&keys))
            && is_current(&identity, seat)
        {
            if identity.claims.as_ref().is_some_and(|claims| self.revoked.has(claims)) {
                return TokenVerdict::Refused(TokenError::Revoked);
            }
            self.counts[1].add(1);
            return TokenVerdict::Known(identity);
        }
        let (token, n, until) = match self.judged(text, now) {
            Ok(judged) => judged,
            Err(fault) => return TokenVerdict::Refused(fault),
        };
        let Some(provider) = self.providers.get(n) else { return TokenVerdict::Refused(TokenError::Issuer) };
        let Some(keys) = provider.source.keys() else { return TokenVerdict::KeysNeeded(provider, None) };
        match keys.verify(&token) {
            None => return TokenVerdict::KeysNeeded(provider, Some(keys)),
            Some(false) => return TokenVerdict::Refused(TokenError::Signature),
            Some(true) => {}
        }
        if self.revoked.has(&token.claims) {
            return TokenVerdict::Refused(TokenError::Revoked);
        }
        let standing = self.revoked.standing(&token.claims);
        match provider.caller(token.claims, seat) {
            Ok(mut identity) => {
                Arc::make_mut(&mut identity).standing = standing;
                self.counts[0].add(1);
                self.verified.put(print, (identity.clone(), keys, n), until);
                TokenVerdict::Known(identity)
            }
            Err(fault) => TokenVerdict::Refused(fault),
        }
    }

    /// The token, its provider and when it expires: all that can be said before its signature is checked.
    fn judged<'t>(&self, text: &'t [u8], now: u64) -> Result<(Token<'t>, usize, u64), TokenError> {
        let token = Token::read(text)?;
        let issuer = token.claims.get("iss").and_then(serde_json::Value::as_str).ok_or(TokenError::Issuer)?;
        let n = self.providers.iter().position(|it| it.issuer == issuer).ok_or(TokenError::Issuer)?;
        let until = self.providers.get(n).ok_or(TokenError::Issuer)?.judge(&token, now)?;
        Ok((token, n, until))
    }
}

#[cfg(test)]
mod tests;
