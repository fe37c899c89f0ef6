//! Frames cut everywhere, frames where they may not be, and a deterministic fuzz.

use super::*;

fn framed(kind: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, kind);
    put_varint(&mut out, payload.len() as u64);
    out.extend_from_slice(payload);
    out
}

/// All events of these octets, handed over in pieces of so many.
fn events(frames: &mut Frames, octets: &[u8], piece: usize) -> Result<Vec<Event>, H3Error> {
    let mut events = Vec::new();
    for piece in octets.chunks(piece) {
        let mut input = Bytes::copy_from_slice(piece);
        while let Some(event) = frames.next(&mut input)? {
            events.push(event);
        }
        assert!(input.is_empty());
    }
    Ok(events)
}

/// With pieces of a body put together, and without what brings nothing.
fn joined(events: Vec<Event>) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    for event in events {
        match (all.last_mut(), event) {
            (_, Event::Nothing) => {}
            (Some(Event::Data(had)), Event::Data(data)) => *had = [&had[..], &data[..]].concat().into(),
            (_, event) => all.push(event),
        }
    }
    all
}

fn request(role: Role) -> Frames {
    Frames::new(StreamKind::Request, role, 100)
}

#[test]
fn numbers() {
    // RFC 9000 §A.1.
    for (octets, value) in [
        (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c][..], 151_288_809_941_952_652),
        (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
        (&[0x7b, 0xbd], 15_293),
        (&[0x25], 37),
    ] {
        let mut out = Vec::new();
        put_varint(&mut out, value);
        assert_eq!(out, octets);
        let mut input = octets;
        assert_eq!(varint(&mut input), Some(value));
        assert!(input.is_empty());
        for cut in 0..octets.len() {
            assert_eq!(varint(&mut &octets[..cut]), None);
        }
    }
    // One that is longer than it has to be is a number as well.
    assert_eq!(varint(&mut &[0x40, 0x25][..]), Some(37));
    let mut out = Vec::new();
    put_varint(&mut out, u64::MAX);
    assert_eq!(varint(&mut &out[..]), Some(MAX_VARINT));
}

#[test]
fn the_same_is_read_however_it_is_cut() {
    let octets = [
        framed(0x21, b"grease"),
        framed(kind::HEADERS, b"section"),
        framed(kind::DATA, b""),
        framed(kind::DATA, &[b'd'; 300]),
        framed(0x40 * 0x1f + 0x21, &[0; 1000]),
        framed(kind::HEADERS, b""),
    ]
    .concat();
    let expected = [
        Event::Headers(Bytes::from_static(b"section")),
        Event::Data(vec![b'd'; 300].into()),
        Event::Headers(Bytes::new()),
    ];
    for piece in [1, 2, 3, 7, 64, octets.len()] {
        let mut frames = request(Role::Server);
        assert_eq!(joined(events(&mut frames, &octets, piece).unwrap()), expected, "{piece}");
        assert!(frames.is_between());
    }
    // A stream may end between frames and nowhere else.
    let data = framed(kind::DATA, b"four");
    for cut in 1..data.len() {
        let mut frames = request(Role::Server);
        events(&mut frames, &data[..cut], 1).unwrap();
        assert!(!frames.is_between(), "{cut}");
    }
}

#[test]
fn a_section_that_is_too_large_is_skipped() {
    let limit = 100 + usize::try_from(MAX_BLOCK_EXCESS).unwrap();
    for (length, fits) in [(limit, true), (limit + 1, false)] {
        let octets = [framed(kind::HEADERS, &vec![0; length]), framed(kind::DATA, b"x")].concat();
        let events = joined(events(&mut request(Role::Client), &octets, 1000).unwrap());
        assert_eq!(events[0] == Event::TooLarge, !fits);
        assert_eq!(events[1], Event::Data(Bytes::from_static(b"x")));
    }
}

#[test]
fn frames_where_they_may_not_be() {
    let code = |place, role, octets: &[u8]| {
        events(&mut Frames::new(place, role, 100), octets, 1).err().map(|fault| fault.code)
    };
    use Role::{Client, Server};
    use StreamKind::{Control, Request};
    for role in [Server, Client] {
        for wrong in [0x2, 0x6, 0x8, 0x9] {
            assert_eq!(code(Request, role, &framed(wrong, b"")), Some(Code::FRAME_UNEXPECTED), "{wrong}");
            assert_eq!(code(Control, role, &framed(wrong, b"")), Some(Code::FRAME_UNEXPECTED), "{wrong}");
        }
        for wrong in [kind::SETTINGS, kind::GOAWAY, kind::CANCEL_PUSH, kind::MAX_PUSH_ID] {
            assert_eq!(code(Request, role, &framed(wrong, &[1])), Some(Code::FRAME_UNEXPECTED), "{wrong}");
        }
        for wrong in [kind::DATA, kind::HEADERS, kind::PUSH_PROMISE] {
            assert_eq!(code(Control, role, &framed(wrong, &[1])), Some(Code::FRAME_UNEXPECTED), "{wrong}");
        }
        for wrong in [&[][..], &[0x40], &[1, 1], &[0; 9]] {
            assert_eq!(
                code(Control, role, &framed(kind::GOAWAY, wrong)),
                Some(Code::FRAME_ERROR),
                "{wrong:?}"
            );
        }
        assert_eq!(code(Control, role, &framed(kind::SETTINGS, &[0; 5000])), Some(Code::EXCESSIVE_LOAD));
    }
    assert_eq!(code(Request, Server, &framed(kind::PUSH_PROMISE, &[1])), Some(Code::FRAME_UNEXPECTED));
    assert_eq!(code(Request, Client, &framed(kind::PUSH_PROMISE, &[1])), Some(Code::ID_ERROR));
    assert_eq!(code(Control, Client, &framed(kind::MAX_PUSH_ID, &[1])), Some(Code::FRAME_UNEXPECTED));
    assert_eq!(code(Control, Server, &framed(kind::MAX_PUSH_ID, &[1])), None);
}

/// Any octets are read to their end, or refused; cutting them differently changes nothing.
#[test]
fn anything_is_read_or_refused() {
    let mut random = fastrand::Rng::with_seed(9114);
    let mut sound = 0;
    for round in 0..20_000 {
        let mut octets = Vec::new();
        for _ in 0..random.usize(1..6) {
            let kind = match random.u8(..4) {
                0 => kind::DATA,
                1 => kind::HEADERS,
                2 => random.u64(..0x20),
                _ => random.u64(..0x4000),
            };
            let payload: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
            octets.extend(framed(kind, &payload));
        }
        if round % 2 == 0 {
            octets.truncate(random.usize(..=octets.len()));
            let at = random.usize(..octets.len().max(1));
            if let Some(octet) = octets.get_mut(at) {
                *octet = random.u8(..);
            }
        }
        for place in [StreamKind::Request, StreamKind::Control] {
            let mut runs = [1, 5, octets.len().max(1)].into_iter().map(|piece| {
                let mut frames = Frames::new(place, Role::Server, 100);
                events(&mut frames, &octets, piece).map(|events| (joined(events), frames.is_between()))
            });
            let first = runs.next().unwrap();
            sound += u32::from(first.is_ok());
            assert!(runs.all(|run| run == first), "{octets:x?}");
        }
    }
    assert!(sound > 1000, "{sound}");
}
