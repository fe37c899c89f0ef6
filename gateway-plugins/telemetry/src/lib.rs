//! What the gateway sends to those who watch it: the context of traces in headers, spans, records and metrics by OTLP.
//!
//! Nothing here runs on its own: a plugin or the program hands in records and a way to call ([`World`]'s clients), and
//! runs the sending in a task of its own.
//!
//! [`World`]: gateway_core::plugin::World
//!
//! # Where things are
//!
//! - `context/`: trace context in headers (W3C, B3, Jaeger). Malformed context is never passed on.
//! - `otlp/`: the messages of OTLP, written as protobuf or JSON by one description (`encoder.rs`), and exporter settings with `OTEL_*` as defaults.
//! - `record.rs`: what an access record contains, and its layouts.
//! - `batch.rs`: items that wait, bounded in number and bytes. `deliver.rs`: the loop that sends, retries and flushes them.
//! - `json.rs`, `redact.rs`: lines of JSON that no value can forge, and queries without secrets.
#![warn(missing_docs)]

pub mod batch;
pub mod context;
pub mod deliver;
pub mod json;
pub mod otlp;
pub mod record;
pub mod redact;
