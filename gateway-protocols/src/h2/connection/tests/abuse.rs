//! Floods, and what they cost those who start them.

use super::*;
use crate::h2::flood::{MAX_CONTINUATIONS, MAX_IDLE_FRAMES, MAX_RESETS};

/// Says the same again until the connection ends; how often it was said.
#[track_caller]
fn again(dialogue: &mut Dialogue, most: u32, mut octets: impl FnMut(u32) -> Vec<u8>) -> u32 {
    for turn in 0..most {
        dialogue.say(&octets(turn));
        while let Some(arrival) = dialogue.ours.next_arrival() {
            if let Some((key, _)) = arrival.stream {
                dialogue.ours.release(key);
            }
        }
        if dialogue.ours.end().is_some() {
            dialogue.failed(Reason::ENHANCE_YOUR_CALM);
            return turn;
        }
        assert!(dialogue.ours.output().len() < 2 * MAX_UNREAD, "what waits to be written has a bound");
        dialogue.hear();
    }
    panic!("it goes on for ever");
}

fn rst(id: u32) -> Vec<u8> {
    frame(FrameType::RstStream, 0, id, &8_u32.to_be_bytes())
}

/// CVE-2023-44487
#[test]
fn rapid_resets() {
    let mut dialogue = Dialogue::server();
    let turns = again(&mut dialogue, 10_000, |turn| {
        let id = 2 * turn + 1;
        [frame(FrameType::Headers, END, id, GET), rst(id)].concat()
    });
    assert_eq!(turns, MAX_RESETS);
}

/// CVE-2025-8671: streams we are made to reset count as well, whatever the trick.
#[test]
fn resets_we_are_made_to_send() {
    type Trick = fn(u32) -> Vec<u8>;
    let tricks: [(&str, Trick); 5] = [
        ("a window opened by nothing", |id| frame(FrameType::WindowUpdate, 0, id, &[0; 4])),
        ("a window too large", |id| frame(FrameType::WindowUpdate, 0, id, &[0x7f, 0xff, 0xff, 0xff])),
        ("PRIORITY of a wrong size", |id| frame(FrameType::Priority, 0, id, &[0; 3])),
        ("DATA after the end", |id| frame(FrameType::Data, 0, id, b"x")),
        ("HEADERS after the end", |id| frame(FrameType::Headers, END, id, GET)),
    ];
    for (what, trick) in tricks {
        let mut dialogue = Dialogue::server();
        let turns = again(&mut dialogue, 10_000, |turn| {
            let id = 2 * turn + 1;
            [frame(FrameType::Headers, END, id, GET), trick(id)].concat()
        });
        assert_eq!(turns, MAX_RESETS, "{what}");
    }
    let mut dialogue = Dialogue::server();
    let malformed = [GET, b"\x00\x01X\x01a"].concat();
    let turns = again(&mut dialogue, 10_000, |turn| frame(FrameType::Headers, END, 2 * turn + 1, &malformed));
    assert_eq!(turns, MAX_RESETS);
}

#[test]
fn streams_beyond_the_limit() {
    let mut dialogue = Dialogue::server();
    let held: Vec<usize> = (0..8).map(|n| dialogue.request(2 * n + 1, POST, false)).collect();
    let turns = again(&mut dialogue, 10_000, |turn| frame(FrameType::Headers, END, 2 * turn + 17, GET));
    assert_eq!((turns, held.len()), (MAX_RESETS, 8));
}

/// Resets that are far apart hurt nobody.
#[test]
fn a_client_that_changes_its_mind_now_and_then() {
    let mut dialogue = Dialogue::server();
    for turn in 0..2000 {
        dialogue.now += Duration::from_millis(30);
        let key = dialogue.request(2 * turn + 1, GET, true);
        dialogue.say(&rst(2 * turn + 1));
        dialogue.ours.release(key);
    }
    dialogue.fine();
}

#[test]
fn frames_that_bring_nothing() {
    let open = frame(FrameType::Headers, flag::END_HEADERS, 1, POST);
    type Flood = fn() -> Vec<u8>;
    let floods: [(&str, Flood); 6] = [
        ("PING", || frame(FrameType::Ping, 0, 0, &[0; 8])),
        ("SETTINGS", || frame(FrameType::Settings, 0, 0, &[0, 3, 0, 0, 0, 9])),
        ("answers to SETTINGS", || frame(FrameType::Settings, flag::ACK, 0, &[])),
        ("PRIORITY", || frame(FrameType::Priority, 0, 9, &[0; 5])),
        ("unknown frames", || frame(FrameType::Unknown, 0, 0, &[])),
        ("empty DATA", || frame(FrameType::Data, 0, 1, &[])),
    ];
    for (what, flood) in floods {
        let mut dialogue = Dialogue::server();
        dialogue.say(&open);
        let key = dialogue.ours.next_arrival().unwrap().stream.unwrap().0;
        let turns = again(&mut dialogue, 100_000, |_| flood());
        assert!(turns <= MAX_IDLE_FRAMES && turns > MAX_IDLE_FRAMES / 2, "{what}: {turns}");
        dialogue.ours.release(key);
    }
}

/// A client that answers each frame of a download with two window updates may do so for ever.
#[test]
fn window_updates_are_earned() {
    let mut dialogue = Dialogue::server();
    let key = dialogue.request(1, GET, true);
    dialogue.ours.respond(key, http::StatusCode::OK, &Default::default(), &Extra::default(), false).unwrap();
    let update = |stream| frame(FrameType::WindowUpdate, 0, stream, &1000_u32.to_be_bytes());
    for _ in 0..20_000 {
        dialogue.ours.send_data(key, Bytes::from_static(&[0; 1000]), false).unwrap();
        dialogue.hear();
        dialogue.say(&[update(0), update(1)].concat());
    }
    dialogue.fine();
}

