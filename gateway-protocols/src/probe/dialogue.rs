//! A probe that sends a text and checks the answer.

use std::io;

use gateway_core::condition::Text;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use tokio::time::Instant;

use super::ProbeError;

/// Maximum number of bytes of an answer.
pub(super) const MAX_ANSWER: usize = 4096;
/// Characters of an answer in the error message.
const MAX_TOLD: usize = 80;

/// Sends the text and reads until the answer matches, or the connection, the limit or the time for it ends.
pub(super) async fn talk<L: AsyncRead + AsyncWrite + Unpin>(
    link: &mut L,
    send: &[u8],
    expect: Option<&Text>,
    deadline: Option<Instant>,
) -> Result<(), ProbeError> {
    link.write_all(send).await?;
    link.flush().await?;
    let Some(expect) = expect else { return Ok(()) };
    let mut answer = Vec::new();
    loop {
        if !answer.is_empty() && expect.fits(Some(&answer)) {
            return Ok(());
        }
        let left = MAX_ANSWER - answer.len();
        let mut rest = (&mut *link).take(left as u64);
        let reading = rest.read_buf(&mut answer);
        let read = match deadline {
            Some(deadline) => tokio::time::timeout_at(deadline, reading).await,
            None => Ok(reading.await),
        };
        match read {
            Ok(Err(error)) => return Err(error.into()),
            Ok(Ok(1..)) => {}
            Ok(Ok(0)) if answer.is_empty() => return Err(ProbeError::Closed),
            // The time for the whole probe is over in a moment.
            Err(_) if answer.is_empty() => std::future::pending().await,
            // What came is not the expected answer.
            Ok(Ok(0)) | Err(_) => return Err(unexpected(&answer)),
        }
    }
}

/// Reads exactly `N` bytes.
pub(super) async fn exactly<const N: usize, L: AsyncRead + Unpin>(
    link: &mut L,
) -> Result<[u8; N], ProbeError> {
    let mut bytes = [0; N];
    match link.read_exact(&mut bytes).await {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(ProbeError::Closed),
        Err(error) => Err(error.into()),
    }
}

/// The unexpected answer, in one line of printable characters.
pub(super) fn unexpected(answer: &[u8]) -> ProbeError {
    let text = String::from_utf8_lossy(answer);
    let mut told: String = text.trim_end().chars().take(MAX_TOLD).flat_map(char::escape_default).collect();
    if text.trim_end().chars().count() > MAX_TOLD {
        told.push_str("...");
    }
    ProbeError::Unexpected(told)
}
