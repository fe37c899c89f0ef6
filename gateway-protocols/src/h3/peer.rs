//! The peer's unidirectional streams (RFC 9114 §6.2), and the one of ours that matters.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use quinn::{ReadError, RecvStream};

use super::frame::{Event, Frames, Place, varint};
use super::link::Link;
use super::settings::Settings;
use super::{Code, Fault};
use crate::h2::Role;

/// Types of streams.
const CONTROL: u64 = 0;
const PUSH: u64 = 1;
const QPACK_ENCODER: u64 = 2;
const QPACK_DECODER: u64 = 3;

/// Octets read at a time.
const READ: usize = 16 << 10;
/// Octets of a number in a QPACK instruction; more serve nobody.
const MAX_NUMBER: u8 = 10;

/// Tells the peer about us, and hears what it says about itself and the connection, until the connection is over;
/// what breaks the rules ends it.
pub(crate) async fn attend(link: Arc<Link>, told: Settings) {
    link.say(|out| {
        out.push(CONTROL as u8);
        told.write(out);
    });
    let mut opening = pin!(link.quic.open_uni());
    let mut accepting = pin!(link.quic.accept_uni());
    let mut opened = false;
    let mut streams = Vec::new();
    let mut seen = Seen::default();
    let ended = poll_fn(|cx| {
        if !opened && let Poll::Ready(control) = opening.as_mut().poll(cx) {
            opened = true;
            match control {
                Ok(control) => link.opened(control),
                Err(_) => return Poll::Ready(None),
            }
        }
        while let Poll::Ready(accepted) = accepting.as_mut().poll(cx) {
            let Ok(stream) = accepted else { return Poll::Ready(None) };
            accepting.set(link.quic.accept_uni());
            streams.push(Stream { stream, kind: Kind::New(Vec::new()) });
        }
        let mut at = 0;
        while let Some(stream) = streams.get_mut(at) {
            match stream.poll(&link, &mut seen, cx) {
                Ok(Poll::Pending) => at += 1,
                Ok(Poll::Ready(())) => drop(streams.swap_remove(at)),
                Err(fault) => return Poll::Ready(Some(fault)),
            }
        }
        Poll::Pending
    })
    .await;
    if let Some(fault) = ended {
        link.fail(fault);
    }
}

/// Which of the streams there is one of have been opened, by type.
type Seen = [bool; 4];

struct Stream {
    stream: RecvStream,
    kind: Kind,
}

enum Kind {
    /// Its type is not known yet.
    New(Vec<u8>),
    Control(Frames),
    Encoder,
    /// In a number that goes on, so many octets of it.
    Decoder(Option<u8>),
}

impl Stream {
    /// Takes in what has come; ready when the stream is of no interest any more.
    fn poll(&mut self, link: &Link, seen: &mut Seen, cx: &mut Context<'_>) -> Result<Poll<()>, Fault> {
        loop {
            let chunk = match pin!(self.stream.read_chunk(READ, true)).poll(cx) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Ok(Some(chunk))) => chunk,
                // A connection that is gone is noticed elsewhere.
                Poll::Ready(Err(ReadError::ConnectionLost(_))) => return Ok(Poll::Pending),
                Poll::Ready(Ok(None) | Err(_)) => {
                    return match self.kind {
                        Kind::New(_) => link.wasted().map(Poll::Ready),
                        _ => Err(Fault::new(
                            Code::CLOSED_CRITICAL_STREAM,
                            "a stream that must stay was closed",
                        )),
                    };
                }
            };
            if !self.take(link, seen, chunk.bytes)? {
                drop(self.stream.stop(Code::STREAM_CREATION_ERROR.into()));
                return link.wasted().map(Poll::Ready);
            }
        }
    }

    /// False for streams of kinds nobody knows.
    fn take(&mut self, link: &Link, seen: &mut Seen, mut input: Bytes) -> Result<bool, Fault> {
        loop {
            match &mut self.kind {
                Kind::New(had) => {
                    let Some((&first, _)) = input.split_first() else { return Ok(true) };
                    had.push(first);
                    input = input.slice(1..);
                    let Some(number) = varint(&mut &had[..]) else { continue };
                    match kind(number, link, seen)? {
                        Some(kind) => self.kind = kind,
                        None => return Ok(false),
                    }
                }
                Kind::Control(frames) => {
                    while let Some(event) = frames.next(&mut input)? {
                        heard(link, event)?;
                    }
                    return Ok(true);
                }
                Kind::Encoder => {
                    // RFC 9204 §4.3.1: a table of no octets is all that may be asked for.
                    return match input.iter().all(|octet| *octet == 0x20) {
                        true => link.idle_frame().map(|()| true),
                        false => {
                            Err(Fault::new(Code::QPACK_ENCODER_STREAM, "a dynamic table we did not allow"))
                        }
                    };
                }
                Kind::Decoder(within) => {
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
fn kind(number: u64, link: &Link, seen: &mut Seen) -> Result<Option<Kind>, Fault> {
    let kind = match number {
        CONTROL => Kind::Control(Frames::new(Place::Control, link.role, 0)),
        PUSH if link.role == Role::Server => {
            return Err(Fault::new(Code::STREAM_CREATION_ERROR, "a push from a client"));
        }
        PUSH => return Err(Fault::new(Code::ID_ERROR, "a push that was not allowed")),
        QPACK_ENCODER => Kind::Encoder,
        QPACK_DECODER => Kind::Decoder(None),
        _ => return Ok(None),
    };
    // RFC 9114 §6.2.1, RFC 9204 §4.2: there is one of each, which stays.
    let place = usize::try_from(number).ok().and_then(|at| seen.get_mut(at));
    match place.map(|seen| std::mem::replace(seen, true)) {
        Some(false) => Ok(Some(kind)),
        _ => Err(Fault::new(Code::STREAM_CREATION_ERROR, "a second stream of a kind of which there is one")),
    }
}

/// RFC 9204 §4.4: only that a stream was given up can be said about blocks that use no dynamic table.
pub(crate) fn instruction(within: Option<u8>, octet: u8) -> Result<Option<u8>, Fault> {
    let wrong = Fault::new(Code::QPACK_DECODER_STREAM, "an acknowledgement of nothing");
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

fn heard(link: &Link, event: Event) -> Result<(), Fault> {
    if let Event::Settings(payload) = event {
        return link.settle(Settings::read(&payload)?);
    }
    if !link.is_settled() {
        return Err(Fault::new(Code::MISSING_SETTINGS, "a control stream that does not begin with SETTINGS"));
    }
    link.idle_frame()?;
    match event {
        Event::Goaway(id) => link.heard_goaway(id),
        Event::MaxPushId(id) => link.heard_max_push(id),
        // Nothing was ever promised by either side.
        Event::CancelPush(_) => Err(Fault::new(Code::ID_ERROR, "a push that nobody promised")),
        _ => Ok(()),
    }
}
