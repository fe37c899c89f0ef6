//! Requests and streams of a plugin's own, over the gateway's engines, pools, names and TLS policy.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};

pub use crate::config::endpoint::{CALL_TIMEOUT, Endpoint, EndpointError, MAX_RESPONSE_BYTES, Server};
use crate::config::problem::Problems;
use crate::http::body::Body;
use crate::http::reply::Cause;
use crate::http::tunnel::Tunnel;

/// Makes clients. Implemented by `gateway-protocols`.
pub trait Calls: Send + Sync {
    /// A client for this endpoint. Opens nothing.
    ///
    /// # Errors
    /// What is wrong with the endpoint.
    fn client(&self, endpoint: Endpoint) -> Result<Client, Problems>;

    /// A client for a call of the gateway's own, such as one to an OpenID provider or a CA, which may have to go by a proxy.
    ///
    /// # Errors
    /// What is wrong with the endpoint, or with the proxy.
    fn own_client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
        self.client(endpoint)
    }

    /// The addresses of a host, by the gateway's name servers and cache. By itself, none but a host that is an address.
    fn resolve<'a>(&'a self, host: &'a Arc<str>, port: u16) -> Call<'a, Vec<SocketAddr>> {
        let address = host.parse::<IpAddr>().map(|ip| vec![SocketAddr::new(ip, port)]);
        let failed =
            |_| CallError { cause: Cause::DnsFailed, detail: Some("there is no resolver".to_owned()) };
        Box::pin(std::future::ready(address.map_err(failed)))
    }
}

/// Sends to one endpoint. Cheap to clone.
#[derive(Clone)]
pub struct Client(Arc<dyn Caller>);

/// What a [`Client`] does; implemented by `gateway-protocols`, and by fakes in tests.
pub trait Caller: Send + Sync {
    /// Sends a request and waits for the head of its response. The request's target is an origin form (`/path?query`),
    /// or a whole URL, of which only path and query count. Redirects are not followed.
    fn send<'a>(&'a self, request: Request<Body>) -> Call<'a, Response<Body>>;

    /// Opens a stream to the endpoint, over TLS where the endpoint is encrypted.
    fn open(&self) -> Call<'_, Tunnel>;

    /// How long a call may take in all.
    fn timeout(&self) -> Duration;

    /// The setting that this comes from; empty where none does.
    fn timeout_setting(&self) -> &'static str {
        ""
    }

    /// Bytes a response's body may have.
    fn max_response(&self) -> u64;
}

/// A call under way.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send + 'a>>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[error("{}{}", cause.reason(), detail.as_deref().map(|detail| format!(": {detail}")).unwrap_or_default())]
pub struct CallError {
    /// The row of the reply table that says what went wrong.
    pub cause: Cause,
    /// More, for the log; never for a client.
    pub detail: Option<String>,
}

impl CallError {
    /// A failure without more to say.
    pub fn new(cause: Cause) -> Self {
        Self { cause, detail: None }
    }
}

impl Client {
    /// A client that calls so.
    pub fn new(caller: Arc<dyn Caller>) -> Self {
        Self(caller)
    }

    /// Sends a request and waits for the head of its response, within the endpoint's timeout. The body streams, up to
    /// the endpoint's limit.
    ///
    /// # Errors
    /// When no response came, or not in time.
    pub async fn send(&self, request: Request<Body>) -> Result<Response<Body>, CallError> {
        let limit = self.0.max_response();
        match tokio::time::timeout(self.0.timeout(), self.0.send(request)).await {
            Ok(response) => {
                let response = response.map_err(|error| self.own(error))?;
                Ok(response.map(|body| body.limited(limit)))
            }
            Err(_) => Err(self.late()),
        }
    }

