//! Limits, counting and collecting, for each kind of body.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::*;

/// A stream that never waits.
struct Pieces(VecDeque<Frame<Bytes>>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

fn pieces(pieces: &[&'static str]) -> Body {
    Body::stream(Pieces(
        pieces.iter().map(|piece| Frame::data(Bytes::from_static(piece.as_bytes()))).collect(),
    ))
}

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("nothing here has to wait"),
    }
}

#[test]
fn a_limit_lets_exactly_its_bytes_pass() {
    for (make, limit, passes) in [
        (pieces as fn(&[&'static str]) -> Body, 6, true),
        (pieces, 5, false),
        (pieces, 0, true),
        (|all| Body::full(all.concat()), 6, true),
        (|all| Body::full(all.concat()), 5, false),
        (|all| Body::full(all.concat()), 0, true),
    ] {
        let collected = now(make(&["abc", "def"]).limited(limit).collect(100));
        assert_eq!(collected.is_ok(), passes, "{limit}");
    }
    assert!(Body::full("abcdef").limited(5).take_full().is_none(), "the short cut has the limit too");
}

#[test]
fn nothing_comes_after_a_limit_was_hit() {
    let mut body = pieces(&["abc", "def", "ghi"]).limited(4);
    assert!(matches!(now(body.frame()), Some(Ok(_))));
    assert!(matches!(now(body.frame()), Some(Err(BodyError::TooLarge { limit: 4 }))));
    assert!(now(body.frame()).is_none());
}

#[test]
fn collecting_has_a_limit_of_its_own_and_keeps_trailers() {
    assert!(matches!(now(pieces(&["abc", "def"]).collect(5)), Err(BodyError::TooLarge { limit: 5 })));
    assert!(matches!(now(Body::full("abcdef").collect(5)), Err(BodyError::TooLarge { .. })));
    let trailers = HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("x"))]);
    let frames = [Frame::data(Bytes::from_static(b"abc")), Frame::trailers(trailers.clone())];
    let (bytes, kept) = now(Body::stream(Pieces(frames.into())).collect(3)).expect("within the limit");
    assert_eq!((&bytes[..], kept), (&b"abc"[..], Some(trailers)));
    assert_eq!(now(Body::empty().collect(0)).expect("nothing").0, Bytes::new());
}

#[test]
fn a_meter_counts_what_passed_also_after_the_body_moved() {
    let mut body = pieces(&["abc", "def"]);
    let meter = body.meter();
    assert_eq!(meter.bytes(), 0);
    drop(now(body.frame()));
    assert_eq!(meter.bytes(), 3);
    drop(now(body.frame()));
    assert_eq!(meter.bytes(), 6);
    assert_eq!(Body::full("abc").meter().bytes(), 3);
}

#[test]
fn only_what_is_at_hand_can_be_sent_again() {
    assert!(pieces(&["abc"]).replay().is_none());
    assert!(Body::empty().replay().is_some());
    let mut again = Body::full("abc").limited(2).replay().expect("at hand");
    assert!(again.take_full().is_none(), "a copy keeps the limit");
}
