//! Where access records go besides the log file, as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::written::Condition;
use crate::exporter::{Compression, ExporterSettings};
use crate::units::{Bytes, Millis, Seconds};

/// One place that access records go to: one of `stdout`, `file`, `syslog`, `tcp`, `http`, `loki`,
/// `kafka` and `otlp`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogSink {
    /// Its name in metrics and in the program log; unique. Required.
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
    /// Writes lines to a topic of Kafka, one record a line.
    pub kafka: Option<KafkaSink>,
    /// Sends log records by OTLP; `format` and `template` don't apply.
    pub otlp: Option<ExporterSettings>,
    /// How a record is written. Default `json`.
    pub format: Option<LogFormat>,
    /// A line of its own instead of `format`, such as `${client.address} ${response.status}`; of exchanges only.
    #[schemars(length(min = 1, max = 8192))]
    pub template: Option<String>,
    /// Only these fields, with `json`, `logfmt` or `otlp`. Default all.
    #[schemars(length(min = 1, max = 100))]
    pub fields: Option<Vec<String>>,
    /// Request headers to add, as `http.request.header.<name>`; credentials in them are replaced. Default none.
    #[schemars(length(max = 100))]
    pub request_headers: Vec<String>,
    /// Response headers to add, as `http.response.header.<name>`; values of cookies are replaced. Default none.
    #[schemars(length(max = 100))]
    pub response_headers: Vec<String>,
    /// Query parameters whose values are replaced, beside well-known ones such as `token` and `api_key`. Default none.
    #[schemars(length(max = 100))]
    pub redact_query: Vec<String>,
    /// Only exchanges for which this holds, `statuses` included; sessions are left out then. Default all.
    pub when: Option<Condition>,
    /// Only what took at least so long. Default all.
    #[schemars(range(min = 0.001, max = 86_400))]
    pub slower_than: Option<Millis>,
    /// Only records of these proxies, by id. Default all, those without a proxy too.
    #[schemars(length(min = 1, max = 10_000))]
    pub proxies: Option<Vec<String>>,
    /// The share of records that is written, of those that pass the filters, 0 to 1. Default 1.
    #[schemars(range(min = 0, max = 1))]
    pub sample: Option<f64>,
    /// Records waiting to be written; beyond it they are dropped and counted. Default 8192.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub queue: Option<usize>,
    /// Bytes of records waiting. Default 16 MiB.
    #[schemars(range(min = 65_536, max = 1_073_741_824))]
    pub queue_size: Option<Bytes>,
    /// Records sent at a time. Default 500.
    #[schemars(range(min = 1, max = 10_000))]
    pub batch: Option<usize>,
    /// The longest a record waits for others. Default 1 s.
    #[schemars(range(min = 0.001, max = 600))]
    pub interval: Option<Millis>,
    /// How long records are tried again before they are given up: while the server can't be reached, and over HTTP after 408, 429 and
    /// what begins with 5 but 501 and 505. Nothing is sent before the server's `Retry-After` is over, up to 5 minutes. Default 60 s.
    #[schemars(range(max = 3600))]
    pub retry_for: Option<Millis>,
}

/// How a record is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object a line, under OpenTelemetry's names.
    Json,
    /// One JSON object a line, under the names of the Elastic Common Schema.
    Ecs,
    /// `name=value` pairs.
    Logfmt,
    /// The combined format of NCSA and Apache; of exchanges only.
    Combined,
}

/// Standard output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StdoutSink {}

/// A file with rotation. SIGUSR1 opens it anew.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FileSink {
    /// The file. Required. A named pipe needs a reader when it is opened.
    #[schemars(length(min = 1, max = 4096))]
    pub path: Option<String>,
    /// Begins a new file when this one has so many bytes. Default never.
    #[schemars(range(min = 4096))]
    pub max_size: Option<Bytes>,
    /// Begins a new file when this one is so old. Default never.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub max_age: Option<Seconds>,
    /// Old files kept, as `path.1` to `path.N`. Default 5.
    #[schemars(range(max = 1000))]
    pub keep: Option<u32>,
}

/// A syslog server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SyslogSink {
    /// `udp://host:514`, `tcp://host:601` (octet counting) or `tls://host:6514`. Required. Over UDP a record counts as sent once
    /// the kernel has it: nothing tells whether it arrived.
    pub address: Option<String>,
    /// The facility, 0 to 23. Default 16 (local0).
    #[schemars(range(max = 23))]
    pub facility: Option<u8>,
    /// The application's name in messages. Default `ferrum-edge`.
    #[schemars(length(min = 1, max = 48))]
    pub app_name: Option<String>,
    /// PEM file of the only roots that the server's certificate may come from. Default the public roots.
    pub ca_path: Option<String>,
}

