//! The first messages of database protocols. They show whether a server is ready, without a login.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::ProbeError;
use super::dialogue::{MAX_ANSWER, exactly, unexpected};

/// The startup message of version 3.0 of the protocol, for the user `ferrum-edge`, which need not exist.
const STARTUP: &[u8] = b"\0\0\0\x1a\0\x03\0\0user\0ferrum-edge\0\0";
/// `Terminate`, so that the server does not log a broken connection.
const TERMINATE: &[u8] = b"X\0\0\0\x04";
/// Errors of a PostgreSQL server that is not ready: it is starting, stopping or recovering, or has no free connection.
const NOT_SERVING: [&[u8]; 5] = [b"57P01", b"57P02", b"57P03", b"53300", b"53400"];

/// Opens a session. The probe succeeds if the server requests a password or reports an error about the user.
pub(super) async fn postgres<L: AsyncRead + AsyncWrite + Unpin>(link: &mut L) -> Result<(), ProbeError> {
    link.write_all(STARTUP).await?;
    let [kind, length @ ..] = exactly::<5, _>(link).await?;
    match kind {
        b'R' | b'v' => {
            // The probe has its answer, so an error of this write does not matter.
            drop(link.write_all(TERMINATE).await);
            Ok(())
        }
        b'E' => {
            let length = (u32::from_be_bytes(length) as usize).saturating_sub(4).min(MAX_ANSWER);
            let mut fields = vec![0; length];
            link.read_exact(&mut fields).await?;
            let field =
                |name: u8| fields.split(|byte| *byte == 0).find_map(|text| text.strip_prefix(&[name]));
            match field(b'C').filter(|code| NOT_SERVING.contains(code)) {
                Some(code) => Err(unexpected(field(b'M').unwrap_or(code))),
                None => Ok(()),
            }
        }
        other => Err(unexpected(&[other])),
    }
}

/// Reads the greeting. A server that is ready sends it at once.
pub(super) async fn mysql<L: AsyncRead + Unpin>(link: &mut L) -> Result<(), ProbeError> {
    let [a, b, c, _, version] = exactly::<5, _>(link).await?;
    let length = (u32::from_le_bytes([a, b, c, 0]) as usize).saturating_sub(1).min(MAX_ANSWER);
    let mut rest = vec![0; length];
    link.read_exact(&mut rest).await?;
    match version {
        10 => Ok(()),
        // An error packet: an error number of two bytes, then the message.
        0xff => Err(unexpected(rest.get(2..).unwrap_or_default())),
        other => Err(unexpected(&[other])),
    }
}

/// Sends `PING`. The probe also succeeds if the server requires a password.
pub(super) async fn redis<L: AsyncRead + AsyncWrite + Unpin>(link: &mut L) -> Result<(), ProbeError> {
    link.write_all(b"*1\r\n$4\r\nPING\r\n").await?;
    link.flush().await?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") && line.len() < MAX_ANSWER {
        if (&mut *link).take((MAX_ANSWER - line.len()) as u64).read_buf(&mut line).await? == 0 {
            return Err(ProbeError::Closed);
        }
    }
    match [&b"+PONG"[..], b"-NOAUTH", b"-NOPERM"].iter().any(|good| line.starts_with(good)) {
        true => Ok(()),
        false => Err(unexpected(&line)),
    }
}
