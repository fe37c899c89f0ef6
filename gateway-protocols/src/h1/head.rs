//! Reading a message's head.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};

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
    /// A version other than 1.0 and 1.1.
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

/// Fields parsed without touching the heap; more than any limit allows is refused before.
const MAX_FIELDS: usize = 256;

/// Takes a request's head off the front of `buffer`; `None` when it is not all there yet.
///
/// # Errors
/// Whatever makes the request unanswerable; the connection cannot be used any further.
pub fn request(buffer: &mut BytesMut, limits: &HeadLimits) -> Result<Option<RequestHead>, HeadError> {
    skip_empty_lines(buffer)?;
    if !has_end(buffer, limits)? {
        return Ok(None);
    }
    let mut fields = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut []);
    let room = limits.fields.min(MAX_FIELDS);
    let status = parsed.parse_with_uninit_headers(buffer, &mut fields[..room]).map_err(malformed)?;
    let httparse::Status::Complete(length) = status else { return too_late(buffer, limits) };
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(HeadError::Malformed("request line"));
    };
    if target.len() > limits.target {
        return Err(HeadError::TargetTooLong);
    }
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| HeadError::Malformed("method"))?;
    let target = span(buffer, target.as_bytes());
    let spans = Spans::of(buffer, parsed.headers);
    let head = buffer.split_to(length).freeze();
    let uri = uri(&method, head.slice(target.0..target.1))?;
    let mut request = Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.version_mut() = version(minor);
    let (fields, seen) = spans.into_map(&head)?;
    *request.headers_mut() = fields;
    describe_request(request, seen)
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
    if !has_end(buffer, limits)? {
        return Ok(None);
    }
    let mut fields = [const { MaybeUninit::<httparse::Header<'_>>::uninit() }; MAX_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let room = limits.fields.min(MAX_FIELDS);
    let status = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut parsed, buffer, &mut fields[..room])
        .map_err(malformed)?;
    let httparse::Status::Complete(length) = status else {
        return too_late(buffer, limits).map(|_: Option<RequestHead>| None);
    };
    let (Some(code), Some(minor)) = (parsed.code, parsed.version) else {
        return Err(HeadError::Malformed("status line"));
    };
    let status = StatusCode::from_u16(code).map_err(|_| HeadError::Malformed("status"))?;
    let spans = Spans::of(buffer, parsed.headers);
    let head = buffer.split_to(length).freeze();
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = version(minor);
    let (fields, seen) = spans.into_map(&head)?;
    *response.headers_mut() = fields;
    describe_response(response, seen, to).map(Some)
}

/// RFC 9112 §2.2: empty lines before a request line are skipped, a few of them.
fn skip_empty_lines(buffer: &mut BytesMut) -> Result<(), HeadError> {
    let mut skipped = 0;
    while buffer.starts_with(b"\r\n") {
        let _line = buffer.split_to(2);
        skipped += 1;
        if skipped > 4 {
            return Err(HeadError::Malformed("empty lines"));
        }
    }
    Ok(())
}

/// Whether the head's end has arrived, and every line in it ends in CR LF.
fn has_end(buffer: &[u8], limits: &HeadLimits) -> Result<bool, HeadError> {
    let mut line = 0;
    for at in memchr::memchr_iter(b'\n', &buffer[..buffer.len().min(limits.bytes)]) {
        if at == 0 || buffer[at - 1] != b'\r' {
            return Err(HeadError::Malformed("line feed without carriage return"));
        }
        if at == line + 1 && line > 0 {
            return Ok(true);
        }
        line = at + 1;
    }
    if buffer.len() >= limits.bytes { Err(HeadError::TooLarge) } else { Ok(false) }
}

fn too_late<T>(buffer: &[u8], limits: &HeadLimits) -> Result<Option<T>, HeadError> {
    if buffer.len() >= limits.bytes { Err(HeadError::TooLarge) } else { Ok(None) }
}

fn malformed(error: httparse::Error) -> HeadError {
    match error {
        httparse::Error::TooManyHeaders => HeadError::TooMany,
        httparse::Error::Version => HeadError::Version,
        httparse::Error::HeaderName => HeadError::Malformed("field name"),
        httparse::Error::HeaderValue => HeadError::Malformed("field value"),
        httparse::Error::Status => HeadError::Malformed("status"),
        httparse::Error::Token => HeadError::Malformed("token"),
        httparse::Error::NewLine => HeadError::Malformed("line end"),
    }
}

