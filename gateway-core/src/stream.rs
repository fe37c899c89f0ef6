//! Sessions: byte streams and datagrams, the same for TCP, TLS, UDP, DTLS and WebSocket.

pub mod between;
pub mod cut;
pub mod drain;
pub mod flow;
mod flow_session;
pub mod live_bytes;
pub mod metered;
pub mod pacer;
pub mod pipeline;
pub mod proxy_protocol;
pub mod relay;
pub mod revocation;
pub mod session;
pub mod sessions;
pub mod sniff;
pub mod starttls;
pub mod websocket;
