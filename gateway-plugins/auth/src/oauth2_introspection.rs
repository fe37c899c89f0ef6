//! Recognises callers by tokens that the authorization server is asked about (RFC 7662).
//!
//! Answers are kept for a short while, no longer than the token is good for, so that a revoked token is refused after
//! `cache_ttl` at the latest. While the server can't be reached or answers nonsense, tokens that are not remembered get
//! 503: nobody is let in without an answer. What goes on for long, such as a WebSocket, ends at the token's `exp`; the server is not
//! asked again while it lasts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use gateway_core::config::problem::Problems;
use gateway_core::config::units::{Millis, Seconds};
use gateway_core::consumer::Identity;
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::metrics::Metric;
use gateway_core::plugin::world::calls::{CallError, Client};
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::{
    Authenticate, Claim, Family, Finding, Hooks, Need, Needs, OnRequest, Plugin, Seat, Step, World,
};
use gateway_plugin_common::one_or_many::OneOrMany;
use gateway_plugin_common::server_url;
use gateway_plugin_common::strict_json;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode, Uri};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::assertion::KeySettings;
use crate::credential::bearer::{Bearer, BearerSettings};
use crate::credential::checked::{CheckCache, Print};
use crate::credential::grants::Grants;
use crate::credential::place::CredentialLookup;
use crate::credential::{ExpiryStanding, is_current, now, required_claims, texts};
use crate::jose::claims::NEVER;
use crate::jose::{Rules, TokenError};
use crate::oauth::{ClientMethod, NoRequest, OauthClient};
use crate::turns::Turns;

