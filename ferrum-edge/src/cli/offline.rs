//! A request that `test` and `explain` send through a configuration without a socket.

use std::net::{IpAddr, SocketAddr};

use gateway_core::config::model::Model;
use gateway_core::http::body::Body;
use gateway_core::http::exchange::{Client, ClientTls};
use http::header::InvalidHeaderValue;
use http::uri::InvalidUri;
use http::{HeaderMap, HeaderValue, Method, Request, Uri};

/// A request as users write it.
pub(super) struct WrittenRequest<'r> {
    pub(super) method: &'r Method,
    /// A URL, or a path alone.
    pub(super) url: &'r Uri,
    pub(super) headers: &'r HeaderMap,
    pub(super) body: &'r [u8],
    /// The client's address.
    pub(super) client: IpAddr,
    /// The server name in the TLS handshake. For an https URL, its host is the default.
    pub(super) tls: Option<&'r str>,
}

/// A request with a URL that cannot be sent.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnsendableRequest {
    #[error("{target}: {error}")]
    Target { target: String, error: InvalidUri },
    #[error(transparent)]
    Host(#[from] InvalidHeaderValue),
}

impl WrittenRequest<'_> {
    /// The request as a client sends it: the path in the request line, the authority in `Host`.
    ///
    /// # Errors
    /// The URL cannot be sent.
    pub(super) fn http(&self) -> Result<Request<Body>, UnsendableRequest> {
        let mut request = Request::new(Body::full(self.body.to_vec()));
        *request.method_mut() = self.method.clone();
        let target = self.url.path_and_query().map_or("/", |target| target.as_str());
        let refused = |error| UnsendableRequest::Target { target: target.to_owned(), error };
        *request.uri_mut() = target.parse().map_err(refused)?;
        request.headers_mut().clone_from(self.headers);
        if let (Some(authority), false) = (self.url.authority(), self.headers.contains_key("host")) {
            let host = HeaderValue::from_str(authority.as_str())?;
            request.headers_mut().insert("host", host);
        }
        if !self.body.is_empty() {
            request.headers_mut().insert("content-length", self.body.len().into());
        }
        Ok(request)
    }

    /// The client, as a gateway with these settings sees it. If the URL has no port, the main listener receives the request.
    pub(super) fn client(&self, model: &Model) -> Client {
        let settings = &model.settings;
        let is_encrypted = self.tls.is_some() || self.url.scheme_str() == Some("https");
        let main = if is_encrypted { settings.https } else { settings.http };
        let port = self.url.port_u16().or_else(|| main.map(|address| address.port())).unwrap_or_default();
        let server_name = self.tls.or_else(|| self.url.host());
        let tls = is_encrypted
            .then(|| ClientTls { server_name: server_name.map(Into::into), ..ClientTls::default() });
        let is_trusted = settings.trusted_proxies.iter().any(|net| net.contains(&self.client));
        let local = SocketAddr::from(([127, 0, 0, 1], port));
        Client::new(SocketAddr::new(self.client, 40_000), local, is_trusted, tls)
    }
}
