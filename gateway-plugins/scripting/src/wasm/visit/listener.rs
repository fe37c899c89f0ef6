//! A gRPC stream that a guest has opened: a task of the worker, which ends with the stream's context or instance.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use gateway_core::http::body::{Body, GrpcPrefix};
use http::{HeaderMap, StatusCode};
use tokio::time::Instant;

use super::super::grpc::{GrpcEnd, GrpcEvent, INTERNAL, Outbox, Outgoing, Start, UNKNOWN};
use super::super::host::ROOT;
use super::super::vm::Vm;
use super::Core;

/// How long a stream lasts that fails: a guest that opens it again at once keeps no worker busy.
const SHORTEST: Duration = Duration::from_millis(10);

/// Begins the streams that the guest of this instance has opened.
pub(super) fn begin(core: &Arc<Core>, vm: &mut Vm) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let generation = vm.generation;
    for id in vm.opening() {
        let Some(stream) = vm.host().streams.get_mut(&id) else { continue };
        let Some((start, outbox)) = stream.begin() else { continue };
        let guest = Listener { core: Arc::downgrade(core), generation, id, owner: stream.owner };
        stream.runs_as(runtime.spawn(run(guest, start, outbox)).abort_handle());
    }
}

/// The guest that has opened a stream.
struct Listener {
    core: Weak<Core>,
    generation: u64,
    id: u32,
    owner: u32,
}

impl Listener {
    /// Tells the guest; `None` when it does not listen any more.
    fn tell(&self, event: GrpcEvent) -> Option<()> {
        let core = self.core.upgrade()?;
        match core.with(self.generation, |vm| vm.grpc_event(self.id, event))? {
            Ok(listens) => listens.then_some(()),
            Err(error) => {
                // What becomes of an exchange or session is decided where it goes on.
                if self.owner == ROOT {
                    drop(core.failed(&error));
                }
                None
            }
        }
    }
}

/// A stream from beginning to end.
async fn run(guest: Listener, start: Start, outbox: Arc<Outbox>) {
    let (timeout, soonest) = (start.timeout, Instant::now() + SHORTEST);
    let talking = tokio::time::timeout(timeout, talk(&guest, start, outbox)).await;
    let Some(end) = talking.unwrap_or_else(|_| Some(GrpcEnd::late())) else { return };
    if end.status != 0 {
        tokio::time::sleep_until(soonest).await;
    }
    guest.tell(GrpcEvent::Closed(end));
}

/// How it ended; `None` when the guest does not listen any more.
async fn talk(guest: &Listener, start: Start, outbox: Arc<Outbox>) -> Option<GrpcEnd> {
    let request = start.request.map(|()| Body::stream(Outgoing(outbox)));
    let (head, mut body) = match start.client.send(request).await {
        Ok(response) => response.into_parts(),
        Err(error) => {
            tracing::debug!(%error, "a module's gRPC stream failed");
            return Some(GrpcEnd::failed(&error));
        }
    };
    if body.is_empty() {
        // Nothing but trailers, which came as the head.
        guest.tell(GrpcEvent::Head(None, HeaderMap::new()))?;
        let end = GrpcEnd::of(&head.headers);
        guest.tell(GrpcEvent::Trailers(head.headers))?;
        return Some(end.unwrap_or_else(|| GrpcEnd::of_http(head.status)));
    }
    let status = head.status;
    guest.tell(GrpcEvent::Head(Some(status), head.headers))?;
    if status != StatusCode::OK {
        return Some(GrpcEnd::of_http(status));
    }
    let mut rest = BytesMut::new();
    loop {
        let frame = match std::future::poll_fn(|cx| body.poll_next(cx)).await {
            None => return Some(GrpcEnd::new(UNKNOWN, "the stream ended without a status")),
            Some(Err(error)) => return Some(GrpcEnd::broken(&error)),
            Some(Ok(frame)) => frame,
        };
        match frame.into_data() {
            Ok(data) => {
                rest.extend_from_slice(&data);
                if let Some(end) = messages(guest, &mut rest, start.max_message).await? {
                    return Some(end);
                }
            }
            Err(frame) => {
                let Ok(trailers) = frame.into_trailers() else { continue };
                let end = match rest.is_empty() {
                    true => GrpcEnd::of(&trailers),
                    false => Some(GrpcEnd::new(INTERNAL, "a message is cut off")),
                };
                guest.tell(GrpcEvent::Trailers(trailers))?;
                return Some(
                    end.unwrap_or_else(|| GrpcEnd::new(UNKNOWN, "the stream ended without a status")),
                );
            }
        }
    }
}

/// Tells the guest of the messages that have come whole; the end, where one can't be taken.
async fn messages(guest: &Listener, rest: &mut BytesMut, limit: u64) -> Option<Option<GrpcEnd>> {
    loop {
        let prefix = match GrpcPrefix::read(rest, limit) {
            Ok(Some(prefix)) if rest.len() - GrpcPrefix::BYTES >= prefix.length => prefix,
            Ok(_) => return Some(None),
            Err(error) => return Some(Some(GrpcEnd::broken(&error))),
        };
        if prefix.compressed {
            return Some(Some(GrpcEnd::new(INTERNAL, "a message is compressed, which was not asked for")));
        }
        rest.advance(GrpcPrefix::BYTES);
        guest.tell(GrpcEvent::Message(rest.split_to(prefix.length).freeze()))?;
        // Many small messages at once leave the worker to others in between.
        tokio::task::consume_budget().await;
    }
}
