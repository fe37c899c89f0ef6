//! Accepts connections and hands each to the protocol of its port.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio_rustls::TlsAcceptor;

use super::{Kit, Service, h1, h2, tcp};

pub(super) async fn run(listener: TcpListener, service: Service, kit: Kit) {
    let acceptor = match service {
        Service::Https => Some(TlsAcceptor::from(kit.https)),
        Service::Tls => Some(TlsAcceptor::from(kit.tls)),
        _ => None,
    };
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of files: wait for some to close instead of spinning.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        // A connection that broke already shows at its first read.
        drop(stream.set_nodelay(true));
        match acceptor.clone() {
            None => drop(spawn_local(speak(stream, service, false))),
            Some(acceptor) => drop(spawn_local(shake_hands(stream, acceptor, service))),
        }
    }
}

async fn shake_hands(stream: TcpStream, acceptor: TlsAcceptor, service: Service) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    speak(stream, service, http2).await;
}

async fn speak<S: AsyncRead + AsyncWrite + Unpin + 'static>(stream: S, service: Service, http2: bool) {
    // How a peer ends a connection is of no interest here; faults are counted by the generator.
    match service {
        Service::H2c => drop(h2::serve(stream).await),
        Service::Https if http2 => drop(h2::serve(stream).await),
        Service::Http | Service::Https => drop(h1::serve(stream).await),
        _ => drop(tcp::serve(stream).await),
    }
}
