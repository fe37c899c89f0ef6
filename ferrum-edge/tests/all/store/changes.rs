//! Changes: atomic, one at a time, and bounded.

use std::task::Poll;
use std::time::Duration;

use ferrum_edge::store::{Counts, Engine, ObjectKind, Options, StoreError};
use tokio::task::JoinSet;

use crate::store::place::{Place, all, ann, brief, delete, options, put, refused, write};

pub(crate) async fn a_change_is_there_as_a_whole_or_not_at_all(engine: Engine) {
    let (place, store) = Place::new(engine).await;
    let steps = || vec![put(ObjectKind::Proxies, "p", "{}"), put(ObjectKind::Upstreams, "u", "[1]")];
    for explicit in [true, false] {
        let mut change = store.begin(ann()).await.unwrap();
        assert_eq!(change.put(steps()).await.unwrap().created, 2);
        if explicit {
            change.rollback().await;
        } else {
            drop(change);
        }
    }
    // Whoever comes next has to wait until the one before is gone.
    let mut change = place.open(options()).begin(ann()).await.unwrap();
    assert_eq!((change.base(), all(&store).await.len()), (0, 0));
    change.put(steps()).await.unwrap();
    change.put(vec![put(ObjectKind::Consumers, "c", "{}")]).await.unwrap();
    assert_eq!(all(&store).await, []);
    assert_eq!(change.commit("all of it").await.unwrap(), 1);
    let objects = all(&place.open(options())).await;
    let expected = [
        (ObjectKind::Upstreams, "u", "[1]"),
        (ObjectKind::Proxies, "p", "{}"),
        (ObjectKind::Consumers, "c", "{}"),
    ];
    assert_eq!(brief(&objects), expected);
    assert!(objects.iter().all(|it| it.revision == 1 && it.created_at == it.updated_at && it.created_at > 0));

    write(&store, vec![put(ObjectKind::Proxies, "p", "{ }"), delete(ObjectKind::Upstreams, "u")]).await;
    let after = all(&store).await;
    assert_eq!(brief(&after), [(ObjectKind::Proxies, "p", "{ }"), (ObjectKind::Consumers, "c", "{}")]);
    assert_eq!((after[0].created_at, after[0].revision), (objects[1].created_at, 2));
    assert_eq!(after[1], objects[2]);
    assert_eq!(store.count(ObjectKind::Upstreams).await.unwrap(), 0);
    assert_eq!(store.count(ObjectKind::Proxies).await.unwrap(), 1);
}

pub(crate) async fn what_changes_nothing_is_no_revision(engine: Engine) {
    let (_place, store) = Place::new(engine).await;
    assert_eq!(write(&store, vec![put(ObjectKind::Proxies, "p", "{}")]).await, 1);
    let nothing = [
        vec![],
        vec![put(ObjectKind::Proxies, "p", "{}")],
        vec![delete(ObjectKind::Proxies, "other"), delete(ObjectKind::Consumers, "p")],
        // The last step of each object is the one that counts.
        vec![
            put(ObjectKind::Proxies, "p", "[]"),
            delete(ObjectKind::Proxies, "p"),
            put(ObjectKind::Proxies, "p", "{}"),
        ],
        vec![put(ObjectKind::Proxies, "new", "[]"), delete(ObjectKind::Proxies, "new")],
    ];
    for steps in nothing {
        let mut change = store.begin(ann()).await.unwrap();
        assert_eq!(change.put(steps).await.unwrap(), Counts::default());
        assert_eq!(change.commit("nothing").await.unwrap(), 1);
    }
    // Also when it only turns out in the end.
    let mut change = store.begin(ann()).await.unwrap();
    change.put(vec![put(ObjectKind::Proxies, "new", "[]")]).await.unwrap();
    change.put(vec![delete(ObjectKind::Proxies, "new")]).await.unwrap();
    assert_eq!(change.commit("nothing").await.unwrap(), 1);
    assert_eq!(store.revisions(None, 10).await.unwrap().len(), 1);
    assert_eq!(store.get(ObjectKind::Proxies, "p").await.unwrap().unwrap().revision, 1);
    // Gone and back again is a change, and the counts of a mixed one are right.
    let mut change = store.begin(ann()).await.unwrap();
    change.put(vec![delete(ObjectKind::Proxies, "p"), put(ObjectKind::Proxies, "a", "1")]).await.unwrap();
    change.put(vec![put(ObjectKind::Proxies, "p", "2"), put(ObjectKind::Proxies, "a", "3")]).await.unwrap();
    assert_eq!(change.commit("").await.unwrap(), 2);
    let counts = store.revision_info(2).await.unwrap().unwrap().counts;
    assert_eq!(counts, Counts { created: 1, updated: 1, deleted: 0 });
}

