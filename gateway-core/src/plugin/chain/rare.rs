//! Seats and promises that most chains have none of.

use std::sync::Arc;

use super::Chain;
use crate::config::capabilities::Capability;
use crate::config::condition::Condition;
use crate::plugin::hooks::{
    DeclaredSubset, Hooks, OnAttempt, OnBytes, OnClose, OnConnect, OnEnd, OnMessage, OnTransfer, OwnPages,
    OwnedHeader, Seated,
};
use crate::proxy_state::CredentialPlaces;

/// What most chains have nothing of: there may be a million chains.
#[derive(Default)]
pub(super) struct RareSeats {
    on_attempt: Box<[Seated<dyn OnAttempt>]>,
    on_end: Box<[Seated<dyn OnEnd>]>,
    on_connect: Box<[Seated<dyn OnConnect>]>,
    on_message: Box<[Seated<dyn OnMessage>]>,
    on_close: Box<[Seated<dyn OnClose>]>,
    on_bytes: Box<[Seated<dyn OnBytes>]>,
    on_transfer: Box<[Seated<dyn OnTransfer>]>,
    own_pages: Box<[Seated<dyn OwnPages>]>,
    pub(super) chooses: Box<[Arc<str>]>,
    pub(super) subsets: Box<[DeclaredSubset]>,
    pub(super) owned: Box<[OwnedHeader]>,
    pub(super) credentials: Option<Box<CredentialPlaces>>,
}

impl RareSeats {
    pub(super) fn of(hooks: Hooks) -> Option<Box<Self>> {
        let rare = Self {
            on_attempt: hooks.on_attempt.into(),
            on_end: hooks.on_end.into(),
            on_connect: hooks.on_connect.into(),
            on_message: hooks.on_message.into(),
            on_close: hooks.on_close.into(),
            on_bytes: hooks.on_bytes.into(),
            on_transfer: hooks.on_transfer.into(),
            own_pages: hooks.own_pages.into(),
            chooses: hooks.chooses.into(),
            subsets: hooks.subsets.into(),
            owned: hooks.owned.into_iter().filter(OwnedHeader::may_be_sent).collect(),
            credentials: (!hooks.credentials.is_empty()).then(|| Box::new(hooks.credentials)),
        };
        (!rare.is_empty()).then(|| Box::new(rare))
    }

    fn is_empty(&self) -> bool {
        let Self { on_attempt, on_end, on_connect, on_message, on_close, on_bytes, on_transfer, .. } = self;
        on_attempt.is_empty()
            && on_end.is_empty()
            && on_connect.is_empty()
            && on_message.is_empty()
            && on_close.is_empty()
            && on_bytes.is_empty()
            && on_transfer.is_empty()
            && self.own_pages.is_empty()
            && self.chooses.is_empty()
            && self.subsets.is_empty()
            && self.owned.is_empty()
            && self.credentials.is_none()
    }
}

impl Chain {
    /// The header fields of requests that plugins own, of which `when` may leave all owners out.
    pub(crate) fn owned_headers(&self) -> &[OwnedHeader] {
        self.rare(|rare| &rare.owned)
    }

    /// For which preflights one of its plugins answers; `None` is all.
    pub(crate) fn answered_preflights(&self) -> impl Iterator<Item = Option<&Condition>> {
        let answering = self.on_request.iter().filter(|seat| seat.has(Capability::AnswersPreflights));
        answering.map(|seat| seat.when.as_deref())
    }

    #[inline]
    pub(super) fn rare<'c, T>(&'c self, of: impl FnOnce(&'c RareSeats) -> &'c [T]) -> &'c [T] {
        self.rare.as_deref().map_or(&[], of)
    }

    pub(super) fn on_attempt(&self) -> &[Seated<dyn OnAttempt>] {
        self.rare(|rare| &rare.on_attempt)
    }

    pub(super) fn on_end(&self) -> &[Seated<dyn OnEnd>] {
        self.rare(|rare| &rare.on_end)
    }

    pub(super) fn on_connect(&self) -> &[Seated<dyn OnConnect>] {
        self.rare(|rare| &rare.on_connect)
    }

    pub(super) fn on_message(&self) -> &[Seated<dyn OnMessage>] {
        self.rare(|rare| &rare.on_message)
    }

    pub(super) fn on_close(&self) -> &[Seated<dyn OnClose>] {
        self.rare(|rare| &rare.on_close)
    }

    pub(super) fn own_pages(&self) -> &[Seated<dyn OwnPages>] {
        self.rare(|rare| &rare.own_pages)
    }

    pub(super) fn on_transfer(&self) -> &[Seated<dyn OnTransfer>] {
        self.rare(|rare| &rare.on_transfer)
    }

    pub(super) fn on_bytes(&self) -> &[Seated<dyn OnBytes>] {
        self.rare(|rare| &rare.on_bytes)
    }
}
