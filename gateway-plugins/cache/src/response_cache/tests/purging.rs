//! What operators remove.

use gateway_core::plugin::world::meters::Meters;

use super::*;

/// Two tagged pages and one without a tag, all stored.
async fn filled() -> Trial {
    let trial = answering(json!({ "stale_while_revalidate": 60 }), |asked, n| {
        let response = Response::builder().header("cache-control", "max-age=60");
        let response = match asked.path.as_str() {
            "/shop/1" => response.header("surrogate-key", "shop item-1"),
            "/shop/2" => response.header("cache-tag", "shop,item-2"),
            _ => response,
        };
        response.body(format!("{n}").into_bytes().into_body()).unwrap()
    });
    for path in ["/shop/1", "/shop/2", "/other"] {
        trial.get(path, &[]).await;
    }
    trial
}

fn purge(trial: &Trial, input: Value) -> Value {
    trial.act("response_cache", "purge", &input).unwrap_or_else(|problems| panic!("{problems}"))
}

async fn kept(trial: &Trial) -> Vec<bool> {
    let mut kept = Vec::new();
    for (path, before) in [("/shop/1", "1"), ("/shop/2", "2"), ("/other", "3")] {
        kept.push(trial.get(path, &[("cache-control", "only-if-cached")]).await.text() == before);
    }
    kept
}

#[tokio::test]
async fn by_url_prefix_tag_and_all() {
    for (input, count, expected) in [
        (json!({ "url": "https://client.test/shop/1" }), 1, [false, true, true]),
        (json!({ "url": "http://CLIENT.test/x/../shop/%31" }), 1, [false, true, true]),
        (json!({ "url": "http://client.test/shop/1?x" }), 0, [true; 3]),
        (json!({ "url": "http://other.test/shop/1" }), 0, [true; 3]),
        (json!({ "prefix": "http://client.test/shop/" }), 2, [false, false, true]),
        (json!({ "tag": "item-2" }), 1, [true, false, true]),
        (json!({ "tag": "shop" }), 2, [false, false, true]),
        (json!({ "tag": "sho" }), 0, [true; 3]),
        (json!({ "all": true }), 3, [false; 3]),
    ] {
        let trial = filled().await;
        assert_eq!(purge(&trial, input.clone()), json!({ "purged": count }), "{input}");
        assert_eq!(kept(&trial).await, expected, "{input}");
    }
}

/// However the host is written, and whatever parameters don't count.
#[tokio::test]
async fn one_url_has_one_response() {
    let trial = answering(json!({ "ignore_query": ["utm_*"] }), |_, n| {
        let response = Response::builder().header("cache-control", "max-age=60");
        response.body(format!("{n}").into_bytes().into_body()).unwrap()
    });
    let hosts = ["x.test", "X.test:80", "x.test.", "x.test.:80"];
    for (n, url) in
        ["http://x.test/a?b=1", "http://x.test:80/a?utm_source=y&b=1", "http://X.TEST./a?b=1&utm_id=2"]
            .into_iter()
            .enumerate()
    {
        for host in hosts {
            let got = trial.get("/a?b=1&utm_source=z", &[("host", host)]).await;
            assert_eq!(got.text(), (n + 1).to_string(), "{host}");
        }
        assert_eq!(purge(&trial, json!({ "url": url })), json!({ "purged": 1 }), "{url}");
    }
    trial.get("/a", &[("host", "x.test.")]).await;
    assert_eq!(purge(&trial, json!({ "prefix": "http://x.test:80/" })), json!({ "purged": 1 }));
    for asked in trial.asked() {
        assert!(!asked.field("host").ends_with(":80"), "the target gets what the key has");
    }
    // Another port is another host.
    for port in ["81", "443"] {
        let before = trial.asked().len();
        trial.get("/a", &[("host", &format!("x.test:{port}"))]).await;
        assert_eq!(trial.asked().len(), before + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn softly_they_are_only_marked_stale() {
    let trial = filled().await;
    assert_eq!(purge(&trial, json!({ "tag": "item-1", "soft": true })), json!({ "purged": 1 }));
    tokio::time::advance(Duration::from_secs(1)).await;
    let stale = trial.send_alone(request("/shop/1")).await;
    assert_eq!(stale.text(), "1", "it is served while it is fetched anew");
    trial.carry_on().await;
    assert_eq!(trial.get("/shop/1", &[]).await.text(), "4");
    assert_eq!(trial.asked().len(), 4);
}

#[tokio::test]
async fn what_is_on_its_way_is_not_stored_after_a_purge() {
    let (trial, senders) = sharing::coming(json!({}), Some(3));
    let mut first = Box::pin(trial.get("/a", &[]));
    assert!(futures_util::FutureExt::now_or_never(first.as_mut()).is_none());
    purge(&trial, json!({ "prefix": "http://client.test/a" }));
    sharing::send(&senders, 0, "abc");
    sharing::end(&senders, 0);
    assert_eq!(first.await.text(), "abc");
    assert_eq!(trial.get("/a", &[("cache-control", "only-if-cached")]).await.status, 504);
}

#[tokio::test]
async fn what_is_no_purge_is_refused() {
    let trial = filled().await;
    for input in [
        json!({}),
        json!({ "all": false }),
        json!({ "url": "/shop/1" }),
        json!({ "url": "client.test" }),
        json!({ "url": "http://a/", "tag": "x" }),
        json!({ "tag": "" }),
        json!({ "everything": true }),
        json!({ "url": "http://a/%zz" }),
        json!("x"),
        Value::Null,
    ] {
        assert!(trial.act("response_cache", "purge", &input).is_err(), "{input}");
    }
    let problems = trial.act("response_cache", "empty", &json!({})).unwrap_err();
    assert!(problems.to_string().contains("purge"), "{problems}");
    assert_eq!(kept(&trial).await, [true; 3]);
}

#[tokio::test]
async fn it_is_counted() {
    let meters = Meters::default();
    let world = World::new(gateway_core::plugin::world::Reach {
        gateway: "test".into(),
        calls: Arc::new(gateway_core::plugin::world::calls::Nowhere),
        files: Arc::new(gateway_core::plugin::world::files::NoFiles),
        blocking: Arc::new(gateway_core::plugin::world::blocking::Inline),
        meters: meters.clone(),
        variables: Default::default(),
    });
    let spec = json!({
        "proxies": [{"id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80, "backend_scheme": "http"}],
        "plugin_configs": [{"id": "c", "plugin_name": "response_cache", "proxy_id": "a"}],
    });
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &world).answering(|_| {
        Response::builder().header("cache-control", "max-age=60").body("four".into()).unwrap()
    });
    for _ in 0..3 {
        trial.get("/a", &[]).await;
    }
    trial.act("response_cache", "purge", &json!({ "all": true })).unwrap();
    let text = meters.text();
    for line in [
        "ferrum_response_cache_requests_total{plugin_config=\"c\",outcome=\"miss\"} 1",
        "ferrum_response_cache_requests_total{plugin_config=\"c\",outcome=\"hit\"} 2",
        "ferrum_response_cache_served_bytes_total{plugin_config=\"c\"} 8",
        "ferrum_response_cache_purged_total{plugin_config=\"c\"} 1",
        "ferrum_response_cache_stored_bytes{plugin_config=\"c\"} 0",
        "ferrum_response_cache_entries{plugin_config=\"c\"} 0",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}
