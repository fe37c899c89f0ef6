//! Metrics as StatsD's lines over UDP: what counters grew by, gauges as they are, of histograms count and sum.

use std::collections::HashMap;
use std::sync::Arc;

use gateway_core::config::model::StatsdPush as Rules;
use gateway_core::plugin::World;
use tokio::sync::Mutex;

use super::super::datagram::{DatagramServer, pace};
use super::families::{self, MetricKind, Point};

/// Bytes of one datagram: what passes most networks whole.
const MAX_DATAGRAM: usize = 1400;
/// Series whose last value is remembered; what is beyond is left out.
const MAX_SERIES: usize = 100_000;

/// Pushes to a server of StatsD.
pub(super) struct StatsdPush {
    prefix: Box<str>,
    tags: bool,
    server: Mutex<DatagramServer>,
    /// What was sent of each series that grows. Another push that a reload puts in the place of this one goes on with it: what
    /// was sent once is not sent again.
    sent: Arc<Mutex<HashMap<String, f64>>>,
}

/// A line, and what the server knows of its series once it was sent.
struct StatsdLine {
    text: String,
    known: Option<(String, f64)>,
}

impl StatsdPush {
    pub(super) fn new(rules: &Rules, world: &World) -> Self {
        let server = DatagramServer::new(&rules.host, rules.port, world);
        Self {
            prefix: rules.prefix.clone(),
            tags: rules.tags,
            server: Mutex::new(server),
            sent: world.shared("metrics.statsd", Mutex::default),
        }
    }

    /// What could not be sent counts as not known, so that the next push has it.
    pub(super) async fn push(&self, page: &str) -> Result<(), String> {
        let (mut server, mut sent) = (self.server.lock().await, self.sent.lock().await);
        let datagrams = datagrams(self.lines(page, &sent));
        let count = datagrams.len();
        for (number, (datagram, known)) in datagrams.into_iter().enumerate() {
            pace(number, count).await;
            if let Err(error) = server.socket().await?.send(datagram.as_bytes()).await {
                server.close();
                return Err(error.to_string());
            }
            sent.extend(known);
        }
        Ok(())
    }

