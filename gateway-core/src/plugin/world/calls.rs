//! Requests and streams of a plugin's own, over the gateway's engines, pools, names and TLS policy.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};

use crate::config::model::{Backend, BackendHttp, BackendTls, Id, Scheme, TargetRules, Timeouts, Upstream};
use crate::config::problem::{Problems, without_user};
use crate::http::body::Body;
use crate::http::reply::Cause;
use crate::stream::relay::Tunnel;

/// Makes clients. Implemented by `gateway-protocols`.
pub trait Calls: Send + Sync {
    /// A client for this endpoint. Opens nothing.
    ///
    /// # Errors
    /// What is wrong with the endpoint.
    fn client(&self, endpoint: Endpoint) -> Result<Client, Problems>;

    /// The addresses of a host, by the gateway's name servers and cache. By itself, none but a host that is an address.
    fn resolve<'a>(&'a self, host: &'a Arc<str>, port: u16) -> Call<'a, Vec<SocketAddr>> {
        let address = host.parse::<IpAddr>().map(|ip| vec![SocketAddr::new(ip, port)]);
        let failed =
            |_| CallError { cause: Cause::DnsFailed, detail: Some("there is no resolver".to_owned()) };
        Box::pin(std::future::ready(address.map_err(failed)))
    }
}

/// Where calls go, and how long they may take.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// Which server.
    pub server: Server,
    /// Encrypts the way there.
    pub encrypted: bool,
    /// How the server's certificate is judged; the default trusts public roots.
    pub tls: BackendTls,
    /// Which HTTP version is spoken.
    pub http: BackendHttp,
    /// From the beginning of a call to the end of its body; never zero. Default 5 s.
    pub timeout: Duration,
    /// The setting that `timeout` comes from, for the log; empty where none does.
    pub timeout_setting: &'static str,
    /// How long a new connection may take, where that is less than `timeout`.
    pub connect_timeout: Option<Duration>,
    /// Bytes a response's body may have. Default 1 MiB.
    pub max_response_bytes: u64,
}

/// The server of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// This one.
    Address {
        /// Name or address, without brackets.
        host: Arc<str>,
        /// The port.
        port: u16,
    },
    /// One of a named upstream's targets: balanced and health-checked like a proxy's.
    Upstream(Arc<str>),
}

/// The longest response a call takes where the plugin says nothing else.
pub const MAX_RESPONSE_BYTES: u64 = 1 << 20;
/// How long a call may take where the plugin says nothing else.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(5);

impl Endpoint {
    /// An endpoint at this server.
    pub fn new(server: Server, encrypted: bool) -> Self {
        Self {
            server,
            encrypted,
            tls: BackendTls { verify: true, ca_path: None, client_cert: None, server_name: None },
            http: BackendHttp::Auto,
            timeout: CALL_TIMEOUT,
            timeout_setting: "",
            connect_timeout: None,
            max_response_bytes: MAX_RESPONSE_BYTES,
        }
    }

    /// The server of an `http` or `https` URL; its path is not part of the endpoint.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the URL.
    pub fn of_url(url: &str) -> Result<(Self, Uri), String> {
        let shown = without_user(url);
        let uri: Uri = url.parse().map_err(|error| format!("`{shown}` is not a URL: {error}"))?;
        let encrypted = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(format!("`{shown}` must begin with `http://` or `https://`")),
        };
        let Some(authority) = uri.authority() else { return Err(format!("`{shown}` names no server")) };
        if authority.as_str().contains('@') {
            return Err("a URL here must not carry a user name or password".to_owned());
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(format!("`{shown}` names no server"));
        }
        let port = authority.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        Ok((Self::new(Server::Address { host: Arc::from(host), port }, encrypted), uri))
    }

    /// What it means to the gateway's engines: how to speak, how long to wait, and its own targets; an upstream's are
    /// looked up when a call is made.
    pub fn resolve(&self) -> (Backend, Timeouts) {
        let (name, targets) = match &self.server {
            Server::Address { host, port } => {
                (host.clone(), vec![Arc::new(TargetRules::new(host.clone(), *port))])
            }
            Server::Upstream(id) => (id.clone(), Vec::new()),
        };
        let upstream = Upstream::new(Id(name), targets);
        let backend = Backend {
            scheme: if self.encrypted { Scheme::Https } else { Scheme::Http },
            http_version: self.http,
            alt_svc: false,
            upstream: Arc::new(upstream),
            is_named: matches!(self.server, Server::Upstream(_)),
            tags: Box::default(),
            tls: self.encrypted.then(|| Arc::new(self.tls.clone())),
            pool: Arc::default(),
            dns: None,
        };
        let each = self.timeout;
        let connect = self.connect_timeout.map_or(each, |connect| connect.min(each));
        (backend, Timeouts { connect, first_byte: each, idle: each, total: each })
    }

    /// Trusts only the roots of this PEM file.
    #[must_use]
    pub fn trusting(mut self, ca_path: Option<PathBuf>) -> Self {
        self.tls.ca_path = ca_path;
        self
    }

    /// Another limit on time.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Another limit on time, which comes from this setting.
    #[must_use]
    pub fn within_setting(self, timeout: Duration, setting: &'static str) -> Self {
        Self { timeout_setting: setting, ..self.within(timeout) }
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
    fn max_response_bytes(&self) -> u64;
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
        let limit = self.0.max_response_bytes();
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
        let limit = self.0.max_response_bytes();
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

    fn max_response_bytes(&self) -> u64 {
        self.0.max_response_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Late;

    impl Caller for Late {
        fn send<'a>(&'a self, _request: Request<Body>) -> Call<'a, Response<Body>> {
            let detail =
                Some("the target sent nothing, which is what `backend_read_timeout_ms` allows".into());
            Box::pin(std::future::ready(Err(CallError { cause: Cause::UpstreamTimeout, detail })))
        }

        fn open(&self) -> Call<'_, Tunnel> {
            Box::pin(std::future::pending())
        }

        fn timeout(&self) -> Duration {
            Duration::from_millis(50)
        }

        fn timeout_setting(&self) -> &'static str {
            "timeout_ms"
        }

        fn max_response_bytes(&self) -> u64 {
            1
        }
    }

    #[tokio::test]
    async fn a_call_without_an_answer_names_its_own_setting() {
        let client = Client::new(Arc::new(Late));
        let expected = "upstream_timeout: no answer within 50ms, which is what `timeout_ms` allows";
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
            let refused = Endpoint::of_url(url).map(drop).expect_err("it is refused");
            assert!(!refused.contains("SEC"), "{url}: {refused}");
        }
        assert_eq!(
            Endpoint::of_url("ftp://x/").map(drop).expect_err("it is refused"),
            "`ftp://x/` must begin with `http://` or `https://`"
        );
    }
}
