//! An HTTP/1.1 echo server that answers whole requests out of one buffer, pipelined ones in one write.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::answer::{self, RequestParts};
use super::ws;

mod request;

use request::{Framing, Request};

const FIRST_BUFFER: usize = 4096;
const LARGEST_REQUEST: usize = 65 * 1024 * 1024;

/// Serves one connection to its end.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    let mut buffer = vec![0; FIRST_BUFFER];
    let (mut start, mut filled) = (0, 0);
    let mut out = Vec::with_capacity(FIRST_BUFFER);
    loop {
        match answer_one(&buffer[start..filled], &mut out)? {
            Step::Answered { used, close } => {
                start += used;
                if close {
                    stream.write_all(&out).await?;
                    return stream.shutdown().await;
                }
                if start < filled {
                    continue;
                }
                (start, filled) = (0, 0);
            }
            Step::Upgrade { used, key } => {
                stream.write_all(&out).await?;
                stream.write_all(&ws::upgrade_answer(&key)).await?;
                return ws::serve(stream, buffer[start + used..filled].to_vec()).await;
            }
            Step::Continue => out.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"),
            Step::Incomplete => {}
        }
        if !out.is_empty() {
            stream.write_all(&out).await?;
            out.clear();
        }
        if start > 0 {
            buffer.copy_within(start..filled, 0);
            (start, filled) = (0, filled - start);
        }
        if filled == buffer.len() {
            if filled > LARGEST_REQUEST {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            buffer.resize(filled * 2, 0);
        }
        match stream.read(&mut buffer[filled..]).await? {
            0 => return Ok(()),
            count => filled += count,
        }
    }
}

enum Step {
    Answered {
        used: usize,
        close: bool,
    },
    Upgrade {
        used: usize,
        key: String,
    },
    /// The client waits for leave to send its body, none of which is here yet.
    Continue,
    Incomplete,
}

fn answer_one(bytes: &[u8], out: &mut Vec<u8>) -> io::Result<Step> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let Some(request) = request::parse(bytes, &mut headers)? else { return Ok(Step::Incomplete) };
    if let Some(key) = request.websocket_key {
        return Ok(Step::Upgrade { used: request.length, key: key.to_owned() });
    }
    let rest = &bytes[request.length..];
    let mut joined = Vec::new();
    let (body, used) = match request.framing {
        Framing::Length(length) => match rest.get(..length) {
            Some(body) => (body, length),
            None => return Ok(waiting(&request, rest)),
        },
        Framing::Chunked => match request::join_chunks(rest, &mut joined)? {
            Some(used) => (&joined[..], used),
            None => return Ok(waiting(&request, rest)),
        },
    };
    write_answer(&request, body, out);
    Ok(Step::Answered { used: request.length + used, close: request.close })
}

fn waiting(request: &Request<'_>, rest: &[u8]) -> Step {
    if request.expects_continue && rest.is_empty() { Step::Continue } else { Step::Incomplete }
}

fn write_answer(request: &Request<'_>, body: &[u8], out: &mut Vec<u8>) {
    let asked = RequestParts { post: request.post, path: request.path, consumer: request.consumer };
    let own = answer::body(asked);
    let body = own.as_deref().unwrap_or(body);
    let said = answer::said(request.path);
    out.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: ");
    out.extend_from_slice(said.content_type.as_bytes());
    if let Some(seconds) = said.max_age {
        out.extend_from_slice(b"\r\ncache-control: public, max-age=");
        write_decimal(seconds as usize, out);
    }
    out.extend_from_slice(b"\r\ncontent-length: ");
    write_decimal(body.len(), out);
    if let Some(stamp) = request.stamp.filter(|_| said.max_age.is_none()) {
        out.extend_from_slice(b"\r\nx-bench-stamp: ");
        out.extend_from_slice(stamp);
    }
    if request.close {
        out.extend_from_slice(b"\r\nconnection: close");
    }
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(body);
}

fn write_decimal(mut value: usize, out: &mut Vec<u8>) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
