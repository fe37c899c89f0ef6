//! One HTTP/1.1 connection: a request's bytes out, one whole answer in.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::response::{self, Framing, Head};
use crate::driver::Fault;
use crate::driver::link::Link;

/// A keep-alive connection and what was received on it.
pub(crate) struct Wire {
    link: Link,
    buffer: Vec<u8>,
    filled: usize,
}

/// Bytes of an answer's head at most.
const MAX_HEAD: usize = 64 * 1024;
/// Bytes of an answer's body at most.
const MAX_BODY: usize = 64 * 1024 * 1024;
const FIRST_BUFFER: usize = 4096;

/// Where in the buffer a whole body lies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BodySpan {
    start: usize,
    length: usize,
    /// First byte after the answer; differs from `start + length` where chunks were joined.
    end: usize,
}

impl Wire {
    /// Takes over a fresh link.
    #[must_use]
    pub(crate) fn new(link: Link) -> Self {
        Self { link, buffer: vec![0; FIRST_BUFFER], filled: 0 }
    }

    /// Sends a request and reads its whole answer.
    ///
    /// # Errors
    /// The connection broke, or the answer's framing is.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<(Head, BodySpan), Fault> {
        self.link.write_all(request).await?;
        let head = self.read_head().await?;
        let body = self.read_body(&head).await?;
        // Bytes beyond the answer would belong to an answer nobody asked for.
        if self.filled > body.end {
            return Err(Fault::protocol(format!("{} bytes after the answer", self.filled - body.end)));
        }
        self.filled = 0;
        Ok((head, body))
    }

    /// The body of the last answer.
    pub(crate) fn body(&self, span: BodySpan) -> &[u8] {
        &self.buffer[span.start..span.start + span.length]
    }

    async fn read_head(&mut self) -> Result<Head, Fault> {
        self.fill().await?;
        loop {
            match response::parse(&self.buffer[..self.filled])? {
                Some(head) if head.status >= 200 => return Ok(head),
                // 1xx answers precede the real one (RFC 9110 §15.2).
                Some(interim) => {
                    self.buffer.copy_within(interim.length..self.filled, 0);
                    self.filled -= interim.length;
                }
                None if self.filled > MAX_HEAD => {
                    return Err(Fault::protocol("the answer's head has no end"));
                }
                None => self.fill().await?,
            }
        }
    }

    async fn read_body(&mut self, head: &Head) -> Result<BodySpan, Fault> {
        let start = head.length;
        match head.framing {
            Framing::Length(length) if length > MAX_BODY => Err(Fault::protocol("body above 64 MiB")),
            Framing::Length(length) => {
                self.fill_to(start + length).await?;
                Ok(BodySpan { start, length, end: start + length })
            }
            Framing::Chunked => self.read_chunks(start).await,
            Framing::UntilClose => {
                while self.read_some().await? > 0 {
                    if self.filled - start > MAX_BODY {
                        return Err(Fault::protocol("body above 64 MiB"));
                    }
                }
                Ok(BodySpan { start, length: self.filled - start, end: self.filled })
            }
        }
    }

    /// Joins the chunks in place, so that the body lies in one piece (RFC 9112 §7.1).
    async fn read_chunks(&mut self, start: usize) -> Result<BodySpan, Fault> {
        let (mut at, mut joined) = (start, start);
        loop {
            let (size, line) = loop {
                if let Some(found) = response::chunk_size(&self.buffer[at..self.filled])? {
                    break found;
                }
                self.fill().await?;
            };
            at += line;
            if size > MAX_BODY || joined - start > MAX_BODY {
                return Err(Fault::protocol("body above 64 MiB"));
            }
            if size == 0 {
                let trailers = loop {
                    if let Some(length) = response::trailers(&self.buffer[at..self.filled])? {
                        break length;
                    }
                    self.fill().await?;
                };
                return Ok(BodySpan { start, length: joined - start, end: at + trailers });
            }
            self.fill_to(at + size + 2).await?;
            if self.buffer[at + size..at + size + 2] != *b"\r\n" {
                return Err(Fault::protocol("a chunk does not end where it says"));
            }
            self.buffer.copy_within(at..at + size, joined);
            joined += size;
            at += size + 2;
        }
    }

    async fn fill_to(&mut self, length: usize) -> Result<(), Fault> {
        if self.buffer.len() < length {
            self.buffer.resize(length, 0);
        }
        while self.filled < length {
            self.fill().await?;
        }
        Ok(())
    }

    async fn fill(&mut self) -> Result<(), Fault> {
        if self.read_some().await? == 0 {
            return Err(Fault::Closed);
        }
        Ok(())
    }

    async fn read_some(&mut self) -> Result<usize, Fault> {
        if self.filled == self.buffer.len() {
            let doubled = self.buffer.len() * 2;
            self.buffer.resize(doubled, 0);
        }
        let count = self.link.read(&mut self.buffer[self.filled..]).await?;
        self.filled += count;
        Ok(count)
    }
}
