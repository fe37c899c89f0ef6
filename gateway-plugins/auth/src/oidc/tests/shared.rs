//! Sessions that several plugin configs have, what goes on while they last, and browsers that keep cookies from other sites.

use std::cell::RefCell;
use std::task::Poll;

use gateway_core::consumer::{Consumers, Standing};

use super::*;

/// Two proxies of one gateway with the same provider, the second with its own paths.
fn two(idp: &Idp, more: &Value) -> Trial {
    let own = json!({ "redirect_path": "/b/callback", "logout_path": "/b/logout" });
    let spec = json!({
        "proxies": [
            { "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 },
            { "id": "b", "listen_path": "/b", "backend_host": "t.test", "backend_port": 80 },
        ],
        "consumers": [{ "id": "a", "username": "alice" }],
        "plugin_configs": [
            { "id": "o", "plugin_name": "oidc", "proxy_id": "a", "config": settings(more) },
            { "id": "p", "plugin_name": "oidc", "proxy_id": "b", "config": settings(&own) },
        ],
    });
    Trial::of_spec(&[entry::<Oidc>()], &spec.to_string(), &idp.machine.world())
}

fn logout_token(idp: &Idp) -> String {
    let event = json!({ "http://schemas.openid.net/event/backchannel-logout": {} });
    let claims = json!({
        "iss": "https://idp.test", "aud": "shop", "iat": now(), "exp": now() + 60, "jti": "j", "sid": "s-1",
        "events": event,
    });
    idp.signer.raw("EdDSA", r#"{"alg":"EdDSA","kid":"k","typ":"logout+jwt"}"#, &claims.to_string())
}

#[tokio::test]
async fn a_logout_at_one_is_one_at_all() {
    let idp = Idp::new();
    let trial = two(&idp, &json!({}));
    let (mut jar, mut copy) = (sealed(&session(&idp, 0, now() - 5)), sealed(&session(&idp, 0, now() - 5)));
    assert_eq!(copy.get(&trial, "/b/x", &[]).await.status, 200);
    assert_eq!(jar.get(&trial, "/oidc/logout", OWN).await.status, 302);
    assert_eq!(copy.get(&trial, "/b/x", &[]).await.status, 302, "asked for by the user");
    let idp = Idp::new();
    let trial = two(&idp, &json!({ "backchannel_logout_path": "/out" }));
    let mut jar = sealed(&session(&idp, 0, now() - 5));
    let told = format!("logout_token={}", logout_token(&idp));
    assert_eq!(trial.request("POST", "/out", &[], told).await.status, 200);
    assert_eq!(jar.get(&trial, "/b/x", &[]).await.status, 302, "told by the provider");
}

/// Providers that take each refresh token once take a second use of it for theft.
#[tokio::test]
async fn a_refresh_at_one_is_one_at_all() {
    let idp = Idp::new();
    let trial = two(&idp, &json!({}));
    for path in ["/", "/b/x"] {
        let mut jar = sealed(&session(&idp, now() - 1, now() - 60));
        assert_eq!(jar.get(&trial, path, &[]).await.status, 200);
    }
    assert_eq!(idp.asked("idp.test:443/token"), 1);
}

/// Somebody who leaves the page in the midst of it has not lost the login.
#[tokio::test]
async fn a_refresh_goes_on_when_its_browser_leaves() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({}));
    let mut jar = sealed(&session(&idp, now() - 1, now() - 60));
    {
        let mut gone = jar.clone();
        let mut left = std::pin::pin!(gone.get(&trial, "/", &[]));
        while idp.asked("idp.test:443/token") == 0 {
            let polled = std::future::poll_fn(|cx| Poll::Ready(left.as_mut().poll(cx).is_pending()));
            assert!(polled.await);
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 200);
    assert_eq!(idp.asked("idp.test:443/token"), 1);
}

/// A provider that takes longer than requests wait has taken the refresh token all the same.
#[tokio::test(start_paused = true)]
async fn a_slow_refresh_holds_nobody_up_and_costs_no_session() {
    let idp = Idp::new();
    let told = Arc::new(Notify::new());
    idp.with(|it| it.held = Some(told.clone()));
    let trial = idp.trial(&json!({ "timeout": "2000ms" }));
    let old = sealed(&session(&idp, now() - 1, now() - 60));
    let begun = Instant::now();
    let mut jars = vec![old.clone(); 8];
    let all = futures_util::future::join_all(jars.iter_mut().map(|jar| jar.get(&trial, "/", &[]))).await;
    assert!(all.iter().all(|got| got.status == 503 && got.field("retry-after") == "5"));
    assert_eq!(begun.elapsed().as_secs(), 2, "nobody waits for somebody else's turn");
    assert!(why(&trial).contains("2s, which is what `timeout` allows"), "{}", why(&trial));
    assert_eq!(old.clone().get(&trial, "/", &[]).await.status, 503);
    told.notify_one();
    let mut jar = old.clone();
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 200);
    assert!(jar.0 != old.0, "it has the new session");
    assert_eq!(idp.asked("idp.test:443/token"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_refresh_that_fails_fails_for_all_and_is_not_soon_repeated() {
    let idp = Idp::new();
    idp.with(|it| it.refresh_status = 500);
    let trial = idp.trial(&json!({}));
    let old = sealed(&session(&idp, now() - 1, now() - 60));
    let (mut a, mut b, mut c) = (old.clone(), old.clone(), old.clone());
    let (first, second) = tokio::join!(a.get(&trial, "/", &[]), b.get(&trial, "/", &[]));
    let late = c.get(&trial, "/", &[]).await;
    assert_eq!([first.status, second.status, late.status], [503; 3]);
    assert_eq!(idp.asked("idp.test:443/token"), 1);
    idp.with(|it| it.refresh_status = 200);
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    assert_eq!(c.get(&trial, "/", &[]).await.status, 200);
    assert_eq!(idp.asked("idp.test:443/token"), 2);
}

/// The ID token of a refresh may leave out what the provider calls the session.
#[tokio::test]
async fn a_refreshed_session_is_the_one_that_the_provider_ends() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "backchannel_logout_path": "/out" }));
    let id_token = id_token(&idp.signer, None, &json!({ "sid": null }));
    idp.with(|it| it.answer = json!({ "id_token": id_token }));
    let mut jar = sealed(&session(&idp, now() - 1, now() - 60));
    for _ in 0..2 {
        assert_eq!(jar.get(&trial, "/", &[]).await.status, 200);
    }
    assert_eq!(idp.asked("idp.test:443/token"), 1);
    let told = format!("logout_token={}", logout_token(&idp));
    assert_eq!(trial.request("POST", "/out", &[], told).await.status, 200);
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 302);
}

