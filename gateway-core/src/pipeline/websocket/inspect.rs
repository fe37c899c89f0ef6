//! A WebSocket read message by message, for plugins that attend to messages.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::close_handshake::{self, ClosingDirection, Halfway};
use super::frame::{self, CLOSE, Scanner};
use super::message::{BINARY, MessageEvent, Messages, TEXT, Violation};
use super::{Codes, FAILED, GOING_AWAY, Rules, Switched, TOO_BIG};
use crate::plugin::chain::Decided;
use crate::plugin::seat::Around;
use crate::plugin::{Chain, Decision, PLUGIN_TIMEOUT};
use crate::stream::relay::{Carried, Clock, RelayOutcome, Watch, scratch};
use crate::stream::session::{Direction, MessageKind, Session};

pub(super) async fn carry(
    ends: Switched<'_>,
    session: &Session,
    rules: Rules<'_>,
    carried: &mut Carried,
) -> RelayOutcome {
    let Switched { client, target } = ends;
    let reads = Reads { chain: rules.chain, around: rules.around, session };
    let mut up = InspectedDirection::new(Direction::Up, rules.max_message);
    let mut down = InspectedDirection::new(Direction::Down, rules.max_message);
    let stop = {
        let mut clock = Clock::new(rules.timeouts);
        let told = pin!(rules.drain.told());
        let mut drain = rules.drain.watch(told);
        let reborrowed = Switched { client: &mut *client, target: &mut *target };
        let (mut client, mut target) = rules.metered(reborrowed);
        poll_fn(|cx| {
            let before = *carried;
            let (up_state, down_state) = loop {
                let up_state = up.poll(cx, &mut client, &mut target, &reads, &mut carried.up);
                let down_state = down.poll(cx, &mut target, &mut client, &reads, &mut carried.down);
                // Answers of plugins go to where the message came from, as whole frames behind those under way.
                if !(down.take_answers(&mut up.answers) | up.take_answers(&mut down.answers)) {
                    break (up_state, down_state);
                }
            };
            match (up_state, down_state) {
                (Poll::Ready(Err(stop)), _) | (_, Poll::Ready(Err(stop))) => return Poll::Ready(stop),
                (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => {
                    return Poll::Ready(Stop::quiet(RelayOutcome::Closed));
                }
                _ => {}
            }
            if drain.poll(cx).is_ready() {
                return Poll::Ready(Stop::both(RelayOutcome::Drained));
            }
            clock.poll(cx, *carried != before).map(Stop::both)
        })
        .await
    };
    if let Some(codes) = stop.codes {
        let halves = Halfway { up: up.into_half(), down: down.into_half() };
        Box::pin(close_handshake::say(Switched { client, target }, halves, codes)).await;
    }
    stop.end
}

/// Why it ends, and what is to be said.
struct Stop {
    end: RelayOutcome,
    codes: Option<Codes>,
}

impl Stop {
    fn quiet(end: RelayOutcome) -> Self {
        Self { end, codes: None }
    }

    fn both(end: RelayOutcome) -> Self {
        Self { end, codes: Some(Codes::both(GOING_AWAY)) }
    }
}

/// Who reads along.
struct Reads<'r> {
    chain: &'r Chain,
    around: Around<'r>,
    session: &'r Session,
}

/// A message whose plugin has not decided yet.
struct PendingMessage<'r> {
    decision: Pin<Box<dyn Future<Output = Decision> + Send + 'r>>,
    opcode: u8,
    /// The plugin to go on with.
    next: usize,
}

/// One direction.
struct InspectedDirection<'r> {
    direction: Direction,
    messages: Messages,
    input: BytesMut,
    output: Vec<u8>,
    written: Scanner,
    waiting: Option<PendingMessage<'r>>,
    /// What plugins answered to the reader.
    answers: Vec<(MessageKind, Bytes)>,
    unflushed: bool,
    /// Its reader has sent a Close frame, or has gone.
    over: Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Not,
    /// The reader has sent a Close frame; whatever it says beyond that counts for nothing.
    Said,
    /// The reader has gone.
    Gone,
    /// The writer knows.
    Told,
}

impl<'r> InspectedDirection<'r> {
    fn new(direction: Direction, limit: usize) -> Self {
        Self {
            direction,
            messages: Messages::new(direction == Direction::Up, limit),
            input: BytesMut::new(),
            output: Vec::new(),
            written: Scanner::default(),
            waiting: None,
            answers: Vec::new(),
            unflushed: false,
            over: Over::Not,
        }
    }

    /// Writes answers to this way's writer; false when there are none.
    fn take_answers(&mut self, answers: &mut Vec<(MessageKind, Bytes)>) -> bool {
        let masked = self.direction == Direction::Up;
        let any = !answers.is_empty() && self.over == Over::Not;
        for (kind, payload) in answers.drain(..).filter(|_| any) {
            let opcode = if kind == MessageKind::Text { TEXT } else { BINARY };
            frame::write(&mut self.output, opcode, &payload, masked);
        }
        any
    }

