//! Sessions: how long they last, how they are refreshed, and that nobody can make one.

use super::*;

pub(super) fn sealed(session: &Session) -> Jar {
    let seal = Seal::new(&[SECRET.to_owned()], "https://idp.test", "shop").expect("a key");
    let text = seal.close("ferrum_session", session).expect("a text");
    Jar([("ferrum_session".to_owned(), format!("1.{text}"))].into())
}

pub(super) fn session(idp: &Idp, expires: u64, began: u64) -> Session {
    Session {
        id_token: id_token(&idp.signer, None, &json!({})),
        access_token: Some("at-1".into()),
        refresh_token: Some("rt-1".into()),
        expires,
        began,
        id: "session-1".into(),
        sid: None,
    }
}

#[tokio::test]
async fn sessions_end_and_can_not_be_forged() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "session_ttl": "1h" }));
    let good = sealed(&session(&idp, 0, now() - 3500));
    assert_eq!(good.clone().get(&trial, "/", &[]).await.status, 200);
    assert_eq!(sealed(&session(&idp, 0, now() - 3600)).get(&trial, "/", &[]).await.status, 302, "too old");
    let text = good.0["ferrum_session"].clone();
    for forged in [
        "",
        "1.",
        "x",
        "0.a",
        "9.a",
        "2.a",
        &text.replacen('1', "2", 1),
        text.get(..text.len() - 1).expect("a part"),
        &format!("{text}A"),
    ] {
        let mut jar = Jar([("ferrum_session".to_owned(), forged.to_owned())].into());
        assert_eq!(jar.get(&trial, "/", &[]).await.status, 302, "{forged}");
    }
    let changed = idp.trial(&json!({ "session_secret": "another session secret with 32 bytes" }));
    assert_eq!(good.clone().get(&changed, "/", &[]).await.status, 302);
    let changed = idp.trial(&json!({
        "session_secret": "another session secret with 32 bytes", "previous_session_secret": SECRET,
    }));
    assert_eq!(good.clone().get(&changed, "/", &[]).await.status, 200);
}

#[tokio::test]
async fn long_sessions_have_several_cookies() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({}));
    idp.with(|it| it.claims = json!({ "groups": "g".repeat(6000) }));
    let mut jar = Jar::default();
    assert_eq!(jar.log_in(&trial, &idp, "/").await.status, 302);
    let names: Vec<_> = jar.0.keys().cloned().collect();
    assert_eq!(names, ["ferrum_session", "ferrum_session_1", "ferrum_session_2", "ferrum_session_3"]);
    assert!(jar.0.values().all(|value| value.len() < 3600));
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 200);
    let mut torn = jar.clone();
    torn.0.remove("ferrum_session_2");
    assert_eq!(torn.get(&trial, "/", &[]).await.status, 302);
    idp.with(|it| it.claims = json!({}));
    jar.0.retain(|name, _| name != "ferrum_session_1");
    jar.log_in(&trial, &idp, "/").await;
    assert_eq!(jar.0.len(), 1, "parts of the session before are removed");
    idp.with(|it| it.claims = json!({ "groups": "g".repeat(11_850) }));
    let got = Jar::default().log_in(&trial, &idp, "/").await;
    assert_eq!((got.status, reason(&trial)), (500, "oidc_session_too_large"));
}

#[tokio::test]
async fn sessions_are_refreshed_once() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "access_token_header": "X-Token" }));
    let old = sealed(&session(&idp, now() - 1, now() - 60));
    let (mut a, mut b, mut c) = (old.clone(), old.clone(), old.clone());
    let (first, second) = tokio::join!(a.get(&trial, "/", &[]), b.get(&trial, "/", &[]));
    let late = c.get(&trial, "/", &[]).await;
    assert_eq!([first.status, second.status, late.status], [200; 3]);
    assert!(trial.asked().iter().all(|asked| asked.field("x-token") == "at-2"));
    assert_eq!(idp.asked("idp.test:443/token"), 1, "one refresh for all of them");
    assert!([&a, &b, &c].iter().all(|jar| jar.0 != old.0), "each gets the new session");
    let sent = idp.machine.net.sent();
    let form = sent.iter().find(|sent| sent.url.ends_with("/token")).expect("a call").form();
    assert_eq!(form["refresh_token"], "rt-1");
    let got = a.get(&trial, "/", &[]).await;
    assert_eq!(
        (got.status, got.headers.contains_key(SET_COOKIE), idp.asked("idp.test:443/token")),
        (200, false, 1)
    );
}

