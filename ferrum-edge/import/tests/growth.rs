//! An import takes time in proportion to its file: twice the file takes about twice as long. `examples/large.rs` measures the same
//! shapes at 10 MB.

mod growth {
    pub(super) mod shapes;
}

use std::time::{Duration, Instant};

use gateway_import::{MAX_FILE_BYTES, NoFiles, Options, import};
use growth::shapes::{SHAPES, Shape};

/// Twice the constructs may take so many times as long.
const MOST_GROWTH: f64 = 2.6;
/// A file whose import takes less is too small for its growth to be measured.
const LEAST: Duration = Duration::from_millis(30);

/// Time on a processor of this thread, or by the clock where the system does not tell.
fn on_processor(begun: Instant) -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = told.and_then(|told| told.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| begun.elapsed(), Duration::from_nanos)
}

/// The least of three times, which is the one that others on this machine disturbed least.
fn time(shape: &Shape, count: usize) -> Duration {
    let source = [("file".to_owned(), shape.text(count, MAX_FILE_BYTES))];
    let begun = Instant::now();
    let once = |_| {
        let before = on_processor(begun);
        drop(import(shape.format, &source, &NoFiles, Options::default()));
        on_processor(begun) - before
    };
    (0..3).map(once).min().unwrap_or_default()
}

#[test]
#[ignore = "it measures, and takes longer than a minute in a debug build"]
fn time_grows_no_faster_than_files() {
    let mut failed = Vec::new();
    for shape in SHAPES {
        let mut count = 100;
        let mut one = time(shape, count);
        while one < LEAST && count < 100_000 {
            count *= 2;
            one = time(shape, count);
        }
        let growth = |one: Duration, two: Duration| two.as_secs_f64() / one.as_secs_f64();
        let mut least = growth(one, time(shape, 2 * count));
        if least > MOST_GROWTH {
            // Once more, for what else the machine did.
            least = least.min(growth(time(shape, count), time(shape, 2 * count)));
        }
        if least > MOST_GROWTH {
            failed.push(format!("{}: {count} take {one:?}, twice as many {least:.1} times that", shape.name));
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
