//! The shape of a result file, `proto_bench/1`. Times are microseconds, sizes bytes, unless a name says otherwise.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::driver::FaultKind;
use crate::measure::counters::Counts;
use crate::measure::machine::{self, Machine, Revision};
use crate::measure::process::Role;
use crate::measure::time;
use crate::plan::{Expect, Load};
use crate::report::marks;
use crate::text_files::{FileError, write_file};

mod from_outcome;
mod json;
mod replay;

pub use replay::{Replay, ReplayRow, Start};

/// A whole result file.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    pub format: String,
    pub kind: ReportKind,
    /// When it was begun and ended, RFC 3339.
    pub started: String,
    pub finished: String,
    /// The command as it was typed.
    pub command: String,
    /// The source of the working directory the command ran in.
    pub revision: Option<Revision>,
    pub machine: Machine,
    /// Versions of every program that took part.
    pub versions: BTreeMap<String, String>,
    /// What all rows have in common, in words.
    pub settings: BTreeMap<String, String>,
    pub rows: Vec<Row>,
    /// What a reader must know beside the figures.
    pub notes: Vec<String>,
    /// Configurations of the servers, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub configurations: BTreeMap<String, String>,
    /// Other generators on the same server in the same run; only in results of `compare`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
    /// Only in results of `scale`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<Scale>,
    /// Only in results of `replay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
}

/// The command a document comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportKind {
    Run,
    Matrix,
    Clients,
    Sweep,
    Compare,
    Scale,
    Replay,
}

/// One test of one subject, over all rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// What is tested, such as `h1-tls`; rows with the same id do the same work.
    pub id: String,
    pub label: String,
    /// Who is tested: `direct`, `gateway`, `nginx`, ….
    pub subject: String,
    /// The way of a request, such as `TLS, HTTP/2 → gateway → HTTP/1.1`.
    pub path: String,
    pub load: Load,
    pub payload: usize,
    pub expect: Expect,
    pub rounds: Vec<Round>,
    pub verdict: Verdict,
    /// Present on valid rows only: a void row has no figures.
    pub summary: Option<Summary>,
    /// Remarks such as `generator-limited`.
    pub marks: Vec<String>,
    /// What a request takes besides time, as callgrind counted it in runs of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Counts>,
    /// Disturbed rounds that the summary leaves out, since enough others are there.
    #[serde(default)]
    pub left_out: usize,
}

/// Whether a row may be quoted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "state", content = "reasons")]
pub enum Verdict {
    Valid,
    /// Something was wrong; the figures stay in the rounds for diagnosis and are printed nowhere.
    Void(Vec<String>),
    /// The subject does not do this.
    Unavailable(String),
}

/// One round as it was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    pub window_seconds: f64,
    pub completed: u64,
    pub rate: f64,
    pub body_bytes: u64,
    pub statuses: BTreeMap<u16, u64>,
    pub faults: Vec<FaultCount>,
    /// Answers that did not prove which request they belong to.
    pub unstamped: u64,
    pub latency: Latency,
    /// Open loop: the same requests timed from when they were really sent.
    pub service: Option<Latency>,
    /// Open loop: how late the generator itself was.
    pub generator_lateness: Option<Latency>,
    pub connect: Option<Latency>,
    pub connections: Connections,
    pub littles_law: Option<LittlesLaw>,
    pub open_loop: Option<OpenLoop>,
    pub subject: Option<Usage>,
    pub backend: Option<Usage>,
    pub generator: Usage,
    pub machine: MachineLoad,
    /// Seconds into the window and resident bytes of the subject.
    pub memory: Vec<(f64, u64)>,
    /// Seconds into the window and cores the subject used since the sample before.
    #[serde(default)]
    pub cpu: Vec<(f64, f64)>,
    /// Seconds into the window and verified answers up to then.
    pub progress: Vec<(f64, u64)>,
    /// What a request of the subject takes besides time, as the processor counted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    pub marks: Vec<String>,
    /// Why the round is void; empty for a good one.
    pub void: Vec<String>,
}

/// Faults of one kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultCount {
    pub kind: FaultKind,
    pub count: u64,
    pub example: String,
}

/// A latency distribution.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Latency {
    pub count: u64,
    pub mean_us: f64,
    pub stdev_us: f64,
    pub min_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub p9999_us: f64,
    pub max_us: f64,
    /// Percentile and microseconds, for curves.
    pub curve: Vec<(f64, f64)>,
    /// How many answers took up to so many microseconds and longer than the ones before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buckets: Vec<(f64, u64)>,
}

/// Connections asked for and had.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Connections {
    pub asked: u32,
    pub opened: u64,
    pub reopened: u64,
    /// What the handshake agreed on.
    pub negotiated: Option<String>,
}

/// In a closed loop rate × mean latency is the number of requests in flight; anything else is a mistake somewhere.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct LittlesLaw {
    pub in_flight: f64,
    pub lanes: u32,
    pub holds: bool,
}

/// What an open loop asked for and got.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct OpenLoop {
    pub asked_rate: f64,
    pub sustained: bool,
    /// Requests that were due while every lane was busy until the end.
    pub never_started: u64,
}

