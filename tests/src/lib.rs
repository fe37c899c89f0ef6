//! Tests of the whole gateway: real sockets, scripted peers, one binary.
#![cfg(test)]

mod support;

mod admission;
mod bad_input;
mod called;
mod certificates;
mod circles;
mod dtls;
mod early;
mod embedding;
mod example_plugins;
mod examples;
mod ext_authz;
mod grpc;
mod handshakes;
mod hedging;
mod hostile;
mod http2;
mod http3;
mod idempotency;
mod importing;
mod ldap;
mod listeners;
mod logs;
mod matrix;
mod observability;
mod oracle;
mod overload;
mod plugins;
mod proxy_protocol;
mod quota;
mod reload;
mod review;
mod routing;
mod semantics;
mod services;
mod shared_redis;
mod sockets;
mod standing;
mod tcp;
mod tidy;
mod tracing;
mod udp;
mod websocket;
mod world;
