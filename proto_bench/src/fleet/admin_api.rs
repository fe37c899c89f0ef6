//! The control plane's admin API: invitations, changes, and where the fleet is.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::error::FleetError;
use super::held_configuration::State;
use super::messages::Hash;
use crate::measure::process::{self, Usage};
use crate::scale::http::Client;

/// A control plane under test.
#[derive(Debug)]
pub struct ControlPlane {
    client: Client,
    address: SocketAddr,
    token: String,
    pid: Option<u32>,
}

/// The port that each proxy was given last.
#[derive(Debug, Default)]
pub(super) struct Written {
    ports: Vec<u16>,
    next: usize,
}

/// Proxies of a call while the configuration is filled.
const CHUNK: u64 = 1000;
/// Characters of a refusal that are shown.
const SHOWN: usize = 400;

impl Written {
    /// Proxies of a state that are not as they were written last, and those that it lacks.
    pub(super) fn difference(&self, state: &State) -> usize {
        let mut right = 0;
        let mut count = 0;
        for (id, text) in state.documents("proxies") {
            count += 1;
            let number = id.strip_prefix('p').and_then(|number| number.parse::<usize>().ok());
            let port = number.and_then(|number| self.ports.get(number));
            let document: Value = serde_json::from_str(text).unwrap_or_default();
            right += usize::from(port.is_some_and(|port| document["backend_port"] == *port));
        }
        count.max(self.ports.len()) - right
    }
}

impl ControlPlane {
    /// The one whose admin API is there; `pid` is its process, for CPU and memory.
    #[must_use]
    pub fn new(admin: SocketAddr, token: String, pid: Option<u32>) -> Self {
        Self { client: Client::new(admin), address: admin, token, pid }
    }

    /// What its process has used.
    pub(super) fn usage(&self) -> Option<Usage> {
        process::usage(self.pid?)
    }

    fn ask(&mut self, method: &str, path: &str, body: &Value) -> Result<Value, FleetError> {
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n",
            self.address, self.token
        );
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        if !body.is_empty() {
            head.push_str("content-type: application/json\r\n");
        }
        let reply = self.client.ask(&head, &body).map_err(FleetError::Admin)?;
        if !matches!(reply.status, 200 | 201) {
            let body = String::from_utf8_lossy(&reply.body).chars().take(SHOWN).collect();
            return Err(FleetError::Refused { status: reply.status, body });
        }
        serde_json::from_slice(&reply.body)
            .map_err(|error| FleetError::Protocol(format!("an answer that is not JSON: {error}")))
    }

    /// A one-time invitation.
    pub(super) fn invite(&mut self, name: &str) -> Result<String, FleetError> {
        let answer = self.ask("POST", "/v1/fleet/invitations", &json!({ "name": name }))?;
        let invitation = answer["invitation"].as_str();
        invitation.map(str::to_owned).ok_or_else(|| FleetError::Protocol("no invitation".to_owned()))
    }

    /// Writes the first proxies; returns the revision.
    pub(super) fn fill(&mut self, written: &mut Written, proxies: u64) -> Result<u64, FleetError> {
        let mut revision = 0;
        let mut rest = proxies;
        while rest > 0 {
            let count = rest.min(CHUNK);
            let first = written.ports.len();
            written.ports.extend((0..count).map(|_| fastrand::u16(1..)));
            revision = self.put(written, first..written.ports.len())?;
            rest -= count;
        }
        Ok(revision)
    }

    /// Changes so many proxies in one call; returns the revision.
    pub(super) fn change(&mut self, written: &mut Written, count: u64) -> Result<u64, FleetError> {
        let mut numbers = Vec::new();
        for _ in 0..count.min(written.ports.len() as u64) {
            let at = written.next % written.ports.len();
            written.next += 1;
            // Another port than before, so that each change is one.
            written.ports[at] = written.ports[at].checked_add(1).unwrap_or(1);
            numbers.push(at);
        }
        self.put(written, numbers.into_iter())
    }

    fn put(&mut self, written: &Written, numbers: impl Iterator<Item = usize>) -> Result<u64, FleetError> {
        let proxies = numbers.map(|number| {
            json!({
                "id": format!("p{number}"),
                "listen_path": format!("/p{number}"),
                "backend_host": "127.0.0.1",
                "backend_port": written.ports[number],
            })
        });
        let answer = self.ask("POST", "/v1/batch", &json!({ "proxies": proxies.collect::<Vec<_>>() }))?;
        answer["revision"].as_u64().ok_or_else(|| FleetError::Protocol("no revision".to_owned()))
    }

    /// Edges whose name begins like this and that serve this revision or a newer one, as the control plane knows.
    pub(super) fn serving(&mut self, prefix: &str, revision: u64) -> Result<usize, FleetError> {
        let edges = self.edges(prefix)?;
        Ok(edges.iter().filter(|edge| is_serving(edge, revision)).count())
    }

    /// What the control plane says of edges whose names begin so and that do not serve this revision; of a few.
    pub(super) fn behind(&mut self, prefix: &str, revision: u64) -> Result<String, FleetError> {
        let edges = self.edges(prefix)?;
        let behind = edges.iter().filter(|edge| !is_serving(edge, revision)).take(3);
        let shown: Vec<_> = behind.map(|edge| format!("; of revision {revision}: {edge}")).collect();
        Ok(if shown.is_empty() { "; the others did not enrol".to_owned() } else { shown.concat() })
    }

    fn edges(&mut self, prefix: &str) -> Result<Vec<Value>, FleetError> {
        let mut fleet = self.ask("GET", "/v1/fleet", &Value::Null)?;
        let Value::Array(mut edges) = fleet["edges"].take() else { return Ok(Vec::new()) };
        edges.retain(|edge| edge["name"].as_str().is_some_and(|name| name.starts_with(prefix)));
        Ok(edges)
    }

    /// Revision and hash of the edges' group, as the control plane computes it.
    pub(super) fn position(&mut self) -> Result<(u64, Hash), FleetError> {
        let fleet = self.ask("GET", "/v1/fleet", &Value::Null)?;
        let groups = fleet["groups"].as_array();
        let group = groups.and_then(|groups| groups.iter().find(|group| group["name"] == "default"));
        let position = group.map_or(Value::Null, |group| group["position"].clone());
        let hash = position["hash"].as_str().and_then(unhex);
        let found = position["revision"].as_u64().zip(hash);
        found.ok_or_else(|| FleetError::Protocol(format!("a fleet whose group `default` is at {position}")))
    }
}

fn is_serving(edge: &Value, revision: u64) -> bool {
    edge["standing"] == "served" && edge["served"]["revision"].as_u64() >= Some(revision)
}

fn unhex(text: &str) -> Option<Hash> {
    let mut hash = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(hash)
}
