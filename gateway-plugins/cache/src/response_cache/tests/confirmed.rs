//! What a 304 changes about what is stored.

use super::*;

/// A target that answers conditions with a 304 of these fields, and names no `Vary` with its first answer.
fn confirming(config: Value, again: &'static [(&'static str, &'static str)]) -> Trial {
    answering(config, move |asked, n| {
        let response = Response::builder().header("cache-control", "max-age=10");
        if asked.field("if-none-match").is_empty() {
            let text = format!("answer {n} {}", asked.field("accept-language"));
            let response = if n == 1 { response } else { response.header("vary", "Accept-Language") };
            return response.header("etag", "\"v1\"").body(text.into_bytes().into_body()).unwrap();
        }
        let response =
            again.iter().fold(response.status(304), |response, (name, value)| response.header(*name, *value));
        response.body(Body::empty()).unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn it_may_say_what_else_the_response_depends_on() {
    let trial = confirming(json!({}), &[("vary", "Accept-Language"), ("etag", "\"v1\"")]);
    let get = async |language: &str| trial.get("/a", &[("accept-language", language)]).await.text();
    assert_eq!((get("de").await, get("en").await), ("answer 1 de".into(), "answer 1 de".into()));
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(get("de").await, "answer 1 de");
    assert_eq!((get("en").await, get("de").await), ("answer 3 en".into(), "answer 1 de".into()));
    // Also where what was stored is fresh still.
    let trial = confirming(json!({}), &[("vary", "Accept-Language")]);
    trial.get("/a", &[("accept-language", "de")]).await;
    let fields = [("accept-language", "de"), ("cache-control", "no-cache")];
    assert_eq!(trial.get("/a", &fields).await.text(), "answer 1 de");
    assert_eq!(trial.get("/a", &[("accept-language", "en")]).await.text(), "answer 3 en");
}

#[tokio::test(start_paused = true)]
async fn one_of_any_age_can_be_confirmed() {
    let fields = &[("cache-control", "max-age=10"), ("etag", "\"a\""), ("age", "18446744073709551615")];
    let trial = trial(json!({}), fields);
    trial.get("/a", &[]).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(trial.get("/a", &[]).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn one_about_another_response_has_it_fetched_anew() {
    let trial = confirming(json!({ "x_cache": true }), &[("etag", "\"v2\"")]);
    assert_eq!(trial.get("/a", &[]).await.text(), "answer 1 ");
    tokio::time::advance(Duration::from_secs(11)).await;
    let got = trial.get("/a", &[("if-none-match", "\"other\"")]).await;
    assert_eq!((got.status, got.text().as_str(), got.field("x-cache")), (200, "answer 3 ", "EXPIRED"));
    let asked = trial.asked();
    assert_eq!((asked[1].field("if-none-match"), asked[2].field("if-none-match")), ("\"v1\"", ""));
    assert_eq!(trial.records()[1].attempts, 2);
    assert_eq!(trial.get("/a", &[]).await.text(), "answer 3 ", "it is stored");
    // The same tag, which a compressing target had made weak.
    let weak = answering(json!({}), |asked, n| {
        let response = Response::builder().header("cache-control", "max-age=10");
        match asked.field("if-none-match") {
            "" => response.header("etag", "W/\"v1\"").body(format!("{n}").into_bytes().into_body()),
            _ => response.status(304).header("etag", "\"v1\"").body(Body::empty()),
        }
        .unwrap()
    });
    weak.get("/a", &[]).await;
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!((weak.get("/a", &[]).await.text().as_str(), weak.asked().len()), ("1", 2));
}

#[tokio::test(start_paused = true)]
async fn one_about_another_response_ends_what_is_served_stale() {
    let trial = confirming(json!({ "stale_while_revalidate": 30 }), &[("etag", "\"v2\"")]);
    trial.get("/a", &[]).await;
    tokio::time::advance(Duration::from_secs(15)).await;
    assert_eq!(trial.get("/a", &[]).await.text(), "answer 1 ", "nobody waits for the target");
    assert_eq!(trial.get("/a", &[]).await.text(), "answer 3 ");
}

#[tokio::test(start_paused = true)]
async fn one_of_another_cache_is_as_old_as_it_says() {
    let trial = confirming(json!({}), &[("age", "8")]);
    trial.get("/a", &[]).await;
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(trial.get("/a", &[]).await.text(), "answer 1 ");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(trial.get("/a", &[]).await.field("age"), "9");
    tokio::time::advance(Duration::from_secs(1)).await;
    trial.get("/a", &[]).await;
    assert_eq!(trial.asked().len(), 3, "it is stale after two seconds");
}

#[tokio::test]
async fn without_a_date_it_is_from_now() {
    let trial = answering(json!({}), |asked, n| {
        let response = Response::builder().header("cache-control", "max-age=3600").header("etag", "\"v1\"");
        let response = match asked.field("if-none-match") {
            // What is stored is older than it may be by this date.
            "" => response.header("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
            _ => response.status(304),
        };
        response.body(format!("{n}").into_bytes().into_body()).unwrap()
    });
    for _ in 0..3 {
        assert_eq!(trial.get("/a", &[]).await.text(), "1");
    }
    assert_eq!(trial.asked().len(), 2, "the confirmed response is fresh");
}
