//! OTLP, OpenTelemetry's protocol: spans, log records and metrics in protobuf or JSON, over HTTP or gRPC.
//!
//! The messages are few and stable (opentelemetry-proto 1.x), so they are written here directly, without the SDK: a
//! worker encodes its span straight into the buffer that is sent.

mod encoder;
mod exporter;
mod reply;
mod resource;
mod settings;

pub use encoder::{Attributes, Encoder, Encoding, Field, MAX_TEXT};
pub use exporter::{Exporter, gzip};
pub use gateway_core::config::exporter::{Compression, ExporterSettings, Protocol};
pub use reply::of_post;
pub use resource::{Signal, resource};
pub use settings::{build_exporter, pairs};
