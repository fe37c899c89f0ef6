//! A server that the gateway itself sends requests to: which one, how, and for how long.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::InvalidUri;

use super::model::{Backend, BackendHttp, BackendTls, Id, Scheme, TargetRules, Timeouts, Upstream};
use super::problem::without_user;

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
    pub max_response: u64,
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

/// Why nothing can be called at a URL. URLs are shown without user and password.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// It is not a URL.
    #[error("`{url}` is not a URL: {error}")]
    Syntax {
        /// The text.
        url: String,
        /// What is wrong with it.
        #[source]
        error: InvalidUri,
    },
    /// Another scheme, or none.
    #[error("`{0}` must begin with `http://` or `https://`")]
    Scheme(String),
    /// There is no host.
    #[error("`{0}` names no server")]
    NoServer(String),
    /// It has a user or a password.
    #[error("a URL here must not carry a user name or password")]
    Credentials,
}

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
            max_response: MAX_RESPONSE_BYTES,
        }
    }

    /// The server of an `http` or `https` URL; its path is not part of the endpoint.
    ///
    /// # Errors
    /// What is wrong with the URL.
    pub fn of_url(url: &str) -> Result<(Self, Uri), EndpointError> {
        let shown = without_user(url);
        let no_url = |error| EndpointError::Syntax { url: shown.to_string(), error };
        let uri: Uri = url.parse().map_err(no_url)?;
        let encrypted = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(EndpointError::Scheme(shown.to_string())),
        };
        let no_server = || EndpointError::NoServer(shown.to_string());
        let authority = uri.authority().ok_or_else(no_server)?;
        if authority.as_str().contains('@') {
            return Err(EndpointError::Credentials);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(no_server());
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
            rare: None,
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
