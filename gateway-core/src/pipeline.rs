//! The way of every exchange and every session through the gateway, from the client's first byte to the one record.

pub mod between;
pub mod flow;
mod flow_session;
pub mod http;
pub mod revocation;
pub mod stream;
pub mod websocket;
