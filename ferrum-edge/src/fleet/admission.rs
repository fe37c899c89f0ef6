//! Which edges the protocol lets in, and with what: the answers of the roster to connections.

use std::sync::Arc;

use gateway_fleet::{
    Acceptance, Answering, CertifiedEdge, Hello, Membership, NewIdentity, Refusal, Registrar, Welcome,
};

use super::roster::Roster;

impl Acceptance for Roster {
    fn membership(&self, edge: &str, serial: &str) -> Membership {
        self.membership_of(edge, serial)
    }
}

impl Registrar for Roster {
    fn enrol<'a>(&'a self, code: &'a str, request: &'a str) -> Answering<'a, NewIdentity> {
        Box::pin(self.take_in(code, request))
    }

    fn renew<'a>(&'a self, edge: &'a CertifiedEdge, request: &'a str) -> Answering<'a, NewIdentity> {
        Box::pin(self.reissue(edge, request))
    }

    fn welcome(&self, edge: &CertifiedEdge) -> Result<(Welcome, Arc<str>), Refusal> {
        let row = self.accepted(edge)?;
        let view = row.group.as_str().into();
        let welcome = Welcome {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            edge: edge.edge.clone(),
            name: row.name,
            keys: self.keys_of(&row.group),
            group: row.group,
        };
        Ok((welcome, view))
    }

    fn view(&self, group: &Arc<str>, hello: &Hello) -> Arc<str> {
        self.view_of(group, hello)
    }
}
