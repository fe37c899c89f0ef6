//! Copies on their way: a bounded queue, and the task that empties it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gateway_core::http::body::Body;
use gateway_core::plugin::world::calls::Client;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use http::{HeaderMap, Method, Request};
use tokio::sync::Mutex;
use tokio::sync::mpsc::{self, Receiver, Sender};

use super::Counts;

/// Copies that may wait; further ones are dropped.
pub(super) const MAX_WAITING: usize = 256;

/// A request to be sent once more.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) method: Method,
    /// Path and query.
    pub(super) target: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// Copies that wait. It outlives a change of settings.
pub(super) struct Queue {
    sender: Sender<Copy>,
    receiver: Mutex<Receiver<Copy>>,
}

impl Copy {
    pub(super) fn with_body(self, body: Bytes) -> Self {
        Self { body, ..self }
    }

    fn into_request(self) -> Result<Request<Body>, http::Error> {
        let mut request =
            Request::builder().method(self.method).uri(self.target).body(Body::full(self.body))?;
        *request.headers_mut() = self.headers;
        Ok(request)
    }
}

impl Queue {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(MAX_WAITING);
        Self { sender, receiver: Mutex::new(receiver) }
    }

    /// Takes a copy, or drops and counts it.
    pub(super) fn put(&self, copy: Copy, dropped: &Counter) {
        if self.sender.try_send(copy).is_err() {
            dropped.add(1);
        }
    }
}

/// Sends what is in the queue until the plugin ends, so many at a time.
pub(super) async fn send(
    queue: Arc<Queue>,
    client: Client,
    max_in_flight: usize,
    timeout: Duration,
    counts: Counts,
    mut control: TaskControl,
) -> Result<(), TaskError> {
    // The task of the settings before this may still hold it for a moment.
    let mut receiver = tokio::select! {
        receiver = queue.receiver.lock() => receiver,
        () = control.ended() => return Ok(()),
    };
    let mut under_way = FuturesUnordered::new();
    loop {
        let has_room = under_way.len() < max_in_flight;
        tokio::select! {
            () = control.ended() => return Ok(()),
            copy = receiver.recv(), if has_room => {
                let Some(copy) = copy else { return Ok(()) };
                under_way.push(one(&client, copy, timeout));
            }
            Some(was_sent) = under_way.next() => {
                if was_sent { &counts.sent } else { &counts.failed }.add(1);
            }
        }
    }
}

/// Sends one copy and throws its answer away; says whether there was one.
async fn one(client: &Client, copy: Copy, timeout: Duration) -> bool {
    let Ok(request) = copy.into_request() else { return false };
    let Ok(response) = client.send(request).await else { return false };
    let mut body = response.into_body();
    // Read to its end, so that the connection can be used again.
    let reading = async { while let Some(Ok(_)) = body.frame().await {} };
    // One that takes too long is left.
    drop(tokio::time::timeout(timeout, reading).await);
    true
}

#[cfg(test)]
impl Queue {
    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.sender.capacity() == MAX_WAITING
    }
}
