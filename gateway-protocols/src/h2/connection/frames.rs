//! Frames that carry no message: what the peer says about the connection and its streams.

use super::super::frame::{self, FrameType, HEAD_BYTES, Head, MAX_WINDOW, flag};
use super::super::stream::{StreamError, is_peers};
use super::super::{H2Error, Reason, Role};
use super::{Connection, Leaving, time};

impl Connection {
    pub(super) fn control(&mut self, head: Head, payload: &[u8]) -> Result<(), H2Error> {
        match head.kind {
            FrameType::Settings => self.settings(&head, payload),
            FrameType::Ping => self.ping(&head, payload),
            FrameType::WindowUpdate => self.window_update(&head, payload),
            FrameType::RstStream => self.rst_stream(&head, payload),
            FrameType::GoAway => self.goaway(&head, payload),
            FrameType::Priority => self.priority(&head, payload),
            FrameType::PushPromise => Err(H2Error::protocol("PUSH_PROMISE nobody asked for")),
            _ => self.idle_frame(),
        }
    }

    /// A frame that brought nothing.
    pub(super) fn idle_frame(&mut self) -> Result<(), H2Error> {
        let now = self.clock.now;
        if self.rules.role == Role::Client || self.floods.idle_frame(now) {
            return Ok(());
        }
        Err(H2Error::new(Reason::ENHANCE_YOUR_CALM, "too many frames that bring nothing"))
    }

    /// A stream was reset before it was answered.
    pub(super) fn count_reset(&mut self) -> Result<(), H2Error> {
        let now = self.clock.now;
        if self.rules.role == Role::Client || self.floods.reset(now) {
            return Ok(());
        }
        Err(H2Error::new(Reason::ENHANCE_YOUR_CALM, "too many streams were reset"))
    }

