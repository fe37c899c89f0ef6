//! Logouts by the user, and those that the provider tells of.

use super::*;

#[tokio::test]
async fn other_sites_can_not_log_users_out() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "cookie_same_site": "none" })).from_trusted_proxy();
    let tls = ("x-forwarded-proto", "https");
    for (method, fields, status, ends) in [
        ("GET", &[("sec-fetch-site", "same-origin")][..], 302, true),
        ("GET", &[("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")], 302, true),
        ("GET", &[("referer", "https://client.test/x")], 302, true),
        ("POST", &[("origin", "https://client.test")], 302, true),
        ("GET", &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], 200, false),
        ("GET", &[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "navigate")], 200, false),
        ("GET", &[], 200, false),
        ("GET", &[("referer", "http://client.test/x")], 200, false),
        ("GET", &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")], 403, false),
        ("POST", &[("origin", "https://evil.test")], 403, false),
        ("POST", &[("origin", "http://client.test")], 403, false),
        ("POST", &[], 403, false),
        ("DELETE", &[("sec-fetch-site", "same-origin")], 405, false),
    ] {
        let jar = sealed(&session(&idp, 0, now()));
        let cookie = format!("ferrum_session={}", jar.0["ferrum_session"]);
        let mut all = vec![("cookie", cookie.as_str()), ("accept", "text/html"), tls];
        all.extend(fields);
        let got = trial.request(method, "/oidc/logout", &all, "").await;
        assert_eq!((got.status, got.headers.contains_key(SET_COOKIE)), (status, ends), "{method} {fields:?}");
        if status == 200 {
            assert!(got.text().contains("<form method=\"post\" action=\"/oidc/logout\">"), "{}", got.text());
            assert!(got.field("content-security-policy").contains("frame-ancestors 'none'"));
        }
    }
}

#[tokio::test]
async fn a_logout_token_is_taken_once() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "backchannel_logout_path": "/out" }));
    let event = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
    let token = |jti: &str, issued: u64| {
        let claims = json!({
            "iss": "https://idp.test", "aud": "shop", "iat": issued, "exp": now() + 60, "jti": jti, "sub": "alice",
            "events": event,
        });
        let token = idp.signer.raw("EdDSA", r#"{"alg":"EdDSA","kid":"k"}"#, &claims.to_string());
        format!("logout_token={token}")
    };
    let first = token("a", now());
    assert_eq!(trial.request("POST", "/out", &[], first.clone()).await.status, 200);
    let got = trial.request("POST", "/out", &[], first).await;
    assert_eq!((got.status, reason(&trial)), (400, "oidc_logout_token"));
    // One that was made before a login, by more than clocks may differ, does not end it, and takes no logout back.
    let late = token("b", now() - 200);
    assert_eq!(trial.request("POST", "/out", &[], late).await.status, 200);
    let began = |second| Session { id: "other".into(), ..session(&idp, 0, second) };
    assert_eq!(sealed(&began(now() - 5)).get(&trial, "/", &[]).await.status, 302);
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "backchannel_logout_path": "/out" }));
    let claims = json!({
        "iss": "https://idp.test", "aud": "shop", "iat": now() - 200, "exp": now() + 60, "jti": "c", "sub": "alice",
        "events": event,
    });
    let token = idp.signer.raw("EdDSA", r#"{"alg":"EdDSA","kid":"k"}"#, &claims.to_string());
    assert_eq!(trial.request("POST", "/out", &[], format!("logout_token={token}")).await.status, 200);
    for (began, status) in [(now() - 100, 200), (now() - 150, 302)] {
        assert_eq!(sealed(&session(&idp, 0, began)).get(&trial, "/", &[]).await.status, status);
    }
}

#[tokio::test]
async fn logouts_by_the_user() {
    let idp = Idp::new();
    let trial =
        idp.trial(&json!({ "logout_path": "/bye", "post_logout_redirect_uri": "https://shop.test/" }));
    let mut jar = sealed(&session(&idp, 0, now()));
    let got = jar.get(&trial, "/bye", OWN).await;
    let (url, query) = got.field("location").split_once('?').expect("a query");
    let asked = parameters(query);
    assert_eq!((got.status, url, asked["client_id"].as_str()), (302, "https://idp.test/logout", "shop"));
    assert_eq!(asked["post_logout_redirect_uri"], "https://shop.test/");
    assert!(asked["id_token_hint"].starts_with("ey") && jar.0.is_empty());
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 302);
}

