//! Cache poisoning and deception: what one client sends must not come out for another.

use super::*;

const FRESH: &[(&str, &str)] = &[("cache-control", "max-age=60")];

/// Whether the answer to a request of these fields is served to somebody who sends none of them.
async fn is_shared(config: Value, path: &str, fields: &[(&str, &str)]) -> bool {
    let trial = trial(config, FRESH);
    trial.get(path, fields).await;
    trial.get(path, &[]).await.text() == "answer 1"
}

#[tokio::test]
async fn fields_that_override_the_request_share_nothing() {
    // `X-Forwarded-Scheme` and its like are removed before: clients may not say them.
    for name in ["x-original-url", "x-rewrite-url", "x-host", "x-http-method-override"] {
        assert!(!is_shared(json!({}), "/a", &[(name, "evil")]).await, "{name}");
    }
    assert!(
        is_shared(json!({}), "/a", &[("x-harmless", "1")]).await,
        "others are the target's to name in `Vary`"
    );
    // Who sends one may still be served what others stored, and does not replace it.
    let trial = trial(json!({}), FRESH);
    trial.get("/a", &[]).await;
    assert_eq!(trial.get("/a", &[("x-host", "evil")]).await.text(), "answer 1");
}

#[tokio::test(start_paused = true)]
async fn they_replace_nothing_behind_the_client_s_back_either() {
    for (config, after) in
        [(json!({ "stale_while_revalidate": 60 }), 70), (json!({ "refresh_ahead_percent": 90 }), 50)]
    {
        for field in [("x-original-url", "/evil"), ("cache-control", "no-store")] {
            let trial = trial(config.clone(), FRESH);
            trial.get("/a", &[]).await;
            tokio::time::advance(Duration::from_secs(after)).await;
            assert_eq!(trial.get("/a", &[field]).await.text(), "answer 1", "{config} {field:?}");
            assert_eq!(trial.asked().len(), 1, "{config} {field:?}: its answer would be everybody's");
            trial.get("/a", &[]).await;
            assert_eq!(trial.asked().len(), 2, "another one has it fetched");
        }
    }
}

#[tokio::test]
async fn a_cookie_can_not_hide_behind_another() {
    let config = json!({ "key": { "cookies": ["lang"] } });
    for hidden in [
        "lang=en; lang=evil",
        "lang=evil; lang=en",
        "lang =evil; lang=en",
        "l%61ng=evil; lang=en",
        "l%61ng=en",
    ] {
        let trial = trial(config.clone(), FRESH);
        assert_eq!(trial.get("/a", &[("cookie", hidden)]).await.text(), "answer 1");
        assert_eq!(
            trial.get("/a", &[("cookie", hidden)]).await.text(),
            "answer 1",
            "its own is stored: {hidden}"
        );
        for (n, plain) in ["lang=en", "lang=evil", "other=1"].into_iter().enumerate() {
            let got = trial.get("/a", &[("cookie", plain)]).await.text();
            assert_eq!(got, format!("answer {}", n + 2), "{hidden} for {plain}");
        }
    }
}

#[tokio::test]
async fn a_client_can_not_say_which_host_it_came_by() {
    let trial = answering(json!({}), |asked, _| {
        let host = asked.field("x-forwarded-host").to_owned();
        Response::builder().header("cache-control", "max-age=60").body(host.into_bytes().into_body()).unwrap()
    });
    assert_ne!(trial.get("/a", &[("x-forwarded-host", "evil.test")]).await.text(), "evil.test");
    assert_ne!(trial.get("/a", &[]).await.text(), "evil.test");
}

#[tokio::test]
async fn a_get_with_a_body_has_an_answer_of_its_own() {
    let trial = trial(json!({}), FRESH);
    let fat = trial.request("GET", "/a", &[], "evil=1").await;
    assert_eq!(status(&fat), "ferrum-edge; fwd=bypass; detail=BODY");
    assert_eq!(trial.get("/a", &[]).await.text(), "answer 2");
    assert_eq!(trial.request("GET", "/a", &[], "evil=1").await.text(), "answer 3");
}

