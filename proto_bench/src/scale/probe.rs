//! Single requests whose answers are known: the right key, none, a wrong one, and another consumer's.

use super::Options;
use super::api::{self, KEY_HEADER};
use super::http::{Client, HttpError, Reply};
use crate::report::model::Refusals;

/// One request to one proxy.
#[derive(Debug)]
pub(super) struct ProbeRequest {
    pub(super) proxy: u64,
    pub(super) key: Option<String>,
}

/// Asks a proxy.
pub(super) fn ask(client: &mut Client, options: &Options, asked: &ProbeRequest) -> Result<Reply, HttpError> {
    let key = asked.key.as_ref().map_or_else(String::new, |key| format!("{KEY_HEADER}: {key}\r\n"));
    let path = api::path(asked.proxy);
    client.ask(&format!("GET {path} HTTP/1.1\r\nhost: {}\r\n{key}", options.gateway), &[])
}

/// Asks proxies spread over all that are there, in the three ways that must be refused.
pub(super) fn refusals(options: &Options, present: u64) -> Result<Refusals, HttpError> {
    let mut client = Client::new(options.gateway);
    let mut counts = Refusals::default();
    let samples = options.refusals.min(present).max(1);
    for sample in 0..samples {
        let proxy = sample * present / samples;
        let other = (proxy + 1) % present.max(2);
        let cases = [
            (None, 401),
            (Some("key-nobody-has".to_owned()), 401),
            // With a single proxy there is no other's key.
            (Some(api::key(other)), if other < present { 403 } else { 401 }),
        ];
        for (key, expected) in cases {
            let reply = ask(&mut client, options, &ProbeRequest { proxy, key })?;
            counts.asked += 1;
            counts.refused += u64::from(reply.status == expected);
            counts.let_through += u64::from(reply.status < 400);
        }
    }
    Ok(counts)
}
