//! Which edges the protocol lets in, and with what: the answers of the roster to connections.

use std::sync::Arc;

use gateway_fleet::{
    Abilities, Acceptance, Answering, CertifiedEdge, Membership, NewIdentity, Refusal, Registrar, Welcome,
};

use super::roster::Roster;

impl Roster {
    /// Carries out work on the control runtime, to the end also when the edge leaves.
    async fn on_control<T: Send + 'static, F>(&self, work: impl FnOnce(Arc<Self>) -> F) -> Result<T, Refusal>
    where
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        let stopping = || Refusal::Failed("this control plane stops".to_owned());
        let own = self.own.upgrade().ok_or_else(stopping)?;
        self.control.spawn(work(own)).await.unwrap_or_else(|_| Err(stopping()))
    }
}

impl Acceptance for Roster {
    fn membership(&self, edge: &str, serial: &str) -> Membership {
        self.membership_of(edge, serial)
    }
}

impl Registrar for Roster {
    fn enrol<'a>(&'a self, code: &'a str, request: &'a str) -> Answering<'a, NewIdentity> {
        let (code, request) = (code.to_owned(), request.to_owned());
        Box::pin(self.on_control(|roster| async move { roster.take_in(&code, &request).await }))
    }

    fn renew<'a>(&'a self, edge: &'a CertifiedEdge, request: &'a str) -> Answering<'a, NewIdentity> {
        let (edge, request) = (edge.clone(), request.to_owned());
        Box::pin(self.on_control(|roster| async move { roster.reissue(&edge, &request).await }))
    }

    fn welcome(&self, edge: &CertifiedEdge) -> Result<(Welcome, Arc<str>), Refusal> {
        let row = self.accepted(edge)?;
        let view = row.group.as_str().into();
        let welcome = Welcome {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            edge: edge.edge.clone(),
            name: row.name.clone(),
            keys: self.keys_of(&row.group),
            group: row.group.clone(),
        };
        Ok((welcome, view))
    }

    fn view(&self, group: &Arc<str>, abilities: &Abilities) -> Arc<str> {
        self.view_of(group, abilities)
    }
}