#[tokio::test]
async fn a_parameter_can_not_hide_behind_another() {
    let config = json!({ "ignore_query": ["utm_*"] });
    let trial = answering(config, |asked, _| {
        let response = Response::builder().header("cache-control", "max-age=60");
        response.body(asked.path.clone().into_bytes().into_body()).unwrap()
    });
    let cloaked = "/a?utm_content=1;callback=evil";
    assert_eq!(
        trial.get(cloaked, &[]).await.text(),
        "/a",
        "the target does not get what the key does not have"
    );
    assert_eq!(trial.get("/a?callback=x&utm_a=1", &[]).await.text(), "/a?callback=x");
}

#[tokio::test]
async fn callers_never_get_each_others_responses() {
    assert!(!is_shared(json!({}), "/a", &[("authorization", "Bearer x")]).await);
    let trial = trial(json!({}), FRESH);
    let personal = trial.get("/a", &[("authorization", "Bearer x")]).await;
    assert_eq!(status(&personal), "ferrum-edge; fwd=uri-miss; detail=CREDENTIALS");
    let public = self::trial(json!({}), &[("cache-control", "public, max-age=60")]);
    public.get("/a", &[("authorization", "Bearer x")]).await;
    assert_eq!(public.get("/a", &[]).await.text(), "answer 1", "the target said so");
    // A page that a target makes for a session, and says nothing about, is not stored by the looks of its path.
    let silent = self::trial(json!({ "default_ttl": 60 }), &[("content-type", "text/css")]);
    silent.get("/account/x.css", &[("cookie", "session=1")]).await;
    assert_eq!(silent.get("/account/x.css", &[]).await.text(), "answer 2");
}

#[tokio::test]
async fn what_the_cache_does_not_see_is_not_varied_by() {
    for vary in ["*", "X-Consumer-Username", "X-Forwarded-For", "accept, *"] {
        let trial = answering(json!({}), move |_, n| {
            let response =
                Response::builder().header("cache-control", "public, max-age=60").header("vary", vary);
            response.body(format!("{n}").into_bytes().into_body()).unwrap()
        });
        assert_eq!(texts(&trial, &[&[], &[]]).await, ["1", "2"], "{vary}");
    }
}

#[tokio::test]
async fn cookies_are_not_handed_out_twice() {
    let fields = &[("cache-control", "max-age=60"), ("set-cookie", "session=1")];
    let plain = trial(json!({}), fields);
    assert_eq!(texts(&plain, &[&[], &[]]).await, ["answer 1", "answer 2"]);
    let strips = trial(json!({ "strip_set_cookie": true }), fields);
    assert_eq!(strips.get("/a", &[]).await.field("set-cookie"), "session=1", "for whom it was meant");
    let hit = strips.get("/a", &[]).await;
    assert_eq!((hit.text().as_str(), hit.headers.get("set-cookie")), ("answer 1", None));
}

#[tokio::test]
async fn errors_that_one_client_provokes_are_its_own() {
    let trial = answering(json!({}), |asked, n| {
        let status = if asked.field("x-large").is_empty() { 200 } else { 431 };
        let response = Response::builder().status(status).header("cache-control", "max-age=60");
        response.body(format!("{n}").into_bytes().into_body()).unwrap()
    });
    assert_eq!(trial.get("/a", &[("x-large", "1")]).await.status, 431);
    assert_eq!(trial.get("/a", &[]).await.status, 200);
    assert_eq!(trial.get("/a", &[("x-large", "1"), ("cache-control", "no-cache")]).await.status, 431);
    assert_eq!(trial.get("/a", &[]).await.text(), "2", "and remove nothing");
}

#[tokio::test]
async fn no_credential_gets_an_answer_that_others_get_too() {
    for name in gateway_core::http::credentials::CREDENTIAL_FIELDS {
        // Cookies are no credentials by themselves: targets say by `Vary` or `Cache-Control` where they are.
        if ["cookie", "set-cookie", "set-cookie2", "proxy-authorization"].contains(name) || name.contains('_')
        {
            continue;
        }
        assert!(!is_shared(json!({}), "/a", &[(name, "k")]).await, "{name}");
    }
    for name in ["x-auth-token", "x-acme-secret", "x-acme-api-key"] {
        assert!(!is_shared(json!({}), "/a", &[(name, "k")]).await, "{name}");
    }
    let keyed = json!({ "key": { "headers": ["x-api-key"] } });
    let trial = trial(keyed, FRESH);
    for (key, answer) in [("ann", "answer 1"), ("bob", "answer 2"), ("ann", "answer 1")] {
        assert_eq!(trial.get("/a", &[("x-api-key", key)]).await.text(), answer, "{key}");
    }
}
