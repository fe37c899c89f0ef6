//! Calls to an authorization server: forms, and how the gateway says which client it is (RFC 6749 §2.3).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::assertion::{Assertions, KeySettings, Unsigned};

/// What stays as it is in a form.
const FORM: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// How the gateway authenticates itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ClientMethod {
    /// `Authorization: Basic`.
    #[default]
    ClientSecretBasic,
    /// `client_id` and `client_secret` in the form.
    ClientSecretPost,
    /// Signed JWT (`private_key_jwt`) in the form.
    PrivateKeyJwt,
}

/// The gateway as a client of an authorization server.
pub(crate) struct OauthClient {
    pub(crate) id: String,
    secret: Option<String>,
    method: ClientMethod,
    assertions: Option<Assertions>,
}

/// What says that a form has a signed statement (RFC 7523 §2.2).
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

impl OauthClient {
    /// Reads the settings `client_id`, `client_secret` and `client_auth`, and those of a private key. Without secret and key it is
    /// a public client, which only says its name.
    pub(crate) fn read(
        id: String,
        secret: Option<String>,
        method: ClientMethod,
        key: KeySettings,
    ) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if id.is_empty() {
            problems.add("config.client_id", "`client_id` is missing");
        }
        if secret.as_ref().is_some_and(String::is_empty) {
            problems.add("config.client_secret", "is empty");
        }
        let mut assertions = None;
        if method == ClientMethod::PrivateKeyJwt {
            if secret.is_some() {
                problems.add("config.client_secret", "there is a private key in its place");
            }
            assertions = Assertions::read(key, &mut problems);
        } else {
            for option in key.set() {
                problems.add(format!("config.{option}"), "needs `client_auth: private_key_jwt`");
            }
        }
        problems.into_result(Self { id, secret, method, assertions })
    }

    /// A POST of this form.
    ///
    /// # Errors
    /// What can't be in a request, or can't be signed.
    pub(crate) fn post(&self, uri: &Uri, fields: &[(&str, &str)]) -> Result<Request<Body>, NoRequest> {
        let assertion = match &self.assertions {
            Some(assertions) => Some(assertions.make(&self.id, &uri.to_string())?),
            None => None,
        };
        let mut all: Vec<(&str, &str)> = fields.to_vec();
        let mut request = Request::post(uri.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json");
        match (&self.secret, self.method) {
            (Some(secret), ClientMethod::ClientSecretBasic) => {
                let pair = format!("{}:{}", encoded(&self.id), encoded(secret));
                let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))
                    .map_err(http::Error::from)?;
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
            (Some(secret), ClientMethod::ClientSecretPost) => {
                all.extend([("client_id", self.id.as_str()), ("client_secret", secret)]);
            }
            _ => all.push(("client_id", &self.id)),
        }
        if let Some(assertion) = &assertion {
            all.extend([("client_assertion_type", JWT_BEARER), ("client_assertion", assertion.as_str())]);
        }
        Ok(request.body(Body::full(form(&all)))?)
    }
}

/// Why there is no request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoRequest {
    #[error(transparent)]
    Http(#[from] http::Error),
    #[error(transparent)]
    Unsigned(#[from] Unsigned),
}

/// A form, or the query of a URL.
pub(crate) fn form(fields: &[(&str, &str)]) -> String {
    let pairs: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    pairs.join("&")
}

/// Text as a value in a form or a query.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, FORM).to_string()
}
