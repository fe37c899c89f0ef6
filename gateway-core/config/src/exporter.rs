//! Where spans, records and metrics of OpenTelemetry go, as written: in plugins' settings and in the access log's.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::Millis;

/// An OpenTelemetry collector, or whatever else takes OTLP. What is not set comes from the environment's
/// `OTEL_EXPORTER_OTLP_*`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExporterSettings {
    /// The collector's URL, such as `http://collector:4318`; over HTTP `/v1/traces` (or `logs`, `metrics`) is added where
    /// it is not there. Default `OTEL_EXPORTER_OTLP_ENDPOINT`, else `http://localhost:4318` (gRPC: 4317).
    pub endpoint: Option<String>,
    /// How it is spoken to. Default `OTEL_EXPORTER_OTLP_PROTOCOL`, else `http/protobuf`.
    pub protocol: Option<Protocol>,
    /// Header fields of each request. Default `OTEL_EXPORTER_OTLP_HEADERS`, if the endpoint is the environment's: its server is
    /// the only one that gets the environment's headers and client certificate.
    #[schemars(extend("format" = "secret"))]
    pub headers: Option<BTreeMap<String, String>>,
    /// Sent as `Authorization: Bearer …`. Default none.
    #[schemars(extend("format" = "secret"))]
    pub bearer_token: Option<String>,
    /// How long one request may take. Default `OTEL_EXPORTER_OTLP_TIMEOUT`, else 10 s.
    #[schemars(range(min = 0.001, max = 600))]
    pub timeout: Option<Millis>,
    /// Compresses requests. Default `OTEL_EXPORTER_OTLP_COMPRESSION`, else `none`.
    pub compression: Option<Compression>,
    /// PEM file of the only roots that the collector's certificate may come from. Default
    /// `OTEL_EXPORTER_OTLP_CERTIFICATE`, else the public roots.
    #[schemars(extend("format" = "path"))]
    pub ca_path: Option<PathBuf>,
    /// PEM files of a certificate chain and its key to show to the collector. Default
    /// `OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE` and `OTEL_EXPORTER_OTLP_CLIENT_KEY`.
    #[schemars(extend("format" = "path"))]
    pub client_cert_path: Option<PathBuf>,
    /// The key to `client_cert_path`.
    #[schemars(extend("format" = "path"))]
    pub client_key_path: Option<PathBuf>,
}

/// How a collector is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum Protocol {
    /// Protobuf over HTTP.
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
    /// JSON over HTTP.
    #[serde(rename = "http/json")]
    HttpJson,
    /// gRPC over HTTP/2.
    #[serde(rename = "grpc")]
    Grpc,
}

/// How requests are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    None,
    /// By gzip.
    Gzip,
}

impl fmt::Debug for ExporterSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its headers and token may be secrets.
        f.debug_struct("ExporterSettings").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}
