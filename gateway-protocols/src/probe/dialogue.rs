//! A probe that sends a text and checks the answer.

use std::io;

use gateway_core::condition::Text;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::ProbeError;

/// Maximum number of bytes of an answer.
pub(super) const MAX_ANSWER: usize = 4096;
/// Characters of an answer in the error message.
const MAX_TOLD: usize = 80;

/// Sends the text and reads until the answer matches, or the connection or the limit ends.
pub(super) async fn talk<L: AsyncRead + AsyncWrite + Unpin>(
    link: &mut L,
    send: &[u8],
    expect: Option<&Text>,
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
        if left == 0 || (&mut *link).take(left as u64).read_buf(&mut answer).await? == 0 {
            return Err(if answer.is_empty() { ProbeError::Closed } else { unexpected(&answer) });
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
