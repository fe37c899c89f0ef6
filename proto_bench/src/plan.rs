//! What is to be run: whom to load, with which messages, at which pace, and what counts as a right answer.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

mod target;

pub use target::{Target, TargetError};

/// An application protocol; whether it runs over TLS is a property of the [`Target`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    Http1,
    Http2,
    Http3,
    Grpc,
    WebSocket,
    Tcp,
    Udp,
    Dtls,
}

/// Everything one round needs to know.
#[derive(Debug, Clone)]
pub struct Plan {
    pub target: Target,
    pub load: Load,
    pub timing: Timing,
    pub message: Message,
    pub expect: Expect,
    /// Several URLs of the server with their weights, where there are several, the target's among them (HTTP).
    pub urls: Vec<WeightedUrl>,
    /// The body that every answer must have, where it is known beforehand.
    pub content: Bytes,
    /// The coding in which answers must have that body (HTTP/1.1).
    pub coding: Option<Coding>,
    /// Threads of the generator; each has its own runtime and its share of the connections.
    pub threads: usize,
    /// Whether server certificates are verified against the system's or the given roots. Off by default, because
    /// benches run on self-made certificates.
    pub verify_tls: Option<std::path::PathBuf>,
}

/// One of several URLs of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightedUrl {
    /// Path and query.
    pub path: String,
    /// How many requests it gets beside those of the other URLs.
    pub weight: u32,
    pub expect: Expect,
}

/// How much is asked at once, and who decides when.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub connections: u32,
    /// Requests in flight on one connection; more than 1 only where the protocol multiplexes.
    pub streams: u32,
    pub pace: Pace,
}

/// Who decides when the next request starts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pace {
    /// Each lane sends when its last answer is there.
    Closed,
    /// Requests start by the clock, this many a second over all connections, whatever the server does.
    Open { rate: f64 },
}

/// Durations of one round.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Load that is not counted, before the window.
    pub warm_up: Duration,
    /// The measured window.
    pub duration: Duration,
    /// How long one answer may take before it is an error.
    pub timeout: Duration,
    /// How long all connections together may take to open.
    pub connect: Duration,
}

/// What is sent.
#[derive(Debug, Clone)]
pub struct Message {
    pub method: Method,
    /// Bytes of the request's payload (of a stream's or datagram's message).
    pub payload: usize,
    /// Further request headers of HTTP family protocols.
    pub headers: Vec<(String, String)>,
    /// A new connection for each request.
    pub fresh: bool,
    /// What a POST of HTTP/1.1 sends in place of stamped bytes, where the server looks at what it gets.
    pub body: Option<Bytes>,
    /// [`STAMP_MARK`] in the path, in headers and in `body` is each request's stamp (HTTP/1.1).
    pub varied: bool,
}

/// Stands for a request's stamp in hexadecimal, where a message is varied.
pub const STAMP_MARK: &str = "{stamp}";

/// The HTTP methods a generator needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    Post,
    Get,
}

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    Gzip,
}

/// What an answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expect {
    pub status: u16,
    pub body: ExpectBody,
    /// Another status that is right as well, whatever its body: a refusal that the test asks for (HTTP/1.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<u16>,
}

/// What an answer's body must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExpectBody {
    /// The request's payload, every byte.
    Echo,
    /// Exactly the bytes of [`Plan::content`], this many.
    Content(usize),
    /// Exactly this many bytes, content unchecked.
    Size(usize),
    /// Nothing is checked but the framing.
    Unverified,
}

impl ExpectBody {
    /// Whether every byte of an answer is checked.
    #[must_use]
    pub fn is_verified(self) -> bool {
        matches!(self, Self::Echo | Self::Content(_))
    }
}

impl Plan {
    /// A plan with the defaults of the command line: 200 connections, 10 s after 2 s of warm-up, 64 bytes, echo.
    #[must_use]
    pub fn new(target: Target) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            target,
            load: Load { connections: 200, streams: 1, pace: Pace::Closed },
            timing: Timing::default(),
            message: Message {
                method: Method::Post,
                payload: 64,
                headers: Vec::new(),
                fresh: false,
                body: None,
                varied: false,
            },
            expect: Expect { status: 200, body: ExpectBody::Echo, refused: None },
            urls: Vec::new(),
            content: Bytes::new(),
            coding: None,
            threads,
            verify_tls: None,
        }
    }

    /// Expects these bytes as the body of every answer.
    pub fn expect_content(&mut self, content: Bytes) {
        self.expect.body = ExpectBody::Content(content.len());
        self.content = content;
    }

    /// A plan for each URL, with its weight.
    #[must_use]
    pub fn each(&self) -> Vec<(Self, u32)> {
        if self.urls.is_empty() {
            return vec![(self.clone(), 1)];
        }
        let one = |url: &WeightedUrl| {
            let target = Target { path: url.path.clone(), ..self.target.clone() };
            (Self { target, expect: url.expect, urls: Vec::new(), ..self.clone() }, url.weight)
        };
        self.urls.iter().map(one).collect()
    }

    /// Requests in flight at most.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.load.connections.saturating_mul(self.load.streams.max(1))
    }

    /// Where to connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.target.address
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            warm_up: Duration::from_secs(2),
            duration: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            connect: Duration::from_secs(15),
        }
    }
}

impl Protocol {
    pub const ALL: [Self; 8] = [
        Self::Http1,
        Self::Http2,
        Self::Http3,
        Self::Grpc,
        Self::WebSocket,
        Self::Tcp,
        Self::Udp,
        Self::Dtls,
    ];

    /// Whether several requests share a connection.
    #[must_use]
    pub fn multiplexes(self) -> bool {
        matches!(self, Self::Http2 | Self::Http3 | Self::Grpc)
    }

    /// Whether answers carry an HTTP status.
    #[must_use]
    pub fn has_status(self) -> bool {
        matches!(self, Self::Http1 | Self::Http2 | Self::Http3 | Self::Grpc)
    }

    /// The protocol names offered in the TLS handshake.
    #[must_use]
    pub fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http1 | Self::WebSocket => &[b"http/1.1"],
            Self::Http2 | Self::Grpc => &[b"h2"],
            Self::Http3 => &[b"h3"],
            Self::Tcp | Self::Udp | Self::Dtls => &[],
        }
    }
}

/// The text names no method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("write POST or GET")]
pub struct UnknownMethod;

impl FromStr for Method {
    type Err = UnknownMethod;

    fn from_str(text: &str) -> Result<Self, UnknownMethod> {
        match text.to_ascii_uppercase().as_str() {
            "POST" => Ok(Self::Post),
            "GET" => Ok(Self::Get),
            _ => Err(UnknownMethod),
        }
    }
}

impl Method {
    /// The method as it stands on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Post => "POST",
            Self::Get => "GET",
        }
    }
}
