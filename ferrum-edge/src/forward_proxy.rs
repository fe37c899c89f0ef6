//! Calls of the gateway's own by a proxy: `HTTPS_PROXY`, with the exceptions of `NO_PROXY`.
//!
//! Only calls over TLS go by the proxy, through a tunnel (`CONNECT`): the proxy sees names and ports, no requests. The server's certificate
//! is judged as without a proxy. Traffic goes straight to its targets.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gateway_core::config::endpoint::{Endpoint, Server};
use gateway_core::config::model::BackendHttp;
use gateway_core::config::problem::Problems;
use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::reply::Cause;
use gateway_core::http::tunnel::Tunnel;
use gateway_core::plugin::world::calls::{Call, CallError, Caller, Calls, Client};
use gateway_protocols::calls::PluginCalls;
use gateway_protocols::tls::client;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Bytes of a response's head.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// The proxy for calls of the gateway's own.
#[derive(Clone)]
pub(crate) struct ForwardProxy {
    /// Why there is none, although one is set.
    rules: Result<Option<Arc<Rules>>, &'static str>,
}

/// Where the proxy is, and for whom.
struct Rules {
    matcher: Matcher,
}

impl fmt::Debug for ForwardProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its URL may have a password.
        write!(f, "ForwardProxy({})", matches!(self.rules, Ok(Some(_))))
    }
}

impl ForwardProxy {
    /// The proxy of the environment: `https_proxy` or `HTTPS_PROXY`, and `no_proxy` or `NO_PROXY`.
    pub(crate) fn of_environment() -> Self {
        let of = |names: [&str; 2]| names.into_iter().find_map(std::env::var_os);
        let (proxy, exceptions) = (of(["https_proxy", "HTTPS_PROXY"]), of(["no_proxy", "NO_PROXY"]));
        let text = |value: Option<std::ffi::OsString>| value.unwrap_or_default().into_string();
        match (text(proxy), text(exceptions)) {
            (Ok(proxy), Ok(exceptions)) => Self::of(&proxy, &exceptions),
            _ => Self { rules: Err("is not UTF-8") },
        }
    }

    /// The proxy of this URL for all hosts but these. An empty URL is none.
    fn of(proxy: &str, exceptions: &str) -> Self {
        let proxy = proxy.trim();
        if proxy.is_empty() {
            return Self { rules: Ok(None) };
        }
        let any = Uri::from_static("https://any.test");
        let is_http = |matcher: &Matcher| {
            matcher.intercept(&any).is_some_and(|found| {
                let uri = found.uri();
                uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty())
            })
        };
        let rules = match is_http(&Matcher::builder().https(proxy).build()) {
            false => Err("is not the URL of a proxy, such as `http://proxy.example:3128`"),
            true => {
                let matcher = Matcher::builder().https(proxy).no(exceptions).build();
                Ok(Some(Arc::new(Rules { matcher })))
            }
        };
        Self { rules }
    }

    /// A client for this endpoint, by the proxy if it is for the endpoint's host.
    fn client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
        let Server::Address { host, port } = &endpoint.server else { return PluginCalls.client(endpoint) };
        if !endpoint.encrypted {
            return PluginCalls.client(endpoint);
        }
        let rules = self.rules.as_ref().map_err(|why| {
            Problems::one("HTTPS_PROXY", format!("the environment variable `HTTPS_PROXY` {why}"))
        })?;
        let authority = match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let target: Option<Uri> = format!("https://{authority}").parse().ok();
        let by = rules.as_ref().zip(target).and_then(|(rules, target)| rules.matcher.intercept(&target));
        let Some(by) = by else { return PluginCalls.client(endpoint) };
        let bad = |why: &str| Problems::one("config", why.to_owned());
        let mut tls = client::build(&endpoint.tls, Some(BackendHttp::Http1))
            .map_err(|error| bad(&error.to_string()))?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = endpoint.tls.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(|_| bad("the server's name can't be verified"))?;
        let caller = ProxiedCaller {
            proxy: (by.uri().host().unwrap_or_default().to_owned(), by.uri().port_u16().unwrap_or(80)),
            authorization: by.basic_auth().cloned(),
            host: HeaderValue::from_str(if *port == 443 { host } else { &authority })
                .map_err(|_| bad("the server's name can't be sent"))?,
            authority,
            tls: TlsConnector::from(Arc::new(tls)),
            name,
            endpoint,
        };
        Ok(Client::new(Arc::new(caller)))
    }
}

