//! The audit: who changed what, from where, allowed or refused.
//!
//! Each entry is a JSON text with its number and the hash of the entry before; its own hash is the SHA-256 of that
//! text. Whoever changes, inserts or removes an entry in between breaks the chain. Whoever can write the database can
//! also make a new chain, so the hash of an entry should be kept elsewhere as well: the audit log is such a place.

pub(crate) mod log;

use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use gateway_telemetry::json::Rfc3339;

/// Bytes of a name, an address or an error code.
const MAX_NAME: usize = 255;
/// Bytes of what was done, of a note and of a reason.
const MAX_TEXT: usize = 4096;

/// Who does something, and how they come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Who {
    /// The token's name, the subject of a JWT, the user of the command line.
    pub(crate) actor: String,
    /// What the token allows.
    pub(crate) role: Option<&'static str>,
    /// The subject of the client's certificate.
    pub(crate) certificate: Option<String>,
    /// One of [`SOURCES`].
    pub(crate) source: &'static str,
    /// The address of the client.
    pub(crate) peer: Option<String>,
}

/// How what the audit tells of may have ended.
pub(crate) const OUTCOMES: &[&str] = &["allowed", "refused", "failed"];

/// Which way what the audit tells of may have come.
pub(crate) const SOURCES: &[&str] = &["admin-api", "command-line", "console", "file"];

/// Kinds of objects that may have changed.
pub(crate) const KINDS: [&str; 6] =
    ["proxies", "consumers", "upstreams", "plugin_configs", "users", "workspaces"];

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AuditOutcome {
    Allowed,
    Refused,
    /// It was allowed, and could not be done.
    Failed,
}

impl AuditOutcome {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// What became of one object. Documents are without secrets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Touched {
    pub(crate) kind: String,
    pub(crate) id: String,
    /// `create`, `update` or `delete`.
    pub(crate) action: String,
    /// The document before; left out where there was none, or where the entry would become too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Value>,
    /// The documents are not here, because all of them together are too long.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) documents_left_out: bool,
}

/// An entry as it is written, read back for filters and for people.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AuditEntry {
    /// Counts from 1, without gaps; 0 is an entry that is in no chain, because the database was away.
    pub(crate) seq: u64,
    /// RFC 3339, by the clock of the gateway that wrote it.
    pub(crate) at: String,
    /// The machine of that gateway.
    pub(crate) host: String,
    pub(crate) actor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate: Option<String>,
    pub(crate) source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<String>,
    /// What was asked for, such as `PUT /v1/proxies/shop` or `reload`.
    pub(crate) action: String,
    pub(crate) outcome: AuditOutcome,
    /// The HTTP status of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// Why it was refused or failed: the code of the error document, or a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Why, as who did it says.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
    /// The revision that came of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revision: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) changes: Vec<Touched>,
    /// Changed objects that are not in `changes`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) changes_left_out: u64,
    /// Refused attempts since the entry before that have no entry, because there were too many.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) suppressed: u64,
    /// The hash of the entry before; empty in the very first.
    pub(crate) prev: String,
    /// It is in the log only and follows no other one, because the database was away.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) unchained: bool,
}

/// An entry without its place in the chain.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) who: Who,
    pub(crate) action: String,
    pub(crate) outcome: AuditOutcome,
    pub(crate) status: Option<u16>,
    pub(crate) reason: Option<String>,
    pub(crate) note: String,
    pub(crate) revision: Option<u64>,
    pub(crate) changes: Vec<Touched>,
    pub(crate) changes_left_out: u64,
    pub(crate) suppressed: u64,
    /// Milliseconds since 1970 UTC.
    pub(crate) at: u64,
}

/// An entry in its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChainLine {
    pub(crate) seq: u64,
    /// Milliseconds since 1970 UTC.
    pub(crate) at: u64,
    /// The JSON text that is hashed.
    pub(crate) entry: String,
    /// In hexadecimal digits.
    pub(crate) hash: String,
}

/// The end of a chain; the default is that of an empty one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tip {
    pub(crate) seq: u64,
    pub(crate) hash: String,
}

impl Draft {
    pub(crate) fn new(who: Who, action: impl Into<String>, outcome: AuditOutcome) -> Self {
        Self {
            who,
            action: action.into(),
            outcome,
            status: None,
            reason: None,
            note: String::new(),
            revision: None,
            changes: Vec::new(),
            changes_left_out: 0,
            suppressed: 0,
            at: now(),
        }
    }

    /// As an entry that follows no other one.
    pub(crate) fn unchained(&self) -> ChainLine {
        self.line(0, String::new(), true)
    }

    /// Puts it at the end of a chain.
    pub(crate) fn chained(&self, tip: &Tip) -> ChainLine {
        self.line(tip.seq + 1, tip.hash.clone(), false)
    }

    fn line(&self, seq: u64, prev: String, unchained: bool) -> ChainLine {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_millis(self.at);
        let who = &self.who;
        let entry = AuditEntry {
            seq,
            at: Rfc3339(time).to_string(),
            host: host().to_owned(),
            actor: cut(&who.actor, MAX_NAME),
            role: who.role.map(str::to_owned),
            certificate: who.certificate.as_deref().map(|subject| cut(subject, MAX_TEXT)),
            source: who.source.to_owned(),
            peer: who.peer.as_deref().map(|peer| cut(peer, MAX_NAME)),
            action: cut(&self.action, MAX_TEXT),
            outcome: self.outcome,
            status: self.status,
            reason: self.reason.as_deref().map(|reason| cut(reason, MAX_TEXT)),
            note: cut(&self.note, MAX_TEXT),
            revision: self.revision,
            changes: self.changes.clone(),
            changes_left_out: self.changes_left_out,
            suppressed: self.suppressed,
            prev,
            unchained,
        };
        // Only maps without text keys fail to be written, and there are none.
        let text = serde_json::to_string(&entry).unwrap_or_default();
        ChainLine { seq: entry.seq, at: self.at, hash: hash(&text), entry: text }
    }
}

