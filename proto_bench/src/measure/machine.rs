//! The machine a figure was measured on: a figure without it means nothing.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

/// Hardware and kernel.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    pub governor: String,
    pub virtualised: bool,
    /// Soft limit of open files of this process.
    pub open_files: u64,
}

/// The source a program was built from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    pub commit: String,
    /// Files differ from the commit.
    pub modified: bool,
}

/// Looks at this machine.
#[must_use]
pub fn look() -> Machine {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kernel = rustix::system::uname();
    let governor = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    Machine {
        cpu: field(&cpuinfo, "model name").unwrap_or_else(|| "unknown".to_owned()),
        // Of the machine, not of what this process is pinned to.
        cores: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
        memory_bytes: field(&meminfo, "MemTotal")
            .and_then(|text| text.split_ascii_whitespace().next()?.parse::<u64>().ok())
            .unwrap_or(0)
            * 1024,
        kernel: format!(
            "{} {} {}",
            kernel.sysname().to_string_lossy(),
            kernel.release().to_string_lossy(),
            kernel.machine().to_string_lossy()
        ),
        governor: governor
            .map_or_else(|_| "none (virtual machine or fixed)".to_owned(), |text| text.trim().to_owned()),
        virtualised: field(&cpuinfo, "flags").is_some_and(|flags| flags.contains("hypervisor")),
        open_files: rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX),
    }
}

/// The git revision of the working directory, if it is in a repository.
#[must_use]
pub fn revision() -> Option<Revision> {
    let commit = output("git", &["rev-parse", "--short=12", "HEAD"])?;
    let modified = output("git", &["status", "--porcelain", "--untracked-files=no"])?;
    Some(Revision { commit, modified: !modified.is_empty() })
}

/// The command line this process was started with.
#[must_use]
pub fn command_line() -> String {
    without_secrets(std::env::args())
}

/// Joins arguments; what follows `--token`, and the values of headers, may be secret and stay out of result files.
fn without_secrets(arguments: impl Iterator<Item = String>) -> String {
    const HIDDEN: &str = "***";
    let mut words: Vec<String> = Vec::new();
    for argument in arguments {
        let shown = match words.last().map(String::as_str) {
            Some("--token") => HIDDEN.to_owned(),
            Some("-H" | "--header") => hide_value(&argument),
            _ => match argument.split_once('=') {
                Some((flag @ "--token", _)) => format!("{flag}={HIDDEN}"),
                Some((flag @ "--header", header)) => format!("{flag}={}", hide_value(header)),
                _ => argument,
            },
        };
        words.push(if shown.contains(' ') { format!("'{shown}'") } else { shown });
    }
    return words.join(" ");

    fn hide_value(header: &str) -> String {
        header.split_once(':').map_or_else(|| HIDDEN.to_owned(), |(name, _)| format!("{name}: {HIDDEN}"))
    }
}

/// First lines of `program --version` (or what else prints it), for programs found on this machine.
#[must_use]
pub fn versions(programs: &[(&str, &str, &[&str])]) -> BTreeMap<String, String> {
    programs
        .iter()
        .filter_map(|(name, program, arguments)| Some(((*name).to_owned(), first_line(program, arguments)?)))
        .collect()
}

/// Raises the limit of open files as far as it may; children inherit it. Returns the new limit.
pub fn raise_open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const WANTED: u64 = 100_000;
    let limit = getrlimit(Resource::Nofile);
    let to = |limit: Option<u64>| Rlimit { current: limit, maximum: limit };
    // Only the privileged may go above the hard limit; others get as far as that.
    if limit.maximum.is_some_and(|maximum| maximum >= WANTED)
        || setrlimit(Resource::Nofile, to(Some(WANTED))).is_err()
    {
        setrlimit(Resource::Nofile, to(limit.maximum)).ok();
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    // wrk and nginx print their version on stderr, and wrk with a failure code.
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = match (output.stdout.is_empty(), output.status.success()) {
        (false, _) => output.stdout,
        (true, true) => output.stderr,
        (true, false) => return None,
    };
    String::from_utf8_lossy(&text).lines().next().map(|line| line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[test]
    fn secrets_stay_out_of_the_command() {
        let check = |words: &[&str], expected| {
            assert_eq!(without_secrets(words.iter().map(|word| (*word).to_owned())), expected);
        };
        check(&["p", "--token", "abc", "-d", "1s"], "p --token *** -d 1s");
        check(&["p", "--token=abc"], "p --token=***");
        check(&["p", "-H", "authorization: Bearer x"], "p -H 'authorization: ***'");
        check(&["p", "--header=x-api-key: k"], "p '--header=x-api-key: ***'");
    }
}
