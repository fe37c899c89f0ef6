//! The peer's unidirectional streams (RFC 9114 §6.2), and the one of ours that matters.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn::{ReadError, RecvStream};

use super::incoming::{CONTROL, Incoming, Listener, OpenedStreams};
use super::link::H3Link;
use super::settings::Settings;
use super::{Code, H3Error};
use crate::h2::Role;

/// Octets read at a time.
const READ: usize = 16 << 10;

/// Tells the peer about us, and hears what it says about itself and the connection, until the connection is over;
/// what breaks the rules ends it.
pub(crate) async fn attend(link: Arc<H3Link>, told: Settings) {
    link.say(|out| {
        out.push(CONTROL as u8);
        told.write(out);
    });
    let mut opening = pin!(link.quic.open_uni());
    let mut accepting = pin!(link.quic.accept_uni());
    let mut opened = false;
    let mut streams = Vec::new();
    let mut seen = OpenedStreams::default();
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
            streams.push(Stream { stream, said: Incoming::default() });
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

struct Stream {
    stream: RecvStream,
    said: Incoming,
}

impl Stream {
    /// Takes in what has come; ready when the stream is of no interest any more.
    fn poll(
        &mut self,
        link: &H3Link,
        seen: &mut OpenedStreams,
        cx: &mut Context<'_>,
    ) -> Result<Poll<()>, H3Error> {
        loop {
            let chunk = match pin!(self.stream.read_chunk(READ, true)).poll(cx) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Ok(Some(chunk))) => chunk,
                // A connection that is gone is noticed elsewhere.
                Poll::Ready(Err(ReadError::ConnectionLost(_))) => return Ok(Poll::Pending),
                Poll::Ready(Ok(None) | Err(_)) => {
                    return match self.said.must_stay() {
                        false => link.wasted().map(Poll::Ready),
                        true => Err(H3Error::new(
                            Code::CLOSED_CRITICAL_STREAM,
                            "a stream that must stay was closed",
                        )),
                    };
                }
            };
            if !self.said.take(link, seen, chunk.bytes)? {
                drop(self.stream.stop(Code::STREAM_CREATION_ERROR.into()));
                return link.wasted().map(Poll::Ready);
            }
        }
    }
}

impl Listener for H3Link {
    fn role(&self) -> Role {
        self.role
    }

    fn settle(&self, settings: Settings) -> Result<(), H3Error> {
        self.settle(settings)
    }

    fn is_settled(&self) -> bool {
        self.is_settled()
    }

    fn heard_goaway(&self, id: u64) -> Result<(), H3Error> {
        self.heard_goaway(id)
    }

    fn heard_max_push(&self, id: u64) -> Result<(), H3Error> {
        self.heard_max_push(id)
    }

    fn idle_frame(&self) -> Result<(), H3Error> {
        self.idle_frame()
    }
}