impl ChainLine {
    pub(crate) fn tip(&self) -> Tip {
        Tip { seq: self.seq, hash: self.hash.clone() }
    }

    /// What it says; `None` when somebody made it unreadable.
    pub(crate) fn read(&self) -> Option<AuditEntry> {
        serde_json::from_str(&self.entry).ok()
    }

    /// What is wrong with it, whatever it follows.
    pub(crate) fn own_fault(&self) -> Option<&'static str> {
        if hash(&self.entry) != self.hash {
            return Some("the entry is not the one its hash was made of");
        }
        match self.read() {
            None => Some("the entry can't be read"),
            Some(entry) if entry.seq != self.seq => Some("the entry has another number than its row"),
            Some(_) => None,
        }
    }

    /// As it is answered and logged: the entry with its hash behind everything else.
    pub(crate) fn with_hash(&self) -> String {
        let body = self.entry.strip_suffix('}').unwrap_or(&self.entry);
        format!("{body},\"hash\":\"{}\"}}", self.hash)
    }
}

/// Which entries are wanted; all of it has to fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) actor: Option<String>,
    pub(crate) source: Option<String>,
    pub(crate) outcome: Option<String>,
    /// Those that changed objects of this kind.
    pub(crate) kind: Option<String>,
    /// Those that changed an object with this id.
    pub(crate) id: Option<String>,
    /// Milliseconds since 1970 UTC.
    pub(crate) since: Option<u64>,
    pub(crate) until: Option<u64>,
    /// Only older ones of the chain.
    pub(crate) before: Option<u64>,
    pub(crate) limit: usize,
}

impl Query {
    /// Texts of which each has to be somewhere in the entry.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        [&self.actor, &self.source, &self.outcome, &self.kind, &self.id]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }

    /// Whether this entry is wanted; one that can't be read is, unless something is asked of it.
    pub(crate) fn fits(&self, line: &ChainLine) -> bool {
        let in_time = self.since.is_none_or(|since| line.at >= since)
            && self.until.is_none_or(|until| line.at <= until)
            && self.before.is_none_or(|before| (1..before).contains(&line.seq));
        if !in_time || self.texts().next().is_none() {
            return in_time;
        }
        let is =
            |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        let about = |touched: &Touched| is(&self.kind, &touched.kind) && is(&self.id, &touched.id);
        line.read().is_some_and(|entry| {
            is(&self.actor, &entry.actor)
                && is(&self.source, &entry.source)
                && is(&self.outcome, entry.outcome.as_str())
                && (self.kind.is_none() && self.id.is_none() || entry.changes.iter().any(about))
        })
    }
}

/// What looking through a chain found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Verified {
    pub(crate) valid: bool,
    pub(crate) entries: u64,
    /// The oldest entry that is kept.
    pub(crate) first: u64,
    /// The newest, and its hash.
    pub(crate) last: u64,
    pub(crate) hash: String,
    /// Where the chain is broken first, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) broken: Option<ChainBreak>,
}

/// The first entry that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ChainBreak {
    pub(crate) seq: u64,
    pub(crate) why: &'static str,
}

/// Looks through a chain from its oldest entry to its newest.
#[derive(Debug, Default)]
pub(crate) struct Verifier {
    found: Verified,
    tip: Tip,
}

impl Verifier {
    /// Looks at the next entry.
    pub(crate) fn add(&mut self, line: &ChainLine) {
        if self.found.entries == 0 {
            self.found.first = line.seq;
        }
        self.found.entries += 1;
        if self.found.broken.is_none()
            && let Some(why) = self.fault(line)
        {
            self.found.broken = Some(ChainBreak { seq: line.seq, why });
        }
        self.tip = line.tip();
    }

    fn fault(&self, line: &ChainLine) -> Option<&'static str> {
        if let Some(why) = line.own_fault() {
            return Some(why);
        }
        let entry = line.read()?;
        let is_first = self.found.entries == 1;
        if !is_first && line.seq != self.tip.seq + 1 {
            return Some("entries before it are missing");
        }
        // The oldest that is kept follows one that was pruned, unless it is the very first.
        let follows =
            if is_first { line.seq != 1 || entry.prev.is_empty() } else { entry.prev == self.tip.hash };
        (!follows).then_some("it does not follow the entry before it")
    }

    /// The result, once all were looked at.
    pub(crate) fn finish(self) -> Verified {
        let valid = self.found.broken.is_none();
        Verified { valid, last: self.tip.seq, hash: self.tip.hash, ..self.found }
    }
}

/// Milliseconds since 1970 UTC.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The name of this machine.
fn host() -> &'static str {
    static NAME: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    &NAME
}

fn hash(text: &str) -> String {
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn cut(text: &str, bytes: usize) -> String {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_false(value: &bool) -> bool {
    !*value
}

#[cfg(test)]
mod tests;
