//! An HTTP/3 echo server on quinn and h3, one endpoint a thread.

use std::error::Error;
use std::io;
use std::net::UdpSocket;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use h3::server::RequestStream;
use h3_quinn::BidiStream;
use http::Request;
use http::header::CONTENT_LENGTH;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use tokio::task::spawn_local;

use super::h2::answer_to;
use super::{Kit, answer};
use crate::tls;

type Failure = Box<dyn Error>;

/// Serves one socket beside what else its thread does.
pub(super) fn start(socket: UdpSocket, kit: &Kit) -> io::Result<()> {
    let tls = tls::server_config(&kit.identity, &[b"h3"]).map_err(io::Error::other)?;
    let crypto = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(VarInt::from_u32(1000));
    transport.stream_receive_window(VarInt::from_u32(1024 * 1024));
    transport.receive_window(VarInt::from_u32(16 * 1024 * 1024));
    config.transport_config(Arc::new(transport));
    let runtime = Arc::new(TokioRuntime);
    let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime)?;
    spawn_local(async move {
        while let Some(incoming) = endpoint.accept().await {
            spawn_local(async move { drop(serve(incoming).await) });
        }
    });
    Ok(())
}

async fn serve(incoming: quinn::Incoming) -> Result<(), Failure> {
    let connection = h3_quinn::Connection::new(incoming.await?);
    let mut connection = h3::server::builder().build::<_, Bytes>(connection).await?;
    while let Some(resolver) = connection.accept().await? {
        spawn_local(async move {
            let Ok((request, stream)) = resolver.resolve_request().await else { return };
            // A failed stream is the client's to notice.
            drop(answer_one(request, stream).await);
        });
    }
    Ok(())
}

async fn answer_one(
    request: Request<()>,
    mut stream: RequestStream<BidiStream<Bytes>, Bytes>,
) -> Result<(), Failure> {
    let mut body = BytesMut::new();
    while let Some(mut chunk) = stream.recv_data().await? {
        if body.len() > answer::LARGEST {
            return Err("a body above the limit".into());
        }
        while chunk.has_remaining() {
            body.extend_from_slice(chunk.chunk());
            chunk.advance(chunk.chunk().len());
        }
    }
    let (mut head, own) = answer_to(&request.into_parts().0);
    let body = own.unwrap_or_else(|| body.freeze());
    head.headers_mut().insert(CONTENT_LENGTH, body.len().into());
    stream.send_response(head).await?;
    if !body.is_empty() {
        stream.send_data(body).await?;
    }
    stream.finish().await?;
    Ok(())
}
