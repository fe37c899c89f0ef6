//! What the system says about this process.

use std::fs;

/// Linux's unit of CPU time in `/proc`, the same on every architecture it is compiled for here.
const TICKS_PER_SECOND: f64 = 100.0;

/// Numbers of this process; those that can't be read are absent.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Process {
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) resident: Option<u64>,
    pub(crate) virtual_memory: Option<u64>,
    pub(crate) threads: Option<u64>,
    pub(crate) fds: Option<u64>,
    pub(crate) max_fds: Option<u64>,
}

impl Process {
    /// Asks `/proc`.
    pub(crate) fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let kib = |name: &str| field(&status, name).map(|kib| kib * 1024);
        Self {
            cpu_seconds: cpu(&stat),
            resident: kib("VmRSS:"),
            virtual_memory: kib("VmSize:"),
            threads: field(&status, "Threads:"),
            // One of them is the descriptor that reads the directory.
            fds: fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1) as u64),
            max_fds: field(&limits, "Max open files"),
        }
    }
}

/// The first number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and system time, fields 14 and 15. The name in parentheses before them may hold anything.
fn cpu(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system) = (fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?);
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_this_process() {
        let process = Process::read();
        assert!(process.resident.is_some_and(|bytes| bytes > 100_000), "{process:?}");
        assert!(process.cpu_seconds.is_some() && process.fds.is_some_and(|n| n > 2));
        assert!(process.threads.is_some_and(|n| n > 0) && process.max_fds.is_some());
    }

    #[test]
    fn a_process_name_with_parentheses_is_passed_over() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20";
        assert_eq!(cpu(stat), Some(2.0));
        assert_eq!(cpu("rubbish"), None);
    }
}
