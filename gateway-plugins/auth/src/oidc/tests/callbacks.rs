//! Callbacks from the provider: which plugin config handles a callback, and how the gateway answers one without a login.

use super::*;

/// What a script sends, which no page can be shown to.
const SCRIPT: &[(&str, &str)] = &[("sec-fetch-mode", "cors")];

#[tokio::test]
async fn answers_to_logins_that_were_not_begun_here() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({}));
    let mut jar = Jar::default();
    let asked = jar.begin(&trial, "/").await;
    let state = asked["state"].as_str();
    let good = format!("/oidc/callback?code=c&state={state}");
    for (jar, target, status, page, why) in [
        (Jar::default(), good.clone(), 400, 302, "oidc_state"),
        (jar.clone(), "/oidc/callback".into(), 400, 400, "oidc_state"),
        (jar.clone(), "/oidc/callback?code=c&state=x".into(), 400, 302, "oidc_state"),
        (jar.clone(), "/oidc/callback?code=c&state=x.2".into(), 400, 400, "oidc_state"),
        (
            jar.clone(),
            format!("/oidc/callback?code=c&state={}zz", state.get(..8).expect("eight digits")),
            400,
            302,
            "oidc_state",
        ),
        (jar.clone(), "/oidc/callback?code=c&state=%C3%A9%C3%A9%C3%A9%C3%A9".into(), 400, 400, "oidc_state"),
        (jar.clone(), format!("{good}&iss=https%3A%2F%2Fevil.test"), 400, 400, "oidc_issuer"),
        (jar.clone(), format!("/oidc/callback?error=access_denied&state={state}"), 403, 403, "oidc_denied"),
        (jar.clone(), good.clone(), 403, 302, "oidc_code"),
    ] {
        let got = jar.clone().get(&trial, &target, SCRIPT).await;
        assert_eq!((got.status, reason(&trial)), (status, why), "{target}");
        assert_eq!(got.field("content-type"), "application/problem+json");
        let got = jar.clone().get(&trial, &target, &[]).await;
        assert_eq!(got.status, page, "{target}");
        assert_eq!(reason(&trial), if page == 302 { "oidc_login" } else { why }, "{target}");
        let kind = if page == 302 { "" } else { "text/html; charset=utf-8" };
        assert_eq!(got.field("content-type"), kind, "{target}");
    }
    // Another login's verifier does not fit: a code that was stolen is worth nothing.
    idp.with(|it| drop(it.codes.insert("c".into(), (asked["nonce"].clone(), "another challenge".into()))));
    assert_eq!((jar.get(&trial, &good, SCRIPT).await.status, reason(&trial)), (403, "oidc_code"));
    assert!(jar.0.is_empty(), "its cookie is removed");
    // A session is not a login, and the other way round.
    let mut jar = Jar::default();
    let asked = jar.begin(&trial, "/").await;
    let login = jar.0.values().next().expect("a cookie").clone();
    jar.0.insert("ferrum_session".into(), format!("1.{login}"));
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 302, "no session");
    assert_eq!(asked["client_id"], "shop");
    for _ in 0..9 {
        jar.begin(&trial, "/").await;
    }
    assert!(jar.0.len() <= 6, "logins that are not finished do not pile up: {}", jar.0.len());
}

/// Comes back with a code for the login that the provider was asked for.
async fn come_back(jar: &mut Jar, trial: &Trial, idp: &Idp, asked: &HashMap<String, String>) -> Got {
    idp.with(|it| {
        drop(it.codes.insert("c".into(), (asked["nonce"].clone(), asked["code_challenge"].clone())))
    });
    jar.get(trial, &format!("/oidc/callback?code=c&state={}", asked["state"]), &[]).await
}

fn query_of(got: &Got) -> HashMap<String, String> {
    parameters(got.field("location").split_once('?').expect("a query").1)
}

#[tokio::test]
async fn the_first_of_many_tabs_logs_in_anew() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({}));
    let mut jar = Jar::default();
    let first = jar.begin(&trial, "/tab").await;
    let name = jar.0.keys().next().expect("a cookie").clone();
    // As browsers drop what is too much, or too old.
    jar.0.remove(&name);
    let got = come_back(&mut jar, &trial, &idp, &first).await;
    assert_eq!((got.status, reason(&trial)), (302, "oidc_login"));
    let got = come_back(&mut jar, &trial, &idp, &query_of(&got)).await;
    assert_eq!((got.status, got.field("location"), reason(&trial)), (302, "/", "oidc_logged_in"));
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 200);
    // It is logged in by now: another tab, and the same callback once more, lead to the site.
    for asked in [&first, &first] {
        let got = come_back(&mut jar, &trial, &idp, asked).await;
        assert_eq!((got.status, got.field("location"), reason(&trial)), (302, "/", "oidc_logged_in_before"));
    }
}

