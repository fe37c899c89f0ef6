//! Lines or messages over a connection that is kept, plain or by TLS.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use gateway_core::http::tunnel::Tunnel;
use gateway_core::plugin::world::calls::Client;
use gateway_telemetry::batch::Chunk;
use gateway_telemetry::deliver::{Deliver, Delivered, Failed};
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::sync::Mutex;

/// How long writing one batch may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends batches over one connection, opened anew when it is gone.
pub(super) struct StreamSender {
    client: Client,
    /// Ends a batch with a line feed.
    lines: bool,
    kept: Mutex<Option<Tunnel>>,
}

impl StreamSender {
    pub(super) fn new(client: Client, lines: bool) -> Self {
        Self { client, lines, kept: Mutex::new(None) }
    }
}

impl Deliver for StreamSender {
    async fn deliver(&self, chunk: &Chunk) -> Result<Delivered, Failed> {
        let mut kept = self.kept.lock().await;
        let mut before = kept.take();
        // The runtime looks at its sockets: a server's end that it has not seen yet would take this batch along, uncounted.
        tokio::task::yield_now().await;
        if let Some(stream) = &mut before
            && is_closed(stream).await
        {
            before = None;
        }
        let mut stream = match before {
            Some(stream) => stream,
            None => self.client.open().await.map_err(|error| Failed::passing(error.to_string()))?,
        };
        let writing = async {
            stream.write_all(&chunk.bytes).await?;
            if self.lines {
                stream.write_all(b"\n").await?;
            }
            stream.flush().await
        };
        match tokio::time::timeout(TIMEOUT, writing).await {
            Ok(Ok(())) => {
                *kept = Some(stream);
                Ok(Delivered::default())
            }
            Ok(Err(error)) => Err(Failed::passing(error.to_string())),
            Err(_) => Err(Failed::passing("the server did not take a batch in time")),
        }
    }
}

/// Whether the server has closed: it sends nothing, so that its end is all there is to read. What it says is thrown away.
async fn is_closed(stream: &mut Tunnel) -> bool {
    let mut space = [0; 512];
    poll_fn(|cx| {
        // As much as it may have said since the last batch; more is looked at with the next one.
        for _ in 0..16 {
            let mut read = ReadBuf::new(&mut space);
            match Pin::new(&mut *stream).poll_read(cx, &mut read) {
                Poll::Pending => return Poll::Ready(false),
                Poll::Ready(Ok(())) if !read.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(true),
            }
        }
        Poll::Ready(false)
    })
    .await
}
