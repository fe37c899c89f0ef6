//! Further places that access records go to, each with its own format, filter and bounded queue.
//!
//! A worker writes a record straight into the queue of each sink that wants it. Files and standard output have a thread
//! each, since they may block; what goes over the network is sent by a task beside the plugins'. A sink that is slow or away
//! costs records of its own, which are counted, and never traffic.

mod file;
#[cfg(feature = "kafka")]
mod kafka;
mod post;
mod stream;
mod udp;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use gateway_core::config::model::{Id, LogDestination, LogServer, LogSink, LogTransport};
use gateway_core::config::problem::Problems;
use gateway_core::metrics::names::LOG_SINK_RECORDS;
use gateway_core::plugin::World;
use gateway_core::plugin::world::Owner;
use gateway_core::plugin::world::calls::{Client, Endpoint, Server};
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::{TaskControl, TaskHandle, TaskHealth, TaskName, Tasks};
use gateway_telemetry::batch::{Batches, Limits};
use gateway_telemetry::deliver::{self, Counts, Deliver, Pace};
use gateway_telemetry::json::{Rfc3339, escape_line};
use gateway_telemetry::otlp::{
    Encoding, Exporter, ExporterSettings, Signal, build_exporter, pairs, resource,
};
use gateway_telemetry::record::{Layout, Record};
use serde_json::{Value, json};

use super::tails::Tails;
use crate::export::moment::moment;
use gateway_core::condition::Holds;

/// Bytes from which on a batch is sent.
const CHUNK_BYTES: usize = 1 << 20;

/// All sinks of one gateway.
#[derive(Default)]
pub(crate) struct Sinks {
    /// How many there are: where there are none, nobody looks any further.
    count: AtomicUsize,
    list: ArcSwap<Vec<Arc<Sink>>>,
    /// Those who follow by the admin API.
    pub(crate) tails: Arc<Tails>,
}

/// What sends a sink's records.
#[derive(Default)]
struct RunningSink {
    handle: Option<TaskHandle>,
    health: TaskHealth,
    thread: Option<JoinHandle<()>>,
}

/// One sink.
pub(crate) struct Sink {
    rules: Arc<LogSink>,
    running: Mutex<RunningSink>,
    layout: Layout,
    envelope: Envelope,
    has_sessions: bool,
    batches: Arc<Batches>,
    queue_full: Counter,
    counts: Counts,
    way: Transport,
}

/// What is around a line.
enum Envelope {
    /// Nothing.
    Line,
    /// A message of RFC 5424 around it, in front of which its length stands where it goes over a stream.
    Syslog { facility: u8, head: String, counted: bool },
    /// A pair of time and line.
    Loki,
    /// A log record of OTLP instead.
    Otlp(Encoding),
}

/// How lines leave.
enum Transport {
    File(Arc<file::FileWriter>),
    Stdout(Arc<file::StdoutWriter>),
    Udp(Arc<udp::UdpSender>),
    Stream(Arc<stream::StreamSender>),
    Post(Arc<post::PostSender>),
    #[cfg(feature = "kafka")]
    Kafka(Arc<kafka::KafkaSender>),
    Otlp(Arc<Exporter>),
}

impl Sinks {
    /// The sinks of these settings. Opens files; the network is asked when there is something to send.
    ///
    /// # Errors
    /// What can't be used: a file that can't be opened, a certificate.
    pub(crate) fn build(rules: &[Arc<LogSink>], world: &World) -> Result<Self, Problems> {
        let sinks = Self::default();
        sinks.put(sinks.prepare(rules, world)?);
        Ok(sinks)
    }

    /// The sinks of other settings; those that stay the same are the same ones.
    ///
    /// # Errors
    /// As [`Self::build`]; nothing has changed then.
    pub(crate) fn prepare(&self, rules: &[Arc<LogSink>], world: &World) -> Result<Vec<Arc<Sink>>, Problems> {
        let (mut problems, mut next) = (Problems::default(), Vec::with_capacity(rules.len()));
        let list = self.list.load();
        for (n, rules) in rules.iter().enumerate() {
            if let Some(same) = list.iter().find(|sink| sink.rules == *rules) {
                next.push(same.clone());
                continue;
            }
            match Sink::build(rules, world) {
                Ok(sink) => next.push(Arc::new(sink)),
                Err(error) => drop(problems.add(format!("gateway.access_log.sinks[{n}]"), error)),
            }
        }
        problems.into_result(next)
    }

