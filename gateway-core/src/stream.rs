//! Sessions: byte streams and datagrams, the same for TCP, TLS, UDP, DTLS and WebSocket.

pub mod cut;
pub mod drain;
pub mod live_bytes;
pub mod metered;
mod metered_body;
pub mod pacer;
pub mod proxy_protocol;
pub mod relay;
pub mod session;
pub mod sessions;
pub mod sniff;
pub mod starttls;
