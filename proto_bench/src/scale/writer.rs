//! Writes a batch through the admin API, and watches how soon what was written answers.

use std::ops::Range;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::api::{self, BATCH_PATH};
use super::http::Client;
use super::probe::{ProbeRequest, ask};
use super::{Options, ScaleError};
use crate::measure::Tally;
use crate::report::model::{BatchWrite, Latency};

/// What came of writing a batch.
#[derive(Debug)]
pub(super) struct BatchOutcome {
    pub(super) write: BatchWrite,
    pub(super) visible: Latency,
}

/// Connections that ask for a new proxy at once: with several workers, they meet several.
const PROBES: usize = 4;

/// Writes these proxies in chunks; after each answer, the chunk's last proxy must answer.
pub(super) fn write(options: &Options, numbers: Range<u64>) -> Result<BatchOutcome, ScaleError> {
    let mut admin = Client::new(options.admin);
    let mut probes: Vec<Client> = (0..PROBES).map(|_| Client::new(options.gateway)).collect();
    let Tally { latency: mut calls, service: mut visible, .. } = Tally::default();
    let (total, mut next) = (numbers.end - numbers.start, numbers.start);
    let mut writing = Duration::ZERO;
    while next < numbers.end {
        let end = (next + options.chunk.max(1)).min(numbers.end);
        let body = serde_json::to_vec(&api::batch(next..end, options.backend)).unwrap_or_default();
        let begun = Instant::now();
        send(&mut admin, options, &body)?;
        writing += begun.elapsed();
        record(&mut calls, begun);
        let answered = Instant::now();
        for probe in &mut probes {
            wait_visible(probe, options, end - 1)?;
        }
        record(&mut visible, answered);
        next = end;
    }
    #[expect(clippy::cast_precision_loss, reason = "a number of proxies")]
    let proxies_per_second = total as f64 / writing.as_secs_f64().max(1e-9);
    let write = BatchWrite {
        seconds: writing.as_secs_f64(),
        calls: calls.len(),
        call_latency: Latency::new(&calls),
        proxies_per_second,
    };
    Ok(BatchOutcome { write, visible: Latency::new(&visible) })
}

fn send(admin: &mut Client, options: &Options, body: &[u8]) -> Result<(), ScaleError> {
    let head = format!(
        "POST {BATCH_PATH} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
        options.admin, options.token
    );
    let reply = admin.ask(&head, body).map_err(ScaleError::Admin)?;
    if matches!(reply.status, 200 | 201) {
        return Ok(());
    }
    let body = String::from_utf8_lossy(&reply.body).chars().take(400).collect();
    Err(ScaleError::Refused { status: reply.status, body })
}

/// Asks until the proxy answers rightly. A protected proxy that answers anybody without its key would be worse than
/// one that does not answer, which is what [`super::probe::refusals`] checks.
fn wait_visible(probe: &mut Client, options: &Options, number: u64) -> Result<(), ScaleError> {
    let begun = Instant::now();
    loop {
        let asked = ProbeRequest { proxy: number, key: Some(api::key(number)) };
        let reply = ask(probe, options, &asked).map_err(ScaleError::Gateway)?;
        if reply.status == 200 && reply.body == api::right_answer(number) {
            return Ok(());
        }
        if begun.elapsed() > options.visible_limit {
            let limit = options.visible_limit;
            let last = format!("status {}, {} bytes", reply.status, reply.body.len());
            return Err(ScaleError::Invisible { proxy: number, limit, last });
        }
        thread::sleep(Duration::from_micros(200));
    }
}

fn record(histogram: &mut Histogram<u64>, begun: Instant) {
    histogram.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
}
