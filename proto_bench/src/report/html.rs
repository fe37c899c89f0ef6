//! One self-contained page with charts, from any number of result files. No script, nothing from the network.

use std::fmt::Write;

use super::markdown::{self, ids, subjects};
use super::model::{Document, ReportKind, Round, Row};
use super::numbers::thousands;

mod chart;
mod page;

use chart::{Bars, Curve, Lines};

/// The page.
#[must_use]
pub fn render(documents: &[Document]) -> String {
    let mut body = String::new();
    for document in documents {
        section(&mut body, document);
    }
    page::wrap(&body)
}

/// Text that is safe between tags and in attributes.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn section(out: &mut String, document: &Document) {
    writeln!(out, "<section><h2>{}</h2>", escape(markdown::title(document.kind))).ok();
    page::circumstances(out, document);
    if document.kind != ReportKind::Replay {
        page::table(out, &markdown::tables(document));
    }
    match document.kind {
        ReportKind::Replay => replay(out, document),
        ReportKind::Matrix | ReportKind::Compare => by_subject(out, document),
        ReportKind::Run => details(out, document),
        ReportKind::Clients | ReportKind::Sweep => ladder(out, document),
        ReportKind::Scale => scale(out, document),
    }
    page::table(out, &super::published::beside(document));
    if !document.notes.is_empty() {
        out.push_str("<h3>What to know beside the figures</h3><ul>");
        for note in &document.notes {
            write!(out, "<li>{}</li>", escape(note)).ok();
        }
        out.push_str("</ul>");
    }
    page::configurations(out, document);
    out.push_str("</section>\n");
}

/// Bars for each test with one bar a subject, then curves and memory.
fn by_subject(out: &mut String, document: &Document) {
    bars(out, document);
    curves(out, document);
    over_time(out, document);
}

/// Throughput and CPU as bars.
fn bars(out: &mut String, document: &Document) {
    let subjects = subjects(document);
    let figure = |title: &str, unit: &str, value: &dyn Fn(&Row) -> Option<f64>| {
        let mut bars = Bars::new(title, unit, &subjects);
        for first in ids(document) {
            let row = |subject: &&str| document.row(&first.id, subject).filter(|row| row.is_valid());
            bars.group(&first.label, subjects.iter().map(|subject| row(subject).and_then(value)).collect());
        }
        bars.render()
    };
    out.push_str("<div class=charts>");
    out.push_str(&figure("Throughput", "requests or messages a second", &|row| {
        Some(row.summary.as_ref()?.rate.median)
    }));
    out.push_str(&figure("CPU a request", "microseconds of the process under test", &|row| {
        Some(row.summary.as_ref()?.cpu_us_per_request?.median)
    }));
    out.push_str("</div>");
}

/// Percentile curves, one chart a test.
fn curves(out: &mut String, document: &Document) {
    out.push_str("<h3>Latency by percentile</h3><div class=\"charts small\">");
    for first in ids(document) {
        out.push_str(&percentiles(document, first, &first.label));
    }
    out.push_str("</div>");
}

/// Percentile curves of a test.
fn percentiles(document: &Document, first: &Row, title: &str) -> String {
    let curves = of_test(document, first, &|row| {
        // The round in the middle by p99 stands for the row.
        let mut rounds: Vec<_> = row.rounds.iter().collect();
        rounds.sort_by(|a, b| a.latency.p99_us.total_cmp(&b.latency.p99_us));
        let Some(round) = rounds.get(rounds.len() / 2) else { return Vec::new() };
        let at = |percentile: f64| -(1.0 - percentile / 100.0).max(1e-6).log10();
        let points = round.latency.curve.iter().filter(|(percentile, _)| *percentile < 100.0);
        points.map(|(percentile, us)| (at(*percentile), *us)).collect()
    });
    Lines::percentiles(title).render(&curves)
}

/// A figure of a round over its time.
struct OverTime {
    title: &'static str,
    unit: &'static str,
    of: fn(&Round) -> Vec<(f64, f64)>,
}

const OVER_TIME: [OverTime; 2] = [
    OverTime { title: "CPU over time", unit: "cores", of: |round| round.cpu.clone() },
    OverTime {
        title: "Resident memory over time",
        unit: "MiB",
        of: |round| round.memory.iter().map(|(at, bytes)| (*at, super::numbers::mebibytes(*bytes))).collect(),
    },
];

/// CPU and resident memory over the measured time, one chart a test each.
fn over_time(out: &mut String, document: &Document) {
    for figure in &OVER_TIME {
        let charts: String =
            ids(document).iter().map(|first| figure.chart(document, first, &first.label)).collect();
        if !charts.is_empty() {
            write!(out, "<h3>{}</h3><div class=\"charts small\">{charts}</div>", figure.title).ok();
        }
    }
}

impl OverTime {
    /// The figure of a test over the measured time, one round after the other.
    fn chart(&self, document: &Document, first: &Row, title: &str) -> String {
        let curves = of_test(document, first, &|row| {
            let (mut begun, mut points) = (0.0, Vec::new());
            for round in &row.rounds {
                points.extend((self.of)(round).into_iter().map(|(at, value)| (begun + at, value)));
                begun += round.window_seconds;
            }
            points
        });
        Lines::over_time(title, self.unit).render(&curves)
    }
}

/// A line for each valid row of a test, in its subject's colour.
fn of_test(document: &Document, first: &Row, points: &dyn Fn(&Row) -> Vec<(f64, f64)>) -> Vec<Curve> {
    let subjects = subjects(document);
    let colour = |row: &Row| subjects.iter().position(|subject| *subject == row.subject).unwrap_or(0);
    let rows = document.rows.iter().filter(|row| row.id == first.id && row.is_valid());
    let curve = |row: &Row| Curve { colour: colour(row), name: row.subject.clone(), points: points(row) };
    rows.map(curve).filter(|curve| !curve.points.is_empty()).collect()
}

