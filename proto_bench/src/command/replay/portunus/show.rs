//! The result as Markdown, for terminals and pages.

use super::table::Row;
use super::{Cell, Measured, Report, median};

/// The rows with their published figures.
pub(super) fn list(rows: &[&Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let published: Vec<String> =
            row.published.iter().map(|(who, rate)| format!("{who} {rate} Mbit/s")).collect();
        text.push_str(&format!("{:<24} {}; {}\n", row.id, row.label, published.join(", ")));
    }
    text
}

/// What a reader must know beside the figures.
pub(super) fn notes(rounds: u32, server_cores: &[usize], generator_cores: &[usize]) -> Vec<String> {
    vec![
        format!(
            "Subjects take turns in {rounds} rounds. Programs run on cores {server_cores:?}, sender and sink on {generator_cores:?}. \
             Figures are medians with the lowest and the highest round."
        ),
        "Every byte is compared at the sink. A round in which a byte is wrong, or a TCP stream ends with fewer bytes than were sent, \
         is void."
            .to_owned(),
        "A proxy can be \"faster than direct\" without doing less. Over loopback, the sender's core also runs the receiving half of \
         TCP. With a proxy between, that work is shared by more threads, which may run on more cores, and a second pair of socket \
         buffers hides the turns of the scheduler. The column with the CPU time of the whole machine for each MiB shows the cost: it \
         rises with each hop. Rounds also differ more among each other than the paths do, which is why the lowest and the highest \
         round stand beside each median. A ratio above 100 % is the machine's, not the proxy's. \
         The machine's column means little while other programs use the machine."
            .to_owned(),
        "Published figures are of another machine (4 vCPUs of an EPYC 7B13, iperf3 3.18) and no yardstick.".to_owned(),
    ]
}

/// The whole report.
pub(super) fn markdown(report: &Report) -> String {
    let mut text = String::from("# Portunus's report, replayed\n\n");
    let versions: Vec<String> = report.versions.values().cloned().collect();
    text.push_str(&format!("`{}`; {}\n\n", report.command, versions.join("; ")));
    for note in &report.notes {
        text.push_str(&format!("- {note}\n"));
    }
    for row in &report.rows {
        text.push_str(&table(row));
    }
    text
}

fn table(row: &Measured) -> String {
    let mut text = format!("\n## {}: {}\n\n", row.id, row.label);
    text.push_str("| path | Mbit/s | lowest to highest | of direct | us CPU/MiB, program | us CPU/MiB, machine | sent again / lost |\n");
    text.push_str("|---|---:|---:|---:|---:|---:|---:|\n");
    let direct = row.results.iter().find(|cell| cell.subject == "direct");
    let direct = direct.and_then(|cell| median(&cell.megabits()));
    for cell in &row.results {
        text.push_str(&line(row, cell, direct));
    }
    for (who, rate) in &row.published {
        text.push_str(&format!("| *{who}, published* | {rate} | | | | | |\n"));
    }
    text
}

fn line(row: &Measured, cell: &Cell, direct: Option<f64>) -> String {
    let all = cell.megabits();
    let (Some(middle), Some(low), Some(high)) = (median(&all), all.first(), all.last()) else {
        let void = cell.rounds.iter().flat_map(|round| &round.void).next();
        let why = cell.missing.as_ref().or(void).map_or("no round", String::as_str);
        return format!("| {} | – ({why}) | | | | | |\n", cell.subject);
    };
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.0}"));
    let share = direct.map(|direct| format!("{:.1} %", 100.0 * middle / direct)).unwrap_or_default();
    let lost = match row.carrier {
        crate::bulk::Carrier::Udp => {
            format!("{:.3} %", cell.median_of(|round| Some(round.lost_percent())).unwrap_or_default())
        }
        #[allow(clippy::cast_precision_loss, reason = "counts of segments")]
        crate::bulk::Carrier::Tcp => number(cell.median_of(|round| Some(round.retransmitted as f64))),
    };
    format!(
        "| {} | {middle:.2} | {low:.2} to {high:.2} | {share} | {} | {} | {lost} |\n",
        cell.subject,
        number(cell.median_of(crate::bulk::BulkOutcome::cpu_us_per_mib)),
        number(cell.median_of(crate::bulk::BulkOutcome::machine_us_per_mib)),
    )
}
