//! Connections whose answers are bounded: every byte of a Redis server comes through here.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, ready};

use gateway_core::config::model::{RedisLogin, RedisServer};
use gateway_core::plugin::world::files::Files;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, RedisFuture,
    RedisResult, Value,
};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::framing::{Framing, Refused};

/// Bytes of a file with certificates.
const MAX_FILE: u64 = 4 << 20;
/// Bytes of an answer, beside what a plugin stores: the longest are a cluster's nodes and what was purged.
pub(super) const MAX_ANSWER: u64 = 4 << 20;

/// Why TLS to a server can't be set up.
#[derive(Debug, thiserror::Error)]
pub(super) enum RedisTlsError {
    #[error("{} can't be read: {error}", .path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{}: {error}", .path.display())]
    Pem { path: PathBuf, error: pem::Error },
    #[error("{} has no certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error("{} has no key: {error}", .path.display())]
    NoKey { path: PathBuf, error: pem::Error },
    /// A certificate that is no root, or does not belong to its key.
    #[error("{}: {error}", .path.display())]
    Certificate { path: PathBuf, error: rustls::Error },
    #[error("there is no root that the server's certificate may come from")]
    NoRoots,
    #[error(transparent)]
    Versions(#[from] rustls::Error),
}

/// How servers are reached.
pub(super) struct Transport {
    tls: Option<TlsConnector>,
    /// Bytes that plugins store in one place and so may be answered.
    stored: Arc<AtomicU64>,
}

impl Transport {
    /// Reads the files anew each time, so that renewed certificates are used.
    pub(super) fn of(
        server: &RedisServer,
        files: &Arc<dyn Files>,
        stored: Arc<AtomicU64>,
    ) -> Result<Self, RedisTlsError> {
        let tls = server.is_encrypted.then(|| tls(server, files)).transpose()?;
        Ok(Self { tls: tls.map(|config| TlsConnector::from(Arc::new(config))), stored })
    }

    /// Connects, and logs in.
    pub(super) async fn open(
        &self,
        host: &str,
        port: u16,
        settings: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> RedisResult<BoundedConnection> {
        let stream = TcpStream::connect((host, port)).await?;
        stream.set_nodelay(true)?;
        let stored = self.stored.clone();
        let Some(tls) = &self.tls else {
            return BoundedConnection::over(stream, stored, settings, config).await;
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            RedisError::from((ErrorKind::InvalidClientConfig, "the host is not a valid server name"))
        })?;
        let stream = tls.connect(name, stream).await?;
        BoundedConnection::over(stream, stored, settings, config).await
    }
}

/// What a connection begins with.
pub(super) fn settings(login: Option<&RedisLogin>, database: u32) -> RedisConnectionInfo {
    let mut settings = RedisConnectionInfo::default().set_db(database.into());
    if let Some(login) = login {
        if let Some(username) = &login.username {
            settings = settings.set_username(username);
        }
        settings = settings.set_password(&login.password);
    }
    settings
}

fn tls(server: &RedisServer, files: &Arc<dyn Files>) -> Result<ClientConfig, RedisTlsError> {
    let read = |path: &Path| match files.read(path, MAX_FILE) {
        Ok(bytes) => Ok(bytes.to_vec()),
        Err(error) => Err(RedisTlsError::Read { path: path.to_owned(), error }),
    };
    let unusable = |path: &Path| {
        let path = path.to_owned();
        move |error| RedisTlsError::Certificate { path, error }
    };
    let mut roots = RootCertStore::empty();
    match &server.ca_path {
        Some(path) => {
            for root in certificates(path, &read(path)?)? {
                roots.add(root).map_err(unusable(path))?;
            }
        }
        None => _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
    }
    if roots.is_empty() {
        return Err(RedisTlsError::NoRoots);
    }
    // The one TLS provider of the process.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots);
    match &server.client_cert {
        None => Ok(config.with_no_client_auth()),
        Some((cert, key)) => {
            let chain = certificates(cert, &read(cert)?)?;
            let key_of = PrivateKeyDer::from_pem_slice(&read(key)?)
                .map_err(|error| RedisTlsError::NoKey { path: key.clone(), error })?;
            config.with_client_auth_cert(chain, key_of).map_err(unusable(cert))
        }
    }
}

fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, RedisTlsError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match read {
        Ok(read) if read.is_empty() => Err(RedisTlsError::NoCertificate(path.to_owned())),
        Ok(read) => Ok(read),
        Err(error) => Err(RedisTlsError::Pem { path: path.to_owned(), error }),
    }
}

/// Ends the task that carries a connection with its last owner, whatever that task waits for.
struct Carrier(AbortHandle);

impl Drop for Carrier {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A connection to one server; a clone is the same one.
#[derive(Clone)]
pub(super) struct BoundedConnection {
    connection: MultiplexedConnection,
    _carrier: Arc<Carrier>,
}

impl BoundedConnection {
    async fn over<S>(
        stream: S,
        stored: Arc<AtomicU64>,
        settings: &RedisConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> RedisResult<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = Bounded { stream, framing: Framing::default(), stored, refused: None };
        let (connection, carry) = MultiplexedConnection::new_with_config(settings, stream, config).await?;
        let carrier = Carrier(tokio::spawn(carry).abort_handle());
        Ok(Self { connection, _carrier: Arc::new(carrier) })
    }
}

impl ConnectionLike for BoundedConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        self.connection.req_packed_command(command)
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        self.connection.req_packed_commands(commands, offset, count)
    }

    fn get_db(&self) -> i64 {
        self.connection.get_db()
    }
}

/// A stream that ends with an error where an answer is too large.
struct Bounded<S> {
    stream: S,
    framing: Framing,
    stored: Arc<AtomicU64>,
    refused: Option<Refused>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let it = &mut *self;
        let before = buffer.filled().len();
        if it.refused.is_none() {
            ready!(Pin::new(&mut it.stream).poll_read(cx, buffer))?;
            let most = MAX_ANSWER.saturating_add(it.stored.load(Relaxed));
            let read = buffer.filled().get(before..).unwrap_or_default();
            it.refused = it.framing.follow(read, most).err();
        }
        match it.refused {
            None => Poll::Ready(Ok(())),
            Some(why) => {
                buffer.set_filled(before);
                // The kind by which the library knows that the connection is of no more use.
                Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, why.to_string())))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
