//! What the processor counts while a program runs, read by `perf stat`: instructions and cache misses, where the machine has
//! such counters. Many virtual machines have none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What a request costs besides time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// In user space.
    pub instructions: f64,
    /// Misses of the first instruction cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instruction_misses: Option<f64>,
    /// Misses of the first data cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_misses: Option<f64>,
}

/// A running `perf stat`.
#[derive(Debug)]
pub struct Perf {
    child: Child,
    file: PathBuf,
}

const INSTRUCTIONS: &str = "instructions:u";
const INSTRUCTION_MISSES: &str = "L1-icache-load-misses:u";
const DATA_MISSES: &str = "L1-dcache-load-misses:u";
const CLOCK: &str = "task-clock:u";
/// How long `perf` may take to write what it has counted.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Why instructions cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CountersError {
    #[error("perf cannot be run ({0})")]
    Perf(#[source] io::Error),
    #[error("this machine has no such counters")]
    Unsupported,
    /// What `perf` says instead of a count.
    #[error("perf says `{0}`")]
    Refused(String),
    #[error("perf says nothing")]
    Silent,
}

/// Whether instructions can be counted here; if not, why.
///
/// # Errors
/// No `perf`, no counters, or no permission.
pub fn available() -> Result<(), CountersError> {
    let output = Command::new("perf")
        .args(["stat", "-x", ",", "-e", INSTRUCTIONS, "--", "true"])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(CountersError::Perf)?;
    let text = String::from_utf8_lossy(&output.stderr);
    if figure(&text, INSTRUCTIONS).is_some() {
        return Ok(());
    }
    let line = text.lines().find(|line| line.contains('<')).or_else(|| text.lines().next());
    Err(match line {
        Some(line) if line.contains("<not supported>") => CountersError::Unsupported,
        Some(line) => CountersError::Refused(line.trim().to_owned()),
        None => CountersError::Silent,
    })
}

impl Perf {
    /// Counts for a process and its children until it is told to end.
    ///
    /// # Errors
    /// `perf` cannot be started.
    pub fn start(pids: &[u32]) -> io::Result<Self> {
        let file = std::env::temp_dir().join(format!("proto_bench-perf-{:016x}", fastrand::u64(..)));
        let list: Vec<String> = pids.iter().map(u32::to_string).collect();
        let events = [INSTRUCTIONS, INSTRUCTION_MISSES, DATA_MISSES, CLOCK].join(",");
        let child = Command::new("perf")
            .args(["stat", "-x", ",", "-e", &events, "-p", &list.join(","), "-o"])
            .arg(&file)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { child, file })
    }

    /// Ends counting. The counts are those of a request that takes this much CPU time: `perf` begins and ends a little
    /// beside the window, so it is asked for counts in each microsecond of the program's time.
    #[must_use]
    pub fn end(mut self, cpu_us_per_request: f64) -> Option<Counts> {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw)?;
        // It may have ended with the program it watched.
        rustix::process::kill_process(pid, rustix::process::Signal::INT).ok();
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < END_LIMIT {
            thread::sleep(Duration::from_millis(2));
        }
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        counts(&text, cpu_us_per_request)
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        // Usually it has ended and its file is read; neither matters to anybody any more.
        self.child.kill().ok();
        self.child.wait().ok();
        fs::remove_file(&self.file).ok();
    }
}

fn counts(text: &str, cpu_us_per_request: f64) -> Option<Counts> {
    let clock_us = figure(text, CLOCK)? * 1e3;
    let each = |event: &str| Some(figure(text, event)? / clock_us * cpu_us_per_request);
    let instructions = each(INSTRUCTIONS).filter(|_| clock_us > 0.0 && cpu_us_per_request > 0.0)?;
    Some(Counts {
        instructions,
        instruction_misses: each(INSTRUCTION_MISSES),
        data_misses: each(DATA_MISSES),
    })
}

/// The figure of an event in lines of `value,unit,event,…`.
fn figure(text: &str, event: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let mut fields = line.split(',');
        let (value, _, name) = (fields.next()?, fields.next()?, fields.next()?);
        // Where the `u` is implied, it is left out.
        let is_it = name == event || Some(name) == event.strip_suffix(":u");
        if is_it { value.trim().parse().ok() } else { None }
    })
}

/// Why there are no counts of callgrind.
#[derive(Debug, thiserror::Error)]
pub enum TotalsError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error("callgrind wrote no totals")]
    Missing,
}

/// The counts that callgrind wrote into a folder, over all processes: instructions, misses of the instruction cache, and of the
/// data cache.
///
/// # Errors
/// No file with totals.
pub fn callgrind_totals(directory: &Path) -> Result<[f64; 3], TotalsError> {
    let files = fs::read_dir(directory)?;
    let mut sums = None;
    for file in files.flatten().filter(|file| file.file_name().to_string_lossy().starts_with(CALLGRIND_FILE))
    {
        let text = fs::read(file.path())?;
        if let Some(totals) = totals(&String::from_utf8_lossy(&text)) {
            let [instructions, code, data] = sums.unwrap_or_default();
            sums = Some([instructions + totals[0], code + totals[1], data + totals[2]]);
        }
    }
    sums.ok_or(TotalsError::Missing)
}

/// How names of callgrind's files begin.
pub const CALLGRIND_FILE: &str = "callgrind.";

fn totals(text: &str) -> Option<[f64; 3]> {
    let names: Vec<&str> = text.lines().find_map(|line| line.strip_prefix("events: "))?.split(' ').collect();
    let line = text.lines().rev().find_map(|line| line.strip_prefix("totals: "))?;
    let values: Vec<f64> = line.split(' ').filter_map(|value| value.parse().ok()).collect();
    let of = |name: &str| {
        let at = names.iter().position(|known| *known == name)?;
        values.get(at).copied()
    };
    Some([of("Ir")?, of("I1mr")?, of("D1mr")? + of("D1mw")?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_of_one_request() {
        let text = "# started\n\n40000000,,instructions:u,1000,100.00,,\n80000,,L1-icache-load-misses:u,1000,100.00,,\n\
                    <not supported>,,L1-dcache-load-misses:u,0,100.00,,\n10.00,msec,task-clock,1000,100.00,,\n";
        let counts = counts(text, 5.0).expect("counted");
        assert!((counts.instructions - 20_000.0).abs() < 1e-6);
        assert!(counts.instruction_misses.is_some_and(|misses| (misses - 40.0).abs() < 1e-6));
        assert_eq!(counts.data_misses, None);
        assert_eq!(super::counts("<not supported>,,instructions:u,0,100.00,,\n", 5.0), None);
    }

    #[test]
    fn totals_of_several_processes_are_added() {
        let directory = std::env::temp_dir().join(format!("proto_bench-totals-{:08x}", fastrand::u32(..)));
        fs::create_dir_all(&directory).expect("a folder");
        let text = "version: 1\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nfn=a\n1 2\ntotals: 100 9 9 7 3 2 0 0 0\n";
        for pid in ["1", "2"] {
            fs::write(directory.join(format!("{CALLGRIND_FILE}{pid}")), text).expect("written");
        }
        fs::write(directory.join("other"), text).expect("written");
        assert_eq!(callgrind_totals(&directory).ok(), Some([200.0, 14.0, 10.0]));
        fs::remove_dir_all(&directory).expect("removed");
        assert!(callgrind_totals(&directory).is_err());
    }
}
