//! How a UDP port answers what it is asked about its sessions. They are in no common table, because there may be a million
//! of them: each worker's share of each port looks through its own.

use gateway_core::stream::relay::Carried;
use gateway_core::stream::sessions::About;
use tokio::time::Instant;

use super::Port;
use crate::udp::questions::{DatagramId, DatagramSession, DatagramSum, PortAnswer, Question, Wanted};
use crate::udp::session::{Session, SessionStage};

/// Why a session ended that somebody ended.
const ENDED: &str = "ended";

impl Port {
    pub(super) fn answer(&mut self, question: &Question) {
        let mut told = PortAnswer { open: self.sessions.len(), ..PortAnswer::default() };
        match question.wanted {
            Wanted::List(after, limit) => {
                let sessions = self.sessions.iter().map(|(slot, session)| (self.id(slot), session));
                let behind = sessions.filter(|(id, _)| after.is_none_or(|after| id.order() > after.order()));
                let meant = behind.filter_map(|(id, session)| {
                    let (about, since, carried) = about(session)?;
                    (question.filter)(&about).then_some(DatagramSession { id, about, since, carried })
                });
                told.listed = meant.take(limit).collect();
            }
            Wanted::Sum => told.sums = self.sums(question),
            Wanted::End => {
                let meant = self.sessions.iter().filter(|(_, session)| {
                    about(session).is_some_and(|(about, ..)| (question.filter)(&about))
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

    pub(super) fn id(&self, slot: usize) -> DatagramId {
        let generation = self.generations.get(slot).copied().unwrap_or_default();
        let key = u64::from(generation) << 32 | slot as u64;
        DatagramId { worker: self.worker.index(), port: self.number, key }
    }
}

impl Port {
    fn sums(&self, question: &Question) -> Vec<DatagramSum> {
        let mut sums: Vec<DatagramSum> = Vec::new();
        for (_, session) in &self.sessions {
            let Some((about, _, carried)) = about(session).filter(|(about, ..)| (question.filter)(about))
            else {
                continue;
            };
            // A port has few proxies: one, or one for each server name.
            let is_same = |sum: &&mut DatagramSum| sum.protocol == about.protocol && sum.proxy == about.proxy;
            let Some(sum) = sums.iter_mut().find(is_same) else {
                let About { proxy, protocol, .. } = about;
                sums.push(DatagramSum { proxy, protocol, open: 1, carried });
                continue;
            };
            sum.open += 1;
            sum.carried.up += carried.up;
            sum.carried.down += carried.down;
        }
        sums
    }
}

/// What is known of a session; `None` in the moment in which its target is looked for.
fn about(session: &Session) -> Option<(About, Instant, Carried)> {
    let flow = match &session.stage {
        SessionStage::Greeting(greeting) => &greeting.flow,
        SessionStage::Open(open) => &open.flow,
        SessionStage::Opening(_) => return None,
    };
    let about = About {
        protocol: flow.protocol(),
        proxy: flow.route().proxy.id.clone(),
        owner: flow.route().proxy.owner().cloned(),
        consumer: flow.identity().map(|identity| identity.name.clone()),
        client: flow.client_address(),
        port: flow.port(),
    };
    Some((about, flow.started(), flow.carried))
}
