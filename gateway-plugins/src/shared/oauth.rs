//! Calls to an authorization server: forms, and how the gateway says which client it is (RFC 6749 §2.3).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::Body;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::{Client, Endpoint};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Request, Uri};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::Deserialize;

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
}

/// The gateway as a client of an authorization server.
pub(crate) struct OauthClient {
    pub(crate) id: String,
    secret: Option<String>,
    method: ClientMethod,
}

impl OauthClient {
    /// Reads the settings `client_id`, `client_secret` and `client_auth`. Without a secret it is a public client, which
    /// only says its name.
    pub(crate) fn read(id: String, secret: Option<String>, method: ClientMethod) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        if id.is_empty() {
            problems.add("config.client_id", "`client_id` is missing");
        }
        if secret.as_ref().is_some_and(String::is_empty) {
            problems.add("config.client_secret", "is empty");
        }
        problems.into_result(Self { id, secret, method })
    }

    /// A POST of this form.
    ///
    /// # Errors
    /// What can't be in a request.
    pub(crate) fn post(&self, uri: &Uri, fields: &[(&str, &str)]) -> Result<Request<Body>, http::Error> {
        let mut all: Vec<(&str, &str)> = fields.to_vec();
        let mut request = Request::post(uri.clone())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(ACCEPT, "application/json");
        match (&self.secret, self.method) {
            (Some(secret), ClientMethod::ClientSecretBasic) => {
                let pair = format!("{}:{}", encoded(&self.id), encoded(secret));
                let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair)))?;
                value.set_sensitive(true);
                request = request.header(AUTHORIZATION, value);
            }
            (Some(secret), ClientMethod::ClientSecretPost) => {
                all.extend([("client_id", self.id.as_str()), ("client_secret", secret)]);
            }
            (None, _) => all.push(("client_id", &self.id)),
        }
        request.body(Body::full(form(&all)))
    }
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

/// A client for the server of a URL, and the URL.
///
/// # Errors
/// What is wrong with it, in a sentence.
pub(crate) fn client(
    world: &World,
    url: &str,
    adjust: impl FnOnce(Endpoint) -> Endpoint,
) -> Result<(Client, Uri), String> {
    let (endpoint, uri) = Endpoint::of_url(url)?;
    let client = world.client(adjust(endpoint)).map_err(|problems| problems.to_string())?;
    Ok((client, uri))
}
