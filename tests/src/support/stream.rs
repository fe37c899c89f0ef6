//! What stream tests share: ports of their own, an echo that just stands there, sessions read from records.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::edge::Edge;
use super::records::Record;
use super::wire::Wire;
pub(crate) use test_servers::ports::{free_port, free_ports};

/// Stream proxies listen on loopback only.
pub(crate) const LOOPBACK: &str = "  stream_address: 127.0.0.1";

/// Where a stream proxy listens.
pub(crate) fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A client's connection to a stream proxy.
pub(crate) async fn open(port: u16) -> Wire {
    Wire::open(at(port)).await
}

/// An origin that says everything back, and ends its side when the client does.
pub(crate) struct Echo {
    pub(crate) address: SocketAddr,
    _task: JoinSet<()>,
}

impl Echo {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                connections.spawn(echo(tcp));
            }
        });
        Self { address, _task: task }
    }

    /// The fields of a stream proxy that leads here.
    pub(crate) fn backend(&self) -> String {
        tcp_backend(self.address)
    }
}

async fn echo(mut tcp: TcpStream) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(read @ 1..) = tcp.read(&mut buffer).await {
        if tcp.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    drop(tcp.shutdown().await);
}

/// The fields of a TCP proxy that leads to `address`.
pub(crate) fn tcp_backend(address: SocketAddr) -> String {
    format!("backend_scheme: tcp, backend_host: 127.0.0.1, backend_port: {}", address.port())
}

/// The fields of a UDP proxy that leads to `address`.
pub(crate) fn udp_backend(address: SocketAddr) -> String {
    format!("backend_scheme: udp, backend_host: 127.0.0.1, backend_port: {}", address.port())
}

impl Edge {
    /// The next record, which is to be a session's.
    #[track_caller]
    pub(crate) fn session(&mut self) -> impl Future<Output = Record> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            let record = self.records.next().await;
            assert!(!record.end().is_empty(), "not a session at {caller}: {record:?}");
            record
        }
    }
}

impl Record {
    /// `tcp`, `udp`, `dtls`, `websocket`, or what an exchange has.
    pub(crate) fn kind(&self) -> &str {
        self.0["kind"].as_str().unwrap_or("")
    }

    /// Why a session ended; empty for an exchange.
    pub(crate) fn end(&self) -> &str {
        self.0["session.end"].as_str().unwrap_or("")
    }

    /// The proxy's id; empty when there was none.
    pub(crate) fn proxy(&self) -> &str {
        self.0["proxy.id"].as_str().unwrap_or("")
    }

    /// Where it went; empty when nowhere.
    pub(crate) fn target(&self) -> &str {
        self.0["upstream.address"].as_str().unwrap_or("")
    }

    /// Bytes up and down.
    pub(crate) fn carried(&self) -> (u64, u64) {
        let number = |key: &str| self.0[key].as_u64().unwrap_or(u64::MAX);
        (number("session.bytes_up"), number("session.bytes_down"))
    }
}

impl Wire {
    /// So many bytes, whatever they are.
    pub(crate) async fn some_exactly(&mut self, length: usize) -> Vec<u8> {
        let mut got = Vec::with_capacity(length);
        while got.len() < length {
            let some = self.some(length - got.len()).await.expect("more bytes");
            got.extend_from_slice(&some);
        }
        got
    }
}