/// Settings of `oauth2_introspection`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Config {
    /// The URL of the introspection endpoint. Required.
    introspection_url: String,
    /// PEM file with the only trusted roots for this URL. Default: the public roots.
    #[schemars(extend("format" = "path"))]
    ca_path: Option<PathBuf>,
    /// Client ID of the gateway at the authorization server. Keycloak reports a token as inactive unless this client is
    /// in its `aud`: add an audience mapper to the clients that get tokens. Required.
    client_id: String,
    /// Secret for `client_id`. Default none.
    #[schemars(extend("format" = "secret"))]
    client_secret: Option<String>,
    /// How the gateway authenticates itself: `client_secret_basic` in `Authorization: Basic`, `client_secret_post` in
    /// the form, or `private_key_jwt` by a signed JWT. Default `client_secret_basic`.
    client_auth: ClientMethod,
    /// Private key of the gateway for `private_key_jwt` (RFC 7523): PKCS#8 in PEM, RSA, P-256, P-384, P-521 or Ed25519.
    /// It signs with RS256, ES256, ES384, ES512 or EdDSA. Default none.
    #[schemars(extend("format" = "secret"))]
    client_private_key: Option<String>,
    /// The key's `kid`, by which the server finds the public key. Default none.
    client_key_id: Option<String>,
    /// The `aud` of the signed JWT. Default the URL of the endpoint.
    client_assertion_audience: Option<String>,
    /// `token_type_hint` for the server, such as `access_token`. Default none.
    token_type_hint: Option<String>,
    /// Time limit for the whole response of the server. Default 5 s.
    #[schemars(range(min = 0.001, max = 60))]
    timeout: Millis,
    /// Concurrent requests to the server. Default 100.
    #[schemars(range(min = 1, max = 10_000))]
    max_concurrent_calls: usize,
    /// Requests that wait for a free place; further ones get 503 with `Retry-After`. Default 1000.
    #[schemars(range(max = 100_000))]
    max_waiting_calls: usize,
    /// How long a valid token is cached, at most until its `exp`. 0 disables the cache. Default 60 s.
    #[schemars(range(max = 86400))]
    cache_ttl: Seconds,
    /// How long an invalid token is cached. 0 disables the cache. Default 10 s.
    #[schemars(range(max = 3600))]
    negative_cache_ttl: Seconds,
    /// Tokens that each worker caches. Default 1000.
    #[schemars(range(max = 1_000_000))]
    cached_tokens: u32,
    #[serde(flatten)]
    bearer: BearerSettings,
    /// Issuer (`iss`) of the token, or a list of accepted ones. Default any.
    issuer: OneOrMany,
    /// Audience (`aud`) of the token, or a list of accepted ones. Default any.
    audience: OneOrMany,
    /// Fields the answer must have: for each a value, or a list of which it must have one, as in `{typ: Bearer}`, by which Keycloak tells
    /// access tokens from ID tokens. A field that is a list must have one of them in it; a dotted path leads into objects. Default none.
    required_claims: BTreeMap<String, OneOrMany>,
    /// Scopes that a token must have, all of them. Default none.
    required_scopes: Vec<String>,
    /// Field with the scopes: a list, or a text separated by spaces. Default `scope`.
    scope_claim: String,
    /// Roles of which a token must have at least one. Default none.
    required_roles: Vec<String>,
    /// Field with the roles, which are also the caller's groups; a dotted path leads into objects. Default `roles`.
    role_claim: String,
    /// Fields that may name the caller (a consumer's username or custom ID, or any other name); the first one present
    /// decides. Default `[username, sub, client_id]`.
    #[schemars(length(max = 10))]
    consumer_claims: Vec<String>,
    /// Rejects callers that are not consumers. Default false.
    require_consumer: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            introspection_url: String::new(),
            ca_path: None,
            client_id: String::new(),
            client_secret: None,
            client_auth: ClientMethod::ClientSecretBasic,
            client_private_key: None,
            client_key_id: None,
            client_assertion_audience: None,
            token_type_hint: None,
            timeout: Millis(5000),
            max_concurrent_calls: 100,
            max_waiting_calls: 1000,
            cache_ttl: Seconds(60),
            negative_cache_ttl: Seconds(10),
            cached_tokens: 1000,
            bearer: BearerSettings::default(),
            issuer: OneOrMany::default(),
            audience: OneOrMany::default(),
            required_claims: BTreeMap::new(),
            required_scopes: Vec::new(),
            scope_claim: "scope".into(),
            required_roles: Vec::new(),
            role_claim: "roles".into(),
            consumer_claims: ["username", "sub", "client_id"].map(str::to_owned).to_vec(),
            require_consumer: false,
        }
    }
}

/// The plugin.
pub(crate) struct Oauth2Introspection {
    server: (Client, Uri),
    oauth: OauthClient,
    hint: Option<String>,
    turns: Turns,
    bearer: Bearer,
    rules: Rules,
    grants: Grants,
    /// How long valid and invalid tokens are cached.
    ttl: (u64, u64),
    known: CheckCache<Result<Arc<Identity>, TokenError>>,
    counts: Counts,
}

/// What became of tokens.
struct Counts {
    active: Counter,
    inactive: Counter,
    cached: Counter,
    failed: Counter,
}

const TOKENS: Metric = Metric::counter(
    "ferrum_oauth2_introspection_tokens_total",
    "Tokens by result: active or inactive (the server was asked), cached, or failed (the server gave no answer).",
);

/// Bytes of a token; longer ones are refused unseen.
const MAX_TOKEN: usize = 16 << 10;
/// Bytes of an answer.
const MAX_ANSWER: u64 = 256 << 10;

