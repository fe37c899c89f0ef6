//! A document as Markdown; its tables are aligned, so that terminals can show them too.

use std::fmt::Write;

use super::model::{Document, ReportKind, Row, Spread, Verdict};
use super::numbers::{mebibytes, thousands};
use super::published;

mod compare;
pub(super) mod replay;
mod scale;

use super::table::Table;

/// A whole page.
#[must_use]
pub fn render(document: &Document) -> String {
    let mut out = format!("# proto_bench {}\n\n", title(document.kind));
    out.push_str(&tables(document));
    out.push_str(&published::beside(document));
    if !document.notes.is_empty() {
        out.push_str("\n## What to know beside the figures\n\n");
        for note in &document.notes {
            writeln!(out, "- {note}").ok();
        }
    }
    out.push_str(&circumstances(document));
    out
}

/// The tables alone.
#[must_use]
pub fn tables(document: &Document) -> String {
    let mut out = match document.kind {
        ReportKind::Matrix => matrix(document),
        ReportKind::Compare => compare::render(document),
        ReportKind::Scale => scale::render(document),
        ReportKind::Replay => return replay::render(document),
        ReportKind::Run | ReportKind::Clients | ReportKind::Sweep => list(&document.rows).render(),
    };
    out.push_str(&void_reasons(document));
    out
}

/// The circumstances that every figure needs.
#[must_use]
pub fn circumstances(document: &Document) -> String {
    let machine = &document.machine;
    let mut out = String::from("\n## Measured on\n\n");
    let memory = mebibytes(machine.memory_bytes) / 1024.0;
    let virtualised = if machine.virtualised { ", virtual machine" } else { "" };
    writeln!(out, "- {} to {}", document.started, document.finished).ok();
    writeln!(out, "- {}, {} cores, {memory:.0} GiB{virtualised}", machine.cpu, machine.cores).ok();
    writeln!(out, "- {}", machine.kernel).ok();
    writeln!(out, "- `{}`", document.command).ok();
    if let Some(revision) = &document.revision {
        let modified = if revision.modified { ", with local changes" } else { "" };
        writeln!(out, "- source revision {}{modified}", revision.commit).ok();
    }
    for (name, version) in &document.versions {
        writeln!(out, "- {name}: {version}").ok();
    }
    for (name, value) in &document.settings {
        writeln!(out, "- {name}: {value}").ok();
    }
    out
}

/// A kind in words.
#[must_use]
pub fn title(kind: ReportKind) -> &'static str {
    match kind {
        ReportKind::Run => "run",
        ReportKind::Matrix => "matrix: the protocols, directly and through the gateway",
        ReportKind::Clients => "clients: more and more connections",
        ReportKind::Sweep => "sweep: rising rates, open loop",
        ReportKind::Compare => "compare: proxies side by side",
        ReportKind::Scale => "scale: a growing configuration",
        ReportKind::Replay => "replay: published tests, here and now",
    }
}

/// Test ids in the order of their first row.
#[must_use]
pub fn ids(document: &Document) -> Vec<&Row> {
    let mut first: Vec<&Row> = Vec::new();
    for row in &document.rows {
        if !first.iter().any(|seen| seen.id == row.id) {
            first.push(row);
        }
    }
    first
}

/// Subjects in the order of their first row.
#[must_use]
pub fn subjects(document: &Document) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for row in &document.rows {
        if !found.contains(&row.subject.as_str()) {
            found.push(&row.subject);
        }
    }
    found
}

