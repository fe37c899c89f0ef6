//! Our end as a client, and targets that are written out.

use http::{HeaderMap, Method, StatusCode};

use super::*;

const LINE: RequestLine<'static> =
    RequestLine { method: &Method::GET, scheme: "http", authority: b"a", path: "/" };

impl Dialogue {
    fn client() -> Self {
        Self::greeted(rules(Role::Client))
    }

    fn ask(&mut self) -> usize {
        let (key, _) = self.ours.request(&LINE, &HeaderMap::new(), &Extra::default(), true).expect("room");
        self.hear();
        key
    }

    fn answer(&mut self, flags: u8, block: &[u8]) {
        self.say(&frame(FrameType::Headers, flags | flag::END_HEADERS, 1, block));
    }
}

const OK: &[u8] = b"\x88";

#[test]
fn it_begins_with_the_preface() {
    let mut ours = Connection::new(rules(Role::Client), Instant::now());
    let said: Vec<u8> = ours.output().slices().iter().flat_map(|slice| slice.to_vec()).collect();
    assert!(said.starts_with(PREFACE));
    assert_eq!(&said[24..], frame(FrameType::Settings, 0, 0, &[0, 2, 0, 0, 0, 0]));
}

#[test]
fn what_targets_may_not_do() {
    let head = |block: &[u8]| frame(FrameType::Headers, END, 1, block);
    let data = frame(FrameType::Data, flag::END_STREAM, 1, b"x");
    let early = frame(FrameType::Headers, END, 1, b"\x48\x03103");
    let no_code = frame(FrameType::Headers, END, 1, b"\x00\x01x\x01y");
    let stream = Reason::PROTOCOL_ERROR;
    for (what, octets) in [
        ("DATA before a head", data),
        ("an informational response that ends", early),
        ("no status", no_code),
        ("a status that is none", head(b"\x48\x0320x")),
        ("a request's pseudo-header field", head(b"\x88\x84")),
        ("connection", head(b"\x88\x00\x0aconnection\x05close")),
        ("a length without a body", head(b"\x88\x0f\x0d\x011")),
    ] {
        let mut dialogue = Dialogue::client();
        let key = dialogue.ask();
        dialogue.say(&octets);
        eprintln!("{what}");
        dialogue.reset(1, stream);
        assert_eq!(dialogue.ours.stream(key).unwrap().fate, Some(StreamError::Refused(stream)));
    }
    for (what, octets, reason) in [
        ("a push", frame(FrameType::PushPromise, flag::END_HEADERS, 1, &[0, 0, 0, 2, 0x82]), stream),
        ("a stream of its own", frame(FrameType::Headers, END, 2, OK), stream),
        ("a stream nobody opened", frame(FrameType::Headers, END, 3, OK), stream),
        ("HTTP/1.1", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Reason::FRAME_SIZE_ERROR),
        ("an offer to push", frame(FrameType::Settings, 0, 0, &[0, 2, 0, 0, 0, 1]), stream),
    ] {
        let mut dialogue = Dialogue::client();
        dialogue.ask();
        dialogue.say(&octets);
        eprintln!("{what}");
        dialogue.failed(reason);
    }
}

#[test]
fn informational_responses_come_first() {
    let mut dialogue = Dialogue::client();
    let key = dialogue.ask();
    dialogue.answer(0, b"\x48\x03103");
    dialogue.answer(flag::END_STREAM, OK);
    let stream = dialogue.ours.stream(key).unwrap();
    assert_eq!(stream.interims.pop_front().unwrap().status(), StatusCode::EARLY_HINTS);
    assert_eq!(stream.head.take().unwrap().status(), StatusCode::OK);
    assert!(!stream.receiving);
}

/// RFC 9110 §9.3.2: the length in an answer to HEAD, or in a 304, is of no body that follows.
#[test]
fn lengths_that_promise_nothing() {
    let length = [OK, b"\x0f\x0d\x0210"].concat();
    let mut dialogue = Dialogue::client();
    let line = RequestLine { method: &Method::HEAD, ..LINE };
    dialogue.ours.request(&line, &HeaderMap::new(), &Extra::default(), true).unwrap();
    dialogue.hear();
    dialogue.answer(flag::END_STREAM, &length);
    dialogue.fine();
    let mut dialogue = Dialogue::client();
    dialogue.ask();
    dialogue.answer(flag::END_STREAM, b"\x8b\x0f\x0d\x0210");
    dialogue.fine();
}

#[test]
fn streams_beyond_a_goaway_were_not_looked_at() {
    let mut dialogue = Dialogue::client();
    let (first, second) = (dialogue.ask(), dialogue.ask());
    dialogue.say(&frame(FrameType::GoAway, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]));
    assert_eq!(dialogue.ours.stream(first).unwrap().fate, None);
    assert_eq!(dialogue.ours.stream(second).unwrap().fate, Some(StreamError::Unprocessed));
    assert!(!dialogue.ours.is_open());
    assert!(dialogue.ours.request(&LINE, &HeaderMap::new(), &Extra::default(), true).is_none());
    dialogue.answer(flag::END_STREAM, OK);
    dialogue.ours.release(first);
    assert!(!dialogue.ours.is_over());
    dialogue.ours.release(second);
    assert!(dialogue.ours.is_over());
    assert!(dialogue.hear().is_empty(), "there is nothing to say about it");
}

