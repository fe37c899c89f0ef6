//! Objects: what can be kept, found and listed.

use ferrum_edge::store::{
    Engine, MAX_DOCUMENT_BYTES, MAX_ID_BYTES, MAX_PAGE, ObjectKind, Page, Query, Store, StoreError,
};

use crate::store::place::{Place, all, ann, brief, delete, put, write};

pub(crate) async fn documents_come_back_byte_for_byte(engine: Engine) {
    let (_place, store) = Place::new(engine).await;
    let documents = [
        "",
        "{ \"b\" : 1.00,\t\"a\":2,\n\"a\":3 }",
        r#"{"text":"it's \"quoted\" \\ \u0000 \u00e9 é ü 漢字 👍 $1 ? ?1 %s ' ; --"}"#,
        "  \u{feff}\u{200b}\r\n  ",
        "e\u{301} is not \u{e9}",
    ];
    let large = format!("\"{}\"", "ü".repeat(MAX_DOCUMENT_BYTES / 2 - 1));
    assert_eq!(large.len(), MAX_DOCUMENT_BYTES);
    let documents: Vec<&str> =
        documents.into_iter().chain([large.as_str(), large.as_str(), &large]).collect();
    let puts = (0..).zip(&documents).map(|(n, text)| put(ObjectKind::Proxies, &format!("{n:02}"), *text));
    let mut change = store.begin(ann()).await.unwrap();
    change.put(puts.collect()).await.unwrap();
    let author = "o'neill; DROP TABLE ferrum_objects; --".to_owned();
    change.commit(&author).await.unwrap();
    let found: Vec<String> = all(&store).await.into_iter().map(|it| it.document).collect();
    assert_eq!(found, documents);
    assert_eq!(store.revision_info(1).await.unwrap().unwrap().note, author);
    // The same again is the same, down to how it is normalised.
    assert_eq!(write(&store, vec![put(ObjectKind::Proxies, "04", "e\u{301} is not \u{e9}")]).await, 1);
    assert_eq!(write(&store, vec![put(ObjectKind::Proxies, "04", "\u{e9} is not \u{e9}")]).await, 2);
    let was = store.diff(1, 2).await.unwrap();
    assert_eq!(was[0].before.as_deref(), Some("e\u{301} is not \u{e9}"));
}

pub(crate) async fn many_large_documents_are_one_change(engine: Engine) {
    // Together they are larger than what servers take as one statement.
    const MANY: usize = 40;
    let (_place, store) = Place::new(engine).await;
    for (revision, letter) in (1..).zip(["a", "b"]) {
        let document = letter.repeat(MAX_DOCUMENT_BYTES);
        let steps = (0..MANY).map(|n| put(ObjectKind::Proxies, &n.to_string(), document.as_str())).collect();
        assert_eq!(write(&store, steps).await, revision);
        assert!(all(&store).await.iter().all(|it| it.document == document));
    }
    write(&store, (0..MANY).map(|n| delete(ObjectKind::Proxies, &n.to_string())).collect()).await;
    assert_eq!(store.undo_ops(1).await.unwrap().len(), MANY);
}

fn hostile_ids() -> Vec<String> {
    let mut ids: Vec<String> = [
        "a",
        "A",
        "a ",
        " a",
        "a\t",
        "ä",
        "a\u{308}",
        "Ａ",
        "'",
        "''",
        "\"",
        "`",
        "\\",
        "\\'",
        "%",
        "_",
        "?",
        "$1",
        ":x",
        "';DROP TABLE ferrum_objects;--",
        "a/../b",
        "\u{1}",
        "\n",
        "👍",
        "\u{10ffff}",
        "ß",
        "ss",
        "ı",
        "İ",
        "0",
        "00",
        "NULL",
    ]
    .map(str::to_owned)
    .to_vec();
    ids.extend(["x".repeat(MAX_ID_BYTES), "y".repeat(MAX_ID_BYTES - 4) + "👍", "x".repeat(MAX_ID_BYTES - 1)]);
    ids.sort();
    ids
}

