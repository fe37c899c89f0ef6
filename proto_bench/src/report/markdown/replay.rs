//! A replay: what was measured, line by line beside what was published, and what is known to be wrong with that.

use std::fmt::Write;

use super::compare::{cheapest, ratio};
use super::{Table, thousands};
use crate::replay::{AtRest, Published};
use crate::report::marks;
use crate::report::model::{Document, Replay, ReplayRow, Round, Row, Summary, Verdict};
use crate::report::numbers::mebibytes;

const NONE: &str = "–";

/// The tables.
pub(super) fn render(document: &Document) -> String {
    let Some(replay) = &document.replay else { return String::new() };
    let mut out = head(document, replay);
    out.extend(replay.rows.iter().map(|row| section(document, row)));
    out.push_str(&at_rest(replay));
    out
}

/// What is replayed, and the gateway beside the others.
pub(in crate::report) fn head(document: &Document, replay: &Replay) -> String {
    let mut out = format!("{}: {}\n\nPublished on: {}\n\n", replay.title, replay.source, replay.conditions);
    out.push_str("Lines marked *published* are figures of another machine, as they stand in the source.\n\n");
    out.push_str(&overview(document, replay));
    out
}

/// The gateway beside the cheapest other, one line a row.
fn overview(document: &Document, replay: &Replay) -> String {
    let mut table = Table::new(&[
        "row",
        "gateway",
        "CPU us",
        "best other",
        "its CPU us",
        "CPU ratio (slices)",
        "/s",
        "its /s",
        "p99 ms",
        "its p99 ms",
    ]);
    for row in &replay.rows {
        let rows: Vec<&Row> = document.rows.iter().filter(|it| it.id == row.id && it.is_valid()).collect();
        let (ours, others): (Vec<&Row>, Vec<&Row>) = rows.into_iter().partition(|it| is_gateway(it));
        let best = cheapest(&others);
        for our in ours {
            let figure = |row: Option<&Row>, text: &dyn Fn(&Summary) -> Option<String>| {
                row.and_then(|row| text(row.summary.as_ref()?)).unwrap_or_else(|| NONE.to_owned())
            };
            let cpu = |summary: &Summary| Some(format!("{:.1}", summary.cpu_us_per_request?.median));
            let rate = |summary: &Summary| Some(thousands(summary.rate.median));
            let p99 = |summary: &Summary| Some(milliseconds(summary.p99_us.median));
            let ratio = best.and_then(|best| ratio(our, best));
            table.row(vec![
                row.label.clone(),
                our.subject.clone(),
                figure(Some(our), &cpu),
                best.map_or_else(|| NONE.to_owned(), |best| best.subject.clone()),
                figure(best, &cpu),
                ratio.unwrap_or_else(|| NONE.to_owned()),
                figure(Some(our), &rate),
                figure(best, &rate),
                figure(Some(our), &p99),
                figure(best, &p99),
            ]);
        }
    }
    if table.is_empty() {
        return String::new();
    }
    let words = "CPU time is the subject's own, for each request; the best other is the one that needs least of it. A ratio \
                 is taken slice by slice and left out where other programs used the machine.";
    format!("## Beside the other proxies\n\n{words}\n\n{}\n", table.render())
}

/// A row: who was measured, what was published, and what is to be said of it.
pub(in crate::report) fn section(document: &Document, row: &ReplayRow) -> String {
    let mut out = String::new();
    writeln!(out, "## {} ({})\n", row.label, row.id).ok();
    if let Some(reason) = &row.skipped {
        writeln!(out, "**Not run**: {reason}.\n").ok();
    } else {
        writeln!(out, "{}\n", sizes(row)).ok();
    }
    let mut table = Table::new(&[
        "who", "/s", "CPU us", "mean ms", "p50", "p95", "p99", "max", "cores", "peak MiB", "body B",
        "failed %",
    ]);
    let rows: Vec<&Row> = document.rows.iter().filter(|it| it.id == row.id).collect();
    for measured in &rows {
        if !matches!(measured.verdict, Verdict::Unavailable(_)) {
            table.row(measured_line(measured));
        }
    }
    for published in &row.published {
        table.row(published_line(published));
    }
    out.push_str(&table.render());
    out.push('\n');
    remarks(&mut out, row, &rows);
    out
}

