//! Content codings: gzip, deflate (in requests), Brotli and Zstandard, as streams.

use std::io::{self, Write};
use std::num::TryFromIntError;
use std::sync::Arc;

use bytes::Bytes;
use gateway_core::http::body::{BodyError, Transform, TransformOutput};
use schemars::JsonSchema;
use serde::Deserialize;

use super::gzip::GzipEncoder;
use super::zstandard::{MAX_WINDOW, WINDOW, ZstdEncoder};

/// A coding that responses are sent in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Coding {
    /// gzip (RFC 1952).
    Gzip,
    /// Brotli (RFC 7932).
    Br,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Coding {
    /// Its name in `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Br => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// Bits of the window that Brotli looks back in: 4 MiB. Each encoder holds about as much memory.
const BROTLI_WINDOW: u32 = 22;
/// Bytes of Brotli's own buffers.
const BROTLI_BUFFER: usize = 4096;
/// A body being encoded.
pub struct Encoder {
    kind: Encoding,
    /// Every piece goes out at once, so that events are not held back.
    flushes: bool,
    /// Something is held back that could go out.
    holds: bool,
}

enum Encoding {
    Gzip(GzipEncoder),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(ZstdEncoder),
    /// The encoder points into the dictionary, and has to be dropped first.
    Dictionary(zstd::stream::write::Encoder<'static, Vec<u8>>, Arc<Prepared>),
    Ended,
}

impl Encoder {
    /// An encoder by `dcz`: Zstandard with a dictionary (RFC 9842 §5).
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn with_dictionary(dictionary: Arc<Prepared>, flushes: bool) -> io::Result<Self> {
        let digested = &dictionary.digested;
        let mut encoder =
            zstd::stream::write::Encoder::with_prepared_dictionary(dictionary.head.to_vec(), digested)?;
        encoder.window_log(dictionary.window)?;
        Ok(Self { kind: Encoding::Dictionary(encoder, dictionary), flushes, holds: false })
    }

    /// An encoder of a level that the coding has.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(coding: Coding, level: u32, flushes: bool) -> io::Result<Self> {
        let kind = match coding {
            Coding::Gzip => Encoding::Gzip(GzipEncoder::new(level)),
            Coding::Br => Encoding::Brotli(Box::new(brotli::CompressorWriter::new(
                Vec::new(),
                BROTLI_BUFFER,
                level,
                BROTLI_WINDOW,
            ))),
            Coding::Zstd => Encoding::Zstd(ZstdEncoder::new(level)?),
        };
        Ok(Self { kind, flushes, holds: false })
    }

    fn write(&mut self, data: &[u8], flushes: bool) -> io::Result<Vec<u8>> {
        self.holds = !flushes && (self.holds || !data.is_empty());
        let written = |writer: &mut dyn Write| {
            writer.write_all(data)?;
            if flushes { writer.flush() } else { Ok(()) }
        };
        Ok(match &mut self.kind {
            Encoding::Gzip(encoder) => encoder.write(data, flushes)?,
            Encoding::Brotli(encoder) => {
                written(encoder)?;
                std::mem::take(encoder.get_mut())
            }
            Encoding::Zstd(encoder) => encoder.write(data, flushes)?,
            Encoding::Dictionary(encoder, _) => {
                written(encoder)?;
                std::mem::take(encoder.get_mut())
            }
            Encoding::Ended => Vec::new(),
        })
    }

    fn finish(&mut self) -> io::Result<Vec<u8>> {
        match std::mem::replace(&mut self.kind, Encoding::Ended) {
            Encoding::Gzip(mut encoder) => encoder.finish(),
            Encoding::Brotli(encoder) => Ok(encoder.into_inner()),
            Encoding::Zstd(mut encoder) => encoder.finish(),
            Encoding::Dictionary(encoder, _dictionary) => encoder.finish(),
            Encoding::Ended => Ok(Vec::new()),
        }
    }
}

impl Transform for Encoder {
    fn data(&mut self, data: Bytes, out: &mut TransformOutput) -> Result<(), BodyError> {
        out.data(self.write(&data, self.flushes)?);
        Ok(())
    }

    /// A page that is made piece by piece is seen piece by piece, as without compression.
    fn pause(&mut self, out: &mut TransformOutput) -> Result<(), BodyError> {
        if self.holds {
            out.data(self.write(&[], true)?);
        }
        Ok(())
    }

    fn end(&mut self, out: &mut TransformOutput) -> Result<(), BodyError> {
        out.data(self.finish()?);
        Ok(())
    }
}

/// A dictionary that was prepared for one level of Zstandard.
pub struct Prepared {
    /// The level.
    pub level: u32,
    digested: zstd::dict::EncoderDictionary<'static>,
    window: u32,
    /// What a body begins with: a frame that decoders skip, with the dictionary's SHA-256 in it.
    head: [u8; HEAD_BYTES],
}

/// How the head of a `dcz` body begins.
const DCZ_MAGIC: [u8; 8] = [0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0];
const HEAD_BYTES: usize = DCZ_MAGIC.len() + 32;
/// What files begin with that `zstd --train` makes. They are more than bytes that were seen before.
const TRAINED_MAGIC: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

/// Why bytes can't be a dictionary.
#[derive(Debug, thiserror::Error)]
pub enum DictionaryError {
    /// There are none.
    #[error("it is empty")]
    Empty,
    /// They are what `zstd --train` makes.
    #[error("it is a trained dictionary of Zstandard; clients take raw ones only")]
    Trained,
    /// Zstandard has no such level.
    #[error(transparent)]
    Level(#[from] TryFromIntError),
}

impl Prepared {
    /// Prepares these bytes, of which `hash` is the SHA-256.
    ///
    /// # Errors
    /// Why they can't be a dictionary.
    pub fn new(bytes: &[u8], hash: &[u8; 32], level: u32) -> Result<Self, DictionaryError> {
        if bytes.is_empty() {
            return Err(DictionaryError::Empty);
        }
        if bytes.starts_with(&TRAINED_MAGIC) {
            return Err(DictionaryError::Trained);
        }
        let mut head = [0; HEAD_BYTES];
        head[..DCZ_MAGIC.len()].copy_from_slice(&DCZ_MAGIC);
        head[DCZ_MAGIC.len()..].copy_from_slice(hash);
        // A dictionary can be referred to until a window of output has passed, and its like is about as large as it is.
        let window = (bytes.len().next_power_of_two().ilog2() + 1).clamp(WINDOW, MAX_WINDOW);
        let digested = zstd::dict::EncoderDictionary::copy(bytes, i32::try_from(level)?);
        Ok(Self { level, digested, window, head })
    }
}

/// Bytes that may still be written.
struct Bounded {
    bytes: Vec<u8>,
    left: u64,
    is_over: bool,
}

impl Write for Bounded {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let length = data.len() as u64;
        if length > self.left {
            self.is_over = true;
            return Err(io::Error::other("the decoded body is too large"));
        }
        self.left -= length;
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A body being decoded, up to a limit.
pub struct Decoder {
    kind: Decoding,
    limit: u64,
    is_empty: bool,
}

enum Decoding {
    Gzip(flate2::write::MultiGzDecoder<Bounded>),
    Deflate(flate2::write::ZlibDecoder<Bounded>),
    Brotli(Box<brotli::DecompressorWriter<Bounded>>),
    Zstd(zstd::stream::write::Decoder<'static, Bounded>),
    Ended,
}

impl Decoder {
    /// A decoder for a coding by its name in `Content-Encoding`, which may put out `limit` bytes; `None` for a coding
    /// that is not known.
    pub fn named(name: &str, limit: u64) -> Option<Self> {
        let sink = Bounded { bytes: Vec::new(), left: limit, is_over: false };
        let kind = match name.to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => Decoding::Gzip(flate2::write::MultiGzDecoder::new(sink)),
            "deflate" => Decoding::Deflate(flate2::write::ZlibDecoder::new(sink)),
            "br" => Decoding::Brotli(Box::new(brotli::DecompressorWriter::new(sink, BROTLI_BUFFER))),
            "zstd" => {
                let mut decoder = zstd::stream::write::Decoder::new(sink).ok()?;
                decoder.window_log_max(MAX_WINDOW).ok()?;
                Decoding::Zstd(decoder)
            }
            _ => return None,
        };
        Some(Self { kind, limit, is_empty: true })
    }

    fn sink(&mut self) -> Option<&mut Bounded> {
        match &mut self.kind {
            Decoding::Gzip(decoder) => Some(decoder.get_mut()),
            Decoding::Deflate(decoder) => Some(decoder.get_mut()),
            Decoding::Brotli(decoder) => Some(decoder.get_mut()),
            Decoding::Zstd(decoder) => Some(decoder.get_mut()),
            Decoding::Ended => None,
        }
    }

    /// What was put out so far, or why the body can't go on.
    fn settle(&mut self, done: io::Result<()>) -> Result<Vec<u8>, BodyError> {
        let limit = self.limit;
        let (bytes, is_over) =
            self.sink().map_or((Vec::new(), false), |sink| (std::mem::take(&mut sink.bytes), sink.is_over));
        match done {
            _ if is_over => {
                self.kind = Decoding::Ended;
                Err(BodyError::TooLarge { limit })
            }
            Ok(()) => Ok(bytes),
            Err(_) => {
                self.kind = Decoding::Ended;
                Err(BodyError::Framing("the content coding is broken"))
            }
        }
    }
}

impl Decoder {
    /// Decodes a whole body.
    ///
    /// # Errors
    /// As of a body that is decoded while it passes.
    pub fn whole(mut self, bytes: &[u8]) -> Result<Vec<u8>, BodyError> {
        let written = self.write(bytes);
        let mut all = self.settle(written)?;
        let done = self.finish();
        all.append(&mut self.settle(done)?);
        Ok(all)
    }

    fn write(&mut self, data: &[u8]) -> io::Result<()> {
        match &mut self.kind {
            Decoding::Gzip(decoder) => decoder.write_all(data).and_then(|()| decoder.flush()),
            Decoding::Deflate(decoder) => decoder.write_all(data).and_then(|()| decoder.flush()),
            Decoding::Brotli(decoder) => decoder.write_all(data).and_then(|()| decoder.flush()),
            Decoding::Zstd(decoder) => decoder.write_all(data).and_then(|()| decoder.flush()),
            Decoding::Ended => Err(io::Error::other("it is over")),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        match &mut self.kind {
            Decoding::Gzip(decoder) => decoder.try_finish(),
            Decoding::Deflate(decoder) => decoder.try_finish(),
            Decoding::Brotli(decoder) => decoder.close(),
            Decoding::Zstd(decoder) => decoder.do_finish(),
            Decoding::Ended => Ok(()),
        }
    }
}

impl Transform for Decoder {
    fn data(&mut self, data: Bytes, out: &mut TransformOutput) -> Result<(), BodyError> {
        self.is_empty &= data.is_empty();
        let done = self.write(&data);
        out.data(self.settle(done)?);
        Ok(())
    }

    fn end(&mut self, out: &mut TransformOutput) -> Result<(), BodyError> {
        if self.is_empty {
            return Ok(());
        }
        let done = self.finish();
        out.data(self.settle(done)?);
        self.kind = Decoding::Ended;
        Ok(())
    }
}