pub(crate) async fn ids_of_all_sorts_are_different_objects(engine: Engine) {
    let (_place, store) = Place::new(engine).await;
    let ids = hostile_ids();
    let puts = ids.iter().rev().flat_map(|id| {
        [put(ObjectKind::Proxies, id, format!("p:{id}")), put(ObjectKind::Consumers, id, format!("c:{id}"))]
    });
    write(&store, puts.collect()).await;
    let objects = all(&store).await;
    let found: Vec<_> =
        objects.iter().filter(|it| it.kind == ObjectKind::Proxies).map(|it| it.id.clone()).collect();
    assert_eq!(found, ids);
    for id in &ids {
        let object = store.get(ObjectKind::Consumers, id).await.unwrap().unwrap();
        assert_eq!((&object.id, object.document), (id, format!("c:{id}")));
    }
    let many = store.get_many(ObjectKind::Proxies, &ids).await.unwrap();
    assert!(many.iter().map(|it| &it.id).eq(&ids));
    assert_eq!(walk(&store, &Query { limit: 5, ..Query::all(ObjectKind::Proxies) }).await, ids);
    // Each goes alone.
    write(&store, vec![delete(ObjectKind::Proxies, "a")]).await;
    let rest = store.get_many(ObjectKind::Proxies, &ids).await.unwrap();
    assert!(rest.iter().map(|it| &it.id).eq(ids.iter().filter(|id| *id != "a")));
    assert_eq!(store.diff(0, 2).await.unwrap().len(), 2 * ids.len() - 1);
}

pub(crate) async fn what_can_t_be_kept_is_refused_and_the_change_goes_on(engine: Engine) {
    let (_place, store) = Place::new(engine).await;
    let mut change = store.begin(ann()).await.unwrap();
    for id in [String::new(), "x".repeat(MAX_ID_BYTES + 1), "a\0b".to_owned()] {
        let steps = vec![put(ObjectKind::Proxies, "fine", "{}"), put(ObjectKind::Proxies, &id, "{}")];
        assert!(matches!(change.put(steps).await, Err(StoreError::Id { kind: ObjectKind::Proxies })));
    }
    for document in ["x".repeat(MAX_DOCUMENT_BYTES + 1), "\0".to_owned()] {
        let error = change.put(vec![put(ObjectKind::Consumers, "ann", document)]).await.unwrap_err();
        assert!(matches!(&error, StoreError::Document { id, .. } if id == "ann"), "{error}");
    }
    change.put(vec![put(ObjectKind::Proxies, "p", "{}")]).await.unwrap();
    assert_eq!(change.commit("").await.unwrap(), 1);
    assert_eq!(brief(&all(&store).await), [(ObjectKind::Proxies, "p", "{}")]);
}

/// The ids on all pages.
async fn walk(store: &Store, query: &Query) -> Vec<String> {
    let (mut ids, mut query) = (Vec::new(), query.clone());
    loop {
        let Page { objects, next } = store.list(&query).await.unwrap();
        assert!(objects.len() <= query.limit.max(1));
        ids.extend(objects.into_iter().map(|it| it.id));
        let Some(next) = next else { return ids };
        assert_eq!(Some(&next), ids.last());
        query.after = Some(next);
    }
}

pub(crate) async fn lists_come_in_pages(engine: Engine) {
    let (_place, store) = Place::new(engine).await;
    let ids: Vec<String> = (0..2500).map(|n| format!("{n:04}")).collect();
    write(&store, ids.iter().map(|id| put(ObjectKind::Upstreams, id, "{}")).collect()).await;
    write(&store, vec![put(ObjectKind::Proxies, "0000", "{}")]).await;
    for limit in [MAX_PAGE, 833, 100] {
        assert_eq!(walk(&store, &Query { limit, ..Query::all(ObjectKind::Upstreams) }).await, ids);
    }
    let exact = store
        .list(&Query { limit: 500, after: Some("1999".into()), ..Query::all(ObjectKind::Upstreams) })
        .await;
    assert_eq!(exact.unwrap().next, None);
    let bounded =
        store.list(&Query { limit: usize::MAX, ..Query::all(ObjectKind::Upstreams) }).await.unwrap();
    assert_eq!(bounded.objects.len(), MAX_PAGE);
    assert_eq!(
        store.list(&Query { limit: 0, ..Query::all(ObjectKind::Upstreams) }).await.unwrap().objects.len(),
        1
    );
    assert_eq!(walk(&store, &Query::all(ObjectKind::Consumers)).await, [""; 0]);
}

