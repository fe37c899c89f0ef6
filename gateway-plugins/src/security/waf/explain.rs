//! Runs a request that an operator describes through the rules, and reports what they say.

use std::collections::BTreeMap;
use std::net::IpAddr;

use gateway_core::config::problem::Problems;
use gateway_waf::{Buffers, RequestHead};
use serde::Deserialize;
use serde_json::{Value, json};

use super::policy::Policy;

/// The request.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ExplainRequest {
    method: String,
    target: String,
    headers: BTreeMap<String, String>,
    body: String,
    client: IpAddr,
}

impl Default for ExplainRequest {
    fn default() -> Self {
        Self {
            method: "GET".into(),
            target: "/".into(),
            headers: BTreeMap::new(),
            body: String::new(),
            client: IpAddr::from([203, 0, 113, 1]),
        }
    }
}

/// Bytes of a request that is explained.
const MAX_BYTES: usize = 1 << 20;

/// What the rules say of a request. Exclusions with `when` are left out of account: there is no such request.
pub(super) fn explain(policy: &Policy, input: &Value) -> Result<Value, Problems> {
    let asked: ExplainRequest = serde_json::from_value(input.clone())
        .map_err(|error| Problems::one("", format!("the input must be like {{\"method\", \"target\", \"headers\", \"body\", \"client\"}}: {error}")))?;
    if asked.body.len() + asked.target.len() > MAX_BYTES {
        return Err(Problems::one("body", format!("the request has more than {MAX_BYTES} bytes")));
    }
    let headers: Vec<(&[u8], &[u8])> =
        asked.headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    let mut transaction = policy.transaction(Buffers::without_cache());
    transaction.only_detect();
    for (when, exclusion) in &policy.exclusions {
        if when.is_none() {
            transaction.exclude(exclusion);
        }
    }
    transaction.request_head(&RequestHead {
        method: asked.method.as_bytes(),
        target: asked.target.as_bytes(),
        version: "HTTP/1.1",
        headers: &headers,
        client: asked.client,
        unique_id: b"",
    });
    transaction.request_body(asked.body.as_bytes());
    let report = transaction.report();
    let matches: Vec<Value> = (report.matches.iter())
        .map(|found| {
            json!({
                "rule": found.rule,
                "place": found.place,
                "message": found.message,
                "variable": found.variable,
                "excerpt": found.excerpt,
                "score": found.score,
                "tags": found.tags,
            })
        })
        .collect();
    Ok(json!({
        "refused_by": report.denied.map(|denial| denial.rule),
        "score": report.score,
        "matches": matches,
        "body_error": report.body_error,
        "not_inspected": report.not_inspected,
        "over_budget": report.over_budget,
    }))
}
