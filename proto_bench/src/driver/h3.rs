//! HTTP/3 on quinn and h3. Each connection has a UDP socket of its own, as each client in the world has; servers that
//! spread load by address would otherwise see one client.

use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use h3::error::{Code, StreamError};
use h3_quinn::OpenStreams;
use http::header::CONTENT_LENGTH;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Endpoint, TransportConfig, VarInt};
use tokio::task::spawn_local;

use super::choice::Choice;
use super::h2::{H2Plan, Head, LARGEST_BODY, verify};
use super::{Driver, Fault, Lane, NewConnection, Pattern, Stamp, VerifiedAnswer};
use crate::plan::{Method, Plan};
use crate::tls;

/// Opens HTTP/3 connections.
pub struct H3 {
    address: SocketAddr,
    host: String,
    config: ClientConfig,
    shape: Rc<Choice<H2Plan>>,
    streams: u32,
}

/// One place for a request in flight on a connection.
pub struct Stream {
    sender: SendRequest<OpenStreams, Bytes>,
    shape: Rc<Choice<H2Plan>>,
    body: Vec<u8>,
    _endpoint: Endpoint,
}

impl H3 {
    /// Prepares what all connections of a thread share.
    ///
    /// # Errors
    /// What makes every connection impossible, such as an unreadable root certificate.
    pub fn new(plan: &Rc<Plan>) -> Result<Self, Fault> {
        let payload = if plan.message.method == Method::Get { 0 } else { plan.message.payload };
        let shape = Choice::new(plan, |plan| {
            Ok(H2Plan {
                head: Head::new(plan)?,
                pattern: Pattern::new(payload),
                expect: plan.expect,
                content: plan.content.clone(),
            })
        })?;
        Ok(Self {
            address: plan.address(),
            host: plan.target.host.clone(),
            config: client_config(plan)?,
            shape: Rc::new(shape),
            streams: plan.load.streams.max(1),
        })
    }
}

impl Driver for H3 {
    type Lane = Stream;

    async fn connect(&self) -> Result<NewConnection<Stream>, Fault> {
        let any: SocketAddr = match self.address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let endpoint = Endpoint::client(any).map_err(Fault::Connect)?;
        let connecting =
            endpoint.connect_with(self.config.clone(), self.address, &self.host).map_err(Fault::handshake)?;
        let connection = connecting.await.map_err(Fault::handshake)?;
        let (mut driving, sender) = h3::client::builder()
            .build::<_, _, Bytes>(h3_quinn::Connection::new(connection))
            .await
            .map_err(Fault::handshake)?;
        // Its errors reach every lane through their requests.
        spawn_local(async move { drop(poll_fn(|cx| driving.poll_close(cx)).await) });
        let lane = || Stream {
            sender: sender.clone(),
            shape: Rc::clone(&self.shape),
            body: Vec::new(),
            _endpoint: endpoint.clone(),
        };
        let negotiated = Some("QUIC v1, TLSv1_3".to_owned());
        Ok(NewConnection { lanes: (0..self.streams).map(|_| lane()).collect(), negotiated })
    }
}

fn client_config(plan: &Plan) -> Result<ClientConfig, Fault> {
    let tls = tls::client_config(plan.target.protocol.alpn(), plan.verify_tls.as_deref());
    let crypto = QuicClientConfig::try_from(tls.map_err(Fault::handshake)?).map_err(Fault::handshake)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(VarInt::from_u32(1024 * 1024));
    transport.receive_window(VarInt::from_u32(16 * 1024 * 1024));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

impl Lane for Stream {
    async fn round_trip(&mut self, stamp: Stamp) -> Result<VerifiedAnswer, Fault> {
        let choice = Rc::clone(&self.shape);
        let shape = choice.at(choice.place(stamp));
        let size = shape.pattern.size();
        let mut request = shape.head.request(stamp);
        *request.version_mut() = http::Version::HTTP_3;
        if size > 0 {
            request.headers_mut().insert(CONTENT_LENGTH, size.into());
        }
        let mut stream = self.sender.send_request(request).await.map_err(unsent)?;
        if size > 0 {
            let mut payload = vec![0; size];
            shape.pattern.write(stamp, &mut payload);
            stream.send_data(payload.into()).await.map_err(fault)?;
        }
        stream.finish().await.map_err(fault)?;
        let (head, ()) = stream.recv_response().await.map_err(fault)?.into_parts();
        self.body.clear();
        while let Some(mut chunk) = stream.recv_data().await.map_err(fault)? {
            while chunk.has_remaining() {
                let piece = chunk.chunk();
                self.body.extend_from_slice(piece);
                let length = piece.len();
                chunk.advance(length);
            }
            if self.body.len() > LARGEST_BODY {
                return Err(Fault::protocol("body above 64 MiB"));
            }
        }
        verify(shape, &head, stamp, &self.body)
    }
}

fn fault(error: StreamError) -> Fault {
    match error {
        // RFC 9114 §5.2: requests above the GOAWAY's identifier were not processed, nor were those that the server rejects.
        StreamError::RemoteClosing { .. }
        | StreamError::RemoteTerminate { code: Code::H3_REQUEST_REJECTED, .. } => Fault::Unprocessed,
        error => Fault::protocol(error),
    }
}

/// The same for a request of which nothing was sent.
fn unsent(error: StreamError) -> Fault {
    if error.is_h3_no_error() { Fault::Unprocessed } else { fault(error) }
}
