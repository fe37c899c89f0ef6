//! Following the database: a task that learns of other writers' revisions and of the database going away.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::watch::Sender;
use tokio::time::{sleep, timeout};

use super::change::CHANNEL;
use super::link::postgres;
use super::location::{Engine, Target};
use super::{Core, Mark, StoreError};

/// Between two attempts to reach a database that is away, at most.
const RETRY: Duration = Duration::from_secs(1);

/// A look that takes longer than so many connect timeouts counts as a server that is away.
const LOOK_CONNECTS: u32 = 2;

/// How the database stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signal {
    /// The newest revision that was seen; `None` before the first answer. It may become smaller when somebody restores
    /// a backup.
    pub revision: Option<u64>,
    /// That revision with its token, by which the same number of another history is told apart.
    pub mark: Option<Mark>,
    /// Set while the database does not answer.
    pub away: Option<Away>,
}

/// The database does not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// Since when.
    pub since: SystemTime,
    /// Why, as [`StoreError`] says it.
    pub cause: String,
}

/// Tells of a database that does not answer.
pub(super) fn tell_away(signal: &Sender<Signal>, cause: String) {
    signal.send_if_modified(|now| {
        let since = now.away.as_ref().map_or_else(SystemTime::now, |away| away.since);
        let away = Some(Away { since, cause });
        std::mem::replace(&mut now.away, away) != now.away
    });
}

/// Tells what was seen, if it is news.
pub(super) fn tell(signal: &Sender<Signal>, seen: Result<Mark, StoreError>) {
    match seen {
        Ok(mark) => drop(signal.send_if_modified(|now| {
            let seen = Signal { revision: Some(mark.revision), mark: Some(mark), away: None };
            let is_news = seen != *now;
            *now = seen;
            is_news
        })),
        Err(error) => tell_away(signal, error.to_string()),
    }
}

/// Looks at the revision until the store is gone. A panic counts as a database that is away, until a look succeeds.
pub(super) async fn follow(core: Weak<Core>) {
    while AssertUnwindSafe(follow_on(core.clone())).catch_unwind().await.is_err() {
        let Some(store) = core.upgrade() else { return };
        store.signal.send_modify(|signal| {
            let cause = "looking at the database panicked; the log says where".to_owned();
            signal.away.get_or_insert_with(|| Away { since: SystemTime::now(), cause });
        });
        drop(store);
        sleep(RETRY).await;
    }
}

async fn follow_on(core: Weak<Core>) {
    let Some(interval) = core.upgrade().map(|core| interval(&core)) else { return };
    let mut notifications = None;
    loop {
        let Some(store) = core.upgrade() else { return };
        if notifications.is_none() {
            notifications = listen(&store).await;
        }
        let here = look(&store).await;
        drop(store);
        let pause = if here { interval } else { interval.min(RETRY) };
        match &mut notifications {
            None => sleep(pause).await,
            // `Ok(None)` and errors: the connection is lost, so look at once and then listen anew.
            Some(listener) => match timeout(pause, listener.try_recv()).await {
                Err(_) | Ok(Ok(Some(_))) => {}
                Ok(Ok(None) | Err(_)) => notifications = None,
            },
        }
        if notifications.is_none() && !here {
            sleep(pause.min(RETRY)).await;
        }
    }
}

fn interval(core: &Core) -> Duration {
    core.options.poll_interval.unwrap_or_else(|| match core.location.engine() {
        Engine::Sqlite => Duration::from_millis(250),
        Engine::MySql => Duration::from_millis(500),
        Engine::Postgres => Duration::from_secs(5),
    })
}

/// The longest a look may take. No network lies before a file: where it is slow, the machine is busy, and it answers in the end.
fn look_limit(core: &Core) -> Duration {
    match core.location.engine() {
        Engine::Sqlite => core.options.statement_timeout,
        Engine::Postgres | Engine::MySql => core.options.connect_timeout * LOOK_CONNECTS,
    }
}

/// Looks once; whether the database answered. What was seen while this gateway itself wrote may be old by now.
async fn look(core: &Arc<Core>) -> bool {
    let written = core.written();
    let limit = look_limit(core);
    let seen = timeout(limit, core.mark(&core.looks))
        .await
        .unwrap_or_else(|_| Err(StoreError::Timeout { at: core.location.to_string(), after: limit }));
    let here = seen.is_ok();
    if written == core.written() || !here {
        tell(&core.signal, seen);
    }
    here
}

/// A connection on which PostgreSQL tells of each revision when it is committed.
async fn listen(core: &Core) -> Option<PgListener> {
    let Target::Postgres(target) = &core.location.target else { return None };
    let wait_limit = core.options.connect_timeout;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(wait_limit)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(postgres::options(target));
    let listening = async {
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        Ok::<_, sqlx::Error>(listener)
    };
    timeout(wait_limit, listening).await.ok()?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Location, Options, Store};

    #[tokio::test]
    async fn a_file_whose_readers_are_busy_is_not_away() {
        let folder = std::env::temp_dir().join(format!("ferrum-looks-{}", std::process::id()));
        let store = Store::open(Location::sqlite(folder.join("ferrum.db")), Options::default());
        store.migrate().await.unwrap();
        let mut busy = Vec::new();
        for _ in 0..store.core.options.connections {
            busy.push(store.core.reading().await.unwrap());
        }
        let waiting = timeout(Duration::from_millis(20), store.revision()).await;
        assert!(!matches!(waiting, Ok(Ok(_))), "every reader is busy");
        assert!(look(&store.core).await);
        assert_eq!(store.core.signal.borrow().away, None);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_slow_file_has_the_time_of_a_statement() {
        let store = |at| Store::open(Location::parse(Some(at), None).unwrap(), Options::default());
        let limit = |at| look_limit(&store(at).core);
        assert_eq!(limit("sqlite:/tmp/ferrum.db"), Duration::from_secs(30));
        assert_eq!(limit("postgres://localhost/ferrum"), Duration::from_secs(10));
    }
}
