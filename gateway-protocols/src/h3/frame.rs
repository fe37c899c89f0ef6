//! Frames (RFC 9114 §7), from octets in whatever pieces they come.

use bytes::{Buf, Bytes, BytesMut};

use super::{Code, H3Error};
use crate::h2::Role;

/// Types of frames (RFC 9114 §7.2).
pub(crate) mod kind {
    pub(crate) const DATA: u64 = 0x0;
    pub(crate) const HEADERS: u64 = 0x1;
    pub(crate) const CANCEL_PUSH: u64 = 0x3;
    pub(crate) const SETTINGS: u64 = 0x4;
    pub(crate) const PUSH_PROMISE: u64 = 0x5;
    pub(crate) const GOAWAY: u64 = 0x7;
    pub(crate) const MAX_PUSH_ID: u64 = 0xd;
}

/// Octets of a SETTINGS frame we look at; far beyond what anybody has to say.
pub(crate) const MAX_SETTINGS: u64 = 4 << 10;
/// Octets of a header block beyond those its fields may have: the code can make a block longer than what it says.
pub(crate) const MAX_BLOCK_EXCESS: u64 = 16 << 10;
/// Octets of the longest number (RFC 9000 §16).
const MAX_NUMBER: u64 = 8;
/// Octets of the longest beginning of a frame: its type and its length.
const MAX_HEAD: usize = 16;

/// The largest number (RFC 9000 §16).
pub(crate) const MAX_VARINT: u64 = (1 << 62) - 1;

/// Reads a number; `None`, and nothing taken, when its end is not there.
pub(crate) fn varint(input: &mut &[u8]) -> Option<u64> {
    let (&first, _) = input.split_first()?;
    let (number, rest) = input.split_at_checked(1 << (first >> 6))?;
    let value =
        number[1..].iter().fold(u64::from(first & 0x3f), |value, octet| value << 8 | u64::from(*octet));
    *input = rest;
    Some(value)
}