    /// Has records go to these from now on. Those that are not among them send what waits, and end.
    ///
    /// # Errors
    /// When a thread can't be started; nothing has changed then.
    pub(crate) fn replace(&self, next: Vec<Arc<Sink>>, tasks: &dyn Tasks) -> io::Result<()> {
        for sink in next.iter().filter(|sink| !sink.is_running()) {
            sink.start(tasks)?;
        }
        let before = self.put(next);
        let list = self.list.load();
        for gone in before.iter().filter(|sink| !list.iter().any(|kept| Arc::ptr_eq(kept, sink))) {
            drop(std::mem::take(&mut *gone.running()));
        }
        Ok(())
    }

    fn put(&self, next: Vec<Arc<Sink>>) -> Arc<Vec<Arc<Sink>>> {
        let count = next.len();
        let before = self.list.swap(Arc::new(next));
        self.count.store(count, Ordering::Relaxed);
        before
    }

    /// Starts the threads and tasks that send.
    ///
    /// # Errors
    /// When a thread can't be started.
    pub(crate) fn start(&self, tasks: &dyn Tasks) -> io::Result<()> {
        self.list.load().iter().try_for_each(|sink| sink.start(tasks))
    }

    /// Hands a record to every sink that wants it.
    #[inline]
    pub(crate) fn record(&self, record: Record<'_>) {
        if self.count.load(Ordering::Relaxed) > 0 {
            for sink in self.list.load().iter() {
                if sink.wants(record) {
                    sink.push(record);
                }
            }
        }
        self.tails.record(record);
    }

    /// The sinks as `/v1/status` shows them.
    pub(crate) fn status(&self) -> Value {
        let list = self.list.load();
        let shown = list.iter().map(|sink| {
            let failing = sink.running().health.failing();
            json!({
                "name": &*sink.rules.name,
                "waiting": sink.batches.waiting(),
                "failing_since": failing.as_ref().map(|(since, _)| moment(*since)),
                "last_error": failing.map(|(_, why)| why),
            })
        });
        shown.collect()
    }

    /// Opens files anew, after the old ones were moved away.
    pub(crate) fn reopen(&self) {
        for sink in self.list.load().iter() {
            if let Transport::File(writer) = &sink.way {
                writer.reopen.store(true, Ordering::Release);
            }
        }
    }

    /// Writes what waits for files, and ends them all. What waits for a server that could not take it in time is lost.
    pub(crate) fn close(&self) {
        let list = self.list.load();
        list.iter().for_each(|sink| drop(sink.running().handle.take()));
        let until = std::time::Instant::now() + LAST;
        for sink in list.iter() {
            let Some(thread) = sink.running().thread.take() else { continue };
            while !thread.is_finished() && std::time::Instant::now() < until {
                thread::sleep(Duration::from_millis(2));
            }
            // One whose output takes nothing is left behind.
            if thread.is_finished() && thread.join().is_err() {
                tracing::error!("the thread of a log sink panicked");
            }
        }
        for sink in list.iter().filter(|sink| sink.batches.waiting() > 0) {
            let records = sink.batches.waiting();
            tracing::error!(
                sink = &*sink.rules.name,
                records,
                "the last records could not be written and are lost"
            );
        }
    }
}

/// How long the end of the gateway waits for the last records to be written.
const LAST: Duration = Duration::from_secs(6);

impl Sink {
    fn build(rules: &Arc<LogSink>, world: &World) -> Result<Self, SinkError> {
        let SinkWay { transport: way, envelope, separator } = SinkWay::open(rules, world)?;
        let count =
            |outcome| world.meters().counter(LOG_SINK_RECORDS, &["sink", "outcome"], &[&rules.name, outcome]);
        let limits = Limits {
            items: rules.queue,
            bytes: rules.queue_size,
            chunk_items: rules.batch,
            chunk_bytes: chunk_bytes(&rules.destination).min(rules.queue_size),
        };
        let layout = Layout::of(rules);
        let counts = Counts { sent: count("sent"), failed: count("failed"), refused: count("refused") };
        Ok(Self {
            has_sessions: layout.has_sessions(&rules.destination),
            layout,
            envelope,
            batches: Arc::new(Batches::new(limits, separator).counting_unsent(counts.failed.clone())),
            queue_full: count("queue_full"),
            counts,
            way,
            rules: rules.clone(),
            running: Mutex::default(),
        })
    }