    fn lines(&self, page: &str, before: &HashMap<String, f64>) -> Vec<StatsdLine> {
        let mut lines = Vec::new();
        let mut room = MAX_SERIES.saturating_sub(before.len());
        for family in families::of(page) {
            for point in &family.points {
                let (name, tags) = self.name(family.name, point);
                // Under its own name: others may look the same to the server, which adds them up.
                let series = |part: &str| format!("{}{part}{:?}", family.name, point.labels);
                let mut grown = |part: &str, value| {
                    let by = grown(before, &mut room, series(part), value);
                    lines.extend(by.map(|(by, known)| StatsdLine {
                        text: format!("{name}{part}:{by}|c{tags}"),
                        known: Some(known),
                    }));
                };
                match family.kind {
                    MetricKind::Gauge => {
                        lines.push(StatsdLine { text: gauge(&name, &tags, point.value), known: None });
                    }
                    MetricKind::Counter => grown("", point.value),
                    MetricKind::Histogram => {
                        grown(".count", point.count() as f64);
                        grown(".sum", point.value);
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

/// Lines in as few datagrams as they fit into, each with what is known once it was sent.
fn datagrams(lines: Vec<StatsdLine>) -> Vec<(String, Vec<(String, f64)>)> {
    let mut all: Vec<(String, Vec<(String, f64)>)> = Vec::new();
    for StatsdLine { text, known } in lines {
        match all.last_mut() {
            Some((datagram, series)) if datagram.len() + text.len() < MAX_DATAGRAM => {
                datagram.push('\n');
                datagram.push_str(&text);
                series.extend(known);
            }
            _ => all.push((text, known.into_iter().collect())),
        }
    }
    all
}

/// A gauge as it is. With a sign it would be a change of what the server has, so that one below zero begins at zero.
fn gauge(name: &str, tags: &str, value: f64) -> String {
    let zero = if value < 0.0 { format!("{name}:0|g{tags}\n") } else { String::new() };
    format!("{zero}{name}:{value}|g{tags}")
}

/// By how much a series grew, and what is known of it then; nothing where it did not, but for one that began anew. `room` is how
/// many more series are remembered.
fn grown(
    before: &HashMap<String, f64>,
    room: &mut usize,
    series: String,
    value: f64,
) -> Option<(f64, (String, f64))> {
    let known = before.get(&series).copied();
    // One that began anew, with another proxy at its place, counts from nothing.
    let by = known.map(|known| value - known).filter(|by| *by >= 0.0).unwrap_or(value);
    if by <= 0.0 && known.is_none_or(|known| known <= value) {
        return None;
    }
    if known.is_none() {
        *room = room.checked_sub(1)?;
    }
    Some((by, (series, value)))
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

    fn pusher(tags: bool, port: u16) -> StatsdPush {
        let rules = Rules {
            host: "127.0.0.1".into(),
            port,
            prefix: "edge.".into(),
            tags,
            push_interval: std::time::Duration::ZERO,
        };
        StatsdPush::new(&rules, &World::default())
    }

    fn texts(lines: Vec<StatsdLine>) -> Vec<String> {
        lines.into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn counters_are_sent_as_what_they_grew_by() {
        let (push, mut before) = (pusher(true, 1), HashMap::new());
        let mut sent = |page: &str| {
            let lines = push.lines(page, &before);
            before.extend(lines.iter().filter_map(|line| line.known.clone()));
            texts(lines)
        };
        assert_eq!(
            sent(PAGE),
            ["edge.a:2|c|#proxy:s_h_o_p", "edge.g:3|g", "edge.h.count:2|c", "edge.h.sum:2.5|c"]
        );
        let again = sent(&PAGE.replace("} 2\n# HELP g", "} 5\n# HELP g"));
        assert_eq!(again, ["edge.a:3|c|#proxy:s_h_o_p", "edge.g:3|g"]);
        let anew = sent(&PAGE.replace("} 2\n# HELP g", "} 1\n# HELP g"));
        assert_eq!(anew[0], "edge.a:1|c|#proxy:s_h_o_p");
    }

    #[test]
    fn without_tags_labels_are_part_of_the_name() {
        let lines = texts(pusher(false, 1).lines(PAGE, &HashMap::new()));
        assert_eq!(lines[0], "edge.a.s_h_o_p:2|c");
    }

    #[test]
    fn series_that_look_the_same_to_a_server_each_say_what_they_grew_by() {
        let (push, mut before) = (pusher(false, 1), HashMap::new());
        let page = |a: u32, b: u32| {
            format!("# TYPE a_total counter\na_total{{proxy=\"s.h\"}} {a}\na_total{{proxy=\"s_h\"}} {b}\n")
        };
        for (counts, expected) in
            [((100, 7), vec!["edge.a.s_h:100|c", "edge.a.s_h:7|c"]), ((101, 7), vec!["edge.a.s_h:1|c"])]
        {
            let lines = push.lines(&page(counts.0, counts.1), &before);
            before.extend(lines.iter().filter_map(|line| line.known.clone()));
            assert_eq!(texts(lines), expected);
        }
    }

    #[test]
    fn a_gauge_below_zero_is_no_decrease() {
        let page = "# TYPE g gauge\ng{a=\"b\"} -3\n";
        assert_eq!(
            texts(pusher(true, 1).lines(page, &HashMap::new())),
            ["edge.g:0|g|#a:b\nedge.g:-3|g|#a:b"]
        );
    }

    #[test]
    fn lines_share_datagrams_as_far_as_they_fit() {
        let line = |n: usize| StatsdLine { text: "x".repeat(600), known: Some((n.to_string(), 1.0)) };
        let all = datagrams((0..5).map(line).collect());
        assert_eq!(
            all.iter().map(|(text, known)| (text.len(), known.len())).collect::<Vec<_>>(),
            [(1201, 2), (1201, 2), (600, 1)]
        );
    }

    #[tokio::test]
    async fn what_could_not_be_sent_is_sent_the_next_time() {
        let server = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let push = pusher(true, server.local_addr().unwrap().port());
        // A server that has no address yet.
        let broken = DatagramServer::new(&"nowhere.test".into(), 1, &World::default());
        let good = std::mem::replace(&mut *push.server.lock().await, broken);
        assert!(push.push(PAGE).await.is_err());
        *push.server.lock().await = good;
        push.push(&PAGE.replace("} 2\n# HELP g", "} 5\n# HELP g")).await.unwrap();
        let mut space = [0; 2000];
        let length = server.recv(&mut space).await.unwrap();
        let text = String::from_utf8_lossy(&space[..length]);
        assert!(text.starts_with("edge.a:5|c|#proxy:s_h_o_p\n"), "{text}");
    }
}
