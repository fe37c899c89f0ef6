//! Each MUST of RFC 9113 that a client can break, and what it gets for it.

use super::*;

/// What comes of an offence.
enum Ends {
    /// The connection.
    All(Reason),
    /// This stream.
    One(u32, Reason),
    /// Nothing.
    Nothing,
}

use Ends::{All, Nothing, One};

/// Says `octets` on a fresh connection and looks at what comes of it.
#[track_caller]
fn offence(what: &str, octets: &[u8], ends: &Ends) {
    let mut dialogue = Dialogue::server();
    dialogue.say(octets);
    judge(what, &mut dialogue, ends);
}

#[track_caller]
fn judge(what: &str, dialogue: &mut Dialogue, ends: &Ends) {
    eprintln!("{what}");
    match ends {
        All(reason) => dialogue.failed(*reason),
        One(stream, reason) => dialogue.reset(*stream, *reason),
        Nothing => dialogue.fine(),
    }
}

fn headers(flags: u8, stream: u32, block: &[u8]) -> Vec<u8> {
    frame(FrameType::Headers, flags, stream, block)
}

/// §3.4, §4.1, §4.2
#[test]
fn beginnings_and_frames() {
    for bad in [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX"[..], b"GET / HTTP/1.1\r\n"] {
        let mut dialogue = Dialogue::silent(rules(Role::Server));
        dialogue.say(bad);
        dialogue.failed(Reason::PROTOCOL_ERROR);
    }
    let mut dialogue = Dialogue::silent(rules(Role::Server));
    for octet in PREFACE {
        dialogue.say(&[*octet]);
    }
    assert!(dialogue.ours.end().is_none());
    for (kind, flags) in [(FrameType::Ping, 0), (FrameType::Settings, flag::ACK)] {
        let mut dialogue = Dialogue::silent(rules(Role::Server));
        dialogue.say(PREFACE);
        dialogue.say(&frame(kind, flags, 0, &[]));
        dialogue.failed(Reason::PROTOCOL_ERROR);
    }
    offence("an unknown frame", &frame(FrameType::Unknown, 0xff, 77, b"whatever"), &Nothing);
    // Refused by its head, before its payload is waited for.
    offence(
        "a frame too large",
        &frame::head(16_385, FrameType::Unknown, 0, 0),
        &All(Reason::FRAME_SIZE_ERROR),
    );
    offence("the largest frame", &frame(FrameType::Unknown, 0, 0, &[0; 16_384]), &Nothing);
}

/// §6.2, §6.10
#[test]
fn header_blocks() {
    let broken = All(Reason::PROTOCOL_ERROR);
    offence("HEADERS on the connection", &headers(END, 0, GET), &broken);
    offence("HEADERS on an even stream", &headers(END, 2, GET), &broken);
    offence("too much padding", &headers(END | flag::PADDED, 1, &[200, 0x82]), &broken);
    offence("CONTINUATION of nothing", &frame(FrameType::Continuation, END, 1, GET), &broken);
    let cut = headers(flag::END_STREAM, 1, &GET[..2]);
    let rest = frame(FrameType::Continuation, flag::END_HEADERS, 1, &GET[2..]);
    offence("a block in two frames", &[&cut[..], &rest].concat(), &Nothing);
    for (what, between) in [
        ("a block interrupted by PING", frame(FrameType::Ping, 0, 0, &[0; 8])),
        ("a block interrupted by an unknown frame", frame(FrameType::Unknown, 0, 0, &[])),
        ("a block interrupted by DATA", frame(FrameType::Data, 0, 1, &[])),
        ("a block continued elsewhere", frame(FrameType::Continuation, flag::END_HEADERS, 3, &GET[2..])),
    ] {
        offence(what, &[&cut[..], &between].concat(), &broken);
    }
    offence("a broken block", &headers(END, 1, &[0xff]), &All(Reason::COMPRESSION_ERROR));
    offence("a table too large", &headers(END, 1, &[0x3f, 0xe2, 0x1f]), &All(Reason::COMPRESSION_ERROR));
    let priority = [&[0, 0, 0, 3, 16][..], GET].concat();
    offence("HEADERS with priority", &headers(END | flag::PRIORITY, 1, &priority), &Nothing);
    offence("a stream on itself", &headers(END | flag::PRIORITY, 3, &priority), &broken);
    offence("no room for it", &headers(END | flag::PRIORITY, 1, &[0; 4]), &All(Reason::FRAME_SIZE_ERROR));
}