/// Writes a number in as few octets as it fits in; what is larger than [`MAX_VARINT`] is cut to it.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..0x40 => out.push(value as u8),
        0x40..0x4000 => out.extend_from_slice(&(value as u16 | 0x4000).to_be_bytes()),
        0x4000..0x4000_0000 => out.extend_from_slice(&(value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend_from_slice(&(value.min(MAX_VARINT) | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// What kind of stream frames come on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Request,
    Control,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A field section.
    Headers(Bytes),
    /// A field section larger than we take; it is skipped.
    TooLarge,
    /// A piece of a body.
    Data(Bytes),
    Settings(Bytes),
    Goaway(u64),
    MaxPushId(u64),
    CancelPush(u64),
    /// Something that brings nothing: an empty DATA, a frame nobody knows or a piece of one.
    Nothing,
}

#[derive(Debug)]
enum FrameState {
    Head,
    Data(u64),
    Whole { kind: u64, left: usize, had: BytesMut },
    Skip(u64),
}

/// What is to be done with a frame.
enum FrameHandling {
    Whole,
    Pieces,
    Skip,
    TooLarge,
}

/// Reads frames of one stream.
#[derive(Debug)]
pub(crate) struct Frames {
    place: StreamKind,
    role: Role,
    /// Octets of a field section.
    limit: u64,
    head: [u8; MAX_HEAD],
    have: usize,
    state: FrameState,
}

impl Frames {
    /// Frames we get on such a stream in this role; field sections of up to `limit` octets are kept.
    pub(crate) fn new(place: StreamKind, role: Role, limit: usize) -> Self {
        let limit = (limit as u64).saturating_add(MAX_BLOCK_EXCESS);
        Self { place, role, limit, head: [0; MAX_HEAD], have: 0, state: FrameState::Head }
    }

    /// Whether the stream may end here (RFC 9114 §7.1).
    pub(crate) fn is_between(&self) -> bool {
        matches!(self.state, FrameState::Head) && self.have == 0
    }

    /// The next thing in `input`, which it is taken from; `None` when all of that is taken.
    ///
    /// # Errors
    /// What ends the connection.
    pub(crate) fn next(&mut self, input: &mut Bytes) -> Result<Option<Event>, H3Error> {
        loop {
            match &mut self.state {
                FrameState::Head => {
                    let Some((kind, length)) = self.head(input) else { return Ok(None) };
                    if let Some(event) = self.begin(kind, length)? {
                        return Ok(Some(event));
                    }
                }
                FrameState::Data(left) | FrameState::Skip(left) if input.is_empty() => {
                    debug_assert!(*left > 0, "an empty frame is over when it begins");
                    return Ok(None);
                }
                FrameState::Data(left) => {
                    let piece = take(left, input);
                    if *left == 0 {
                        self.state = FrameState::Head;
                    }
                    return Ok(Some(Event::Data(piece)));
                }
                FrameState::Skip(left) => {
                    take(left, input);
                    if *left == 0 {
                        self.state = FrameState::Head;
                    }
                    return Ok(Some(Event::Nothing));
                }
                FrameState::Whole { kind, left, had } => {
                    let kind = *kind;
                    let payload = if had.is_empty() && input.len() >= *left {
                        input.split_to(*left)
                    } else {
                        let piece = input.split_to((*left).min(input.len()));
                        *left -= piece.len();
                        had.extend_from_slice(&piece);
                        if *left > 0 {
                            return Ok(None);
                        }
                        std::mem::take(had).freeze()
                    };
                    self.state = FrameState::Head;
                    return whole(kind, payload).map(Some);
                }
            }
        }
    }

    /// Type and length of the next frame, once both are there.
    fn head(&mut self, input: &mut Bytes) -> Option<(u64, u64)> {
        while !input.is_empty() {
            self.head[self.have] = input[0];
            self.have += 1;
            input.advance(1);
            let mut had = &self.head[..self.have];
            if let Some(kind) = varint(&mut had)
                && let Some(length) = varint(&mut had)
            {
                self.have = 0;
                return Some((kind, length));
            }
        }
        None
    }

    fn begin(&mut self, kind: u64, length: u64) -> Result<Option<Event>, H3Error> {
        let (state, event) = match self.way(kind, length)? {
            FrameHandling::Pieces if length == 0 => (FrameState::Head, Some(Event::Nothing)),
            FrameHandling::Pieces => (FrameState::Data(length), None),
            FrameHandling::Skip if length == 0 => (FrameState::Head, Some(Event::Nothing)),
            FrameHandling::Skip => (FrameState::Skip(length), None),
            FrameHandling::TooLarge => (FrameState::Skip(length), Some(Event::TooLarge)),
            FrameHandling::Whole => {
                let left = usize::try_from(length).unwrap_or(usize::MAX);
                (FrameState::Whole { kind, left, had: BytesMut::new() }, None)
            }
        };
        self.state = state;
        Ok(event)
    }

    /// RFC 9114 §7.2: which frames may stand where.
    fn way(&self, kind: u64, length: u64) -> Result<FrameHandling, H3Error> {
        let unexpected = |note| Err(H3Error::new(Code::FRAME_UNEXPECTED, note));
        let number = |wanted: bool| match wanted {
            true if length > MAX_NUMBER => Err(H3Error::new(Code::FRAME_ERROR, "a number that is too long")),
            true => Ok(FrameHandling::Whole),
            false => unexpected("a frame on the wrong stream"),
        };
        let control = self.place == StreamKind::Control;
        match kind {
            kind::DATA if control => unexpected("DATA on a control stream"),
            kind::DATA => Ok(FrameHandling::Pieces),
            kind::HEADERS if control => unexpected("HEADERS on a control stream"),
            kind::HEADERS if length > self.limit => Ok(FrameHandling::TooLarge),
            kind::HEADERS => Ok(FrameHandling::Whole),
            kind::SETTINGS if !control => unexpected("SETTINGS on a request's stream"),
            kind::SETTINGS if length > MAX_SETTINGS => {
                Err(H3Error::new(Code::EXCESSIVE_LOAD, "SETTINGS without end"))
            }
            kind::SETTINGS => Ok(FrameHandling::Whole),
            kind::CANCEL_PUSH | kind::GOAWAY => number(control),
            // Only clients say how much may be pushed.
            kind::MAX_PUSH_ID => number(control && self.role == Role::Server),
            // We never leave anybody to push anything.
            kind::PUSH_PROMISE if !control && self.role == Role::Client => {
                Err(H3Error::new(Code::ID_ERROR, "a push that was not allowed"))
            }
            kind::PUSH_PROMISE => unexpected("PUSH_PROMISE from a client"),
            // RFC 9114 §7.2.8: these mean something in HTTP/2.
            0x2 | 0x6 | 0x8 | 0x9 => unexpected("a frame of HTTP/2"),
            _ => Ok(FrameHandling::Skip),
        }
    }
}

/// Takes what there is of so many octets.
fn take(left: &mut u64, input: &mut Bytes) -> Bytes {
    let most = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    *left -= most as u64;
    input.split_to(most)
}

/// What a frame that is read whole says.
fn whole(kind: u64, payload: Bytes) -> Result<Event, H3Error> {
    if kind == kind::HEADERS {
        return Ok(Event::Headers(payload));
    }
    if kind == kind::SETTINGS {
        return Ok(Event::Settings(payload));
    }
    let mut rest = &payload[..];
    match (varint(&mut rest), rest) {
        (Some(number), []) => Ok(match kind {
            kind::GOAWAY => Event::Goaway(number),
            kind::MAX_PUSH_ID => Event::MaxPushId(number),
            _ => Event::CancelPush(number),
        }),
        _ => Err(H3Error::new(Code::FRAME_ERROR, "a frame of the wrong length")),
    }
}

#[cfg(test)]
mod tests;
