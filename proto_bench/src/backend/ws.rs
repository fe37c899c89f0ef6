//! A WebSocket echo server: each message comes back with its opcode, pings are answered.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::driver::ws::accept_key;
use crate::driver::ws::frame::{self, Opcode};

const LARGEST_FRAME: usize = 16 * 1024 * 1024;

/// The answer that opens the socket.
pub(super) fn upgrade_answer(key: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-accept: {}\r\n\r\n",
        accept_key(key)
    )
    .into_bytes()
}

/// Serves one open socket; `early` are bytes that came behind the upgrade request.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    early: Vec<u8>,
) -> io::Result<()> {
    let mut buffer = early;
    let mut filled = buffer.len();
    buffer.resize(filled.max(4096), 0);
    let mut out = Vec::new();
    loop {
        let mut at = 0;
        while let Some((used, closing)) = echo_one(&mut buffer[at..filled], &mut out)? {
            at += used;
            if closing {
                return stream.write_all(&out).await;
            }
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
        if !out.is_empty() {
            stream.write_all(&out).await?;
            out.clear();
        }
        if filled == buffer.len() {
            if filled > LARGEST_FRAME {
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

/// Echoes the first frame, if it is whole; returns its length and whether it closes.
fn echo_one(bytes: &mut [u8], out: &mut Vec<u8>) -> io::Result<Option<(usize, bool)>> {
    let header = frame::read_header(bytes).map_err(|fault| io::Error::other(fault.to_string()))?;
    let Some(header) = header else { return Ok(None) };
    let end = header.length + header.payload;
    let Some(payload) = bytes.get_mut(header.length..end) else { return Ok(None) };
    let Some(mask) = header.mask else { return Err(io::ErrorKind::InvalidData.into()) };
    frame::apply_mask(payload, mask);
    match header.opcode {
        Opcode::Ping => frame::write_plain(out, Opcode::Pong, payload),
        Opcode::Pong => {}
        opcode => {
            let start = out.len();
            frame::write_plain(out, opcode, payload);
            if !header.last {
                // A fragment comes back as a fragment.
                out[start] &= 127;
            }
        }
    }
    Ok(Some((end, header.opcode == Opcode::Close)))
}
