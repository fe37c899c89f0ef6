//! Imports files of 10 MB in each format, of several shapes, and prints the CPU time of each; fails where one takes more than 2 s:
//! `cargo run --release -p ferrum-gateway-import --example large -- [NAME, OR PART OF NAMES] [BYTES]`.
//!
//! Outside Linux it prints the time by the clock. Memory comes from the allocator of the program `ferrum-edge`.

mod shapes;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gateway_import::{NoFiles, Options, import};

const BYTES: usize = 10_000_000;
const MOST: Duration = Duration::from_secs(2);

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let bytes = std::env::args().nth(2).and_then(|bytes| bytes.parse().ok()).unwrap_or(BYTES);
    let is_name = shapes::all().any(|shape| shape.name == wanted);
    let is_wanted = |name: &str| if is_name { name == wanted } else { name.contains(&wanted) };
    let mut is_slow = false;
    let mut out = String::new();
    for shape in shapes::all().filter(|shape| is_wanted(shape.name)) {
        let source = [("file".to_owned(), shape.text(usize::MAX, bytes))];
        let start = Timer::start();
        let made = import(shape.format, &source, &NoFiles, Options::default());
        let taken = start.elapsed();
        is_slow |= taken > MOST;
        let what = match &made {
            Ok(made) => format!("{} proxies, {} upstreams", made.proxies.len(), made.upstreams.len()),
            Err(error) => error.to_string(),
        };
        out.clear();
        writeln!(out, "{:<48} {:>6.2} s  {what}", shape.name, taken.as_secs_f64()).ok();
        drop(std::io::stdout().write_all(out.as_bytes()));
    }
    if is_slow { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Measures the CPU time of this thread, or the time by the clock where the system does not count it.
struct Timer {
    cpu: Option<Duration>,
    clock: Instant,
}

impl Timer {
    fn start() -> Self {
        Self { cpu: cpu_time(), clock: Instant::now() }
    }

    fn elapsed(&self) -> Duration {
        let cpu = self.cpu.zip(cpu_time()).map(|(start, now)| now.saturating_sub(start));
        cpu.unwrap_or_else(|| self.clock.elapsed())
    }
}

/// How long this thread has run: Linux counts it in nanoseconds.
fn cpu_time() -> Option<Duration> {
    let counts = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    counts.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}
