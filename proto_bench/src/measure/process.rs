//! CPU time and resident memory of processes by pid, children included, from /proc.

use std::fs;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a watched process is in the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The process whose cost is asked for.
    Subject,
    /// The echo server behind it.
    Backend,
}

/// A process to watch; its descendants count as part of it, because servers fork workers.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    pub role: Role,
    pub name: String,
    pub pid: u32,
    /// Cores it may use, for the question whether it was at its limit.
    pub cores: f64,
}

/// What a process tree has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu: Duration,
    pub resident_bytes: u64,
    pub threads: u64,
}

/// CPU time of the whole machine since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineTime {
    pub busy: Duration,
    pub idle: Duration,
    /// Taken by the hypervisor for other guests.
    pub stolen: Duration,
}

/// What a process and all its descendants have used; nothing if it is gone.
#[must_use]
pub fn usage(pid: u32) -> Option<Usage> {
    let mut total = usage_of_server(pid)?;
    for child in descendants(pid) {
        if let Some(usage) = usage_of_server(child) {
            total.cpu += usage.cpu;
            total.resident_bytes += usage.resident_bytes;
            total.threads += usage.threads;
        }
    }
    Some(total)
}

/// What this very process has used.
#[must_use]
pub fn own_usage() -> Usage {
    usage_of_one(std::process::id()).unwrap_or_default()
}

/// CPU time of the machine.
#[must_use]
pub fn machine_time() -> MachineTime {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks: Vec<u64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let tick = |index: usize| ticks.get(index).copied().unwrap_or(0);
    // user nice system idle iowait irq softirq steal
    MachineTime {
        busy: from_ticks(tick(0) + tick(1) + tick(2) + tick(5) + tick(6)),
        idle: from_ticks(tick(3) + tick(4)),
        stolen: from_ticks(tick(7)),
    }
}

fn usage_of_one(pid: u32) -> Option<Usage> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name stands in parentheses and may hold anything, so the fields start after the last one.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
    let resident_pages = fs::read_to_string(format!("/proc/{pid}/statm"))
        .ok()
        .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok())
        .unwrap_or(0);
    Some(Usage {
        cpu: from_ticks(number(11)? + number(12)?),
        resident_bytes: resident_pages * rustix::param::page_size() as u64,
        threads: number(17).unwrap_or(1),
    })
}

/// A server's usage, to the nanosecond where the kernel tells: the ticks of `stat` are 10 ms, one per cent of a slice of a
/// second.
fn usage_of_server(pid: u32) -> Option<Usage> {
    let usage = usage_of_one(pid)?;
    Some(Usage { cpu: precise_cpu(pid).unwrap_or(usage.cpu), ..usage })
}

/// CPU time of a process's threads. Threads that have ended are not in it; servers keep theirs.
fn precise_cpu(pid: u32) -> Option<Duration> {
    let mut total = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
        let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
        total += Duration::from_nanos(text.split_ascii_whitespace().next()?.parse().ok()?);
    }
    (total > Duration::ZERO).then_some(total)
}

/// Children of a process, theirs, and so on.
#[must_use]
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut to_visit = vec![pid];
    while let Some(parent) = to_visit.pop() {
        let Ok(tasks) = fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for child in children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()) {
                found.push(child);
                to_visit.push(child);
            }
        }
    }
    found
}

fn from_ticks(ticks: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_nanos(ticks * (1_000_000_000 / per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_and_its_children_are_counted() {
        let own = own_usage();
        assert!(own.resident_bytes > 0 && own.threads > 0);
        assert!(usage(std::process::id()).is_some_and(|tree| tree.resident_bytes >= own.resident_bytes));
        assert_eq!(usage(u32::MAX), None);
    }

    #[test]
    fn the_machine_has_been_idle_at_times() {
        assert!(machine_time().idle > Duration::ZERO);
    }
}
