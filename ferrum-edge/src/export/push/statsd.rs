//! Metrics as StatsD's lines over UDP: what counters grew by, gauges as they are, of histograms count and sum.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use gateway_core::config::model::StatsdPush as Rules;
use gateway_core::metrics::{HistogramSeries, Labels, MetricVisitor, Number};
use gateway_core::metrics::{Metric, MetricKind};
use gateway_core::plugin::World;
use tokio::sync::Mutex;

use super::super::datagram::{DatagramError, DatagramServer, pace};
use super::Scrape;

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

/// Why a push failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum StatsdPushError {
    #[error(transparent)]
    Server(#[from] DatagramError),
    #[error(transparent)]
    Send(#[from] io::Error),
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

    /// Pushes once; `false` where the gateway is gone. What could not be sent counts as not known, so that the next push has it.
    pub(super) async fn push(&self, scrape: &Scrape) -> Result<bool, StatsdPushError> {
        let (mut server, mut sent) = (self.server.lock().await, self.sent.lock().await);
        let mut lines = self.lines(&sent);
        if !scrape(&mut lines) {
            return Ok(false);
        }
        let datagrams = datagrams(lines.lines);
        let count = datagrams.len();
        for (number, (datagram, known)) in datagrams.into_iter().enumerate() {
            pace(number, count).await;
            if let Err(error) = server.socket().await?.send(datagram.as_bytes()).await {
                server.close();
                return Err(error.into());
            }
            sent.extend(known);
        }
        Ok(true)
    }

    fn lines<'s>(&'s self, before: &'s HashMap<String, f64>) -> Lines<'s> {
        let room = MAX_SERIES.saturating_sub(before.len());
        Lines { prefix: &self.prefix, tags: self.tags, before, room, metric: None, lines: Vec::new() }
    }
}

/// The lines of a push.
struct Lines<'s> {
    prefix: &'s str,
    tags: bool,
    /// What the server knows.
    before: &'s HashMap<String, f64>,
    /// How many more series are remembered.
    room: usize,
    /// The metric whose series follow; none at the beginning.
    metric: Option<Metric>,
    lines: Vec<StatsdLine>,
}

impl MetricVisitor for Lines<'_> {
    fn metric(&mut self, metric: &Metric) {
        self.metric = Some(*metric);
    }

    fn number(&mut self, labels: &Labels<'_>, value: Number) {
        let Some(metric) = self.metric else { return };
        if metric.kind == MetricKind::Counter {
            return self.growth(metric, "", labels, value.as_f64());
        }
        let (name, tags) = self.name(metric.name, labels);
        self.lines.push(StatsdLine { text: gauge(&name, &tags, value.as_f64()), known: None });
    }

    fn histogram(&mut self, labels: &Labels<'_>, series: &HistogramSeries<'_>) {
        let Some(metric) = self.metric else { return };
        self.growth(metric, ".count", labels, series.count() as f64);
        self.growth(metric, ".sum", labels, series.sum);
    }
}

impl Lines<'_> {
    /// By how much a series grew, if it did.
    fn growth(&mut self, metric: Metric, part: &str, labels: &Labels<'_>, value: f64) {
        // Under its own name: others may look the same to the server, which adds them up.
        let series = format!("{}{part}{labels:?}", metric.name);
        let Some((by, known)) = grown(self.before, &mut self.room, series, value) else { return };
        let (name, tags) = self.name(metric.name, labels);
        self.lines.push(StatsdLine { text: format!("{name}{part}:{by}|c{tags}"), known: Some(known) });
    }

    /// The name, with the labels in it or as tags behind it.
    fn name(&self, name: &str, labels: &Labels<'_>) -> (String, String) {
        let mut name = format!("{}{}", self.prefix, name.strip_suffix("_total").unwrap_or(name));
        let mut tags = String::new();
        for (label, value) in labels {
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

    /// A counter at this value, a gauge and a histogram.
    fn show(counter: u64, visitor: &mut dyn MetricVisitor) {
        visitor.metric(&Metric::counter("a_total", "Many."));
        visitor.number(&[("proxy", "s:h|o#p")], counter.into());
        visitor.metric(&Metric::gauge("g", "Now."));
        visitor.number(&[], 3_u64.into());
        visitor.metric(&Metric::histogram("h", "Long."));
        let series =
            HistogramSeries { bounds: &[1.0], counts: &[1, 1], sum: 2.5, ..HistogramSeries::default() };
        visitor.histogram(&[], &series);
    }

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
        let mut sent = |counter: u64| {
            let mut lines = push.lines(&before);
            show(counter, &mut lines);
            let lines = lines.lines;
            before.extend(lines.iter().filter_map(|line| line.known.clone()));
            texts(lines)
        };
        assert_eq!(
            sent(2),
            ["edge.a:2|c|#proxy:s_h_o_p", "edge.g:3|g", "edge.h.count:2|c", "edge.h.sum:2.5|c"]
        );
        assert_eq!(sent(5), ["edge.a:3|c|#proxy:s_h_o_p", "edge.g:3|g"]);
        assert_eq!(sent(1)[0], "edge.a:1|c|#proxy:s_h_o_p");
    }

    #[test]
    fn without_tags_labels_are_part_of_the_name() {
        let (push, before) = (pusher(false, 1), HashMap::new());
        let mut lines = push.lines(&before);
        show(2, &mut lines);
        assert_eq!(texts(lines.lines)[0], "edge.a.s_h_o_p:2|c");
    }

    #[test]
    fn series_that_look_the_same_to_a_server_each_say_what_they_grew_by() {
        let (push, mut before) = (pusher(false, 1), HashMap::new());
        for (counts, expected) in
            [([100_u64, 7], vec!["edge.a.s_h:100|c", "edge.a.s_h:7|c"]), ([101, 7], vec!["edge.a.s_h:1|c"])]
        {
            let mut lines = push.lines(&before);
            lines.metric(&Metric::counter("a_total", "Many."));
            for (proxy, count) in ["s.h", "s_h"].into_iter().zip(counts) {
                lines.number(&[("proxy", proxy)], count.into());
            }
            let lines = lines.lines;
            before.extend(lines.iter().filter_map(|line| line.known.clone()));
            assert_eq!(texts(lines), expected);
        }
    }

    #[test]
    fn a_gauge_below_zero_is_no_decrease() {
        let (push, before) = (pusher(true, 1), HashMap::new());
        let mut lines = push.lines(&before);
        lines.metric(&Metric::gauge("g", "Now."));
        lines.number(&[("a", "b")], (-3_i64).into());
        assert_eq!(texts(lines.lines), ["edge.g:0|g|#a:b\nedge.g:-3|g|#a:b"]);
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
        let scrape = |counter| -> Scrape {
            Arc::new(move |visitor: &mut dyn MetricVisitor| {
                show(counter, visitor);
                true
            })
        };
        assert!(push.push(&scrape(2)).await.is_err());
        *push.server.lock().await = good;
        assert!(push.push(&scrape(5)).await.unwrap());
        let mut space = [0; 2000];
        let length = server.recv(&mut space).await.unwrap();
        let text = String::from_utf8_lossy(&space[..length]);
        assert!(text.starts_with("edge.a:5|c|#proxy:s_h_o_p\n"), "{text}");
    }
}