    fn running(&self) -> MutexGuard<'_, RunningSink> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_running(&self) -> bool {
        self.running().handle.is_some()
    }

    /// Whether a record passes the sink's filters.
    fn wants(&self, record: Record<'_>) -> bool {
        let rules = &*self.rules;
        let (route, took) = match record {
            Record::Exchange(record) => (record.route, record.duration),
            Record::Session(record) => (record.route, record.duration),
        };
        let is_meant = match record {
            Record::Exchange(record) => {
                rules.when.as_ref().is_none_or(|when| when.holds_with(record.exchange, record.status))
            }
            Record::Session(_) => self.has_sessions && rules.when.is_none() && self.layout.has_fields(record),
        };
        let is_proxy = rules
            .proxies
            .as_ref()
            .is_none_or(|proxies| route.is_some_and(|route| proxies.iter().any(|id| *id == route.proxy.id)));
        is_meant
            && is_proxy
            && took >= rules.slower_than
            && (rules.sample >= 1.0 || fastrand::f64() < rules.sample)
    }

    fn push(&self, record: Record<'_>) {
        if !self.batches.push(|out| self.write(out, record)) {
            self.queue_full.add(1);
        }
    }

    fn write(&self, out: &mut Vec<u8>, record: Record<'_>) {
        match &self.envelope {
            Envelope::Line => self.layout.write(out, record),
            Envelope::Otlp(encoding) => self.layout.write_otlp(out, *encoding, record),
            Envelope::Loki => {
                let mut line = Vec::new();
                self.layout.write(&mut line, record);
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                out.extend_from_slice(format!("[\"{}\",\"", now.as_nanos()).as_bytes());
                escape_line(out, &line);
                out.extend_from_slice(b"\"]");
            }
            Envelope::Syslog { facility, head, counted } => {
                let is_failure = matches!(record, Record::Exchange(record) if record.status >= 500);
                let priority = u16::from(*facility) * 8 + if is_failure { ERROR } else { INFORMATIONAL };
                let time = Rfc3339(SystemTime::now());
                let mut message = format!("<{priority}>1 {time} {head}").into_bytes();
                self.layout.write(&mut message, record);
                if *counted {
                    out.extend_from_slice(format!("{} ", message.len()).as_bytes());
                }
                out.append(&mut message);
            }
        }
    }

    fn start(&self, tasks: &dyn Tasks) -> io::Result<()> {
        let running = &mut *self.running();
        match &self.way {
            Transport::File(writer) => self.thread(writer.clone(), running)?,
            Transport::Stdout(writer) => self.thread(writer.clone(), running)?,
            Transport::Udp(sender) => self.task(sender.clone(), tasks, running),
            Transport::Stream(sender) => self.task(sender.clone(), tasks, running),
            Transport::Post(sender) => self.task(sender.clone(), tasks, running),
            #[cfg(feature = "kafka")]
            Transport::Kafka(sender) => self.task(sender.clone(), tasks, running),
            Transport::Otlp(exporter) => self.task(exporter.clone(), tasks, running),
        }
        Ok(())
    }

    fn pace(&self) -> Pace {
        Pace { interval: self.rules.interval, retry_for: self.rules.retry_for }
    }

    fn name(&self) -> String {
        format!("access_log/{}", self.rules.name)
    }

    /// Sends on a thread of its own.
    fn thread<D: Deliver>(&self, to: Arc<D>, running: &mut RunningSink) -> io::Result<()> {
        let (handle, control) = TaskControl::new();
        let health = control.health().clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let sending =
            deliver::run(self.name(), self.batches.clone(), to, self.pace(), self.counts.clone(), control);
        let thread = thread::Builder::new().name("log-sink".to_owned()).spawn(move || {
            // It comes to nothing else.
            drop(runtime.block_on(sending));
        })?;
        *running = RunningSink { handle: Some(handle), health, thread: Some(thread) };
        Ok(())
    }

    /// Sends in a task beside the plugins'.
    fn task<D: Deliver>(&self, to: Arc<D>, tasks: &dyn Tasks, running: &mut RunningSink) {
        let (handle, control) = TaskControl::new();
        running.handle = Some(handle);
        running.health = control.health().clone();
        let Ok(config) = self.rules.name.parse::<Id>() else { return };
        let name = TaskName { owner: Owner { plugin: "access_log", config }, task: "send" };
        let (batches, called) = (self.batches.clone(), self.name());
        let (pace, counts) = (self.pace(), self.counts.clone());
        let run = move |control| -> gateway_core::plugin::world::tasks::Run {
            Box::pin(deliver::run(called.clone(), batches.clone(), to.clone(), pace, counts.clone(), control))
        };
        tasks.run(name, Box::new(run), control);
    }
}

/// Severities of syslog.
const ERROR: u16 = 3;
const INFORMATIONAL: u16 = 6;

/// How a sink's lines leave.
struct SinkWay {
    transport: Transport,
    /// What is around each line.
    envelope: Envelope,
    /// What stands between two of them.
    separator: Option<u8>,
}