#[tokio::test]
async fn logouts_told_by_the_provider() {
    let event = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
    let good = json!({
        "iss": "https://idp.test", "aud": "shop", "iat": now(), "exp": now() + 60, "jti": "j", "sid": "s-1", "events": event,
    });
    for (more, status, left) in [
        (json!({}), 200, 302),
        (json!({ "sid": null, "sub": "alice" }), 200, 302),
        (json!({ "sid": "s-2" }), 200, 200),
        (json!({ "sid": null }), 400, 200),
        (json!({ "nonce": "n" }), 400, 200),
        (json!({ "events": {} }), 400, 200),
        (json!({ "jti": null }), 400, 200),
        (json!({ "aud": "other" }), 400, 200),
        (json!({ "iss": "https://evil.test" }), 400, 200),
        (json!({ "iat": now() - 1000 }), 400, 200),
    ] {
        let idp = Idp::new();
        let trial = idp.trial(&json!({ "backchannel_logout_path": "/out" }));
        let mut jar = sealed(&session(&idp, 0, now() - 5));
        assert_eq!(jar.get(&trial, "/", &[]).await.status, 200);
        let claims = merged(good.clone(), &more);
        let token =
            idp.signer.raw("EdDSA", r#"{"alg":"EdDSA","kid":"k","typ":"logout+jwt"}"#, &claims.to_string());
        let got = trial.request("POST", "/out", &[], format!("logout_token={token}")).await;
        assert_eq!(got.status, status, "{more}");
        assert_eq!(jar.get(&trial, "/", &[]).await.status, left, "{more}");
    }
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "backchannel_logout_path": "/out" }));
    assert_eq!(trial.get("/out", &[]).await.status, 405);
    let forged = Signer::ed().raw("EdDSA", r#"{"alg":"EdDSA","kid":"k"}"#, &good.to_string());
    for body in ["", "logout_token=", "logout_token=a.b.c", &format!("logout_token={forged}")] {
        assert_eq!(trial.request("POST", "/out", &[], body.to_owned()).await.status, 400, "{body}");
    }
}

#[tokio::test]
async fn logouts_in_a_frame_of_the_provider() {
    for (query, status, left) in [
        ("?iss=https%3A%2F%2Fidp.test&sid=s-1", 200, 302),
        ("", 200, 302),
        ("?iss=https%3A%2F%2Fidp.test&sid=s-2", 400, 200),
        ("?iss=https%3A%2F%2Fevil.test&sid=s-1", 400, 200),
        ("?sid=s-1", 400, 200),
    ] {
        let idp = Idp::new();
        let trial = idp.trial(&json!({ "frontchannel_logout_path": "/frame", "cookie_same_site": "none" }));
        let mut jar = sealed(&session(&idp, 0, now() - 5));
        let copy = jar.clone();
        let got = jar.get(&trial, &format!("/frame{query}"), &[]).await;
        assert_eq!((got.status, jar.0.is_empty()), (status, left == 302), "{query}");
        assert_eq!(jar.get(&trial, "/", &[]).await.status, left, "{query}");
        assert_eq!(
            copy.clone().get(&trial, "/", &[]).await.status,
            left,
            "a copy of the cookies ends with them: {query}"
        );
        let stranger = Jar::default().get(&trial, &format!("/frame{query}"), &[]).await;
        assert_eq!((stranger.status, stranger.field("set-cookie")), (200, ""), "{query}");
    }
}

#[tokio::test]
async fn copies_of_a_sessions_cookies_end_with_it() {
    for claims in [json!({}), json!({ "sid": null })] {
        let idp = Idp::new();
        let trial = idp.trial(&json!({}));
        let with = |expires| Session {
            id_token: id_token(&idp.signer, None, &claims),
            ..session(&idp, expires, now())
        };
        let mut other = sealed(&Session { id: "session-2".into(), ..with(0) });
        let (mut jar, mut copy) = (sealed(&with(0)), sealed(&with(0)));
        // A refreshed one is the same session.
        let mut refreshed = sealed(&with(now() - 1));
        assert_eq!(refreshed.get(&trial, "/", &[]).await.status, 200);
        assert_eq!(jar.get(&trial, "/oidc/logout", OWN).await.status, 302);
        assert_eq!(
            [copy.get(&trial, "/", &[]).await.status, refreshed.get(&trial, "/", &[]).await.status],
            [302; 2]
        );
        assert_eq!(
            other.get(&trial, "/", &[]).await.status,
            200,
            "another browser's session goes on: {claims}"
        );
    }
}

#[tokio::test]
async fn logouts_revoke_the_refresh_token() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({}));
    let mut jar = sealed(&session(&idp, 0, now()));
    idp.with(|it| it.revocation_status = 503);
    assert_eq!(jar.clone().get(&trial, "/oidc/logout", OWN).await.status, 302, "it ends here in any case");
    assert_eq!(jar.get(&trial, "/oidc/logout", OWN).await.status, 302);
    let sent = idp.machine.net.sent();
    let form = sent.iter().find(|sent| sent.url.ends_with("/revoke")).expect("a call").form();
    assert_eq!((form["token"].as_str(), form["token_type_hint"].as_str()), ("rt-1", "refresh_token"));
}
