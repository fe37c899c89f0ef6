//! A connection as bytes: what a test sends and expects, word for word.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{soon, tls};

/// Either side of a connection.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// A connection and what was read ahead of it.
pub(crate) struct Wire {
    io: Box<dyn Io>,
    buffer: BytesMut,
    /// Waits for as long as it takes: whoever uses it does not decide when something comes.
    patient: bool,
}

/// Opens a connection; over TLS with `alpn` when given.
pub(crate) async fn connect(to: SocketAddr, alpn: Option<&[&str]>) -> Box<dyn Io> {
    match alpn {
        None => Box::new(tcp(to).await),
        Some(alpn) => connect_as(to, tls::authority().client(alpn)).await,
    }
}

/// Connects over TLS as this client.
pub(crate) async fn connect_as(to: SocketAddr, client: Arc<ClientConfig>) -> Box<dyn Io> {
    let name = "gateway.test".try_into().expect("a name");
    let handshake = TlsConnector::from(client).connect(name, tcp(to).await);
    Box::new(soon(handshake).await.expect("a handshake"))
}

async fn tcp(to: SocketAddr) -> TcpStream {
    let tcp = soon(TcpStream::connect(to)).await.expect("a connection");
    tcp.set_nodelay(true).expect("no delay");
    tcp
}

/// A port of an origin.
pub(crate) struct Port {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
    tls: Option<TlsAcceptor>,
}

impl Port {
    /// Listens on any free port; over TLS with `alpn` when given.
    pub(crate) async fn listen(alpn: Option<&[&str]>) -> Self {
        Self::listen_on(SocketAddr::from(([127, 0, 0, 1], 0)), alpn).await
    }

    pub(crate) async fn listen_on(address: SocketAddr, alpn: Option<&[&str]>) -> Self {
        let listener = TcpListener::bind(address).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        Self {
            listener,
            address,
            tls: alpn.map(|alpn| TlsAcceptor::from(tls::server(tls::localhost(), alpn))),
        }
    }

    /// The next connection.
    #[track_caller]
    pub(crate) fn accept(&self) -> impl Future<Output = Box<dyn Io>> + '_ {
        soon(self.accept_ever())
    }

    /// The next connection, however long it takes: for origins that just stand there.
    pub(crate) async fn accept_ever(&self) -> Box<dyn Io> {
        let (tcp, _) = self.listener.accept().await.expect("a connection");
        tcp.set_nodelay(true).expect("no delay");
        match &self.tls {
            None => Box::new(tcp),
            Some(acceptor) => Box::new(soon(acceptor.accept(tcp)).await.expect("a handshake")),
        }
    }
}

impl Wire {
    pub(crate) fn new(io: Box<dyn Io>) -> Self {
        Self { io, buffer: BytesMut::new(), patient: false }
    }

    /// A connection of an origin that just stands there.
    pub(crate) fn new_patient(io: Box<dyn Io>) -> Self {
        Self { patient: true, ..Self::new(io) }
    }

    /// A plain connection.
    pub(crate) async fn open(to: SocketAddr) -> Self {
        Self::new(connect(to, None).await)
    }

    /// Sends these bytes; a peer that takes no more is an error.
    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        soon(self.io.write_all(bytes.as_ref())).await?;
        self.io.flush().await
    }

    /// Sends these bytes.
    #[track_caller]
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            if let Err(error) = self.try_send(bytes).await {
                panic!("{error} while sending at {caller}");
            }
        }
    }

    /// Ends our side.
    pub(crate) async fn shutdown(&mut self) {
        drop(soon(self.io.shutdown()).await);
    }

    /// Reads more; false at the end.
    pub(crate) async fn fill(&mut self) -> io::Result<bool> {
        let reading = self.io.read_buf(&mut self.buffer);
        Ok(if self.patient { reading.await? } else { soon(reading).await? } > 0)
    }

    /// Everything up to and including `end`.
    pub(crate) async fn until(&mut self, end: &[u8]) -> io::Result<Bytes> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return Ok(self.buffer.split_to(at + end.len()).freeze());
            }
            if !self.fill().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// At least one byte, at most `most`.
    pub(crate) async fn some(&mut self, most: usize) -> io::Result<Bytes> {
        if self.buffer.is_empty() && !self.fill().await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let take = most.min(self.buffer.len());
        Ok(self.buffer.split_to(take).freeze())
    }

    /// Exactly these bytes.
    #[track_caller]
    pub(crate) fn expect(&mut self, bytes: impl AsRef<[u8]>) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let bytes = bytes.as_ref();
            while self.buffer.len() < bytes.len() && self.fill().await.unwrap_or(false) {}
            let got = self.buffer.get(..bytes.len()).unwrap_or(&self.buffer);
            let (got, wanted) = (String::from_utf8_lossy(got), String::from_utf8_lossy(bytes));
            assert_eq!(got, wanted, "at {caller}");
            self.buffer.advance(bytes.len());
        }
    }

    /// Everything until the peer closes or resets.
    pub(crate) async fn rest(&mut self) -> Bytes {
        while self.fill().await.unwrap_or(false) {}
        self.buffer.split().freeze()
    }

    /// Whether the peer has said nothing more before it closed.
    #[track_caller]
    pub(crate) fn closed(&mut self) -> impl Future<Output = ()> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            let rest = self.rest().await;
            assert!(rest.is_empty(), "{:?} at {caller}", String::from_utf8_lossy(&rest));
        }
    }
}
