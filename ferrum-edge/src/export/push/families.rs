//! The metrics page taken apart again, for those to whom metrics are pushed.
//!
//! One place makes the numbers (`prometheus.rs` and the plugins' meters); whoever pushes reads what a scraper would.

/// The metrics of one name.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::export) struct Family<'t> {
    pub(in crate::export) name: &'t str,
    pub(in crate::export) help: &'t str,
    pub(in crate::export) kind: MetricKind,
    pub(in crate::export) points: Vec<Point>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::export) enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// One series.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::export) struct Point {
    pub(in crate::export) labels: Vec<(String, String)>,
    /// The value; of a histogram the sum.
    pub(in crate::export) value: f64,
    /// Of a histogram: upper bounds, and counts up to each, the one without a bound at the end.
    pub(in crate::export) bounds: Vec<f64>,
    pub(in crate::export) cumulative: Vec<u64>,
}

impl Point {
    /// Of a histogram: how many there are.
    pub(in crate::export) fn count(&self) -> u64 {
        self.cumulative.last().copied().unwrap_or_default()
    }

    /// Of a histogram: the counts between bounds.
    pub(in crate::export) fn buckets(&self) -> Vec<u64> {
        let before = std::iter::once(0).chain(self.cumulative.iter().copied());
        self.cumulative.iter().zip(before).map(|(count, before)| count.saturating_sub(before)).collect()
    }
}

/// Every metric of a page in the text format.
pub(in crate::export) fn of(page: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    let mut help = "";
    for line in page.lines() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            help = head.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|head| head.split_once(' '))
        {
            let kind = match kind {
                "counter" => MetricKind::Counter,
                "histogram" => MetricKind::Histogram,
                _ => MetricKind::Gauge,
            };
            families.push(Family { name, help, kind, points: Vec::new() });
        } else if let Some(family) = families.last_mut() {
            family.sample(line);
        }
    }
    families
}

impl Family<'_> {
    fn sample(&mut self, line: &str) {
        let Some((sample, value)) = line.rsplit_once(' ') else { return };
        let (name, text) = sample.split_once('{').unwrap_or((sample, ""));
        let mut labels = labels(text.strip_suffix('}').unwrap_or(text));
        let Ok(value) = value.parse::<f64>() else { return };
        if self.kind != MetricKind::Histogram {
            self.points.push(Point { labels, value, ..Point::default() });
            return;
        }
        let bound = labels.iter().position(|(name, _)| name == "le").map(|at| labels.remove(at).1);
        // The lines of one series stand together.
        if self.points.last().is_none_or(|point| point.labels != labels) {
            self.points.push(Point { labels, ..Point::default() });
        }
        let Some(point) = self.points.last_mut() else { return };
        match (bound, name.strip_prefix(self.name)) {
            (Some(bound), _) => {
                point.cumulative.push(value as u64);
                point.bounds.extend(bound.parse::<f64>().ok().filter(|bound| bound.is_finite()));
            }
            (None, Some("_sum")) => point.value = value,
            _ => {}
        }
    }
}

/// `name="value",other="value"`, as we write them ourselves.
fn labels(text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once("=\"") {
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next() {
                Some((at, '"')) => break at,
                Some((_, '\\')) => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, other)) => value.push(other),
                    None => return labels,
                },
                Some((_, other)) => value.push(other),
                None => return labels,
            }
        };
        labels.push((name.trim_start_matches(',').to_owned(), value));
        rest = after.get(end + 1..).unwrap_or_default();
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_taken_apart() {
        let page = "# HELP a_total Many.\n# TYPE a_total counter\na_total{x=\"1\",y=\"a\\\"b\\\\,c=\\n}\"} 2\na_total 3\n\
            # HELP h Long.\n# TYPE h histogram\nh_bucket{p=\"s\",le=\"0.5\"} 1\nh_bucket{p=\"s\",le=\"1\"} 3\n\
            h_bucket{p=\"s\",le=\"+Inf\"} 4\nh_sum{p=\"s\"} 2.5\nh_count{p=\"s\"} 4\n";
        let families = of(page);
        assert_eq!((families.len(), families[0].help, families[0].kind), (2, "Many.", MetricKind::Counter));
        let labels = &families[0].points[0].labels;
        assert_eq!(labels, &[("x".to_owned(), "1".to_owned()), ("y".to_owned(), "a\"b\\,c=\n}".to_owned())]);
        assert_eq!((families[0].points[1].value, families[0].points.len()), (3.0, 2));
        let [point] = families[1].points.as_slice() else { panic!("{families:?}") };
        assert_eq!((point.count(), point.value, point.bounds.as_slice()), (4, 2.5, &[0.5, 1.0][..]));
        assert_eq!((point.buckets(), point.labels.len()), (vec![1, 2, 1], 1));
    }
}
