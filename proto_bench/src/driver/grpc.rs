//! gRPC unary over HTTP/2: one message with one bytes field out, the same message back, `grpc-status: 0` after it.

use std::rc::Rc;

use bytes::Bytes;
use h2::client::SendRequest;
use http::HeaderMap;
use http::header::{CONTENT_TYPE, TE};

use super::h2::{self as http2, Head};
use super::link::Linker;
use super::{Driver, Fault, Lane, NewConnection, Pattern, Stamp, VerifiedAnswer};
use crate::plan::Plan;

pub mod message;

/// Opens gRPC channels.
pub struct Grpc {
    linker: Linker,
    shape: Rc<GrpcPlan>,
    streams: u32,
}

struct GrpcPlan {
    head: Head,
    pattern: Pattern,
}

/// One place for a call in flight on a channel.
pub struct Call {
    sender: SendRequest<Bytes>,
    shape: Rc<GrpcPlan>,
    payload: Vec<u8>,
    body: Vec<u8>,
}

impl Grpc {
    /// Prepares what all connections of a thread share.
    ///
    /// # Errors
    /// What makes every connection impossible, such as an unreadable root certificate.
    pub fn new(plan: &Rc<Plan>) -> Result<Self, Fault> {
        let head = Head::new(plan)?.with(CONTENT_TYPE, "application/grpc").with(TE, "trailers");
        let shape = GrpcPlan { head, pattern: Pattern::new(plan.message.payload) };
        Ok(Self { linker: Linker::new(plan)?, shape: Rc::new(shape), streams: plan.load.streams.max(1) })
    }
}

impl Driver for Grpc {
    type Lane = Call;

    async fn connect(&self) -> Result<NewConnection<Call>, Fault> {
        let (sender, negotiated) = http2::open(&self.linker).await?;
        let lane = || Call {
            sender: sender.clone(),
            shape: Rc::clone(&self.shape),
            payload: vec![0; self.shape.pattern.size()],
            body: Vec::new(),
        };
        Ok(NewConnection { lanes: (0..self.streams).map(|_| lane()).collect(), negotiated })
    }
}

impl Lane for Call {
    async fn round_trip(&mut self, stamp: Stamp) -> Result<VerifiedAnswer, Fault> {
        self.shape.pattern.write(stamp, &mut self.payload);
        let message = message::encode(&self.payload);
        let request = self.shape.head.request(stamp);
        let (head, mut body) = http2::exchange(&mut self.sender, request, message.into()).await?;
        self.body.clear();
        http2::collect(&mut body, &mut self.body).await?;
        let trailers = body.trailers().await.map_err(http2::fault)?;
        let status = head.status.as_u16();
        if status != 200 {
            return Err(Fault::Status { got: status, expected: 200 });
        }
        // A refusal may come as headers alone (trailers-only), so both places are looked at.
        check_status(trailers.as_ref().unwrap_or(&head.headers))?;
        self.shape.pattern.check(stamp, message::decode(&self.body)?)?;
        Ok(VerifiedAnswer { status, body: self.shape.pattern.size(), stamped: true, last: false })
    }
}

fn check_status(headers: &HeaderMap) -> Result<(), Fault> {
    match headers.get("grpc-status").map(http::HeaderValue::as_bytes) {
        Some(b"0") => Ok(()),
        Some(other) => Err(Fault::GrpcStatus(String::from_utf8_lossy(other).into_owned())),
        None => Err(Fault::protocol("no grpc-status")),
    }
}
