//! Streams of frames with faults in them, from a seed: whatever comes, no panic, and no more memory than a bound.

use http::StatusCode;

use super::*;

/// Good frames of all kinds, as a stock for broken ones.
fn stock() -> Vec<Vec<u8>> {
    let mut stock = vec![
        frame(FrameType::Settings, 0, 0, &[0, 4, 0, 1, 0, 0, 0, 3, 0, 0, 0, 100, 0, 1, 0, 0, 0, 0]),
        frame(FrameType::Settings, flag::ACK, 0, &[]),
        frame(FrameType::Ping, 0, 0, b"12345678"),
        frame(FrameType::GoAway, 0, 0, &[0, 0, 0, 9, 0, 0, 0, 0, b'x']),
        frame(FrameType::WindowUpdate, 0, 0, &[0, 0, 4, 0]),
        frame(FrameType::Unknown, 3, 9, &[1, 2, 3]),
    ];
    for id in (1..20).step_by(2) {
        let fields = [GET, b"\x40\x03foo\x03bar\x10\x01x\x81\x1f\xbe\x20".as_slice()].concat();
        stock.push(frame(FrameType::Headers, END, id, &fields));
        stock.push(frame(FrameType::Headers, flag::END_HEADERS, id, POST));
        stock.push(frame(FrameType::Headers, 0, id, &POST[..3]));
        stock.push(frame(FrameType::Continuation, flag::END_HEADERS, id, &POST[3..]));
        stock.push(frame(
            FrameType::Headers,
            END | flag::PADDED | flag::PRIORITY,
            id,
            &[1, 0, 0, 0, 0, 7, 0x88, 0],
        ));
        stock.push(frame(FrameType::Data, 0, id, &[b'd'; 300]));
        stock.push(frame(FrameType::Data, flag::END_STREAM | flag::PADDED, id, &[2, b'e', 0, 0]));
        stock.push(frame(FrameType::RstStream, 0, id, &[0, 0, 0, 8]));
        stock.push(frame(FrameType::WindowUpdate, 0, id, &[0, 0, 4, 0]));
        stock.push(frame(FrameType::Priority, 0, id, &[0, 0, 0, 0, 1]));
        stock.push(frame(FrameType::PushPromise, flag::END_HEADERS, id, &[0, 0, 0, 2, 0x82]));
    }
    stock
}

/// Breaks a frame in one of several ways, or not.
fn mutate(random: &mut fastrand::Rng, octets: &mut Vec<u8>) {
    match random.u8(0..10) {
        0 => {
            let at = random.usize(..octets.len());
            octets[at] ^= 1 << random.u8(0..8);
        }
        1 => {
            let at = random.usize(..octets.len());
            octets[at] = random.u8(..);
        }
        2 => octets.truncate(random.usize(..octets.len())),
        3 => {
            let at = random.usize(..octets.len());
            octets.insert(at, random.u8(..));
        }
        _ => {}
    }
}

/// What the application does meanwhile.
fn act(random: &mut fastrand::Rng, dialogue: &mut Dialogue, held: &mut Vec<usize>) {
    while let Some(arrival) = dialogue.ours.next_arrival() {
        held.extend(arrival.stream.map(|(key, _)| key));
    }
    if held.is_empty() {
        return;
    }
    let at = random.usize(..held.len());
    let key = held[at];
    match random.u8(0..7) {
        0 => {
            dialogue.ours.release(key);
            held.swap_remove(at);
        }
        1 => {
            let ends = random.bool();
            let answered =
                dialogue.ours.respond(key, StatusCode::OK, &Default::default(), &Extra::default(), ends);
            assert!(
                answered.is_ok()
                    || dialogue
                        .ours
                        .stream(key)
                        .is_none_or(|stream| !stream.sending || stream.fate.is_some())
            );
        }
        2 => {
            if let Ok(room @ 1..) = dialogue.ours.room(key) {
                let data = vec![0; random.usize(..room.min(5000) + 1)];
                dialogue.ours.send_data(key, data.into(), random.bool()).expect("room for it");
            }
        }
        3 => {
            if let Some(data) = dialogue.ours.stream(key).and_then(|stream| stream.pieces.pop()) {
                dialogue.ours.give(key, data.len());
            }
        }
        4 => dialogue.ours.deafen(key),
        5 => dialogue.ours.await_sending(key),
        _ => dialogue.ours.reset(key, Reason::CANCEL),
    }
}

fn play(seed: u64, role: Role, stock: &[Vec<u8>]) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut dialogue = Dialogue::greeted(rules(role));
    let mut held = Vec::new();
    if role == Role::Client {
        let line = RequestLine { method: &http::Method::GET, scheme: "http", authority: b"a", path: "/" };
        for _ in 0..random.usize(..9) {
            let opened = dialogue.ours.request(&line, &Default::default(), &Extra::default(), random.bool());
            held.extend(opened.map(|(key, _)| key));
        }
    }
    for _ in 0..60 {
        let mut octets = stock[random.usize(..stock.len())].clone();
        mutate(&mut random, &mut octets);
        // However the octets are cut, it makes no difference.
        let cut = random.usize(..=octets.len());
        dialogue.say(&octets[..cut]);
        dialogue.say(&octets[cut..]);
        act(&mut random, &mut dialogue, &mut held);
        if random.u8(0..5) == 0 {
            dialogue.hear();
        }
        if random.u8(0..40) == 0 {
            dialogue.now += Duration::from_secs(random.u64(..8));
            let now = dialogue.now;
            dialogue.ours.expire(now);
        }
        assert!(dialogue.buffer.len() <= 16_384 + HEAD_BYTES + 400);
        assert!(dialogue.ours.output().len() < 1 << 20);
        assert!(held.len() <= 8 + MAX_LINGERING);
    }
    dialogue.hear();
    held.into_iter().for_each(|key| dialogue.ours.release(key));
    while let Some(arrival) = dialogue.ours.next_arrival() {
        if let Some((key, _)) = arrival.stream {
            dialogue.ours.release(key);
        }
    }
    dialogue.ours.expire(Instant::now() + DISCARD_TIMEOUT);
    assert!(dialogue.ours.is_idle(), "seed {seed}: nothing is left behind");
    assert_eq!(dialogue.ours.streams.active, 0, "seed {seed}");
}

#[test]
fn broken_frames() {
    let stock = stock();
    for seed in 0..2000 {
        play(seed, Role::Server, &stock);
        play(seed, Role::Client, &stock);
    }
}

#[test]
fn noise() {
    let mut random = fastrand::Rng::with_seed(9113);
    for _ in 0..500 {
        let mut dialogue = Dialogue::server();
        let noise: Vec<u8> = (0..random.usize(..400)).map(|_| random.u8(..)).collect();
        dialogue.say(&noise);
        dialogue.hear();
    }
}