/// Why a sink can't be opened.
#[derive(Debug, thiserror::Error)]
enum SinkError {
    #[error("standard output can't be used: {0}")]
    Stdout(#[source] io::Error),
    #[error("{} can't be opened: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
    /// The server of a destination, such as its certificates.
    #[error(transparent)]
    Client(#[from] Problems),
    #[error(transparent)]
    Post(#[from] post::PostError),
    #[cfg(not(feature = "kafka"))]
    #[error("this build has no `kafka`: build it with the cargo feature of that name")]
    NoKafka,
}

impl SinkWay {
    /// Lines as they are, with a line feed between them.
    fn lines(transport: Transport) -> Self {
        Self { transport, envelope: Envelope::Line, separator: Some(b'\n') }
    }

    fn open(rules: &LogSink, world: &World) -> Result<Self, SinkError> {
        Ok(match &rules.destination {
            LogDestination::Stdout => {
                let writer = file::StdoutWriter::open().map_err(SinkError::Stdout)?;
                Self::lines(Transport::Stdout(Arc::new(writer)))
            }
            LogDestination::File(file) => {
                let closed = |error| SinkError::File { path: file.path.clone(), error };
                let writer = file::FileWriter::open(file.clone()).map_err(closed)?;
                Self::lines(Transport::File(Arc::new(writer)))
            }
            LogDestination::Syslog { server, facility, app_name } => {
                let head = format!("{} {app_name} {} access - ", host_name(), std::process::id());
                let is_udp = server.transport == LogTransport::Udp;
                let envelope = Envelope::Syslog { facility: *facility, head, counted: !is_udp };
                match is_udp {
                    true => {
                        let transport = Transport::Udp(Arc::new(udp::UdpSender::new(server, world)));
                        Self { transport, envelope, separator: Some(b'\n') }
                    }
                    false => {
                        let sender = stream::StreamSender::new(open(server, world)?, false);
                        Self { transport: Transport::Stream(Arc::new(sender)), envelope, separator: None }
                    }
                }
            }
            LogDestination::Lines(server) => {
                let sender = stream::StreamSender::new(open(server, world)?, true);
                Self::lines(Transport::Stream(Arc::new(sender)))
            }
            LogDestination::Http(post) => {
                let sender = post::PostSender::new(post, post::Body::Lines, world)?;
                Self::lines(Transport::Post(Arc::new(sender)))
            }
            LogDestination::Loki { post, labels } => {
                let sender = post::PostSender::new(post, post::Body::loki(labels), world)?;
                let transport = Transport::Post(Arc::new(sender));
                Self { transport, envelope: Envelope::Loki, separator: Some(b',') }
            }
            LogDestination::Kafka(settings) => kafka(settings, world)?,
            LogDestination::Otlp(settings) => {
                let exporter = otlp(settings, &rules.name, world)?;
                let (encoding, separator) = (exporter.encoding(), exporter.separator());
                let transport = Transport::Otlp(Arc::new(exporter));
                Self { transport, envelope: Envelope::Otlp(encoding), separator }
            }
        })
    }
}

#[cfg(feature = "kafka")]
fn kafka(settings: &gateway_core::config::model::LogKafka, world: &World) -> Result<SinkWay, SinkError> {
    let sender = kafka::KafkaSender::new(settings, world)?;
    Ok(SinkWay::lines(Transport::Kafka(Arc::new(sender))))
}

#[cfg(not(feature = "kafka"))]
fn kafka(_settings: &gateway_core::config::model::LogKafka, _world: &World) -> Result<SinkWay, SinkError> {
    Err(SinkError::NoKafka)
}

/// Bytes from which on a batch for this destination is sent.
fn chunk_bytes(destination: &LogDestination) -> usize {
    match destination {
        #[cfg(feature = "kafka")]
        LogDestination::Kafka(_) => kafka::CHUNK_BYTES,
        _ => CHUNK_BYTES,
    }
}

fn otlp(settings: &ExporterSettings, name: &str, world: &World) -> Result<Exporter, Problems> {
    let path = format!("gateway.access_log.sinks[{name}].otlp");
    let exporter = build_exporter(settings, Signal::Logs, &path, world)?;
    let attributes = world.variable("OTEL_RESOURCE_ATTRIBUTES").and_then(pairs).unwrap_or_default();
    let service = world.variable("OTEL_SERVICE_NAME").unwrap_or("ferrum-edge");
    Ok(exporter.of_resource(resource(service, attributes)))
}

/// A client that opens streams to this server.
fn open(server: &LogServer, world: &World) -> Result<Client, Problems> {
    let address = Server::Address { host: server.host.clone(), port: server.port };
    let endpoint = Endpoint::new(address, server.transport == LogTransport::Tls);
    world.client(endpoint.trusting(server.ca_path.clone()))
}

/// The machine's name as RFC 5424 wants it; `-` where it is not known.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(char::is_ascii_graphic).take(255).collect();
    if name.is_empty() { "-".to_owned() } else { name }
}

#[cfg(test)]
mod tests;
