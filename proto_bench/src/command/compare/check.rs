//! Other people's generators on the same nginx in the same run: do the figures agree, and what does ours cost?

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::Bench;
use crate::command::CommandError;
use crate::command::measure::Console;
use crate::command::stand::{ProxyPlacement, Stand, StandError};
use crate::driver::Fault;
use crate::engine;
use crate::measure::{Role, Watched, process};
use crate::peers::{Peer, Test};
use crate::plan::Plan;
use crate::report::Document;
use crate::report::model::{Check, CheckRun};

/// A generator to check against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Checker {
    Wrk,
    H2load,
}

/// Why a check has no result.
#[derive(Debug, thiserror::Error)]
enum CheckError {
    #[error(transparent)]
    Stand(#[from] StandError),
    #[error(transparent)]
    Round(#[from] Fault),
    #[error("our own run was void: {0}")]
    Void(String),
    #[error("it does not start: {0}")]
    Start(#[source] std::io::Error),
    #[error("its output is not a clean run: {0}")]
    Unclean(String),
}

impl Checker {
    pub(super) fn version_command(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Wrk => ("wrk", &["-v"]),
            Self::H2load => ("h2load", &["--version"]),
        }
    }

    fn name(self) -> &'static str {
        self.version_command().0
    }

    fn test(self) -> Test {
        match self {
            Self::Wrk => Test::Fixed,
            Self::H2load => Test::FixedH2,
        }
    }

    fn command(self, plan: &Plan) -> Command {
        let load = plan.load;
        let seconds = plan.timing.duration.as_secs().max(1);
        let url = format!("http://{}{}", plan.target.address, plan.target.path);
        let mut command = Command::new(self.name());
        command.args(["-t1", &format!("-c{}", load.connections)]);
        match self {
            Self::Wrk => command.arg(format!("-d{seconds}s")),
            Self::H2load => command.arg(format!("-m{}", load.streams)).arg(format!("-D{seconds}")),
        };
        command.arg(url);
        command
    }

    /// Good answers and seconds, from what the program prints; nothing if any answer was bad.
    fn read(self, text: &str) -> Option<(u64, f64)> {
        match self {
            Self::Wrk => read_wrk(text),
            Self::H2load => read_h2load(text),
        }
    }
}

/// One round of every check.
pub(super) fn rounds(
    bench: &Bench<'_>,
    document: &mut Document,
    console: &Console,
) -> Result<(), CommandError> {
    for checker in &bench.args.check_with {
        let Some(program) = bench.nginx() else {
            document.notes.push("No check: nginx is not installed here.".to_owned());
            return Ok(());
        };
        console.say(&format!("check with {}", checker.name()));
        match round(bench, *checker, &program) {
            Ok((ours, theirs)) => {
                let check = entry(document, *checker);
                check.ours.push(ours);
                check.theirs.push(theirs);
            }
            Err(reason) => document.notes.push(format!("No check with {}: {reason}.", checker.name())),
        }
    }
    console.clear();
    Ok(())
}

fn entry(document: &mut Document, checker: Checker) -> &mut Check {
    let name = checker.name();
    let at = document.checks.iter().position(|check| check.other == name).unwrap_or_else(|| {
        let label = checker.test().label().to_owned();
        document.checks.push(Check {
            test: label,
            other: name.to_owned(),
            ours: Vec::new(),
            theirs: Vec::new(),
        });
        document.checks.len() - 1
    });
    &mut document.checks[at]
}

fn round(bench: &Bench<'_>, checker: Checker, nginx: &Path) -> Result<(CheckRun, CheckRun), CheckError> {
    let test = checker.test();
    let listen = bench.stand.port()?;
    let mut plan = bench.load.plan(Stand::target(test, listen));
    // The others count from their first request, so ours must too.
    plan.timing.warm_up = Duration::ZERO;
    plan.threads = 1;
    test.shape(&mut plan, bench.args.multiplexed_connections, super::STREAMS);
    let core = Some(bench.args.server_core);
    let place = ProxyPlacement { backend: &bench.backend.ports, listen, workers: 1, core };
    let (server, _) = bench.stand.start(Peer::Nginx, test, nginx, place)?;
    let ours = run_ours(&plan, server.pid())?;
    let theirs = run_theirs(checker, &plan, server.pid())?;
    Ok((ours, theirs))
}

fn run_ours(plan: &Plan, nginx: u32) -> Result<CheckRun, CheckError> {
    let watched = [Watched { role: Role::Subject, name: "nginx".to_owned(), pid: nginx, cores: 1.0 }];
    let outcome = engine::run(plan, &watched, &mut |_| {})?;
    let round = crate::report::Round::new(plan, &outcome);
    if let Some(reason) = round.void.first() {
        return Err(CheckError::Void(reason.clone()));
    }
    Ok(CheckRun {
        rate: round.rate,
        generator_us_per_request: round.generator.cpu_us_per_request,
        server_us_per_request: round.subject.map_or(0.0, |usage| usage.cpu_us_per_request),
    })
}

fn run_theirs(checker: Checker, plan: &Plan, nginx: u32) -> Result<CheckRun, CheckError> {
    let before = process::usage(nginx).unwrap_or_default().cpu;
    let children_before = children_cpu();
    let output = checker.command(plan).output().map_err(CheckError::Start)?;
    let generator = children_cpu().saturating_sub(children_before);
    let server = process::usage(nginx).unwrap_or_default().cpu.saturating_sub(before);
    let text = String::from_utf8_lossy(&output.stdout);
    let (count, seconds) = checker.read(&text).ok_or_else(|| CheckError::Unclean(text.trim().to_owned()))?;
    #[expect(clippy::cast_precision_loss, reason = "a count of requests")]
    let count = count as f64;
    let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / count;
    Ok(CheckRun {
        rate: count / seconds,
        generator_us_per_request: each(generator),
        server_us_per_request: each(server),
    })
}

/// CPU time of our children that have ended and were waited for.
fn children_cpu() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_nanos(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)))
}

