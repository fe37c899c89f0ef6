//! Limits, counting and collecting, for each kind of body.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use http::HeaderMap;

use super::*;
use crate::limit::CollectedBodies;

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

#[test]
fn a_body_that_is_too_large_is_whole_again() {
    let mut body = pieces(&["abc", "def", "ghi"]);
    let meter = body.meter();
    assert!(matches!(now(body.collect(5)), Err(BodyError::TooLarge { limit: 5 })));
    assert_eq!(meter.bytes(), 0, "what was handed back has not passed");
    assert_eq!(now(body.collect(9)).unwrap().0, "abcdefghi");
    assert_eq!(meter.bytes(), 9);
}

#[test]
fn peeking_leaves_the_body_whole() {
    for (limit, seen) in [(0, ""), (2, "ab"), (4, "abcd"), (100, "abcdef")] {
        let mut body = pieces(&["abc", "def"]);
        assert_eq!(now(body.peek(limit)).unwrap(), seen, "{limit}");
        assert_eq!(now(body.collect(100)).unwrap().0, "abcdef", "{limit}");
    }
    let mut full = Body::full("abcdef");
    assert_eq!(now(full.peek(2)).unwrap(), "ab");
    assert_eq!(now(full.collect(100)).unwrap().0, "abcdef");
}

#[test]
fn what_is_at_hand_is_counted_without_waiting() {
    for (limit, length) in [(0, 3), (3, 6), (100, 6)] {
        let mut body = pieces(&["abc", "def"]);
        assert_eq!(now(body.at_hand(limit)).unwrap(), length, "{limit}");
        assert_eq!(now(body.collect(100)).unwrap().0, "abcdef", "{limit}");
    }
    let mut slow = Body::stream(Never);
    assert_eq!(now(slow.at_hand(10)).unwrap(), 0);
    let trailers = HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("x"))]);
    let mut body = Body::full_with_trailers("abc", trailers.clone());
    assert_eq!(now(body.at_hand(10)).unwrap(), 3);
    assert_eq!(now(body.collect(10)).unwrap(), (Bytes::from("abc"), Some(trailers)));
}

/// A body of which nothing comes.
struct Never;

impl HttpBody for Never {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Pending
    }
}

#[test]
fn a_peek_keeps_trailers() {
    let trailers = HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("x"))]);
    let mut body = Body::full_with_trailers("abc", trailers.clone());
    assert_eq!(now(body.peek(10)).unwrap(), "abc");
    assert_eq!(now(body.collect(10)).unwrap(), (Bytes::from("abc"), Some(trailers)));
}

#[test]
fn a_settled_body_can_be_sent_again_where_it_is_small() {
    let mut small = pieces(&["abc", "def"]).limited(100);
    let meter = small.meter();
    now(small.settle(6)).unwrap();
    let mut again = small.replay().expect("it is at hand");
    assert_eq!(again.take_full().as_deref(), Some(&b"abcdef"[..]));
    assert_eq!(small.take_full().as_deref(), Some(&b"abcdef"[..]));
    assert_eq!(meter.bytes(), 6);
    let mut large = pieces(&["abc", "def"]);
    now(large.settle(5)).unwrap();
    assert!(large.replay().is_none());
    assert_eq!(&now(large.collect(100)).unwrap().0[..], b"abcdef", "nothing of it is lost");
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", http::HeaderValue::from_static("1"));
    let frames = [Frame::data(Bytes::from_static(b"abc")), Frame::trailers(trailers)];
    let mut trailed = Body::stream(Pieces(frames.into()));
    now(trailed.settle(100)).unwrap();
    assert!(trailed.replay().is_none());
    let (bytes, trailers) = now(trailed.collect(100)).unwrap();
    assert_eq!((&bytes[..], trailers.map_or(0, |trailers| trailers.len())), (&b"abc"[..], 1));
}

#[test]
fn collected_bytes_count_until_they_are_dropped() {
    let ceiling = CollectedBodies::new(100);
    ceiling.count_on_this_thread();
    let (bytes, _) = now(pieces(&["abc", "def"]).collect(100)).unwrap();
    assert_eq!(ceiling.held(), 6);
    drop(bytes);
    assert_eq!(ceiling.held(), 0);
    ceiling.resize(5);
    let mut refused = pieces(&["abc", "def"]);
    assert!(matches!(now(refused.collect(100)), Err(BodyError::NoRoom)));
    assert_eq!(ceiling.held(), 0);
    ceiling.resize(6);
    assert_eq!(&now(refused.collect(100)).unwrap().0[..], b"abcdef", "nothing of it is lost");
}

#[test]
fn map_and_tee_see_every_piece_once() {
    let seen = Arc::new(std::sync::Mutex::new(String::new()));
    let noted = seen.clone();
    let mut body = pieces(&["abc", "def"])
        .tee(move |piece| {
            let text = piece.map_or("|", |piece| std::str::from_utf8(piece).unwrap());
            noted.lock().unwrap().push_str(text);
        })
        .map(|piece| Ok(piece.to_ascii_uppercase().into()));
    assert_eq!(now(body.collect(100)).unwrap().0, "ABCDEF");
    assert_eq!(*seen.lock().unwrap(), "abcdef|");
}

#[test]
fn what_a_wrapper_refuses_ends_the_body() {
    let refuse = || BodyError::Refused(Box::new(Reply::new(Cause::Forbidden)));
    let mut body = pieces(&["abc"]).map(move |_| Err(refuse()));
    assert!(matches!(now(body.frame()), Some(Err(BodyError::Refused(_)))));
    assert!(now(body.frame()).is_none());
}

struct Shout;

impl GrpcMessages for Shout {
    fn message(&mut self, message: GrpcMessage) -> Result<Option<GrpcMessage>, BodyError> {
        if message.payload == "drop" {
            return Ok(None);
        }
        Ok(Some(GrpcMessage { payload: message.payload.to_ascii_uppercase().into(), ..message }))
    }
}

#[test]
fn grpc_messages_are_seen_whole_however_they_come() {
    let sent = b"\0\0\0\0\x02hi\0\0\0\0\x04drop\0\0\0\0\0\0\0\0\0\x01x";
    for split in 1..sent.len() {
        let halves = [&sent[..split], &sent[split..]].map(|half| Frame::data(Bytes::from_static(half)));
        let mut body = Body::stream(Pieces(halves.into())).grpc_messages(10, Shout);
        let (bytes, _) = now(body.collect(100)).unwrap();
        assert_eq!(bytes, &b"\0\0\0\0\x02HI\0\0\0\0\0\0\0\0\0\x01X"[..], "{split}");
    }
}

#[test]
fn grpc_messages_have_a_limit_and_an_end() {
    let too_long = Body::full(&b"\0\0\0\0\x0b12345678901"[..]).grpc_messages(10, Shout);
    let cut_off = Body::full(&b"\0\0\0\0\x0212345"[..]).grpc_messages(10, Shout);
    let flag = Body::full(&b"\x02\0\0\0\0"[..]).grpc_messages(10, Shout);
    for mut body in [too_long, cut_off, flag] {
        assert!(now(body.collect(100)).is_err());
    }
}
