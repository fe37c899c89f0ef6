//! The exchanges of a connection, each on its stream.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use gateway_core::http::body::Body;
use gateway_core::http::exchange::{Client, Exchange};
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::snapshot::Snapshot;
use http::{HeaderValue, Method, Request, Uri, Version};

use super::respond::Responder;
use crate::downstream::h2::slots::JobSlot;
use crate::downstream::h2::tunnel;
use crate::h2::head::{RequestHead, Unreadable};
use crate::h3::body::rest;
use crate::h3::link::H3Link;
use crate::h3::reader::{MessageReader, NoRequest};
use crate::h3::writer::Writer;
use crate::h3::{Code, StreamError};
use crate::registry::ConnectionControl;
use crate::worker::Worker;

/// A stream a client has opened.
pub(super) struct NewStream {
    pub(super) send: quinn::SendStream,
    pub(super) recv: quinn::RecvStream,
    pub(super) client: Arc<Client>,
}

/// Serves one stream after the other.
pub(super) async fn work(
    worker: &Worker,
    link: Arc<H3Link>,
    entry: &ConnectionControl,
    job_slot: Arc<JobSlot<NewStream>>,
) {
    let mut snapshots = worker.snapshots();
    loop {
        let NewStream { send, recv, client } = job_slot.job().await;
        let snapshot: &Snapshot = snapshots.load();
        let writer = Writer::new(send, link.clone(), Code::INTERNAL_ERROR);
        let mut reader = MessageReader::new(recv, link.clone());
        let timeout = snapshot.settings.client_timeouts.header;
        match poll_fn(|cx| reader.poll_request(cx, timeout)).await {
            Ok(head) => exchange(worker, snapshot, head, reader, writer, client, entry).await,
            Err(why) => refuse(worker, snapshot, why, reader, writer, client, entry).await,
        }
        job_slot.done();
    }
}

/// The end of a stream is seen only by reading it; with these methods nearly always nothing else follows.
fn is_usually_bodiless(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::DELETE)
}

/// The request's body, as far as it is known by now. Where none is expected the end is waited for, so that whoever is
/// asked next hears of a body only when there is one.
async fn request_body(head: &RequestHead, mut reader: MessageReader, idle: Duration) -> Body {
    if head.length.is_none() && is_usually_bodiless(head.request.method()) {
        poll_fn(|cx| reader.poll_begun(cx, idle)).await;
    }
    let mut reader = Some(reader);
    let rest =
        poll_fn(|cx| Poll::Ready(reader.take().map(|reader| rest(reader, head.length, idle, cx)))).await;
    rest.map_or(Body::empty(), Body::from)
}

/// Serves one exchange.
async fn exchange(
    worker: &Worker,
    snapshot: &Snapshot,
    mut head: RequestHead,
    mut reader: MessageReader,
    mut writer: Writer,
    client: Arc<Client>,
    entry: &ConnectionControl,
) {
    let idle = snapshot.settings.client_timeouts.body;
    let is_head = *head.request.method() == Method::HEAD;
    let upgrade = tunnel::asked(&mut head.request);
    let mut stopped = pin!(writer.stopped());
    let link = reader.link().clone();
    let (body, tunnel) = match upgrade {
        true => {
            reader.tunnel();
            (Body::empty(), Some(reader))
        }
        false => {
            if !is_usually_bodiless(head.request.method()) {
                reader.lasts_with(&mut writer);
            }
            (request_body(&head, reader, idle).await, None)
        }
    };
    let mut exchange = Box::new(Exchange::new(head.request.map(|()| body), client));
    exchange.upgrade = upgrade.then_some(HeaderValue::from_static("websocket"));
    let mut responder =
        Responder { writer: Some(writer), tunnel, entry, mark: None, head: is_head, idle, answered: false };
    let mut settled = false;
    let gone = {
        let mut serving = pin!(worker.pipeline().serve(snapshot, exchange, &mut responder));
        poll_fn(|cx| {
            if serving.as_mut().poll(cx).is_ready() {
                return Poll::Ready(false);
            }
            // A client that wants no more of the stream no longer waits: dropping the exchange records that and frees
            // the target.
            if !settled && let Poll::Ready(why) = stopped.as_mut().poll(cx) {
                settled = true;
                if why.is_some() {
                    return Poll::Ready(true);
                }
            }
            Poll::Pending
        })
        .await
    };
    if gone {
        responder.give_up();
        if !responder.answered
            && let Err(fault) = link.wasted()
        {
            link.fail(fault);
        }
    }
}

/// Answers what is no request where that is possible, and records it like one.
async fn refuse(
    worker: &Worker,
    snapshot: &Snapshot,
    why: NoRequest,
    reader: MessageReader,
    mut writer: Writer,
    client: Arc<Client>,
    entry: &ConnectionControl,
) {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = Method::from_bytes(b"-").unwrap_or(Method::GET);
    *request.uri_mut() = Uri::from_static("/");
    *request.version_mut() = Version::HTTP_3;
    let exchange = Box::new(Exchange::new(request, client));
    let (cause, code) = match why {
        NoRequest::Unreadable(Unreadable { cause, answerable: true }) => {
            let idle = snapshot.settings.client_timeouts.body;
            let mut responder = Responder {
                writer: Some(writer),
                tunnel: None,
                entry,
                mark: None,
                head: false,
                idle,
                answered: false,
            };
            worker.pipeline().refuse(snapshot, exchange, Reply::new(cause), &mut responder).await;
            return;
        }
        NoRequest::Unreadable(Unreadable { cause, .. }) => (cause, Code::MESSAGE_ERROR),
        NoRequest::Stream(StreamError::Refused(code)) => (Cause::BadRequest, code),
        NoRequest::Stream(StreamError::Lost(code)) if code != Code::NO_ERROR => (Cause::BadRequest, code),
        NoRequest::Stream(_) => (Cause::ClientGone, Code::REQUEST_CANCELLED),
    };
    writer.blame(code);
    worker.pipeline().abandon(exchange, cause);
    if let Err(fault) = reader.link().wasted() {
        reader.link().fail(fault);
    }
}