/// §5.1, §5.1.1
#[test]
fn streams_have_states() {
    let broken = All(Reason::PROTOCOL_ERROR);
    offence("DATA on an idle stream", &frame(FrameType::Data, 0, 1, b"x"), &broken);
    offence("RST_STREAM on an idle stream", &frame(FrameType::RstStream, 0, 1, &[0; 4]), &broken);
    offence("WINDOW_UPDATE on an idle stream", &frame(FrameType::WindowUpdate, 0, 1, &[0, 0, 0, 1]), &broken);
    offence("PRIORITY on an idle stream", &frame(FrameType::Priority, 0, 1, &[0, 0, 0, 3, 1]), &Nothing);

    let ended = headers(END, 1, GET);
    let data = frame(FrameType::Data, 0, 1, b"x");
    offence("DATA after the end", &[&ended[..], &data].concat(), &One(1, Reason::STREAM_CLOSED));
    offence("HEADERS after the end", &[&ended[..], &ended].concat(), &One(1, Reason::STREAM_CLOSED));
    let later = headers(END, 5, GET);
    offence("a smaller number", &[&later[..], &headers(END, 3, GET)].concat(), &All(Reason::STREAM_CLOSED));

    let reset = frame(FrameType::RstStream, 0, 1, &8_u32.to_be_bytes());
    let gone = [&ended[..], &reset].concat();
    offence(
        "PRIORITY after a reset",
        &[&gone[..], &frame(FrameType::Priority, 0, 1, &[0; 5])].concat(),
        &Nothing,
    );
    offence("DATA after a reset", &[&gone[..], &data].concat(), &One(1, Reason::STREAM_CLOSED));
    offence("HEADERS after a reset", &[&gone[..], &ended].concat(), &One(1, Reason::STREAM_CLOSED));
}

#[test]
fn a_stream_that_is_over_is_closed() {
    for (what, octets, ends) in [
        ("DATA", frame(FrameType::Data, 0, 1, b"x"), One(1, Reason::STREAM_CLOSED)),
        ("HEADERS", headers(END, 1, GET), All(Reason::STREAM_CLOSED)),
        ("WINDOW_UPDATE", frame(FrameType::WindowUpdate, 0, 1, &[0, 0, 0, 1]), Nothing),
        ("RST_STREAM", frame(FrameType::RstStream, 0, 1, &[0; 4]), Nothing),
    ] {
        let mut dialogue = Dialogue::server();
        let key = dialogue.request(1, GET, true);
        dialogue
            .ours
            .respond(key, http::StatusCode::OK, &Default::default(), &Extra::default(), true)
            .unwrap();
        dialogue.ours.release(key);
        dialogue.fine();
        dialogue.say(&octets);
        judge(what, &mut dialogue, &ends);
    }
}

