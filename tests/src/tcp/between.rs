//! A plugin that sees the bytes of streams, in front of the client's end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ferrum_edge::core::config::problem::Problems;
use ferrum_edge::core::plugin::{Hooks, OnBytes, Plugin, Registry, Seat, World, entry};
use ferrum_edge::core::stream::cut::{Cut, Stream};
use ferrum_edge::core::stream::session::Session;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;

use super::{one, tls_client};
use crate::support::edge::Edge;
use crate::support::soon;
use crate::support::stream::{Echo, LOOPBACK, at, free_port, open, tcp_backend};
use crate::support::wire::{Port, Wire};

/// Turns a bit of every byte over, both ways, and ends the session at an `!end!` of the client's.
struct Mask;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {}

impl Plugin for Mask {
    const NAME: &'static str = "mask";
    const SUMMARY: &'static str = "Changes bytes.";
    type Config = Config;

    fn build(_config: Config, _world: &World) -> Result<Self, Problems> {
        Ok(Self)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_bytes(self);
    }
}

impl OnBytes for Mask {
    fn on_bytes<'a>(
        &'a self,
        client: Stream<'a>,
        _: &'a Session,
        cut: &'a Cut,
        _seat: Seat<'a>,
    ) -> Stream<'a> {
        Box::new(Masked { client, cut })
    }
}

struct Masked<'a> {
    client: Stream<'a>,
    cut: &'a Cut,
}

fn masked(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte ^ 0x80).collect()
}

impl AsyncRead for Masked<'_> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.client).poll_read(cx, buf))?;
        let read = &mut buf.filled_mut()[before..];
        if read.windows(5).any(|window| window == b"!end!") {
            this.cut.note("unwanted_byte");
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        read.iter_mut().for_each(|byte| *byte ^= 0x80);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Masked<'_> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().client).poll_write(cx, &masked(data))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().client).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().client).poll_shutdown(cx)
    }
}

fn edge_with(fields: &str) -> (Edge, u16) {
    let mut plugins: Registry = ferrum_edge::plugins();
    plugins.add(entry::<Mask>());
    let port = free_port();
    let spec = one(port, fields)
        + "plugin_configs:\n  - {id: m, plugin_name: mask, scope: proxy, proxy_id: a, config: {}}\n";
    (Edge::start_plugged(plugins, LOOPBACK, &spec), port)
}

#[tokio::test]
async fn the_plugin_is_in_front_of_plain_and_decrypted_clients() {
    let origin = Port::listen(None).await;
    for (fields, is_tls) in [("", false), (", frontend_tls: true", true)] {
        let (mut edge, port) = edge_with(&format!("{}{fields}", tcp_backend(origin.address)));
        let mut client = match is_tls {
            false => open(port).await,
            true => tls_client(port, "gateway.test").await,
        };
        client.send("hello").await;
        let mut far = Wire::new(origin.accept().await);
        assert_eq!(&far.some_exactly(5).await[..], masked(b"hello"), "{fields}");
        far.send(masked(b"yes")).await;
        client.expect("yes").await;
        client.shutdown().await;
        far.closed().await;
        far.send(masked(b"end")).await;
        client.expect("end").await;
        far.shutdown().await;
        client.closed().await;
        let record = edge.session().await;
        assert_eq!((record.end(), record.carried()), ("closed", (5, 6)), "{fields}");
    }
}

#[tokio::test]
async fn bytes_in_bulk_pass_the_plugin_too() {
    let echo = Echo::start().await;
    let (mut edge, port) = edge_with(&echo.backend());
    // What the target sends back is masked twice.
    let sent: Vec<u8> = (0..3_u32 << 20).map(|n| (n % 251) as u8 | 0x40).collect();
    let (mut reading, mut writing) = tokio::io::split(soon(TcpStream::connect(at(port))).await.unwrap());
    let expected = sent.clone();
    let sender = tokio::spawn(async move {
        writing.write_all(&sent).await.unwrap();
        writing.shutdown().await.unwrap();
    });
    let mut got = Vec::new();
    soon(reading.read_to_end(&mut got)).await.unwrap();
    assert!(got == expected, "{} bytes came back", got.len());
    soon(sender).await.unwrap();
    assert_eq!(edge.session().await.end(), "closed");
}

/// They are read before there is a proxy, and its plugins see them all the same.
#[tokio::test]
async fn what_was_read_to_find_the_proxy_passes_the_plugin() {
    let origin = Port::listen(None).await;
    let fields = format!("passthrough: true, hosts: [a.test], {}", tcp_backend(origin.address));
    let (_edge, port) = edge_with(&fields);
    let hello = super::names::hello("a.test");
    let mut client = open(port).await;
    client.send(&hello).await;
    let mut far = Wire::new(origin.accept().await);
    assert_eq!(far.some_exactly(hello.len()).await, masked(&hello));
}

#[tokio::test]
async fn a_session_that_the_plugin_ends_says_why() {
    let origin = Port::listen(None).await;
    let (mut edge, port) = edge_with(&tcp_backend(origin.address));
    let mut client = open(port).await;
    client.send("ab").await;
    let mut far = Wire::new(origin.accept().await);
    far.some_exactly(2).await;
    client.send("c!end!").await;
    client.closed().await;
    assert!(far.rest().await.is_empty());
    let record = edge.session().await;
    assert_eq!((record.end(), record.carried()), ("unwanted_byte", (2, 0)));
}