#[tokio::test]
async fn a_browser_without_cookies_ends_at_a_page() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "login_path": "/login\"x" }));
    let asked = Jar::default().begin(&trial, "/").await;
    let got = come_back(&mut Jar::default(), &trial, &idp, &asked).await;
    assert_eq!(got.status, 302);
    let got = come_back(&mut Jar::default(), &trial, &idp, &query_of(&got)).await;
    assert_eq!((got.status, reason(&trial)), (400, "oidc_state"));
    assert!(
        got.text().contains("took too long") && got.text().contains("href=\"/login&quot;x\""),
        "{}",
        got.text()
    );
    assert_eq!((got.field("cache-control"), got.field("x-frame-options")), ("no-store", "DENY"));
}

/// A code and a session are nothing for the target, whatever `when` says, and whoever else recognises the caller.
#[tokio::test]
async fn callbacks_belong_to_the_plugin() {
    for (mode, when, more) in [
        ("single", json!({ "path": { "prefix": "/admin" } }), json!([])),
        ("single", json!({ "not": { "path": { "prefix": "/oidc" } } }), json!([])),
        ("multi", Value::Null, json!([{ "id": "k", "plugin_name": "key_auth", "proxy_id": "a" }])),
        ("all", Value::Null, json!([{ "id": "k", "plugin_name": "key_auth", "proxy_id": "a" }])),
    ] {
        let idp = Idp::new();
        let mut configs = json!([{
            "id": "o", "plugin_name": "oidc", "proxy_id": "a",
            "config": settings(&json!({ "login_path": "/oidc/login", "backchannel_logout_path": "/oidc/out" })),
        }]);
        if !when.is_null() {
            configs[0]["when"] = when.clone();
        }
        let configs =
            [more.as_array().expect("a list").clone(), configs.as_array().expect("a list").clone()].concat();
        let spec = json!({
            "proxies": [{
                "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80, "auth_mode": mode,
                "strip_listen_path": false,
            }],
            "consumers": [{ "id": "a", "username": "alice", "credentials": { "key_auth": "k" } }],
            "plugin_configs": configs,
        });
        let trial =
            Trial::of_spec(&[entry::<KeyAuth>(), entry::<Oidc>()], &spec.to_string(), &idp.machine.world());
        let key = [("x-api-key", "k")];
        for (path, status) in [
            ("/oidc/callback?code=c&state=12345678", 400),
            ("/oidc/login", 302),
            ("/oidc/logout", 403),
            ("/oidc/out", 405),
        ] {
            assert_eq!(trial.get(path, &key).await.status, status, "{mode} {when} {path}");
        }
        assert!(trial.asked().is_empty(), "{mode} {when}");
        let mut jar = sealed(&session(&idp, 0, now()));
        assert_eq!(jar.get(&trial, "/public", &key).await.status, 200, "{mode} {when}");
        let asked = trial.asked().pop().expect("a request");
        assert_eq!(asked.field("cookie"), "", "{mode} {when}");
    }
}

#[test]
fn paths_that_the_proxy_does_not_match_are_refused() {
    let idp = Idp::new();
    for (listens, more, is_open) in [
        (json!({ "listen_path": "/" }), json!({}), true),
        (json!({ "hosts": ["a.test"] }), json!({}), true),
        (json!({ "listen_path": "/oidc" }), json!({}), true),
        (json!({ "listen_path": "/app" }), json!({}), false),
        (json!({ "listen_path": "/app" }), json!({ "redirect_path": "/app/cb" }), true),
        (
            json!({ "listen_path": "/app" }),
            json!({ "redirect_path": "/app/cb", "logout_path": "/out" }),
            false,
        ),
        (json!({ "listen_path": "/app" }), json!({ "redirect_path": "/app/cb", "login_path": "/in" }), false),
        (
            json!({ "listen_path": "/app" }),
            json!({ "redirect_path": "/app/cb", "backchannel_logout_path": "/x" }),
            false,
        ),
        (
            json!({ "listen_path": "/app" }),
            json!({ "redirect_path": "/app/cb", "frontchannel_logout_path": "/x" }),
            false,
        ),
        (json!({ "listen_path": "~/(app|oidc)/.*" }), json!({}), true),
    ] {
        let mut proxy = json!({ "id": "a", "backend_host": "t.test", "backend_port": 80 });
        proxy.as_object_mut().expect("an object").extend(listens.as_object().expect("an object").clone());
        let spec = json!({
            "proxies": [proxy],
            "plugin_configs": [{ "id": "o", "plugin_name": "oidc", "proxy_id": "a", "config": settings(&more) }],
        });
        let trial = Trial::of_spec(&[entry::<Oidc>()], &spec.to_string(), &idp.machine.world());
        assert_eq!(trial.closed().is_empty(), is_open, "{listens} {more}");
    }
}