thread_local! {
    static SEEN: RefCell<Option<Arc<Identity>>> = const { RefCell::new(None) };
}

/// Remembers who the last caller was, as a session does.
struct LastCaller;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct NoSettings {}

impl Plugin for LastCaller {
    const NAME: &'static str = "last_caller";
    const SUMMARY: &'static str = "Remembers the caller.";
    type Config = NoSettings;

    fn build(_: NoSettings, _: &World) -> Result<Self, Problems> {
        Ok(Self)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_request(self);
    }
}

impl OnRequest for LastCaller {
    fn on_request<'a>(&'a self, exchange: &'a mut Exchange, _: Seat<'a>) -> Step<'a> {
        SEEN.set(exchange.identity.clone());
        Step::Next
    }
}

#[tokio::test]
async fn what_was_opened_with_a_session_goes_on_for_as_long_as_it() {
    let idp = Idp::new();
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80 }],
        "consumers": [{ "id": "a", "username": "alice" }],
        "plugin_configs": [
            { "id": "o", "plugin_name": "oidc", "proxy_id": "a", "config": settings(&json!({ "session_ttl": 60 })) },
            { "id": "k", "plugin_name": "last_caller", "proxy_id": "a", "config": {} },
        ],
    });
    let trial =
        Trial::of_spec(&[entry::<Oidc>(), entry::<LastCaller>()], &spec.to_string(), &idp.machine.world());
    let mut jar = sealed(&session(&idp, 0, now() - 5));
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 200);
    let identity = SEEN.take().expect("a caller");
    let alice = identity.consumer.clone().expect("a consumer");
    let consumers = Consumers::new([&alice]);
    assert!(identity.may_stay(&consumers) && !identity.may_stay(&Consumers::default()));
    assert_eq!(jar.get(&trial, "/oidc/logout", OWN).await.status, 302);
    assert!(!identity.may_stay(&consumers), "logged out");
    let ended = Arc::new(Ended::default());
    let open = OpenSession::new(session(&idp, 0, now() - 100)).expect("a session");
    for (until, expected) in [(now() + 100, true), (now(), false)] {
        let standing = SessionStanding { open: open.clone(), ended: ended.clone(), until };
        assert_eq!(standing.holds(&consumers), expected, "at its end");
    }
}

