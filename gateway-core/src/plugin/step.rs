//! What a hook decided.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;

use super::seat::Seat;
use crate::config::consumer::Identity;
use crate::http::exchange::Exchange;
use crate::http::reply::{Cause, Reply};
use crate::stream::session::MessageKind;

/// A decision that takes a while.
pub type Wait<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a hook decided. Only a hook that really waits allocates.
pub enum Step<'a> {
    /// Go on with the next plugin.
    Next,
    /// Answer with this; the upstream is not asked.
    Reply(Box<Reply>),
    /// The decision takes a while. Bounded by the proxy's total timeout, or by
    /// [`PLUGIN_TIMEOUT`](super::PLUGIN_TIMEOUT) where there is none.
    Wait(Wait<'a, Verdict>),
}

/// What a waiting hook decided in the end.
pub enum Verdict {
    /// Go on with the next plugin.
    Next,
    /// Answer with this; the upstream is not asked.
    Reply(Box<Reply>),
}

impl<'a> Step<'a> {
    /// Answers with `reply`.
    pub fn reply(reply: Reply) -> Self {
        Self::Reply(Box::new(reply))
    }

    /// Decides later.
    pub fn wait(future: impl Future<Output = Verdict> + Send + 'a) -> Self {
        Self::Wait(Box::pin(future))
    }
}

impl Verdict {
    /// Answers with `reply`.
    pub fn reply(reply: Reply) -> Self {
        Self::Reply(Box::new(reply))
    }
}

/// What an authentication plugin says about the caller. Only a plugin that really waits allocates.
pub enum Claim<'a> {
    /// No credential of this plugin's kind was sent. The reply is the refusal where no other plugin recognises the
    /// caller: it carries this plugin's challenge (`WWW-Authenticate`).
    Absent(Option<Box<Reply>>),
    /// The credential is good.
    Caller(Arc<Identity>),
    /// No credential was sent, and this is who the caller counts as unless another plugin finds one.
    Anonymous(Arc<Identity>),
    /// A credential was sent and is not good.
    Refused(Box<Reply>),
    /// The decision takes a while, bounded as [`Step::Wait`].
    Wait(Wait<'a, Finding>),
}

/// What an authentication plugin found in the end.
pub enum Finding {
    /// As [`Claim::Absent`].
    Absent(Option<Box<Reply>>),
    /// The credential is good.
    Caller(Arc<Identity>),
    /// As [`Claim::Anonymous`].
    Anonymous(Arc<Identity>),
    /// A credential was sent and is not good.
    Refused(Box<Reply>),
    /// The request was the plugin's own business, a step of a login for example, and this is the answer. Nobody else is asked.
    Answered(Box<Reply>),
}

impl<'a> Claim<'a> {
    /// Decides later.
    pub fn wait(future: impl Future<Output = Finding> + Send + 'a) -> Self {
        Self::Wait(Box::pin(future))
    }
}

/// Whether a new session may go on.
pub enum Gate<'a> {
    /// It may.
    Open,
    /// It may not.
    Refuse(Refusal),
    /// The decision takes a while, bounded as [`Step::Wait`].
    Wait(Wait<'a, Result<(), Refusal>>),
}

/// Why a session may not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// The word for the record.
    pub reason: &'static str,
    /// What a client is answered that can still be answered: one that asks for a WebSocket.
    pub cause: Cause,
}

impl Refusal {
    /// Refused as not allowed, for this reason.
    pub const fn new(reason: &'static str) -> Self {
        Self { reason, cause: Cause::Forbidden }
    }
}

impl Gate<'_> {
    /// Refuses for this reason.
    pub const fn refuse(reason: &'static str) -> Self {
        Self::Refuse(Refusal::new(reason))
    }
}

/// What becomes of a message.
pub enum Passage<'a> {
    /// It goes on, as it now is.
    Forward,
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender gets these messages instead.
    Answer(Vec<(MessageKind, Bytes)>),
    /// The session ends; a WebSocket with this close code (RFC 6455 §7.4), such as 1008.
    Close(u16),
    /// The decision takes a while, bounded as [`Step::Wait`]; `Some` is the message as it goes on.
    Wait(Wait<'a, Decision>),
}

/// What a waiting message hook decided in the end.
pub enum Decision {
    /// It goes on, with this payload.
    Forward(Bytes),
    /// It is dropped.
    Drop,
    /// It is dropped, and its sender gets these messages instead.
    Answer(Vec<(MessageKind, Bytes)>),
    /// The session ends; a WebSocket with this close code.
    Close(u16),
}

/// A request that is described and not sent, for [`Plugin::foresee`](super::Plugin::foresee).
#[derive(Debug, Clone, Copy)]
pub struct Foresight<'a> {
    /// The request as the plugin would see it, without a body.
    pub exchange: &'a Exchange,
    /// Where the plugin would run.
    pub seat: Seat<'a>,
    /// The whole body; `None` where only its length is known.
    pub body: Option<&'a [u8]>,
    /// The length of the body in bytes; 0 without one.
    pub body_bytes: u64,
    /// Whether `exchange.identity` is who the caller is. False where a plugin before this one identifies callers in a way that
    /// cannot be foreseen.
    pub is_caller_known: bool,
}

/// What a plugin would decide about a request that is not sent.
#[derive(Debug)]
pub enum Foreseen {
    /// The request goes on; the text says how it stands, such as what is left of a limit. It may be empty.
    Passes(String),
    /// The plugin recognises the caller.
    Caller(Arc<Identity>),
    /// The request has no credential of this plugin's kind; the plugin answers with this where no other recognises the caller.
    Absent(Box<Reply>),
    /// The plugin answers with this; the text says why, for operators. It may be empty.
    Refuses(Box<Reply>, String),
    /// The plugin is in a dry run or only observes, and would refuse otherwise; the text says why.
    WouldRefuse(String),
    /// That can't be known without sending the request; the text says why.
    Unknown(String),
}

impl Foreseen {
    /// A refusal that becomes an observation in a dry run.
    pub fn refuses(reply: Reply, why: impl Into<String>, dry_run: bool) -> Self {
        match dry_run {
            true => Self::WouldRefuse(why.into()),
            false => Self::Refuses(Box::new(reply), why.into()),
        }
    }
}
