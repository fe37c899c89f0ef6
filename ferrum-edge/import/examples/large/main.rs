//! Imports files of 10 MB in each format, of several shapes, and says how long each takes; fails where one takes more than 2 s:
//! `cargo run --release -p ferrum-gateway-import --example large -- [NAME, OR PART OF NAMES] [BYTES]`.

mod shapes;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gateway_import::{NoFiles, Options, import};

const BYTES: usize = 10_000_000;
const MOST: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let bytes = std::env::args().nth(2).and_then(|bytes| bytes.parse().ok()).unwrap_or(BYTES);
    let is_name = shapes::all().any(|shape| shape.name == wanted);
    let is_wanted = |name: &str| if is_name { name == wanted } else { name.contains(&wanted) };
    let mut is_slow = false;
    let mut out = String::new();
    for shape in shapes::all().filter(|shape| is_wanted(shape.name)) {
        let source = [("file".to_owned(), shape.text(usize::MAX, bytes))];
        let begun = Instant::now();
        let made = import(shape.format, &source, &NoFiles, Options::default());
        let taken = begun.elapsed();
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
