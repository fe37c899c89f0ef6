//! The formats of a page of metrics, and which of them a scraper prefers.

use gateway_core::metrics::MetricVisitor;
use gateway_core::metrics::text::TextPage;

use super::protobuf::ProtobufPage;

/// A format that pages are made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageFormat {
    Prometheus,
    OpenMetrics,
    Protobuf,
}

impl PageFormat {
    /// The format that a scraper prefers, by its `Accept`.
    pub(crate) fn preferred(accept: &str) -> Self {
        let delimited = ["proto=io.prometheus.client.metricfamily", "encoding=delimited"];
        let protobuf = quality(accept, "application/vnd.google.protobuf", &delimited).unwrap_or(0.0);
        let open = quality(accept, "application/openmetrics-text", &[]).unwrap_or(0.0);
        let text = quality(accept, "text/plain", &[]).unwrap_or(0.0);
        if protobuf > 0.0 && protobuf >= open && protobuf >= text {
            Self::Protobuf
        } else if open > 0.0 && open >= text {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// What is served as `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// A page of what `show` shows.
    pub(crate) fn page(self, show: impl FnOnce(&mut dyn MetricVisitor)) -> Vec<u8> {
        let mut text = match self {
            Self::Prometheus => TextPage::prometheus(),
            Self::OpenMetrics => TextPage::open_metrics(),
            Self::Protobuf => {
                let mut page = ProtobufPage::new();
                show(&mut page);
                return page.finish();
            }
        };
        show(&mut text);
        text.finish().into_bytes()
    }
}

/// How much a scraper wants a type with these parameters (in lower case), by its `Accept`; `None` where it does not name it.
fn quality(accept: &str, wanted: &str, parameters: &[&str]) -> Option<f32> {
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

#[cfg(test)]
mod tests {
    use super::*;

    const PROMETHEUS_3: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
        application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
        text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    const DELIMITED: &str =
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

    #[test]
    fn a_scraper_gets_what_it_prefers() {
        use PageFormat::{OpenMetrics, Prometheus, Protobuf};
        let prometheus_2 =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        for (accept, preferred) in [
            (PROMETHEUS_3, Protobuf),
            (prometheus_2, OpenMetrics),
            (DELIMITED, Protobuf),
            ("application/vnd.google.protobuf", Prometheus),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
                Prometheus,
            ),
            (&format!("{DELIMITED};q=0.1,text/plain"), Prometheus),
            (&format!("{DELIMITED};q=0.1,application/openmetrics-text;q=0.2"), OpenMetrics),
            ("application/openmetrics-text;version=1.0.0", OpenMetrics),
            ("application/openmetrics-text;q=0", Prometheus),
            ("application/openmetrics-text;q=0.1,text/plain", Prometheus),
            ("text/plain", Prometheus),
            ("*/*", Prometheus),
            ("", Prometheus),
        ] {
            assert_eq!(PageFormat::preferred(accept), preferred, "{accept}");
        }
    }
}
