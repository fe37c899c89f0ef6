//! Several cookies of one name: browsers keep those of other paths and domains, and other hosts of a domain may set some.

use super::sessions::{sealed, session};
use super::*;

/// The value of the cookie, or of all its parts.
fn parts(session: &Session) -> Vec<(String, String)> {
    let seal = Seal::new(&[SECRET.to_owned()], "https://idp.test", "shop").expect("a key");
    let text = seal.close("ferrum_session", session).expect("a text");
    let parts: Vec<&[u8]> = text.as_bytes().chunks(160).collect();
    let name = |n: usize| if n == 0 { "ferrum_session".to_owned() } else { format!("ferrum_session_{n}") };
    let value = |n: usize, part: &[u8]| {
        let part = std::str::from_utf8(part).expect("a text");
        if n == 0 { format!("{}.{part}", parts.len()) } else { part.to_owned() }
    };
    parts.iter().enumerate().map(|(n, part)| (name(n), value(n, part))).collect()
}

fn line(cookies: &[(String, String)]) -> String {
    cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
}

fn named(idp: &Idp, id: &str, began: u64) -> Session {
    Session { id: id.into(), access_token: Some(format!("at-{id}")), ..session(idp, 0, began) }
}

#[tokio::test]
async fn the_newest_session_that_is_good_counts() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "access_token_header": "X-Token", "session_ttl": "1h" }));
    let (old, new) = (parts(&named(&idp, "old", now() - 60)), parts(&named(&idp, "new", now() - 5)));
    let over = parts(&named(&idp, "over", now() - 3600));
    let strange = vec![("ferrum_session".to_owned(), "2.junk".to_owned())];
    let nonsense = vec![("ferrum_session".to_owned(), "junk".to_owned())];
    assert!(new.len() > 1, "it has several parts");
    let mut turned = old.clone();
    turned.reverse();
    for (all, expected) in [
        (vec![old.clone(), new.clone()], "at-new"),
        (vec![new.clone(), old.clone()], "at-new"),
        (vec![new.clone(), new.clone()], "at-new"),
        (vec![strange.clone(), nonsense.clone(), new.clone(), old.clone()], "at-new"),
        (vec![over.clone(), old.clone(), strange.clone()], "at-old"),
        (vec![turned, new.clone()], "at-new"),
        (vec![over.clone(), over, nonsense], ""),
    ] {
        let cookies = line(&all.concat());
        let got = trial.get("/", &[("cookie", &cookies)]).await;
        assert_eq!(got.status, if expected.is_empty() { 401 } else { 200 }, "{expected}");
        if !expected.is_empty() {
            let asked = trial.asked().pop().expect("a request");
            assert_eq!(
                (asked.field("x-token"), asked.field("cookie")),
                (expected, ""),
                "no copy is passed on"
            );
        }
    }
    // So many that they can't all be looked at are no way to hold the gateway up.
    let many = line(&vec![("ferrum_session".to_owned(), "6.x".to_owned()); 200]);
    assert_eq!(trial.get("/", &[("cookie", &many)]).await.status, 401);
}

/// A login sets a newer session than the one that another path or domain keeps.
#[tokio::test]
async fn a_login_beside_an_old_cookie_is_no_loop() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({}));
    let mut jar = Jar::default();
    jar.log_in(&trial, &idp, "/").await;
    let good = &jar.0["ferrum_session"];
    for other in ["1.AAAA", "", "6.AAAA"] {
        for cookies in [
            format!("ferrum_session={other}; ferrum_session={good}"),
            format!("ferrum_session={good}; ferrum_session={other}"),
        ] {
            let got = trial.get("/a", &[("cookie", &cookies), ("accept", "text/html")]).await;
            assert_eq!(got.status, 200, "{other}");
        }
    }
}

fn set(got: &Got) -> Vec<&str> {
    got.headers.get_all(SET_COOKIE).iter().filter_map(|line| line.to_str().ok()).collect()
}

#[tokio::test]
async fn a_logout_leaves_no_copy_that_is_good() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "cookie_path": "/oidc", "redirect_path": "/oidc/callback" }));
    let (old, new) = (named(&idp, "old", now() - 60), named(&idp, "new", now() - 5));
    let old = Session { refresh_token: Some("rt-old".into()), ..old };
    let cookies = line(&[parts(&new), parts(&old)].concat());
    let got = trial.get("/oidc/logout", &[("cookie", &cookies), OWN[0]]).await;
    assert_eq!((got.status, reason(&trial)), (302, "oidc_logged_out"));
    let hint = parameters(got.field("location").split_once('?').expect("a query").1)["id_token_hint"].clone();
    assert_eq!(hint, new.id_token);
    assert_eq!(idp.asked("idp.test:443/revoke"), 2, "both refresh tokens");
    let gone = set(&got);
    for place in ["Path=/oidc;", "Path=/;", "Path=/oidc/logout;"] {
        let has = |end: fn(&str) -> bool| {
            gone.iter().any(|line| line.starts_with("ferrum_session=;") && line.contains(place) && end(line))
        };
        assert!(
            has(|line| !line.contains("Domain")) && has(|line| line.ends_with("Domain=client.test")),
            "{gone:?}"
        );
    }
    assert!(gone.len() <= 24, "a proxy before the gateway takes so many lines");
    for session in [old, new] {
        assert_eq!(sealed(&session).get(&trial, "/", &[]).await.status, 302, "{}", session.id);
    }
}

#[tokio::test]
async fn a_new_session_takes_the_place_of_copies() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "cookie_domain": "client.test" }));
    let due = session(&idp, now() - 1, now() - 60);
    let one = line(&parts(&due));
    let got = trial.get("/a/b", &[("cookie", &one)]).await;
    assert_eq!(
        (got.status, set(&got).iter().filter(|line| line.starts_with("ferrum_session=;")).count()),
        (200, 0)
    );
    let got = trial.get("/a/b", &[("cookie", &format!("{one}; {one}"))]).await;
    let lines = set(&got);
    let at = lines.iter().position(|line| line.starts_with("ferrum_session=1.")).expect("a session");
    let gone: Vec<_> = lines.iter().filter(|line| line.starts_with("ferrum_session=;")).collect();
    assert!(gone.iter().any(|line| line.contains("Path=/;") && !line.contains("Domain")), "{lines:?}");
    assert!(
        !gone.iter().any(|line| line.contains("Path=/;") && line.contains("Domain=client.test")),
        "{lines:?}"
    );
    let last = lines.iter().rposition(|line| line.starts_with("ferrum_session=;")).expect("a removal");
    assert!(last < at, "what is set comes last");
}

/// Names with this prefix are at one place only, and browsers refuse lines for others.
#[tokio::test]
async fn cookies_that_can_be_nowhere_else_are_removed_once() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "cookie_name": "__Host-s" }));
    let got = trial.get("/oidc/logout", &[("cookie", "__Host-s=1.a; __Host-s=1.b"), OWN[0]]).await;
    assert_eq!(set(&got).len(), 1);
}
