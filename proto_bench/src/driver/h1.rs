//! HTTP/1.1 by hand on a raw link: a prepared request whose stamp and body are patched in place, and a parser that
//! looks only at what decides the framing.

use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::link::{Link, Linker};
use super::{Answer, Driver, Fault, Lane, Opened, Pattern, Stamp};
use crate::plan::{Expect, ExpectBody, Method, Plan};

mod response;
mod template;

use response::{Framing, Head};
use template::Template;

/// Opens HTTP/1.1 connections.
pub struct H1 {
    linker: Linker,
    shape: Rc<Shape>,
}

/// What all requests of a plan have in common.
struct Shape {
    template: Template,
    pattern: Pattern,
    expect: Expect,
}

/// One keep-alive connection.
pub struct Connection {
    link: Link,
    shape: Rc<Shape>,
    request: Vec<u8>,
    /// Received bytes; what is before `parsed` belongs to earlier answers.
    buffer: Vec<u8>,
    filled: usize,
}

/// Bytes of an answer's head at most.
const MAX_HEAD: usize = 64 * 1024;
/// Bytes of an answer's body at most.
const MAX_BODY: usize = 64 * 1024 * 1024;
const FIRST_BUFFER: usize = 4096;

impl Driver for H1 {
    type Lane = Connection;

    fn new(plan: &Rc<Plan>) -> Result<Self, Fault> {
        let payload = if plan.message.method == Method::Get { 0 } else { plan.message.payload };
        let shape = Shape {
            template: Template::new(plan, payload),
            pattern: Pattern::new(payload),
            expect: plan.expect,
        };
        Ok(Self { linker: Linker::new(plan)?, shape: Rc::new(shape) })
    }

    async fn connect(&self) -> Result<Opened<Connection>, Fault> {
        let (link, negotiated) = self.linker.open().await?;
        let connection = Connection {
            link,
            request: self.shape.template.bytes().to_vec(),
            shape: Rc::clone(&self.shape),
            buffer: vec![0; FIRST_BUFFER],
            filled: 0,
        };
        Ok(Opened { lanes: vec![connection], negotiated })
    }
}

impl Lane for Connection {
    async fn round_trip(&mut self, stamp: Stamp) -> Result<Answer, Fault> {
        self.shape.template.patch(&mut self.request, stamp, &self.shape.pattern);
        self.link.write_all(&self.request).await?;
        let head = self.read_head().await?;
        let body = self.read_body(&head).await?;
        let answer = self.verify(&head, stamp, body);
        // Bytes beyond the answer would belong to an answer nobody asked for.
        if self.filled > body.end {
            return Err(Fault::protocol(format!("{} bytes after the answer", self.filled - body.end)));
        }
        self.filled = 0;
        answer
    }
}

/// Where in the buffer a whole body lies.
#[derive(Debug, Clone, Copy)]
struct BodySpan {
    start: usize,
    length: usize,
    /// First byte after the answer; differs from `start + length` where chunks were joined.
    end: usize,
}

impl Connection {
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
                None if self.filled > MAX_HEAD => return Err(Fault::protocol("the answer's head has no end")),
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

    fn verify(&self, head: &Head, stamp: Stamp, body: BodySpan) -> Result<Answer, Fault> {
        let expect = self.shape.expect;
        if head.status != expect.status {
            return Err(Fault::Status { got: head.status, expected: expect.status });
        }
        let got = &self.buffer[body.start..body.start + body.length];
        let mut stamped = head.stamp.is_some();
        if let Some(echoed) = head.stamp
            && echoed != stamp
        {
            return Err(Fault::Swapped { got: echoed, expected: stamp });
        }
        match expect.body {
            ExpectBody::Echo => {
                self.shape.pattern.check(stamp, got)?;
                stamped = true;
            }
            ExpectBody::Size(expected) if got.len() != expected => {
                return Err(Fault::Length { got: got.len(), expected });
            }
            ExpectBody::Size(_) | ExpectBody::Unverified => {}
        }
        Ok(Answer { status: head.status, body: got.len(), stamped, last: head.last })
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