fn matrix(document: &Document) -> String {
    let mut table = Table::new(&[
        "protocol",
        "gateway /s",
        "direct /s",
        "overhead",
        "gateway CPU us",
        "direct CPU us",
        "gateway p50 / p99 us",
        "direct p50 / p99 us",
        "gateway MiB",
        "marks",
    ]);
    for first in ids(document) {
        let (gateway, direct) = (document.row(&first.id, "gateway"), document.row(&first.id, "direct"));
        // Rates of rounds that strangers disturbed are no basis for a ratio.
        let calm = [gateway, direct].iter().flatten().all(|row| !row.is_disturbed());
        let overhead = match (rate_of(gateway).filter(|_| calm), rate_of(direct)) {
            (Some(through), Some(alone)) if alone > 0.0 => {
                format!("{:.0} %", (1.0 - through / alone) * 100.0)
            }
            _ => "–".to_owned(),
        };
        let percentiles = |row: Option<&Row>| {
            cell(row, |row| {
                let summary = row.summary.as_ref()?;
                Some(format!("{:.0} / {:.0}", summary.p50_us.median, summary.p99_us.median))
            })
        };
        table.row(vec![
            first.label.clone(),
            cell(gateway, rate_text),
            cell(direct, rate_text),
            overhead,
            cell(gateway, cpu_text),
            cell(direct, cpu_text),
            percentiles(gateway),
            percentiles(direct),
            cell(gateway, memory_text),
            [gateway, direct]
                .iter()
                .flatten()
                .map(|row| marks_of(row))
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("; "),
        ]);
    }
    table.render()
}

fn list(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "test", "/s", "spread %", "mean us", "p50", "p90", "p99", "p99.9", "max", "CPU us", "MiB", "marks",
    ]);
    for row in rows {
        let figure = |figure: &dyn Fn(&super::model::Summary) -> Spread| {
            row.summary
                .as_ref()
                .map_or_else(|| "–".to_owned(), |summary| format!("{:.0}", figure(summary).median))
        };
        table.row(vec![
            row.label.clone(),
            cell(Some(row), rate_text),
            row.summary
                .as_ref()
                .map_or_else(String::new, |summary| format!("{:.1}", summary.rate.cv_percent)),
            figure(&|summary| summary.mean_us),
            figure(&|summary| summary.p50_us),
            figure(&|summary| summary.p90_us),
            figure(&|summary| summary.p99_us),
            figure(&|summary| summary.p999_us),
            figure(&|summary| summary.max_us),
            cell(Some(row), cpu_text),
            cell(Some(row), memory_text),
            row.marks.join(", "),
        ]);
    }
    table
}

fn void_reasons(document: &Document) -> String {
    let mut out = String::new();
    for row in &document.rows {
        match &row.verdict {
            Verdict::Valid => {}
            Verdict::Void(reasons) => {
                writeln!(out, "\n**void**: {} ({}): {}", row.label, row.subject, reasons.join("; ")).ok();
            }
            Verdict::Unavailable(reason) => {
                writeln!(out, "\nnot available: {} ({}): {reason}", row.label, row.subject).ok();
            }
        }
    }
    out
}

/// A figure of a row, or what stands in its place.
fn cell(row: Option<&Row>, figure: impl Fn(&Row) -> Option<String>) -> String {
    match row {
        None => "–".to_owned(),
        Some(row) => match row.verdict {
            Verdict::Void(_) => "**void**".to_owned(),
            Verdict::Unavailable(_) => "n/a".to_owned(),
            Verdict::Valid => figure(row).unwrap_or_else(|| "–".to_owned()),
        },
    }
}

fn rate_of(row: Option<&Row>) -> Option<f64> {
    Some(row?.summary.as_ref()?.rate.median)
}

fn rate_text(row: &Row) -> Option<String> {
    Some(thousands(row.summary.as_ref()?.rate.median))
}

fn cpu_text(row: &Row) -> Option<String> {
    Some(format!("{:.2}", row.summary.as_ref()?.cpu_us_per_request?.median))
}

fn memory_text(row: &Row) -> Option<String> {
    Some(format!("{:.1}", row.summary.as_ref()?.resident_bytes?.median / (1024.0 * 1024.0)))
}

fn marks_of(row: &Row) -> String {
    if row.marks.is_empty() { String::new() } else { format!("{}: {}", row.subject, row.marks.join(", ")) }
}
