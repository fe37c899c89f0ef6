//! Proxies side by side: each figure with its spread, its marks, and a lead only where it is one.

use std::fmt::Write;

use super::{Table, cell, ids, subjects, thousands};
use crate::report::marks;
use crate::report::model::{CheckRun, Document, Round, Row, Spread, Summary};

/// The subject that ratios are of, and the one that is a floor and no competitor.
const GATEWAY: &str = "gateway";
const FLOOR: &str = "relay";
/// The test whose relay is the floor of HTTP tests that a relay can't do, and those tests.
const HTTP_FLOOR: &str = "h1";
const HTTP_WITHOUT_RELAY: [&str; 7] = ["h1-tls", "h2", "h2c", "h3", "grpc", "fixed", "fixed-h2c"];
/// Clean slices that a lead needs: one alone may be chance.
const SLICES_OF_A_LEAD: usize = 3;

/// A figure of the table.
struct Figure {
    title: &'static str,
    of: fn(&Summary) -> Option<Spread>,
    text: fn(f64) -> String,
    lowest_wins: bool,
    /// Marks with which a row leads nobody.
    spoils: &'static [&'static str],
}

const FIGURES: [Figure; 7] = [
    Figure {
        title: "CPU microseconds a request",
        of: |summary| summary.cpu_us_per_request,
        text: |value| format!("{value:.1}"),
        lowest_wins: true,
        spoils: &[marks::DISTURBED, marks::STOLEN],
    },
    Figure {
        title: "Requests a second",
        of: |summary| Some(summary.rate),
        text: thousands,
        lowest_wins: false,
        spoils: &[marks::DISTURBED, marks::STOLEN, marks::GENERATOR, marks::BACKEND],
    },
    Figure {
        title: "p99 microseconds",
        of: |summary| Some(summary.p99_us),
        text: |value| format!("{value:.1}"),
        lowest_wins: true,
        spoils: &[marks::DISTURBED, marks::STOLEN, marks::LATE_GENERATOR],
    },
    Figure {
        title: "Resident MiB at the end",
        of: |summary| summary.resident_bytes.map(|bytes| bytes.scaled(1.0 / (1024.0 * 1024.0))),
        text: |value| format!("{value:.1}"),
        lowest_wins: true,
        spoils: &[],
    },
    counted("User-space instructions a request", |summary| summary.instructions),
    counted("First instruction cache's misses a request", |summary| summary.instruction_misses),
    counted("First data cache's misses a request", |summary| summary.data_misses),
];

/// A figure that does not depend on what else the machine does; left out where nobody has it.
const fn counted(title: &'static str, of: fn(&Summary) -> Option<Spread>) -> Figure {
    Figure { title, of, text: thousands, lowest_wins: true, spoils: &[] }
}

/// The tables.
pub(super) fn render(document: &Document) -> String {
    let mut out = String::new();
    let known = |figure: &&Figure| {
        let summaries = document.rows.iter().filter_map(|row| row.summary.as_ref());
        summaries.filter_map(figure.of).next().is_some() || figure.title == FIGURES[0].title
    };
    for figure in FIGURES.iter().filter(known) {
        writeln!(out, "**{}**\n", figure.title).ok();
        out.push_str(&figure.table(document));
        out.push('\n');
    }
    out.push_str(&circumstances(document));
    out.push_str(&checks(document));
    out
}

impl Figure {
    fn table(&self, document: &Document) -> String {
        let subjects = subjects(document);
        let ratios = self.title == FIGURES[0].title && subjects.contains(&GATEWAY) && subjects.len() > 1;
        let mut heads = [&["test"], &subjects[..]].concat();
        let floor = ratios && subjects.contains(&FLOOR);
        if ratios {
            heads.push("gateway / best other");
        }
        if floor {
            heads.push("gateway / relay");
        }
        let mut table = Table::new(&heads);
        for first in ids(document) {
            let rows: Vec<Option<&Row>> =
                subjects.iter().map(|subject| document.row(&first.id, subject)).collect();
            let leader = self.leader(&rows.iter().flatten().copied().collect::<Vec<_>>());
            let mut cells = vec![first.label.clone()];
            cells.extend(rows.iter().map(|row| {
                cell(*row, |row| {
                    let spread = (self.of)(row.summary.as_ref()?)?;
                    let text = (self.text)(spread.median);
                    let text =
                        if leader == Some(row.subject.as_str()) { format!("**{text}**") } else { text };
                    let several = row.rounds.len() - row.left_out > 1 && spread.max > spread.min;
                    Some(if several { format!("{text} ±{:.0} %", spread.cv_percent) } else { text })
                })
            }));
            let rows: Vec<&Row> = rows.into_iter().flatten().filter(|row| row.is_valid()).collect();
            let gateway = rows.iter().copied().find(|row| row.subject == GATEWAY);
            if ratios {
                let best = cheapest_other(&rows)
                    .and_then(|best| Some(format!("{} of {}", ratio(gateway?, best)?, best.subject)));
                cells.push(best.unwrap_or_else(|| "–".to_owned()));
            }
            if floor {
                let multiple = gateway.and_then(|gateway| multiple_of_floor(document, gateway, first));
                cells.push(multiple.unwrap_or_else(|| "–".to_owned()));
            }
            table.row(cells);
        }
        table.render()
    }

