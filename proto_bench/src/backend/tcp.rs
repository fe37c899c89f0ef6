//! A byte stream echo.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Serves one connection to its end.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return stream.shutdown().await,
            count => {
                stream.write_all(&buffer[..count]).await?;
                stream.flush().await?;
                if count == buffer.len() && buffer.len() < 256 * 1024 {
                    buffer.resize(count * 2, 0);
                }
            }
        }
    }
}