/// §5.1: what was on its way when we reset a stream is ignored, and yet counted.
#[test]
fn frames_for_a_stream_we_reset_are_ignored() {
    let mut dialogue = Dialogue::server();
    let key = dialogue.request(1, POST, false);
    dialogue.ours.release(key);
    dialogue.reset(1, Reason::CANCEL);
    let data = vec![b'x'; 16_384];
    for _ in 0..16 {
        dialogue.say(&frame(FrameType::Data, 0, 1, &data));
    }
    let trailers = b"\x40\x01t\x01v";
    dialogue.say(&headers(END, 1, trailers));
    let said = dialogue.hear();
    let opened: u32 = said
        .iter()
        .filter(|said| said.kind == FrameType::WindowUpdate && said.stream == 0)
        .map(|said| frame::number(&said.payload).unwrap())
        .sum();
    assert!(opened as usize > 15 * 16_384 - 65_535, "the connection's window opens again");
    assert!(said.iter().all(|said| said.kind == FrameType::WindowUpdate), "{said:?}");
    // Its trailers went through the table all the same.
    let with = [GET, &[0xbf]].concat();
    dialogue.request(3, &with, true);
    dialogue.fine();
}

/// §6.1
#[test]
fn data() {
    let open = headers(flag::END_HEADERS, 1, POST);
    let with = |flags, payload: &[u8]| [&open[..], &frame(FrameType::Data, flags, 1, payload)].concat();
    offence("DATA on the connection", &frame(FrameType::Data, 0, 0, b"x"), &All(Reason::PROTOCOL_ERROR));
    offence("more padding than frame", &with(flag::PADDED, &[5, 0, 0]), &All(Reason::PROTOCOL_ERROR));
    offence("no room for its length", &with(flag::PADDED, &[]), &All(Reason::FRAME_SIZE_ERROR));
    offence("padding", &with(flag::PADDED, &[2, b'x', 0, 0]), &Nothing);
    offence("nothing but padding", &with(flag::PADDED | flag::END_STREAM, &[2, 0, 0]), &Nothing);
}

/// §6.3, §6.4, §6.7, §6.8, §6.6
#[test]
fn sizes_and_streams_of_control_frames() {
    let (size, broken) = (All(Reason::FRAME_SIZE_ERROR), All(Reason::PROTOCOL_ERROR));
    let open = headers(flag::END_HEADERS, 1, POST);
    let after = |octets: &[u8]| [&open[..], octets].concat();
    offence(
        "PRIORITY of a wrong size",
        &after(&frame(FrameType::Priority, 0, 1, &[0; 4])),
        &One(1, Reason::FRAME_SIZE_ERROR),
    );
    offence("PRIORITY on the connection", &frame(FrameType::Priority, 0, 0, &[0; 5]), &broken);
    offence("a stream on itself", &frame(FrameType::Priority, 0, 7, &[0, 0, 0, 7, 1]), &broken);
    offence("RST_STREAM of a wrong size", &after(&frame(FrameType::RstStream, 0, 1, &[0; 3])), &size);
    offence("RST_STREAM on the connection", &frame(FrameType::RstStream, 0, 0, &[0; 4]), &broken);
    offence("PING of a wrong size", &frame(FrameType::Ping, 0, 0, &[0; 7]), &size);
    offence("PING on a stream", &frame(FrameType::Ping, 0, 1, &[0; 8]), &broken);
    offence("GOAWAY on a stream", &frame(FrameType::GoAway, 0, 1, &[0; 8]), &broken);
    offence("GOAWAY of a wrong size", &frame(FrameType::GoAway, 0, 0, &[0; 7]), &size);
    offence("GOAWAY", &frame(FrameType::GoAway, 0, 0, &[0; 8]), &Nothing);
    offence("PUSH_PROMISE", &after(&frame(FrameType::PushPromise, END, 1, &[0, 0, 0, 2])), &broken);
}

