//! The text formats of metrics: Prometheus 0.0.4 and OpenMetrics 1.0.

use std::fmt::{self, Write};

use super::{Exemplar, HistogramSeries, Labels, Metric, MetricKind, MetricVisitor, Number};

/// A page in the making, in one of the two formats.
#[derive(Debug)]
pub struct TextPage {
    text: String,
    /// The name of the samples that follow.
    name: &'static str,
    is_open_metrics: bool,
}

impl TextPage {
    /// A page in Prometheus' own format.
    pub fn prometheus() -> Self {
        Self { text: String::with_capacity(16 << 10), name: "", is_open_metrics: false }
    }

    /// A page in the format OpenMetrics, with exemplars.
    pub fn open_metrics() -> Self {
        Self { is_open_metrics: true, ..Self::prometheus() }
    }

    /// The whole page.
    pub fn finish(mut self) -> String {
        if self.is_open_metrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    fn sample(&mut self, suffix: &str, labels: &Labels<'_>, bound: Option<f64>, value: Number) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        let mut separator = '{';
        for (name, value) in labels {
            push(&mut self.text, format_args!("{separator}{name}=\"{}\"", Escaped(value)));
            separator = ',';
        }
        if let Some(bound) = bound {
            let bound = Bound { bound, is_fraction: self.is_open_metrics };
            push(&mut self.text, format_args!("{separator}le=\"{bound}\""));
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        push(&mut self.text, format_args!(" {value}"));
    }
}

impl MetricVisitor for TextPage {
    fn metric(&mut self, metric: &Metric) {
        let Metric { name, kind, help } = *metric;
        self.name = name;
        // OpenMetrics names a counter without the ending of its samples.
        let head = match (self.is_open_metrics, kind) {
            (true, MetricKind::Counter) => name.strip_suffix("_total").unwrap_or(name),
            _ => name,
        };
        let help = Help { text: help.trim(), escapes_quotes: self.is_open_metrics };
        push(&mut self.text, format_args!("# HELP {head} {help}\n# TYPE {head} {}\n", kind.as_str()));
    }

    fn number(&mut self, labels: &Labels<'_>, value: Number) {
        self.sample("", labels, None, value);
        self.text.push('\n');
    }

    fn histogram(&mut self, labels: &Labels<'_>, series: &HistogramSeries<'_>) {
        for (bucket, (bound, count)) in series.cumulative().enumerate() {
            self.sample("_bucket", labels, Some(bound), count.into());
            if let Some(Some(exemplar)) = series.exemplars.get(bucket).filter(|_| self.is_open_metrics) {
                let Exemplar { trace, took, at } = exemplar;
                let (took, since) = (took.as_secs_f64(), at.as_secs_f64());
                push(&mut self.text, format_args!(" # {{trace_id=\"{trace}\"}} {took} {since:.3}"));
            }
            self.text.push('\n');
        }
        self.sample("_sum", labels, None, series.sum.into());
        self.text.push('\n');
        self.sample("_count", labels, None, series.count().into());
        self.text.push('\n');
    }

    fn wants_exemplars(&self) -> bool {
        self.is_open_metrics
    }
}

fn push(out: &mut String, text: fmt::Arguments<'_>) {
    let written = out.write_fmt(text);
    debug_assert!(written.is_ok(), "a string takes whatever is written");
}

/// A label's value, escaped.
struct Escaped<'l>(&'l str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Help { text: self.0, escapes_quotes: true }.fmt(f)
    }
}

/// A help text, escaped. Prometheus' own format leaves quotes as they are, OpenMetrics does not.
struct Help<'l> {
    text: &'l str,
    escapes_quotes: bool,
}

