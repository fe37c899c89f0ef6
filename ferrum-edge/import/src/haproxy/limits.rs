//! Stick-tables that count requests, as limits.

use super::Haproxy;
use super::acl::{Acls, Term, Ways};
use super::rates::{Counter, Rate, Tracked};
use super::request_condition::{convert, request_cond};
use super::sections::{HaproxyLine, Section, rate_period, stores};
use super::templates::template;
use crate::cond::Cond;
use crate::draft::{ConcurrencyLimiting, Limit, Plug, RateLimiting, draft};
use crate::steps::RouteStep;

/// By what requests are told apart, as `limit_by` says it; `None` where it can't, or where rules before change it.
fn limit_by(key: &str, acls: &Acls) -> Option<String> {
    let text = template(&format!("%[{key}]")).filter(|_| !key.contains(','))?;
    if acls.changes.are_in(&text) {
        return None;
    }
    let variable = text.trim_start_matches("${").trim_end_matches('}');
    let named = |start: &str, kind: &str| variable.strip_prefix(start).map(|name| format!("{kind}:{name}"));
    let plain = (variable == "client.address").then(|| "address".to_owned());
    let field = named("request.header.", "header").or_else(|| named("request.cookie.", "cookie"));
    Some(plain.or(field).unwrap_or_else(|| format!("template:{text}")))
}

impl Haproxy<'_, '_> {
    /// Notes what a `track-sc` rule counts.
    pub(super) fn track(&mut self, section: &Section, line: &HaproxyLine, acls: &mut Acls) {
        let (words, ways) = self.split(line, line.arguments(), acls);
        let Some(at) = words.iter().position(|word| word.starts_with("track-sc")) else { return };
        let after = |n: usize| words.get(at + n).map_or("", String::as_str);
        let table = if after(2) == "table" { after(3) } else { section.name.as_str() };
        let tracked = Tracked {
            number: after(0).trim_start_matches("track-sc").to_owned(),
            table: table.to_owned(),
            by: limit_by(after(1), acls).filter(|_| line.lacks().is_none()),
            cond: convert(&ways),
            period: self.tables.get(table).and_then(rate_period),
            // `tcp-request` rules count connections.
            counts_concurrent: line.name() == "http-request"
                && self.tables.get(table).is_some_and(|table| stores(table, "conn_cur")),
        };
        let todo =
            if tracked.counts_concurrent { "use `concurrency_limiting`" } else { "use `rate_limiting`" };
        match (&tracked.cond, &tracked.by) {
            (Err(why), _) => self.out.not_converted(line.at, line.text(), why, todo),
            (Ok(_), None) => self.out.not_converted(line.at, line.text(), NO_KEY, todo),
            (Ok(_), Some(_)) => self.out.not_needed(line.at, line.text(), "limits count by themselves"),
        }
        acls.tracked.push(tracked);
    }

    /// `deny` for whoever comes too often.
    pub(super) fn limited(
        &mut self,
        section: &Section,
        line: &HaproxyLine,
        ways: &Ways,
        status: u16,
        acls: &Acls,
        steps: &mut Vec<RouteStep>,
    ) {
        for way in ways {
            let rest: Vec<(bool, Term)> =
                way.iter().filter(|(_, term)| term.rate().is_none()).cloned().collect();
            let mut rates = way.iter().filter_map(|(_, term)| term.rate());
            let made = match (convert(&vec![rest]), rates.next(), rates.next()) {
                (Ok(cond), Some(rate), None) => limit(section, rate, acls, status).map(|made| (cond, made)),
                (Err(why), ..) => Err(why.to_string()),
                (Ok(_), ..) => Err("it asks for several rates at a time".to_owned()),
            };
            match made {
                Ok((cond, (tracked, plug))) => {
                    if cond != Cond::Always && cond != tracked {
                        let why = "only requests that its own condition means are counted";
                        self.out.partial(line.at, line.text(), why, "");
                    } else if plug.name == "concurrency_limiting" && !matches!(status, 429 | 503) {
                        let why = "refused requests are answered with 429";
                        self.out.partial(
                            line.at,
                            line.text(),
                            why,
                            "see `status_code` of `concurrency_limiting`",
                        );
                    } else {
                        self.out.converted(line.at, line.text());
                    }
                    steps.push(RouteStep::Pass(cond.and(tracked), plug));
                }
                Err(why) => {
                    let why = format!("the limit is not converted: {why}");
                    self.out.not_converted(line.at, line.text(), why, "use `rate_limiting`");
                }
            }
        }
    }

    /// Reports a rule that rejects connections of clients that have or open too many.
    pub(super) fn connections_not_limited(&mut self, line: &HaproxyLine) {
        let why = "the connections of an HTTP client are not limited here, its requests are";
        self.out.not_converted(line.at, line.text(), why, "use `rate_limiting` or `concurrency_limiting`");
    }
}

/// Whether a condition only keeps out those who come too often.
pub(super) fn is_limit(ways: &Ways) -> bool {
    let has_rate = |way: &Vec<(bool, Term)>| way.iter().any(|(holds, term)| *holds && term.rate().is_some());
    request_cond(ways).is_none() && ways.iter().all(has_rate)
}

const NO_KEY: &str = "requests can't be counted by what it names";

/// Which requests are counted, and the plugin that limits them.
fn limit(section: &Section, rate: &Rate, acls: &Acls, status: u16) -> Result<(Cond, Plug), String> {
    let is_meant = |tracked: &&Tracked| match &rate.counter {
        Counter::Tracked(number) => tracked.number == *number,
        Counter::Address(table) => {
            let table = if table.is_empty() { &section.name } else { table };
            tracked.by.as_deref() == Some("address") && tracked.table == *table
        }
    };
    let mut meant = acls.tracked.iter().filter(is_meant);
    let tracked = match (meant.next(), meant.next()) {
        (Some(tracked), None) => tracked,
        (Some(_), Some(_)) => return Err("several `track-sc` rules count for it".to_owned()),
        (None, _) => return Err("no `track-sc` rule before it counts for it".to_owned()),
    };
    let by = tracked.by.as_deref().ok_or(NO_KEY)?;
    let cond = || tracked.cond.clone().map_err(|why| why.to_string());
    if rate.is_concurrent {
        if !tracked.counts_concurrent {
            return Err("its table does not count concurrent requests".to_owned());
        }
        let status = if status == 503 { 503 } else { 429 };
        let mut config =
            draft!(ConcurrencyLimiting { max_concurrent: rate.most, limit_by: by, status_code: status });
        if by != "address" {
            config.on_missing("allow");
        }
        return Ok((cond()?, Plug::of(config)));
    }
    let period = tracked.period.as_deref().ok_or("its table counts no requests over a time")?;
    let status = if (400..600).contains(&status) { status } else { 429 };
    let limit = draft!(Limit { rate: rate.most, per: period });
    let mut config =
        draft!(RateLimiting { limits: [limit], limit_by: by, headers: "none", status_code: status });
    // What has no key is not counted.
    if by != "address" {
        config.on_missing("allow");
    }
    Ok((cond()?, Plug::of(config)))
}
