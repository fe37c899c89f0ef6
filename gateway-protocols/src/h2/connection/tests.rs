//! Connections as dialogues of frames: one end is ours, the other is written out octet by octet.

mod abuse;
mod client;
mod fuzz;
mod oracle;
mod rules_of_the_rfc;

use super::*;
use crate::h2::frame::{FrameType, flag};

/// What our end says next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) kind: FrameType,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Outgoing {
    /// The reason of a RST_STREAM or GOAWAY.
    fn reason(&self) -> Option<Reason> {
        let at = match self.kind {
            FrameType::RstStream => 0,
            FrameType::GoAway => 4,
            _ => return None,
        };
        frame::number(&self.payload[at..]).map(Reason)
    }
}

/// One end of ours and the script of the other.
pub(crate) struct Dialogue {
    pub(crate) ours: Connection,
    buffer: BytesMut,
    pub(crate) now: Instant,
}

pub(crate) fn rules(role: Role) -> Rules {
    Rules {
        role,
        settings: Settings {
            max_concurrent_streams: (role == Role::Server).then_some(8),
            enable_connect_protocol: role == Role::Server,
            enable_push: role == Role::Server,
            ..Settings::default()
        },
        connection_window: INITIAL_WINDOW,
        adaptive_window: false,
        max_header_list: 4096,
        timeout: Duration::from_secs(10),
        stall: Duration::from_secs(60),
        keep_alive: (Duration::ZERO, Duration::ZERO),
    }
}

/// A frame as the peer writes it.
pub(crate) fn frame(kind: FrameType, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&frame::head(payload.len(), kind, flags, stream)[..], payload].concat()
}

/// `GET http://a/`, complete in one block.
pub(crate) const GET: &[u8] = b"\x82\x86\x84\x41\x01a";
/// `POST http://a/`
pub(crate) const POST: &[u8] = b"\x83\x86\x84\x41\x01a";
const END: u8 = flag::END_STREAM | flag::END_HEADERS;

impl Dialogue {
    /// Before anything was said.
    pub(crate) fn silent(rules: Rules) -> Self {
        let now = Instant::now();
        Self { ours: Connection::new(rules, now), buffer: BytesMut::new(), now }
    }

    /// After both sides have said and confirmed their settings.
    pub(crate) fn greeted(rules: Rules) -> Self {
        let mut it = Self::silent(rules);
        if rules.role == Role::Server {
            it.say(PREFACE);
        }
        it.say(&frame(FrameType::Settings, 0, 0, &[]));
        it.say(&frame(FrameType::Settings, flag::ACK, 0, &[]));
        it.hear();
        it
    }

    pub(crate) fn server() -> Self {
        Self::greeted(rules(Role::Server))
    }

    /// The peer sends these octets.
    pub(crate) fn say(&mut self, octets: &[u8]) {
        self.buffer.extend_from_slice(octets);
        self.ours.receive(&mut self.buffer, self.now);
    }

    /// Takes everything our end has to say.
    pub(crate) fn hear(&mut self) -> Vec<Outgoing> {
        let mut octets: Vec<u8> = Vec::new();
        while !self.ours.output().is_empty() {
            let piece: Vec<u8> =
                self.ours.output().slices().iter().flat_map(|slice| slice.to_vec()).collect();
            self.ours.output().advance(piece.len());
            octets.extend_from_slice(&piece);
        }
        self.ours.written();
        let mut rest = octets.strip_prefix(PREFACE).unwrap_or(&octets);
        let mut said = Vec::new();
        while let Some(head) = Head::parse(rest) {
            let (payload, tail) = rest[HEAD_BYTES..].split_at(head.length);
            said.push(Outgoing {
                kind: head.kind,
                flags: head.flags,
                stream: head.stream,
                payload: payload.to_vec(),
            });
            rest = tail;
        }
        assert!(rest.is_empty(), "our end writes whole frames: {rest:?}");
        said
    }

    /// Opens a request's stream and takes it.
    pub(crate) fn request(&mut self, id: u32, block: &[u8], ends: bool) -> usize {
        let flags = flag::END_HEADERS | if ends { flag::END_STREAM } else { 0 };
        self.say(&frame(FrameType::Headers, flags, id, block));
        let arrival = self.ours.next_arrival().expect("a request");
        arrival.head.as_ref().expect("a good one");
        arrival.stream.expect("with a stream").0
    }

    /// The whole connection has failed with this reason.
    #[track_caller]
    fn failed(&mut self, reason: Reason) {
        assert_eq!(self.ours.end().map(|fault| fault.reason), Some(reason));
        let said = self.hear();
        let goaway = said.last().expect("a GOAWAY");
        assert_eq!((goaway.kind, goaway.reason()), (FrameType::GoAway, Some(reason)));
        assert!(self.ours.is_over());
    }

    /// One stream has been reset with this reason, and nothing else happened.
    #[track_caller]
    fn reset(&mut self, stream: u32, reason: Reason) {
        let said = self.hear();
        let resets: Vec<_> = said.iter().filter(|said| said.kind == FrameType::RstStream).collect();
        assert!(self.ours.end().is_none(), "{:?}", self.ours.end());
        assert_eq!(resets.len(), 1, "{said:?}");
        assert_eq!((resets[0].stream, resets[0].reason()), (stream, Some(reason)));
    }

    /// Nothing is wrong with what was said.
    #[track_caller]
    fn fine(&mut self) {
        assert!(self.ours.end().is_none(), "{:?}", self.ours.end());
        let said = self.hear();
        assert!(said.iter().all(|said| said.reason().is_none()), "{said:?}");
    }
}
