//! Logs people in at an OpenID provider, for programs that keep the sessions themselves: the console.

use std::path::PathBuf;
use std::time::Duration;

use gateway_core::config::problem::Problems;
use gateway_core::plugin::World;
use serde_json::{Map, Value};

use super::build::{ProviderPlace, provider, scopes};
use super::login::Authorization;
use super::provider::Provider;
use super::provider_failure::Failure;
use super::seal::random;
use crate::assertion::KeySettings;
use crate::jose::{Algorithm, claims};
use crate::oauth::{ClientMethod, OauthClient};

/// Seconds by which the clocks of provider and gateway may differ.
const LEEWAY: u64 = 60;

/// A provider, and who the gateway is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSettings {
    /// The issuer (`iss`) of its tokens.
    pub issuer: String,
    /// The URL of its discovery document; `None` is below the issuer.
    pub discovery_url: Option<String>,
    /// PEM file of the only roots that are trusted for its URLs; `None` are the public ones.
    pub ca_path: Option<PathBuf>,
    /// The name under which the gateway is known there.
    pub client_id: String,
    /// The secret that goes with it; `None` is a public client.
    pub client_secret: Option<String>,
    /// Scopes that are asked for; `openid` is among them in any case.
    pub scopes: Vec<String>,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// Logins at one provider.
pub struct ProviderLogin {
    provider: Provider,
    scopes: String,
}

/// A login under way. Only the browser that began it may end it: whoever keeps it sees to that.
#[derive(Clone)]
pub struct BegunLogin {
    /// Where the browser is sent.
    pub url: String,
    /// What it comes back with.
    pub state: String,
    redirect_uri: String,
    nonce: String,
    verifier: String,
}

/// What a browser came back with, besides the `state`.
#[derive(Debug, Clone, Copy)]
pub struct LoginAnswer<'a> {
    /// The code; without it the provider did not log the person in.
    pub code: Option<&'a str>,
    /// The `iss` of RFC 9207.
    pub issuer: Option<&'a str>,
}

/// Why a login failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoginFailure {
    /// The provider did not log the person in, or what the browser brought is not good.
    Refused(&'static str),
    /// The provider can't be reached, or its answer can't be used: why, for the log.
    Unavailable(String),
}

impl ProviderLogin {
    /// A provider, of which nothing is asked yet. `at` is the setting that describes it, for problems.
    ///
    /// # Errors
    /// What can't be used.
    pub fn new(settings: &ProviderSettings, world: &World, at: &str) -> Result<Self, Problems> {
        let (id, secret) = (settings.client_id.clone(), settings.client_secret.clone());
        let key = KeySettings { private_key: None, key_id: None, audience: None };
        let oauth = OauthClient::read(id, secret, ClientMethod::ClientSecretBasic, key)?;
        let place = ProviderPlace {
            issuer: &settings.issuer,
            discovery_url: settings.discovery_url.as_deref(),
            ca_path: settings.ca_path.clone(),
            timeout: settings.timeout,
            leeway: LEEWAY,
        };
        let algorithms = Algorithm::ALL.into_iter().filter(|name| !name.is_symmetric()).collect();
        let provider = provider(place, algorithms, oauth, world, at)?;
        Ok(Self { provider, scopes: scopes(settings.scopes.clone()) })
    }

    /// Begins a login, after which the browser comes to `redirect_uri`.
    ///
    /// # Errors
    /// While the provider can't be asked where people log in.
    pub async fn begin(&self, redirect_uri: String) -> Result<BegunLogin, LoginFailure> {
        let endpoint = self.provider.needed("authorization_endpoint").await.map_err(failure)?;
        let made = random().zip(random()).zip(random());
        let none = || LoginFailure::Unavailable("there is no randomness".to_owned());
        let ((state, nonce), verifier) = made.ok_or_else(none)?;
        let asked = Authorization {
            client_id: &self.provider.oauth.id,
            redirect_uri: &redirect_uri,
            scopes: &self.scopes,
            state: &state,
            nonce: &nonce,
            verifier: &verifier,
        };
        let url = asked.url(&endpoint);
        Ok(BegunLogin { url, state, redirect_uri, nonce, verifier })
    }

    /// Ends a login: the claims of the person's verified ID token.
    ///
    /// # Errors
    /// When the provider, or what it says, lets nobody in.
    pub async fn finish(
        &self,
        begun: &BegunLogin,
        answer: LoginAnswer<'_>,
    ) -> Result<Map<String, Value>, LoginFailure> {
        if !self.provider.is_own_answer(answer.issuer).await {
            return Err(LoginFailure::Refused("the answer is another provider's"));
        }
        let code = answer.code.ok_or(LoginFailure::Refused("the provider did not log you in"))?;
        let BegunLogin { redirect_uri, nonce, verifier, .. } = begun;
        let exchanged = self.provider.exchange(code, verifier, redirect_uri, nonce).await;
        exchanged.map(|(_, _, claims)| claims).map_err(failure)
    }
}

fn failure(failure: Failure) -> LoginFailure {
    match failure {
        Failure::Refused => LoginFailure::Refused("the login is not valid any more"),
        Failure::Unavailable(why) => LoginFailure::Unavailable(why.to_string()),
        Failure::Token(fault) => LoginFailure::Refused(fault.words().1),
    }
}

/// The texts of a claim: one, those of a list, or none. A dotted name leads into objects.
pub fn claim_texts<'c>(all: &'c Map<String, Value>, name: &str) -> Vec<&'c str> {
    match claims::find(all, name) {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}