    fn settings(&mut self, head: &Head, payload: &[u8]) -> Result<(), H2Error> {
        if head.stream != 0 {
            return Err(H2Error::protocol("SETTINGS on a stream"));
        }
        if head.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(H2Error::new(Reason::FRAME_SIZE_ERROR, "an answer to SETTINGS with a payload"));
            }
            self.settle();
            return self.idle_frame();
        }
        if !payload.len().is_multiple_of(6) {
            return Err(H2Error::new(Reason::FRAME_SIZE_ERROR, "SETTINGS of a wrong size"));
        }
        let before = self.peer;
        self.peer.apply(payload, self.rules.role == Role::Client)?;
        self.encoder.limit(self.peer.header_table_size as usize);
        let change = i64::from(self.peer.initial_window_size) - i64::from(before.initial_window_size);
        if change != 0 {
            for (_, stream) in self.streams.iter_mut() {
                stream.window += change;
                if stream.window > MAX_WINDOW {
                    return Err(H2Error::new(Reason::FLOW_CONTROL_ERROR, "a window became too large"));
                }
                stream.writer.wake();
            }
        }
        if self.peer.streams() != before.streams() {
            self.limit_changed = true;
            self.openers.drain(..).for_each(std::task::Waker::wake);
        }
        frame::settings_ack(self.out.buffer());
        self.idle_frame()
    }

    /// The peer has confirmed our settings: it reckons with our windows now.
    fn settle(&mut self) {
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let ours = self.rules.settings.initial_window_size;
        let by = i64::from(ours) - i64::from(ours.max(frame::INITIAL_WINDOW));
        for (_, stream) in self.streams.iter_mut() {
            stream.inflow.adjust(by);
        }
    }

    fn ping(&mut self, head: &Head, payload: &[u8]) -> Result<(), H2Error> {
        if head.stream != 0 {
            return Err(H2Error::protocol("PING on a stream"));
        }
        let payload: [u8; 8] = match payload.try_into() {
            Ok(payload) => payload,
            Err(_) => return Err(H2Error::new(Reason::FRAME_SIZE_ERROR, "PING of a wrong size")),
        };
        if !head.has(flag::ACK) {
            frame::ping(self.out.buffer(), true, payload);
        } else if payload == time::GOAWAY_PING && self.leaving == Leaving::Announced {
            // Whatever the peer sent before it heard of our leaving has arrived.
            self.last_goaway(Reason::NO_ERROR, "");
        } else {
            self.clock.answered();
        }
        self.idle_frame()
    }

    fn window_update(&mut self, head: &Head, payload: &[u8]) -> Result<(), H2Error> {
        let wrong = || H2Error::new(Reason::FRAME_SIZE_ERROR, "WINDOW_UPDATE of a wrong size");
        let (4, Some(increment)) = (payload.len(), frame::number(payload)) else { return Err(wrong()) };
        let increment = i64::from(increment & 0x7fff_ffff);
        self.idle_frame()?;
        if head.stream == 0 {
            if increment == 0 {
                return Err(H2Error::protocol("a window was opened by nothing"));
            }
            self.window += increment;
            if self.window > MAX_WINDOW {
                return Err(H2Error::new(Reason::FLOW_CONTROL_ERROR, "the connection's window is too large"));
            }
            self.wake_senders();
            return Ok(());
        }
        let Some(key) = self.streams.key(head.stream) else { return self.known(head.stream) };
        let Some(stream) = self.streams.of(key) else { return Ok(()) };
        if stream.is_closed() {
            return Ok(());
        }
        if increment == 0 {
            return self.stream_error(key, Reason::PROTOCOL_ERROR);
        }
        stream.window += increment;
        if stream.window > MAX_WINDOW {
            return self.stream_error(key, Reason::FLOW_CONTROL_ERROR);
        }
        stream.writer.wake();
        Ok(())
    }

    /// A frame for a stream nobody holds any more is ignored; for one that never was it is an error.
    pub(super) fn known(&self, id: u32) -> Result<(), H2Error> {
        let never = match is_peers(self.rules.role, id) {
            true => id > self.last_peer && !matches!(self.leaving, Leaving::Final(_)),
            false => id >= self.next_own,
        };
        if never { Err(H2Error::protocol("a frame for a stream that was never opened")) } else { Ok(()) }
    }

    fn rst_stream(&mut self, head: &Head, payload: &[u8]) -> Result<(), H2Error> {
        if head.stream == 0 {
            return Err(H2Error::protocol("RST_STREAM without a stream"));
        }
        let (4, Some(reason)) = (payload.len(), frame::number(payload)) else {
            return Err(H2Error::new(Reason::FRAME_SIZE_ERROR, "RST_STREAM of a wrong size"));
        };
        let Some(key) = self.streams.key(head.stream) else {
            self.known(head.stream)?;
            self.streams.forget(head.stream);
            return self.idle_frame();
        };
        let Some(stream) = self.streams.of(key) else { return Ok(()) };
        if stream.fate.is_some() {
            return self.idle_frame();
        }
        let premature = stream.sending;
        stream.fate = Some(StreamError::Reset(Reason(reason)));
        stream.wake();
        self.closed(key);
        if premature { self.count_reset() } else { Ok(()) }
    }

    fn goaway(&mut self, head: &Head, payload: &[u8]) -> Result<(), H2Error> {
        if head.stream != 0 {
            return Err(H2Error::protocol("GOAWAY on a stream"));
        }
        let (Some(last), Some(reason)) = (frame::number(payload), payload.get(4..).and_then(frame::number))
        else {
            return Err(H2Error::new(Reason::FRAME_SIZE_ERROR, "GOAWAY of a wrong size"));
        };
        let last = last & 0x7fff_ffff;
        self.peer_leaves = true;
        tracing::debug!(last, reason = %Reason(reason), "the peer sent GOAWAY");
        let mut gone = Vec::new();
        for (key, stream) in self.streams.iter_mut() {
            if !is_peers(self.rules.role, stream.id) && stream.id > last && stream.fate.is_none() {
                stream.fate = Some(StreamError::Unprocessed);
                stream.wake();
                gone.push(key);
            }
        }
        gone.into_iter().for_each(|key| self.closed(key));
        self.openers.drain(..).for_each(std::task::Waker::wake);
        self.idle_frame()
    }

    /// Priorities are ignored (RFC 9113 §5.3), their form is not.
    fn priority(&mut self, head: &Head, payload: &[u8]) -> Result<(), H2Error> {
        if head.stream == 0 {
            return Err(H2Error::protocol("PRIORITY without a stream"));
        }
        if payload.len() != 5 {
            return match self.streams.key(head.stream) {
                Some(key) => self.stream_error(key, Reason::FRAME_SIZE_ERROR),
                None => Err(H2Error::new(Reason::FRAME_SIZE_ERROR, "PRIORITY of a wrong size")),
            };
        }
        self.depends(head.stream, payload)?;
        self.idle_frame()
    }

    /// Nobody honest makes a stream depend on itself.
    pub(super) fn depends(&self, id: u32, priority: &[u8]) -> Result<(), H2Error> {
        match frame::number(priority) {
            Some(on) if on & 0x7fff_ffff == id => Err(H2Error::protocol("a stream depends on itself")),
            _ => Ok(()),
        }
    }

    /// Resets a stream because of what the peer did with it (RFC 9113 §5.4.2).
    pub(super) fn stream_error(&mut self, key: usize, reason: Reason) -> Result<(), H2Error> {
        let Some(stream) = self.streams.of(key) else { return Ok(()) };
        if stream.fate.is_none() {
            let id = stream.id;
            stream.fate = Some(StreamError::Refused(reason));
            stream.wake();
            frame::rst_stream(self.out.buffer(), id, reason);
            self.streams.remember(id);
            self.closed(key);
        }
        self.count_reset()
    }

    /// A frame of a message for a stream that is closed, or was never open.
    pub(super) fn stray(&mut self, head: &Head) -> Result<(), H2Error> {
        self.known(head.stream)?;
        let beyond = matches!(self.leaving, Leaving::Final(last) if head.stream > last);
        if !beyond && !self.streams.was_reset(head.stream) {
            frame::rst_stream(self.out.buffer(), head.stream, Reason::STREAM_CLOSED);
        }
        self.idle_frame()
    }

    /// Octets of DATA, by the connection's window.
    pub(super) fn charge(&mut self, octets: usize) -> Result<(), H2Error> {
        debug_assert!(octets <= (1 << 24) + HEAD_BYTES, "a frame is no larger");
        if self.inflow.arrived(octets) {
            return Ok(());
        }
        Err(H2Error::new(Reason::FLOW_CONTROL_ERROR, "more than the connection's window"))
    }
}
