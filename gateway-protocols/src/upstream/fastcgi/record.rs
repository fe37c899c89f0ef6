//! FastCGI records (specification 1.0, §3.3): writes requests and reads responses.

use bytes::{Buf, Bytes, BytesMut};

/// Maximum length of a record's content, in bytes.
pub(super) const MAX_CONTENT: usize = 65_535;
/// Length of a record's header, in bytes.
pub(super) const HEADER: usize = 8;
/// The request ID. A connection carries one request at a time.
const REQUEST: u16 = 1;
/// Maximum number of consecutive records without output.
const MAX_VAIN: u32 = 4096;

const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const RESPONDER: u8 = 1;
const KEEP_CONNECTION: u8 = 1;

/// Writes `FCGI_BEGIN_REQUEST`.
pub(super) fn begin(out: &mut Vec<u8>, keeps: bool) {
    header(out, BEGIN_REQUEST, 8);
    out.extend_from_slice(&[0, RESPONDER, if keeps { KEEP_CONNECTION } else { 0 }, 0, 0, 0, 0, 0]);
}

/// Writes the parameters in `pairs`, encoded by [`pair`], and the record that ends them.
pub(super) fn params(out: &mut Vec<u8>, pairs: &[u8]) {
    for piece in pairs.chunks(MAX_CONTENT) {
        header(out, PARAMS, piece.len());
        out.extend_from_slice(piece);
    }
    header(out, PARAMS, 0);
}

/// Writes the header of an `FCGI_STDIN` record. A record without content ends the input.
pub(super) fn stdin(out: &mut Vec<u8>, length: usize) {
    header(out, STDIN, length);
}

fn header(out: &mut Vec<u8>, kind: u8, length: usize) {
    let [id, length] = [REQUEST.to_be_bytes(), u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()];
    out.extend_from_slice(&[VERSION, kind, id[0], id[1], length[0], length[1], 0, 0]);
}

/// Writes a name and its value (§3.4).
pub(super) fn pair(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    length(out, name.len());
    length(out, value.len());
    out.extend_from_slice(name);
    out.extend_from_slice(value);
}

/// Writes a length: in one byte up to 127, else in four.
pub(super) fn length(out: &mut Vec<u8>, bytes: usize) {
    match u8::try_from(bytes) {
        Ok(short @ 0..=127) => out.push(short),
        _ => {
            let long = u32::try_from(bytes).unwrap_or(u32::MAX >> 1) | 1 << 31;
            out.extend_from_slice(&long.to_be_bytes());
        }
    }
}

/// An event that the target sends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Output: the head, then the body.
    Output(Bytes),
    /// Output for the operator: standard error.
    Error(Bytes),
    /// The target has ended the request.
    End(RequestEnd),
    /// The buffer does not contain a complete event.
    More,
}

/// How a target ended a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestEnd {
    /// The request is complete.
    Complete,
    /// The target rejected the request: it is overloaded or cannot multiplex.
    Overloaded,
    /// The target rejected the request: it does not support the role of a responder.
    UnknownRole,
}

/// Why the bytes of a target are not valid FastCGI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum RecordError {
    #[error("a record of version {0}")]
    Version(u8),
    #[error("a record of type {0}, which a responder does not send")]
    Kind(u8),
    #[error("a record of request {0}, and there is only request 1")]
    Request(u16),
    #[error("output behind its end")]
    BehindEnd,
    #[error("the end of a request in {0} bytes")]
    BadEnd(usize),
    #[error("a protocol status {0}")]
    Status(u8),
    #[error("{MAX_VAIN} records without output")]
    Vain,
}

/// Reads the records of one response.
#[derive(Debug, Default)]
pub(super) struct RecordReader {
    /// The kind of the current record's content.
    kind: Content,
    /// Remaining bytes of its content.
    left: usize,
    /// Remaining bytes of padding after the content.
    padding: usize,
    /// The target has closed its output.
    is_over: bool,
    /// Records since the last output.
    vain: u32,
}

/// The kind of a record's content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Content {
    #[default]
    None,
    Output,
    Error,
    End,
    /// A record that does not concern the request.
    Ignored,
}

impl RecordReader {
    /// Removes the next event from the front of `buffer`.
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> Result<Event, RecordError> {
        loop {
            if self.left == 0 && self.padding > 0 {
                let take = self.padding.min(buffer.len());
                buffer.advance(take);
                self.padding -= take;
                if self.padding > 0 {
                    return Ok(Event::More);
                }
            }
            if self.left == 0 {
                if !self.read_header(buffer)? {
                    return Ok(Event::More);
                }
                continue;
            }
            if buffer.is_empty() {
                return Ok(Event::More);
            }
            let take = self.left.min(buffer.len());
            match self.kind {
                // With its padding, or that would be read as the beginning of the next answer.
                Content::End if buffer.len() < self.left + self.padding => return Ok(Event::More),
                Content::End => {
                    let end = buffer.split_to(self.left);
                    buffer.advance(self.padding);
                    (self.left, self.padding) = (0, 0);
                    return ending(&end).map(Event::End);
                }
                Content::Output => {
                    self.left -= take;
                    self.vain = 0;
                    return Ok(Event::Output(buffer.split_to(take).freeze()));
                }
                Content::Error => {
                    self.left -= take;
                    return Ok(Event::Error(buffer.split_to(take).freeze()));
                }
                Content::Ignored | Content::None => {
                    self.left -= take;
                    buffer.advance(take);
                }
            }
        }
    }

    /// Returns whether the buffer contained a complete header.
    fn read_header(&mut self, buffer: &mut BytesMut) -> Result<bool, RecordError> {
        let Some(header) = buffer.first_chunk::<HEADER>() else { return Ok(false) };
        let [version, kind, id_high, id_low, high, low, padding, _] = *header;
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        let (id, length) =
            (u16::from_be_bytes([id_high, id_low]), usize::from(u16::from_be_bytes([high, low])));
        self.vain += 1;
        if self.vain > MAX_VAIN {
            return Err(RecordError::Vain);
        }
        self.kind = match (kind, id) {
            // A management record. The gateway sends no management request, so it ignores the answer.
            (_, 0) => Content::Ignored,
            (_, other) if other != REQUEST => return Err(RecordError::Request(other)),
            (STDOUT, _) if self.is_over => return Err(RecordError::BehindEnd),
            (STDOUT, _) => {
                self.is_over = length == 0;
                Content::Output
            }
            (STDERR, _) => Content::Error,
            (END_REQUEST, _) if length != 8 => return Err(RecordError::BadEnd(length)),
            (END_REQUEST, _) => Content::End,
            (other, _) => return Err(RecordError::Kind(other)),
        };
        buffer.advance(HEADER);
        (self.left, self.padding) = (length, usize::from(padding));
        Ok(true)
    }
}

/// Parses the content of `FCGI_END_REQUEST`. The exit status of the program is ignored.
fn ending(content: &[u8]) -> Result<RequestEnd, RecordError> {
    match content.get(4).copied() {
        Some(0) => Ok(RequestEnd::Complete),
        Some(1 | 2) => Ok(RequestEnd::Overloaded),
        Some(3) => Ok(RequestEnd::UnknownRole),
        Some(other) => Err(RecordError::Status(other)),
        None => Err(RecordError::BadEnd(content.len())),
    }
}

#[cfg(test)]
mod tests;
