//! The sessions that are open: TCP streams, WebSockets, streams of events and other answers that go on. So they can be listed, and ended one by one.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pacer::SessionMeters;
use super::relay::Carried;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::config::model::Id;

/// Tables among which sessions are spread, so that workers rarely meet in one.
const SHARDS: usize = 16;

/// Open sessions, over all workers. A session is entered when it begins and taken out when it ends; nothing here is
/// touched in between.
#[derive(Debug, Default)]
pub struct Sessions {
    shards: [Mutex<HashMap<u64, Arc<OpenSession>>>; SHARDS],
    last: AtomicU64,
}

/// What is known of a session from its beginning.
#[derive(Debug, Clone)]
pub struct About {
    /// `tcp`, `websocket`, `event_stream`, `grpc` or `http`; of those that UDP ports keep themselves `udp` or `dtls`.
    pub protocol: &'static str,
    /// Its proxy.
    pub proxy: Id,
    /// Whom its proxy belongs to.
    pub owner: Option<Id>,
    /// The consumer's name, where one was recognised.
    pub consumer: Option<Arc<str>>,
    /// The client's address.
    pub client: IpAddr,
    /// The port that it connected to.
    pub port: u16,
}

/// One open session.
#[derive(Debug)]
pub struct OpenSession {
    /// Unique while the process runs.
    pub id: u64,
    /// What it is.
    pub about: About,
    /// When it began.
    pub since: Instant,
    /// What it carries; `None` for answers that go on, whose bytes are the exchange's.
    pub traffic: Option<Arc<SessionMeters>>,
    end: Notify,
}

/// A session's entry; taken out when it is dropped.
pub(crate) struct Entered<'s> {
    sessions: &'s Sessions,
    session: Arc<OpenSession>,
}

impl Sessions {
    pub(crate) fn enter(&self, about: About, traffic: Option<Arc<SessionMeters>>) -> Entered<'_> {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let session = Arc::new(OpenSession { id, about, since: Instant::now(), traffic, end: Notify::new() });
        self.shard(id).insert(id, session.clone());
        Entered { sessions: self, session }
    }

    fn shard(&self, id: u64) -> MutexGuard<'_, HashMap<u64, Arc<OpenSession>>> {
        // Fits: there are few shards.
        let place = (id % SHARDS as u64) as usize;
        self.shards[place].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many are open.
    pub fn count(&self) -> usize {
        (0..SHARDS as u64).map(|place| self.shard(place).len()).sum()
    }

    /// Those with ids above `after` for which `wanted` holds, the oldest first; at most `limit`.
    pub fn list(&self, after: u64, limit: usize, wanted: impl Fn(&About) -> bool) -> Vec<Arc<OpenSession>> {
        let mut found = Vec::new();
        for place in 0..SHARDS as u64 {
            let shard = self.shard(place);
            let open = shard.values().filter(|open| open.id > after && wanted(&open.about));
            found.extend(open.cloned());
        }
        found.sort_unstable_by_key(|open| open.id);
        found.truncate(limit);
        found
    }

    /// Shows every open session.
    pub fn each(&self, mut show: impl FnMut(&OpenSession)) {
        for place in 0..SHARDS as u64 {
            self.shard(place).values().for_each(|open| show(open));
        }
    }

    /// The bytes of open sessions that metrics have not counted yet, by protocol. Each is handed out once.
    pub fn uncounted(&self, mut count: impl FnMut(&'static str, Carried)) {
        self.each(|open| {
            if let Some(traffic) = &open.traffic {
                count(open.about.protocol, traffic.live.uncounted());
            }
        });
    }

    /// Ends a session; false when there is none with this id.
    pub fn end(&self, id: u64) -> bool {
        let shard = self.shard(id);
        let found = shard.get(&id);
        found.inspect(|session| session.end.notify_one()).is_some()
    }

    /// Ends all for which `wanted` holds; says how many.
    pub fn end_all(&self, wanted: impl Fn(&About) -> bool) -> usize {
        let found = self.list(0, usize::MAX, wanted);
        found.iter().for_each(|session| session.end.notify_one());
        found.len()
    }
}

impl Entered<'_> {
    /// Ready once somebody ended the session.
    pub(crate) async fn ended(&self) {
        self.session.end.notified().await;
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.sessions.shard(self.session.id).remove(&self.session.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(consumer: &str) -> About {
        About {
            protocol: "tcp",
            proxy: "p".parse().unwrap(),
            owner: None,
            consumer: Some(consumer.into()),
            client: [127, 0, 0, 1].into(),
            port: 7000,
        }
    }

    #[tokio::test]
    async fn sessions_are_listed_and_ended_until_they_go() {
        let sessions = Sessions::default();
        let entered: Vec<_> = (0..40).map(|n| sessions.enter(about(&format!("c{}", n % 2)), None)).collect();
        assert_eq!(sessions.count(), 40);
        let page = sessions.list(2, 3, |about| about.consumer.as_deref() == Some("c0"));
        assert_eq!(page.iter().map(|open| open.id).collect::<Vec<_>>(), [3, 5, 7]);
        assert!(sessions.end(3) && !sessions.end(99));
        entered[2].ended().await;
        assert_eq!(sessions.end_all(|about| about.consumer.as_deref() == Some("c1")), 20);
        entered[1].ended().await;
        drop(entered);
        assert_eq!(sessions.count(), 0);
        assert!(!sessions.end(3));
    }
}