pub(crate) async fn a_change_sees_itself_and_nobody_else_does(engine: Engine) {
    let (place, store) = Place::new(engine).await;
    write(&store, vec![put(ObjectKind::Proxies, "p", "1"), put(ObjectKind::Proxies, "q", "1")]).await;
    let mut change = store.begin(ann()).await.unwrap();
    change.put(vec![put(ObjectKind::Proxies, "p", "2"), delete(ObjectKind::Proxies, "q")]).await.unwrap();
    let ids = ["p".to_owned(), "q".to_owned(), "r".to_owned()];
    assert_eq!(
        brief(&change.get_many(ObjectKind::Proxies, &ids).await.unwrap()),
        [(ObjectKind::Proxies, "p", "2")]
    );
    assert_eq!(change.get(ObjectKind::Proxies, "q").await.unwrap(), None);
    for other in [store.clone(), place.open(options())] {
        let found = other.get_many(ObjectKind::Proxies, &ids).await.unwrap();
        assert_eq!(brief(&found), [(ObjectKind::Proxies, "p", "1"), (ObjectKind::Proxies, "q", "1")]);
        assert_eq!(other.revision().await.unwrap(), 1);
    }
    change.commit("").await.unwrap();
    assert_eq!(brief(&all(&store).await), [(ObjectKind::Proxies, "p", "2")]);
}

pub(crate) async fn two_writers_never_overlap(engine: Engine) {
    const EACH: u64 = 25;
    let (place, store) = Place::new(engine).await;
    let mut writers = JoinSet::new();
    // Two gateways with two writers each.
    for store in [store.clone(), store.clone(), place.open(options())].into_iter().flat_map(|it| [it]) {
        writers.spawn(async move {
            for _ in 0..EACH {
                let mut change = store.begin(ann()).await.unwrap();
                let before = change.get(ObjectKind::Proxies, "counter").await.unwrap();
                let count = before.map_or(0, |it| it.document.parse::<u64>().unwrap());
                assert_eq!(count, change.base());
                change.put(vec![put(ObjectKind::Proxies, "counter", (count + 1).to_string())]).await.unwrap();
                assert_eq!(change.commit("").await.unwrap(), count + 1);
            }
        });
    }
    while let Some(done) = writers.join_next().await {
        done.unwrap();
    }
    assert_eq!(
        store.get(ObjectKind::Proxies, "counter").await.unwrap().unwrap().document,
        (3 * EACH).to_string()
    );
    let revisions = store.revisions(None, 1000).await.unwrap();
    assert!(revisions.iter().map(|it| it.revision).eq((1..=3 * EACH).rev()));
}

