//! Sessions: byte streams and datagrams, the same for TCP, TLS, UDP, DTLS and WebSocket.

pub mod session;
