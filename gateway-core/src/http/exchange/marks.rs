//! What plugins ask of the pipeline, or tell each other, about one exchange.

use std::error::Error;
use std::sync::{Arc, OnceLock};

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};

use super::Exchange;
use crate::http::dialect::{Dialect, GrpcWeb, grpc_status};

/// Says why a response broke off while its body went out: a plugin that wraps the body keeps it for that moment.
#[derive(Debug, Clone, Default)]
pub struct LateReason(Arc<OnceLock<&'static str>>);

impl LateReason {
    /// Notes the word; the first one counts.
    pub fn set(&self, reason: &'static str) {
        _ = self.0.set(reason);
    }
}

/// Says how a gRPC call ended whose trailers a plugin makes into something else.
#[derive(Debug, Clone, Default)]
pub struct LateStatus(Arc<OnceLock<u16>>);

impl LateStatus {
    /// Notes the gRPC status in these trailers; the first one counts.
    pub fn set(&self, trailers: &HeaderMap) {
        if let Some(status) = grpc_status(trailers) {
            self.set_code(status);
        }
    }

    /// Notes a gRPC status; the first one counts.
    pub fn set_code(&self, status: u16) {
        _ = self.0.set(status);
    }
}

impl Exchange {
    /// Has the request sent to a target no more than once: it is not hedged, and after a failure tried again only where
    /// nothing of it was sent.
    pub fn send_once(&mut self) {
        self.rare().sent_once = true;
    }

    /// Whether a plugin has asked for that.
    pub fn is_sent_once(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.sent_once)
    }

    /// Notes that something else than [`Exchange::identity`] decided whether this caller may have the response, such as a
    /// server that was asked: the response must not be taken for everybody's.
    pub fn mark_checked(&mut self) {
        self.rare().checked = true;
    }

    /// Whether a plugin has noted that.
    pub fn is_checked(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.checked)
    }

    /// For response hooks: drops the target's response and asks for another one, by the request as it is now. Once an
    /// exchange, and only for requests without a body.
    pub fn ask_again(&mut self) {
        self.rare().again = true;
    }

    /// Whether a plugin has asked for that.
    pub(crate) fn is_asked_again(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.again)
    }

    /// The same, and forgets it.
    pub(crate) fn takes_again(&mut self) -> bool {
        self.rare.as_mut().is_some_and(|rare| std::mem::take(&mut rare.again))
    }

    /// How a call speaks that passes as gRPC-Web, and its content type. One that is translated speaks gRPC to the pipeline.
    pub(crate) fn web_call(&self) -> Option<(GrpcWeb, &HeaderValue)> {
        if self.dialect != Dialect::Plain || *self.method() != Method::POST {
            return None;
        }
        let headers = &self.request.headers;
        Some((GrpcWeb::of(headers)?, headers.get(CONTENT_TYPE)?))
    }

    /// Notes a failure that a plugin ran into, for the record's `error.message`; that of a target goes before it.
    pub fn note_failure(&mut self, failure: impl Into<Box<dyn Error + Send + Sync>>) {
        self.rare().failure = Some(failure.into());
    }

    /// What was noted.
    pub(crate) fn failure(&self) -> Option<&(dyn Error + Send + Sync)> {
        self.rare.as_ref()?.failure.as_deref()
    }

    /// Where to say why the response broke off, once its body is on its way.
    pub fn late_reason(&mut self) -> LateReason {
        self.rare().late_reason.get_or_insert_default().clone()
    }

    /// Where to say how a gRPC call ended, once its body is on its way.
    pub fn late_status(&mut self) -> LateStatus {
        self.rare().late_status.get_or_insert_default().clone()
    }

    /// What was said there.
    pub(crate) fn said_status(&self) -> Option<u16> {
        self.rare.as_ref()?.late_status.as_ref()?.0.get().copied()
    }

    /// Notes the place in the chain of the plugin whose hook answered, from 1 on; 0 is none.
    pub(crate) fn note_decider(&mut self, place: u16) {
        self.rare().decider = Some(place);
    }

    /// What was noted.
    pub(crate) fn decider(&self) -> Option<u16> {
        self.rare.as_ref()?.decider
    }

    /// The reason of a plugin's own for what became of this exchange.
    pub(crate) fn own_reason(&self) -> Option<&'static str> {
        let rare = self.rare.as_ref()?;
        rare.reason.or_else(|| rare.late_reason.as_ref()?.0.get().copied())
    }
}
