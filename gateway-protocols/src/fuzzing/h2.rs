//! HTTP/2's state machine, on either side, and HPACK.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use tokio::time::Instant;

use crate::h2::Role;
use crate::h2::connection::{Connection, Extra, RequestLine, Rules};
use crate::h2::frame::PREFACE;
use crate::h2::settings::Settings;
use crate::hpack::{Decoder, Encoder, Name, Value};

fn connection(role: Role, now: Instant) -> Connection {
    let rules = Rules {
        role,
        settings: Settings { max_concurrent_streams: Some(8), enable_push: false, ..Settings::default() },
        connection_window: 1 << 17,
        adaptive_window: true,
        max_header_list: 4096,
        timeout: Duration::ZERO,
        stall: Duration::ZERO,
        keep_alive: (Duration::ZERO, Duration::ZERO),
    };
    Connection::new(rules, now)
}

/// A client sends `data` after its preface; each request is answered, and each body is read.
pub(super) fn h2_server(data: &[u8]) {
    let now = Instant::now();
    let mut ours = connection(Role::Server, now);
    let mut buffer = BytesMut::from(&PREFACE[..]);
    for piece in data.chunks(61) {
        buffer.extend_from_slice(piece);
        ours.receive(&mut buffer, now);
        while let Some(arrival) = ours.next_arrival() {
            let Some((key, id)) = arrival.stream else { continue };
            while let Some(data) = ours.stream(key).and_then(|stream| stream.pieces.pop()) {
                ours.give(key, data.len());
            }
            let answered = ours.respond(key, StatusCode::OK, &HeaderMap::new(), &Extra::default(), false);
            if answered.is_ok() && ours.room(key).is_ok_and(|room| room > 10) && id % 4 == 1 {
                assert!(
                    ours.send_data(key, Bytes::from_static(b"0123456789"), true).is_ok(),
                    "there is room"
                );
            }
            ours.release(key);
        }
        let waiting = ours.output().len();
        assert!(waiting < 1 << 20, "what waits has a bound");
        ours.output().advance(waiting);
        ours.written();
    }
}

/// A target sends `data` as its answer to a few requests.
pub(super) fn h2_client(data: &[u8]) {
    let now = Instant::now();
    let mut ours = connection(Role::Client, now);
    let line = RequestLine { method: &Method::GET, scheme: "http", authority: b"a", path: "/" };
    let keys: Vec<usize> = (0..3)
        .filter_map(|_| ours.request(&line, &HeaderMap::new(), &Extra::default(), true))
        .map(|(key, _)| key)
        .collect();
    let mut buffer = BytesMut::new();
    for piece in data.chunks(61) {
        buffer.extend_from_slice(piece);
        ours.receive(&mut buffer, now);
        for key in &keys {
            while let Some(data) = ours.stream(*key).and_then(|stream| stream.pieces.pop()) {
                ours.give(*key, data.len());
            }
        }
    }
    keys.into_iter().for_each(|key| ours.release(key));
    assert!(ours.is_idle(), "nothing is left behind");
}

/// Whatever fields `data` stands for come back when they are written and read again.
pub(super) fn hpack(data: &[u8]) {
    let mut fields = Vec::new();
    let block = Bytes::copy_from_slice(data);
    if Decoder::default().decode(&block, 1 << 16, |field| fields.push((field.name, field.value))).is_err() {
        return;
    }
    fields.retain(|(name, value)| matches!((name, value), (Name::Header(_), Value::Header(_))));
    let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
    for _ in 0..3 {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        for (name, value) in &fields {
            let (Name::Header(name), Value::Header(value)) = (name, value) else { continue };
            encoder.field(&mut out, name.as_str().as_bytes(), value.as_bytes(), value.len() % 5 == 0);
        }
        let mut back = Vec::new();
        let read = decoder.decode(&out.into(), usize::MAX, |field| back.push((field.name, field.value)));
        assert!(read.is_ok() && back.len() == fields.len(), "what was written can be read");
        for ((name, value), (first, second)) in back.iter().zip(&fields) {
            let (Value::Header(value), Value::Header(second)) = (value, second) else { panic!("a value") };
            assert!(name == first && value == second, "and says the same");
        }
    }
}