fn sizes(row: &ReplayRow) -> String {
    let as_published = row.clients == row.published_clients && same(row.seconds, row.published_seconds);
    let ours = format!("{} clients, {} s", thousands(f64::from(row.clients)), row.seconds);
    if as_published {
        return format!("{ours}, as published.");
    }
    format!(
        "{ours}; published: {} clients, {} s.",
        thousands(f64::from(row.published_clients)),
        row.published_seconds
    )
}

fn same(one: f64, other: f64) -> bool {
    (one - other).abs() < 1e-9
}

fn measured_line(row: &Row) -> Vec<String> {
    let failed = failures(row);
    let failed = if failed > 0.0 { format!("{failed:.2}") } else { "0".to_owned() };
    let Some(summary) = &row.summary else {
        let mut line = vec![row.subject.clone(), "**void**".to_owned()];
        line.resize(11, NONE.to_owned());
        line.push(failed);
        return line;
    };
    let rounds = || row.rounds.iter();
    let cores = rounds().filter_map(|round| Some(round.subject.as_ref()?.cores_used)).fold(0.0, f64::max);
    let peak = rounds().filter_map(|round| Some(round.subject.as_ref()?.peak_resident_bytes)).max();
    let spread = |spread: crate::report::model::Spread, text: String| {
        if row.rounds.len() > 1 { format!("{text} ±{:.0} %", spread.cv_percent) } else { text }
    };
    let cpu = summary.cpu_us_per_request;
    vec![
        row.subject.clone(),
        spread(summary.rate, thousands(summary.rate.median)),
        cpu.map_or_else(|| NONE.to_owned(), |cpu| spread(cpu, format!("{:.1}", cpu.median))),
        milliseconds(summary.mean_us.median),
        milliseconds(summary.p50_us.median),
        milliseconds(summary.p95_us.median),
        milliseconds(summary.p99_us.median),
        milliseconds(summary.max_us.max),
        format!("{cores:.2}"),
        peak.map_or_else(|| NONE.to_owned(), |peak| format!("{:.1}", mebibytes(peak))),
        body(row),
        failed,
    ]
}

/// Bytes of a body, as they came.
fn body(row: &Row) -> String {
    let sum = |figure: fn(&Round) -> u64| row.rounds.iter().map(figure).sum::<u64>();
    let (bytes, answers) = (sum(|round| round.body_bytes), sum(|round| round.completed));
    bytes.checked_div(answers).map_or_else(|| NONE.to_owned(), |bytes| bytes.to_string())
}

/// Requests that failed, in per cent of all.
#[expect(clippy::cast_precision_loss, reason = "a share")]
fn failures(row: &Row) -> f64 {
    let faults: u64 = row.rounds.iter().flat_map(|round| &round.faults).map(|fault| fault.count).sum();
    let completed: u64 = row.rounds.iter().map(|round| round.completed).sum();
    if faults == 0 { 0.0 } else { faults as f64 / (faults + completed) as f64 * 100.0 }
}

fn published_line(published: &Published) -> Vec<String> {
    let figure = |figure: Option<f64>| figure.map_or_else(|| NONE.to_owned(), |value| format!("{value}"));
    let mut who = format!("{} *published*", published.who);
    if published.estimated {
        who.push_str(", estimated");
    }
    if published.wrong.is_some() {
        who.push_str(" (!)");
    }
    vec![
        who,
        published.rate.map_or_else(|| NONE.to_owned(), thousands),
        NONE.to_owned(),
        figure(published.mean),
        figure(published.p50),
        figure(published.p95),
        figure(published.p99),
        figure(published.max),
        NONE.to_owned(),
        figure(published.mebibytes),
        NONE.to_owned(),
        figure(published.errors),
    ]
}

