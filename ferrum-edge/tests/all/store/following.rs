//! What others have written.

use std::time::Duration;

use ferrum_edge::store::{Changed, Engine, ObjectKind, Options};
use tokio::time::timeout;

use crate::store::place::{Place, delete, options, put, write};

/// Far longer than it takes.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) async fn what_has_changed_can_be_asked_for(engine: Engine) {
    let (place, store) = Place::new(engine).await;
    write(&store, vec![put(ObjectKind::Proxies, "a", "1"), put(ObjectKind::Proxies, "b", "1")]).await;
    write(&store, vec![put(ObjectKind::Consumers, "c", "2"), put(ObjectKind::Proxies, "a", "2")]).await;
    write(
        &store,
        vec![
            delete(ObjectKind::Proxies, "a"),
            put(ObjectKind::Upstreams, "u", "3"),
            put(ObjectKind::Upstreams, "v", "3"),
        ],
    )
    .await;
    write(&store, vec![delete(ObjectKind::Upstreams, "v")]).await;
    let other = place.open(options());
    let Changed::Objects { revision, objects } = other.changed_since(1).await.unwrap() else { panic!() };
    let brief: Vec<_> = objects
        .iter()
        .map(|(kind, id, now)| {
            (*kind, id.as_str(), now.as_ref().map(|it| (it.document.as_str(), it.revision)))
        })
        .collect();
    let expected = [
        (ObjectKind::Upstreams, "u", Some(("3", 3))),
        (ObjectKind::Upstreams, "v", None),
        (ObjectKind::Proxies, "a", None),
        (ObjectKind::Consumers, "c", Some(("2", 2))),
    ];
    assert_eq!((revision, brief.as_slice()), (4, expected.as_slice()));
    assert_eq!(other.changed_since(4).await.unwrap(), Changed::Objects { revision: 4, objects: vec![] });
    // A revision that never was: the database is an older copy.
    assert_eq!(other.changed_since(5).await.unwrap(), Changed::TooOld);
    let small = place.open(Options { max_delta: 3, ..options() });
    assert_eq!(small.changed_since(1).await.unwrap(), Changed::TooOld);
    assert!(matches!(small.changed_since(3).await.unwrap(), Changed::Objects { .. }));
}

pub(crate) async fn another_store_s_revision_is_told(engine: Engine) {
    let (place, store) = Place::new(engine).await;
    // With PostgreSQL nothing but its own word can be what tells.
    let poll = if engine == Engine::Postgres { Duration::from_secs(3600) } else { Duration::from_millis(50) };
    let follower = place.open(Options { poll_interval: Some(poll), ..options() });
    let mut signal = follower.watch();
    let seen =
        |revision| move |it: &ferrum_edge::store::Signal| it.revision == Some(revision) && it.away.is_none();
    timeout(TIMEOUT, signal.wait_for(seen(0))).await.unwrap().unwrap();
    for revision in 1..=5 {
        assert_eq!(write(&store, vec![put(ObjectKind::Proxies, "p", revision.to_string())]).await, revision);
        timeout(TIMEOUT, signal.wait_for(seen(revision))).await.unwrap().unwrap();
    }
    // One's own are told at once.
    let revision = write(&follower, vec![put(ObjectKind::Proxies, "p", "own")]).await;
    assert_eq!(signal.borrow_and_update().revision, Some(revision));
    // The task ends with the store.
    drop(follower);
    timeout(TIMEOUT, async { while signal.changed().await.is_ok() {} }).await.unwrap();
}