/// CVE-2024-27316
#[test]
fn header_blocks_without_end() {
    for piece in [0, 1, 1000] {
        let mut dialogue = Dialogue::server();
        dialogue.say(&frame(FrameType::Headers, flag::END_STREAM, 1, GET));
        let turns =
            again(&mut dialogue, 10_000, |_| frame(FrameType::Continuation, 0, 1, &vec![0x82; piece]));
        assert!(turns <= MAX_CONTINUATIONS, "pieces of {piece}: {turns}");
    }
    // Large pieces run into the limit of octets first.
    let mut dialogue = Dialogue::server();
    dialogue.say(&frame(FrameType::Headers, flag::END_STREAM, 1, GET));
    let turns = again(&mut dialogue, 10, |_| frame(FrameType::Continuation, 0, 1, &[0x82; 16_384]));
    assert_eq!(turns, 1);
}

#[test]
fn header_lists_beyond_the_limit_are_answered() {
    let mut block = GET.to_vec();
    // One entry of the table, named over and over: a few octets that stand for a great many.
    block.extend_from_slice(b"\x40\x01x\x7f\x81\x06");
    block.extend_from_slice(&[b'v'; 896]);
    block.extend_from_slice(&[0xbe; 5000]);
    let mut dialogue = Dialogue::server();
    dialogue.say(&frame(FrameType::Headers, END, 1, &block));
    let arrival = dialogue.ours.next_arrival().unwrap();
    let unreadable = arrival.head.map(drop).unwrap_err();
    assert!(unreadable.answerable && arrival.stream.is_some());
    dialogue.fine();
    // The tables are in step: the entry is still there.
    dialogue.request(3, &[GET, &[0xbf]].concat(), true);
    dialogue.fine();
}

/// Many fields of next to nothing count 32 octets each.
#[test]
fn fields_of_no_length() {
    let mut block = GET.to_vec();
    for _ in 0..4096 / 33 {
        block.extend_from_slice(&[0, 1, b'x', 0]);
    }
    let mut dialogue = Dialogue::server();
    dialogue.say(&frame(FrameType::Headers, END, 1, &block));
    assert!(dialogue.ours.next_arrival().unwrap().head.is_err());
}

#[test]
fn a_map_has_its_own_limit() {
    let mut roomy = rules(Role::Server);
    roomy.max_header_list = usize::MAX;
    roomy.settings.max_frame_size = 1 << 20;
    let mut block = GET.to_vec();
    for number in 0..40_000_u32 {
        let name = format!("x{number}");
        block.extend_from_slice(&[0, name.len() as u8]);
        block.extend_from_slice(name.as_bytes());
        block.push(0);
    }
    let mut dialogue = Dialogue::greeted(roomy);
    dialogue.say(&frame(FrameType::Headers, END, 1, &block));
    assert!(dialogue.ours.next_arrival().unwrap().head.is_err_and(|unreadable| unreadable.answerable));
}

#[test]
fn a_client_that_reads_nothing_is_not_read() {
    let mut dialogue = Dialogue::server();
    let mut said = 0;
    while dialogue.ours.may_read() {
        dialogue.say(&frame(FrameType::Ping, 0, 0, &[0; 8]));
        said += 1;
        if dialogue.ours.end().is_some() {
            break;
        }
    }
    assert!(said <= MAX_IDLE_FRAMES + 1);
    assert!(dialogue.ours.output().len() <= MAX_UNREAD + 100);
}

#[test]
fn silence_has_its_limits() {
    // No settings.
    let mut dialogue = Dialogue::silent(rules(Role::Server));
    assert_eq!(dialogue.ours.alarm(), Some(dialogue.now + Duration::from_secs(10)));
    dialogue.ours.expire(dialogue.now + Duration::from_secs(10));
    dialogue.failed(Reason::SETTINGS_TIMEOUT);
    // A header block that never ends.
    let mut dialogue = Dialogue::server();
    dialogue.say(&frame(FrameType::Headers, 0, 1, GET));
    dialogue.ours.expire(dialogue.now + Duration::from_secs(9));
    assert!(dialogue.ours.end().is_none());
    dialogue.ours.expire(dialogue.now + Duration::from_secs(10));
    dialogue.failed(Reason::ENHANCE_YOUR_CALM);
    // Nothing is taken of what waits.
    let mut dialogue = Dialogue::server();
    dialogue.say(&frame(FrameType::Ping, 0, 0, &[0; 8]));
    let now = dialogue.now;
    dialogue.ours.blocked(|| now);
    dialogue.ours.expire(now + Duration::from_secs(60));
    assert!(dialogue.ours.end().is_some() && dialogue.ours.output().is_empty());
}

/// A client that breaks a rule and then reads nothing is not waited for either.
#[test]
fn a_goaway_nobody_reads() {
    let mut dialogue = Dialogue::silent(rules(Role::Server));
    dialogue.say(b"no preface");
    assert!(dialogue.ours.is_over() && !dialogue.ours.output().is_empty());
    let now = dialogue.now;
    dialogue.ours.blocked(|| now);
    dialogue.ours.expire(now + Duration::from_secs(10));
    assert_eq!(dialogue.ours.alarm(), Some(now + Duration::from_secs(60)));
    dialogue.ours.expire(now + Duration::from_secs(60));
    assert!(dialogue.ours.output().is_empty());
}
