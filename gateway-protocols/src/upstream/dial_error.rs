//! Why no connection to a target was made.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gateway_core::http::body::Body;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::http::upstream::Failure;
use http::HeaderValue;
use http::header::RETRY_AFTER;
use quinn::crypto::rustls::NoInitialCipherSuite;

use crate::dns::DnsError;
use crate::tls::client::ClientTlsError;
use crate::tls::{is_about_certificate, preventing_setting, remedy};

/// Why no QUIC connection came about.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuicError {
    #[error("QUIC: {0}")]
    Config(#[from] NoInitialCipherSuite),
    #[error("QUIC: the name has no address")]
    NoAddress,
    #[error("QUIC: {0}")]
    Socket(#[from] io::Error),
    #[error("QUIC: {0}")]
    Connect(#[from] quinn::ConnectError),
    #[error("QUIC: {0}")]
    Connection(#[from] quinn::ConnectionError),
}

/// What the client is answered when a target has as many connections as it may have.
fn full() -> Box<Reply> {
    let soon = HeaderValue::from_static("1");
    Box::new(Reply::new(Cause::NoTarget).reason("targets_full").header(RETRY_AFTER, soon))
}

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error(transparent)]
    Dns(#[from] DnsError),
    #[error("connect to {address}: {source}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("connect to {host}: {source}")]
    Socket { host: Arc<str>, source: io::Error },
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    #[error(
        "TCP to {address} is connected, but the TLS handshake does not end within {within:?}: does the target speak TLS?"
    )]
    Silent { address: String, within: Duration },
    #[error("{host} does not agree to TLS in plain text: {source}")]
    Starttls { host: Arc<str>, source: io::Error },
    #[error("TLS to {host}: {source}{}", remedy(source))]
    Handshake { host: Arc<str>, source: io::Error },
    #[error(transparent)]
    TlsRules(#[from] ClientTlsError),
    #[error(transparent)]
    Quic(#[from] QuicError),
    #[error("the target does not speak HTTP/2")]
    NoHttp2,
    #[error("every connection to the target carries all it may")]
    Full,
    #[error("the target has as many connections as its `max_connections` allows")]
    NoPlace {
        /// Whether it was waited for.
        waited: bool,
    },
}

impl DialError {
    /// Each connection that the target may have is in use.
    pub(crate) const ALL_BUSY: Self = Self::NoPlace { waited: false };

    /// The row of the reply table it belongs to.
    pub(crate) fn cause(&self) -> Cause {
        match self {
            Self::Dns(_) => Cause::DnsFailed,
            Self::Connect { source, .. } if source.kind() == io::ErrorKind::TimedOut => Cause::ConnectTimeout,
            Self::Connect { .. } | Self::Socket { .. } | Self::Quic(_) => Cause::ConnectFailed,
            Self::Timeout(_) => Cause::ConnectTimeout,
            Self::Handshake { source, .. } if is_about_certificate(source) => Cause::TlsCertificate,
            Self::Handshake { .. } | Self::Starttls { .. } | Self::Silent { .. } | Self::TlsRules(_) => {
                Cause::TlsFailed
            }
            Self::NoHttp2 => Cause::VersionUnsupported,
            Self::Full => Cause::Overloaded,
            Self::NoPlace { .. } => Cause::NoTarget,
        }
    }

    /// The failed attempt; the body was not touched.
    pub(crate) fn into_failure(self, body: Body) -> Failure {
        tracing::debug!(error = %self, "no connection to the target");
        let failure = Failure::unsent(self.cause(), body);
        match &self {
            // Says nothing about the target. Whoever was too late for the last place looks for another one.
            Self::NoPlace { waited } => {
                Failure { stale: !waited, reply: Some(full()), ..failure }.source(self)
            }
            Self::Handshake { source, .. } if is_about_certificate(source) => {
                let setting = preventing_setting(source);
                failure.source(self).prevented_by(setting)
            }
            _ => failure.source(self),
        }
    }
}
