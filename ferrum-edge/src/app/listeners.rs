//! The gateway's listening sockets, bound before anything runs and handed to the workers.

use std::net::{SocketAddr, TcpListener};

use gateway_core::config::model::Settings;
use gateway_protocols::downstream::accept::Entrance;
use gateway_protocols::downstream::bind;
use gateway_protocols::worker::Order;

use super::tls::Frontend;
use super::{Addresses, Crew, StartError};

/// Bound sockets, one a worker for each listener.
pub(super) struct Listeners {
    http: Vec<TcpListener>,
    https: Vec<TcpListener>,
}

impl Listeners {
    /// Binds whatever the settings ask for.
    pub(super) fn bind(settings: &Settings, workers: usize) -> Result<Self, StartError> {
        // Without a certificate there is nothing to show to a TLS client.
        let https = settings.https.filter(|_| !settings.tls.certificates.is_empty());
        Ok(Self {
            http: bind_for("http", settings.http, workers)?,
            https: bind_for("https", https, workers)?,
        })
    }

    pub(super) fn addresses(&self) -> Addresses {
        let of = |sockets: &[TcpListener]| sockets.first().and_then(|socket| socket.local_addr().ok());
        Addresses { http: of(&self.http), https: of(&self.https) }
    }

    /// Gives each worker its sockets.
    pub(super) fn hand_out(self, crews: &[Crew], frontend: &Frontend) {
        let plain = self.http.into_iter().zip(crews).map(|(socket, crew)| (socket, Entrance::Plain, crew));
        let tls = self.https.into_iter().zip(crews).map(|(socket, crew)| (socket, frontend.entrance(), crew));
        for (socket, entrance, crew) in plain.chain(tls) {
            if crew.orders.try_send(Order::Listen(socket, entrance)).is_err() {
                tracing::error!("a worker took no listener");
            }
        }
    }
}

fn bind_for(
    listener: &'static str,
    address: Option<SocketAddr>,
    workers: usize,
) -> Result<Vec<TcpListener>, StartError> {
    let Some(address) = address else { return Ok(Vec::new()) };
    bind::tcp_for_workers(address, workers).map_err(|source| StartError::Bind { listener, address, source })
}
