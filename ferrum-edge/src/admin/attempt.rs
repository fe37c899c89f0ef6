//! What somebody tries through the admin API, for the audit: who asks, and what becomes of it.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::Response;

use super::peer::Peer;
use super::problem::Code;
use super::query::pairs;
use crate::access::Caller;
use crate::audit::{AuditOutcome, Draft, Who};
use crate::audit_recorder::Recorder;

/// What callers without a valid token are called.
const UNKNOWN: &str = "unknown";

/// What somebody tries, as far as it is known before an answer.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    peer: Option<Arc<Peer>>,
    action: String,
    changes: bool,
    only_checks: bool,
}

impl Attempt {
    pub(super) fn of<B>(request: &Request<B>) -> Self {
        let (method, uri) = (request.method(), request.uri());
        let pairs = pairs(uri.query());
        let is_on = |value: &str| !matches!(value, "false" | "0");
        Self {
            peer: request.extensions().get::<Arc<Peer>>().cloned(),
            action: format!("{method} {}", uri.path()),
            changes: !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS),
            only_checks: pairs.iter().any(|(key, value)| key == "validate_only" && is_on(value)),
        }
    }

    /// The same as something that changes, whatever its method says.
    #[cfg(feature = "console")]
    pub(super) fn of_change(self) -> Self {
        Self { changes: true, ..self }
    }

    /// Who it is.
    pub(super) fn who(&self, caller: Option<&Caller>) -> Who {
        let peer = self.peer.as_deref();
        Who {
            actor: caller.map_or_else(|| UNKNOWN.to_owned(), |caller| caller.name.to_string()),
            role: caller.map(|caller| caller.role.as_str()),
            certificate: peer.and_then(|peer| peer.certificate.clone()),
            source: caller.map_or("admin-api", |caller| caller.source),
            peer: peer.and_then(|peer| peer.address.clone()),
        }
    }

    /// For the entry that a change writes itself.
    pub(super) fn draft(&self, caller: &Caller) -> Draft {
        Draft::new(self.who(Some(caller)), self.action.clone(), AuditOutcome::Allowed)
    }

    /// Records how it ended. A good end of what writes to the database is there already.
    pub(super) fn ended(
        &self,
        recorder: &Recorder,
        caller: Option<&Caller>,
        response: &Response,
        writes: bool,
    ) {
        let status = response.status();
        let is_denied = matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        if !is_denied && (!self.changes || self.only_checks || (writes && status.is_success())) {
            return;
        }
        let outcome = match status.as_u16() {
            ..400 => AuditOutcome::Allowed,
            400..500 => AuditOutcome::Refused,
            _ => AuditOutcome::Failed,
        };
        let reason = response.extensions().get::<Code>().map(|code| code.0.to_owned());
        let draft = Draft::new(self.who(caller), self.action.clone(), outcome);
        recorder.record(Draft { status: Some(status.as_u16()), reason, ..draft });
    }
}