fn version(minor: u8) -> Version {
    if minor == 0 { Version::HTTP_10 } else { Version::HTTP_11 }
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

/// Where a part of the head lies in it.
type Span = (usize, usize);

fn span(buffer: &[u8], part: &[u8]) -> Span {
    let start = part.as_ptr().addr() - buffer.as_ptr().addr();
    (start, start + part.len())
}

/// The places of all fields, kept while the head changes from a borrowed buffer into shared bytes.
struct Spans(smallvec::SmallVec<[(Span, Span); 16]>);

impl Spans {
    fn of(buffer: &[u8], headers: &[httparse::Header<'_>]) -> Self {
        Self(
            headers
                .iter()
                .map(|header| (span(buffer, header.name.as_bytes()), span(buffer, header.value)))
                .collect(),
        )
    }

    /// The fields as a map whose values share the head's bytes.
    fn into_map(self, head: &Bytes) -> Result<(HeaderMap, Seen), HeadError> {
        // Room for what the gateway adds, so that the map doesn't grow on the way.
        let mut map = HeaderMap::with_capacity(self.0.len() + ADDED_FIELDS);
        let mut seen = Seen::default();
        for (name, value) in self.0 {
            let name = HeaderName::from_bytes(&head[name.0..name.1])
                .map_err(|_| HeadError::Malformed("field name"))?;
            let value = HeaderValue::from_maybe_shared(head.slice(value.0..value.1))
                .map_err(|_| HeadError::Malformed("field value"))?;
            seen.note(&name);
            map.append(name, value);
        }
        Ok((map, seen))
    }
}

/// Which of the fields that describe the message itself are there: most messages have one of them or none, and the
/// others need not be looked for.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    length: bool,
    coding: bool,
    connection: bool,
    upgrade: bool,
    expect: bool,
}

impl Seen {
    fn note(&mut self, name: &HeaderName) {
        self.length |= *name == CONTENT_LENGTH;
        self.coding |= *name == TRANSFER_ENCODING;
        self.connection |= *name == CONNECTION;
        self.upgrade |= *name == UPGRADE;
        self.expect |= *name == EXPECT;
    }

    /// The length it has, and whether it comes in chunks.
    fn framing(self, headers: &HeaderMap) -> Result<(Option<u64>, bool), HeadError> {
        let length = if self.length { content_length(headers)? } else { None };
        Ok((length, self.coding && transfer_coding(headers)?))
    }

    fn connection(self, headers: &HeaderMap) -> Connection {
        if self.connection { Connection::of(headers) } else { Connection::default() }
    }
}

/// Fields the gateway adds on the way to a target.
const ADDED_FIELDS: usize = 6;

fn describe_request(request: Request<()>, seen: Seen) -> Result<Option<RequestHead>, HeadError> {
    let headers = request.headers();
    let old = request.version() == Version::HTTP_10;
    let framing = match seen.framing(headers)? {
        (Some(_), true) => return Err(HeadError::Malformed("content-length next to transfer-encoding")),
        (None, true) if old => return Err(HeadError::Malformed("transfer-encoding in HTTP/1.0")),
        (None, true) => Framing::Chunked,
        (Some(0) | None, false) => Framing::None,
        (Some(length), false) => Framing::Length(length),
    };
    let connection = seen.connection(headers);
    let upgrades = seen.upgrade && connection.upgrade && !old;
    let upgrade = upgrades.then(|| headers.get(UPGRADE).cloned()).flatten();
    let expects_continue = seen.expect
        && !old
        && headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let keep_alive = connection.keeps_alive(old);
    Ok(Some(RequestHead { request, framing, keep_alive, expects_continue, upgrade }))
}

fn describe_response(response: Response<()>, seen: Seen, to: &Method) -> Result<ResponseHead, HeadError> {
    let headers = response.headers();
    let old = response.version() == Version::HTTP_10;
    let status = response.status();
    let (length, chunked) = seen.framing(headers)?;
    let bodiless = status.is_informational()
        || status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
        || *to == Method::HEAD
        || (*to == Method::CONNECT && status.is_success());
    let framing = match (length, chunked) {
        _ if bodiless => Framing::None,
        (Some(_), true) => return Err(HeadError::Malformed("content-length next to transfer-encoding")),
        (None, true) if old => return Err(HeadError::Malformed("transfer-encoding in HTTP/1.0")),
        (None, true) => Framing::Chunked,
        (Some(0), false) => Framing::None,
        (Some(length), false) => Framing::Length(length),
        (None, false) => Framing::UntilClose,
    };
    let keep_alive = framing != Framing::UntilClose && seen.connection(headers).keeps_alive(old);
    Ok(ResponseHead { response, framing, keep_alive })
}

/// RFC 9112 §6.3: digits only; a repeated length is refused even when it agrees, since some readers take the last.
fn content_length(headers: &HeaderMap) -> Result<Option<u64>, HeadError> {
    let mut values = headers.get_all(CONTENT_LENGTH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(HeadError::Malformed("more than one content-length"));
    }
    let digits = value.as_bytes();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(HeadError::Malformed("content-length"));
    }
    std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse().ok())
        .map(Some)
        .ok_or(HeadError::Malformed("content-length"))
}

/// True for exactly `chunked`; any other coding is refused.
fn transfer_coding(headers: &HeaderMap) -> Result<bool, HeadError> {
    let mut values = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(value) = values.next() else { return Ok(false) };
    if values.next().is_some() || !value.as_bytes().eq_ignore_ascii_case(b"chunked") {
        return Err(HeadError::Coding);
    }
    Ok(true)
}

/// What `Connection` asks for.
#[derive(Default)]
struct Connection {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

impl Connection {
    fn of(headers: &HeaderMap) -> Self {
        let mut it = Self::default();
        for value in headers.get_all(CONNECTION) {
            for token in value.as_bytes().split(|c| *c == b',') {
                let token = token.trim_ascii();
                it.close |= token.eq_ignore_ascii_case(b"close");
                it.keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                it.upgrade |= token.eq_ignore_ascii_case(b"upgrade");
            }
        }
        it
    }

    fn keeps_alive(&self, old: bool) -> bool {
        !self.close && (!old || self.keep_alive)
    }
}

#[cfg(test)]
mod tests;
