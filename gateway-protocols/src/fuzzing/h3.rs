//! HTTP/3's frames and what is in them, and the instructions on QPACK's own streams.

use std::cell::{Cell, RefCell};

use bytes::{Bytes, BytesMut};

use super::pieces;
use crate::h2::Role;
use crate::h2::head::Fields;
use crate::h3::frame::{Event, Frames, MAX_VARINT, StreamKind, put_varint, varint};
use crate::h3::incoming::{Incoming, Listener, OpenedStreams};
use crate::h3::settings::Settings;
use crate::h3::{Code, H3Error};
use crate::hpack::integer;
use crate::qpack;

/// Octets of a field section.
const LIMIT: usize = 4096;

/// What a stream says, without what depends on the pieces it came in.
fn events(place: StreamKind, role: Role, data: &[u8], step: usize) -> (Vec<Event>, Result<bool, H3Error>) {
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
        let (said, _) = pieces::whole(data, |data, step| events(StreamKind::Request, role, data, step));
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

/// Hears what a peer's own streams say.
#[derive(Debug, PartialEq, Eq)]
struct Heard {
    role: Role,
    settings: Cell<Option<Settings>>,
    said: RefCell<Vec<(&'static str, u64)>>,
}

impl Listener for Heard {
    fn role(&self) -> Role {
        self.role
    }

    fn settle(&self, settings: Settings) -> Result<(), H3Error> {
        match self.settings.replace(Some(settings)) {
            None => Ok(()),
            Some(_) => Err(H3Error::new(Code::FRAME_UNEXPECTED, "twice")),
        }
    }

    fn is_settled(&self) -> bool {
        self.settings.get().is_some()
    }

    fn heard_goaway(&self, id: u64) -> Result<(), H3Error> {
        self.said.borrow_mut().push(("goaway", id));
        Ok(())
    }

    fn heard_max_push(&self, id: u64) -> Result<(), H3Error> {
        self.said.borrow_mut().push(("max push", id));
        Ok(())
    }

    fn idle_frame(&self) -> Result<(), H3Error> {
        Ok(())
    }
}

/// The streams a peer opens by itself, one after the other: the first octet of `data` says how many octets the first
/// has, and so on. How each ended: it may go on, nobody knows what it is for, or it ended the connection.
fn streams(role: Role, mut data: &[u8], step: usize) -> (Heard, Vec<Result<bool, H3Error>>) {
    let heard = Heard { role, settings: Cell::default(), said: RefCell::default() };
    let (mut seen, mut ends) = (OpenedStreams::default(), Vec::new());
    while let Some((&octets, rest)) = data.split_first() {
        let (stream, later) = rest.split_at(usize::from(octets).min(rest.len()));
        data = later;
        let mut incoming = Incoming::default();
        let mut end = Ok(true);
        for piece in stream.chunks(step.min(stream.len()).max(1)) {
            end = incoming.take(&heard, &mut seen, Bytes::copy_from_slice(piece));
            if end != Ok(true) {
                break;
            }
        }
        ends.push(end);
        if end.is_err() {
            break;
        }
    }
    (heard, ends)
}

/// What a peer says on streams of its own, and the same octets as a control stream, SETTINGS and numbers.
pub(super) fn control(data: &[u8]) {
    for role in [Role::Server, Role::Client] {
        let (said, _) = pieces::whole(data, |data, step| events(StreamKind::Control, role, data, step));
        for event in &said {
            if let Event::Settings(payload) = event {
                settings(payload);
            }
        }
        let (_, ends) = pieces::whole(data, |data, step| streams(role, data, step));
        assert!(ends.iter().rev().skip(1).all(Result::is_ok), "nothing is heard after the end");
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
    const DECODER: u8 = 3;
    let heard = Heard { role: Role::Server, settings: Cell::default(), said: RefCell::default() };
    let (mut incoming, mut seen) = (Incoming::default(), OpenedStreams::default());
    let mut take = |octet: u8| incoming.take(&heard, &mut seen, Bytes::from(vec![octet])).is_ok();
    assert!(take(DECODER), "there is one");
    let taken = data.iter().take_while(|octet| take(**octet)).count();
    let mut input = &data[..taken];
    while let Some(first) = input.first() {
        assert_eq!(first & 0xc0, 0x40, "nothing but a stream that was given up");
        // Its end may be missing, or it is a longer number than ours may be, which is not looked at here.
        if integer::decode(&mut input, 6).is_err() {
            return;
        }
    }
}
