//! Reading a message's head.

use bytes::{Buf, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use smallvec::SmallVec;

use super::name;

/// Sizes a head must keep to.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// Bytes of the whole head.
    pub bytes: usize,
    /// Header fields.
    pub fields: usize,
    /// Bytes of a request target.
    pub target: usize,
}

/// How a message's body is framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks until the empty one.
    Chunked,
    /// Until the connection ends; responses only.
    UntilClose,
}

/// What is wrong with a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Longer than allowed.
    #[error("the head is too large")]
    TooLarge,
    /// More fields than allowed.
    #[error("there are too many header fields")]
    TooMany,
    /// A request target longer than allowed.
    #[error("the request target is too long")]
    TargetTooLong,
    /// Not HTTP/1.
    #[error("the head is malformed: {0}")]
    Malformed(&'static str),
    /// A transfer coding other than `chunked`.
    #[error("the transfer coding is not supported")]
    Coding,
    /// A version that is none of HTTP/1.
    #[error("the version is not supported")]
    Version,
}

/// A request's head and what it says about the connection.
#[derive(Debug)]
pub struct RequestHead {
    /// Method, target, version, fields.
    pub request: Request<()>,
    /// How its body is framed.
    pub framing: Framing,
    /// Whether the client wants to use the connection again.
    pub keep_alive: bool,
    /// Whether the client expects anything, which is for this hop to see to.
    pub expects: bool,
    /// Whether the client waits for `100 Continue`.
    pub expects_continue: bool,
    /// The protocol an upgrade asks for.
    pub upgrade: Option<HeaderValue>,
}

/// A response's head and what it says about the connection.
#[derive(Debug)]
pub struct ResponseHead {
    /// Status, version, fields.
    pub response: Response<()>,
    /// How its body is framed.
    pub framing: Framing,
    /// Whether the target lets the connection be used again.
    pub keep_alive: bool,
}

/// Takes a request's head off the front of `buffer`; `None` when it is not all there yet.
///
/// # Errors
/// Whatever makes the request unanswerable; the connection cannot be used any further. The buffer then holds the head,
/// as far as there is one.
pub fn request(buffer: &mut BytesMut, limits: &HeadLimits) -> Result<Option<RequestHead>, HeadError> {
    skip_empty_lines(buffer);
    let Some(lines) = Lines::of(buffer, limits)? else { return Ok(None) };
    let head = buffer.split_to(lines.bytes).freeze();
    let parsed = parsed(&head, &lines, limits);
    if parsed.is_err() {
        // For the record; nothing more is read from this connection.
        *buffer = BytesMut::from(&*head);
    }
    parsed.map(Some)
}