    /// Sends a request and waits for the whole response, within the endpoint's timeout and limit.
    ///
    /// # Errors
    /// When no whole response came, or not in time, or it is too large.
    pub async fn fetch(&self, request: Request<Body>) -> Result<Response<Bytes>, CallError> {
        let limit = self.0.max_response();
        let fetching = async {
            let response = self.0.send(request).await.map_err(|error| self.own(error))?;
            let (head, mut body) = response.into_parts();
            let (bytes, _) = body.collect(limit).await.map_err(|error| CallError {
                cause: Cause::UpstreamClosed,
                detail: Some(error.to_string()),
            })?;
            Ok(Response::from_parts(head, bytes))
        };
        tokio::time::timeout(self.0.timeout(), fetching).await.unwrap_or_else(|_| Err(self.late()))
    }

    /// The engines say of a timeout what proxies have to set; a call has a timeout of its own.
    fn own(&self, error: CallError) -> CallError {
        if error.cause == Cause::UpstreamTimeout { self.late() } else { error }
    }

    fn late(&self) -> CallError {
        let mut detail = format!("no answer within {:?}", self.0.timeout());
        if !self.0.timeout_setting().is_empty() {
            detail.push_str(&format!(", which is what `{}` allows", self.0.timeout_setting()));
        }
        CallError { cause: Cause::UpstreamTimeout, detail: Some(detail) }
    }

    /// Opens a stream to the endpoint, within its timeout.
    ///
    /// # Errors
    /// When it can't be opened in time.
    pub async fn open(&self) -> Result<Tunnel, CallError> {
        tokio::time::timeout(self.0.timeout(), self.0.open()).await.unwrap_or_else(|_| {
            let detail = Some(format!("no connection within {:?}", self.0.timeout()));
            Err(CallError { cause: Cause::ConnectTimeout, detail })
        })
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

/// Nothing can be reached.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nowhere;

impl Calls for Nowhere {
    fn client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
        Ok(Client::new(Arc::new(Unreachable(endpoint))))
    }
}

struct Unreachable(Endpoint);

impl Caller for Unreachable {
    fn send<'a>(&'a self, _request: Request<Body>) -> Call<'a, Response<Body>> {
        Box::pin(std::future::ready(Err(CallError::new(Cause::ConnectFailed))))
    }

    fn open(&self) -> Call<'_, Tunnel> {
        Box::pin(std::future::ready(Err(CallError::new(Cause::ConnectFailed))))
    }

    fn timeout(&self) -> Duration {
        self.0.timeout
    }

    fn max_response(&self) -> u64 {
        self.0.max_response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Late;

    impl Caller for Late {
        fn send<'a>(&'a self, _request: Request<Body>) -> Call<'a, Response<Body>> {
            let detail =
                Some("the target sent nothing, which is what `backend_first_byte_timeout` allows".into());
            Box::pin(std::future::ready(Err(CallError { cause: Cause::UpstreamTimeout, detail })))
        }

        fn open(&self) -> Call<'_, Tunnel> {
            Box::pin(std::future::pending())
        }

        fn timeout(&self) -> Duration {
            Duration::from_millis(50)
        }

        fn timeout_setting(&self) -> &'static str {
            "timeout"
        }

        fn max_response(&self) -> u64 {
            1
        }
    }

    #[tokio::test]
    async fn a_call_without_an_answer_names_its_own_setting() {
        let client = Client::new(Arc::new(Late));
        let expected = "upstream_timeout: no answer within 50ms, which is what `timeout` allows";
        let sent = client.send(Request::default()).await.expect_err("no answer");
        let fetched = client.fetch(Request::default()).await.expect_err("no answer");
        assert_eq!([sent.to_string(), fetched.to_string()], [expected, expected]);
    }

    #[test]
    fn a_refused_url_shows_no_password() {
        for url in [
            "htp://u:SECRET@x/",
            "https://u:SECRET@x/",
            "u:SECRET@x",
            "https://u:SEC RET@x/",
            "http://SECRET@",
        ] {
            let refused = Endpoint::of_url(url).map(drop).expect_err("it is refused").to_string();
            assert!(!refused.contains("SEC"), "{url}: {refused}");
        }
        assert_eq!(
            Endpoint::of_url("ftp://x/").map(drop).expect_err("it is refused").to_string(),
            "`ftp://x/` must begin with `http://` or `https://`"
        );
    }
}