/// What is to be said of a row's figures, ours and the published ones.
fn remarks(out: &mut String, row: &ReplayRow, rows: &[&Row]) {
    let mut said: Vec<String> = row.differs.iter().cloned().collect();
    for (words, figure) in [("(!)", true), ("", false)] {
        // The same words for several are said once.
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for published in &row.published {
            let Some(reason) = (if figure { &published.wrong } else { &published.note }) else { continue };
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, who)) => who.push(&published.who),
                None => reasons.push((reason, vec![&published.who])),
            }
        }
        said.extend(reasons.into_iter().map(|(reason, who)| {
            format!("{} *published*{}{words}: {reason}.", who.join(", "), if figure { " " } else { "" })
        }));
    }
    let marked: Vec<String> =
        rows.iter().filter(|row| row.is_valid()).filter_map(|row| marks_of(row)).collect();
    if !marked.is_empty() {
        said.push(format!("Marks: {}.", marked.join("; ")));
    }
    for measured in rows {
        if let Verdict::Void(reasons) = &measured.verdict {
            let good: u64 = measured.rounds.iter().map(|round| round.completed).sum();
            let answers = format!("{} right answers came all the same", thousands_of(good));
            said.push(format!("**void**: {}: {}; {answers}.", measured.subject, reasons.join("; ")));
        }
        let statuses = statuses(measured);
        if measured.is_valid() && statuses.contains(',') {
            said.push(format!("{}: answers were {statuses}.", measured.subject));
        }
    }
    let left_out: Vec<String> = rows
        .iter()
        .filter_map(|row| match &row.verdict {
            Verdict::Unavailable(reason) => {
                Some(format!("{} ({})", row.subject, reason.trim_end_matches('.')))
            }
            _ => None,
        })
        .collect();
    if !left_out.is_empty() {
        said.push(format!("Not measured: {}.", left_out.join("; ")));
    }
    for line in said {
        writeln!(out, "- {line}").ok();
    }
    out.push('\n');
}

/// A row's marks, but for the missing stamps that all files and fixed answers have.
fn marks_of(row: &Row) -> Option<String> {
    let marks: Vec<&str> =
        row.marks.iter().map(String::as_str).filter(|mark| *mark != marks::UNSTAMPED).collect();
    (!marks.is_empty()).then(|| format!("{} {}", row.subject, marks.join(", ")))
}

fn statuses(row: &Row) -> String {
    let mut all = std::collections::BTreeMap::<u16, u64>::new();
    for (status, count) in row.rounds.iter().flat_map(|round| &round.statuses) {
        *all.entry(*status).or_default() += count;
    }
    let texts: Vec<String> = all.iter().map(|(status, count)| format!("{status} x {count}")).collect();
    texts.join(", ")
}

/// What programs take before they do anything.
pub(in crate::report) fn at_rest(replay: &Replay) -> String {
    if replay.starts.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["who", "program MB", "ms to the first connection", "MiB then"]);
    for start in &replay.starts {
        #[expect(clippy::cast_precision_loss, reason = "megabytes in one decimal")]
        let megabytes = start.program_bytes as f64 / 1e6;
        table.row(vec![
            start.subject.clone(),
            format!("{megabytes:.1}"),
            format!("{:.0}", start.milliseconds),
            format!("{:.1}", mebibytes(start.resident_bytes)),
        ]);
    }
    let figure = |figure: Option<f64>| figure.map_or_else(|| NONE.to_owned(), |value| format!("{value}"));
    for AtRest { who, program_mb, start_ms, mebibytes, estimated } in &replay.at_rest {
        let estimated = if *estimated { ", estimated" } else { "" };
        table.row(vec![
            format!("{who} *published*{estimated}"),
            figure(*program_mb),
            figure(*start_ms),
            figure(*mebibytes),
        ]);
    }
    let words = "Of the first start of each; shared libraries are not in the size of a program.";
    format!("## Before the first request\n\n{words}\n\n{}\n", table.render())
}

/// The gateway, in any profile.
fn is_gateway(row: &Row) -> bool {
    row.subject.starts_with("gateway")
}

fn milliseconds(us: f64) -> String {
    let ms = us / 1e3;
    if ms < 10.0 { format!("{ms:.2}") } else { format!("{ms:.1}") }
}

#[expect(clippy::cast_precision_loss, reason = "a count of answers")]
fn thousands_of(count: u64) -> String {
    thousands(count as f64)
}