pub(crate) async fn who_waits_too_long_for_another_writer_is_told(engine: Engine) {
    let (place, store) = Place::new(engine).await;
    let short = Options { busy_timeout: Duration::from_secs(1), ..options() };
    let impatient = place.open(short);
    let mut change = store.begin(ann()).await.unwrap();
    change.put(vec![put(ObjectKind::Proxies, "p", "1")]).await.unwrap();
    // By the database's lock, and by the queue within one gateway.
    let (one, two) = tokio::join!(impatient.begin(ann()), impatient.begin(ann()));
    for error in [refused(one), refused(two)] {
        assert!(matches!(error, StoreError::Busy { waited } if waited == Duration::from_secs(1)), "{error}");
        assert!(error.is_passing());
    }
    // Readers wait for nobody.
    assert_eq!(impatient.revision().await.unwrap(), 0);
    assert_eq!(change.commit("").await.unwrap(), 1);
    assert_eq!(impatient.begin(ann()).await.unwrap().base(), 1);
}

pub(crate) async fn a_change_whose_future_was_dropped_does_nothing_any_more(engine: Engine) {
    let (_place, store) = Place::new(engine).await;
    let mut change = store.begin(ann()).await.unwrap();
    change.put(vec![put(ObjectKind::Proxies, "p", "1")]).await.unwrap();
    {
        let steps = (0..500).map(|n| put(ObjectKind::Proxies, &n.to_string(), "1")).collect();
        let mut putting = std::pin::pin!(change.put(steps));
        // Begun, and then left alone.
        let polled = std::future::poll_fn(|context| Poll::Ready(putting.as_mut().poll(context))).await;
        assert!(polled.is_pending());
    }
    assert!(matches!(change.get(ObjectKind::Proxies, "p").await, Err(StoreError::Broken)));
    assert!(matches!(change.put(vec![]).await, Err(StoreError::Broken)));
    assert!(matches!(change.commit("").await, Err(StoreError::Broken)));
    assert_eq!(write(&store, vec![put(ObjectKind::Proxies, "q", "1")]).await, 1);
    assert_eq!(brief(&all(&store).await), [(ObjectKind::Proxies, "q", "1")]);
}

pub(crate) async fn thousands_of_steps_are_one_change(engine: Engine) {
    let (_place, store) = Place::new(engine).await;
    let id = |n: usize| format!("{:05}", n * 7919 % 12_007);
    let puts =
        |text: &str| (0..12_000).map(|n| put(ObjectKind::PluginConfigs, &id(n), text)).collect::<Vec<_>>();
    assert_eq!(write(&store, puts("\"one\"")).await, 1);
    assert_eq!(store.count(ObjectKind::PluginConfigs).await.unwrap(), 12_000);
    let mut change = store.begin(ann()).await.unwrap();
    let mut steps = puts("\"two\"");
    steps.extend((0..3_000).map(|n| delete(ObjectKind::PluginConfigs, &id(n))));
    steps.extend((0..1_000).map(|n| put(ObjectKind::Proxies, &id(n), "3")));
    let counts = change.put(steps).await.unwrap();
    assert_eq!(counts, Counts { created: 1_000, updated: 9_000, deleted: 3_000 });
    assert_eq!(change.commit("").await.unwrap(), 2);
    let objects = all(&store).await;
    assert_eq!(objects.len(), 10_000);
    assert!(objects.is_sorted_by(|one, other| (one.kind, &one.id) < (other.kind, &other.id)));
}

pub(crate) async fn readers_see_one_state(engine: Engine) {
    let (place, store) = Place::new(engine).await;
    let steps =
        |n: u64| (0..200).map(|id| put(ObjectKind::Proxies, &id.to_string(), n.to_string())).collect();
    write(&store, steps(1)).await;
    let writer = tokio::spawn({
        let store = place.open(options());
        async move {
            for n in 2..=20 {
                write(&store, steps(n)).await;
            }
        }
    });
    while !writer.is_finished() {
        let mut seen = Vec::new();
        let revision = store.load(|object| seen.push(object.document)).await.unwrap().revision;
        assert_eq!(seen, vec![revision.to_string(); 200]);
    }
    writer.await.unwrap();
    assert_eq!(store.revision().await.unwrap(), 20);
}
