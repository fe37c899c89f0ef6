//! One end of an exchange that switched protocols.

use tokio::io::{AsyncRead, AsyncWrite};

/// Anything bytes flow through in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// One end of an exchange that switched protocols.
pub type Tunnel = Box<dyn Duplex>;
