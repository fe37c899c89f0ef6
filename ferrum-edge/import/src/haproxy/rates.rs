//! Rates and concurrent requests that stick-tables count, as conditions and `track-sc` rules name them.

use super::why::Why;
use crate::cond::Cond;

/// How many requests pass within a stick-table's time, or at a time, and where they are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) most: u64,
    pub(super) counter: Counter,
    /// It limits concurrent requests (`conn_cur`) instead of a rate.
    pub(super) is_concurrent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Counter {
    /// What `track-sc` with this number counts.
    Tracked(String),
    /// The requests of the client's address in a table; without a name in the section's own.
    Address(String),
}

impl Rate {
    /// Reads a fetch that is compared with a number.
    pub(super) fn read(name: &str, argument: &str, values: &[String]) -> Option<Self> {
        let is_concurrent = name.ends_with("_conn_cur");
        let counted = name.strip_suffix("_http_req_rate").or_else(|| name.strip_suffix("_conn_cur"))?;
        let counter = match counted {
            "src" => Counter::Address(argument.to_owned()),
            "sc" => Counter::Tracked(argument.to_owned()),
            name if argument.is_empty() => Counter::Tracked(name.strip_prefix("sc")?.to_owned()),
            _ => return None,
        };
        if let Counter::Tracked(number) = &counter {
            number.parse::<u8>().ok()?;
        }
        let most = match values {
            [operator, most] if operator == "gt" => most.parse().ok()?,
            [operator, most] if operator == "ge" => most.parse::<u64>().ok()?.checked_sub(1)?,
            _ => return None,
        };
        (most > 0).then_some(Self { most, counter, is_concurrent })
    }
}

/// What a `track-sc` rule counts.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    pub(super) number: String,
    pub(super) table: String,
    /// For `limit_by`.
    pub(super) by: Option<String>,
    pub(super) cond: Result<Cond, Why>,
    /// The time over which its table counts requests.
    pub(super) period: Option<String>,
    /// Whether its table counts concurrent requests.
    pub(super) counts_concurrent: bool,
}