/// A server that takes lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TcpSink {
    /// `tcp://host:port` or `tls://host:port`. Required.
    pub address: Option<String>,
    /// PEM file of the only roots that the server's certificate may come from. Default the public roots.
    pub ca_path: Option<String>,
}

/// A server that takes batches of lines by POST.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HttpSink {
    /// Where to post to. Required.
    pub url: Option<String>,
    /// Header fields of each request. Default none.
    pub headers: BTreeMap<String, String>,
    /// Sent as `Authorization: Bearer …`. Default none.
    pub bearer_token: Option<String>,
    /// Compresses requests. Default `none`.
    pub compression: Option<Compression>,
    /// How long one request may take. Default 10 s.
    #[schemars(range(min = 0.001, max = 600))]
    pub timeout: Option<Millis>,
    /// PEM file of the only roots that the server's certificate may come from. Default the public roots.
    pub ca_path: Option<String>,
}

/// A Loki server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LokiSink {
    /// The server, such as `http://loki:3100`; `/loki/api/v1/push` is added where it is not there. Required.
    pub url: Option<String>,
    /// Labels of the stream. Default `{job: ferrum-edge}`.
    pub labels: BTreeMap<String, String>,
    /// Sent as `X-Scope-OrgID`. Default none.
    pub tenant: Option<String>,
    /// Header fields of each request. Default none.
    pub headers: BTreeMap<String, String>,
    /// Sent as `Authorization: Bearer …`. Default none.
    pub bearer_token: Option<String>,
    /// Compresses requests. Default `gzip`.
    pub compression: Option<Compression>,
    /// How long one request may take. Default 10 s.
    #[schemars(range(min = 0.001, max = 600))]
    pub timeout: Option<Millis>,
    /// PEM file of the only roots that the server's certificate may come from. Default the public roots.
    pub ca_path: Option<String>,
}

/// A topic of Kafka. Batches go to its partitions in turn. A batch whose answer is lost is sent again, so that records may come
/// twice.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KafkaSink {
    /// Brokers that are asked for the others, each as `host:port`. Required.
    #[schemars(length(max = 64))]
    pub brokers: Vec<String>,
    /// The topic; it is not created where there is none. Required.
    #[schemars(length(min = 1, max = 249))]
    pub topic: Option<String>,
    /// Encrypts connections to brokers. Default false.
    pub tls: bool,
    /// PEM file of the only roots that brokers' certificates may come from. Default the public roots.
    pub ca_path: Option<String>,
    /// Who the gateway says it is. Default nobody.
    pub sasl: Option<KafkaSasl>,
    /// Who has to have a batch before it counts as sent. Default `all`.
    pub acks: Option<KafkaAcks>,
    /// Compresses batches. Default `gzip`.
    pub compression: Option<Compression>,
}

/// A user of Kafka.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KafkaSasl {
    /// How the password is proved; `plain` hands it over, and needs `tls`.
    pub mechanism: KafkaMechanism,
    /// The user's name.
    #[schemars(length(min = 1, max = 1000))]
    pub username: String,
    /// The password.
    #[schemars(length(min = 1, max = 1000))]
    pub password: String,
}

/// How a password is proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum KafkaMechanism {
    /// Hands it over.
    #[serde(rename = "plain")]
    Plain,
    /// SCRAM with SHA-256.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// SCRAM with SHA-512.
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

/// Who has to have a batch before it counts as sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KafkaAcks {
    /// All replicas that are in step.
    #[default]
    All,
    /// The partition's leader.
    Leader,
}

/// Where metrics are pushed to, besides `/metrics`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Pushes by OTLP. Default none.
    pub otlp: Option<MetricsOtlp>,
    /// Pushes StatsD's lines over UDP. Default none.
    pub statsd: Option<MetricsStatsd>,
}

/// Metrics by OTLP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsOtlp {
    /// Where they go.
    pub exporter: ExporterSettings,
    /// How often. Default 60 s.
    #[schemars(range(min = 0.1, max = 3600))]
    pub interval: Option<Millis>,
}

/// Metrics as StatsD's lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsStatsd {
    /// `udp://host:8125`. Required.
    pub address: Option<String>,
    /// What all names begin with, such as `edge.`. Default none.
    #[schemars(length(max = 100))]
    pub prefix: Option<String>,
    /// Sends labels as tags (`|#name:value`); else their values are parts of the name. Default true.
    pub tags: Option<bool>,
    /// How often. Default 10 s.
    #[schemars(range(min = 0.1, max = 3600))]
    pub interval: Option<Millis>,
}
