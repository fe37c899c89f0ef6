//! The dialogues that precede TLS, over sockets.

use std::io;

use bytes::BytesMut;
use gateway_core::stream::starttls::{
    ClientStep, Starttls, TargetDialogue, TargetStep, client_step, greeting,
};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Requests that a client may make before TLS.
const MAX_REQUESTS: usize = 32;

/// Answers a client until TLS begins. What it sent of TLS is in `ahead` then.
///
/// # Errors
/// Why the connection ends; a stable word for its record.
pub(crate) async fn answer_client(
    tcp: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ahead: &mut BytesMut,
    protocol: Starttls,
) -> Result<(), &'static str> {
    send(tcp, greeting(protocol)).await.map_err(|_| "client_reset")?;
    let mut requests = 0;
    loop {
        match client_step(protocol, ahead) {
            ClientStep::More => match tcp.read_buf(ahead).await {
                Ok(0) => return Err("closed_early"),
                Ok(_) => {}
                Err(_) => return Err("client_reset"),
            },
            ClientStep::Answer(_) if requests >= MAX_REQUESTS => return Err("starttls_missing"),
            ClientStep::Answer(text) => {
                requests += 1;
                send(tcp, &text).await.map_err(|_| "client_reset")?;
            }
            ClientStep::Begin(text) => return send(tcp, &text).await.map_err(|_| "client_reset"),
            ClientStep::End(text, reason) => {
                // The client may be gone.
                drop(send(tcp, &text).await);
                return Err(reason);
            }
        }
    }
}

/// Carries out a dialogue with a target, and reads nothing behind its end.
///
/// # Errors
/// What the target said instead, or what the system says.
pub(crate) async fn ask_target(
    link: &mut (impl AsyncRead + AsyncWrite + Unpin),
    mut dialogue: TargetDialogue,
) -> io::Result<()> {
    send(link, dialogue.opening()).await?;
    let mut received = BytesMut::new();
    loop {
        match dialogue.step(&mut received) {
            TargetStep::More => {
                if link.read_buf(&mut received).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            TargetStep::Send(text) => send(link, text).await?,
            TargetStep::Ready => return Ok(()),
            TargetStep::Failed(why) => return Err(io::Error::new(io::ErrorKind::InvalidData, why)),
        }
    }
}

async fn send(link: &mut (impl AsyncWrite + Unpin), text: &[u8]) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    link.write_all(text).await?;
    link.flush().await
}
