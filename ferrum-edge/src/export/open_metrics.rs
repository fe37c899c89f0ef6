//! The same metrics as OpenMetrics 1.0, with exemplars: a trace for each bucket of the requests' durations.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::UNIX_EPOCH;

use gateway_core::record::metric;

use super::Telemetry;
use super::exemplars::Exemplar;
use super::histogram::BOUNDS;
use super::labels::request_labels;

/// What is served as `Content-Type`.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How much a scraper wants a type with these parameters (in lower case), by its `Accept`; `None` where it does not name it.
pub(super) fn quality(accept: &str, wanted: &str, parameters: &[&str]) -> Option<f32> {
    accept.split(',').find_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let rest: Vec<String> = match parts.next()?.eq_ignore_ascii_case(wanted) {
            true => parts.map(str::to_ascii_lowercase).collect(),
            false => return None,
        };
        let is_meant = parameters.iter().all(|wanted| rest.iter().any(|it| it == wanted));
        let weight =
            rest.iter().find_map(|part| part.strip_prefix("q=")).map_or(Some(1.0), |text| text.parse().ok());
        is_meant.then(|| weight.unwrap_or(0.0_f32))
    })
}

/// Whether a scraper prefers OpenMetrics to the text format, by its `Accept`.
pub(crate) fn is_preferred(accept: &str) -> bool {
    quality(accept, "application/openmetrics-text", &[])
        .is_some_and(|open| open > 0.0 && open >= quality(accept, "text/plain", &[]).unwrap_or(0.0))
}

/// The text format rewritten: counters are named without `_total` in their heads, bounds are fractions, and there is an end.
pub(crate) fn of(text: &str, telemetry: &Telemetry) -> String {
    let exemplars = newest(telemetry);
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# ") {
            let mut words = head.splitn(3, ' ');
            let (word, name, rest) = (words.next(), words.next(), words.next());
            let (word, name, rest) = (word.unwrap_or(""), name.unwrap_or(""), rest.unwrap_or(""));
            // In this format a backslash stands for itself only when it is doubled.
            let rest = if word == "HELP" {
                rest.replace('\\', "\\\\").replace('"', "\\\"")
            } else {
                rest.to_owned()
            };
            push(&mut out, format_args!("# {word} {} {rest}\n", name.strip_suffix("_total").unwrap_or(name)));
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap_or((line, ""));
        push(&mut out, format_args!("{} {value}", fraction(sample)));
        if let Some(Exemplar { trace, took, at }) = exemplars.get(sample) {
            let since = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
            push(&mut out, format_args!(" # {{trace_id=\"{trace}\"}} {} {since:.3}", took.as_secs_f64()));
        }
        out.push('\n');
    }
    out.push_str("# EOF\n");
    out
}

/// The sample with its bound as a fraction: `le="1"` is `le="1.0"`.
fn fraction(sample: &str) -> std::borrow::Cow<'_, str> {
    const LE: &str = "le=\"";
    let Some((before, rest)) = sample.rsplit_once(LE) else { return sample.into() };
    match rest.split_once('"') {
        Some((bound, after)) if bound.bytes().all(|c| c.is_ascii_digit()) => {
            format!("{before}{LE}{bound}.0\"{after}").into()
        }
        _ => sample.into(),
    }
}

/// The newest exemplar of each bucket, by its sample as the text format writes it.
pub(super) fn newest(telemetry: &Telemetry) -> HashMap<String, Exemplar> {
    let mut newest: HashMap<String, Exemplar> = HashMap::new();
    for worker in &telemetry.workers {
        for ((version, class, bucket), exemplar) in worker.exemplars.iter() {
            let bound = BOUNDS.get(bucket).map_or("+Inf", |(_, bound)| bound);
            let labels = request_labels(version, class);
            let sample = format!("{}_bucket{{{labels},le=\"{bound}\"}}", metric::REQUEST_DURATION.name);
            let known = newest.entry(sample).or_insert(exemplar);
            if known.at < exemplar.at {
                *known = exemplar;
            }
        }
    }
    newest
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    let written = out.write_fmt(text);
    debug_assert!(written.is_ok(), "a string takes whatever is written");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scraper_gets_what_it_prefers() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, preferred) in [
            (prometheus, true),
            ("text/plain", false),
            ("", false),
            ("*/*", false),
            ("application/openmetrics-text", true),
            ("application/openmetrics-text;q=0", false),
            ("application/openmetrics-text;q=0.1,text/plain", false),
        ] {
            assert_eq!(is_preferred(accept), preferred, "{accept}");
        }
    }

    #[test]
    fn the_text_is_rewritten() {
        let text = "# HELP a_total Many \"a\".\n# TYPE a_total counter\na_total{x=\"1\"} 2\n\
            # HELP h How long.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"2.5\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n";
        let telemetry = Telemetry::new(1, &gateway_core::config::model::Settings::default()).unwrap();
        let expected = "# HELP a Many \\\"a\\\".\n# TYPE a counter\na_total{x=\"1\"} 2\n\
            # HELP h How long.\n# TYPE h histogram\nh_bucket{le=\"1.0\"} 1\nh_bucket{le=\"2.5\"} 1\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n# EOF\n";
        assert_eq!(of(text, &telemetry), expected);
    }
}
