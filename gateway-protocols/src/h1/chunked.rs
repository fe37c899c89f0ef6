//! The chunked coding (RFC 9112 §7.1), read without a socket.

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderName, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue};
use smallvec::SmallVec;

/// Reads chunks off the front of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunked {
    state: ChunkState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    /// Before a chunk's size line.
    Size,
    /// Within a chunk; so many bytes of it are left.
    Data(u64),
    /// After a chunk's data, before its CR LF.
    DataEnd,
    /// Within the trailer section.
    Trailers,
    Done,
    /// Nobody knows what the bytes after this mean.
    Broken,
}

/// One step of reading.
#[derive(Debug, PartialEq, Eq)]
pub enum ChunkPiece {
    /// Bytes of the body.
    Data(Bytes),
    /// The end, with trailers if any came.
    End(Option<HeaderMap>),
    /// More bytes are needed.
    More,
}

/// Why the coding is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("chunked coding: {0}")]
pub struct ChunkError(pub &'static str);

/// Bytes of a size line, extensions included; longer ones serve only to burn memory.
const MAX_SIZE_LINE: usize = 256;
/// Bytes of a trailer section.
const MAX_TRAILERS: usize = 8 << 10;
/// Fields of a trailer section.
const MAX_TRAILER_FIELDS: usize = 128;

impl Default for Chunked {
    fn default() -> Self {
        Self { state: ChunkState::Size }
    }
}

impl Chunked {
    /// Whether the last chunk has been read.
    pub fn is_done(&self) -> bool {
        self.state == ChunkState::Done
    }

    /// Takes the next piece off `buffer`.
    ///
    /// # Errors
    /// When no two readers would agree on what the bytes mean.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<ChunkPiece, ChunkError> {
        let piece = self.step(buffer);
        if piece.is_err() {
            self.state = ChunkState::Broken;
        }
        piece
    }

    fn step(&mut self, buffer: &mut BytesMut) -> Result<ChunkPiece, ChunkError> {
        loop {
            match self.state {
                ChunkState::Size => {
                    let Some(line) = take_line(buffer, MAX_SIZE_LINE)? else { return Ok(ChunkPiece::More) };
                    self.state = match size(&line)? {
                        0 => ChunkState::Trailers,
                        bytes => ChunkState::Data(bytes),
                    };
                }
                ChunkState::Data(left) => {
                    if buffer.is_empty() {
                        return Ok(ChunkPiece::More);
                    }
                    let take = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                    let left = left - take as u64;
                    self.state = if left == 0 { ChunkState::DataEnd } else { ChunkState::Data(left) };
                    return Ok(ChunkPiece::Data(buffer.split_to(take).freeze()));
                }
                ChunkState::DataEnd => match buffer.get(..2) {
                    Some(b"\r\n") => {
                        let _end = buffer.split_to(2);
                        self.state = ChunkState::Size;
                    }
                    Some(_) => return Err(ChunkError("data does not end in CR LF")),
                    None if buffer.first().is_some_and(|c| *c != b'\r') => {
                        return Err(ChunkError("data does not end in CR LF"));
                    }
                    None => return Ok(ChunkPiece::More),
                },
                ChunkState::Trailers => return self.trailers(buffer),
                ChunkState::Done => return Ok(ChunkPiece::End(None)),
                ChunkState::Broken => return Err(ChunkError("broken before")),
            }
        }
    }

    fn trailers(&mut self, buffer: &mut BytesMut) -> Result<ChunkPiece, ChunkError> {
        if buffer.starts_with(b"\r\n") {
            let _end = buffer.split_to(2);
            self.state = ChunkState::Done;
            return Ok(ChunkPiece::End(None));
        }
        let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") else {
            if has_bare_line_feed(buffer) {
                return Err(ChunkError("bare line feed in trailers"));
            }
            // Its end, were it within the limit, would be here; the same whether it comes at once or in pieces.
            return if buffer.len() >= MAX_TRAILERS + b"\r\n\r\n".len() {
                Err(ChunkError("trailers too large"))
            } else {
                Ok(ChunkPiece::More)
            };
        };
        if end > MAX_TRAILERS {
            return Err(ChunkError("trailers too large"));
        }
        let section = buffer.split_to(end + 4).freeze();
        if has_bare_line_feed(&section) {
            return Err(ChunkError("bare line feed in trailers"));
        }
        self.state = ChunkState::Done;
        Ok(ChunkPiece::End(Some(fields(&section)?)))
    }
}

