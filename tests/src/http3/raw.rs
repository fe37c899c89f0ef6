//! HTTP/3 written out by hand over QUIC, so that a test can say what no library would.

use std::net::SocketAddr;
use std::sync::Arc;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, RecvStream, SendStream, ServerConfig,
    TransportConfig,
};

use crate::support::{soon, tls};

/// A control stream that says nothing special.
pub(crate) const PLAIN: &[u8] = &[0, 4, 0];

/// One end of a connection.
pub(crate) struct Raw {
    pub(crate) quic: Connection,
    _endpoint: Option<Endpoint>,
    /// The control stream; dropped, it would end, and the connection with it.
    pub(crate) control: SendStream,
}

impl Raw {
    /// A client whose control stream begins with these octets.
    pub(crate) async fn open(to: SocketAddr, control: &[u8]) -> Self {
        let endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let crypto = QuicClientConfig::try_from(tls::authority().client(&["h3"])).unwrap();
        let config = ClientConfig::new(Arc::new(crypto));
        let quic = soon(endpoint.connect_with(config, to, "gateway.test").unwrap()).await.unwrap();
        Self::on(quic, Some(endpoint), control).await
    }

    async fn on(quic: Connection, endpoint: Option<Endpoint>, octets: &[u8]) -> Self {
        let mut control = soon(quic.open_uni()).await.unwrap();
        soon(control.write_all(octets)).await.unwrap();
        Self { quic, _endpoint: endpoint, control }
    }

    /// Opens a unidirectional stream with these octets.
    pub(crate) async fn uni(&self, octets: &[u8]) -> SendStream {
        let mut stream = soon(self.quic.open_uni()).await.unwrap();
        soon(stream.write_all(octets)).await.unwrap();
        stream
    }

    /// Opens a request's stream with these octets.
    pub(crate) async fn begin(&self, octets: &[u8]) -> (SendStream, RecvStream) {
        let (mut send, recv) = soon(self.quic.open_bi()).await.unwrap();
        // The gateway may close before all of it is written.
        drop(soon(send.write_all(octets)).await);
        (send, recv)
    }

    /// A whole request and the octets of its answer.
    pub(crate) async fn ask(&self, octets: &[u8]) -> Result<Vec<u8>, quinn::ReadToEndError> {
        let (mut send, mut recv) = self.begin(octets).await;
        drop(send.finish());
        soon(recv.read_to_end(1 << 20)).await
    }

    /// The code with which the other side closed.
    pub(crate) async fn closed(&self) -> u64 {
        match soon(self.quic.closed()).await {
            ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
            other => panic!("{other}"),
        }
    }
}

/// An origin; each connection it accepts is the test's.
pub(crate) struct RawOrigin {
    endpoint: Endpoint,
    pub(crate) address: SocketAddr,
}

impl RawOrigin {
    pub(crate) fn start() -> Self {
        Self::with_streams(100)
    }

    /// One that allows so many requests at a time.
    pub(crate) fn with_streams(most: u32) -> Self {
        let crypto = QuicServerConfig::try_from(tls::server(tls::localhost(), &["h3"])).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        let mut transport = TransportConfig::default();
        transport.max_concurrent_bidi_streams(most.into());
        config.transport_config(Arc::new(transport));
        let endpoint = Endpoint::server(config, any).unwrap();
        Self { address: endpoint.local_addr().unwrap(), endpoint }
    }

    /// The next connection, with a control stream that begins with these octets.
    pub(crate) async fn accept(&self, control: &[u8]) -> Raw {
        let incoming = soon(self.endpoint.accept()).await.unwrap();
        Raw::on(soon(incoming.accept().unwrap()).await.unwrap(), None, control).await
    }
}

/// A number of QUIC (RFC 9000 §16).
fn varint(value: usize) -> Vec<u8> {
    match u16::try_from(value).unwrap() {
        small @ ..0x40 => vec![small as u8],
        large => (large | 0x4000).to_be_bytes().to_vec(),
    }
}

/// A frame.
pub(crate) fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
    [&varint(kind.into())[..], &varint(payload.len()), payload].concat()
}

/// HEADERS with these fields, all of them written out (RFC 9204 §4.5.6).
pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in fields {
        number(&mut section, 0x20, 3, name.len());
        section.extend_from_slice(name.as_bytes());
        number(&mut section, 0, 7, value.len());
        section.extend_from_slice(value.as_bytes());
    }
    frame(1, &section)
}

fn number(out: &mut Vec<u8>, first: u8, prefix: u8, value: usize) {
    let most = (1 << prefix) - 1;
    if value < most {
        return out.push(first | value as u8);
    }
    out.push(first | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The head of a request, with more fields.
pub(crate) fn request(method: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let line = [(":method", method), (":scheme", "https"), (":authority", "a.test"), (":path", "/raw")];
    headers(&[&line[..], more].concat())
}

/// The frames of an answer.
pub(crate) fn frames(mut octets: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut frames = Vec::new();
    while !octets.is_empty() {
        let kind = take_varint(&mut octets);
        let length = usize::try_from(take_varint(&mut octets)).unwrap();
        let (payload, rest) = octets.split_at(length);
        frames.push((kind, payload.to_vec()));
        octets = rest;
    }
    frames
}

fn take_varint(octets: &mut &[u8]) -> u64 {
    let (number, rest) = octets.split_at(1 << (octets[0] >> 6));
    *octets = rest;
    number[1..].iter().fold(u64::from(number[0] & 0x3f), |value, octet| value << 8 | u64::from(*octet))
}

/// Whether an answer begins with this status, as the static table or its name there has it.
pub(crate) fn says(answer: &[u8], status: u16) -> bool {
    let frames = frames(answer);
    let Some((1, section)) = frames.first() else { return false };
    match status {
        200 => section.starts_with(&[0, 0, 0xd9]),
        404 => section.starts_with(&[0, 0, 0xdb]),
        400 => section.starts_with(&[0, 0, 0xff, 4]),
        403 => section.starts_with(&[0, 0, 0xff, 5]),
        other => section.starts_with(&[&[0, 0, 0x5f, 9, 3], other.to_string().as_bytes()].concat()),
    }
}