impl fmt::Display for Help<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.text.split_inclusive(['\\', '"', '\n']) {
            if let Some(part) = part.strip_suffix('\\') {
                write!(f, "{part}\\\\")?;
            } else if let Some(part) = part.strip_suffix('\n') {
                write!(f, "{part}\\n")?;
            } else if let Some(part) = part.strip_suffix('"').filter(|_| self.escapes_quotes) {
                write!(f, "{part}\\\"")?;
            } else {
                f.write_str(part)?;
            }
        }
        Ok(())
    }
}

/// The bound of a bucket. OpenMetrics wants fractions: `1.0`.
struct Bound {
    bound: f64,
    is_fraction: bool,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            bound if bound.is_infinite() => f.write_str("+Inf"),
            // `Debug` writes a fraction always.
            bound if self.is_fraction => write!(f, "{bound:?}"),
            bound => write!(f, "{bound}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const COUNTER: Metric = Metric::counter("a_total", "Many \"a\",\\ and more. ");
    const GAUGE: Metric = Metric::gauge("g", "Now.");
    const HISTOGRAM: Metric = Metric::histogram("h_seconds", "How long.");

    fn show(page: &mut TextPage) {
        page.metric(&COUNTER);
        page.number(&[("x", "1"), ("y", "a\"b\\c\nd")], u64::MAX.into());
        page.metric(&GAUGE);
        page.number(&[], (-3_i64).into());
        page.number(&[("z", "")], 0.5.into());
        page.metric(&HISTOGRAM);
        let at = Duration::from_millis(1500);
        let exemplar = Exemplar { trace: "abc".to_owned(), took: Duration::from_millis(250), at };
        let series = HistogramSeries {
            bounds: &[0.5, 1.0],
            counts: &[2, 0, 1],
            sum: 7.25,
            exemplars: &[Some(exemplar), None, None],
            exponential: None,
        };
        page.histogram(&[], &series);
        page.histogram(&[("p", "q")], &HistogramSeries { exemplars: &[], ..series });
    }

    #[test]
    fn prometheus_has_totals_in_heads_and_plain_bounds() {
        let mut page = TextPage::prometheus();
        show(&mut page);
        let expected = r#"# HELP a_total Many "a",\\ and more.
# TYPE a_total counter
a_total{x="1",y="a\"b\\c\nd"} 18446744073709551615
# HELP g Now.
# TYPE g gauge
g -3
g{z=""} 0.5
# HELP h_seconds How long.
# TYPE h_seconds histogram
h_seconds_bucket{le="0.5"} 2
h_seconds_bucket{le="1"} 2
h_seconds_bucket{le="+Inf"} 3
h_seconds_sum 7.25
h_seconds_count 3
h_seconds_bucket{p="q",le="0.5"} 2
h_seconds_bucket{p="q",le="1"} 2
h_seconds_bucket{p="q",le="+Inf"} 3
h_seconds_sum{p="q"} 7.25
h_seconds_count{p="q"} 3
"#;
        assert_eq!(page.finish(), expected);
    }

    #[test]
    fn open_metrics_has_exemplars_fractions_and_an_end() {
        let mut page = TextPage::open_metrics();
        show(&mut page);
        let expected = r#"# HELP a Many \"a\",\\ and more.
# TYPE a counter
a_total{x="1",y="a\"b\\c\nd"} 18446744073709551615
# HELP g Now.
# TYPE g gauge
g -3
g{z=""} 0.5
# HELP h_seconds How long.
# TYPE h_seconds histogram
h_seconds_bucket{le="0.5"} 2 # {trace_id="abc"} 0.25 1.500
h_seconds_bucket{le="1.0"} 2
h_seconds_bucket{le="+Inf"} 3
h_seconds_sum 7.25
h_seconds_count 3
h_seconds_bucket{p="q",le="0.5"} 2
h_seconds_bucket{p="q",le="1.0"} 2
h_seconds_bucket{p="q",le="+Inf"} 3
h_seconds_sum{p="q"} 7.25
h_seconds_count{p="q"} 3
# EOF
"#;
        assert_eq!(page.finish(), expected);
    }
}
