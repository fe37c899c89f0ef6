//! Logouts by the user, and those that the provider tells of.

use super::*;

#[tokio::test]
async fn logouts_by_the_user() {
    let idp = Idp::new();
    let trial =
        idp.trial(&json!({ "logout_path": "/bye", "post_logout_redirect_uri": "https://shop.test/" }));
    let mut jar = sealed(&session(&idp, 0, now()));
    let got = jar.get(&trial, "/bye", &[]).await;
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
        assert_eq!(jar.get(&trial, "/oidc/logout", &[]).await.status, 302);
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
    assert_eq!(jar.clone().get(&trial, "/oidc/logout", &[]).await.status, 302, "it ends here in any case");
    assert_eq!(jar.get(&trial, "/oidc/logout", &[]).await.status, 302);
    let sent = idp.machine.net.sent();
    let form = sent.iter().find(|sent| sent.url.ends_with("/revoke")).expect("a call").form();
    assert_eq!((form["token"].as_str(), form["token_type_hint"].as_str()), ("rt-1", "refresh_token"));
}
