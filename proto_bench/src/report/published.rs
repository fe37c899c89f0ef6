//! The published figures that `matrix` and `scale` replay, and what their method did differently. Figures of another
//! machine: context, not a yardstick.

use super::model::{Document, ReportKind};
use super::numbers::thousands;
use super::table::Table;

/// A row of the published ten-protocol table.
struct Protocol {
    id: &'static str,
    label: &'static str,
    gateway: f64,
    direct: f64,
    differs: &'static str,
}

/// Apple M-series, 200 connections, 10 s, "64-byte echo".
const PROTOCOLS: [Protocol; 10] = [
    Protocol {
        id: "h1",
        label: "HTTP/1.1",
        gateway: 102_183.0,
        direct: 209_910.0,
        differs: "GET of a fixed 60-byte answer, no echo",
    },
    Protocol {
        id: "h1-tls",
        label: "HTTP/1.1+TLS",
        gateway: 101_317.0,
        direct: 209_361.0,
        differs: "direct row without any TLS",
    },
    Protocol {
        id: "h2",
        label: "HTTP/2",
        gateway: 108_138.0,
        direct: 355_544.0,
        differs: "21 connections, not 200; HTTP/2 over TLS to the backend",
    },
    Protocol {
        id: "h3",
        label: "HTTP/3",
        gateway: 53_085.0,
        direct: 83_592.0,
        differs: "21 connections; by its source, most probably a count of 502 answers",
    },
    Protocol { id: "grpc", label: "gRPC", gateway: 68_352.0, direct: 205_927.0, differs: "21 channels" },
    Protocol {
        id: "ws",
        label: "WebSocket",
        gateway: 103_830.0,
        direct: 207_507.0,
        differs: "content unchecked",
    },
    Protocol { id: "tcp", label: "TCP", gateway: 108_841.0, direct: 214_113.0, differs: "content unchecked" },
    Protocol {
        id: "tcp-tls",
        label: "TCP+TLS",
        gateway: 107_340.0,
        direct: 207_103.0,
        differs: "content unchecked",
    },
    Protocol {
        id: "udp",
        label: "UDP",
        gateway: 82_042.0,
        direct: 276_526.0,
        differs: "backend of one socket and one task",
    },
    Protocol {
        id: "udp-dtls",
        label: "UDP+DTLS",
        gateway: 76_107.0,
        direct: 101_839.0,
        differs: "backend of one socket and one task",
    },
];

/// Proxies, requests a second, and p99 in milliseconds of the published 30,000-proxy test.
const SCALE: [(u64, f64, f64); 10] = [
    (3_000, 49_236.0, 2.0),
    (6_000, 48_788.0, 2.1),
    (9_000, 48_892.0, 2.1),
    (12_000, 48_448.0, 2.1),
    (15_000, 47_562.0, 2.3),
    (18_000, 47_324.0, 2.2),
    (21_000, 46_656.0, 2.3),
    (24_000, 45_612.0, 2.4),
    (27_000, 44_363.0, 2.5),
    (30_000, 42_434.0, 2.8),
];

/// The published table beside a document's own figures; empty where nothing was published.
#[must_use]
pub fn beside(document: &Document) -> String {
    let (table, words) = match document.kind {
        ReportKind::Matrix => (protocols(document), METHOD_OF_PROTOCOLS),
        ReportKind::Scale => (scale(document), METHOD_OF_SCALE),
        _ => return String::new(),
    };
    format!("\n## Beside the published figures\n\n{words}\n\n{}", table.render())
}

const METHOD_OF_PROTOCOLS: &str = "Published for the original on an Apple M-series machine: 10 s, one round, no warm-up, \
no status, length or content checked, no CPU time, no memory. Figures of two machines cannot be compared; the share that \
remains through the gateway can, with care.";

const METHOD_OF_SCALE: &str = "Published for the original on an Apple M-series machine: no load while a batch was written, \
five seconds of rest after it, only statuses checked, pass mark 50 %.";

fn protocols(document: &Document) -> Table {
    let mut table = Table::new(&[
        "protocol",
        "gateway /s",
        "direct /s",
        "remains",
        "published gateway",
        "published direct",
        "published remains",
        "what the published row did differently",
    ]);
    let rate = |id: &str, subject: &str| Some(document.row(id, subject)?.summary.as_ref()?.rate.median);
    let share = |gateway: f64, direct: f64| format!("{:.0} %", gateway / direct * 100.0);
    for row in &PROTOCOLS {
        let (gateway, direct) = (rate(row.id, "gateway"), rate(row.id, "direct"));
        let shown = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), thousands);
        // Rates of rounds that strangers disturbed are no basis for a ratio.
        let mut rows = ["gateway", "direct"].into_iter().filter_map(|subject| document.row(row.id, subject));
        let calm = rows.all(|row| !row.is_disturbed());
        let both = gateway.zip(direct).filter(|_| calm);
        let remains = both.map_or_else(|| "–".to_owned(), |(gateway, direct)| share(gateway, direct));
        table.row(vec![
            row.label.to_owned(),
            shown(gateway),
            shown(direct),
            remains,
            thousands(row.gateway),
            thousands(row.direct),
            share(row.gateway, row.direct),
            row.differs.to_owned(),
        ]);
    }
    table
}

fn scale(document: &Document) -> Table {
    let mut table = Table::new(&[
        "proxies",
        "/s",
        "% of first",
        "p99 ms",
        "published /s",
        "published %",
        "published p99 ms",
    ]);
    let batches = document.scale.iter().flat_map(|scale| &scale.batches);
    for batch in batches.filter(|batch| !batch.is_void()) {
        let published = SCALE.iter().find(|(proxies, ..)| *proxies == batch.proxies);
        let other =
            |figure: &dyn Fn(&(u64, f64, f64)) -> String| published.map_or_else(|| "–".to_owned(), figure);
        table.row(vec![
            batch.proxies.to_string(),
            thousands(batch.steady.rate),
            format!("{:.0}", batch.percent_of_first),
            format!("{:.2}", batch.steady.latency.p99_us / 1e3),
            other(&|row| thousands(row.1)),
            other(&|row| format!("{:.0}", row.1 / SCALE[0].1 * 100.0)),
            other(&|row| format!("{:.1}", row.2)),
        ]);
    }
    table
}
