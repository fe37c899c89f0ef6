//! Revisions, differences, and the way back.

use ferrum_edge::store::{Author, Changed, Counts, Engine, ObjectKind, Op, Options, Store, StoreError};

use crate::store::place::{Place, all, ann, brief, delete, options, put, write};

pub(crate) async fn revisions_say_who_when_and_why(engine: Engine) {
    let (_place, store) = Place::new(engine).await;
    assert_eq!(store.revisions(None, 10).await.unwrap(), []);
    let long = Author { name: "é".repeat(300), source: "admin\0".to_owned() };
    for (n, author) in [ann(), long].into_iter().enumerate() {
        let mut change = store.begin(author).await.unwrap();
        change.put(vec![put(ObjectKind::Proxies, "p", n.to_string())]).await.unwrap();
        change.commit(&"why ".repeat(2000)).await.unwrap();
    }
    write(&store, vec![delete(ObjectKind::Proxies, "p"), put(ObjectKind::Consumers, "c", "{}")]).await;
    let revisions = store.revisions(None, 10).await.unwrap();
    assert_eq!(revisions.iter().map(|it| it.revision).collect::<Vec<_>>(), [3, 2, 1]);
    assert_eq!(revisions[0].counts, Counts { created: 1, updated: 0, deleted: 1 });
    assert_eq!(revisions[1].author.name, "é".repeat(127));
    assert_eq!(revisions[1].author.source, "admin ");
    assert_eq!(revisions[1].note.len(), 4096);
    assert_eq!((&revisions[2].author, revisions[2].at > 1_700_000_000_000), (&ann(), true));
    let page = store.revisions(Some(3), 1).await.unwrap();
    assert_eq!(page, [revisions[1].clone()]);
    assert_eq!(store.revision_info(1).await.unwrap().as_ref(), Some(&revisions[2]));
    assert_eq!(store.revision_info(4).await.unwrap(), None);
    assert_eq!(store.revision_info(0).await.unwrap(), None);
}

/// Five states of some objects.
async fn five_states(store: &Store) {
    write(
        store,
        vec![
            put(ObjectKind::Proxies, "a", "1"),
            put(ObjectKind::Proxies, "b", "1"),
            put(ObjectKind::Upstreams, "u", "1"),
        ],
    )
    .await;
    write(store, vec![put(ObjectKind::Proxies, "a", "2"), delete(ObjectKind::Proxies, "b")]).await;
    write(store, vec![put(ObjectKind::Proxies, "b", "3"), put(ObjectKind::Consumers, "c", "3")]).await;
    write(store, vec![put(ObjectKind::Proxies, "a", "1"), delete(ObjectKind::Consumers, "c")]).await;
    write(
        store,
        vec![
            delete(ObjectKind::Proxies, "a"),
            delete(ObjectKind::Proxies, "b"),
            delete(ObjectKind::Upstreams, "u"),
        ],
    )
    .await;
}

const STATES: [&[(ObjectKind, &str, &str)]; 6] = [
    &[],
    &[(ObjectKind::Upstreams, "u", "1"), (ObjectKind::Proxies, "a", "1"), (ObjectKind::Proxies, "b", "1")],
    &[(ObjectKind::Upstreams, "u", "1"), (ObjectKind::Proxies, "a", "2")],
    &[
        (ObjectKind::Upstreams, "u", "1"),
        (ObjectKind::Proxies, "a", "2"),
        (ObjectKind::Proxies, "b", "3"),
        (ObjectKind::Consumers, "c", "3"),
    ],
    &[(ObjectKind::Upstreams, "u", "1"), (ObjectKind::Proxies, "a", "1"), (ObjectKind::Proxies, "b", "3")],
    &[],
];

