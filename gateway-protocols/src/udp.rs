//! Datagrams: sessions by client address, in one loop a worker and port, without a task or a buffer a session.
//!
//! Datagrams of clients arrive in batches on the listening socket; those of targets on one connected socket a session.
//! The latter wait in an epoll set of their own, whose descriptor the runtime watches: however many sessions there are,
//! the runtime knows one source, and only sockets with something in them are looked at.

mod arrive;
mod connections;
mod cookie;
pub mod dtls;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod hello;
mod initial;
mod leg;
mod port;
mod ready;
mod session;

use std::net::UdpSocket;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

use crate::worker::Worker;
pub(crate) use connections::Known;
use dtls::DtlsRules;
use port::Port;

/// Serves a port until the task is ended. A panic ends this port's sessions; the port itself comes back.
pub(crate) async fn serve(worker: Arc<Worker>, socket: UdpSocket, number: u16, dtls: Arc<DtlsRules>) {
    loop {
        let socket = match socket.try_clone() {
            Ok(socket) => socket,
            Err(error) => return tracing::error!(%error, port = number, "a UDP port was lost"),
        };
        let port = match Port::new(worker.clone(), socket, number, dtls.clone()) {
            Ok(port) => port,
            Err(error) => return tracing::error!(%error, port = number, "a UDP port could not be served"),
        };
        if AssertUnwindSafe(port.run()).catch_unwind().await.is_ok() {
            return;
        }
        tracing::error!(port = number, "serving a UDP port panicked; its sessions ended and it begins anew");
        worker.panicked();
    }
}