fn parsed(head: &Bytes, lines: &Lines, limits: &HeadLimits) -> Result<RequestHead, HeadError> {
    let line = &head[..lines.first()];
    let (method, rest) = line.split_at(memchr::memchr(b' ', line).ok_or(BAD_REQUEST_LINE)?);
    let method = Method::from_bytes(method).map_err(|_| HeadError::Malformed("method"))?;
    let (target, version) = rest.split_last_chunk::<9>().ok_or(BAD_REQUEST_LINE)?;
    let version = match version {
        b" HTTP/1.1" => Version::HTTP_11,
        b" HTTP/1.0" => Version::HTTP_10,
        // What follows 1.1 is read as 1.1 (RFC 9110 §2.5).
        [b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => Version::HTTP_11,
        other if other.starts_with(b" HTTP/") => return Err(HeadError::Version),
        _ => return Err(BAD_REQUEST_LINE),
    };
    // The space behind the method, and whatever follows up to the one before the version.
    let target = target.get(1..).filter(|target| !target.is_empty()).ok_or(BAD_REQUEST_LINE)?;
    if target.len() > limits.target {
        return Err(HeadError::TargetTooLong);
    }
    if target.iter().any(|c| matches!(c, 0..=b' ' | b'"' | b'<' | b'>' | 0x7f)) {
        return Err(HeadError::Malformed("request target"));
    }
    // A fragment is dropped unread below, which must not hide what no text holds.
    if !target.is_ascii() && std::str::from_utf8(target).is_err() {
        return Err(HeadError::Malformed("request target"));
    }
    let uri = uri(&method, head.slice_ref(target))?;
    let (fields, seen) = lines.fields(head)?;
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = version;
    *request.headers_mut() = fields;
    describe_request(request, &seen)
}

/// Takes a response's head off the front of `buffer`; `None` when it is not all there yet. `to` is the request's
/// method, which decides whether a body follows.
///
/// # Errors
/// Whatever makes the response unreadable; the connection cannot be used any further.
pub fn response(
    buffer: &mut BytesMut,
    limits: &HeadLimits,
    to: &Method,
) -> Result<Option<ResponseHead>, HeadError> {
    let Some(lines) = Lines::of(buffer, limits)? else { return Ok(None) };
    let head = buffer.split_to(lines.bytes).freeze();
    let (version, status) = status_line(&head[..lines.first()])?;
    let (fields, seen) = lines.fields(&head)?;
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = version;
    *response.headers_mut() = fields;
    describe_response(response, &seen, to).map(Some)
}

const BAD_REQUEST_LINE: HeadError = HeadError::Malformed("request line");
const BAD_STATUS_LINE: HeadError = HeadError::Malformed("status line");

/// RFC 9112 §4: the reason may be missing, and the space before it with it.
fn status_line(line: &[u8]) -> Result<(Version, StatusCode), HeadError> {
    let (version, rest) = line.split_first_chunk::<9>().ok_or(BAD_STATUS_LINE)?;
    let version = match version {
        b"HTTP/1.1 " => Version::HTTP_11,
        b"HTTP/1.0 " => Version::HTTP_10,
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', b' '] => Version::HTTP_11,
        other if other.starts_with(b"HTTP/") => return Err(HeadError::Version),
        _ => return Err(BAD_STATUS_LINE),
    };
    let (code, reason) = rest.split_first_chunk::<3>().ok_or(BAD_STATUS_LINE)?;
    let status = StatusCode::from_bytes(code).map_err(|_| HeadError::Malformed("status"))?;
    let plain = |c: &u8| matches!(c, b'\t' | b' '..=b'~' | 0x80..);
    match reason {
        [] => Ok((version, status)),
        [b' ', reason @ ..] if reason.iter().all(plain) => Ok((version, status)),
        _ => Err(BAD_STATUS_LINE),
    }
}

/// RFC 9112 §2.2: empty lines before a request line are skipped. They take no room, and the time for a head is running:
/// how many of them one read brings says nothing.
fn skip_empty_lines(buffer: &mut BytesMut) {
    let lines = buffer.chunks_exact(2).take_while(|line| *line == b"\r\n").count();
    buffer.advance(2 * lines);
}

/// A whole head, as the ends of its lines.
struct Lines {
    /// Where each line's text ends and its CR LF begins, without the empty line at the end.
    ends: SmallVec<[u32; 32]>,
    /// Bytes of the head with that empty line.
    bytes: usize,
}

impl Lines {
    /// The lines of the head at the front of `buffer`, each of which must end in CR LF; `None` when its end has not
    /// arrived yet.
    fn of(buffer: &[u8], limits: &HeadLimits) -> Result<Option<Self>, HeadError> {
        let mut ends = SmallVec::new();
        let mut line = 0;
        for at in memchr::memchr_iter(b'\n', &buffer[..buffer.len().min(limits.bytes)]) {
            if at == 0 || buffer[at - 1] != b'\r' {
                return Err(HeadError::Malformed("line feed without carriage return"));
            }
            if at == line + 1 && line > 0 {
                return Ok(Some(Self { ends, bytes: at + 1 }));
            }
            if ends.len() > limits.fields {
                return Err(HeadError::TooMany);
            }
            ends.push(u32::try_from(at - 1).map_err(|_| HeadError::TooLarge)?);
            line = at + 1;
        }
        if buffer.len() >= limits.bytes { Err(HeadError::TooLarge) } else { Ok(None) }
    }

    /// Where the first line ends.
    fn first(&self) -> usize {
        self.ends.first().map_or(0, |end| *end as usize)
    }

    /// The fields as a map whose values share the head's bytes, without those that say nothing to anybody but this
    /// connection: they would be stripped later.
    fn fields(&self, head: &Bytes) -> Result<(HeaderMap, FramingFields), HeadError> {
        // Room for what the gateway adds, so that the map doesn't grow on the way.
        let mut map = HeaderMap::with_capacity(self.ends.len() - 1 + ADDED_FIELDS);
        let mut seen = FramingFields::default();
        for line in self.ends.windows(2) {
            let (name, value) = field(head, line[0] as usize + 2, line[1] as usize)?;
            if seen.note(&name, &value)? {
                map.append(name, value);
            }
        }
        Ok((map, seen))
    }
}

/// The field whose line is `head[start..end]` (RFC 9112 §5): nothing before the name or between it and the colon, and
/// no line that continues another, all of which a name can't hold.
fn field(head: &Bytes, start: usize, end: usize) -> Result<(HeaderName, HeaderValue), HeadError> {
    let line = &head[start..end];
    let colon = name::end(line).ok_or(HeadError::Malformed("field name"))?;
    let name = name::read(&line[..colon]).map_err(|_| HeadError::Malformed("field name"))?;
    let blank = |c: &u8| matches!(c, b' ' | b'\t');
    let value = &line[colon + 1..];
    let value = match value.iter().position(|c| !blank(c)) {
        None => Bytes::new(),
        Some(before) => {
            let after = value.iter().rev().position(|c| !blank(c)).unwrap_or(0);
            head.slice(start + colon + 1 + before..end - after)
        }
    };
    let value = HeaderValue::from_maybe_shared(value).map_err(|_| HeadError::Malformed("field value"))?;
    Ok((name, value))
}

/// RFC 9112 §3.2: origin-form, absolute-form, authority-form for CONNECT, asterisk-form for OPTIONS.
fn uri(method: &Method, target: Bytes) -> Result<Uri, HeadError> {
    let first = target.first().copied();
    let form_fits = match first {
        Some(b'/') => *method != Method::CONNECT,
        Some(b'*') => target.len() == 1 && *method == Method::OPTIONS,
        _ => true,
    };
    if !form_fits {
        return Err(HeadError::Malformed("request target"));
    }
    let uri = Uri::from_maybe_shared(target).map_err(|_| HeadError::Malformed("request target"))?;
    let absolute = uri.scheme().is_some();
    if first != Some(b'/') && first != Some(b'*') && !absolute && *method != Method::CONNECT {
        return Err(HeadError::Malformed("request target"));
    }
    Ok(uri)
}

/// What the fields that describe the message itself say, noted as they pass: none of them is looked up again.
#[derive(Debug, Default)]
struct FramingFields {
    length: Option<u64>,
    chunked: bool,
    connection: ConnectionOptions,
    upgrade: bool,
    expect: bool,
}

impl FramingFields {
    /// Whether anybody else has to see the field.
    fn note(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<bool, HeadError> {
        if *name == CONTENT_LENGTH {
            // RFC 9112 §6.3: repeated, it is refused even when it agrees, since some readers take the last.
            if self.length.replace(content_length(value.as_bytes())?).is_some() {
                return Err(HeadError::Malformed("more than one content-length"));
            }
        } else if *name == TRANSFER_ENCODING {
            // Exactly `chunked`; any other coding is refused.
            let repeated = std::mem::replace(&mut self.chunked, true);
            if repeated {
                return Err(BAD_CODING);
            }
            if !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
                return Err(other_coding(value.as_bytes()));
            }
            return Ok(false);
        } else if *name == CONNECTION {
            return Ok(self.connection.note(value.as_bytes()));
        } else {
            self.upgrade |= *name == UPGRADE;
            self.expect |= *name == EXPECT;
        }
        Ok(true)
    }
}

/// Why codings other than `chunked` alone are refused: 501 for those that are not known, 400 for what is no list of
/// codings or says `chunked` anywhere but at its end, where readers would see different bodies (RFC 9112 §6.1, §6.3).
fn other_coding(value: &[u8]) -> HeadError {
    let mut codings = value.split(|c| *c == b',').map(<[u8]>::trim_ascii).rev().enumerate();
    let known = codings.all(|(after, coding)| {
        let misplaced = after > 0 && coding.eq_ignore_ascii_case(b"chunked");
        HeaderName::from_bytes(coding).is_ok() && !misplaced && !coding.eq_ignore_ascii_case(b"identity")
    });
    if known { HeadError::Coding } else { BAD_CODING }
}

const BAD_CODING: HeadError = HeadError::Malformed("transfer-encoding");

/// Fields plugins and the gateway add on the way.
const ADDED_FIELDS: usize = 2;

fn describe_request(request: Request<()>, seen: &FramingFields) -> Result<RequestHead, HeadError> {
    let old = request.version() == Version::HTTP_10;
    let framing = match (seen.length, seen.chunked) {
        (Some(_), true) => return Err(HeadError::Malformed("content-length next to transfer-encoding")),
        (None, true) if old => return Err(HeadError::Malformed("transfer-encoding in HTTP/1.0")),
        (None, true) => Framing::Chunked,
        (Some(0) | None, false) => Framing::None,
        (Some(length), false) => Framing::Length(length),
    };
    let headers = request.headers();
    let expects_continue = seen.expect
        && !old
        && headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let upgrades = seen.upgrade && seen.connection.upgrade && !old;
    let upgrade = if upgrades { headers.get(UPGRADE).cloned() } else { None };
    let keep_alive = seen.connection.keeps_alive(old);
    Ok(RequestHead { request, framing, keep_alive, expects: seen.expect, expects_continue, upgrade })
}

fn describe_response(
    response: Response<()>,
    seen: &FramingFields,
    to: &Method,
) -> Result<ResponseHead, HeadError> {
    let old = response.version() == Version::HTTP_10;
    let status = response.status();
    let bodiless = status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
        || *to == Method::HEAD
        || (*to == Method::CONNECT && status.is_success());
    let framing = match (seen.length, seen.chunked) {
        _ if bodiless => Framing::None,
        (Some(_), true) => return Err(HeadError::Malformed("content-length next to transfer-encoding")),
        (None, true) if old => return Err(HeadError::Malformed("transfer-encoding in HTTP/1.0")),
        (None, true) => Framing::Chunked,
        (Some(0), false) => Framing::None,
        (Some(length), false) => Framing::Length(length),
        (None, false) => Framing::UntilClose,
    };
    let keep_alive = framing != Framing::UntilClose && seen.connection.keeps_alive(old);
    Ok(ResponseHead { response, framing, keep_alive })
}

/// RFC 9110 §8.6: digits only.
fn content_length(digits: &[u8]) -> Result<u64, HeadError> {
    let add = |length: u64, digit: &u8| match digit {
        b'0'..=b'9' => length.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    };
    match digits {
        [] => None,
        digits => digits.iter().try_fold(0, add),
    }
    .ok_or(HeadError::Malformed("content-length"))
}

/// What `Connection` asks for.
#[derive(Debug, Default)]
struct ConnectionOptions {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl ConnectionOptions {
    /// Whether it names any field, which then is hop-by-hop too.
    fn note(&mut self, value: &[u8]) -> bool {
        let mut names = false;
        for token in value.split(|c| *c == b',') {
            let token = token.trim_ascii();
            if token.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if token.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else {
                self.upgrade |= token.eq_ignore_ascii_case(b"upgrade");
                names = true;
            }
        }
        names
    }

    fn keeps_alive(&self, old: bool) -> bool {
        !self.close && (!old || self.keep_alive)
    }
}

#[cfg(test)]
mod tests;
