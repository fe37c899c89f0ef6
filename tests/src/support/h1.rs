//! HTTP/1.1 by hand, the same for a client and an origin: deliberately simple, and strict about what it reads.

use std::io;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::wire::Wire;

/// A start line and fields.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    /// `GET /path HTTP/1.1` or `HTTP/1.1 200 OK`.
    pub(crate) line: String,
    pub(crate) headers: HeaderMap,
}

/// How the rest of a message is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    /// So much of the chunk is left; `None` before its size line.
    Chunked(Option<usize>),
    UntilClose,
}

/// A connection that reads messages.
pub(crate) struct Talker {
    pub(crate) wire: Wire,
    framing: Framing,
    pub(crate) trailers: HeaderMap,
    /// Whether what we send is chunked.
    pub(crate) chunks: bool,
}

impl Head {
    /// The second word: a target, or a status.
    pub(crate) fn word(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or("")
    }

    pub(crate) fn status(&self) -> u16 {
        self.word().parse().unwrap_or(0)
    }

    /// A field's value; empty when there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("")
    }
}

pub(crate) fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

fn fields(text: &str) -> io::Result<HeaderMap> {
    let mut map = HeaderMap::new();
    for line in text.split_terminator("\r\n").filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').ok_or_else(|| malformed(line))?;
        let name = HeaderName::try_from(name).map_err(|_| malformed(line))?;
        map.append(name, HeaderValue::try_from(value.trim()).map_err(|_| malformed(line))?);
    }
    Ok(map)
}

impl Talker {
    pub(crate) fn new(wire: Wire) -> Self {
        Self { wire, framing: Framing::Length(0), trailers: HeaderMap::new(), chunks: false }
    }

    async fn head(&mut self) -> io::Result<Head> {
        let text = self.wire.until(b"\r\n\r\n").await?;
        let text = std::str::from_utf8(&text).map_err(|_| malformed("not UTF-8"))?;
        let (line, rest) = text.split_once("\r\n").ok_or_else(|| malformed(text))?;
        self.trailers.clear();
        Ok(Head { line: line.to_owned(), headers: fields(rest)? })
    }

    fn framing_of(headers: &HeaderMap) -> io::Result<Option<Framing>> {
        let length = headers.get_all("content-length").iter().collect::<Vec<_>>();
        let coding = headers.get_all("transfer-encoding").iter().collect::<Vec<_>>();
        match (&length[..], &coding[..]) {
            ([], []) => Ok(None),
            ([length], []) => {
                let length = length.to_str().ok().and_then(|text| text.parse().ok());
                Ok(Some(Framing::Length(length.ok_or_else(|| malformed("content-length"))?)))
            }
            ([], [coding]) if *coding == "chunked" => Ok(Some(Framing::Chunked(None))),
            _ => Err(malformed("two framings")),
        }
    }

    /// The next request's head.
    pub(crate) async fn request(&mut self) -> io::Result<Head> {
        let head = self.head().await?;
        self.framing = Self::framing_of(&head.headers)?.unwrap_or(Framing::Length(0));
        Ok(head)
    }

    /// The next response's head, also an informational one.
    pub(crate) async fn response(&mut self, to: &Method) -> io::Result<Head> {
        let head = self.head().await?;
        let bodiless = *to == Method::HEAD || matches!(head.status(), 100..=199 | 204 | 304);
        self.framing = match Self::framing_of(&head.headers)? {
            _ if bodiless => Framing::Length(0),
            Some(framing) => framing,
            None => Framing::UntilClose,
        };
        Ok(head)
    }

    /// The next piece of the body; `None` at its end.
    pub(crate) async fn data(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            match self.framing {
                Framing::Length(0) => return Ok(None),
                Framing::Length(left) => {
                    let data = self.wire.some(left).await?;
                    self.framing = Framing::Length(left - data.len());
                    return Ok(Some(data));
                }
                Framing::UntilClose => match self.wire.some(usize::MAX).await {
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                        self.framing = Framing::Length(0)
                    }
                    other => return other.map(Some),
                },
                Framing::Chunked(Some(0)) => {
                    self.wire.expect("\r\n").await;
                    self.framing = Framing::Chunked(None);
                }
                Framing::Chunked(Some(left)) => {
                    let data = self.wire.some(left).await?;
                    self.framing = Framing::Chunked(Some(left - data.len()));
                    return Ok(Some(data));
                }
                Framing::Chunked(None) => self.chunk().await?,
            }
        }
    }

    async fn chunk(&mut self) -> io::Result<()> {
        let line = self.wire.until(b"\r\n").await?;
        let digits = std::str::from_utf8(line.trim_ascii()).map_err(|_| malformed("size"))?;
        let size = usize::from_str_radix(digits, 16).map_err(|_| malformed(digits))?;
        self.framing = Framing::Chunked(Some(size));
        if size == 0 {
            self.framing = Framing::Length(0);
            loop {
                let line = self.wire.until(b"\r\n").await?;
                let line = std::str::from_utf8(&line).map_err(|_| malformed("trailer"))?;
                if line == "\r\n" {
                    break;
                }
                self.trailers.extend(fields(line)?);
            }
        }
        Ok(())
    }

    /// The rest of the body.
    pub(crate) async fn body(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        while let Some(data) = self.data().await? {
            body.extend_from_slice(&data);
        }
        Ok(body)
    }

    /// Sends a head; `length` frames what follows, `None` means chunks.
    pub(crate) async fn send_head(
        &mut self,
        line: &str,
        headers: &[(&str, &str)],
        length: Option<usize>,
    ) -> io::Result<()> {
        let mut text = format!("{line}\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        self.chunks = length.is_none();
        match length {
            None => text.push_str("transfer-encoding: chunked\r\n\r\n"),
            // A length of our own, or none at all, may stand among the fields.
            Some(0) => text.push_str("\r\n"),
            Some(length) => text.push_str(&format!("content-length: {length}\r\n\r\n")),
        }
        self.wire.try_send(text).await
    }

    pub(crate) async fn send_data(&mut self, data: &[u8]) -> io::Result<()> {
        if !self.chunks {
            return self.wire.try_send(data).await;
        }
        let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
        chunk.extend_from_slice(data);
        chunk.extend_from_slice(b"\r\n");
        self.wire.try_send(chunk).await
    }

    pub(crate) async fn finish(&mut self, trailers: &[(&str, &str)]) -> io::Result<()> {
        if !self.chunks {
            return Ok(());
        }
        let mut text = String::from("0\r\n");
        for (name, value) in trailers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        self.wire.try_send(text + "\r\n").await
    }
}