#[test]
fn as_many_streams_as_the_target_takes() {
    let mut dialogue = Dialogue::client();
    let set = |most: u8| frame(FrameType::Settings, 0, 0, &[0, 3, 0, 0, 0, most]);
    dialogue.say(&set(1));
    assert!(dialogue.ours.take_limit_change());
    assert!(!dialogue.ours.take_limit_change());
    let key = dialogue.ask();
    assert!(!dialogue.ours.has_room());
    dialogue.say(&set(2));
    assert!(dialogue.ours.take_limit_change() && dialogue.ours.has_room());
    dialogue.say(&set(1));
    dialogue.answer(flag::END_STREAM, OK);
    assert!(dialogue.ours.has_room());
    dialogue.ours.release(key);
}

#[test]
fn large_heads_go_out_in_several_frames() {
    let mut dialogue = Dialogue::client();
    let mut headers = HeaderMap::new();
    for number in 0..40 {
        let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
        headers.insert(name, "v".repeat(1000).parse().unwrap());
    }
    dialogue.ours.request(&LINE, &headers, &Extra::default(), true).unwrap();
    let said = dialogue.hear();
    let kinds: Vec<_> = said.iter().map(|said| (said.kind, said.flags)).collect();
    let (first, next) = (FrameType::Headers, FrameType::Continuation);
    assert_eq!(kinds, [(first, flag::END_STREAM), (next, 0), (next, flag::END_HEADERS)]);
    assert!(said.iter().all(|said| said.payload.len() <= 16_384));
}

#[test]
fn bodies_keep_to_both_windows() {
    let mut dialogue = Dialogue::client();
    let line = RequestLine { method: &Method::POST, ..LINE };
    let (key, _) = dialogue.ours.request(&line, &HeaderMap::new(), &Extra::default(), false).unwrap();
    let room = dialogue.ours.room(key).unwrap();
    assert_eq!(room, INITIAL_WINDOW as usize);
    dialogue.ours.send_data(key, vec![0; room].into(), false).unwrap();
    let sizes: Vec<_> = dialogue.hear().iter().skip(1).map(|said| said.payload.len()).collect();
    assert_eq!(sizes, [16_384, 16_384, 16_384, 16_383]);
    assert_eq!(dialogue.ours.room(key), Ok(0));
    let update = |stream, by: u32| frame(FrameType::WindowUpdate, 0, stream, &by.to_be_bytes());
    dialogue.say(&update(0, 10));
    assert_eq!(dialogue.ours.room(key), Ok(0));
    dialogue.say(&update(1, 20));
    assert_eq!(dialogue.ours.room(key), Ok(10));
    // A smaller initial window may make a stream's negative (RFC 9113 §6.9.2).
    dialogue.say(&frame(FrameType::Settings, 0, 0, &[0, 4, 0, 0, 0, 0]));
    assert_eq!(dialogue.ours.room(key), Ok(0));
    dialogue.say(&update(1, 65_535));
    assert_eq!(dialogue.ours.room(key), Ok(10));
}

#[test]
fn pings_that_are_not_answered() {
    let mut alive = rules(Role::Client);
    alive.keep_alive = (Duration::from_secs(30), Duration::from_secs(5));
    let mut dialogue = Dialogue::greeted(alive);
    let key = dialogue.ask();
    dialogue.hear();
    let start = dialogue.now;
    dialogue.ours.expire(start + Duration::from_secs(30));
    let ping = dialogue.hear().pop().expect("a ping");
    dialogue.now = start + Duration::from_secs(31);
    dialogue.say(&frame(FrameType::Ping, flag::ACK, 0, &ping.payload));
    assert_eq!(dialogue.ours.alarm(), Some(start + Duration::from_secs(35)));
    dialogue.ours.expire(start + Duration::from_secs(35));
    assert_eq!(dialogue.ours.alarm(), Some(start + Duration::from_secs(61)));
    dialogue.ours.expire(start + Duration::from_secs(61));
    assert_eq!(dialogue.hear().len(), 1);
    dialogue.ours.expire(start + Duration::from_secs(66));
    assert!(dialogue.ours.end().is_some());
    let unanswered = StreamError::TimedOut("a ping was left unanswered");
    assert_eq!(dialogue.ours.stream(key).unwrap().fate, Some(unanswered));
}

#[test]
fn windows_grow_with_readers_that_keep_up() {
    let mut adaptive = rules(Role::Client);
    adaptive.adaptive_window = true;
    let mut dialogue = Dialogue::greeted(adaptive);
    let key = dialogue.ask();
    dialogue.answer(0, OK);
    let mut opened = 0;
    for _ in 0..200 {
        dialogue.say(&frame(FrameType::Data, 0, 1, &[0; 16_384]));
        let data = dialogue.ours.stream(key).unwrap().pieces.pop().unwrap();
        dialogue.ours.give(key, data.len());
        for said in dialogue.hear() {
            opened += if said.stream == 1 { frame::number(&said.payload).unwrap() } else { 0 };
        }
    }
    dialogue.fine();
    assert!(opened > 200 * 16_384, "the window is larger than at the start: {opened}");
}
