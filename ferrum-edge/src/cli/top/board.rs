//! What `top` shows: rates and percentiles, made of two looks at a gateway's counts.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::export::fine_histogram::FineHistogram;

/// One look, as `/v1/traffic` answers it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Look {
    seconds: f64,
    bounds: Vec<f64>,
    rows: Vec<Row>,
    callers: Vec<Caller>,
    /// All proxies, also those without traffic; a gateway of an earlier version names none.
    proxies: Vec<String>,
    targets: Vec<Target>,
    active_requests: u64,
    connections: u64,
    revision: u64,
    version: String,
}

/// The counts of one pair of proxy and target.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Row {
    proxy: Option<String>,
    upstream: Option<String>,
    target: Option<String>,
    is_rest: bool,
    #[serde(flatten)]
    counts: Counts,
}

/// The counts of one caller.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Caller {
    caller: Option<String>,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Counts {
    classes: Vec<u64>,
    errors: u64,
    retries: u64,
    buckets: Vec<u64>,
    /// Durations by the parts of a fine histogram; a gateway of an earlier version has none.
    fine: Vec<(u32, u64)>,
    duration_seconds: f64,
    sessions: u64,
    bytes_in: u64,
    bytes_out: u64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Target {
    upstream: String,
    address: String,
    healthy: bool,
    in_flight: u64,
}

/// What the lines of a table are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Proxies,
    Upstreams,
    Targets,
    Callers,
}

/// A line of a table.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct TableLine {
    pub(super) name: String,
    pub(super) requests_per_second: f64,
    /// Exchanges with a status of 4xx; clients' mistakes, mostly.
    pub(super) client_errors_per_second: f64,
    /// Exchanges that the gateway ended with an error, or with a status of 5xx.
    pub(super) errors_per_second: f64,
    pub(super) retries_per_second: f64,
    /// Seconds; `None` without exchanges.
    pub(super) p50: Option<f64>,
    pub(super) p90: Option<f64>,
    pub(super) p99: Option<f64>,
    /// Exchanges under way on average, by Little's law: what ended, times how long it took.
    pub(super) in_flight: f64,
    pub(super) sessions_per_second: f64,
    pub(super) bytes_in_per_second: f64,
    pub(super) bytes_out_per_second: f64,
    /// Whether a target gets traffic; of an upstream, whether all of its do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) healthy: Option<bool>,
}

/// Everything that is shown.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Board {
    /// The time between the two looks.
    pub(super) seconds: f64,
    pub(super) version: String,
    pub(super) revision: u64,
    pub(super) connections: u64,
    /// Exchanges under way now.
    pub(super) active_requests: u64,
    pub(super) total: TableLine,
    pub(super) proxies: Vec<TableLine>,
    pub(super) upstreams: Vec<TableLine>,
    pub(super) targets: Vec<TableLine>,
    /// By consumer or external identity; callers that nobody recognised are not among them.
    pub(super) callers: Vec<TableLine>,
}