/// §6.5
#[test]
fn settings() {
    let entry = |id: u16, value: u32| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let set = |id, value| frame(FrameType::Settings, 0, 0, &entry(id, value));
    let (size, broken) = (All(Reason::FRAME_SIZE_ERROR), All(Reason::PROTOCOL_ERROR));
    offence("an answer with a payload", &frame(FrameType::Settings, flag::ACK, 0, &[0; 6]), &size);
    offence("SETTINGS on a stream", &frame(FrameType::Settings, 0, 1, &[]), &broken);
    offence("SETTINGS of a wrong size", &frame(FrameType::Settings, 0, 0, &[0; 5]), &size);
    offence("push that is no yes or no", &set(2, 2), &broken);
    offence("a window too large", &set(4, 1 << 31), &All(Reason::FLOW_CONTROL_ERROR));
    offence("frames too small", &set(5, 16_383), &broken);
    offence("frames too large", &set(5, 1 << 24), &broken);
    offence("an unknown setting", &set(0x99, 1), &Nothing);
    let mut dialogue = Dialogue::server();
    dialogue.say(&set(4, 1));
    let said = dialogue.hear();
    assert_eq!((said[0].kind, said[0].flags), (FrameType::Settings, flag::ACK));
}

#[test]
fn pings_are_answered() {
    let mut dialogue = Dialogue::server();
    dialogue.say(&frame(FrameType::Ping, 0, 0, b"12345678"));
    let said = dialogue.hear();
    assert_eq!(
        (said[0].kind, said[0].flags, &said[0].payload[..]),
        (FrameType::Ping, flag::ACK, &b"12345678"[..])
    );
    dialogue.say(&frame(FrameType::Ping, flag::ACK, 0, b"12345678"));
    assert!(dialogue.hear().is_empty());
}

