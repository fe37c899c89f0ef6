//! Zstandard encoders, which each thread keeps for the next body.

use std::io;

use zstd::stream::raw::{CParameter, Encoder, InBuffer, Operation as _, OutBuffer};

use super::reused_encoders::ReusedEncoders;

/// Encoders that a thread keeps. Each takes up to some 6 MB, once a body of that size went through it.
const MAX_KEPT: usize = 4;
/// Encoders of higher levels take more memory, and long for each body: they are made anew.
const MAX_KEPT_LEVEL: u32 = 6;
/// Bytes that are there at least for what comes out.
const LEAST_ROOM: usize = 256;
/// The window that a decoder has to have at most, in bits: 8 MiB (RFC 9659).
pub(super) const MAX_WINDOW: u32 = 23;
/// The window, in bits, where the level does not ask for more: 2 MiB.
pub(super) const WINDOW: u32 = 21;

thread_local! {
    static KEPT: ReusedEncoders<Encoder<'static>> = const { ReusedEncoders::new() };
}

/// Encodes one body (RFC 8878).
pub(super) struct ZstdEncoder {
    level: u32,
    /// Taken out when the encoder ends, or breaks.
    state: Option<Encoder<'static>>,
}

/// What is to come out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// What there is anyway.
    Any,
    /// All that went in.
    All,
    /// The end of the body as well.
    End,
}

impl ZstdEncoder {
    /// An encoder of a level from 1 to 19.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn new(level: u32) -> io::Result<Self> {
        let state = match KEPT.with(|kept| kept.take(level)) {
            Some(state) => state,
            None => {
                let mut state = Encoder::new(i32::try_from(level).unwrap_or(3))?;
                state.set_parameter(CParameter::WindowLog(if level > 16 { MAX_WINDOW } else { WINDOW }))?;
                state
            }
        };
        Ok(Self { level, state: Some(state) })
    }

    /// What comes out for these bytes; with `flushes` all of it, so that they can be decoded.
    ///
    /// # Errors
    /// When there is no memory; the encoder is broken then.
    pub(super) fn write(&mut self, data: &[u8], flushes: bool) -> io::Result<Vec<u8>> {
        self.run(data, if flushes { Wanted::All } else { Wanted::Any })
    }

    /// The end.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) fn finish(&mut self) -> io::Result<Vec<u8>> {
        self.run(&[], Wanted::End)
    }

    fn run(&mut self, data: &[u8], wanted: Wanted) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        // What fails is not put back.
        let Some(mut state) = self.state.take() else { return Ok(out) };
        let mut input = InBuffer::around(data);
        loop {
            let is_taken = input.pos() == data.len();
            if is_taken && wanted == Wanted::Any {
                break;
            }
            out.reserve((data.len() / 4).max(LEAST_ROOM));
            let written = out.len();
            let mut room = OutBuffer::around_pos(&mut out, written);
            let left = match wanted {
                _ if !is_taken => state.run(&mut input, &mut room).map(|_| 1)?,
                Wanted::End => state.finish(&mut room, true)?,
                Wanted::All | Wanted::Any => state.flush(&mut room)?,
            };
            if left == 0 {
                break;
            }
        }
        self.state = Some(state);
        Ok(out)
    }
}

impl Drop for ZstdEncoder {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        if self.level <= MAX_KEPT_LEVEL && state.reinit().is_ok() {
            // Where a thread ends, its list may be gone before what uses it.
            let _gone = KEPT.try_with(|kept| kept.keep(self.level, state, MAX_KEPT));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reused_encoders::assert_used_writes_as_new;

    fn encoded(level: u32, pieces: &[&[u8]], flushes: bool) -> Vec<u8> {
        let mut encoder = ZstdEncoder::new(level).unwrap();
        let mut all = Vec::new();
        for piece in pieces {
            all.extend(encoder.write(piece, flushes).unwrap());
        }
        all.extend(encoder.finish().unwrap());
        all
    }

    #[test]
    fn an_encoder_that_was_used_before_writes_what_a_new_one_writes() {
        for level in [1, 3, 6] {
            let encoded = |pieces: &[&[u8]], flushes| encoded(level, pieces, flushes);
            assert_used_writes_as_new(
                || KEPT.with(ReusedEncoders::clear),
                encoded,
                |bytes| zstd::stream::decode_all(bytes).unwrap(),
            );
        }
    }

    #[test]
    fn what_was_written_can_be_decoded_when_it_is_flushed() {
        use std::io::Write as _;

        let mut encoder = ZstdEncoder::new(3).unwrap();
        let mut decoder = zstd::stream::write::Decoder::new(Vec::new()).unwrap();
        for piece in ["data: 1\n\n", "data: 2\n\n"] {
            decoder.write_all(&encoder.write(piece.as_bytes(), true).unwrap()).unwrap();
            decoder.flush().unwrap();
            assert!(decoder.get_ref().ends_with(piece.as_bytes()));
        }
    }

    /// One that a client left in the middle, more than are kept, and those that take too much.
    #[test]
    fn encoders_are_kept_for_their_level_up_to_a_number() {
        let kept = || KEPT.with(ReusedEncoders::levels);
        KEPT.with(ReusedEncoders::clear);
        let mut broken_off = ZstdEncoder::new(3).unwrap();
        broken_off.write(b"a body of which nobody wants the rest", false).unwrap();
        drop(broken_off);
        assert_eq!(kept(), [3]);
        assert_eq!(zstd::stream::decode_all(&*encoded(3, &[b"another"], false)).unwrap(), b"another");
        assert_eq!(kept(), [3], "the same one");
        drop(ZstdEncoder::new(1).unwrap());
        assert_eq!(kept(), [3, 1]);
        drop(ZstdEncoder::new(MAX_KEPT_LEVEL + 1).unwrap());
        assert_eq!(kept(), [3, 1]);
        let many: Vec<_> = (0..20).map(|_| ZstdEncoder::new(3).unwrap()).collect();
        assert_eq!(kept(), [1]);
        drop(many);
        assert_eq!(kept().len(), MAX_KEPT);
    }
}
