//! A WebSocket read message by message, for plugins that attend to messages.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::farewell::{self, Half, Halfway};
use super::frame::{self, CLOSE, Scanner};
use super::message::{Broken, Messages, Said, TEXT};
use super::{Codes, FAILED, GOING_AWAY, Rules, Switched};
use crate::plugin::chain::Chain;
use crate::stream::relay::{Carried, Clock, End, Watch, scratch};
use crate::stream::session::{Direction, Kind, Message, Passage, Session};

pub(super) async fn carry(
    ends: Switched<'_>,
    session: &Session,
    rules: Rules<'_>,
    carried: &mut Carried,
) -> End {
    let Switched { client, target } = ends;
    let reads = Reads { chain: rules.chain, session };
    let mut up = Way::new(Direction::Up, rules.max_message);
    let mut down = Way::new(Direction::Down, rules.max_message);
    let stop = {
        let mut clock = Clock::new(rules.patience);
        let told = pin!(rules.drain.told());
        let mut drain = rules.drain.watch(told);
        poll_fn(|cx| {
            let before = *carried;
            let up_state = up.poll(cx, (client, target), &reads, &mut carried.up);
            let down_state = down.poll(cx, (target, client), &reads, &mut carried.down);
            match (up_state, down_state) {
                (Poll::Ready(Err(stop)), _) | (_, Poll::Ready(Err(stop))) => return Poll::Ready(stop),
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => return Poll::Ready(Stop::quiet(End::Closed)),
                _ => {}
            }
            if drain.poll(cx).is_ready() {
                return Poll::Ready(Stop::both(End::Drained));
            }
            clock.poll(cx, *carried != before).map(Stop::both)
        })
        .await
    };
    if let Some(codes) = stop.codes {
        let halves = Halfway { up: up.into_half(), down: down.into_half() };
        Box::pin(farewell::say(Switched { client, target }, halves, codes)).await;
    }
    stop.end
}

/// Why it ends, and what is to be said.
struct Stop {
    end: End,
    codes: Option<Codes>,
}

impl Stop {
    fn quiet(end: End) -> Self {
        Self { end, codes: None }
    }

    fn both(end: End) -> Self {
        Self { end, codes: Some(Codes::both(GOING_AWAY)) }
    }
}

/// Who reads along.
struct Reads<'r> {
    chain: &'r Chain,
    session: &'r Session,
}

/// One direction.
struct Way {
    direction: Direction,
    messages: Messages,
    input: BytesMut,
    output: Vec<u8>,
    written: Scanner,
    unflushed: bool,
    /// Its reader has said goodbye, or has gone.
    over: Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Not,
    /// The reader has said goodbye; whatever it says beyond that counts for nothing.
    Said,
    /// The reader has gone.
    Gone,
    /// The writer knows.
    Told,
}

impl Way {
    fn new(direction: Direction, limit: usize) -> Self {
        Self {
            direction,
            messages: Messages::new(direction == Direction::Up, limit),
            input: BytesMut::new(),
            output: Vec::new(),
            written: Scanner::default(),
            unflushed: false,
            over: Over::Not,
        }
    }

    fn into_half(self) -> Half {
        let ended = matches!(self.over, Over::Gone | Over::Told);
        Half::of_messages(self.written, self.output, self.input.to_vec(), ended)
    }

    fn reset(&self, reader: bool) -> Stop {
        match (self.direction, reader) {
            (Direction::Up, true) | (Direction::Down, false) => Stop::quiet(End::ClientReset),
            _ => self.target_gone(End::TargetReset),
        }
    }

    fn target_gone(&self, end: End) -> Stop {
        Stop { end, codes: Some(Codes { client: FAILED, target: GOING_AWAY }) }
    }

    /// Ready once the reader has said goodbye, or gone, and the writer knows.
    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        (reader, writer): (&mut R, &mut W),
        reads: &Reads<'_>,
        carried: &mut u64,
    ) -> Poll<Result<(), Stop>> {
        loop {
            if !self.output.is_empty() {
                match ready!(Pin::new(&mut *writer).poll_write(cx, &self.output)) {
                    Ok(written @ 1..) => {
                        self.written.passed(self.output.get(..written).unwrap_or_default());
                        self.output.drain(..written);
                        *carried += written as u64;
                        self.unflushed = true;
                    }
                    _ => return Poll::Ready(Err(self.reset(false))),
                }
                continue;
            }
            if self.over == Over::Not && self.read_along(reads)? {
                continue;
            }
            if self.unflushed {
                if ready!(Pin::new(&mut *writer).poll_flush(cx)).is_err() {
                    return Poll::Ready(Err(self.reset(false)));
                }
                self.unflushed = false;
                self.output = Vec::new();
            }
            match self.over {
                Over::Not => ready!(self.poll_read(cx, reader))?,
                Over::Gone => {
                    let _told = ready!(Pin::new(&mut *writer).poll_shutdown(cx));
                    self.over = Over::Told;
                }
                Over::Said | Over::Told => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Hands what is whole to the plugins; false when nothing is.
    fn read_along(&mut self, reads: &Reads<'_>) -> Result<bool, Stop> {
        let broken = |Broken(code): Broken| Stop {
            end: End::Violated,
            codes: Some(match self.direction {
                Direction::Up => Codes { client: code, target: GOING_AWAY },
                Direction::Down => Codes { client: FAILED, target: code },
            }),
        };
        let Some(said) = self.messages.next(&mut self.input).map_err(broken)? else { return Ok(false) };
        let masked = self.direction == Direction::Up;
        match said {
            Said::Control(opcode, payload) => frame::write(&mut self.output, opcode, &payload, masked),
            Said::Close(payload) => {
                frame::write(&mut self.output, CLOSE, &payload, masked);
                self.over = Over::Said;
            }
            Said::Message(opcode, mut payload) => {
                let kind = if opcode == TEXT { Kind::Text } else { Kind::Binary };
                let message = Message { direction: self.direction, kind, payload: &mut payload };
                match reads.chain.message(reads.session, message) {
                    // A plugin may have made of a text what is none; nobody is to get that.
                    Passage::Forward if kind == Kind::Text && std::str::from_utf8(&payload).is_err() => {
                        return Err(Stop { end: End::Refused, codes: Some(Codes::both(FAILED)) });
                    }
                    Passage::Forward => frame::write(&mut self.output, opcode, &payload, masked),
                    Passage::Drop => {}
                    Passage::Close(code) => {
                        let target = if masked { GOING_AWAY } else { code };
                        return Err(Stop { end: End::Refused, codes: Some(Codes { client: code, target }) });
                    }
                }
            }
        }
        Ok(true)
    }

    fn poll_read<R: AsyncRead + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
    ) -> Poll<Result<(), Stop>> {
        let mut buffer = scratch::lend();
        let mut read = ReadBuf::new(&mut buffer);
        let result = Pin::new(reader).poll_read(cx, &mut read);
        if matches!(result, Poll::Ready(Ok(()))) {
            self.input.extend_from_slice(read.filled());
        }
        let ended = read.filled().is_empty();
        scratch::give_back(buffer);
        match ready!(result) {
            Err(_) => Poll::Ready(Err(self.reset(true))),
            Ok(()) if !ended => Poll::Ready(Ok(())),
            Ok(()) if self.direction == Direction::Down => Poll::Ready(Err(self.target_gone(End::Closed))),
            Ok(()) => {
                self.over = Over::Gone;
                Poll::Ready(Ok(()))
            }
        }
    }
}
