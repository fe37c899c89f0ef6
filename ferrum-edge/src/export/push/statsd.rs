//! Metrics as StatsD's lines over UDP: what counters grew by, gauges as they are, of histograms count and sum.

use std::collections::HashMap;
use std::sync::Arc;

use gateway_core::config::model::StatsdPush as Rules;
use tokio::net::UdpSocket;
use tokio::sync::Mutex;

use super::families::{self, MetricKind, Point};

/// Bytes of one datagram: what passes most networks whole.
const MAX_DATAGRAM: usize = 1400;
/// Series whose last value is remembered; what is beyond is left out.
const MAX_SERIES: usize = 100_000;

/// Pushes to a server of StatsD.
pub(super) struct StatsdPush {
    host: Arc<str>,
    port: u16,
    prefix: Box<str>,
    tags: bool,
    before: Mutex<HashMap<String, f64>>,
}

impl StatsdPush {
    pub(super) fn new(rules: &Rules) -> Self {
        Self {
            host: rules.host.clone(),
            port: rules.port,
            prefix: rules.prefix.clone(),
            tags: rules.tags,
            before: Mutex::default(),
        }
    }

    pub(super) async fn push(&self, page: &str) -> Result<(), String> {
        let lines = {
            let mut before = self.before.lock().await;
            self.lines(page, &mut before)
        };
        let socket = self.open().await.map_err(|error| error.to_string())?;
        let mut datagram = String::new();
        for line in lines {
            if !datagram.is_empty() && datagram.len() + line.len() + 1 > MAX_DATAGRAM {
                socket.send(datagram.as_bytes()).await.map_err(|error| error.to_string())?;
                datagram.clear();
            }
            if !datagram.is_empty() {
                datagram.push('\n');
            }
            datagram.push_str(&line);
        }
        if !datagram.is_empty() {
            socket.send(datagram.as_bytes()).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    async fn open(&self) -> std::io::Result<UdpSocket> {
        let found = tokio::net::lookup_host((&*self.host, self.port)).await?.next();
        let Some(server) = found else { return Err(std::io::ErrorKind::NotFound.into()) };
        let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).await?;
        socket.connect(server).await?;
        Ok(socket)
    }

    fn lines(&self, page: &str, before: &mut HashMap<String, f64>) -> Vec<String> {
        let mut lines = Vec::new();
        for family in families::of(page) {
            for point in &family.points {
                let (name, tags) = self.name(family.name, point);
                match family.kind {
                    MetricKind::Gauge => lines.push(format!("{name}:{}|g{tags}", point.value)),
                    MetricKind::Counter => lines.extend(grown(before, &name, &tags, point.value)),
                    MetricKind::Histogram => {
                        let count = format!("{name}.count");
                        lines.extend(grown(before, &count, &tags, point.count() as f64));
                        lines.extend(grown(before, &format!("{name}.sum"), &tags, point.value));
                    }
                }
            }
        }
        lines
    }

    /// The name, with the labels in it or as tags behind it.
    fn name(&self, name: &str, point: &Point) -> (String, String) {
        let mut name = format!("{}{}", self.prefix, name.strip_suffix("_total").unwrap_or(name));
        let mut tags = String::new();
        for (label, value) in &point.labels {
            let value = plain(value, self.tags);
            if self.tags {
                tags.push_str(if tags.is_empty() { "|#" } else { "," });
                tags.push_str(&format!("{label}:{value}"));
            } else {
                name.push_str(&format!(".{value}"));
            }
        }
        (name, tags)
    }
}

/// The line that says by how much a series grew; nothing where it did not.
fn grown(before: &mut HashMap<String, f64>, name: &str, tags: &str, value: f64) -> Option<String> {
    let series = format!("{name}{tags}");
    if before.len() >= MAX_SERIES && !before.contains_key(&series) {
        return None;
    }
    let by = value - before.insert(series, value).unwrap_or(0.0);
    // One that began anew, with another proxy at its place, counts from nothing.
    let by = if by < 0.0 { value } else { by };
    (by > 0.0).then(|| format!("{name}:{by}|c{tags}"))
}

/// Without the characters that mean something in a line; dots part names where labels are in them.
fn plain(value: &str, dots: bool) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/') || dots && c == '.';
    value.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP a_total Many.\n# TYPE a_total counter\na_total{proxy=\"s:h|o#p\"} 2\n\
        # HELP g Now.\n# TYPE g gauge\ng 3\n# HELP h Long.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 2.5\nh_count 2\n";

    fn pusher(tags: bool) -> StatsdPush {
        let rules = Rules {
            host: "h".into(),
            port: 1,
            prefix: "edge.".into(),
            tags,
            push_interval: std::time::Duration::ZERO,
        };
        StatsdPush::new(&rules)
    }

    #[test]
    fn counters_are_sent_as_what_they_grew_by() {
        let (push, mut before) = (pusher(true), HashMap::new());
        let first = push.lines(PAGE, &mut before);
        assert_eq!(
            first,
            ["edge.a:2|c|#proxy:s_h_o_p", "edge.g:3|g", "edge.h.count:2|c", "edge.h.sum:2.5|c"]
        );
        let again = push.lines(&PAGE.replace("} 2\n# HELP g", "} 5\n# HELP g"), &mut before);
        assert_eq!(again, ["edge.a:3|c|#proxy:s_h_o_p", "edge.g:3|g"]);
        let anew = push.lines(&PAGE.replace("} 2\n# HELP g", "} 1\n# HELP g"), &mut before);
        assert_eq!(anew[0], "edge.a:1|c|#proxy:s_h_o_p");
    }

    #[test]
    fn without_tags_labels_are_part_of_the_name() {
        let lines = pusher(false).lines(PAGE, &mut HashMap::new());
        assert_eq!(lines[0], "edge.a.s_h_o_p:2|c");
    }
}
