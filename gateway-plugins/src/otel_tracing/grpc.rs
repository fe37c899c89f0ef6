//! The status of a gRPC call, from the head or the trailers of its response.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use gateway_core::http::body::{Body, BodyError, Transform, TransformOutput};
use http::{HeaderMap, Response};

/// Nothing has come yet.
const UNKNOWN: u32 = u32::MAX;
/// What servers' spans count as failures: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, DATA_LOSS. The others
/// say that the caller did something wrong.
const FAILURES: [u32; 6] = [2, 4, 12, 13, 14, 15];

/// The status, once it has come.
#[derive(Clone)]
pub(super) struct GrpcStatus(Arc<AtomicU32>);

impl GrpcStatus {
    /// Looks at a response, and at its trailers while they pass.
    pub(super) fn watch(response: &mut Response<Body>) -> Self {
        let status = Self(Arc::new(AtomicU32::new(UNKNOWN)));
        status.read(response.headers());
        if status.code().is_none() && !response.body().is_empty() {
            let body = std::mem::take(response.body_mut());
            *response.body_mut() = body.transform(Trailers(status.clone()));
        }
        status
    }

    fn read(&self, fields: &HeaderMap) {
        let code = fields.get("grpc-status").and_then(|code| code.to_str().ok()?.parse::<u16>().ok());
        if let Some(code) = code {
            self.0.store(u32::from(code), Ordering::Relaxed);
        }
    }

    /// The code, if one has come.
    pub(super) fn code(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|code| *code != UNKNOWN)
    }
}

/// Whether the span of a server has failed with this code.
pub(super) fn is_failure(code: u32) -> bool {
    FAILURES.contains(&code)
}

struct Trailers(GrpcStatus);

impl Transform for Trailers {
    fn data(&mut self, data: Bytes, out: &mut TransformOutput) -> Result<(), BodyError> {
        out.data(data);
        Ok(())
    }

    fn trailers(&mut self, trailers: HeaderMap, out: &mut TransformOutput) -> Result<(), BodyError> {
        self.0.read(&trailers);
        out.trailers(trailers);
        Ok(())
    }
}
