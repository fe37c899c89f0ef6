//! What the peer's unidirectional streams say (RFC 9114 §6.2), from octets in whatever pieces they come.

use bytes::Bytes;

use super::frame::{Event, Frames, StreamKind, varint};
use super::settings::Settings;
use super::{Code, H3Error};
use crate::h2::Role;

/// Types of streams.
pub(super) const CONTROL: u64 = 0;
const PUSH: u64 = 1;
const QPACK_ENCODER: u64 = 2;
const QPACK_DECODER: u64 = 3;

/// Octets of a number in a QPACK instruction; more serve nobody.
const MAX_NUMBER: u8 = 10;

/// Who is told what they say.
pub(crate) trait Listener {
    /// Which end we are.
    fn role(&self) -> Role;
    /// The peer's settings.
    fn settle(&self, settings: Settings) -> Result<(), H3Error>;
    /// Whether they were told.
    fn is_settled(&self) -> bool;
    /// The peer goes.
    fn heard_goaway(&self, id: u64) -> Result<(), H3Error>;
    /// The peer lets us push so many.
    fn heard_max_push(&self, id: u64) -> Result<(), H3Error>;
    /// The peer sent something that brings nothing.
    fn idle_frame(&self) -> Result<(), H3Error>;
}

/// Which of the streams there is one of have been opened, by type.
pub(crate) type OpenedStreams = [bool; 4];

/// One stream.
pub(crate) enum Incoming {
    /// Its type is not known yet.
    New(Vec<u8>),
    Control(Frames),
    Encoder,
    /// In a number that goes on, so many octets of it.
    Decoder(Option<u8>),
}

impl Default for Incoming {
    fn default() -> Self {
        Self::New(Vec::new())
    }
}

impl Incoming {
    /// Whether it may not end before the connection does.
    pub(super) fn must_stay(&self) -> bool {
        !matches!(self, Self::New(_))
    }

    /// Takes in what has come; false for a stream of a kind nobody knows.
    ///
    /// # Errors
    /// What ends the connection.
    pub(crate) fn take(
        &mut self,
        link: &impl Listener,
        seen: &mut OpenedStreams,
        mut input: Bytes,
    ) -> Result<bool, H3Error> {
        loop {
            match self {
                Self::New(had) => {
                    let Some((&first, _)) = input.split_first() else { return Ok(true) };
                    had.push(first);
                    input = input.slice(1..);
                    let Some(number) = varint(&mut &had[..]) else { continue };
                    match kind(number, link, seen)? {
                        Some(kind) => *self = kind,
                        None => return Ok(false),
                    }
                }
                Self::Control(frames) => {
                    while let Some(event) = frames.next(&mut input)? {
                        heard(link, event)?;
                    }
                    return Ok(true);
                }
                Self::Encoder => {
                    // RFC 9204 §4.3.1: a table of no octets is all that may be asked for.
                    return match input.iter().all(|octet| *octet == 0x20) {
                        true => link.idle_frame().map(|()| true),
                        false => {
                            Err(H3Error::new(Code::QPACK_ENCODER_STREAM, "a dynamic table we did not allow"))
                        }
                    };
                }
                Self::Decoder(within) => {
                    for octet in &input {
                        *within = instruction(*within, *octet)?;
                    }
                    return link.idle_frame().map(|()| true);
                }
            }
        }
    }
}

/// What a stream of this type is for; `None` is nothing we know.
fn kind(number: u64, link: &impl Listener, seen: &mut OpenedStreams) -> Result<Option<Incoming>, H3Error> {
    let kind = match number {
        CONTROL => Incoming::Control(Frames::new(StreamKind::Control, link.role(), 0)),
        PUSH if link.role() == Role::Server => {
            return Err(H3Error::new(Code::STREAM_CREATION_ERROR, "a push from a client"));
        }
        PUSH => return Err(H3Error::new(Code::ID_ERROR, "a push that was not allowed")),
        QPACK_ENCODER => Incoming::Encoder,
        QPACK_DECODER => Incoming::Decoder(None),
        _ => return Ok(None),
    };
    // RFC 9114 §6.2.1, RFC 9204 §4.2: there is one of each, which stays.
    let place = usize::try_from(number).ok().and_then(|at| seen.get_mut(at));
    match place.map(|seen| std::mem::replace(seen, true)) {
        Some(false) => Ok(Some(kind)),
        _ => {
            Err(H3Error::new(Code::STREAM_CREATION_ERROR, "a second stream of a kind of which there is one"))
        }
    }
}

/// RFC 9204 §4.4: only that a stream was given up can be said about blocks that use no dynamic table.
fn instruction(within: Option<u8>, octet: u8) -> Result<Option<u8>, H3Error> {
    let wrong = H3Error::new(Code::QPACK_DECODER_STREAM, "an acknowledgement of nothing");
    match within {
        None => match octet {
            0x7f => Ok(Some(0)),
            0x40..0x7f => Ok(None),
            _ => Err(wrong),
        },
        Some(MAX_NUMBER) => Err(wrong),
        Some(had) => Ok((octet & 0x80 != 0).then_some(had + 1)),
    }
}

fn heard(link: &impl Listener, event: Event) -> Result<(), H3Error> {
    if let Event::Settings(payload) = event {
        return link.settle(Settings::read(&payload)?);
    }
    if !link.is_settled() {
        return Err(H3Error::new(
            Code::MISSING_SETTINGS,
            "a control stream that does not begin with SETTINGS",
        ));
    }
    link.idle_frame()?;
    match event {
        Event::Goaway(id) => link.heard_goaway(id),
        Event::MaxPushId(id) => link.heard_max_push(id),
        // Nothing was ever promised by either side.
        Event::CancelPush(_) => Err(H3Error::new(Code::ID_ERROR, "a push that nobody promised")),
        _ => Ok(()),
    }
}