fn fields(section: &Bytes) -> Result<HeaderMap, ChunkError> {
    let mut parsed = [httparse::EMPTY_HEADER; MAX_TRAILER_FIELDS];
    let Ok(httparse::Status::Complete((_, parsed))) = httparse::parse_headers(section, &mut parsed) else {
        return Err(ChunkError("malformed trailers"));
    };
    let mut map = HeaderMap::with_capacity(parsed.len());
    for field in parsed {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| ChunkError("trailer name"))?;
        let value = HeaderValue::from_bytes(field.value).map_err(|_| ChunkError("trailer value"))?;
        if may_trail(&name) {
            map.append(name, value);
        }
    }
    Ok(map)
}

/// RFC 9110 §6.5.1: what frames, routes or authorises a message must not come after it; dropped when it does.
pub fn may_trail(name: &HeaderName) -> bool {
    !(*name == TRANSFER_ENCODING
        || *name == CONTENT_LENGTH
        || *name == HOST
        || *name == CONNECTION
        || *name == TE
        || *name == TRAILER
        || *name == UPGRADE
        || *name == http::header::AUTHORIZATION
        || *name == http::header::COOKIE
        || *name == http::header::SET_COOKIE
        || *name == http::header::CONTENT_TYPE
        || *name == http::header::CONTENT_ENCODING
        || name.as_str().starts_with("x-forwarded-")
        || name.as_str().starts_with("x-consumer-"))
}

/// Drops what [`may_trail`] refuses.
pub(crate) fn keep_trailing(trailers: &mut HeaderMap) {
    let removed: SmallVec<[HeaderName; 4]> =
        trailers.keys().filter(|name| !may_trail(name)).cloned().collect();
    for name in removed {
        trailers.remove(name);
    }
}

/// Takes a line without its CR LF.
fn take_line(buffer: &mut BytesMut, limit: usize) -> Result<Option<BytesMut>, ChunkError> {
    match memchr::memchr(b'\n', buffer) {
        Some(at) if at > limit => Err(ChunkError("size line too long")),
        Some(at) if at == 0 || buffer[at - 1] != b'\r' => Err(ChunkError("bare line feed")),
        Some(at) => {
            let mut line = buffer.split_to(at + 1);
            line.truncate(at - 1);
            Ok(Some(line))
        }
        None if buffer.len() > limit => Err(ChunkError("size line too long")),
        None => Ok(None),
    }
}

fn has_bare_line_feed(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes).any(|at| at == 0 || bytes[at - 1] != b'\r')
}

/// `1*HEXDIG`, then nothing or extensions, which are ignored but have to be well-formed (RFC 9112 §7.1.1).
fn size(line: &[u8]) -> Result<u64, ChunkError> {
    let digits = line.iter().take_while(|c| c.is_ascii_hexdigit()).count();
    if digits == 0 || digits > 15 {
        return Err(ChunkError("size"));
    }
    let (size, mut rest) = line.split_at(digits);
    while !rest.is_empty() {
        rest = extension(rest).ok_or(ChunkError("extension"))?;
    }
    std::str::from_utf8(size)
        .ok()
        .and_then(|text| u64::from_str_radix(text, 16).ok())
        .ok_or(ChunkError("size"))
}

/// Takes one extension off the front: a semicolon, a name, and a value if it has one; blanks around the signs.
fn extension(line: &[u8]) -> Option<&[u8]> {
    let (b';', rest) = blanks(line).split_first()? else { return None };
    let rest = token(blanks(rest))?;
    match blanks(rest).split_first() {
        Some((b'=', value)) => match blanks(value).split_first() {
            Some((b'"', quoted)) => end_of_quoted(quoted),
            _ => token(blanks(value)),
        },
        // Blanks belong to a sign that follows.
        _ => Some(rest),
    }
}

fn blanks(bytes: &[u8]) -> &[u8] {
    let blanks = bytes.iter().take_while(|c| matches!(c, b' ' | b'\t')).count();
    &bytes[blanks..]
}

/// What follows a token at the front; `None` without one.
fn token(bytes: &[u8]) -> Option<&[u8]> {
    let is_sign = |c: u8| b"!#$%&'*+-.^_`|~".contains(&c);
    let length = bytes.iter().take_while(|c| c.is_ascii_alphanumeric() || is_sign(**c)).count();
    (length > 0).then(|| &bytes[length..])
}