/// The answer does not have the form of `/v1/traffic`.
#[derive(Debug, thiserror::Error)]
#[error("the gateway answers otherwise: {0}")]
pub(super) struct OtherAnswer(#[from] serde_json::Error);

impl Look {
    /// Reads an answer of `/v1/traffic`.
    ///
    /// # Errors
    /// When it does not have that form.
    pub(super) fn read(answer: Value) -> Result<Self, OtherAnswer> {
        Ok(serde_json::from_value(answer)?)
    }
}

impl Counts {
    /// Adds what came since `before`.
    fn add(&mut self, now: &Self, before: Option<&Self>) {
        let zero = Self::default();
        let before = before.unwrap_or(&zero);
        let each = |sums: &mut Vec<u64>, now: &[u64], before: &[u64]| {
            sums.resize(sums.len().max(now.len()), 0);
            for (n, (sum, count)) in sums.iter_mut().zip(now).enumerate() {
                *sum += count.saturating_sub(before.get(n).copied().unwrap_or(0));
            }
        };
        each(&mut self.classes, &now.classes, &before.classes);
        each(&mut self.buckets, &now.buckets, &before.buckets);
        let mut fine: BTreeMap<u32, u64> = self.fine.iter().copied().collect();
        let earlier: HashMap<u32, u64> = before.fine.iter().copied().collect();
        for (part, count) in &now.fine {
            let new = count.saturating_sub(earlier.get(part).copied().unwrap_or(0));
            if new > 0 {
                *fine.entry(*part).or_default() += new;
            }
        }
        self.fine = fine.into_iter().collect();
        self.errors += now.errors.saturating_sub(before.errors);
        self.retries += now.retries.saturating_sub(before.retries);
        self.sessions += now.sessions.saturating_sub(before.sessions);
        self.bytes_in += now.bytes_in.saturating_sub(before.bytes_in);
        self.bytes_out += now.bytes_out.saturating_sub(before.bytes_out);
        self.duration_seconds += (now.duration_seconds - before.duration_seconds).max(0.0);
    }

    fn line(&self, name: String, seconds: f64, bounds: &[f64]) -> TableLine {
        // Counts of a few seconds are exact in a double.
        let rate = |count: u64| count as f64 / seconds;
        let fine = FineHistogram(self.fine.iter().copied().collect());
        let quantile = |share| fine.quantile(share).or_else(|| quantile(&self.buckets, bounds, share));
        TableLine {
            name,
            requests_per_second: rate(self.classes.iter().sum()),
            client_errors_per_second: rate(self.classes.get(3).copied().unwrap_or(0)),
            errors_per_second: rate(self.errors),
            retries_per_second: rate(self.retries),
            p50: quantile(0.5),
            p90: quantile(0.9),
            p99: quantile(0.99),
            in_flight: self.duration_seconds / seconds,
            sessions_per_second: rate(self.sessions),
            bytes_in_per_second: rate(self.bytes_in),
            bytes_out_per_second: rate(self.bytes_out),
            healthy: None,
        }
    }
}

/// The duration below which this share of exchanges stayed, taken evenly within a bucket; beyond the last bound it is that.
fn quantile(buckets: &[u64], bounds: &[f64], share: f64) -> Option<f64> {
    let total: u64 = buckets.iter().sum();
    if total == 0 {
        return None;
    }
    let rank = share * total as f64;
    let mut sum = 0.0;
    for (n, count) in buckets.iter().enumerate() {
        let after = sum + *count as f64;
        if after >= rank && *count > 0 {
            let low = n.checked_sub(1).and_then(|n| bounds.get(n)).copied().unwrap_or(0.0);
            let high = bounds.get(n).copied().unwrap_or(low);
            return Some(low + (high - low) * (rank - sum) / *count as f64);
        }
        sum = after;
    }
    bounds.last().copied()
}

/// What a row is known by from one look to the next.
fn key(row: &Row) -> [Option<&str>; 3] {
    // What is not told apart has none of them, and neither does what no proxy was found for.
    let rest = row.is_rest.then_some(REST);
    [row.proxy.as_deref().or(rest), row.upstream.as_deref(), row.target.as_deref()]
}

/// What lines for rows without a proxy, upstream or target are called.
const NONE: &str = "–";
/// And the one for all rows that the gateway does not tell apart.
const REST: &str = "(others)";

/// What each caller did between two looks.
fn callers(before: &Look, now: &Look, is_anew: bool) -> Vec<(String, Counts)> {
    let earlier = before.callers.iter().filter(|_| !is_anew);
    let known: HashMap<_, _> = earlier.map(|one| (one.caller.as_deref(), &one.counts)).collect();
    let each = |one: &Caller| {
        let mut counts = Counts::default();
        counts.add(&one.counts, known.get(&one.caller.as_deref()).copied());
        (one.caller.clone().unwrap_or_else(|| REST.to_owned()), counts)
    };
    now.callers.iter().map(each).collect()
}

impl Board {
    /// What happened between two looks.
    pub(super) fn between(before: &Look, now: &Look) -> Self {
        // Counting may have begun anew, then everything is new.
        let is_anew = now.seconds < before.seconds;
        let seconds = if is_anew { now.seconds } else { now.seconds - before.seconds }.max(0.001);
        let known: HashMap<_, _> = match is_anew {
            true => HashMap::new(),
            false => before.rows.iter().map(|row| (key(row), &row.counts)).collect(),
        };
        let mut total = Counts::default();
        let mut tables: [HashMap<String, Counts>; 3] = Default::default();
        for row in &now.rows {
            let before = known.get(&key(row)).copied();
            total.add(&row.counts, before);
            let names = [&row.proxy, &row.upstream, &row.target];
            for (table, name) in tables.iter_mut().zip(names) {
                let name = match (row.is_rest, name) {
                    (true, _) => REST,
                    (false, Some(name)) => name,
                    (false, None) => NONE,
                };
                table.entry(name.to_owned()).or_default().add(&row.counts, before);
            }
        }
        let lines = |table: HashMap<String, Counts>| {
            table.into_iter().map(|(name, counts)| counts.line(name, seconds, &now.bounds)).collect()
        };
        let [proxies, upstreams, targets] = tables.map(lines);
        let callers = callers(before, now, is_anew);
        let callers =
            callers.into_iter().map(|(name, counts)| counts.line(name, seconds, &now.bounds)).collect();
        let mut board = Self {
            callers,
            seconds,
            version: now.version.clone(),
            revision: now.revision,
            connections: now.connections,
            active_requests: now.active_requests,
            total: total.line(String::new(), seconds, &now.bounds),
            proxies,
            upstreams,
            targets,
        };
        board.add_idle_proxies(&now.proxies);
        board.standing(&now.targets);
        board
    }

    /// Adds a line for each proxy without traffic.
    fn add_idle_proxies(&mut self, proxies: &[String]) {
        let busy: HashSet<String> = self.proxies.iter().map(|line| line.name.clone()).collect();
        let idle = proxies.iter().filter(|name| !busy.contains(*name));
        self.proxies.extend(idle.map(|name| TableLine { name: name.clone(), ..TableLine::default() }));
    }

    /// Adds what is known of targets besides their traffic, also of those without any.
    fn standing(&mut self, targets: &[Target]) {
        let find = |lines: &mut Vec<TableLine>, name: &str| -> usize {
            lines.iter().position(|line| line.name == name).unwrap_or_else(|| {
                lines.push(TableLine { name: name.to_owned(), ..TableLine::default() });
                lines.len() - 1
            })
        };
        for target in targets {
            let n = find(&mut self.targets, &target.address);
            if let Some(line) = self.targets.get_mut(n) {
                line.healthy = Some(line.healthy.unwrap_or(true) && target.healthy);
                // Where the gateway counts them, it knows better.
                line.in_flight = line.in_flight.max(target.in_flight as f64);
            }
            let n = find(&mut self.upstreams, &target.upstream);
            if let Some(line) = self.upstreams.get_mut(n) {
                line.healthy = Some(line.healthy.unwrap_or(true) && target.healthy);
            }
        }
    }

    /// The lines of a view.
    pub(super) fn lines(&self, view: View) -> &[TableLine] {
        match view {
            View::Proxies => &self.proxies,
            View::Upstreams => &self.upstreams,
            View::Targets => &self.targets,
            View::Callers => &self.callers,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn look(seconds: f64, counts: [u64; 3]) -> Look {
        let row = |proxy: &str, target: &str, count: u64| {
            json!({ "proxy": proxy, "upstream": "u", "target": target, "is_rest": false,
                "classes": [0, count, 0, 0, count / 10], "errors": count / 10, "retries": 0,
                "buckets": [0, count, 0], "duration_seconds": count as f64 * 0.1, "sessions": 0,
                "bytes_in": 0, "bytes_out": 100 * count })
        };
        Look::read(json!({
            "seconds": seconds, "bounds": [0.1, 0.2], "active_requests": 3, "connections": 4, "revision": 5,
            "version": "x",
            "rows": [row("a", "t:1", counts[0]), row("a", "t:2", counts[1]), row("b", "t:1", counts[2])],
            "proxies": ["a", "idle"],
            "targets": [
                { "upstream": "u", "address": "t:1", "healthy": true, "in_flight": 9 },
                { "upstream": "u", "address": "t:3", "healthy": false },
            ],
        }))
        .unwrap()
    }

    fn find<'l>(lines: &'l [TableLine], name: &str) -> &'l TableLine {
        lines.iter().find(|line| line.name == name).unwrap()
    }

    #[test]
    fn rates_are_what_came_between_two_looks() {
        let board = Board::between(&look(10.0, [100, 0, 50]), &look(12.0, [300, 20, 50]));
        assert_eq!(board.seconds, 2.0);
        let a = find(&board.proxies, "a");
        assert_eq!((a.requests_per_second, a.errors_per_second), (121.0, 11.0));
        assert_eq!(a.bytes_out_per_second, 11_000.0);
        assert!((a.in_flight - 11.0).abs() < 1e-9);
        assert!((a.p50.unwrap() - 0.15).abs() < 1e-9);
        let b = find(&board.proxies, "b");
        assert_eq!((b.requests_per_second, b.p99), (0.0, None));
        assert_eq!(find(&board.proxies, "idle").requests_per_second, 0.0);
        assert_eq!(board.proxies.len(), 3, "each proxy has one line");
        assert_eq!(find(&board.targets, "t:1").in_flight, 10.0);
        let idle = find(&board.targets, "t:3");
        assert_eq!((idle.healthy, idle.requests_per_second), (Some(false), 0.0));
        assert_eq!(find(&board.upstreams, "u").healthy, Some(false));
        assert_eq!(board.total.requests_per_second, 121.0);
    }

    #[test]
    fn callers_are_lines_and_percentiles_have_three_digits() {
        let look = |seconds: f64, count: u64| {
            let part = crate::export::fine_histogram::part_of(std::time::Duration::from_millis(1003));
            let caller =
                json!({ "caller": "ann", "is_rest": false, "classes": [0, count], "fine": [[part, count]] });
            Look::read(json!({ "seconds": seconds, "callers": [caller] })).unwrap()
        };
        let board = Board::between(&look(1.0, 10), &look(3.0, 30));
        let ann = find(&board.callers, "ann");
        assert_eq!(ann.requests_per_second, 10.0);
        assert!((ann.p50.unwrap() - 1.003).abs() < 0.004, "{ann:?}");
    }

    #[test]
    fn counting_that_began_anew_is_no_negative_rate() {
        let board = Board::between(&look(100.0, [1000, 0, 0]), &look(1.0, [10, 0, 0]));
        assert_eq!(find(&board.proxies, "a").requests_per_second, 11.0);
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let bounds = [0.1, 0.2];
        assert_eq!(quantile(&[0, 0, 0], &bounds, 0.5), None);
        assert_eq!(quantile(&[10, 0, 0], &bounds, 0.5), Some(0.05));
        assert_eq!(quantile(&[1, 0, 1], &bounds, 0.99), Some(0.2), "beyond the last bound nothing is known");
    }
}
