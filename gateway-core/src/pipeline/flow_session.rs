//! What is left to remember of a session of datagrams that no plugin looks at while it runs. There may be very many.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::time::Instant;

use crate::config::consumer::Identity;
use crate::stream::session::{Ends, Session};

/// The session of a flow.
pub(super) struct FlowSession {
    /// As plugins see it; `None` while its ends are all there is to know.
    whole: Option<Box<Session>>,
    /// Where `whole` is `None`.
    ends: Box<Ends>,
}

impl FlowSession {
    pub(super) fn new(session: Session) -> Self {
        Self { ends: Box::new(session.ends()), whole: Some(Box::new(session)) }
    }

    /// The session as plugins see it.
    pub(super) fn whole(&mut self) -> &mut Session {
        self.whole.get_or_insert_with(|| Box::new(Session::of_ends(&self.ends)))
    }

    /// Keeps the ends alone, where there is nothing else and nobody else has its client.
    pub(super) fn shrink(&mut self) {
        if let Some(session) = &mut self.whole
            && session.has_only_ends()
        {
            *self.ends = session.ends();
            self.whole = None;
        }
    }

    pub(super) fn identity(&self) -> Option<&Arc<Identity>> {
        self.whole.as_ref().map_or(&self.ends.identity, |session| &session.identity).as_ref()
    }

    pub(super) fn client_address(&self) -> IpAddr {
        self.whole.as_ref().map_or(self.ends.client_address, |session| session.client_address)
    }

    pub(super) fn port(&self) -> u16 {
        self.whole.as_ref().map_or(self.ends.port, |session| session.client.port)
    }

    pub(super) fn started(&self) -> Instant {
        self.whole.as_ref().map_or(self.ends.started, |session| session.started)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::http::exchange::{Client, ClientTls};
    use crate::plugin::SeatNumber;

    fn session(tls: Option<ClientTls>) -> Session {
        let ends = (SocketAddr::from(([192, 0, 2, 7], 4000)), SocketAddr::from(([127, 0, 0, 1], 53)));
        let mut session = Session::new(Arc::new(Client::new(ends.0, ends.1, true, tls)));
        session.client_address = IpAddr::from([198, 51, 100, 9]);
        session.server_name = Some("a.example".into());
        session.unproven = true;
        session
    }

    #[test]
    fn a_session_of_which_nothing_else_is_known_comes_back_as_it_was() {
        let before = session(None);
        let said = format!("{before:?}");
        let mut kept = FlowSession::new(before);
        kept.shrink();
        assert!(kept.whole.is_none());
        assert_eq!(format!("{:?}", kept.whole()), said);
    }

    /// What a session may have beside its ends, each by itself.
    #[test]
    fn nothing_that_is_known_of_a_session_is_lost() {
        let with = |change: fn(&mut Session)| {
            let mut changed = session(None);
            change(&mut changed);
            changed
        };
        let mut held = Vec::new();
        let shared = session(None);
        held.push(shared.client.clone());
        let all = [
            ("TLS", session(Some(ClientTls::default()))),
            ("a shared client", shared),
            ("a field", with(|session| session.note("a", "b"))),
            ("state", with(|session| session.state.put(SeatNumber(1), "kept"))),
            ("a PROXY header", with(|session| session.told = Some(Box::default()))),
            ("a head", with(|session| session.head = Some(Box::new(http::Request::new(()).into_parts().0)))),
        ];
        for (what, session) in all {
            let mut kept = FlowSession::new(session);
            kept.shrink();
            assert!(kept.whole.is_some(), "{what}");
        }
    }
}
