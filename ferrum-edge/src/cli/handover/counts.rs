//! Counts of metrics on their way to the successor: a length (four bytes) and JSON. The first come with the sockets, further ones
//! while the gateway drains, the last when it ends.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Mutex;

use crate::engine::Engine;
use crate::export::inherited::CountTable;

/// Bytes of all counts: those of 100,000 proxies take about 100 MiB.
const MAX_BYTES: usize = 256 << 20;
/// From one message to the next while the gateway drains.
const INTERVAL: Duration = Duration::from_secs(15);
/// How long a message may take.
const TIMEOUT: Duration = Duration::from_secs(5);

fn encoded(engine: &Engine) -> io::Result<Vec<u8>> {
    let table = CountTable::of(|visitor| engine.visit_continued_metrics(visitor));
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, &table)?;
    let length = bytes.len() - 4;
    if length > MAX_BYTES {
        return Err(io::Error::other(format!("the counts of the metrics have more than {MAX_BYTES} bytes")));
    }
    bytes[..4].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    Ok(bytes)
}

fn length(bytes: [u8; 4]) -> io::Result<usize> {
    let length = usize::try_from(u32::from_be_bytes(bytes)).unwrap_or(usize::MAX);
    if length > MAX_BYTES { Err(io::ErrorKind::InvalidData.into()) } else { Ok(length) }
}

/// The counts of now as a message; `None` if they can't be sent, which is no reason to keep a successor from the sockets.
pub(super) fn message(engine: &Engine) -> Option<Vec<u8>> {
    encoded(engine).inspect_err(|error| tracing::warn!(%error, "the next gateway's counters begin anew")).ok()
}

/// Receives counts; `None` if they are of another version. Blocks this thread.
///
/// # Errors
/// The gateway does not send them whole.
pub(super) fn receive_now(mut stream: &UnixStream) -> io::Result<Option<CountTable>> {
    let mut head = [0; 4];
    stream.read_exact(&mut head)?;
    let mut bytes = vec![0; length(head)?];
    stream.read_exact(&mut bytes)?;
    let read = serde_json::from_slice(&bytes);
    Ok(read.inspect_err(|error| tracing::warn!(%error, "this gateway's counters begin anew")).ok())
}

/// The counts of a gateway that drains, on their way to its successor.
#[derive(Default)]
pub(super) struct SuccessorCounts(Mutex<Option<tokio::net::UnixStream>>);

impl SuccessorCounts {
    /// Sends counts to the successor from now on, until it or this gateway ends.
    pub(super) async fn begin(self: Arc<Self>, stream: tokio::net::UnixStream, engine: &Arc<Engine>) {
        *self.0.lock().await = Some(stream);
        let engine = Arc::downgrade(engine);
        drop(tokio::spawn(async move {
            while let Some(engine) = engine.upgrade() {
                if !self.send(&engine).await {
                    return;
                }
                drop(engine);
                tokio::time::sleep(INTERVAL).await;
            }
        }));
    }

    /// Sends the counts of now; false without a successor.
    pub(super) async fn send(&self, engine: &Arc<Engine>) -> bool {
        let mut stream = self.0.lock().await;
        let Some(successor) = &mut *stream else { return false };
        if let Err(error) = send(successor, engine).await {
            tracing::warn!(%error, "the gateway behind this one takes no counts of the metrics");
            *stream = None;
        }
        stream.is_some()
    }
}

async fn send(stream: &mut tokio::net::UnixStream, engine: &Arc<Engine>) -> io::Result<()> {
    let engine = engine.clone();
    let bytes = tokio::task::spawn_blocking(move || encoded(&engine)).await.map_err(io::Error::other)??;
    tokio::time::timeout(TIMEOUT, stream.write_all(&bytes)).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Continues the counts of the gateway that drains, until it has ended.
pub(super) async fn keep_receiving(stream: UnixStream, engine: Arc<Engine>) {
    let receiving = async {
        stream.set_nonblocking(true)?;
        let mut stream = tokio::net::UnixStream::from_std(stream)?;
        loop {
            let mut head = [0; 4];
            if stream.read_exact(&mut head).await.is_err() {
                return Ok::<(), io::Error>(());
            }
            let mut bytes = vec![0; length(head)?];
            stream.read_exact(&mut bytes).await?;
            let read = move || serde_json::from_slice::<CountTable>(&bytes);
            let table = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
            engine.continue_counts(Some(Arc::new(table)));
        }
    };
    if let Err(error) = receiving.await {
        tracing::warn!(%error, "metrics miss what the gateway before this one counted at its end");
    }
}
