//! Changes of one target of an upstream. They are made to the upstream as the transaction finds it, so that those who change
//! different targets at the same time don't overwrite each other, and nobody has to try again.

use gateway_core::config::model::Id;
use serde_json::{Map, Value, json};

use super::WriteError;

/// Which target of an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetAddress {
    pub(crate) host: String,
    /// Unix sockets and services have none.
    pub(crate) port: Option<u16>,
}

/// What becomes of it.
#[derive(Debug, Clone)]
pub(crate) enum TargetChange {
    /// It is added, or replaced.
    Put(Map<String, Value>),
    /// It is taken out.
    Remove,
}

impl TargetAddress {
    fn is_of(&self, target: &Value) -> bool {
        let port = target.get("port").and_then(Value::as_u64);
        self.has_host(target.get("host")) && port == self.port.map(u64::from)
    }

    /// Names are the same in any case; paths of sockets are not.
    pub(crate) fn has_host(&self, known: Option<&Value>) -> bool {
        let Some(known) = known.and_then(Value::as_str) else { return false };
        let known = known.trim_start_matches('[').trim_end_matches(']');
        if self.host.starts_with("unix:") {
            known == self.host
        } else {
            known.eq_ignore_ascii_case(&self.host)
        }
    }
}

impl std::fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.port {
            Some(port) if self.host.contains(':') => write!(f, "[{}]:{port}", self.host),
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

/// The stored upstream with its target changed.
pub(super) fn changed(
    id: &Id,
    stored: Option<&str>,
    address: &TargetAddress,
    change: &TargetChange,
) -> Result<Map<String, Value>, WriteError> {
    let stored = stored.and_then(|document| serde_json::from_str::<Map<String, Value>>(document).ok());
    let mut upstream = stored.unwrap_or_default();
    let mut targets = upstream.get("targets").and_then(Value::as_array).cloned().unwrap_or_default();
    let known = targets.iter().position(|target| address.is_of(target));
    match (change, known) {
        (TargetChange::Put(target), known) => {
            let mut target = target.clone();
            target.insert("host".to_owned(), json!(address.host));
            match address.port {
                Some(port) => drop(target.insert("port".to_owned(), json!(port))),
                None => drop(target.shift_remove("port")),
            }
            match known.and_then(|known| targets.get_mut(known)) {
                Some(known) => *known = Value::Object(target),
                None => targets.push(Value::Object(target)),
            }
        }
        (TargetChange::Remove, Some(_)) => targets.retain(|target| !address.is_of(target)),
        (TargetChange::Remove, None) => {
            return Err(WriteError::NoTarget { upstream: id.to_string(), target: address.to_string() });
        }
    }
    upstream.insert("targets".to_owned(), Value::Array(targets));
    Ok(upstream)
}
