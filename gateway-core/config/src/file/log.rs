//! Where access records go besides the log file, as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::written::Condition;
use crate::exporter::{Compression, ExporterSettings};
use crate::units::{Bytes, Millis, Seconds};

/// One destination of access records: one of `stdout`, `file`, `syslog`, `tcp`, `http`, `loki`, `kafka` and `otlp`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogSink {
    /// Name in metrics and in the program log; unique. Required.
    #[schemars(length(min = 1, max = 63))]
    pub name: Option<String>,
    /// Writes lines to standard output.
    pub stdout: Option<StdoutSink>,
    /// Writes lines to a file, with rotation.
    pub file: Option<FileSink>,
    /// Sends messages of RFC 5424.
    pub syslog: Option<SyslogSink>,
    /// Sends lines over TCP or TLS.
    pub tcp: Option<TcpSink>,
    /// Posts lines to a URL.
    pub http: Option<HttpSink>,
    /// Pushes to Grafana Loki.
    pub loki: Option<LokiSink>,
    /// Writes lines to a Kafka topic, one record per message.
    pub kafka: Option<KafkaSink>,
    /// Sends log records by OTLP; `format` and `template` don't apply.
    pub otlp: Option<ExporterSettings>,
    /// Format of records. Default `json`.
    pub format: Option<LogFormat>,
    /// Custom line instead of `format`, such as `${client.address} ${response.status}`; for exchanges only.
    #[schemars(length(min = 1, max = 8192))]
    pub template: Option<String>,
    /// Fields to write, with `json`, `logfmt` or `otlp`. Default all.
    #[schemars(length(min = 1, max = 100))]
    pub fields: Option<Vec<String>>,
    /// Request headers to add, as `http.request.header.<name>`; credentials are redacted. Default none.
    #[schemars(length(max = 100))]
    pub request_headers: Vec<String>,
    /// Response headers to add, as `http.response.header.<name>`; values of cookies are redacted. Default none.
    #[schemars(length(max = 100))]
    pub response_headers: Vec<String>,
    /// Query parameters to redact, in addition to well-known ones such as `token` and `api_key`. Default none.
    #[schemars(length(max = 100))]
    pub redact_query: Vec<String>,
    /// Exchanges to log, by a condition that may include `statuses`; this excludes sessions. Default all.
    pub when: Option<Condition>,
    /// Logs only what takes at least this long. Default all.
    #[schemars(range(min = 0.001, max = 86_400))]
    pub slower_than: Option<Millis>,
    /// Proxies to log, by ID. Default all, and records without a proxy.
    #[schemars(length(min = 1, max = 10_000))]
    pub proxies: Option<Vec<String>>,
    /// Share of the matching records to write, 0 to 1. Default 1.
    #[schemars(range(min = 0, max = 1))]
    pub sample: Option<f64>,
    /// Queued records; further ones are dropped and counted. Default 8192.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub queue: Option<usize>,
    /// Size of the queue. Default 16 MiB.
    #[schemars(range(min = 65_536, max = 1_073_741_824))]
    pub queue_size: Option<Bytes>,
    /// Records in a batch. Default 500.
    #[schemars(range(min = 1, max = 10_000))]
    pub batch: Option<usize>,
    /// Longest delay before a batch is sent. Default 1 s.
    #[schemars(range(min = 0.001, max = 600))]
    pub interval: Option<Millis>,
    /// How long a batch is retried before its records are dropped: if the server is unreachable, and over HTTP after
    /// 408, 429 and 5xx except 501 and 505. The gateway obeys `Retry-After`, up to 5 minutes. Default 60 s.
    #[schemars(range(max = 3600))]
    pub retry_for: Option<Millis>,
}

/// Format of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line, with OpenTelemetry's names.
    Json,
    /// One JSON object per line, with the names of the Elastic Common Schema.
    Ecs,
    /// `name=value` pairs.
    Logfmt,
    /// The combined format of NCSA and Apache; for exchanges only.
    Combined,
}

/// Standard output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StdoutSink {}

/// A file with rotation. SIGUSR1 reopens it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FileSink {
    /// The file. Required. A named pipe needs a reader when it is opened.
    #[schemars(length(min = 1, max = 4096))]
    pub path: Option<String>,
    /// Size at which a new file begins. Default never.
    #[schemars(range(min = 4096))]
    pub max_size: Option<Bytes>,
    /// Age at which a new file begins. Default never.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub max_age: Option<Seconds>,
    /// Old files to keep, as `path.1` to `path.N`. Default 5.
    #[schemars(range(max = 1000))]
    pub keep: Option<u32>,
}

