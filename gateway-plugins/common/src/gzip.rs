//! gzip encoders, which each thread keeps for the next body.

use std::io;

use flate2::{Compress, Compression, FlushCompress, Status};

use super::reused_encoders::ReusedEncoders;

/// Encoders that a thread keeps, each of some 270 KB.
const MAX_KEPT: usize = 8;
/// Bits of the window that gzip looks back in: 32 KiB, which every decoder has.
const WINDOW: u8 = 15;
/// Bytes that are there at least for what comes out.
const LEAST_ROOM: usize = 256;

thread_local! {
    static KEPT: ReusedEncoders<Compress> = const { ReusedEncoders::new() };
}

/// Encodes one body (RFC 1952).
pub(super) struct GzipEncoder {
    level: u32,
    /// Taken out when the encoder ends.
    state: Option<Compress>,
}

impl GzipEncoder {
    /// An encoder of a level from 1 to 9.
    pub(super) fn new(level: u32) -> Self {
        let kept = KEPT.with(|kept| kept.take(level));
        let state = kept.unwrap_or_else(|| Compress::new_gzip(Compression::new(level), WINDOW));
        Self { level, state: Some(state) }
    }

    /// What comes out for these bytes; with `flushes` all of it, so that they can be decoded.
    ///
    /// # Errors
    /// Never for bytes; the encoder is broken.
    pub(super) fn write(&mut self, data: &[u8], flushes: bool) -> io::Result<Vec<u8>> {
        self.run(data, if flushes { FlushCompress::Sync } else { FlushCompress::None })
    }

    /// The end.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub(super) fn finish(&mut self) -> io::Result<Vec<u8>> {
        self.run(&[], FlushCompress::Finish)
    }

    fn run(&mut self, mut data: &[u8], flush: FlushCompress) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        let Some(state) = &mut self.state else { return Ok(out) };
        loop {
            if data.is_empty() && flush == FlushCompress::None {
                return Ok(out);
            }
            out.reserve((data.len() / 4).max(LEAST_ROOM));
            let before = state.total_in();
            let status = state.compress_vec(data, &mut out, flush).map_err(io::Error::other)?;
            let taken = usize::try_from(state.total_in() - before).map_err(io::Error::other)?;
            data = data.get(taken..).unwrap_or_default();
            let has_room = out.len() < out.capacity();
            match flush {
                FlushCompress::Finish if status == Status::StreamEnd => return Ok(out),
                FlushCompress::Finish => {}
                // With room left, all that there is has come out.
                _ if data.is_empty() && has_room => return Ok(out),
                _ => {}
            }
        }
    }
}

impl Drop for GzipEncoder {
    fn drop(&mut self) {
        let Some(mut state) = self.state.take() else { return };
        state.reset();
        // Where a thread ends, its list may be gone before what uses it.
        let _gone = KEPT.try_with(|kept| kept.keep(self.level, state, MAX_KEPT));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::reused_encoders::assert_used_writes_as_new;

    fn decoded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut out).unwrap();
        out
    }

    fn encoded(level: u32, pieces: &[&[u8]], flushes: bool) -> Vec<u8> {
        let mut encoder = GzipEncoder::new(level);
        let mut all = Vec::new();
        for piece in pieces {
            all.extend(encoder.write(piece, flushes).unwrap());
        }
        all.extend(encoder.finish().unwrap());
        all
    }

    fn kept() -> Vec<u32> {
        KEPT.with(ReusedEncoders::levels)
    }

    #[test]
    fn an_encoder_that_was_used_before_writes_what_a_new_one_writes() {
        for level in [1, 6, 9] {
            let encoded = |pieces: &[&[u8]], flushes| encoded(level, pieces, flushes);
            assert_used_writes_as_new(|| KEPT.with(ReusedEncoders::clear), encoded, decoded);
        }
    }

    #[test]
    fn what_was_written_can_be_decoded_when_it_is_flushed() {
        let mut encoder = GzipEncoder::new(6);
        let mut sent = Vec::new();
        for piece in ["data: 1\n\n", "data: 2\n\n"] {
            sent.extend(encoder.write(piece.as_bytes(), true).unwrap());
            let mut out = vec![0; 100];
            let mut decoder = flate2::Decompress::new_gzip(WINDOW);
            decoder.decompress(&sent, &mut out, flate2::FlushDecompress::Sync).unwrap();
            let end = usize::try_from(decoder.total_out()).unwrap();
            assert!(out[..end].ends_with(piece.as_bytes()));
        }
    }

    /// One that a client left in the middle, and more than are kept.
    #[test]
    fn encoders_are_kept_for_their_level_up_to_a_number() {
        KEPT.with(ReusedEncoders::clear);
        let mut broken_off = GzipEncoder::new(6);
        broken_off.write(b"a body of which nobody wants the rest", false).unwrap();
        drop(broken_off);
        assert_eq!(kept(), [6]);
        assert_eq!(decoded(&encoded(6, &[b"another"], false)), b"another");
        assert_eq!(kept(), [6], "the same one");
        drop(GzipEncoder::new(1));
        assert_eq!(kept(), [6, 1]);
        let many: Vec<_> = (0..20).map(|_| GzipEncoder::new(6)).collect();
        assert_eq!(kept(), [1]);
        drop(many);
        assert_eq!(kept().len(), MAX_KEPT);
    }
}
