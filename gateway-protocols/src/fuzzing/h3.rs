//! HTTP/3's frames and what is in them, and the instructions on QPACK's own streams.

use bytes::{Bytes, BytesMut};

use super::pieces;
use crate::h2::Role;
use crate::h2::head::Fields;
use crate::h3::Fault;
use crate::h3::frame::{Event, Frames, MAX_VARINT, Place, put_varint, varint};
use crate::h3::peer::instruction;
use crate::h3::settings::Settings;
use crate::hpack::integer;
use crate::qpack;

/// Octets of a field section.
const LIMIT: usize = 4096;

/// What a stream says, without what depends on the pieces it came in.
fn events(place: Place, role: Role, data: &[u8], step: usize) -> (Vec<Event>, Result<bool, Fault>) {
    let mut frames = Frames::new(place, role, LIMIT);
    let mut said: Vec<Event> = Vec::new();
    for piece in data.chunks(step.min(data.len()).max(1)) {
        let mut input = Bytes::copy_from_slice(piece);
        loop {
            let left = input.len();
            match frames.next(&mut input) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    assert!(input.len() < left, "something is taken for each event");
                    note(&mut said, event);
                }
                Err(fault) => return (said, Err(fault)),
            }
        }
        assert!(input.is_empty(), "all there was is taken");
    }
    (said, Ok(frames.is_between()))
}

fn note(said: &mut Vec<Event>, event: Event) {
    match (said.last_mut(), event) {
        (_, Event::Nothing) => {}
        (Some(Event::Data(before)), Event::Data(data)) => {
            let mut joined = BytesMut::from(&before[..]);
            joined.extend_from_slice(&data);
            *before = joined.freeze();
        }
        (_, event) => said.push(event),
    }
}

/// A request's stream, read by either side.
pub(super) fn request(data: &[u8]) {
    for role in [Role::Server, Role::Client] {
        let (said, _) = pieces::whole(data, |data, step| events(Place::Request, role, data, step));
        for event in said {
            if let Event::Headers(section) = event {
                message(role, &section);
            }
        }
    }
}

/// A field section as a head, and as trailers.
fn message(role: Role, section: &Bytes) {
    let read = |fields: &mut Fields| qpack::decode(section, LIMIT, |field| fields.push(field)).is_ok();
    let mut head = Fields::new(role);
    if read(&mut head) {
        match role {
            Role::Server => {
                if let Ok(head) = head.take_request() {
                    let target = head.request.uri().path();
                    assert!(
                        target.is_empty() || target == "*" || target.starts_with('/'),
                        "a path begins so"
                    );
                }
            }
            Role::Client => {
                if let Ok((response, _)) = head.take_response() {
                    assert!((100..1000).contains(&response.status().as_u16()), "a status is a number");
                }
            }
        }
    }
    let mut trailers = Fields::new(role);
    if read(&mut trailers) {
        let _fields = trailers.take_trailers();
    }
}

/// A peer's control stream, and the same octets as SETTINGS, numbers and QPACK's instructions.
pub(super) fn control(data: &[u8]) {
    for role in [Role::Server, Role::Client] {
        let (said, _) = pieces::whole(data, |data, step| events(Place::Control, role, data, step));
        for event in &said {
            if let Event::Settings(payload) = event {
                settings(payload);
            }
        }
    }
    settings(data);
    numbers(data);
    instructions(data);
}

/// What we understood and write is understood in the same way.
fn settings(payload: &[u8]) {
    let Ok(settings) = Settings::read(payload) else { return };
    let mut frame = Vec::new();
    settings.write(&mut frame);
    let mut input = &frame[..];
    let (kind, length) = (varint(&mut input), varint(&mut input));
    assert_eq!((kind, length), (Some(4), Some(input.len() as u64)), "one frame");
    assert_eq!(Settings::read(input), Ok(settings));
}

fn numbers(mut data: &[u8]) {
    while let Some(number) = varint(&mut data) {
        assert!(number <= MAX_VARINT);
        let mut out = Vec::new();
        put_varint(&mut out, number);
        let mut input = &out[..];
        assert_eq!((varint(&mut input), input.len()), (Some(number), 0));
    }
}

/// What is read octet by octet on the decoder's stream are numbers behind the bits `01`.
fn instructions(data: &[u8]) {
    let mut within = None;
    let taken = data.iter().take_while(|octet| match instruction(within, **octet) {
        Ok(now) => {
            within = now;
            true
        }
        Err(_) => false,
    });
    let taken = taken.count();
    let mut input = &data[..taken];
    while let Some(first) = input.first() {
        assert_eq!(first & 0xc0, 0x40, "nothing but a stream that was given up");
        // Longer numbers than ours may be; they are not looked at here.
        if integer::decode(&mut input, 6).is_err() {
            return;
        }
    }
    assert_eq!(within, None, "every number has its end");
}