/// Browsers send strict cookies with nothing that another site leads to, and the provider is one.
#[tokio::test]
async fn strict_cookies_do_not_keep_logins_from_their_end() {
    let idp = Idp::new();
    let trial = idp.trial(&json!({ "cookie_same_site": "strict" }));
    let begun = trial.get("/a?b=c&d='e'", &[("accept", "text/html")]).await;
    assert!(begun.field("set-cookie").contains("; SameSite=Lax"), "{}", begun.field("set-cookie"));
    let mut jar = Jar::default();
    let got = jar.log_in(&trial, &idp, "/a?b=c&d='e'").await;
    assert_eq!((got.status, got.field("refresh"), got.field("location")), (200, "0;url=/a?b=c&d='e'", ""));
    assert_eq!(got.field("cache-control"), "no-store");
    let set = got.headers.get_all(SET_COOKIE).iter().filter_map(|line| line.to_str().ok());
    assert!(
        set.into_iter().any(|line| line.starts_with("ferrum_session=") && line.contains("SameSite=Strict"))
    );
    assert_eq!(jar.get(&trial, "/", &[]).await.status, 200);
}

/// RFC 9207 §2.4: a provider that says whose an answer is always does.
#[tokio::test]
async fn an_answer_without_an_issuer_is_refused_where_there_should_be_one() {
    for (announced, query, status) in
        [(json!(true), "", 400), (json!(true), "&iss=https%3A%2F%2Fidp.test", 302), (json!(false), "", 302)]
    {
        let idp = Idp::new();
        idp.with(|it| it.about = json!({ "authorization_response_iss_parameter_supported": announced }));
        let trial = idp.trial(&json!({}));
        let mut jar = Jar::default();
        let asked = jar.begin(&trial, "/").await;
        idp.with(|it| {
            drop(it.codes.insert("c".into(), (asked["nonce"].clone(), asked["code_challenge"].clone())))
        });
        let target = format!("/oidc/callback?code=c&state={}{query}", asked["state"]);
        assert_eq!(jar.get(&trial, &target, &[]).await.status, status, "{announced} {query}");
    }
}

/// Its own pages are its own whoever else is asked: a code is nothing for the target.
#[tokio::test]
async fn its_pages_are_answered_wherever_it_stands() {
    let idp = Idp::new();
    let spec = json!({
        "proxies": [{ "id": "a", "listen_path": "/", "backend_host": "t.test", "backend_port": 80, "auth_mode": "multi" }],
        "consumers": [{ "id": "g", "username": "guest" }],
        "plugin_configs": [
            { "id": "o", "plugin_name": "oidc", "proxy_id": "a", "config": settings(&json!({})) },
            { "id": "k", "plugin_name": "key_auth", "proxy_id": "a", "config": { "anonymous": "guest" } },
        ],
    });
    for entries in [[entry::<Oidc>(), entry::<KeyAuth>()], [entry::<KeyAuth>(), entry::<Oidc>()]] {
        let trial = Trial::of_spec(&entries, &spec.to_string(), &idp.machine.world());
        let got = trial.get("/oidc/callback?code=c&state=12345678", &[]).await;
        assert_eq!((got.status, reason(&trial)), (400, "oidc_state"));
        assert!(trial.asked().is_empty(), "the target has seen the code");
        let mut jar = sealed(&session(&idp, 0, now()));
        assert_eq!(jar.get(&trial, "/", &[]).await.status, 200);
        assert_eq!(trial.records().pop().and_then(|it| it.caller).as_deref(), Some("alice"));
        assert_eq!(trial.get("/", &[]).await.status, 200);
        assert_eq!(trial.records().pop().and_then(|it| it.caller).as_deref(), Some("guest"));
    }
}
