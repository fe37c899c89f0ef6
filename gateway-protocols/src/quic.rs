//! QUIC endpoints: one a worker for clients, one a worker for targets.

mod demultiplexer;
mod suite;
mod tokens;

pub use demultiplexer::{Demultiplexer, WorkerPort};
pub(crate) use suite::Handshake;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::{hkdf, hmac};
use gateway_core::config::model::{Congestion, Limits};
use quinn::congestion::{BbrConfig, CubicConfig, NewRenoConfig};
use quinn::crypto::rustls::{NoInitialCipherSuite, QuicClientConfig, QuicServerConfig};
use quinn::{
    ConnectionError, Endpoint, EndpointConfig, IdleTimeout, Runtime, TransportConfig, ValidationTokenConfig,
    VarInt,
};
use rustls::{ClientConfig, ServerConfig};

use crate::handover::secrets;

/// Closes a connection whose peer is silent. Shorter than most NATs forget.
const IDLE: Duration = Duration::from_secs(30);
/// Asks a silent peer whether it is still there (PING): how long a connection lasts without requests, and a request without bytes, is a
/// matter of their own timeouts.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// What one stream may send before it is read.
const STREAM_WINDOW: u32 = 1 << 20;
/// What one connection may send before it is read.
const CONNECTION_WINDOW: u32 = 8 << 20;
/// What is kept of a connection's data that its peer has not confirmed: whoever writes more waits. Holds what a fast
/// client 100 ms away has under way at a time.
const SEND_WINDOW: u64 = 4 << 20;

/// Request streams that a new client may have open; a connection that uses half of them gets as many as the setting allows. RFC 9114 §6.1
/// asks for 100 at least. QUIC keeps an entry for each stream that may be opened, in tables that double beyond 112 entries: with
/// fewer from the start an idle connection takes 5 KiB less.
pub(crate) const FIRST_STREAMS: u32 = 100;
/// HTTP/3 needs three of the peer's: control and two of QPACK. A few more serve extensions.
const UNIDIRECTIONAL_STREAMS: u32 = 8;

/// The server's side of QUIC, to be replaced while connections go on: the next handshake takes it as it is then.
pub type ServerRules = Arc<ArcSwap<quinn::ServerConfig>>;

/// The server's side of QUIC. What takes the place of `previous` goes on to know the addresses that clients have proven to it.
///
/// # Errors
/// When TLS 1.3 is not among the versions of `tls`.
pub fn server_config(
    mut tls: ServerConfig,
    limits: &Limits,
    congestion: Option<Congestion>,
    previous: Option<&quinn::ServerConfig>,
) -> Result<quinn::ServerConfig, NoInitialCipherSuite> {
    let early = tls.max_early_data_size > 0;
    if early {
        // RFC 9001 §4.6.1: there is no other value; how much may come is a matter of the windows.
        tls.max_early_data_size = u32::MAX;
    }
    tls.key_log = Arc::new(suite::SecretLengths);
    let crypto = QuicServerConfig::try_from(tls)?;
    let crypto = Arc::new(suite::Watched(Arc::new(crypto)));
    // What is there goes on with the key of its tokens.
    let mut config = match previous {
        None => {
            let tokens = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(&secrets().tokens());
            quinn::ServerConfig::new(crypto, Arc::new(tokens))
        }
        Some(previous) => {
            let mut config = previous.clone();
            config.crypto = crypto;
            config
        }
    };
    config.transport_config(Arc::new(transport(limits.max_concurrent_streams, congestion)));
    let mut tokens = ValidationTokenConfig::default();
    tokens.lifetime(tokens::LIFETIME).log(Arc::new(tokens::Tokens::default()));
    tokens.sent(if early { tokens::SENT } else { 0 });
    config.validation_token_config(tokens);
    // A client whose address changes goes on; the worker is found again by the connection id.
    config.migration(true);
    Ok(config)
}

/// The same with other limits.
#[must_use]
pub fn limited(
    config: &quinn::ServerConfig,
    limits: &Limits,
    congestion: Option<Congestion>,
) -> quinn::ServerConfig {
    let mut config = config.clone();
    config.transport_config(Arc::new(transport(limits.max_concurrent_streams, congestion)));
    config
}

/// Why a client's handshake failed, as over TCP; `None` where the client went away.
pub(crate) fn handshake_failure(error: &ConnectionError) -> Option<&'static str> {
    /// Codes of alerts about certificates (RFC 8446 §6).
    const CERTIFICATE: &[u64] = &[42, 43, 44, 45, 46, 48, 116];
    // RFC 9001 §4.8.
    let alert = |code: u64| code.checked_sub(0x100).filter(|alert| *alert < 0x100);
    match error {
        ConnectionError::TransportError(error) => Some(match alert(error.code.into()) {
            Some(alert) if CERTIFICATE.contains(&alert) => "tls_certificate_error",
            _ => "handshake_failed",
        }),
        ConnectionError::ConnectionClosed(close) => {
            alert(close.error_code.into()).map(|_| "tls_alert_received")
        }
        _ => None,
    }
}