/// The calls of this machine: those of plugins go straight, the gateway's own by the proxy.
pub(crate) struct MachineCalls(pub(crate) ForwardProxy);

impl Calls for MachineCalls {
    fn client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
        PluginCalls.client(endpoint)
    }

    fn own_client(&self, endpoint: Endpoint) -> Result<Client, Problems> {
        self.0.client(endpoint)
    }

    fn resolve<'a>(&'a self, host: &'a Arc<str>, port: u16) -> Call<'a, Vec<std::net::SocketAddr>> {
        PluginCalls.resolve(host, port)
    }
}

/// Sends each request over a tunnel of its own: these calls are rare.
struct ProxiedCaller {
    proxy: (String, u16),
    authorization: Option<HeaderValue>,
    /// `host:port` for the proxy.
    authority: String,
    /// For the server.
    host: HeaderValue,
    tls: TlsConnector,
    name: ServerName<'static>,
    endpoint: Endpoint,
}

type Secured = TlsStream<TokioIo<Upgraded>>;

impl ProxiedCaller {
    fn failed(&self, cause: Cause, why: impl fmt::Display) -> CallError {
        let (host, port) = &self.proxy;
        CallError { cause, detail: Some(format!("by the proxy {host}:{port} of `HTTPS_PROXY`: {why}")) }
    }

    /// A connection to the server through the proxy.
    async fn connect(&self) -> Result<Secured, CallError> {
        let (host, port) = &self.proxy;
        let stream = TcpStream::connect((host.as_str(), *port)).await;
        let stream = stream.map_err(|error| self.failed(Cause::ConnectFailed, error))?;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.failed(Cause::ConnectFailed, error))?;
        drop(tokio::spawn(connection.with_upgrades()));
        let mut request = Request::connect(self.authority.as_str()).header(HOST, self.authority.as_str());
        if let Some(authorization) = &self.authorization {
            request = request.header(PROXY_AUTHORIZATION, authorization);
        }
        let request = request.body(Empty::<Bytes>::new());
        let request = request.map_err(|error| self.failed(Cause::Internal, error))?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| self.failed(Cause::ConnectFailed, error))?;
        if !response.status().is_success() {
            let why = format!("it answers {} for {}", response.status(), self.authority);
            return Err(self.failed(Cause::ConnectFailed, why));
        }
        let tunnel = hyper::upgrade::on(response).await;
        let tunnel = tunnel.map_err(|error| self.failed(Cause::ConnectFailed, error))?;
        let secured = self.tls.connect(self.name.clone(), TokioIo::new(tunnel)).await;
        secured.map_err(|error| self.failed(Cause::TlsFailed, error))
    }

    async fn request(&self, request: Request<Body>) -> Result<Response<Body>, CallError> {
        let connecting = tokio::time::timeout(self.connect_timeout(), self.connect());
        let late = |_| self.failed(Cause::ConnectTimeout, "no connection in time");
        let secured = connecting.await.map_err(late)??;
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .handshake(TokioIo::new(secured))
            .await
            .map_err(|error| self.failed(Cause::UpstreamClosed, error))?;
        drop(tokio::spawn(connection));
        let (mut head, body) = request.into_parts();
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        head.uri = path.parse().map_err(|error| self.failed(Cause::Internal, error))?;
        head.version = http::Version::HTTP_11;
        head.headers.entry(HOST).or_insert_with(|| self.host.clone());
        let body = body.map_err(|error| io::Error::other(error.to_string())).boxed_unsync();
        let response = sender.send_request(Request::from_parts(head, body)).await;
        let response = response.map_err(|error| self.failed(Cause::UpstreamClosed, error))?;
        Ok(response.map(|body| Body::stream(body.map_err(|error| BodyError::Io(io::Error::other(error))))))
    }

    fn connect_timeout(&self) -> Duration {
        self.endpoint.connect_timeout.map_or(self.endpoint.timeout, |limit| limit.min(self.endpoint.timeout))
    }
}

impl Caller for ProxiedCaller {
    fn send<'a>(&'a self, request: Request<Body>) -> Call<'a, Response<Body>> {
        Box::pin(self.request(request))
    }

    fn open(&self) -> Call<'_, Tunnel> {
        Box::pin(async move { Ok(Box::new(self.connect().await?) as Tunnel) })
    }

    fn timeout(&self) -> Duration {
        self.endpoint.timeout
    }

    fn timeout_setting(&self) -> &'static str {
        self.endpoint.timeout_setting
    }

    fn max_response(&self) -> u64 {
        self.endpoint.max_response
    }
}

#[cfg(test)]
mod tests;