pub(crate) async fn two_states_can_be_compared(engine: Engine) {
    let (_place, store) = Place::new(engine).await;
    five_states(&store).await;
    for (from, before) in STATES.iter().enumerate() {
        for (to, after) in STATES.iter().enumerate() {
            let mut state = before.to_vec();
            let found = store.diff(from as u64, to as u64).await.unwrap();
            assert!(found.is_sorted_by(|one, other| (one.kind, &one.id) < (other.kind, &other.id)));
            for it in &found {
                let at = state.iter().position(|(kind, id, _)| (*kind, *id) == (it.kind, &it.id));
                let was = at.map(|at| state.remove(at).2);
                assert_eq!(was, it.before.as_deref(), "{from} to {to}: {it:?}");
                assert_ne!(it.before, it.after);
                state.extend(it.after.as_deref().map(|now| (it.kind, it.id.as_str(), now)));
            }
            state.sort_unstable();
            assert_eq!(&state, after, "{from} to {to}");
        }
    }
    assert_eq!(store.revision_changes(2).await.unwrap(), store.diff(1, 2).await.unwrap());
    let beyond = store.diff(0, 6).await.unwrap_err();
    assert!(matches!(beyond, StoreError::NoHistory { asked: 6, oldest: 0, newest: 5 }), "{beyond}");
}

pub(crate) async fn every_state_can_be_had_back(engine: Engine) {
    let (place, store) = Place::new(engine).await;
    five_states(&store).await;
    for to in [3, 1, 4, 0, 2, 5_usize] {
        let mut change = store.begin(ann()).await.unwrap();
        let steps = change.undo_ops(to as u64).await.unwrap();
        // What is referred to is there before, and goes after, what refers to it.
        let kinds = |deletes: bool| {
            steps.iter().filter(move |op| matches!(op, Op::Delete { .. }) == deletes).map(|op| op.key().0)
        };
        assert!(kinds(false).is_sorted() && kinds(true).collect::<Vec<_>>().iter().rev().is_sorted());
        change.put(steps).await.unwrap();
        change.commit(&format!("back to {to}")).await.unwrap();
        assert_eq!(brief(&all(&store).await), STATES[to]);
    }
    assert_eq!(store.undo_ops(store.revision().await.unwrap()).await.unwrap(), []);
    assert!(matches!(store.undo_ops(99).await, Err(StoreError::NoHistory { asked: 99, .. })));
    let few = place.open(Options { max_diff: 3, ..options() });
    assert!(matches!(few.undo_ops(0).await, Err(StoreError::TooMany { limit: 3, .. })));
}

pub(crate) async fn history_is_kept_for_so_many_revisions(engine: Engine) {
    let (place, _) = Place::new(engine).await;
    let store = place.open(Options { keep_revisions: 3, ..options() });
    for n in 1..=10 {
        write(&store, vec![put(ObjectKind::Proxies, "p", n.to_string())]).await;
    }
    let revisions = store.revisions(None, 100).await.unwrap();
    assert_eq!(revisions.iter().map(|it| it.revision).collect::<Vec<_>>(), [10, 9, 8]);
    assert_eq!(store.diff(7, 8).await.unwrap()[0].before.as_deref(), Some("7"));
    let gone = store.diff(6, 10).await.unwrap_err();
    assert!(matches!(gone, StoreError::NoHistory { asked: 6, oldest: 7, newest: 10 }), "{gone}");
    assert_eq!(store.changed_since(6).await.unwrap(), Changed::TooOld);
    assert!(matches!(store.changed_since(7).await.unwrap(), Changed::Objects { revision: 10, .. }));
    assert_eq!(store.undo_ops(7).await.unwrap(), [put(ObjectKind::Proxies, "p", "7")]);
    // Another store with another option takes nothing away.
    write(&place.open(options()), vec![put(ObjectKind::Proxies, "p", "11")]).await;
    assert_eq!(store.revisions(None, 100).await.unwrap().len(), 4);
}

pub(crate) async fn history_is_kept_for_so_many_changes(engine: Engine) {
    let (place, _) = Place::new(engine).await;
    let store = place.open(Options { keep_changes: 250, ..options() });
    let batch =
        |text: &str, size: usize| (0..size).map(|n| put(ObjectKind::Proxies, &n.to_string(), text)).collect();
    for text in ["1", "2", "3", "4"] {
        write(&store, batch(text, 100)).await;
    }
    let kept = |store: Store| async move {
        store.revisions(None, 100).await.unwrap().iter().map(|it| it.revision).collect::<Vec<_>>()
    };
    assert_eq!(kept(store.clone()).await, [4, 3]);
    // The last one is kept, whatever its size.
    write(&store, batch("5", 1000)).await;
    assert_eq!(kept(store.clone()).await, [5]);
    assert_eq!(store.undo_ops(4).await.unwrap().len(), 1000);
}