    /// Who leads: every slice of it beats the median of all others, all have three slices at least, and none of them has a mark
    /// that spoils the figure.
    fn leader<'r>(&self, rows: &[&'r Row]) -> Option<&'r str> {
        let rows: Vec<(&Row, Spread)> = rows
            .iter()
            .filter(|row| row.is_valid() && row.subject != FLOOR)
            .filter_map(|row| Some((*row, (self.of)(row.summary.as_ref()?)?)))
            .collect();
        let few = |row: &Row| row.rounds.len() - row.left_out < SLICES_OF_A_LEAD;
        if rows.iter().any(|(row, _)| few(row)) {
            return None;
        }
        let spoilt = |row: &Row| row.marks.iter().any(|mark| self.spoils.contains(&mark.as_str()));
        if rows.len() < 2 || rows.iter().any(|(row, _)| spoilt(row)) {
            return None;
        }
        let beats = |own: &Spread, other: &Spread| {
            if self.lowest_wins { own.max < other.median } else { own.min > other.median }
        };
        let leads = |(row, own): &&(&Row, Spread)| {
            rows.iter().filter(|(other, _)| other.subject != row.subject).all(|(_, other)| beats(own, other))
        };
        rows.iter().find(leads).map(|(row, _)| row.subject.as_str())
    }
}

/// The gateway's row as a multiple of the bare relay's: of the same test where the relay can do it, else, for tests over HTTP, of
/// the relay under HTTP/1.1, which is what forwarding costs at least.
fn multiple_of_floor(document: &Document, gateway: &Row, first: &Row) -> Option<String> {
    let floor = |id: &str| document.row(id, FLOOR).filter(|row| row.is_valid());
    if let Some(own) = floor(&first.id) {
        return ratio(gateway, own);
    }
    let is_http = HTTP_WITHOUT_RELAY.contains(&first.id.as_str());
    let multiple = ratio(gateway, floor(HTTP_FLOOR).filter(|_| is_http)?)?;
    Some(format!("{multiple} of HTTP/1.1's"))
}

/// The cheapest of the others by CPU time.
fn cheapest_other<'r>(rows: &[&'r Row]) -> Option<&'r Row> {
    let others = rows.iter().filter(|row| row.subject != GATEWAY && row.subject != FLOOR);
    cheapest(&others.copied().collect::<Vec<_>>())
}

/// The cheapest of these by CPU time.
pub(super) fn cheapest<'r>(rows: &[&'r Row]) -> Option<&'r Row> {
    let cpu = |row: &Row| Some(row.summary.as_ref()?.cpu_us_per_request?.median);
    let priced = rows.iter().filter_map(|row| Some((cpu(row)?, *row)));
    priced.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, row)| row)
}

/// One's CPU time over that of another, slice by slice, so that both had the same machine.
pub(super) fn ratio(one: &Row, other: &Row) -> Option<String> {
    let cost = |round: &Round| {
        let usage = round.subject.as_ref().filter(|_| !round.is_disturbed())?;
        (usage.cpu_us_per_request > 0.0).then_some(usage.cpu_us_per_request)
    };
    let pairs = one.rounds.iter().zip(&other.rounds);
    let ratios: Vec<f64> = pairs.filter_map(|(ours, theirs)| Some(cost(ours)? / cost(theirs)?)).collect();
    let Spread { median, min, max, .. } = Spread::of(ratios.iter().copied());
    match ratios.len() {
        0 => None,
        1 => Some(format!("{median:.2}")),
        _ => Some(format!("{median:.2} ({min:.2}–{max:.2})")),
    }
}

/// What each row is worth: its slices, those left out, its marks.
fn circumstances(document: &Document) -> String {
    let mut table = Table::new(&["test", "subject", "slices", "left out as disturbed", "marks"]);
    for row in
        document.rows.iter().filter(|row| row.is_valid() && (row.left_out > 0 || !row.marks.is_empty()))
    {
        table.row(vec![
            row.label.clone(),
            row.subject.clone(),
            (row.rounds.len() - row.left_out).to_string(),
            row.left_out.to_string(),
            row.marks.join(", "),
        ]);
    }
    let rows = table.render();
    if rows.lines().count() > 2 { format!("{rows}\n") } else { String::new() }
}

/// Our generator beside others: rates with their spread, and what each costs.
fn checks(document: &Document) -> String {
    let mut table = Table::new(&[
        "generator check on nginx",
        "generator",
        "/s",
        "from",
        "to",
        "generator CPU us",
        "nginx CPU us",
    ]);
    for check in &document.checks {
        for (name, runs) in [("proto_bench", &check.ours), (check.other.as_str(), &check.theirs)] {
            let spread = |figure: fn(&CheckRun) -> f64| Spread::of(runs.iter().map(figure));
            let rate = spread(|run| run.rate);
            table.row(vec![
                check.test.clone(),
                name.to_owned(),
                thousands(rate.median),
                thousands(rate.min),
                thousands(rate.max),
                format!("{:.2}", spread(|run| run.generator_us_per_request).median),
                format!("{:.2}", spread(|run| run.server_us_per_request).median),
            ]);
        }
    }
    if document.checks.is_empty() { String::new() } else { table.render() }
}
