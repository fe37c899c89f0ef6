//! What a hook decided.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::consumer::Identity;
use crate::http::reply::Reply;

/// What a hook decided. Only a hook that really waits allocates.
pub enum Step<'a> {
    /// Nothing to say; the next plugin runs.
    Next,
    /// The gateway answers with this and the upstream is not asked.
    Reply(Box<Reply>),
    /// The decision takes a while.
    Wait(Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>),
}

/// What a waiting hook decided in the end.
pub enum Verdict {
    /// Nothing to say; the next plugin runs.
    Next,
    /// The gateway answers with this and the upstream is not asked.
    Reply(Box<Reply>),
}

impl<'a> Step<'a> {
    /// Refuses with `reply`.
    pub fn reply(reply: Reply) -> Self {
        Self::Reply(Box::new(reply))
    }

    /// Decides later.
    pub fn wait(future: impl Future<Output = Verdict> + Send + 'a) -> Self {
        Self::Wait(Box::pin(future))
    }

    /// The decision, waited for where needed.
    pub async fn verdict(self) -> Verdict {
        match self {
            Self::Next => Verdict::Next,
            Self::Reply(reply) => Verdict::Reply(reply),
            Self::Wait(future) => future.await,
        }
    }
}

/// What an authentication plugin says about the caller. Only a plugin that really waits allocates.
pub enum Claim<'a> {
    /// No credential of this plugin's kind was sent.
    Absent,
    /// The credential is good.
    Caller(Arc<Identity>),
    /// A credential was sent and is not good.
    Refused(Box<Reply>),
    /// The decision takes a while.
    Wait(Pin<Box<dyn Future<Output = Finding> + Send + 'a>>),
}

/// What an authentication plugin found in the end.
pub enum Finding {
    /// No credential of this plugin's kind was sent.
    Absent,
    /// The credential is good.
    Caller(Arc<Identity>),
    /// A credential was sent and is not good.
    Refused(Box<Reply>),
}

impl Claim<'_> {
    /// The finding, waited for where needed.
    pub async fn finding(self) -> Finding {
        match self {
            Self::Absent => Finding::Absent,
            Self::Caller(identity) => Finding::Caller(identity),
            Self::Refused(reply) => Finding::Refused(reply),
            Self::Wait(future) => future.await,
        }
    }
}
