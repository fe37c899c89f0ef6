//! Entry points for the fuzzers in `fuzz/`; nothing else may use them.

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
        patience: Duration::ZERO,
        stall: Duration::ZERO,
        keep_alive: (Duration::ZERO, Duration::ZERO),
    };
    Connection::new(rules, now)
}

/// A client sends `data` after its preface; each request is answered, and each body is read.
pub fn h2_server(data: &[u8]) {
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
pub fn h2_client(data: &[u8]) {
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
pub fn hpack(data: &[u8]) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Messages as a peer may send them, to begin with.
    const SEEDS: [&[u8]; 5] = [
        b"\0\0\0\x04\0\0\0\0\0\0\0\x06\x01\x05\0\0\0\x01\x82\x86\x84\x41\x01a",
        b"\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\x04\0\0\0\x01\x88\0\0\x03\0\x01\0\0\0\x01abc",
        b"\0\0\0\x04\0\0\0\0\0\0\0\x05\x01\x05\0\0\0\x01\x48\x03103\0\0\x04\x08\0\0\0\0\0\0\0\0\x09",
        b"\x40\x03foo\x03bar\xbe\x0f\x10\x02hi\x10\x01x\x81\x1f\x20",
        b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
    ];

    #[test]
    fn the_targets_hold_for_what_grows_from_their_seeds() {
        let mut random = fastrand::Rng::with_seed(7541);
        for turn in 0..20_000 {
            let mut data = SEEDS[turn % SEEDS.len()].to_vec();
            for _ in 0..random.usize(..12) {
                let at = random.usize(..data.len());
                match random.u8(..4) {
                    0 => data[at] = random.u8(..),
                    1 => data.insert(at, random.u8(..)),
                    2 => data.extend_from_slice(SEEDS[random.usize(..SEEDS.len())]),
                    _ => data[at] ^= 1 << random.u8(..8),
                }
            }
            h2_server(&data);
            h2_client(&data);
            hpack(&data);
        }
    }
}