/// What a process used within the window.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Usage {
    pub name: String,
    pub role: Option<Role>,
    pub cpu_seconds: f64,
    /// CPU time over time: 1.0 is one core, always busy.
    pub cores_used: f64,
    pub cores_allowed: f64,
    pub cpu_us_per_request: f64,
    pub resident_bytes: u64,
    pub peak_resident_bytes: u64,
    pub threads: u64,
}

/// The machine within the window, in cores.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct MachineLoad {
    pub busy: f64,
    pub idle: f64,
    pub stolen: f64,
    /// Used by processes that have no part in the test.
    pub foreign: f64,
}

/// The figures of a valid row: medians of its rounds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    pub rate: Spread,
    pub cpu_us_per_request: Option<Spread>,
    pub generator_us_per_request: Spread,
    pub mean_us: Spread,
    pub p50_us: Spread,
    pub p90_us: Spread,
    pub p95_us: Spread,
    pub p99_us: Spread,
    pub p999_us: Spread,
    pub max_us: Spread,
    pub resident_bytes: Option<Spread>,
    /// A request's instructions in user space, and its misses of the first caches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<Spread>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction_misses: Option<Spread>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_misses: Option<Spread>,
}

/// A figure over the rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Standard deviation over mean, in per cent; 0 for one round.
    pub cv_percent: f64,
}

/// Our generator against another one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Check {
    pub test: String,
    pub other: String,
    pub ours: Vec<CheckRun>,
    pub theirs: Vec<CheckRun>,
}

/// One run of a generator.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct CheckRun {
    pub rate: f64,
    pub generator_us_per_request: f64,
    pub server_us_per_request: f64,
}

/// The growing configuration of `scale`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Scale {
    pub batches: Vec<Batch>,
}

/// One batch of `scale`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Batch {
    /// Proxies in the gateway after this batch.
    pub proxies: u64,
    pub write: BatchWrite,
    /// Load while the batch was being written.
    pub during_writes: Option<Round>,
    /// Load after it was written.
    pub steady: Round,
    pub refusals: Refusals,
    /// From the answer to a write until the new proxy answers.
    pub visible: Latency,
    /// Rate as per cent of the first batch's.
    pub percent_of_first: f64,
}

/// How a batch was written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct BatchWrite {
    pub seconds: f64,
    pub calls: u64,
    pub call_latency: Latency,
    pub proxies_per_second: f64,
}

/// Requests that must be refused, and what came of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    pub asked: u64,
    pub refused: u64,
    pub let_through: u64,
}

/// The format's name and version.
pub const FORMAT: &str = "proto_bench/1";

impl Document {
    /// A document that knows where and when it was begun.
    #[must_use]
    pub fn begin(kind: ReportKind) -> Self {
        let own = format!("proto_bench {}", env!("CARGO_PKG_VERSION"));
        Self {
            format: FORMAT.to_owned(),
            kind,
            started: time::now_rfc3339(),
            finished: String::new(),
            command: machine::command_line(),
            revision: machine::revision(),
            machine: machine::look(),
            versions: BTreeMap::from([("proto_bench".to_owned(), own)]),
            settings: BTreeMap::new(),
            rows: Vec::new(),
            notes: Vec::new(),
            configurations: BTreeMap::new(),
            checks: Vec::new(),
            scale: None,
            replay: None,
        }
    }

    /// Notes the end.
    pub fn finish(&mut self) {
        self.finished = time::now_rfc3339();
    }

    /// The row of this test and subject.
    #[must_use]
    pub fn row(&self, id: &str, subject: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id && row.subject == subject)
    }

    /// Whether any row is void.
    #[must_use]
    pub fn has_void(&self) -> bool {
        let scale_void = self.scale.iter().flat_map(|scale| &scale.batches).any(|batch| batch.is_void());
        scale_void || self.rows.iter().any(|row| matches!(row.verdict, Verdict::Void(_)))
    }

    /// Reads a result file.
    ///
    /// # Errors
    /// No such file, or none of ours.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text =
            fs::read_to_string(path).map_err(|source| FileError::Read { path: path.to_owned(), source })?;
        serde_json::from_str(&text).map_err(|source| FileError::Form { path: path.to_owned(), source })
    }

    /// Writes a result file.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        write_file(path, &self.to_json())
    }

    /// The document as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::render(serde_json::to_value(self).unwrap_or_default())
    }
}

impl Row {
    /// Whether its figures may be quoted.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.verdict == Verdict::Valid
    }

    /// Whether other processes used the machine meanwhile.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.marks.iter().any(|mark| mark == marks::DISTURBED || mark == marks::STOLEN)
    }
}

impl Batch {
    /// Whether an answer was wrong, a key was ignored, or figures do not add up.
    #[must_use]
    pub fn is_void(&self) -> bool {
        let during = self.during_writes.as_ref().is_some_and(|round| !round.void.is_empty());
        during || !self.steady.void.is_empty() || !self.refusals.all()
    }
}
