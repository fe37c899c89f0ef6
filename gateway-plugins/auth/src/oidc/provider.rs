//! The OpenID provider: where it is, what it is asked, and what its tokens must say.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_core::plugin::World;
use gateway_plugin_common::server_url;
use gateway_plugin_common::strict_json;
use http::{Response, StatusCode};
use serde_json::{Map, Value};

use super::provider_failure::{Failure, NoAnswer};
use super::session::{OpenSession, Session};
use crate::credential::now;
use crate::jose::{Algorithm, Rules, Token, TokenError};
use crate::jwks_auth::source::{KeyFreshness, Source};
use crate::oauth::OauthClient;
use crate::turns::Turns;

/// Bytes of an answer of the token endpoint.
const MAX_ANSWER: u64 = 256 << 10;
/// How long a refresh may take at least; requests wait for it no longer than `timeout`. A slow provider has taken the old refresh
/// token, and who hangs up too early never learns the new one.
const REFRESH: Duration = Duration::from_secs(30);
/// Seconds after which another ID token is asked for where one could not be verified.
const UNVERIFIED: u64 = 60;

pub(super) struct Provider {
    pub(super) source: Arc<Source>,
    pub(super) world: World,
    pub(super) ca_path: Option<PathBuf>,
    pub(super) timeout: Duration,
    pub(super) oauth: OauthClient,
    pub(super) rules: Rules,
    pub(super) algorithms: Vec<Algorithm>,
    pub(super) turns: Turns,
}

/// What the token endpoint gave.
#[derive(Debug)]
pub(super) struct Tokens {
    id_token: Option<String>,
    access_token: Option<String>,
    refresh_token: Option<String>,
    expires: u64,
}

impl Provider {
    /// A URL of the discovery document.
    pub(super) async fn url(&self, name: &str) -> Option<String> {
        if self.source.about().is_none() {
            self.source.ask(None).await;
        }
        Some(self.source.about()?.get(name)?.as_str()?.to_owned())
    }

    /// Whether the provider says that it does something.
    pub(super) async fn announces(&self, name: &str) -> bool {
        if self.source.about().is_none() {
            self.source.ask(None).await;
        }
        self.source.about().is_some_and(|about| about.get(name).and_then(Value::as_bool) == Some(true))
    }

    /// A URL of the discovery document that a provider must have.
    pub(super) async fn needed(&self, name: &str) -> Result<String, Failure> {
        self.url(name).await.ok_or_else(|| {
            Failure::from(match self.source.about() {
                Some(_) => NoAnswer::NoUrl(name.to_owned()),
                None => NoAnswer::Source(self.source.why()),
            })
        })
    }

    /// Posts a form to one of the provider's endpoints, as the client that the gateway is.
    async fn post(
        &self,
        url: &str,
        fields: &[(&str, &str)],
        within: Duration,
    ) -> Result<Response<Bytes>, NoAnswer> {
        let turn = tokio::time::timeout(self.timeout, self.turns.take()).await;
        let _turn = turn.map_err(|_| NoAnswer::Busy)?.map_err(|_| NoAnswer::Busy)?;
        let setting = if within == self.timeout { "timeout" } else { "" };
        let (client, uri) = server_url::own_client(&self.world, url, |endpoint| {
            let mut endpoint = endpoint.trusting(self.ca_path.clone()).within_setting(within, setting);
            endpoint.max_response = MAX_ANSWER;
            endpoint
        })?;
        let request = self.oauth.post(&uri, fields)?;
        client.fetch(request).await.map_err(|error| NoAnswer::Call { uri, error })
    }

    /// Has the provider forget a refresh token (RFC 7009), where it can.
    pub(super) async fn revoke(&self, token: &str) -> Result<(), NoAnswer> {
        let Some(url) = self.url("revocation_endpoint").await else { return Ok(()) };
        let fields = [("token", token), ("token_type_hint", "refresh_token")];
        match self.post(&url, &fields, self.timeout).await?.status() {
            StatusCode::OK => Ok(()),
            status => Err(NoAnswer::Status { url, status, error: None }),
        }
    }

    /// Asks the token endpoint.
    async fn tokens(&self, fields: &[(&str, &str)], within: Duration) -> Result<Tokens, Failure> {
        let url = self.needed("token_endpoint").await?;
        let response = self.post(&url, fields, within).await?;
        let answer = strict_json::object(response.body());
        let text = |name: &str| answer.as_ref()?.get(name)?.as_str().map(str::to_owned);
        match response.status() {
            StatusCode::OK if answer.is_some() => {}
            StatusCode::BAD_REQUEST if text("error").as_deref() == Some("invalid_grant") => {
                return Err(Failure::Refused);
            }
            StatusCode::OK => return Err(NoAnswer::NotJson(url).into()),
            status => {
                // What RFC 6749 §5.2 allows in `error`, so that the log has nothing else of the answer.
                let is_word = |c: char| matches!(c, ' '..='~') && c != '"' && c != '\\';
                let error = text("error").filter(|error| error.len() <= 100 && error.chars().all(is_word));
                return Err(NoAnswer::Status { url, status, error }.into());
            }
        }
        let seconds = answer.as_ref().and_then(|answer| answer.get("expires_in")).and_then(Value::as_u64);
        Ok(Tokens {
            id_token: text("id_token"),
            access_token: text("access_token"),
            refresh_token: text("refresh_token"),
            expires: seconds.map_or(0, |seconds| now().saturating_add(seconds)),
        })
    }

