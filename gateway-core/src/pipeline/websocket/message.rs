//! Frames into messages, by every rule of RFC 6455: what breaks one has a code.

use bytes::{Bytes, BytesMut};

use super::frame::{self, CLOSE, Head};
use super::{NOT_TEXT, PROTOCOL_ERROR, TOO_BIG};

/// The opcode of what goes on with a message.
const CONTINUATION: u8 = 0;
/// The opcode of a message that is UTF-8.
pub(super) const TEXT: u8 = 1;
/// The opcode of a message that is bytes.
pub(super) const BINARY: u8 = 2;
/// Frames without payload that a message may have: they cost their reader time, and no limit on bytes counts them.
const MAX_EMPTY: u32 = 1024;
/// Payload bytes a control frame may have (RFC 6455 §5.5).
const MAX_CONTROL: u64 = 125;

/// The close code for whoever broke a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Violation(pub(super) u16);

const BROKEN: Violation = Violation(PROTOCOL_ERROR);

/// What an end said.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum MessageEvent {
    /// A whole message and its opcode.
    Message(u8, Bytes),
    /// A control frame other than a Close.
    Control(u8, Bytes),
    /// A Close frame.
    Close(Bytes),
}

/// Puts one direction's messages together.
pub(super) struct Messages {
    /// Whether frames are masked: a client's must be, a target's must not (RFC 6455 §5.1).
    masked: bool,
    limit: usize,
    /// The message under way: its opcode and what there is of it.
    begun: Option<(u8, BytesMut)>,
    /// Frames of it without payload.
    empty: u32,
}

impl Messages {
    pub(super) fn new(masked: bool, limit: usize) -> Self {
        Self { masked, limit, begun: None, empty: 0 }
    }

    /// Whatever comes next whole in `input`; `None` until more of it is there.
    pub(super) fn next(&mut self, input: &mut BytesMut) -> Result<Option<MessageEvent>, Violation> {
        loop {
            let Some(head) = Head::read(input) else { return Ok(None) };
            self.check(&head)?;
            // Checked against the limit, so it fits.
            let length = usize::try_from(head.length).map_err(|_| Violation(TOO_BIG))?;
            if input.len() - head.size < length {
                return Ok(None);
            }
            drop(input.split_to(head.size));
            let mut payload = input.split_to(length);
            if let Some(mask) = head.mask {
                frame::apply(mask, 0, &mut payload);
            }
            if input.is_empty() {
                *input = BytesMut::new();
            }
            if let Some(said) = self.take(&head, payload)? {
                return Ok(Some(said));
            }
        }
    }

    fn check(&self, head: &Head) -> Result<(), Violation> {
        let longest = match head.size - if head.mask.is_some() { 4 } else { 0 } {
            2 => true,
            4 => head.length > 125,
            _ => head.length > u64::from(u16::MAX) && head.length >> 63 == 0,
        };
        if head.reserved != 0 || head.mask.is_some() != self.masked || !longest {
            return Err(BROKEN);
        }
        match head.opcode {
            CLOSE..=10 if head.last && head.length <= MAX_CONTROL => return Ok(()),
            CONTINUATION if self.begun.is_some() => {}
            TEXT | BINARY if self.begun.is_none() => {}
            _ => return Err(BROKEN),
        }
        let so_far = self.begun.as_ref().map_or(0, |(_, bytes)| bytes.len());
        if head.length > (self.limit - so_far) as u64 { Err(Violation(TOO_BIG)) } else { Ok(()) }
    }

    fn take(&mut self, head: &Head, payload: BytesMut) -> Result<Option<MessageEvent>, Violation> {
        match head.opcode {
            CLOSE => return close_frame(payload.freeze()).map(Some),
            9 | 10 => return Ok(Some(MessageEvent::Control(head.opcode, payload.freeze()))),
            _ => {}
        }
        self.empty = if self.begun.is_some() { self.empty } else { 0 } + u32::from(payload.is_empty());
        if self.empty > MAX_EMPTY {
            return Err(Violation(TOO_BIG));
        }
        let (opcode, bytes) = match self.begun.take() {
            None => (head.opcode, payload),
            Some((opcode, mut bytes)) => {
                bytes.extend_from_slice(&payload);
                (opcode, bytes)
            }
        };
        if !head.last {
            self.begun = Some((opcode, bytes));
            return Ok(None);
        }
        if opcode == TEXT && std::str::from_utf8(&bytes).is_err() {
            return Err(Violation(NOT_TEXT));
        }
        Ok(Some(MessageEvent::Message(opcode, bytes.freeze())))
    }
}

/// A Close frame's payload: nothing, or a code and a reason.
fn close_frame(payload: Bytes) -> Result<MessageEvent, Violation> {
    let code = match &*payload {
        [] => return Ok(MessageEvent::Close(payload)),
        [_] => return Err(BROKEN),
        [high, low, reason @ ..] => {
            if std::str::from_utf8(reason).is_err() {
                return Err(Violation(NOT_TEXT));
            }
            u16::from_be_bytes([*high, *low])
        }
    };
    // RFC 6455 §7.4: the others mean that there was no code, or belong to nobody.
    match code {
        1000..=1003 | 1007..=1014 | 3000..=4999 => Ok(MessageEvent::Close(payload)),
        _ => Err(BROKEN),
    }
}
