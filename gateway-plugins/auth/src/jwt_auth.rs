//! Recognises consumers by signed tokens (JWT) whose keys are the consumers' own.
//!
//! A claim names the consumer; the token must be signed with one of that consumer's `jwt_auth` credentials, each a
//! `secret` or a `public_key`, and a `kid` where tokens have one. `jwks_auth` takes the keys from an issuer instead.

mod credential;
mod keys;

use std::collections::BTreeMap;
use std::sync::Arc;

use gateway_core::config::credential::CredentialType;
use gateway_core::config::problem::Problems;
use gateway_core::consumer::Identity;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::Reply;
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Authenticate, Claim, Family, Hooks, Need, Needs, OnRequest, Plugin, Seat, Starter, Step, World,
};
use gateway_plugin_common::one_or_many::OneOrMany;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::credential::bearer::{Bearer, BearerSettings, SignedSettings};
use crate::credential::checked::CheckCache;
use crate::credential::place::CredentialLookup;
use crate::credential::revoked::Revoked;
use crate::credential::{is_current, now, required_claims, texts};
use crate::jose::{Algorithm, Rules, Token, TokenError, claims, token};
use keys::Keys;

/// Settings of `jwt_auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Config {
    #[serde(flatten)]
    bearer: BearerSettings,
    /// Claim that names the consumer by its username or custom ID; a dotted path leads into objects. Default `sub`.
    consumer_claim_field: String,
    /// Accepted algorithms. A key works only with algorithms of its own type: HS384 needs a secret of at least 48
    /// bytes, HS512 of at least 64. Default all.
    algorithms: Vec<Algorithm>,
    /// Issuer (`iss`) of the token, or a list of accepted ones. Default any.
    issuer: OneOrMany,
    /// Audience (`aud`) of the token, or a list of accepted ones. Default any.
    audience: OneOrMany,
    /// Claims that a token must have, each with a value or a list of accepted values, as in `{typ: Bearer}`, which
    /// tells access tokens of Keycloak from ID tokens. If the claim is a list, one element must match. A dotted path
    /// leads into objects. Default none.
    required_claims: BTreeMap<String, OneOrMany>,
    #[serde(flatten)]
    signed: SignedSettings,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            bearer: BearerSettings::default(),
            consumer_claim_field: "sub".into(),
            algorithms: Algorithm::ALL.to_vec(),
            issuer: OneOrMany::default(),
            audience: OneOrMany::default(),
            required_claims: BTreeMap::new(),
            signed: SignedSettings::default(),
        }
    }
}

/// The plugin.
pub(crate) struct JwtAuth {
    bearer: Bearer,
    caller_claim: String,
    algorithms: Vec<Algorithm>,
    rules: Rules,
    keys: Keys,
    verified: CheckCache<Arc<Identity>>,
    revoked: Revoked,
    counts: Counts,
}

/// What became of tokens.
struct Counts {
    verified: Counter,
    cached: Counter,
    refused: Counter,
}

const TOKENS: Metric =
    Metric::counter("ferrum_jwt_auth_tokens_total", "Tokens by result: verified, cached or refused.");

impl Plugin for JwtAuth {
    const NAME: &'static str = "jwt_auth";
    const FAMILY: Family = Family::Authentication;
    const SUMMARY: &'static str =
        "Authenticates consumers by signed tokens (JWT) with keys of the consumers.";
    const CREDENTIAL: Option<&'static CredentialType> = Some(&credential::KEY);
    const EXAMPLE: &'static str = include_str!("../examples/jwt_auth.yaml");
    const NEEDS: &'static [Needs] =
        &[Needs::new("revocation_refresh", Need::Given(&["revoked_token_files"]))];
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if config.algorithms.is_empty() {
            problems.add("config.algorithms", "no algorithm is accepted");
        }
        if config.consumer_claim_field.is_empty() {
            problems.add("config.consumer_claim_field", "no claim names the consumer");
        }
        let (issuers, audiences) = (
            texts("config.issuer", config.issuer, &mut problems),
            texts("config.audience", config.audience, &mut problems),
        );
        let claims = required_claims("config.required_claims", config.required_claims, &mut problems);
        problems.into_result(())?;
        let count = |result| world.meters().counter(TOKENS, &["result"], &[result]);
        Ok(Self {
            bearer: Bearer::read(config.bearer)?,
            caller_claim: config.consumer_claim_field,
            algorithms: config.algorithms,
            rules: Rules {
                issuers,
                audiences,
                claims,
                leeway: config.signed.leeway.0,
                requires_expiry: config.signed.require_exp,
            },
            keys: Keys::default(),
            verified: CheckCache::new(config.signed.cached_tokens),
            revoked: config.signed.revoked(world)?,
            counts: Counts {
                verified: count("verified"),
                cached: count("cached"),
                refused: count("refused"),
            },
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
        self.revoked.start(starter);
    }
}

impl Authenticate for JwtAuth {
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Claim<'a> {
        let token = match self.bearer.find(exchange) {
            CredentialLookup::Nothing => return self.bearer.missing(seat),
            CredentialLookup::One(token) if token.len() <= token::MAX_TOKEN => token,
            CredentialLookup::One(_) | CredentialLookup::Several => {
                return Claim::Refused(self.refused(TokenError::Malformed));
            }
        };
        let identity = match self.identity(&token, seat, now()) {
            Ok(identity) => identity,
            Err(fault) => return Claim::Refused(self.refused(fault)),
        };
        Claim::Caller(self.bearer.recognised(exchange, seat, identity))
    }

    fn hide(&self, exchange: &mut Exchange) {
        self.bearer.take_out(exchange);
    }
}

impl OnRequest for JwtAuth {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        self.bearer.tell(exchange, seat);
        Step::Next
    }
}

impl JwtAuth {
    fn refused(&self, fault: TokenError) -> Box<Reply> {
        self.counts.refused.add(1);
        fault.reply()
    }

    /// Whose token it is, at this second since 1970.
    fn identity(&self, text: &[u8], seat: Seat<'_>, now: u64) -> Result<Arc<Identity>, TokenError> {
        let print = self.verified.print(text);
        if let Some(identity) = self.verified.get(&print, now).filter(|known| is_current(known, seat)) {
            if identity.claims.as_ref().is_some_and(|claims| self.revoked.has(claims)) {
                return Err(TokenError::Revoked);
            }
            self.counts.cached.add(1);
            return Ok(identity);
        }
        let token = Token::read(text)?;
        if !self.algorithms.contains(&token.algorithm) {
            return Err(TokenError::Algorithm);
        }
        let name = claims::find(&token.claims, &self.caller_claim).and_then(Value::as_str);
        let caller = seat.consumers().by_name(name.ok_or(TokenError::Claim)?).ok_or(TokenError::Caller)?;
        let consumer = caller.consumer.as_ref().ok_or(TokenError::Caller)?;
        if !self.keys.verify(consumer, &token) {
            return Err(TokenError::Signature);
        }
        let until = self.rules.judge(&token.claims, now)?;
        if self.revoked.has(&token.claims) {
            return Err(TokenError::Revoked);
        }
        self.counts.verified.add(1);
        let standing = self.revoked.standing(&token.claims);
        let claims = Some(Arc::new(token.claims));
        let identity = Arc::new(Identity { claims, standing, ..Identity::clone(caller) });
        self.verified.put(print, identity.clone(), until);
        Ok(identity)
    }
}

#[cfg(test)]
mod tests;
