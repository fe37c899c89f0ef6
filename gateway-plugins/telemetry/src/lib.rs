//! What the gateway sends to those who watch it: the context of traces in headers, spans, records and metrics by OTLP.
//!
//! Nothing here runs on its own: a plugin or the program hands in records and a way to call ([`World`]'s clients), and
//! runs the sending in a task of its own.
//!
//! [`World`]: gateway_core::plugin::World
#![warn(missing_docs)]

pub mod batch;
pub mod context;
pub mod deliver;
pub mod json;
pub mod otlp;
pub mod record;
pub mod redact;
