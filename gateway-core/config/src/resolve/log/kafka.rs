//! Topics of Kafka, checked.

use std::path::PathBuf;
use std::sync::Arc;

use super::Notes;
use crate::exporter::Compression;
use crate::file::{KafkaMechanism, KafkaSink};
use crate::model::{LogDestination, LogKafka};
use crate::problem::without_user;

/// Checks what is written about a topic.
pub(super) fn topic(
    notes: &mut Notes<'_>,
    written: &KafkaSink,
    ca_path: Option<PathBuf>,
) -> Option<LogDestination> {
    let mut brokers = Vec::new();
    for (n, address) in written.brokers.iter().enumerate() {
        match broker(address) {
            Some(broker) => brokers.push(broker),
            None => {
                let message = format!("`{}` is not an address", without_user(address));
                let problem = notes.add(&format!("kafka.brokers[{n}]"), message);
                problem.remedy = Some("`host:port`; encryption is `tls: true`".to_owned());
            }
        }
    }
    if written.brokers.is_empty() {
        notes.add("kafka.brokers", "is missing");
    }
    // What Kafka takes for the name of a topic.
    let is_name = |name: &&str| {
        !matches!(*name, "" | "." | "..")
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"._-".contains(&c))
    };
    let topic = match written.topic.as_deref() {
        Some(name) => {
            let topic = Some(name).filter(is_name);
            if topic.is_none() {
                notes.add("kafka.topic", "is not a valid name of a topic: letters, digits, `.`, `_` and `-`");
            }
            topic
        }
        None => {
            notes.add("kafka.topic", "is missing");
            None
        }
    };
    if ca_path.is_some() && !written.tls {
        notes.add("kafka.ca_path", "needs `tls: true`");
    }
    if let Some(sasl) = &written.sasl {
        if sasl.mechanism == KafkaMechanism::Plain && !written.tls {
            notes.add("kafka.sasl.mechanism", "`plain` hands the password over unencrypted").remedy =
                Some("set `tls: true`, or use `scram-sha-256`".to_owned());
        }
        if sasl.username.contains('\0') || sasl.password.contains('\0') {
            notes.add("kafka.sasl", "user name and password may not have NUL");
        }
    }
    let sasl = written.sasl.as_ref();
    Some(LogDestination::Kafka(Box::new(LogKafka {
        brokers,
        topic: topic?.into(),
        tls: written.tls,
        ca_path,
        sasl: sasl.map(|it| (it.mechanism, it.username.as_str().into(), it.password.as_str().into())),
        acks: written.acks.unwrap_or_default(),
        gzip: written.compression != Some(Compression::None),
    })))
}

/// `host:port` or `[address]:port`.
fn broker(address: &str) -> Option<(Arc<str>, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let port = port.parse().ok().filter(|port| *port > 0)?;
    (!host.is_empty() && !host.contains(['/', '@', ' '])).then(|| (Arc::from(host), port))
}