/// A syslog server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SyslogSink {
    /// `udp://host:514`, `tcp://host:601` (octet counting) or `tls://host:6514`. Required. Over UDP, a record counts as
    /// sent when the kernel accepts it; delivery is unknown.
    pub address: Option<String>,
    /// The facility, 0 to 23. Default 16 (local0).
    #[schemars(range(max = 23))]
    pub facility: Option<u8>,
    /// Application name in messages. Default `ferrum-edge`.
    #[schemars(length(min = 1, max = 48))]
    pub app_name: Option<String>,
    /// PEM file with the only trusted roots for the server's certificate. Default the public roots.
    pub ca_path: Option<String>,
}

/// A server that receives lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TcpSink {
    /// `tcp://host:port` or `tls://host:port`. Required.
    pub address: Option<String>,
    /// PEM file with the only trusted roots for the server's certificate. Default the public roots.
    pub ca_path: Option<String>,
}

/// A server that receives batches of lines by POST.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSink {
    /// URL. Required.
    pub url: Option<String>,
    /// Header fields of each request. Default none.
    pub headers: BTreeMap<String, String>,
    /// Sent as `Authorization: Bearer …`. Default none.
    pub bearer_token: Option<String>,
    /// Compression of requests. Default `none`.
    pub compression: Option<Compression>,
    /// Time limit for a request. Default 10 s.
    #[schemars(range(min = 0.001, max = 600))]
    pub timeout: Option<Millis>,
    /// PEM file with the only trusted roots for the server's certificate. Default the public roots.
    pub ca_path: Option<String>,
}

/// A Loki server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LokiSink {
    /// The server, such as `http://loki:3100`; `/loki/api/v1/push` is appended if it is missing. Required.
    pub url: Option<String>,
    /// Labels of the stream. Default `{job: ferrum-edge}`.
    pub labels: BTreeMap<String, String>,
    /// Sent as `X-Scope-OrgID`. Default none.
    pub tenant: Option<String>,
    /// Header fields of each request. Default none.
    pub headers: BTreeMap<String, String>,
    /// Sent as `Authorization: Bearer …`. Default none.
    pub bearer_token: Option<String>,
    /// Compression of requests. Default `gzip`.
    pub compression: Option<Compression>,
    /// Time limit for a request. Default 10 s.
    #[schemars(range(min = 0.001, max = 600))]
    pub timeout: Option<Millis>,
    /// PEM file with the only trusted roots for the server's certificate. Default the public roots.
    pub ca_path: Option<String>,
}

/// A Kafka topic. Batches are distributed over its partitions. If the acknowledgement of a batch is lost, the batch is
/// sent again, so records may arrive twice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaSink {
    /// Bootstrap brokers, each as `host:port`. Required.
    #[schemars(length(max = 64))]
    pub brokers: Vec<String>,
    /// The topic, which must exist. Required.
    #[schemars(length(min = 1, max = 249))]
    pub topic: Option<String>,
    /// Encrypts connections to brokers. Default false.
    pub tls: bool,
    /// PEM file with the only trusted roots for brokers' certificates. Default the public roots.
    pub ca_path: Option<String>,
    /// User (SASL). Default none.
    pub sasl: Option<KafkaSasl>,
    /// Required acknowledgements of a batch. Default `all`.
    pub acks: Option<KafkaAcks>,
    /// Compression of batches. Default `gzip`.
    pub compression: Option<Compression>,
}

/// A Kafka user (SASL).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KafkaSasl {
    /// SASL mechanism; `plain` sends the password itself, and requires `tls`.
    pub mechanism: KafkaMechanism,
    /// Username.
    #[schemars(length(min = 1, max = 1000))]
    pub username: String,
    /// Password.
    #[schemars(length(min = 1, max = 1000))]
    pub password: String,
}

/// SASL mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum KafkaMechanism {
    /// Sends the password itself.
    #[serde(rename = "plain")]
    Plain,
    /// SCRAM with SHA-256.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// SCRAM with SHA-512.
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

/// Required acknowledgements of a batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KafkaAcks {
    /// All in-sync replicas.
    #[default]
    All,
    /// The leader of the partition.
    Leader,
}

/// Destinations of pushed metrics, in addition to `/metrics`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Pushes by OTLP. Default none.
    pub otlp: Option<MetricsOtlp>,
    /// Pushes StatsD lines over UDP. Default none.
    pub statsd: Option<MetricsStatsd>,
}

/// Metrics by OTLP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsOtlp {
    /// OTLP exporter.
    pub exporter: ExporterSettings,
    /// Push interval. Default 60 s.
    #[schemars(range(min = 0.1, max = 3600))]
    pub interval: Option<Millis>,
}

/// Metrics as StatsD lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsStatsd {
    /// `udp://host:8125`. Required.
    pub address: Option<String>,
    /// Prefix of all names, such as `edge.`. Default none.
    #[schemars(length(max = 100))]
    pub prefix: Option<String>,
    /// Sends labels as tags (`|#name:value`); otherwise their values are parts of the name. Default true.
    pub tags: Option<bool>,
    /// Push interval. Default 10 s.
    #[schemars(range(min = 0.1, max = 3600))]
    pub interval: Option<Millis>,
}
