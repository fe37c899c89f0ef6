//! The table of `scale`, with the published columns and those that were missing there.

use super::{Table, thousands};
use crate::report::model::{Batch, Document, Round};

pub(super) fn render(document: &Document) -> String {
    let Some(scale) = &document.scale else { return String::new() };
    let mut table = Table::new(&[
        "proxies",
        "/s",
        "avg ms",
        "p50",
        "p95",
        "p99",
        "max ms",
        "%",
        "CPU us",
        "MiB",
        "during writes /s",
        "during p99 ms",
        "proxies/s written",
        "visible p99 ms",
        "refused",
    ]);
    for batch in &scale.batches {
        table.row(row(batch));
    }
    table.render()
}

fn row(batch: &Batch) -> Vec<String> {
    let steady = &batch.steady;
    let milliseconds = |us: f64| format!("{:.2}", us / 1e3);
    let good = |round: &Round, text: String| if round.void.is_empty() { text } else { "**void**".to_owned() };
    let during = |figure: &dyn Fn(&Round) -> String| {
        batch.during_writes.as_ref().map_or_else(|| "–".to_owned(), |round| good(round, figure(round)))
    };
    let latency = &steady.latency;
    let usage = steady.subject.as_ref();
    let memory = usage.map_or_else(String::new, |usage| {
        format!("{:.1}", crate::report::numbers::mebibytes(usage.resident_bytes))
    });
    #[expect(clippy::cast_precision_loss, reason = "a number of proxies")]
    let proxies = batch.proxies as f64;
    let refusals = batch.refusals;
    vec![
        thousands(proxies),
        good(steady, thousands(steady.rate)),
        good(steady, milliseconds(latency.mean_us)),
        good(steady, milliseconds(latency.p50_us)),
        good(steady, milliseconds(latency.p95_us)),
        good(steady, milliseconds(latency.p99_us)),
        good(steady, milliseconds(latency.max_us)),
        good(steady, format!("{:.0}", batch.percent_of_first)),
        good(steady, usage.map_or_else(String::new, |usage| format!("{:.2}", usage.cpu_us_per_request))),
        memory,
        during(&|round| thousands(round.rate)),
        during(&|round| milliseconds(round.latency.p99_us)),
        thousands(batch.write.proxies_per_second),
        milliseconds(batch.visible.p99_us),
        format!("{}/{}", refusals.refused, refusals.asked),
    ]
}