impl Plugin for Oauth2Introspection {
    const NAME: &'static str = "oauth2_introspection";
    const FAMILY: Family = Family::Authentication;
    const SUMMARY: &'static str =
        "Authenticates callers by tokens that the authorization server verifies (RFC 7662).";
    const EXAMPLE: &'static str = include_str!("../examples/oauth2_introspection.yaml");
    const NEEDS: &'static [Needs] = &[
        Needs::new("ca_path", Need::Begins(&["introspection_url"], "https://")),
        Needs::new("scope_claim", Need::Given(&["required_scopes"])),
        Needs::new("cache_ttl", Need::On("cached_tokens")),
        Needs::new("negative_cache_ttl", Need::On("cached_tokens")),
    ];
    type Config = Config;

    fn build(config: Config, world: &World) -> Result<Self, Problems> {
        let (ca_path, timeout) = (config.ca_path, config.timeout.duration());
        let server = server_url::client(world, &config.introspection_url, |endpoint| {
            let mut endpoint = endpoint.trusting(ca_path).within_setting(timeout, "timeout");
            endpoint.max_response = MAX_ANSWER;
            endpoint
        });
        let mut problems = Problems::default();
        if config.consumer_claims.is_empty() {
            problems.add("config.consumer_claims", "no field names the caller");
        }
        if let Err(message) = &server {
            problems.add("config.introspection_url", message);
        }
        if config.token_type_hint.as_ref().is_some_and(String::is_empty) {
            problems.add("config.token_type_hint", "is empty");
        }
        let (issuers, audiences) = (
            texts("config.issuer", config.issuer, &mut problems),
            texts("config.audience", config.audience, &mut problems),
        );
        let claims = required_claims("config.required_claims", config.required_claims, &mut problems);
        let grants = Grants {
            scopes: (config.scope_claim, config.required_scopes),
            roles: (config.role_claim, config.required_roles),
            caller_claims: config.consumer_claims,
            requires_consumer: config.require_consumer,
        };
        grants.check("config", &mut problems);
        let oauth = {
            let key = KeySettings {
                private_key: config.client_private_key,
                key_id: config.client_key_id,
                audience: config.client_assertion_audience,
            };
            OauthClient::read(config.client_id, config.client_secret, config.client_auth, key)
        };
        let (server, oauth) = match (server, oauth) {
            (Ok(server), Ok(oauth)) if problems.is_empty() => (server, oauth),
            (_, oauth) => {
                problems.extend(oauth.err().into_iter().flat_map(|more| more.0));
                return Err(problems);
            }
        };
        let count = |result| world.meters().counter(TOKENS, &["result"], &[result]);
        Ok(Self {
            server,
            oauth,
            hint: config.token_type_hint,
            turns: Turns::new(config.max_concurrent_calls, config.max_waiting_calls),
            bearer: Bearer::read(config.bearer)?,
            rules: Rules { issuers, audiences, claims, leeway: 0, requires_expiry: false },
            grants,
            ttl: (config.cache_ttl.0, config.negative_cache_ttl.0),
            known: CheckCache::new(config.cached_tokens),
            counts: Counts {
                active: count("active"),
                inactive: count("inactive"),
                cached: count("cached"),
                failed: count("failed"),
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
}

impl Authenticate for Oauth2Introspection {
    fn authenticate<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Claim<'a> {
        let token = match self.bearer.find(exchange) {
            CredentialLookup::Nothing => return self.bearer.missing(seat),
            CredentialLookup::One(token) if (1..=MAX_TOKEN).contains(&token.len()) => {
                String::from_utf8(token.into_owned()).ok()
            }
            CredentialLookup::One(_) | CredentialLookup::Several => None,
        };
        let Some(token) = token else { return Claim::Refused(TokenError::Malformed.reply()) };
        let print = self.known.print(token.as_bytes());
        match self.known.get(&print, now()) {
            Some(Ok(identity)) if is_current(&identity, seat) => {
                self.counts.cached.add(1);
                return Claim::Caller(self.bearer.recognised(exchange, seat, identity));
            }
            Some(Err(fault)) => {
                self.counts.cached.add(1);
                return Claim::Refused(fault.reply());
            }
            _ => {}
        }
        Claim::wait(async move {
            match self.ask(&token, print, seat).await {
                Ok(Ok(identity)) => Finding::Caller(self.bearer.recognised(exchange, seat, identity)),
                Ok(Err(fault)) => Finding::Refused(fault.reply()),
                Err((reply, why)) => {
                    self.counts.failed.add(1);
                    if let Some(why) = why {
                        let server = self.server.1.authority().map_or("", |authority| authority.as_str());
                        exchange.note("oauth2_introspection.server", server);
                        exchange.note_failure(format!("{server}: {why}"));
                        tracing::warn!(%server, %why, "the introspection server gives no answer");
                    }
                    Finding::Refused(reply)
                }
            }
        })
    }

    fn hide(&self, exchange: &mut Exchange) {
        self.bearer.take_out(exchange);
    }
}

impl OnRequest for Oauth2Introspection {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, seat: Seat<'a>) -> Step<'a> {
        self.bearer.tell(exchange, seat);
        Step::Next
    }
}

impl Oauth2Introspection {
    /// Asks about a token, and remembers what is said. An error is the server's, not the token's: the refusal, and why there
    /// is no answer where the server was asked.
    async fn ask(
        &self,
        token: &str,
        print: Print,
        seat: Seat<'_>,
    ) -> Result<Result<Arc<Identity>, TokenError>, (Box<Reply>, Option<NoAnswer>)> {
        let turn = self.turns.take().await.map_err(|_| {
            let reply = no_answer("introspection_busy").header(RETRY_AFTER, HeaderValue::from_static("1"));
            (Box::new(reply), None)
        })?;
        let answer = self.call(token).await;
        let answer = answer.map_err(|why| (Box::new(no_answer("introspection_failed")), Some(why)))?;
        drop(turn);
        let now = now();
        let judged = self.judge(answer, seat, now);
        let until = match &judged {
            Ok((_, until)) => {
                self.counts.active.add(1);
                (*until).min(now.saturating_add(self.ttl.0))
            }
            Err(_) => {
                self.counts.inactive.add(1);
                now.saturating_add(self.ttl.1)
            }
        };
        let judged = judged.map(|(identity, _)| identity);
        if until > now {
            self.known.put(print, judged.clone(), until);
        }
        Ok(judged)
    }

    /// The server's answer, or why there is none that can be used.
    async fn call(&self, token: &str) -> Result<Map<String, Value>, NoAnswer> {
        let mut fields = vec![("token", token)];
        fields.extend(self.hint.as_deref().map(|hint| ("token_type_hint", hint)));
        let request = self.oauth.post(&self.server.1, &fields)?;
        let response = self.server.0.fetch(request).await?;
        if response.status() != StatusCode::OK {
            return Err(NoAnswer::Status(response.status()));
        }
        let answer = strict_json::object(response.body());
        let answer = answer.filter(|answer| answer.get("active").is_some_and(Value::is_boolean));
        answer.ok_or(NoAnswer::Content)
    }

    /// The caller of an answer, and until when it is one.
    fn judge(
        &self,
        answer: Map<String, Value>,
        seat: Seat<'_>,
        now: u64,
    ) -> Result<(Arc<Identity>, u64), TokenError> {
        if answer.get("active") != Some(&Value::Bool(true)) {
            return Err(TokenError::Inactive);
        }
        let until = self.rules.judge(&answer, now)?;
        let mut identity = self.grants.caller(answer, seat)?;
        // Nobody says when it is revoked, but this is known.
        if until != NEVER {
            Arc::make_mut(&mut identity).standing = Some(Arc::new(ExpiryStanding { until }));
        }
        Ok((identity, until))
    }
}

/// Why the introspection server says nothing of a token.
#[derive(Debug, thiserror::Error)]
enum NoAnswer {
    #[error(transparent)]
    Request(#[from] NoRequest),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error("its answer is not a JSON object with `active`")]
    Content,
}

/// The refusal while the server can't be asked.
fn no_answer(reason: &'static str) -> Reply {
    Reply::new(Cause::NoTarget).detail("the token can't be checked now").reason(reason)
}

#[cfg(test)]
mod tests;
