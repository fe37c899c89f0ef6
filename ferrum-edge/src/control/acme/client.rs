//! Speaks with a CA (RFC 8555): its directory, nonces, and requests signed by the account.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use gateway_core::config::model::ExternalAccount;
use http::header::{CONTENT_TYPE, HeaderName, LOCATION, USER_AGENT};
use http::{Method, Request, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::error::TransportError;
use super::failure::{Failure, cut, retry_after};
use super::jose::AccountKey;

const NONCE: HeaderName = HeaderName::from_static("replay-nonce");
/// How often a request is signed anew because the CA did not take its nonce.
const MAX_NONCES: usize = 10;
const AGENT: &str = concat!("ferrum-edge/", env!("CARGO_PKG_VERSION"));

/// A request under way.
pub(super) type Sending<'a> =
    Pin<Box<dyn Future<Output = Result<Response<Bytes>, TransportError>> + Send + 'a>>;

/// Carries requests to a CA: over the network, or to a script in tests.
pub(super) trait Transport: Send + Sync {
    /// Sends a request with its whole URL, and waits for the whole answer.
    fn send(&self, request: Request<Bytes>) -> Sending<'_>;
}

/// Where a CA takes what.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Directory {
    new_nonce: String,
    new_account: String,
    pub(super) new_order: String,
    pub(super) renewal_info: Option<String>,
    #[serde(default)]
    meta: Meta,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    external_account_required: bool,
}

/// An answer with success.
pub(super) struct CaAnswer {
    pub(super) body: Bytes,
    pub(super) location: Option<String>,
    /// How long the CA asks to wait before the next look.
    pub(super) retry_after: Option<Duration>,
}

impl CaAnswer {
    /// Reads the document.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body)
            // The error may quote what the CA sent.
            .map_err(|error| {
                Failure::here(format!("the CA's answer can't be read: {}", cut(&error.to_string())))
            })
    }
}

/// Asks a CA for what needs no account.
pub(super) async fn get(transport: &dyn Transport, url: &str) -> Result<CaAnswer, Failure> {
    let request = Request::get(url).header(USER_AGENT, AGENT).body(Bytes::new());
    answered(send(transport, request).await?)
}

/// A CA's directory.
pub(super) async fn directory(transport: &dyn Transport, url: &str) -> Result<Directory, Failure> {
    get(transport, url).await?.read()
}

async fn send(
    transport: &dyn Transport,
    request: Result<Request<Bytes>, http::Error>,
) -> Result<Response<Bytes>, Failure> {
    let request =
        request.map_err(|error| Failure::here(format!("the CA named a URL that is none: {error}")))?;
    let url = request.uri().to_string();
    let unreachable =
        |error: TransportError| Failure::unreachable(format!("{} can't be reached: {error}", cut(&url)));
    transport.send(request).await.map_err(unreachable)
}

fn answered(response: Response<Bytes>) -> Result<CaAnswer, Failure> {
    let now = SystemTime::now();
    let (head, body) = response.into_parts();
    if !head.status.is_success() {
        return Err(Failure::of_answer(head.status.as_u16(), &head.headers, &body, now));
    }
    let location = head.headers.get(LOCATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    Ok(CaAnswer { body, location, retry_after: retry_after(&head.headers, now) })
}

/// An account at a CA.
pub(super) struct AcmeClient {
    transport: Arc<dyn Transport>,
    pub(super) directory: Directory,
    pub(super) key: AccountKey,
    /// What the CA calls the account; `None` before there is one.
    account: Option<String>,
    nonce: Option<String>,
}

impl AcmeClient {
    /// The account with this key.
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        directory: Directory,
        key: AccountKey,
        account: Option<String>,
    ) -> Self {
        Self { transport, directory, key, account, nonce: None }
    }

    /// Makes an account for the key, or finds the one there is; says what the CA calls it.
    pub(super) async fn register(
        &mut self,
        email: Option<&str>,
        external: Option<&ExternalAccount>,
    ) -> Result<String, Failure> {
        self.account = None;
        let url = self.directory.new_account.clone();
        let mut payload = json!({ "termsOfServiceAgreed": true, "contact": contact(email) });
        match external {
            Some(account) => {
                payload["externalAccountBinding"] = self.key.bind(account, &url)?;
            }
            None if self.directory.meta.external_account_required => {
                let text = "the CA asks for an account that exists there; set `external_account`";
                return Err(Failure { kind: "externalAccountRequired".into(), ..Failure::here(text) });
            }
            None => {}
        }
        let answer = self.post(&url, Some(&payload)).await?;
        let account = answer.location.ok_or_else(|| Failure::here("the CA did not name the new account"))?;
        self.account = Some(account.clone());
        Ok(account)
    }

    /// Tells the CA where it can write to.
    pub(super) async fn set_email(&mut self, email: Option<&str>) -> Result<(), Failure> {
        let Some(url) = self.account.clone() else { return Ok(()) };
        self.post(&url, Some(&json!({ "contact": contact(email) }))).await.map(drop)
    }

    /// A signed request. `None` asks for a resource without changing anything.
    pub(super) async fn post(&mut self, url: &str, payload: Option<&Value>) -> Result<CaAnswer, Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            let nonce = self.nonce().await?;
            let mut header = json!({ "nonce": nonce, "url": url });
            match &self.account {
                Some(account) => header["kid"] = account.as_str().into(),
                None => header["jwk"] = self.key.public(),
            }
            let body = self.key.sign(header, payload)?;
            let request = Request::post(url)
                .header(USER_AGENT, AGENT)
                .header(CONTENT_TYPE, "application/jose+json")
                .body(Bytes::from(body));
            let response = send(&*self.transport, request).await?;
            self.keep_nonce(&response);
            match answered(response) {
                // It was used, or is too old; that says nothing about the request.
                Err(failure) if failure.kind == "badNonce" && tries < MAX_NONCES => {}
                other => return other,
            }
        }
    }

    async fn nonce(&mut self) -> Result<String, Failure> {
        if let Some(nonce) = self.nonce.take() {
            return Ok(nonce);
        }
        let request = Request::builder().method(Method::HEAD).uri(&self.directory.new_nonce);
        let request = request.header(USER_AGENT, AGENT).body(Bytes::new());
        let response = send(&*self.transport, request).await?;
        self.keep_nonce(&response);
        answered(response)?;
        self.nonce.take().ok_or_else(|| Failure::here("the CA's answer has no nonce"))
    }

    fn keep_nonce(&mut self, response: &Response<Bytes>) {
        let nonce = response.headers().get(NONCE).and_then(|value| value.to_str().ok());
        self.nonce = nonce.map(str::to_owned);
    }
}

fn contact(email: Option<&str>) -> Vec<String> {
    email.into_iter().map(|address| format!("mailto:{address}")).collect()
}
