//! Watches memory, descriptors and the workers, and says how overloaded the gateway is.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use gateway_core::config::model::OverloadRules;
use gateway_core::limit::overload::{Overload, OverloadLevel, level_of};
use gateway_protocols::worker::Order;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use tokio::time::Instant;

use crate::engine::Engine;
use crate::export::Load;

/// From one look to the next.
const INTERVAL: Duration = Duration::from_millis(250);
/// Looks between two counts of the descriptors while they can't be short; counting costs by their number.
const LOOKS_PER_COUNT: u32 = 20;
/// Looks between two counts while they may be.
const LOOKS_PER_COUNT_NEAR: u32 = 4;
/// They may be short when client connections alone, or all that were counted last, are this share of the limit.
const NEAR: f64 = 0.25;
/// A worker is waited for at one look this many times as long as it may take.
const MAX_DELAYS: u32 = 4;

/// Looks until the gateway ends.
pub(super) async fn run(engine: Arc<Engine>) -> Result<(), Infallible> {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let cgroup_limit = cgroup_limit(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup"));
    let page = rustix::param::page_size() as u64;
    // Kept open: once descriptors have run out it could not be opened any more.
    let mut statm = None;
    let mut load = Load::default();
    let busyness = engine.busyness();
    let mut cpu = CpuUse::begin(engine.workers());
    for look in 0_u32.. {
        ticks.tick().await;
        busyness.measured(cpu.share());
        let rules = engine.snapshot().settings.overload;
        statm = statm.or_else(|| File::open("/proc/self/statm").ok());
        load.memory = statm.as_ref().and_then(own_pages).unwrap_or(0) * page;
        load.memory_limit = match rules.max_memory {
            Some(0) => None,
            Some(limit) => Some(limit),
            None => cgroup_limit,
        };
        load.descriptor_limit = limit_descriptors(&engine.shared.overload);
        if look.is_multiple_of(looks_per_count(&load, engine.shared.connections() as u64)) {
            load.descriptors = descriptors(descriptor_count(), load.descriptor_limit);
        }
        load.delay = if rules.max_delay.is_zero() {
            Duration::ZERO
        } else {
            delay(&engine, rules.max_delay * MAX_DELAYS).await
        };
        tell(&engine, &load, rules);
    }
    Ok(())
}

/// How much CPU time the process takes.
struct CpuUse {
    cpus: usize,
    used: Duration,
    at: Instant,
}

impl CpuUse {
    /// Begins to measure for so many workers: as many CPUs, or all there are for the process.
    fn begin(workers: usize) -> Self {
        let available = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
        Self { cpus: workers.clamp(1, available.max(1)), used: cpu_time(), at: Instant::now() }
    }

    /// The share of the CPUs' time that was used since this was last asked.
    fn share(&mut self) -> f64 {
        let (used, at) = (cpu_time(), Instant::now());
        let spent = used.saturating_sub(std::mem::replace(&mut self.used, used));
        let passed = at.saturating_duration_since(std::mem::replace(&mut self.at, at));
        if passed.is_zero() { 0.0 } else { spent.as_secs_f64() / (passed.as_secs_f64() * self.cpus as f64) }
    }
}

/// The CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Has clients leave some descriptors free, and says how many there may be. Called before the first client comes, and again since
/// the limit may be changed from outside.
pub(crate) fn limit_descriptors(overload: &Overload) -> Option<u64> {
    let limit = getrlimit(Resource::Nofile).current;
    overload.set_descriptor_limit(limit);
    limit
}

/// What was counted last matters as well: clients that have gone must not leave the gateway overloaded until the next rare
/// count.
fn looks_per_count(load: &Load, connections: u64) -> u32 {
    let used = connections.max(load.descriptors);
    match load.descriptor_limit {
        Some(limit) if used as f64 > limit as f64 * NEAR => LOOKS_PER_COUNT_NEAR,
        _ => LOOKS_PER_COUNT,
    }
}

/// Takes the consequences.
fn tell(engine: &Engine, load: &Load, rules: OverloadRules) {
    let overload = &engine.shared.overload;
    let before = overload.level();
    overload.set_memory(load.memory, load.memory_limit);
    let level = level_of(load.used(), load.lateness(rules), before);
    overload.set_level(level);
    let load = &Load { level, ..*load };
    *engine.telemetry.control.load.lock().unwrap_or_else(PoisonError::into_inner) = *load;
    if level != before {
        let Load { memory, descriptors, delay, .. } = load;
        let delay = delay.as_millis() as u64;
        match level {
            OverloadLevel::Normal => tracing::info!(memory, descriptors, delay, "no longer overloaded"),
            _ => tracing::warn!(level = level.as_str(), memory, descriptors, delay, "overloaded"),
        }
    }
    if level > OverloadLevel::Normal {
        engine.tell(|| Order::ShedIdle);
    }
}

/// How long the slowest worker takes to get to an order.
async fn delay(engine: &Engine, longest: Duration) -> Duration {
    let begun = Instant::now();
    match tokio::time::timeout(longest, join_all(engine.confirmations())).await {
        Ok(_) => begun.elapsed(),
        Err(_) => longest,
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Pages that are resident and no file's, from `/proc/self/statm`: the second field without the third. The system takes pages of the
/// program and of other files back as it needs them, so they are no load.
fn own_pages(statm: &File) -> Option<u64> {
    let mut line = [0; 128];
    let length = statm.read_at(&mut line, 0).ok()?;
    own_pages_of(std::str::from_utf8(line.get(..length)?).ok()?)
}

fn own_pages_of(line: &str) -> Option<u64> {
    let mut fields = line.split_whitespace().skip(1).map(|field| field.parse::<u64>().ok());
    let (resident, of_files) = (fields.next()??, fields.next()??);
    Some(resident.saturating_sub(of_files))
}

fn descriptor_count() -> io::Result<u64> {
    // One of them is the descriptor that reads the directory.
    Ok(fs::read_dir("/proc/self/fd")?.count().saturating_sub(1) as u64)
}

/// Counting takes a descriptor itself, so that there is none left when it fails for want of one.
fn descriptors(counted: io::Result<u64>, limit: Option<u64>) -> u64 {
    match counted {
        Ok(count) => count,
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::MFILE | Errno::NFILE)) => {
            limit.unwrap_or(u64::MAX)
        }
        // Where there is no `/proc`, nothing is known.
        Err(_) => 0,
    }
}

/// The least memory limit of this process's cgroup and those above it, in bytes; `None` where there is none. `groups` is
/// the text of `/proc/self/cgroup`, `root` where cgroups are mounted. Both versions are understood.
pub(crate) fn cgroup_limit(root: &Path, groups: &str) -> Option<u64> {
    /// What version 1 says where there is no limit, rounded to pages in different ways.
    const UNLIMITED: u64 = 1 << 60;
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let (mount, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // Within a container its own group is the root of what it sees.
        let folders = Path::new(group.trim_start_matches('/')).ancestors().map(PathBuf::from);
        for folder in folders {
            let text = fs::read_to_string(mount.join(folder).join(file)).unwrap_or_default();
            limits.extend(text.trim().parse::<u64>().ok().filter(|limit| *limit < UNLIMITED));
        }
    }
    limits.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_above_the_process_counts() {
        let root = std::env::temp_dir().join(format!("ferrum-cgroup-{}", std::process::id()));
        let inner = root.join("a/b");
        fs::create_dir_all(&inner).unwrap();
        fs::create_dir_all(root.join("memory/c")).unwrap();
        let write = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
        assert_eq!(cgroup_limit(&root, "0::/a/b\n"), None);
        write("a/b/memory.max", "max\n");
        assert_eq!(cgroup_limit(&root, "0::/a/b\n"), None);
        write("a/memory.max", "1000000\n");
        assert_eq!(cgroup_limit(&root, "0::/a/b\n"), Some(1_000_000));
        write("a/b/memory.max", "500000\n");
        assert_eq!(cgroup_limit(&root, "0::/a/b\n"), Some(500_000));
        write("memory/memory.limit_in_bytes", "9223372036854771712\n");
        write("memory/c/memory.limit_in_bytes", "700000\n");
        assert_eq!(cgroup_limit(&root, "5:cpu:/x\n4:memory:/c\n"), Some(700_000));
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn work_is_seen_as_a_share_of_the_cpus() {
        let mut cpu = CpuUse::begin(1);
        let before = cpu_time();
        // Until the process has worked for some time, however long that takes.
        while cpu_time().saturating_sub(before) < Duration::from_millis(20) {
            std::hint::black_box((0..10_000_u64).sum::<u64>());
        }
        let share = cpu.share();
        assert!(share > 0.0, "{share}");
    }

    #[test]
    fn descriptors_are_counted_often_while_they_may_be_short() {
        let load = |descriptors, limit| Load { descriptors, descriptor_limit: limit, ..Load::default() };
        assert_eq!(looks_per_count(&load(20, Some(1000)), 0), LOOKS_PER_COUNT);
        assert_eq!(looks_per_count(&load(20, Some(1000)), 251), LOOKS_PER_COUNT_NEAR);
        // The clients have gone since the last count.
        assert_eq!(looks_per_count(&load(900, Some(1000)), 0), LOOKS_PER_COUNT_NEAR);
        assert_eq!(looks_per_count(&load(900, None), 900), LOOKS_PER_COUNT);
    }

    #[test]
    fn all_descriptors_are_in_use_when_none_is_left_to_count_them() {
        assert_eq!(descriptors(Ok(7), Some(64)), 7);
        for error in [Errno::MFILE, Errno::NFILE] {
            assert_eq!(descriptors(Err(error.into()), Some(64)), 64);
        }
        assert_eq!(descriptors(Err(Errno::NOENT.into()), Some(64)), 0);
    }

    #[test]
    fn resident_memory_is_read_again_and_again_from_one_file() {
        let statm = File::open("/proc/self/statm").unwrap();
        assert!(own_pages(&statm).unwrap() > 100);
        assert!(own_pages(&statm).unwrap() > 100);
        assert_eq!(own_pages_of("9000 5000 3000 20 0 800 0\n"), Some(2000));
        assert_eq!(own_pages_of("9000"), None);
    }
}