    /// Whether an answer with this `iss` is the provider's (RFC 9207): not another one's, and not one that does not say whose it is
    /// where this one would.
    pub(super) async fn is_own_answer(&self, issuer: Option<&str>) -> bool {
        match issuer {
            Some(issuer) => self.rules.issuers.iter().any(|own| own == issuer),
            None => !self.announces("authorization_response_iss_parameter_supported").await,
        }
    }

    /// The session that a code stands for (RFC 6749 §4.1.3, RFC 7636 §4.5).
    pub(super) async fn redeem(
        &self,
        code: &str,
        verifier: &str,
        redirect_uri: &str,
        nonce: &str,
    ) -> Result<Session, Failure> {
        let (tokens, id_token, _) = self.exchange(code, verifier, redirect_uri, nonce).await?;
        Ok(Session {
            id_token,
            access_token: tokens.access_token,
            refresh_token: tokens.refresh_token,
            expires: tokens.expires,
            began: now(),
            id: super::seal::random().ok_or(NoAnswer::NoRandomness)?,
            sid: None,
        })
    }

    /// The tokens that a code stands for, the ID token among them, and its claims.
    pub(super) async fn exchange(
        &self,
        code: &str,
        verifier: &str,
        redirect_uri: &str,
        nonce: &str,
    ) -> Result<(Tokens, String, Map<String, Value>), Failure> {
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier),
        ];
        let mut tokens = self.tokens(&fields, self.timeout).await?;
        let id_token = tokens.id_token.take().ok_or(NoAnswer::NoIdToken)?;
        let claims = self.verify(&id_token, None).await?;
        if claims.get("nonce").and_then(Value::as_str) != Some(nonce) {
            return Err(Failure::Token(TokenError::Claim));
        }
        Ok((tokens, id_token, claims))
    }

    /// The session with new tokens (RFC 6749 §6, OpenID Connect Core §12).
    pub(super) async fn refresh(&self, open: &OpenSession) -> Result<Session, Failure> {
        let old = &open.session;
        let token = old.refresh_token.as_deref().ok_or(Failure::Refused)?;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", token)];
        let tokens = self.tokens(&fields, self.timeout.max(REFRESH)).await?;
        let mut expires = tokens.expires;
        let verified = match tokens.id_token {
            Some(id_token) => match self.verify(&id_token, open.claims.get("sub")).await {
                Ok(_) => Some(id_token),
                // The old refresh token is worth nothing any more: without the new one the login would be lost. What nobody can
                // verify now is left out, as by a provider that repeats no ID token, and another asked for soon.
                Err(Failure::Unavailable(why)) => {
                    tracing::warn!(%why, "the ID token of a refresh can't be verified now");
                    let soon = now().saturating_add(UNVERIFIED);
                    expires = if expires == 0 { soon } else { expires.min(soon) };
                    None
                }
                Err(failure) => return Err(failure),
            },
            None => None,
        };
        Ok(Session {
            id_token: verified.unwrap_or_else(|| old.id_token.clone()),
            access_token: tokens.access_token.or_else(|| old.access_token.clone()),
            refresh_token: tokens.refresh_token.or_else(|| old.refresh_token.clone()),
            expires,
            began: old.began,
            id: old.id.clone(),
            sid: open.sid().map(str::to_owned),
        })
    }

    /// The claims of an ID token (OpenID Connect Core §3.1.3.7), whose `sub` must be this one where it is known.
    async fn verify(&self, text: &str, subject: Option<&Value>) -> Result<Map<String, Value>, Failure> {
        let token = Token::read(text.as_bytes()).map_err(Failure::Token)?;
        // Its signature last: a token that is wrong in any case is so as well while there are no keys.
        self.judge(&token)?;
        let claims = &token.claims;
        let several = claims.get("aud").and_then(Value::as_array).is_some_and(|all| all.len() > 1);
        let party = claims.get("azp").and_then(Value::as_str);
        if party.is_some_and(|party| party != self.oauth.id) || (several && party.is_none()) {
            return Err(Failure::Token(TokenError::Audience));
        }
        if claims.get("sub").and_then(Value::as_str).is_none_or(str::is_empty) {
            return Err(Failure::Token(TokenError::Claim));
        }
        if subject.is_some() && claims.get("sub") != subject {
            return Err(Failure::Token(TokenError::Caller));
        }
        self.is_signed(&token).await?;
        Ok(token.claims)
    }

    /// Whether a token is the provider's, for this client, and valid now.
    pub(super) async fn check(&self, token: &Token<'_>) -> Result<(), Failure> {
        self.judge(token)?;
        self.is_signed(token).await
    }

    /// Judges what can be said of a token without keys.
    fn judge(&self, token: &Token<'_>) -> Result<(), Failure> {
        if !self.algorithms.contains(&token.algorithm) {
            return Err(Failure::Token(TokenError::Algorithm));
        }
        self.rules.judge(&token.claims, now()).map_err(Failure::Token)?;
        Ok(())
    }

    /// Whether a token is signed with one of the provider's keys.
    async fn is_signed(&self, token: &Token<'_>) -> Result<(), Failure> {
        let known = self.source.keys();
        let verified = known.as_ref().and_then(|keys| keys.verify(token));
        let verified = match verified {
            Some(verified) => verified,
            None => {
                // Only newer keys can tell, and nobody where the provider could not be asked for them.
                let asked = self.source.ask(known.as_ref()).await;
                let none = || Failure::from(NoAnswer::Source(self.source.why()));
                let keys = self.source.keys().ok_or_else(none)?;
                match keys.verify(token) {
                    Some(verified) => verified,
                    None if asked == KeyFreshness::Fresh => false,
                    None => return Err(none()),
                }
            }
        };
        if verified { Ok(()) } else { Err(Failure::Token(TokenError::Signature)) }
    }
}
