//! What a UDP port is asked about its sessions from outside. They are in no common table, because there may be a million of
//! them: each worker's share of each port looks through its own.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use gateway_core::stream::sessions::About;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::port::{Port, slot_of};
use super::session::{Session, Stage};

/// Questions that wait for a port; more are not answered.
pub(crate) const QUEUE: usize = 64;
/// Why a session ended that somebody ended.
const ENDED: &str = "ended";

/// A session of a UDP port, unique while the process runs: worker, port and its key there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramId {
    worker: usize,
    port: u16,
    key: u64,
}

/// An open session of a UDP port.
#[derive(Debug, Clone)]
pub struct DatagramSession {
    /// Which one.
    pub id: DatagramId,
    /// What it is.
    pub about: About,
    /// When it began.
    pub since: Instant,
}

/// What is wanted of those sessions for which the question's filter holds.
#[derive(Debug, Clone, Copy)]
pub enum Wanted {
    /// So many of them, in the order of ids, after this one.
    List(Option<DatagramId>, usize),
    /// That they end.
    End,
    /// That this one ends.
    EndOne(DatagramId),
}

/// A question to every port of every worker.
#[derive(Clone)]
pub struct Question {
    /// What is wanted.
    pub wanted: Wanted,
    /// Which sessions are meant.
    pub filter: Arc<dyn Fn(&About) -> bool + Send + Sync>,
    /// Where the answers go.
    pub answers: mpsc::UnboundedSender<Told>,
}

/// A port's answer.
#[derive(Debug, Default)]
pub struct Told {
    /// Sessions that are open there.
    pub open: usize,
    /// Those that were wanted.
    pub listed: Vec<DatagramSession>,
    /// How many were ended.
    pub ended: usize,
}

impl fmt::Debug for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Question({:?})", self.wanted)
    }
}

impl DatagramId {
    /// The order of pages.
    pub fn order(&self) -> (usize, u16, usize) {
        (self.worker, self.port, slot_of(self.key))
    }
}

impl fmt::Display for DatagramId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp-{}-{}-{}", self.worker, self.port, self.key)
    }
}

impl FromStr for DatagramId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.strip_prefix("udp-").ok_or(())?.split('-');
        let mut next = || parts.next().ok_or(());
        let (worker, port, key) = (next()?, next()?, next()?);
        let id = Self {
            worker: worker.parse().map_err(|_| ())?,
            port: port.parse().map_err(|_| ())?,
            key: key.parse().map_err(|_| ())?,
        };
        parts.next().is_none().then_some(id).ok_or(())
    }
}

impl Port {
    pub(super) fn answer(&mut self, question: &Question) {
        let mut told = Told { open: self.sessions.len(), ..Told::default() };
        match question.wanted {
            Wanted::List(after, limit) => {
                let sessions = self.sessions.iter().map(|(slot, session)| (self.id(slot), session));
                let behind = sessions.filter(|(id, _)| after.is_none_or(|after| id.order() > after.order()));
                let meant = behind.filter_map(|(id, session)| {
                    let (about, since) = about(session)?;
                    (question.filter)(&about).then_some(DatagramSession { id, about, since })
                });
                told.listed = meant.take(limit).collect();
            }
            Wanted::End => {
                let meant = self.sessions.iter().filter(|(_, session)| {
                    about(session).is_some_and(|(about, _)| (question.filter)(&about))
                });
                let keys: Vec<_> = meant.map(|(slot, _)| self.id(slot).key).collect();
                told.ended = keys.len();
                keys.into_iter().for_each(|key| self.end(key, ENDED));
            }
            Wanted::EndOne(id) => {
                let here = (id.worker, id.port) == (self.worker.index(), self.number);
                if here && self.is_current(id.key) {
                    told.ended = 1;
                    self.end(id.key, ENDED);
                }
            }
        }
        // Who asked may have given up.
        let _heard = question.answers.send(told);
    }

    fn id(&self, slot: usize) -> DatagramId {
        let generation = self.generations.get(slot).copied().unwrap_or_default();
        let key = u64::from(generation) << 32 | slot as u64;
        DatagramId { worker: self.worker.index(), port: self.number, key }
    }
}

/// What is known of a session; `None` in the moment in which its target is looked for.
fn about(session: &Session) -> Option<(About, Instant)> {
    let flow = match &session.stage {
        Stage::Greeting(flow) => flow,
        Stage::Open(open) => &open.flow,
        Stage::Opening(..) => return None,
    };
    let seen = flow.seen();
    let about = About {
        protocol: flow.protocol(),
        proxy: flow.route().proxy.id.clone(),
        consumer: seen.identity.as_ref().map(|identity| identity.name.clone()),
        client: seen.client_address,
    };
    Some((about, seen.started))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let id = DatagramId { worker: 3, port: 5353, key: 7 << 32 | 9 };
        assert_eq!(id.to_string(), "udp-3-5353-30064771081");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.order(), (3, 5353, 9));
        for wrong in ["", "7", "udp-1-2", "udp-1-2-3-4", "udp-1-70000-3", "udp-a-2-3"] {
            assert!(wrong.parse::<DatagramId>().is_err(), "{wrong}");
        }
    }
}