/// What follows the closing quote (RFC 9110 §5.6.4).
fn end_of_quoted(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        bytes = match bytes {
            [b'"', rest @ ..] => return Some(rest),
            [b'\\', b'\t' | b' '..=b'~' | 0x80.., rest @ ..] => rest,
            [b'\t' | b' '..=b'[' | b']'..=b'~' | 0x80.., rest @ ..] => rest,
            _ => return None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(mut bytes: &[u8], step: usize) -> Result<(Vec<u8>, Option<HeaderMap>, usize), ChunkError> {
        let mut chunked = Chunked::default();
        let mut buffer = BytesMut::new();
        let mut body = Vec::new();
        loop {
            match chunked.next(&mut buffer)? {
                ChunkPiece::Data(data) => body.extend_from_slice(&data),
                ChunkPiece::End(trailers) => return Ok((body, trailers, buffer.len() + bytes.len())),
                ChunkPiece::More => {
                    assert!(!bytes.is_empty(), "wants more than there is");
                    let (now, later) = bytes.split_at(step.min(bytes.len()));
                    buffer.extend_from_slice(now);
                    bytes = later;
                }
            }
        }
    }

    #[test]
    fn chunks_in_any_slicing() {
        let wire = b"4\r\nWiki\r\n6;name=\"v\"\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\nX-Sum: 1\r\nHost: evil\r\n\r\nNEXT";
        for step in 1..=wire.len() {
            let (body, trailers, rest) = read_all(wire, step).unwrap();
            assert_eq!(body, b"Wikipedia in \r\n\r\nchunks.");
            assert_eq!(rest, 4);
            let trailers = trailers.unwrap();
            assert_eq!(trailers["x-sum"], "1");
            assert!(!trailers.contains_key("host"));
        }
    }

    #[test]
    fn what_two_readers_could_read_differently_is_refused() {
        for bad in [
            &b"4\nWiki\r\n0\r\n\r\n"[..],
            b"4\r\nWikiX\r\n0\r\n\r\n",
            b"4\r\nWiki\n0\r\n\r\n",
            b"0x4\r\nWiki\r\n0\r\n\r\n",
            b"-1\r\n\r\n",
            b" 4\r\nWiki\r\n0\r\n\r\n",
            b"4 4\r\nWiki\r\n0\r\n\r\n",
            b"\r\n4\r\nWiki\r\n0\r\n\r\n",
            b"1ffffffffffffffff\r\n",
            b"4;\x01\r\nWiki\r\n0\r\n\r\n",
            b"4;\r\nWiki\r\n0\r\n\r\n",
            b"4 \r\nWiki\r\n0\r\n\r\n",
            b"4;a;\r\nWiki\r\n0\r\n\r\n",
            b"4;a \r\nWiki\r\n0\r\n\r\n",
            b"4;=a\r\nWiki\r\n0\r\n\r\n",
            b"4;a=\r\nWiki\r\n0\r\n\r\n",
            b"4;bad[=x\r\nWiki\r\n0\r\n\r\n",
            b"4;a=\"b\r\nWiki\r\n0\r\n\r\n",
            b"4;a=\"b\\\r\nWiki\r\n0\r\n\r\n",
            b"4;a=\"\x7f\"\r\nWiki\r\n0\r\n\r\n",
            b"4;a=\"b\"c\r\nWiki\r\n0\r\n\r\n",
            b"0\r\n\n",
            b"0\r\nx: 1\r\n\n",
            b"0\r\nx: 1\n\n",
            b"0\r\nbad name: x\r\n\r\n",
            b"0\r\nx: 1\ny: 2\r\n\r\n",
        ] {
            assert!(read_all(bad, 1000).is_err(), "{:?}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn extensions_are_passed_over() {
        for line in [
            "4;a",
            "4;a=b",
            "4 ; a = b",
            "4;a;b=c;d",
            "4\t;\ta=\"b;c \\\" \"",
            "4;a=\"\"",
            "4;a=\"\u{e9}\";b",
        ] {
            let wire = format!("{line}\r\nWiki\r\n0;last=1\r\n\r\n");
            for step in [1, 1000] {
                assert_eq!(
                    read_all(wire.as_bytes(), step).map(|read| read.0),
                    Ok(b"Wiki".to_vec()),
                    "{line}"
                );
            }
        }
    }

    #[test]
    fn nothing_is_read_after_an_error() {
        let mut chunked = Chunked::default();
        let mut buffer = BytesMut::from(&b"zz\r\n0\r\n\r\n"[..]);
        assert!(chunked.next(&mut buffer).is_err());
        assert!(chunked.next(&mut buffer).is_err());
        assert!(!chunked.is_done());
    }

    #[test]
    fn endless_lines_and_trailers_are_refused() {
        let mut chunked = Chunked::default();
        assert!(chunked.next(&mut BytesMut::from(&[b'1'; 300][..])).is_err());
        let mut long = b"0\r\n".to_vec();
        long.extend_from_slice(&[b'a'; MAX_TRAILERS + 10]);
        assert!(Chunked::default().next(&mut BytesMut::from(&long[..])).is_err());
        // The longest that are taken, and one byte more, in any slicing.
        for (bytes, taken) in [(MAX_TRAILERS, true), (MAX_TRAILERS + 1, false)] {
            let wire = format!("0\r\nx: {}\r\n\r\n", "a".repeat(bytes - 3));
            for step in [1, 3, usize::MAX] {
                assert_eq!(read_all(wire.as_bytes(), step).is_ok(), taken, "{bytes} in pieces of {step}");
            }
        }
    }
}
