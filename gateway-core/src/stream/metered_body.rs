//! Bodies that pass no faster than their meters allow.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::http::body::{Body, BodyError};
use crate::http::reply::{Cause, Reply};
use crate::limit::Meters;
use crate::stream::pacer::{Pacer, SessionMeters};
use crate::stream::session::Direction;

/// Of one pull; a body at hand is one piece otherwise.
const MAX_PIECE: u64 = 64 << 10;

impl Body {
    /// This body as its meters let it pass: `meters.up` for a request's, `meters.down` for a response's. A quota with nothing left ends
    /// it with [`BodyError::Refused`].
    #[must_use]
    pub fn metered(self, meters: Meters, direction: Direction) -> Self {
        if meters.is_empty() || self.is_empty() {
            return self;
        }
        let pacer = Pacer::new(Arc::new(SessionMeters::new(meters)), direction);
        Self::stream(Metered { body: self, pacer, rest: Bytes::new() })
    }
}

struct Metered {
    body: Body,
    pacer: Pacer,
    /// What was pulled and may not pass yet.
    rest: Bytes,
}

impl HttpBody for Metered {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let allowed = match ready!(this.pacer.poll_allow(cx, MAX_PIECE)) {
            // Fits: no more than a piece.
            Ok(allowed) => allowed as usize,
            Err(reason) => {
                (this.body, this.rest) = (Body::empty(), Bytes::new());
                let refusal =
                    Reply::new(Cause::TooManyRequests).reason(reason).detail("the quota is used up");
                return Poll::Ready(Some(Err(BodyError::Refused(Box::new(refusal)))));
            }
        };
        if this.rest.is_empty() {
            match this.body.poll_next(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => this.rest = data,
                    Err(frame) => {
                        this.pacer.release();
                        return Poll::Ready(Some(Ok(frame)));
                    }
                },
                other => {
                    this.pacer.release();
                    return other;
                }
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(allowed));
        this.pacer.spend(piece.len() as u64);
        if this.is_end_stream() {
            this.pacer.release();
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.body.exact_length() {
            Some(length) => SizeHint::with_exact(length + self.rest.len() as u64),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use smallvec::smallvec;
    use tokio::time::Instant;

    use super::*;
    use crate::limit::{ByteQuota, ByteRate, Epoch, Meter};

    #[tokio::test(start_paused = true)]
    async fn a_body_at_hand_takes_its_time_and_keeps_its_length() {
        let begun = Instant::now();
        let rate = Arc::new(ByteRate::new(100_000, 5000, Epoch::starting(begun)));
        let meters = Meters { down: smallvec![Meter::Rate(rate)], ..Meters::default() };
        let mut body = Body::full(vec![7; 1_000_000]).metered(meters, Direction::Down);
        assert_eq!(body.exact_length(), Some(1_000_000));
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame.unwrap().into_data().unwrap().len();
        }
        assert_eq!(length, 1_000_000);
        let took = begun.elapsed();
        assert!((Duration::from_millis(9900)..Duration::from_millis(10_100)).contains(&took), "{took:?}");
    }

    #[tokio::test]
    async fn a_quota_cuts_a_body() {
        let quota = Arc::new(ByteQuota::new(1000, 0));
        let meters = Meters { up: smallvec![Meter::Quota(quota.clone())], ..Meters::default() };
        let mut body = Body::full(vec![7; 1500]).metered(meters, Direction::Up);
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.len(), quota.used()), (1000, 1000));
        assert!(matches!(body.frame().await, Some(Err(BodyError::Refused(_)))));
        assert!(body.frame().await.is_none_or(|frame| frame.is_err()));
    }
}