/// A replay: each row's table with its graphs.
fn replay(out: &mut String, document: &Document) {
    let Some(replay) = &document.replay else { return };
    page::table(out, &markdown::replay::head(document, replay));
    bars(out, document);
    for row in &replay.rows {
        page::table(out, &markdown::replay::section(document, row));
        let Some(first) = document.rows.iter().find(|measured| measured.id == row.id) else { continue };
        let mut charts: String =
            OVER_TIME.iter().map(|figure| figure.chart(document, first, figure.title)).collect();
        charts.push_str(&percentiles(document, first, "Latency by percentile"));
        write!(out, "<div class=\"charts small\">{charts}</div>").ok();
    }
    page::table(out, &markdown::replay::at_rest(replay));
}

fn details(out: &mut String, document: &Document) {
    for row in document.rows.iter().filter(|row| row.is_valid()) {
        let Some(summary) = &row.summary else { continue };
        write!(
            out,
            "<p class=figure><strong>{}</strong> requests or messages a second, p50 {:.0} us, p99 {:.0} us</p>",
            thousands(summary.rate.median),
            summary.p50_us.median,
            summary.p99_us.median
        )
        .ok();
    }
    curves(out, document);
    over_time(out, document);
}

/// Rows that differ in one number: connections or rate.
fn ladder(out: &mut String, document: &Document) {
    let valid: Vec<&Row> = document.rows.iter().filter(|row| row.is_valid()).collect();
    let step = |row: &Row| match row.load.pace {
        crate::plan::Pace::Open { rate } => rate,
        crate::plan::Pace::Closed => f64::from(row.load.connections),
    };
    let line = |name: &str, value: &dyn Fn(&Row) -> Option<f64>| Curve {
        name: name.to_owned(),
        colour: 0,
        points: valid.iter().filter_map(|row| Some((step(row), value(row)?))).collect(),
    };
    let axis = if document.kind == ReportKind::Sweep { "requests a second, asked" } else { "connections" };
    let latencies = [
        line("p50", &|row| Some(row.summary.as_ref()?.p50_us.median)),
        line("p99", &|row| Some(row.summary.as_ref()?.p99_us.median)),
        line("p99.9", &|row| Some(row.summary.as_ref()?.p999_us.median)),
    ];
    out.push_str("<div class=charts>");
    out.push_str(&Lines::against("Latency", "us", axis).logarithmic().render(&coloured(latencies)));
    let rates = [line("answers", &|row| Some(row.summary.as_ref()?.rate.median))];
    out.push_str(&Lines::against("Throughput", "a second", axis).render(&coloured(rates)));
    let cost = [line("CPU", &|row| Some(row.summary.as_ref()?.cpu_us_per_request?.median))];
    out.push_str(&Lines::against("CPU a request", "us", axis).render(&coloured(cost)));
    out.push_str("</div>");
}

/// Everything against the number of proxies.
fn scale(out: &mut String, document: &Document) {
    let Some(scale) = &document.scale else { return };
    let good: Vec<_> = scale.batches.iter().filter(|batch| !batch.is_void()).collect();
    #[expect(clippy::cast_precision_loss, reason = "numbers of proxies")]
    let line = |name: &str, value: &dyn Fn(&super::model::Batch) -> Option<f64>| Curve {
        name: name.to_owned(),
        colour: 0,
        points: good.iter().filter_map(|batch| Some((batch.proxies as f64, value(batch)?))).collect(),
    };
    let axis = "proxies";
    out.push_str("<div class=charts>");
    let rates = [
        line("steady", &|batch| Some(batch.percent_of_first)),
        line("during writes", &|batch| {
            let first = good.first()?.steady.rate;
            Some(batch.during_writes.as_ref()?.rate / first * 100.0)
        }),
    ];
    out.push_str(
        &Lines::against("Throughput against number of proxies", "% of the first batch", axis)
            .render(&coloured(rates)),
    );
    let latencies = [
        line("p50", &|batch| Some(batch.steady.latency.p50_us)),
        line("p99", &|batch| Some(batch.steady.latency.p99_us)),
        line("p99 during writes", &|batch| Some(batch.during_writes.as_ref()?.latency.p99_us)),
        line("max", &|batch| Some(batch.steady.latency.max_us)),
    ];
    out.push_str(&Lines::against("Latency", "us", axis).logarithmic().render(&coloured(latencies)));
    let cpu = [line("gateway", &|batch| Some(batch.steady.subject.as_ref()?.cpu_us_per_request))];
    out.push_str(&Lines::against("CPU a request", "us", axis).render(&coloured(cpu)));
    let memory = [line("gateway", &|batch| {
        Some(super::numbers::mebibytes(batch.steady.subject.as_ref()?.resident_bytes))
    })];
    out.push_str(&Lines::against("Resident memory", "MiB", axis).render(&coloured(memory)));
    let visible =
        [line("p50", &|batch| Some(batch.visible.p50_us)), line("p99", &|batch| Some(batch.visible.p99_us))];
    out.push_str(&Lines::against("From write to visible", "us", axis).render(&coloured(visible)));
    out.push_str("</div>");
}

/// Lines that are no subjects take the colours in their order.
fn coloured<const N: usize>(mut curves: [Curve; N]) -> [Curve; N] {
    for (number, curve) in curves.iter_mut().enumerate() {
        curve.colour = number;
    }
    curves
}