/// The client's side of QUIC.
///
/// # Errors
/// When TLS 1.3 is not among the versions of `tls`.
pub(crate) fn client_config(tls: Arc<ClientConfig>) -> Result<quinn::ClientConfig, NoInitialCipherSuite> {
    let crypto = QuicClientConfig::try_from(tls)?;
    let mut config = quinn::ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport(0, None)));
    Ok(config)
}

/// Where the kernel tells its own congestion control for TCP.
const SYSTEM_CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// That one, which is read once: each connection to a target asks for it.
static SYSTEM_CONTROLLER: LazyLock<Controller> = LazyLock::new(|| {
    std::fs::read_to_string(SYSTEM_CONGESTION)
        .map_or(Controller::Cubic, |name| Controller::from_name(name.trim()))
});

/// How fast a sender goes. TCP has it in the kernel, QUIC in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Controller {
    Bbr,
    Cubic,
    Reno,
}

impl Controller {
    /// The one that is configured for clients, else the system's; CUBIC for those that only the kernel has.
    fn of(congestion: Option<Congestion>) -> Self {
        match congestion {
            Some(congestion) => Self::from_name(congestion.name()),
            // Beside a BBR of the kernel, HTTP/3 with CUBIC is many times slower than HTTP/2 where packets are lost.
            None => *SYSTEM_CONTROLLER,
        }
    }

    fn from_name(name: &str) -> Self {
        match name {
            "bbr" => Self::Bbr,
            "reno" => Self::Reno,
            _ => Self::Cubic,
        }
    }
}

fn transport(streams: u32, congestion: Option<Congestion>) -> TransportConfig {
    let mut transport = TransportConfig::default();
    match Controller::of(congestion) {
        Controller::Bbr => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
        Controller::Cubic => transport.congestion_controller_factory(Arc::new(CubicConfig::default())),
        Controller::Reno => transport.congestion_controller_factory(Arc::new(NewRenoConfig::default())),
    };
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(streams.min(FIRST_STREAMS)))
        .max_concurrent_uni_streams(VarInt::from_u32(UNIDIRECTIONAL_STREAMS))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
        .send_window(SEND_WINDOW)
        // Nobody here has a use for datagrams (RFC 9221); a peer that sends them breaks the rules.
        .datagram_receive_buffer_size(None)
        .keep_alive_interval(Some(KEEP_ALIVE))
        .max_idle_timeout(IdleTimeout::try_from(IDLE).ok());
    transport
}

/// An endpoint that serves clients on this socket.
///
/// # Errors
/// When the socket can't be used.
pub(crate) fn listen(socket: UdpSocket, rules: &ServerRules, place: WorkerPort) -> io::Result<Endpoint> {
    let resets = hmac::Key::new(hmac::HMAC_SHA256, &secrets().resets());
    let mut endpoint = EndpointConfig::new(Arc::new(resets));
    let ids = place.ids();
    endpoint.cid_generator(move || Box::new(ids));
    let runtime = Arc::new(quinn::TokioRuntime);
    let socket = place.join(runtime.wrap_udp_socket(socket)?);
    let config = quinn::ServerConfig::clone(&rules.load());
    Endpoint::new_with_abstract_socket(endpoint, Some(config), socket, runtime)
}

/// An endpoint for connections to targets of this address family.
///
/// # Errors
/// When no socket can be had.
pub(crate) fn outgoing(to: SocketAddr) -> io::Result<Endpoint> {
    let any: SocketAddr = if to.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    Endpoint::client(any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_asked_before_it_is_given_up() {
        // quinn has no other way to read it back.
        let told = format!("{:?}", transport(1, None));
        assert!(told.contains("keep_alive_interval: Some(10s)"), "{told}");
        assert!(KEEP_ALIVE * 2 < IDLE, "one lost packet ends nothing");
    }

    #[test]
    fn the_congestion_control_is_that_of_the_settings() {
        let of = |name| Controller::of(Congestion::new(name));
        assert_eq!(
            [of("bbr"), of("cubic"), of("reno"), of("dctcp")],
            [Controller::Bbr, Controller::Cubic, Controller::Reno, Controller::Cubic]
        );
        let system = std::fs::read_to_string(SYSTEM_CONGESTION).unwrap();
        assert_eq!(Controller::of(None), Controller::from_name(system.trim()));
    }
}
