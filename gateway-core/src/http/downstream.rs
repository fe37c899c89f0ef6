//! The client's side as the pipeline sees it; implemented once per HTTP version.

use std::future::Future;

use http::{HeaderMap, Response, StatusCode};

use super::body::Body;
use crate::http::reply::Cause;
use crate::http::tunnel::Tunnel;

/// Takes an exchange's answer to the client. Implemented by the adapters for HTTP/1.1, HTTP/2 and HTTP/3; the
/// pipeline calls [`Downstream::interim`] any number of times and [`Downstream::respond`] once.
pub trait Downstream: Send {
    /// Passes an informational (1xx) response on. A client that can't take it is not told.
    fn interim(&mut self, status: StatusCode, headers: &HeaderMap) -> impl Future<Output = ()> + Send;

    /// A target is about to be asked. Where the client waits for `100 Continue`, it is told to go on only once the target
    /// says so, or says nothing for a while (RFC 9110 §10.1.1).
    fn asking(&mut self) {}

    /// Sends the head of a switch to another protocol and hands over the client's end; `None` when the client is gone.
    fn upgrade(&mut self, response: Response<()>) -> impl Future<Output = Option<Tunnel>> + Send;

    /// Sends the final response, its body and trailers to the end. Keep the future small: it lasts as long as the
    /// client reads.
    fn respond(&mut self, response: Response<Body>) -> impl Future<Output = Delivery> + Send;
}

/// How the response reached the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delivery {
    /// Body bytes handed to the client's connection.
    pub bytes: u64,
    /// What cut it short; `None` when it is complete.
    pub cut: Option<Cause>,
    /// The status of what the client got instead, where the response broke before anything of it was sent.
    pub status: Option<StatusCode>,
    /// The gRPC status in the trailers, where they had one.
    pub grpc_status: Option<u16>,
}
