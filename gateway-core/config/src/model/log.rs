//! Where access records go besides the log file.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName};

use super::Id;
use crate::condition::Condition;
use crate::exporter::ExporterSettings;
pub use crate::file::{KafkaAcks, KafkaMechanism};
use crate::template::Template;

/// One place that access records go to.
#[derive(Debug, Clone, PartialEq)]
pub struct LogSink {
    /// Its name in metrics and in the program log; unique.
    pub name: Arc<str>,
    /// Where records go.
    pub destination: LogDestination,
    /// How a record is written.
    pub layout: LogLayout,
    /// Only these fields; `None` is all.
    pub fields: Option<Box<[Box<str>]>>,
    /// Request headers that are added.
    pub request_headers: Box<[HeaderName]>,
    /// Response headers that are added.
    pub response_headers: Box<[HeaderName]>,
    /// Query parameters whose values are replaced, in lower case.
    pub redact_query: Box<[Box<str>]>,
    /// Only exchanges for which this holds.
    pub when: Option<Condition>,
    /// Only what took at least so long; zero is all.
    pub slower_than: Duration,
    /// Only records of these proxies; `None` is all.
    pub proxies: Option<Box<[Id]>>,
    /// The share of records that is written, 0 to 1.
    pub sample: f64,
    /// Records that may wait.
    pub queue: usize,
    /// Bytes of records that may wait.
    pub queue_size: usize,
    /// Records sent at a time.
    pub batch: usize,
    /// The longest a record waits for others.
    pub interval: Duration,
    /// How long records are tried again.
    pub retry_for: Duration,
}

/// How a record is written.
#[derive(Debug, Clone, PartialEq)]
pub enum LogLayout {
    /// JSON under OpenTelemetry's names.
    Json,
    /// JSON under the names of the Elastic Common Schema.
    Ecs,
    /// `name=value` pairs.
    Logfmt,
    /// The combined format of NCSA and Apache.
    Combined,
    /// A line of the operator's own.
    Template(Template),
}

/// Where records go.
#[derive(Debug, Clone, PartialEq)]
pub enum LogDestination {
    /// Standard output.
    Stdout,
    /// A file.
    File(LogFile),
    /// A syslog server.
    Syslog {
        /// The server.
        server: LogServer,
        /// 0 to 23.
        facility: u8,
        /// The application's name in messages.
        app_name: Box<str>,
    },
    /// A server that takes lines over TCP or TLS.
    Lines(LogServer),
    /// A server that takes lines by POST.
    Http(LogPost),
    /// A Loki server.
    Loki {
        /// The server.
        post: LogPost,
        /// Labels of the stream.
        labels: BTreeMap<String, String>,
    },
    /// A topic of Kafka.
    Kafka(Box<LogKafka>),
    /// A collector of OTLP.
    Otlp(Box<ExporterSettings>),
}

/// A topic of Kafka.
#[derive(Clone, PartialEq, Eq)]
pub struct LogKafka {
    /// Names or addresses of brokers, without brackets, and their ports.
    pub brokers: Vec<(Arc<str>, u16)>,
    /// The topic.
    pub topic: Box<str>,
    /// Encrypts connections.
    pub tls: bool,
    /// PEM file of the only trusted roots.
    pub ca_path: Option<PathBuf>,
    /// How the gateway proves who it is, its user name and password.
    pub sasl: Option<(KafkaMechanism, Box<str>, Box<str>)>,
    /// Who has to have a batch.
    pub acks: KafkaAcks,
    /// Compresses batches with gzip.
    pub gzip: bool,
}

impl fmt::Debug for LogKafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the password.
        f.debug_struct("LogKafka")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

/// A file with rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFile {
    /// The file.
    pub path: PathBuf,
    /// Begins a new file at so many bytes; `None` never does.
    pub max_size: Option<u64>,
    /// Begins a new file when this one is so old; `None` never does.
    pub max_age: Option<Duration>,
    /// Old files kept.
    pub keep: u32,
}

/// How a server of lines or messages is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTransport {
    /// One datagram a message.
    Udp,
    /// A stream.
    Tcp,
    /// A stream over TLS.
    Tls,
}

/// A server of lines or messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogServer {
    /// How it is reached.
    pub transport: LogTransport,
    /// Name or address, without brackets.
    pub host: Arc<str>,
    /// The port.
    pub port: u16,
    /// PEM file of the only trusted roots.
    pub ca_path: Option<PathBuf>,
}

/// Where metrics are pushed to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetricsPush {
    /// A collector of OTLP.
    pub otlp: Option<MetricsOtlpPush>,
    /// A server of StatsD.
    pub statsd: Option<StatsdPush>,
}

/// Metrics by OTLP.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricsOtlpPush {
    /// Where they go.
    pub exporter: ExporterSettings,
    /// How often.
    pub push_interval: Duration,
}

/// Metrics as StatsD's lines over UDP.
#[derive(Debug, Clone, PartialEq)]
pub struct StatsdPush {
    /// Name or address of the server, without brackets.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
    /// What all names begin with.
    pub prefix: Box<str>,
    /// Sends labels as tags.
    pub tags: bool,
    /// How often.
    pub push_interval: Duration,
}

/// A server that takes batches by POST.
#[derive(Clone, PartialEq, Eq)]
pub struct LogPost {
    /// Where to.
    pub url: Box<str>,
    /// Header fields of each request; may have secrets.
    pub post_headers: HeaderMap,
    /// Compresses requests by gzip.
    pub gzip: bool,
    /// How long one request may take.
    pub timeout: Duration,
    /// PEM file of the only trusted roots.
    pub ca_path: Option<PathBuf>,
}

impl fmt::Debug for LogPost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogPost").field("url", &self.url).finish_non_exhaustive()
    }
}

/// The fields that records may have in logs, beside those of plugins and headers that were asked for.
pub const LOG_FIELDS: &[&str] = &[
    "timestamp",
    "kind",
    "http.request.method",
    "url.scheme",
    "url.path",
    "url.query",
    "server.address",
    "server.port",
    "http.response.status_code",
    "rpc.grpc.status_code",
    "error.type",
    "reply.reason",
    "error.message",
    "error.setting",
    "error.limit",
    "plugin_config.id",
    "tls.early_data",
    "http.server.request.duration",
    "http.request.body.size",
    "http.response.body.size",
    "network.protocol.version",
    "client.address",
    "network.peer.address",
    "network.peer.port",
    "network.local.port",
    "tls.protocol.name",
    "tls.protocol.version",
    "tls.cipher",
    "tls.client.server_name",
    "http.request.id",
    "trace_id",
    "span_id",
    "user_agent.original",
    "http.request.header.referer",
    "enduser.id",
    "proxy.id",
    "upstream.id",
    "upstream.scheme",
    "upstream.address",
    "upstream.attempts",
    "upstream.hedges",
    "upstream.hedge.won",
    "http.client.request.duration",
    "upstream.response.duration",
    "upstream.queue.duration",
    "upstream.dns.duration",
    "upstream.connect.duration",
    "upstream.tls.duration",
    "session.end",
    "session.duration",
    "session.bytes_up",
    "session.bytes_down",
    "session.datagrams_dropped",
];
