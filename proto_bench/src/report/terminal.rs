//! A document as text for a terminal.

use std::fmt::Write;

use super::markdown;
use super::model::{Document, Latency, ReportKind, Round, Row, Verdict};
use super::numbers::mebibytes;
use crate::driver::FaultKind;
use crate::plan::ExpectBody;

/// The document as text: details for one row, tables for many.
#[must_use]
pub fn render(document: &Document) -> String {
    let mut out = String::new();
    if document.kind == ReportKind::Run {
        for row in &document.rows {
            run_row(&mut out, row);
        }
    } else {
        out.push_str(&markdown::tables(document));
    }
    for note in &document.notes {
        writeln!(out, "\n{note}").ok();
    }
    out
}

fn run_row(out: &mut String, row: &Row) {
    let load = &row.load;
    writeln!(
        out,
        "{}  {} connections × {} in flight, {}",
        row.path,
        load.connections,
        load.streams,
        pace(row)
    )
    .ok();
    match &row.verdict {
        Verdict::Void(reasons) => {
            writeln!(out, "VOID: no figures, because").ok();
            for reason in reasons {
                writeln!(out, "  - {reason}").ok();
            }
            for remedy in remedies(row) {
                writeln!(out, "  → {remedy}").ok();
            }
            return;
        }
        Verdict::Unavailable(reason) => {
            writeln!(out, "not available: {reason}").ok();
            return;
        }
        Verdict::Valid => {}
    }
    let several = row.rounds.len() > 1;
    for (number, round) in (1..).zip(&row.rounds) {
        if several {
            writeln!(out, "round {number}").ok();
        }
        run_round(out, round, row.expect.body);
    }
    if let (true, Some(summary)) = (several, &row.summary) {
        let rate = summary.rate;
        writeln!(
            out,
            "median {:.0}/s ({:.0} to {:.0}, CV {:.1} %)",
            rate.median, rate.min, rate.max, rate.cv_percent
        )
        .ok();
    }
    if !row.marks.is_empty() {
        writeln!(out, "  marks       {}", row.marks.join(", ")).ok();
    }
}

fn pace(row: &Row) -> String {
    match row.load.pace {
        crate::plan::Pace::Closed => "closed loop".to_owned(),
        crate::plan::Pace::Open { rate } => format!("open loop at {rate:.0}/s"),
    }
}

fn run_round(out: &mut String, round: &Round, expected: ExpectBody) {
    let answers = match expected {
        ExpectBody::Echo | ExpectBody::Content(_) => "verified answers",
        ExpectBody::Size(_) => "answers (only their size was checked)",
        ExpectBody::Unverified => "answers (neither content nor size was checked)",
    };
    writeln!(out, "  {} {answers} in {:.2} s", round.completed, round.window_seconds).ok();
    writeln!(out, "  rate        {:.0}/s", round.rate).ok();
    latency_line(out, "latency", &round.latency);
    histogram(out, &round.latency);
    if let Some(service) = &round.service {
        latency_line(out, "once sent", service);
    }
    if let Some(lateness) = &round.generator_lateness {
        latency_line(out, "we were late", lateness);
    }
    if let Some(connect) = &round.connect {
        latency_line(out, "connecting", connect);
    }
    if let Some(negotiated) = &round.connections.negotiated {
        writeln!(out, "  handshake   {negotiated}").ok();
    }
    let statuses: Vec<String> =
        round.statuses.iter().map(|(status, count)| format!("{status} × {count}")).collect();
    if !statuses.is_empty() {
        writeln!(out, "  statuses    {}", statuses.join(", ")).ok();
    }
    writeln!(out, "  body bytes  {}", round.body_bytes).ok();
    for usage in round.subject.iter().chain(&round.backend).chain([&round.generator]) {
        writeln!(
            out,
            "  {:<11} {:.2} us CPU a request, {:.2} of {:.0} cores, {:.1} MiB",
            usage.name,
            usage.cpu_us_per_request,
            usage.cores_used,
            usage.cores_allowed,
            mebibytes(usage.resident_bytes)
        )
        .ok();
    }
    if let Some(law) = &round.littles_law {
        writeln!(out, "  in flight   {:.1} by Little's law, {} lanes", law.in_flight, law.lanes).ok();
    }
    if let Some(open) = &round.open_loop {
        let verdict = if open.sustained { "sustained" } else { "NOT sustained" };
        writeln!(out, "  asked rate  {:.0}/s, {verdict}", open.asked_rate).ok();
    }
}

/// What to try where answers were wrong, each once.
fn remedies(row: &Row) -> Vec<&'static str> {
    let kinds = row.rounds.iter().flat_map(|round| round.faults.iter().map(|fault| fault.kind));
    let mut made: Vec<&str> = kinds.map(FaultKind::remedy).collect();
    made.sort_unstable();
    made.dedup();
    made
}

/// Answers by how long they took, with bars.
fn histogram(out: &mut String, latency: &Latency) {
    const WIDTH: u64 = 40;
    let most = latency.buckets.iter().map(|(_, count)| *count).max().unwrap_or(0);
    if latency.buckets.len() < 2 || most == 0 {
        return;
    }
    for (end, count) in &latency.buckets {
        let bar = usize::try_from((count * WIDTH).div_ceil(most)).unwrap_or(0);
        #[expect(clippy::cast_precision_loss, reason = "shown in three digits")]
        let share = *count as f64 * 100.0 / latency.count.max(1) as f64;
        writeln!(
            out,
            "  {:>11} {:<40} {share:5.1} %  {count}",
            format!("≤ {}", duration(*end)),
            "█".repeat(bar)
        )
        .ok();
    }
}

fn latency_line(out: &mut String, name: &str, latency: &Latency) {
    let show = |us: f64| duration(us);
    writeln!(
        out,
        "  {name:<11} mean {} p50 {} p90 {} p99 {} p99.9 {} max {}",
        show(latency.mean_us),
        show(latency.p50_us),
        show(latency.p90_us),
        show(latency.p99_us),
        show(latency.p999_us),
        show(latency.max_us)
    )
    .ok();
}

/// Microseconds in the unit that suits them.
#[must_use]
pub fn duration(us: f64) -> String {
    if us < 1e3 {
        format!("{us:.1} us")
    } else if us < 1e6 {
        format!("{:.2} ms", us / 1e3)
    } else {
        format!("{:.2} s", us / 1e6)
    }
}