/// §6.9
#[test]
fn windows_of_the_peer() {
    let open = headers(flag::END_HEADERS, 1, POST);
    let update = |stream, by: u32| frame(FrameType::WindowUpdate, 0, stream, &by.to_be_bytes());
    let most = (1 << 31) - 1;
    offence("by nothing", &update(0, 0), &All(Reason::PROTOCOL_ERROR));
    offence(
        "of a wrong size",
        &frame(FrameType::WindowUpdate, 0, 0, &[0; 3]),
        &All(Reason::FRAME_SIZE_ERROR),
    );
    offence("too large", &update(0, most), &All(Reason::FLOW_CONTROL_ERROR));
    offence("a stream's by nothing", &[&open[..], &update(1, 0)].concat(), &One(1, Reason::PROTOCOL_ERROR));
    offence(
        "a stream's too large",
        &[&open[..], &update(1, most)].concat(),
        &One(1, Reason::FLOW_CONTROL_ERROR),
    );
    let large = frame(FrameType::Settings, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    let grown = [&open[..], &update(1, 1), &large].concat();
    offence("a stream's by settings", &grown, &All(Reason::FLOW_CONTROL_ERROR));
}

/// §5.2.1: more than a window is not taken.
#[test]
fn our_windows() {
    let chunk = vec![0; 16_384];
    let mut dialogue = Dialogue::server();
    dialogue.request(1, POST, false);
    for _ in 0..4 {
        dialogue.say(&frame(FrameType::Data, 0, 1, &chunk));
    }
    // The fourth frame has one octet more than both windows.
    dialogue.failed(Reason::FLOW_CONTROL_ERROR);

    let mut rules = rules(Role::Server);
    rules.connection_window = 1 << 20;
    let mut dialogue = Dialogue::greeted(rules);
    dialogue.request(1, POST, false);
    for _ in 0..4 {
        dialogue.say(&frame(FrameType::Data, 0, 1, &chunk));
    }
    dialogue.reset(1, Reason::FLOW_CONTROL_ERROR);
}

/// §6.5.3, §6.9.2: until the peer has confirmed a smaller window it may use the usual one.
#[test]
fn a_smaller_window_counts_once_it_is_confirmed() {
    let mut small = rules(Role::Server);
    small.settings.initial_window_size = 10;
    let mut dialogue = Dialogue::silent(small);
    dialogue.say(PREFACE);
    dialogue.say(&frame(FrameType::Settings, 0, 0, &[]));
    dialogue.request(1, POST, false);
    dialogue.say(&frame(FrameType::Data, 0, 1, &[0; 100]));
    dialogue.say(&frame(FrameType::Settings, flag::ACK, 0, &[]));
    dialogue.fine();
    dialogue.request(3, POST, false);
    dialogue.say(&frame(FrameType::Data, 0, 3, &[0; 11]));
    dialogue.reset(3, Reason::FLOW_CONTROL_ERROR);
}

/// §5.1.2
#[test]
fn more_streams_than_allowed_are_refused() {
    let mut dialogue = Dialogue::server();
    let keys: Vec<usize> = (0..8).map(|n| dialogue.request(2 * n + 1, POST, false)).collect();
    dialogue.say(&headers(END, 17, GET));
    dialogue.reset(17, Reason::REFUSED_STREAM);
    assert!(dialogue.ours.next_arrival().is_none());
    dialogue.ours.release(keys[0]);
    dialogue.hear();
    dialogue.request(19, GET, true);
}

/// §8.1.1: a malformed request ends its stream, and is told of.
#[test]
fn malformed_requests() {
    let literal = |name: &str, value: &str| {
        let (n, v) = (name.len() as u8, value.len() as u8);
        [&[0, n][..], name.as_bytes(), &[v], value.as_bytes()].concat()
    };
    let with = |name: &str, value: &str| [GET, &literal(name, value)].concat();
    let before = |name: &str, value: &str| [&literal(name, value), GET].concat();
    let blocks: Vec<(&str, Vec<u8>)> = vec![
        ("upper case", with("X", "a")),
        ("no name", with("", "a")),
        ("a name with a colon", with("a:b", "c")),
        ("a value with a line end", with("x", "a\r\nb")),
        ("a value with a NUL", with("x", "a\0b")),
        ("a value with a space at its end", with("x", "a ")),
        ("an unknown pseudo-header field", before(":x", "a")),
        ("a response's pseudo-header field", before(":status", "200")),
        ("a pseudo-header field after others", [&literal("x", "a"), GET].concat()),
        ("connection", with("connection", "close")),
        ("keep-alive", with("keep-alive", "1")),
        ("proxy-connection", with("proxy-connection", "close")),
        ("transfer-encoding", with("transfer-encoding", "chunked")),
        ("upgrade", with("upgrade", "h2c")),
        ("te", with("te", "gzip")),
        ("no method", b"\x86\x84\x41\x01a".to_vec()),
        ("no scheme", b"\x82\x84\x41\x01a".to_vec()),
        ("no path", b"\x82\x86\x41\x01a".to_vec()),
        ("two methods", [b"\x82", GET].concat()),
        ("two paths", [b"\x84", GET].concat()),
        ("two schemes", [b"\x86", GET].concat()),
        ("an empty path", [b"\x82\x86\x41\x01a", &literal(":path", "")[..]].concat()),
        ("a path without a slash", [b"\x82\x86\x41\x01a", &literal(":path", "a")[..]].concat()),
        ("a broken authority", [b"\x82\x86\x84", &literal(":authority", "a b")[..]].concat()),
        ("CONNECT with a path", [&literal(":method", "CONNECT")[..], &GET[1..]].concat()),
        ("a protocol without CONNECT", before(":protocol", "websocket")),
        ("a length that is none", with("content-length", "1x")),
        ("two lengths", [&with("content-length", "0")[..], &literal("content-length", "0")].concat()),
        ("a length without a body", with("content-length", "1")),
    ];
    for (what, block) in blocks {
        let mut dialogue = Dialogue::server();
        dialogue.say(&headers(END, 1, &block));
        let arrival = dialogue.ours.next_arrival().unwrap_or_else(|| panic!("{what} is recorded"));
        let unreadable = arrival.head.map(drop).expect_err(what);
        assert!(!unreadable.answerable && arrival.stream.is_none());
        judge(what, &mut dialogue, &One(1, Reason::PROTOCOL_ERROR));
        // The connection goes on.
        dialogue.request(3, GET, true);
        dialogue.fine();
    }
    for (what, block) in [
        ("te: trailers", with("te", "trailers")),
        ("no authority", b"\x82\x86\x84".to_vec()),
        ("an unknown scheme", [b"\x82\x84\x41\x01a", &literal(":scheme", "ftp")[..]].concat()),
        ("CONNECT", [&literal(":method", "CONNECT")[..], b"\x41\x01a"].concat()),
        (
            "extended CONNECT",
            [&literal(":method", "CONNECT")[..], &literal(":protocol", "websocket"), &GET[1..]].concat(),
        ),
        (
            "OPTIONS *",
            [&literal(":method", "OPTIONS")[..], b"\x86\x41\x01a", &literal(":path", "*")].concat(),
        ),
    ] {
        let mut dialogue = Dialogue::server();
        eprintln!("{what}");
        dialogue.request(1, &block, true);
        dialogue.fine();
    }
}

/// §8.1, §8.1.1
#[test]
fn bodies_and_trailers() {
    let length = |declared: &[u8]| [POST, b"\x0f\x0d\x01", declared].concat();
    let post = |dialogue: &mut Dialogue, declared: &[u8]| dialogue.request(1, &length(declared), false);
    let data = |flags, payload: &[u8]| frame(FrameType::Data, flags, 1, payload);

    let mut dialogue = Dialogue::server();
    post(&mut dialogue, b"3");
    dialogue.say(&data(0, b"ab"));
    dialogue.say(&data(flag::END_STREAM, b"c"));
    dialogue.fine();
    for (what, pieces) in [
        ("longer", vec![data(0, b"abcd")]),
        ("shorter", vec![data(flag::END_STREAM, b"ab")]),
        ("shorter with trailers", vec![data(0, b"ab"), headers(END, 1, b"\x00\x01t\x01v")]),
    ] {
        let mut dialogue = Dialogue::server();
        post(&mut dialogue, b"3");
        pieces.iter().for_each(|piece| dialogue.say(piece));
        judge(what, &mut dialogue, &One(1, Reason::PROTOCOL_ERROR));
    }
    for (what, flags, block, fine) in [
        ("trailers", END, &b"\x00\x01t\x01v"[..], true),
        ("trailers that do not end", flag::END_HEADERS, b"\x00\x01t\x01v", false),
        ("trailers with a pseudo-header field", END, b"\x84", false),
        ("trailers with a bad name", END, b"\x00\x01T\x01v", false),
    ] {
        let mut dialogue = Dialogue::server();
        let key = dialogue.request(1, POST, false);
        dialogue.say(&headers(flags, 1, block));
        judge(what, &mut dialogue, if fine { &Nothing } else { &One(1, Reason::PROTOCOL_ERROR) });
        assert_eq!(dialogue.ours.stream(key).unwrap().trailers.is_some(), fine);
    }
}

/// §8.2.3
#[test]
fn crumbs_become_a_cookie_again() {
    let mut dialogue = Dialogue::server();
    let block = [GET, b"\x60\x03a=1\x60\x03b=2"].concat();
    dialogue.say(&headers(END, 1, &block));
    let head = dialogue.ours.next_arrival().unwrap().head.unwrap();
    let cookies: Vec<_> = head.request.headers().get_all("cookie").iter().collect();
    assert_eq!(cookies, ["a=1; b=2"]);
}

/// §6.8: in two steps, so that nothing the client sent in the meantime is lost.
#[test]
fn goaways() {
    let mut dialogue = Dialogue::server();
    let first = dialogue.request(1, GET, true);
    dialogue.ours.leave();
    let said = dialogue.hear();
    assert_eq!(said[0].kind, FrameType::GoAway);
    assert_eq!(frame::number(&said[0].payload), Some((1 << 31) - 1));
    let ping = said[1].payload.clone();
    // Sent before the GOAWAY was heard: still served.
    let second = dialogue.request(3, GET, true);
    dialogue.say(&frame(FrameType::Ping, flag::ACK, 0, &ping));
    let said = dialogue.hear();
    assert_eq!((said[0].kind, frame::number(&said[0].payload)), (FrameType::GoAway, Some(3)));
    dialogue.say(&headers(END, 5, GET));
    assert!(dialogue.ours.next_arrival().is_none());
    assert!(!dialogue.ours.is_over());
    for key in [first, second] {
        dialogue
            .ours
            .respond(key, http::StatusCode::OK, &Default::default(), &Extra::default(), true)
            .unwrap();
        dialogue.ours.release(key);
    }
    assert!(dialogue.ours.is_over());
}

/// Opens a stream and answers it in full while its request goes on.
fn answered_early(dialogue: &mut Dialogue, id: u32) {
    let key = dialogue.request(id, POST, false);
    let status = http::StatusCode::PAYLOAD_TOO_LARGE;
    dialogue.ours.respond(key, status, &Default::default(), &Extra::default(), true).unwrap();
    dialogue.ours.release(key);
}

/// §8.1: a client that is still sending may finish, which costs it neither the answer nor the connection.
#[test]
fn the_rest_of_an_answered_request_is_discarded() {
    let mut dialogue = Dialogue::server();
    answered_early(&mut dialogue, 1);
    let said = dialogue.hear();
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!((said[0].kind, said[0].flags), (FrameType::Headers, END));
    let mut windows = [0, 0];
    for _ in 0..64 {
        dialogue.say(&frame(FrameType::Data, 0, 1, &[b'x'; 16_384]));
        for said in dialogue.hear() {
            assert_eq!(said.kind, FrameType::WindowUpdate);
            windows[said.stream as usize] += frame::number(&said.payload).unwrap() as usize;
        }
    }
    assert!(windows.iter().all(|window| *window > 63 * 16_384 - 65_535), "{windows:?}");
    assert!(!dialogue.ours.is_idle(), "it is open");
    dialogue.say(&frame(FrameType::Data, flag::END_STREAM, 1, b"end"));
    dialogue.fine();
    assert!(dialogue.ours.is_idle());
    // Trailers end it as well, and so does a client that is not interested any more.
    for (id, last) in [
        (3, headers(END, 3, b"\x00\x01t\x01v")),
        (5, frame(FrameType::RstStream, 0, 5, &8_u32.to_be_bytes())),
    ] {
        answered_early(&mut dialogue, id);
        dialogue.say(&last);
        dialogue.fine();
        assert!(dialogue.ours.is_idle(), "{id}");
    }
}

#[test]
fn what_is_discarded_has_bounds() {
    let mut dialogue = Dialogue::server();
    answered_early(&mut dialogue, 1);
    let data = frame(FrameType::Data, 0, 1, &[b'x'; 16_384]);
    for _ in 0..MAX_DISCARD / 16_384 {
        dialogue.say(&data);
        dialogue.fine();
    }
    dialogue.say(&data);
    dialogue.reset(1, Reason::NO_ERROR);
    assert!(dialogue.ours.is_idle());
    dialogue.say(&data);
    dialogue.fine();

    answered_early(&mut dialogue, 3);
    let alarm = dialogue.ours.alarm().expect("an alarm");
    assert!(alarm <= Instant::now() + DISCARD_TIMEOUT);
    dialogue.ours.expire(alarm);
    dialogue.fine();
    dialogue.ours.expire(Instant::now() + DISCARD_TIMEOUT);
    dialogue.reset(3, Reason::NO_ERROR);
    assert!(dialogue.ours.is_idle());

    // They count as open streams.
    (0..8).for_each(|n| answered_early(&mut dialogue, 2 * n + 5));
    dialogue.fine();
    dialogue.say(&headers(END, 21, GET));
    assert!(dialogue.ours.next_arrival().is_none());
    dialogue.reset(21, Reason::REFUSED_STREAM);
    dialogue.say(&frame(FrameType::Data, flag::END_STREAM, 5, b""));
    dialogue.request(23, GET, true);
    dialogue.fine();
}