fn read_wrk(text: &str) -> Option<(u64, f64)> {
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return None;
    }
    let line = text.lines().find(|line| line.contains(" requests in "))?;
    let mut words = line.split_ascii_whitespace();
    let count = words.next()?.parse().ok()?;
    let seconds = words.nth(2)?.trim_end_matches(',').trim_end_matches('s').parse().ok()?;
    Some((count, seconds))
}

fn read_h2load(text: &str) -> Option<(u64, f64)> {
    let number = |text: &str| text.split_ascii_whitespace().next()?.parse::<u64>().ok();
    let finished = text.lines().find_map(|line| line.strip_prefix("finished in "))?;
    let seconds = finished.split('s').next()?.parse().ok()?;
    let parts: Vec<&str> =
        text.lines().find_map(|line| line.strip_prefix("requests: "))?.split(", ").collect();
    let count = |what: &str| parts.iter().find(|part| part.contains(what)).and_then(|part| number(part));
    let clean = count("failed")? == 0 && count("errored")? == 0 && count("timeout")? == 0;
    clean.then_some((count("succeeded")?, seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrk_is_read() {
        let text =
            "Running 4s test @ http://x/\n  223399 requests in 4.02s, 45.38MB read\nRequests/sec:  55571\n";
        assert_eq!(read_wrk(text), Some((223_399, 4.02)));
        assert_eq!(read_wrk(&format!("{text}  Non-2xx or 3xx responses: 5\n")), None);
    }

    #[test]
    fn h2load_is_read() {
        let text = "finished in 4.00s, 49671.25 req/s, 3.5MB/s\n\
                    requests: 198685 total, 198885 started, 198685 done, 198685 succeeded, 0 failed, 0 errored, 0 timeout\n";
        assert_eq!(read_h2load(text), Some((198_685, 4.0)));
        assert_eq!(read_h2load(&text.replace("0 failed", "3 failed")), None);
    }
}
