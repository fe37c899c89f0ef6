//! WebSocket over HTTP/1.1 (RFC 6455), framed by hand: one binary message out, the same message back.

use std::rc::Rc;

use aws_lc_rs::digest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::link::{Link, Linker};
use super::{Driver, Fault, Lane, NewConnection, Pattern, Stamp, VerifiedAnswer};
use crate::plan::Plan;

pub mod frame;

use frame::{Header, Opcode};

/// Opens WebSockets.
pub struct WebSocket {
    linker: Linker,
    pattern: Rc<Pattern>,
    path: String,
    authority: String,
    headers: String,
}

/// One open WebSocket.
pub struct Socket {
    link: Link,
    pattern: Rc<Pattern>,
    random: fastrand::Rng,
    payload: Vec<u8>,
    sent: Vec<u8>,
    buffer: Vec<u8>,
    filled: usize,
}

const LARGEST_HEAD: usize = 16 * 1024;

impl WebSocket {
    /// Prepares what all connections of a thread share.
    ///
    /// # Errors
    /// What makes every connection impossible, such as an unreadable root certificate.
    pub fn new(plan: &Rc<Plan>) -> Result<Self, Fault> {
        let lines = plan.message.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n"));
        Ok(Self {
            linker: Linker::new(plan)?,
            pattern: Rc::new(Pattern::new(plan.message.payload.max(1))),
            path: plan.target.path.clone(),
            authority: plan.target.authority(),
            headers: lines.collect(),
        })
    }
}

impl Driver for WebSocket {
    type Lane = Socket;

    async fn connect(&self) -> Result<NewConnection<Socket>, Fault> {
        let (link, negotiated) = self.linker.open().await?;
        let size = self.pattern.size();
        let mut socket = Socket {
            link,
            pattern: Rc::clone(&self.pattern),
            random: fastrand::Rng::new(),
            payload: vec![0; size],
            sent: Vec::with_capacity(size + frame::LARGEST_HEADER),
            buffer: vec![0; (size + frame::LARGEST_HEADER + 128).max(2048)],
            filled: 0,
        };
        socket.upgrade(self).await?;
        Ok(NewConnection { lanes: vec![socket], negotiated })
    }
}

impl Lane for Socket {
    async fn round_trip(&mut self, stamp: Stamp) -> Result<VerifiedAnswer, Fault> {
        self.pattern.write(stamp, &mut self.payload);
        self.send(Opcode::Binary).await?;
        let mut message = 0..0;
        loop {
            let (header, body) = self.receive(message.end).await?;
            match header.opcode {
                Opcode::Binary | Opcode::Continuation => {
                    // Fragments are joined in place.
                    self.buffer.copy_within(body.clone(), message.end);
                    message.end += body.len();
                    self.discard(message.end..body.end);
                    if header.last {
                        break;
                    }
                }
                Opcode::Ping => {
                    let held = self.buffer[body.clone()].to_vec();
                    let payload = std::mem::replace(&mut self.payload, held);
                    self.send(Opcode::Pong).await?;
                    self.payload = payload;
                    self.discard(message.end..body.end);
                }
                Opcode::Pong => self.discard(message.end..body.end),
                Opcode::Close => return Err(Fault::Closed),
                Opcode::Text => return Err(Fault::protocol("a text message for a binary one")),
            }
        }
        if self.filled > message.end {
            return Err(Fault::protocol("bytes after the answer"));
        }
        self.filled = 0;
        self.pattern.check(stamp, &self.buffer[message.clone()])?;
        Ok(VerifiedAnswer::message(message.len()))
    }
}

impl Socket {
    async fn upgrade(&mut self, driver: &WebSocket) -> Result<(), Fault> {
        let nonce: [u8; 16] = std::array::from_fn(|_| self.random.u8(..));
        let key = base64(&nonce);
        let request = format!(
            "GET {} HTTP/1.1\r\nhost: {}\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: {key}\r\n{}\r\n",
            driver.path, driver.authority, driver.headers
        );
        self.link.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            // Byte by byte, because what follows the head is the first frame's; once a connection, so it may be slow.
            head.push(self.link.read_u8().await.map_err(|_| Fault::Closed)?);
            if head.len() > LARGEST_HEAD {
                return Err(Fault::handshake("the upgrade's answer has no end"));
            }
        }
        check_upgrade(&head, &key)
    }

    async fn send(&mut self, opcode: Opcode) -> Result<(), Fault> {
        self.sent.clear();
        frame::write_masked(&mut self.sent, opcode, &self.payload, self.random.u32(..).to_ne_bytes());
        self.link.write_all(&self.sent).await?;
        Ok(())
    }

    /// Reads until the frame that starts at `start` is whole; returns where its payload lies.
    async fn receive(&mut self, start: usize) -> Result<(Header, std::ops::Range<usize>), Fault> {
        let header = loop {
            match frame::read_header(&self.buffer[start..self.filled])? {
                Some(header) => break header,
                None => self.fill().await?,
            }
        };
        if header.mask.is_some() {
            return Err(Fault::protocol("a server must not mask (RFC 6455 §5.1)"));
        }
        if header.payload > self.pattern.size().max(125) {
            return Err(Fault::Length { got: header.payload, expected: self.pattern.size() });
        }
        let body = start + header.length..start + header.length + header.payload;
        while self.filled < body.end {
            self.fill().await?;
        }
        Ok((header, body))
    }

    async fn fill(&mut self) -> Result<(), Fault> {
        if self.filled == self.buffer.len() {
            let doubled = self.buffer.len() * 2;
            self.buffer.resize(doubled, 0);
        }
        match self.link.read(&mut self.buffer[self.filled..]).await? {
            0 => Err(Fault::Closed),
            count => {
                self.filled += count;
                Ok(())
            }
        }
    }

    fn discard(&mut self, range: std::ops::Range<usize>) {
        self.buffer.copy_within(range.end..self.filled, range.start);
        self.filled -= range.len();
    }
}

fn check_upgrade(head: &[u8], key: &str) -> Result<(), Fault> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    response.parse(head).map_err(Fault::handshake)?;
    if response.code != Some(101) {
        return Err(Fault::Status { got: response.code.unwrap_or(0), expected: 101 });
    }
    let accept = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("sec-websocket-accept"))
        .map(|header| header.value);
    if accept != Some(accept_key(key).as_bytes()) {
        return Err(Fault::handshake("wrong sec-websocket-accept"));
    }
    Ok(())
}

/// The proof that a server has read the key (RFC 6455 §4.2.2).
#[must_use]
pub fn accept_key(key: &str) -> String {
    const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes());
    base64(digest.as_ref())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0_u32, |sum, byte| sum << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let value = group >> (18 - 6 * digit) & 63;
            out.push(if digit <= chunk.len() { char::from(DIGITS[value as usize]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_key_is_the_one_of_the_rfc() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn base64_pads() {
        for (text, expected) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(text.as_bytes()), expected);
        }
    }
}