pub(crate) async fn filters_find_what_they_say_and_nothing_else(engine: Engine) {
    let (_place, store) = Place::new(engine).await;
    let documents = [
        ("one", r#"{"name":"shop","port":80,"on":true,"tags":["a","b"],"target":{"host":"h1"}}"#),
        ("two", r#"{"name":"shop","port":8080,"on":false,"tags":["b'c"],"hosts":[{"name":"x"}]}"#),
        ("three", r#"{"name":"it's; -- \"1\" % _ \\","nothing":null,"a.b":"dot"}"#),
        ("four", r#"{"name":"sh\u006fp","port":"80"}"#),
        ("broken", r#"{"name":"shop""#),
    ];
    write(&store, documents.map(|(id, text)| put(ObjectKind::Proxies, id, text)).to_vec()).await;
    /// What is asked for by field, and the ids that are found.
    type Case<'c> = (&'c [(&'c str, &'c str)], &'c [&'c str]);
    let cases: &[Case<'_>] = &[
        (&[("name", "shop")], &["four", "one", "two"]),
        (&[("name", "shop"), ("port", "80")], &["four", "one"]),
        (&[("on", "true")], &["one"]),
        (&[("tags", "b")], &["one"]),
        (&[("tags", "b'c")], &["two"]),
        (&[("target.host", "h1")], &["one"]),
        (&[("hosts.0.name", "x")], &["two"]),
        (&[("a.b", "dot")], &["three"]),
        (&[("nothing", "null")], &["three"]),
        (&[("name", "it's; -- \"1\" % _ \\")], &["three"]),
        (&[("name", "%")], &[]),
        (&[("name", "sho_")], &[]),
        (&[("name", "' OR '1'='1")], &[]),
        (&[("name' OR 1=1 --", "shop")], &[]),
        (&[("name", "")], &[]),
        (&[("", "shop")], &[]),
        (&[("target", "{\"host\":\"h1\"}")], &[]),
    ];
    for (filters, expected) in cases {
        let filters: Vec<_> =
            filters.iter().map(|(field, value)| (field.to_string(), value.to_string())).collect();
        for limit in [1, 100] {
            let query = Query { filters: filters.clone(), limit, ..Query::all(ObjectKind::Proxies) };
            assert_eq!(&walk(&store, &query).await, expected, "{filters:?}");
        }
    }
    // One among more than are looked at in one step.
    let many =
        (0..9000).map(|n| put(ObjectKind::Consumers, &format!("{n:05}"), r#"{"note":"needle in a note"}"#));
    let last = put(ObjectKind::Consumers, "99999", r#"{"name":"needle"}"#);
    write(&store, many.chain([last]).collect()).await;
    let query =
        Query { filters: vec![("name".into(), "needle".into())], ..Query::all(ObjectKind::Consumers) };
    assert_eq!(walk(&store, &query).await, ["99999"]);
}

pub(crate) async fn a_broken_row_spoils_only_itself(engine: Engine) {
    let (place, store) = Place::new(engine).await;
    write(
        &store,
        vec![
            put(ObjectKind::Proxies, "a", "{}"),
            put(ObjectKind::Proxies, "b", "{}"),
            put(ObjectKind::Proxies, "c", "{}"),
        ],
    )
    .await;
    let broken = match engine {
        Engine::Sqlite => "CAST(x'7bff7d' AS TEXT)",
        _ => "'{not json'",
    };
    place.raw(&format!("UPDATE ferrum_objects SET document = {broken} WHERE id = 'b'")).await;
    let objects = all(&store).await;
    assert_eq!(objects.len(), 3);
    assert!(serde_json::from_str::<serde_json::Value>(&objects[1].document).is_err());
    assert_eq!(store.list(&Query::all(ObjectKind::Proxies)).await.unwrap().objects.len(), 3);
    // Putting it anew mends it.
    write(&store, vec![put(ObjectKind::Proxies, "b", "{}")]).await;
    assert_eq!(store.get(ObjectKind::Proxies, "b").await.unwrap().unwrap().document, "{}");
}
