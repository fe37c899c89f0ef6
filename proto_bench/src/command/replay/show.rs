//! The rows and configurations of a table, without running anything.

use std::fmt::Write;

use crate::replay::template::Values;
use crate::replay::{Program, Published, Row, Subject, Table};
use crate::report::numbers::thousands;

/// The rows with their published figures.
pub(super) fn list(rows: &[&Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let published: Vec<String> = row.published.iter().map(in_short).collect();
        let skipped = if row.skip.is_some() { ", not run" } else { "" };
        writeln!(
            out,
            "{:<26} {}; {} clients, {} s{skipped}\n{:<26} published, requests a second: {}",
            row.id,
            row.label,
            thousands(f64::from(row.clients)),
            row.seconds,
            "",
            published.join("; ")
        )
        .ok();
    }
    out.push_str(
        "\n(e) an estimate of the source itself, (!) known to be wrong or to measure something else: the report says why.\n",
    );
    out
}

fn in_short(published: &Published) -> String {
    let rate = published.rate.map_or_else(|| "–".to_owned(), thousands);
    let estimated = if published.estimated { " (e)" } else { "" };
    let wrong = if published.wrong.is_some() { " (!)" } else { "" };
    format!("{} {rate}{estimated}{wrong}", published.who)
}

/// What each subject would get for each row.
pub(super) fn configurations(table: &Table, rows: &[&Row], subjects: &[&Subject]) -> String {
    let values = Values::as_shown();
    let mut out = String::new();
    for row in rows {
        let Some(setup) = table.setups.get(&row.setup) else { continue };
        let method = if row.send.is_some() { "POST" } else { "GET" };
        let scheme = if row.tls { "https" } else { "http" };
        let pace = row.rate.map_or_else(String::new, |rate| format!(", {rate} requests a second"));
        writeln!(
            out,
            "# {}: {}\n# {method} {scheme}://<listen>{}, {} clients{pace}, {} s",
            row.id,
            row.label,
            values.fill(&row.path),
            row.clients,
            row.seconds
        )
        .ok();
        for (name, value) in &row.headers {
            writeln!(out, "# {name}: {}", values.fill(value)).ok();
        }
        if let Some(sent) = &row.send {
            writeln!(out, "# {sent}").ok();
        }
        if let Some(reason) = &row.skip {
            writeln!(out, "# not run: {reason}").ok();
        }
        for subject in subjects {
            match (setup.with.get(&subject.name), setup.without.get(&subject.name)) {
                (Some(own), _) => {
                    writeln!(
                        out,
                        "\n## {}\n{}",
                        subject.name,
                        configuration(subject, own, &values).trim_end()
                    )
                    .ok();
                }
                (None, Some(reason)) => {
                    writeln!(out, "\n## {}: not measured: {reason}", subject.name).ok();
                }
                (None, None) => {}
            }
        }
        out.push('\n');
    }
    out
}

/// A subject's whole configuration.
pub(super) fn configuration(subject: &Subject, own: &str, values: &Values) -> String {
    let mut values = values.clone();
    let own = values.fill(own);
    values.set("setup", own.trim_end());
    let text = values.fill(subject.base.as_deref().unwrap_or("{{setup}}"));
    format!("{}\n", text.trim())
}

/// The name of its file.
pub(super) fn file_name(program: Program) -> &'static str {
    match program {
        Program::Gateway => "ferrum-edge.yaml",
        Program::Nginx => "nginx.conf",
        Program::Haproxy => "haproxy.cfg",
        Program::Caddy => "Caddyfile",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Seed;

    #[test]
    fn every_configuration_is_whole() {
        for seed in Seed::ALL {
            let table = seed.table().expect("a table");
            let rows: Vec<&Row> = table.rows.iter().collect();
            let subjects: Vec<&Subject> = table.subjects.iter().collect();
            let text = configurations(&table, &rows, &subjects);
            assert!(!text.contains("{{") && text.contains("<listen>"), "{text}");
            assert!(list(&rows).lines().count() > rows.len());
        }
    }
}