/// A client that keeps no cookies comes with the old ones, while the new tokens expire.
#[tokio::test]
async fn tokens_that_have_expired_are_not_handed_out() {
    let idp = Idp::new();
    // They expire at once.
    idp.with(|it| it.answer = json!({ "expires_in": 0 }));
    let trial = idp.trial(&json!({ "access_token_header": "X-Token" }));
    let old = sealed(&session(&idp, now() - 1, now() - 60));
    for n in 1..=3 {
        assert_eq!(old.clone().get(&trial, "/", &[]).await.status, 200);
        let forms = idp.machine.net.sent().into_iter().filter(|sent| sent.url.ends_with("/token"));
        let tokens: Vec<_> = forms.map(|sent| sent.form()["refresh_token"].clone()).collect();
        assert_eq!(tokens, &["rt-1", "rt-2", "rt-2"][..n], "this provider repeats its second token");
    }
    for (more, expires, expected) in [
        (json!({ "refresh": false }), now() - 1, ""),
        (json!({ "refresh": false }), now() + 60, "at-1"),
        (json!({ "refresh": false }), 0, "at-1"),
    ] {
        let trial = idp.trial(&merged(json!({ "access_token_header": "X-Token" }), &more));
        let mut jar = sealed(&session(&idp, expires, now() - 60));
        assert_eq!(jar.get(&trial, "/", &[("x-token", "forged")]).await.status, 200);
        assert_eq!(trial.asked().pop().expect("a request").field("x-token"), expected, "{more} {expires}");
    }
}

#[tokio::test]
async fn refreshes_that_fail() {
    for (status, answer, expected, why) in [
        (400, json!({}), 302, "oidc_login"),
        (500, json!({}), 503, "oidc_provider_failed"),
        (200, json!({ "id_token": "a.b.c" }), 302, "oidc_login"),
    ] {
        let idp = Idp::new();
        idp.with(|it| (it.refresh_status, it.answer) = (status, answer));
        let trial = idp.trial(&json!({}));
        let mut jar = sealed(&session(&idp, now() - 1, now() - 60));
        assert_eq!((jar.get(&trial, "/", &[]).await.status, reason(&trial)), (expected, why));
        assert_eq!(jar.0.contains_key("ferrum_session"), expected == 503);
        assert!(trial.asked().is_empty());
    }
    let idp = Idp::new();
    let other = id_token(&idp.signer, None, &json!({ "sub": "mallory" }));
    idp.with(|it| it.answer = json!({ "id_token": other }));
    let mut jar = sealed(&session(&idp, now() - 1, now() - 60));
    assert_eq!(jar.get(&idp.trial(&json!({})), "/", &[]).await.status, 302, "somebody else's ID token");
    let mut jar = sealed(&session(&idp, now() - 1, now() - 60));
    assert_eq!(jar.get(&idp.trial(&json!({ "refresh": false })), "/", &[]).await.status, 200);
}

/// One secret may serve several plugin configs: what one provider says of somebody is nothing at another.
#[tokio::test]
async fn sessions_of_other_providers_and_clients_are_none() {
    let idp = Idp::new();
    let good = sealed(&session(&idp, 0, now()));
    assert_eq!(good.clone().get(&idp.trial(&json!({})), "/", &[]).await.status, 200);
    for other in [json!({ "issuer": "https://other.test" }), json!({ "client_id": "till" })] {
        let trial = idp.trial(&other);
        let got =
            trial.get("/", &[("cookie", &format!("ferrum_session={}", good.0["ferrum_session"]))]).await;
        assert_eq!((got.status, trial.asked().len()), (401, 0), "{other}");
    }
    // Nor is a login that was begun at one of them ended at another.
    let mut jar = Jar::default();
    let asked = jar.begin(&idp.trial(&json!({})), "/").await;
    let till = idp.trial(&json!({ "client_id": "till" }));
    let got = jar.get(&till, &format!("/oidc/callback?code=c&state={}", asked["state"]), &[]).await;
    assert_eq!((got.status, reason(&till), idp.asked("idp.test:443/token")), (302, "oidc_login", 0));
}

