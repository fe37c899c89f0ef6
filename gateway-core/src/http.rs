//! Exchanges: one request with its response, the same for HTTP/1.1, HTTP/2, HTTP/3 and gRPC.

pub mod body;
pub mod cgi_request;
pub mod challenge;
pub mod dialect;
pub mod downstream;
pub mod early;
pub mod exchange;
pub mod forwarding;
pub(crate) mod grpc_web;
pub mod guard;
pub mod handshake;
pub mod headers;
pub(crate) mod mark;
pub(crate) mod names;
pub mod path;
mod preflight;
pub mod reply;
pub mod retry;
mod scheme;
pub mod tunnel;
pub mod upstream;

pub use crate::config::credential_names as credentials;