    fn into_half(self) -> ClosingDirection {
        let ended = matches!(self.over, Over::Gone | Over::Told);
        ClosingDirection::of_messages(self.written, self.output, self.input.to_vec(), ended)
    }

    fn reset(&self, reader: bool) -> Stop {
        match (self.direction, reader) {
            (Direction::Up, true) | (Direction::Down, false) => Stop::quiet(RelayOutcome::ClientReset),
            _ => self.target_gone(RelayOutcome::TargetReset),
        }
    }

    fn target_gone(&self, end: RelayOutcome) -> Stop {
        Stop { end, codes: Some(Codes { client: FAILED, target: GOING_AWAY }) }
    }

    /// Ready once the reader has sent a Close frame, or gone, and the writer knows.
    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
        reads: &Reads<'r>,
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
            if self.poll_decision(cx, reads)? {
                continue;
            }
            if self.waiting.is_none() && self.over == Over::Not && self.read_along(reads)? {
                continue;
            }
            if self.unflushed {
                if ready!(Pin::new(&mut *writer).poll_flush(cx)).is_err() {
                    return Poll::Ready(Err(self.reset(false)));
                }
                self.unflushed = false;
                self.output = Vec::new();
            }
            if self.waiting.is_some() {
                return Poll::Pending;
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
    fn read_along(&mut self, reads: &Reads<'r>) -> Result<bool, Stop> {
        let broken = |Violation(code): Violation| Stop {
            end: if code == TOO_BIG { RelayOutcome::TooLarge } else { RelayOutcome::Violated },
            codes: Some(match self.direction {
                Direction::Up => Codes { client: code, target: GOING_AWAY },
                Direction::Down => Codes { client: FAILED, target: code },
            }),
        };
        let Some(said) = self.messages.next(&mut self.input).map_err(broken)? else { return Ok(false) };
        match said {
            MessageEvent::Close(payload) => {
                frame::write(&mut self.output, CLOSE, &payload, self.direction == Direction::Up);
                self.over = Over::Said;
            }
            MessageEvent::Control(opcode, payload) | MessageEvent::Message(opcode, payload) => {
                self.show(opcode, payload, reads, 0)?;
            }
        }
        Ok(true)
    }

    /// Shows a message, a Ping or a Pong to the plugins from the one at `from` on, and does what they decide.
    fn show(&mut self, opcode: u8, mut payload: Bytes, reads: &Reads<'r>, from: usize) -> Result<(), Stop> {
        let kind = match opcode {
            TEXT => MessageKind::Text,
            BINARY => MessageKind::Binary,
            _ => MessageKind::Control,
        };
        let decided =
            reads.chain.message(reads.session, self.direction, kind, &mut payload, reads.around, from);
        match decided {
            Decided::Forward => self.forward(opcode, &payload)?,
            Decided::Drop => {}
            Decided::Answer(answers) => self.answers.extend(answers),
            Decided::Close(code) => return Err(self.closed(code)),
            Decided::Wait(decision, next) => {
                let decision = Box::pin(async move {
                    tokio::time::timeout(PLUGIN_TIMEOUT, decision).await.unwrap_or(Decision::Close(FAILED))
                });
                self.waiting = Some(PendingMessage { decision, opcode, next });
            }
        }
        Ok(())
    }

    fn forward(&mut self, opcode: u8, payload: &Bytes) -> Result<(), Stop> {
        // A plugin may have made of a text what is none; nobody is to get that.
        if opcode == TEXT && std::str::from_utf8(payload).is_err() {
            return Err(Stop { end: RelayOutcome::Refused, codes: Some(Codes::both(FAILED)) });
        }
        frame::write(&mut self.output, opcode, payload, self.direction == Direction::Up);
        Ok(())
    }

    fn closed(&self, code: u16) -> Stop {
        let target = if self.direction == Direction::Up { GOING_AWAY } else { code };
        Stop { end: RelayOutcome::Refused, codes: Some(Codes { client: code, target }) }
    }

    /// Does what a waiting plugin has decided meanwhile; false when it has not, or nobody waits.
    fn poll_decision(&mut self, cx: &mut Context<'_>, reads: &Reads<'r>) -> Result<bool, Stop> {
        let Some(waiting) = &mut self.waiting else { return Ok(false) };
        let Poll::Ready(decision) = waiting.decision.as_mut().poll(cx) else { return Ok(false) };
        let (opcode, next) = (waiting.opcode, waiting.next);
        self.waiting = None;
        match decision {
            Decision::Forward(payload) => self.show(opcode, payload, reads, next)?,
            Decision::Drop => {}
            Decision::Answer(answers) => self.answers.extend(answers),
            Decision::Close(code) => return Err(self.closed(code)),
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
            Ok(()) if self.direction == Direction::Down => {
                Poll::Ready(Err(self.target_gone(RelayOutcome::Closed)))
            }
            Ok(()) => {
                self.over = Over::Gone;
                Poll::Ready(Ok(()))
            }
        }
    }
}