/// Another gateway may have refreshed it, so that the browser has a newer session: only a page begins anew.
#[tokio::test]
async fn a_refused_refresh_takes_the_cookies_only_from_pages() {
    let idp = Idp::new();
    idp.with(|it| it.refresh_status = 400);
    let trial = idp.trial(&json!({}));
    let old = sealed(&session(&idp, now() - 1, now() - 60));
    let mut jar = old.clone();
    let got = jar.get(&trial, "/", &[("sec-fetch-mode", "cors")]).await;
    assert_eq!((got.status, got.field("set-cookie"), &jar.0), (401, "", &old.0));
    let got = jar.get(&trial, "/", &[("sec-fetch-mode", "navigate")]).await;
    assert_eq!((got.status, jar.0.contains_key("ferrum_session")), (302, false));
}

/// A cache before the gateway must not hand one user's session to the next.
#[tokio::test]
async fn responses_with_a_new_session_are_the_users_alone() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({})).answering(|_| {
        let response = Response::builder().header("cache-control", "public, max-age=60, s-maxage=600");
        response.header("cdn-cache-control", "max-age=600").body(Body::full("page")).expect("a response")
    });
    let mut jar = sealed(&session(&idp, now() - 1, now() - 60));
    let got = jar.get(&trial, "/", &[]).await;
    assert!(got.headers.contains_key(SET_COOKIE));
    assert_eq!((got.field("cache-control"), got.field("cdn-cache-control")), ("private, max-age=60", ""));
    let got = jar.get(&trial, "/", &[]).await;
    assert!(!got.headers.contains_key(SET_COOKIE));
    assert_eq!(
        got.field("cache-control"),
        "public, max-age=60, s-maxage=600",
        "without a cookie it is the target's"
    );
}

/// A provider has new keys and can't be asked for them: nobody can tell whether what it signs is good.
#[tokio::test(start_paused = true)]
async fn keys_that_can_not_be_had_cost_no_session() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({}));
    let mut visitor = Jar::default();
    let asked = visitor.begin(&trial, "/").await;
    let rotated = |nonce: Value| {
        let claims = json!({ "iss": "https://idp.test", "aud": "shop", "sub": "alice", "exp": now() + 300, "nonce": nonce });
        idp.signer.raw("EdDSA", r#"{"alg":"EdDSA","kid":"new"}"#, &claims.to_string())
    };
    let id_token = rotated(json!(asked["nonce"]));
    idp.with(|it| {
        it.keys_away = true;
        it.answer = json!({ "id_token": id_token });
        drop(it.codes.insert("c".into(), (asked["nonce"].clone(), asked["code_challenge"].clone())));
    });
    tokio::time::advance(std::time::Duration::from_secs(10)).await;
    let got = visitor.get(&trial, &format!("/oidc/callback?code=c&state={}", asked["state"]), &[]).await;
    assert_eq!((got.status, got.field("retry-after"), reason(&trial)), (503, "5", "oidc_provider_failed"));
    // The provider has taken the old refresh token: the session goes on with what was verified before.
    let mut jar = sealed(&session(&idp, now() - 1, now() - 60));
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 200);
    let seal = Seal::new(&[SECRET.to_owned()], "https://idp.test", "shop").expect("a key");
    let text = jar.0["ferrum_session"].strip_prefix("1.").expect("one part").to_owned();
    let kept: Session = seal.open("ferrum_session", text.as_bytes()).expect("a session");
    assert_eq!((kept.refresh_token.as_deref(), kept.access_token.as_deref()), (Some("rt-2"), Some("at-2")));
    assert!(kept.id_token != id_token && kept.expires <= now() + 60, "another ID token is soon asked for");
    // Whoever the token is of is looked at in any case, and once the provider can be asked, it has no such key.
    let other = id_token_of(&idp, "mallory");
    idp.with(|it| it.answer = json!({ "id_token": other, "refresh_token": "rt-3" }));
    let due = Session { refresh_token: Some("rt-x".into()), ..session(&idp, now() - 1, now() - 60) };
    assert_eq!(sealed(&due).get(&trial, "/", &[]).await.status, 302, "somebody else's");
    tokio::time::advance(std::time::Duration::from_secs(10)).await;
    let unknown = rotated(json!(null));
    idp.with(|it| (it.keys_away, it.answer) = (false, json!({ "id_token": unknown })));
    let due = Session { refresh_token: Some("rt-y".into()), ..session(&idp, now() - 1, now() - 60) };
    assert_eq!(sealed(&due).get(&trial, "/", &[]).await.status, 302);
}

fn id_token_of(idp: &Idp, subject: &str) -> String {
    let claims = json!({ "iss": "https://idp.test", "aud": "shop", "sub": subject, "exp": now() + 300 });
    idp.signer.raw("EdDSA", r#"{"alg":"EdDSA","kid":"new"}"#, &claims.to_string())
}
