//! One request for what many ask for.

use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt;
use gateway_core::http::body::BodyError;
use gateway_core::plugin::{Attempt, OnAttempt, Verdict};
use http_body::{Frame, SizeHint};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

thread_local! {
    /// Lets requests through to the target, one for each permit. A test is one thread.
    static GATE: Arc<Semaphore> = Arc::new(Semaphore::new(0));
}

/// Holds requests before they reach the target.
struct Gate;

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

impl Plugin for Gate {
    const NAME: &'static str = "gate";
    const SUMMARY: &'static str = "Holds requests before they reach the target.";
    const GUARDS: bool = false;
    type Config = Nothing;

    fn build(_config: Nothing, _world: &World) -> Result<Self, Problems> {
        Ok(Self)
    }

    fn attend(self: Arc<Self>, hooks: &mut Hooks) {
        hooks.on_attempt(self);
    }
}

impl OnAttempt for Gate {
    fn on_attempt<'a>(&'a self, _: &'a mut Exchange, _: Attempt<'a>, _: Seat<'a>) -> Step<'a> {
        let gate = GATE.with(Arc::clone);
        Step::wait(async move {
            gate.acquire().await.unwrap().forget();
            Verdict::Next
        })
    }
}

fn open(requests: usize) {
    GATE.with(|gate| gate.add_permits(requests));
}

fn gated(
    config: Value,
    answer: impl Fn(&ReceivedRequest, u32) -> Response<Body> + Send + Sync + 'static,
) -> Trial {
    let count = AtomicU32::new(0);
    let entries = [entry::<ResponseCache>(), entry::<Gate>()];
    Trial::of_plugins(&entries, &[("response_cache", config), ("gate", json!({}))])
        .answering(move |asked| answer(asked, count.fetch_add(1, Relaxed) + 1))
}

/// A body that comes when the test says so.
struct Coming(UnboundedReceiver<Result<&'static str, BodyError>>, Option<u64>);

impl http_body::Body for Coming {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let piece = self.0.poll_recv(cx);
        piece.map(|piece| {
            piece.map(|piece| piece.map(|text| Frame::data(Bytes::from_static(text.as_bytes()))))
        })
    }

    fn size_hint(&self) -> SizeHint {
        self.1.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

pub(super) type Sender = UnboundedSender<Result<&'static str, BodyError>>;

/// A target whose bodies come through channels, one for each answer.
pub(super) fn coming(config: Value, length: Option<u64>) -> (Trial, Arc<Mutex<Vec<Sender>>>) {
    let senders = Arc::<Mutex<Vec<Sender>>>::default();
    let kept = senders.clone();
    let trial = answering(config, move |_, _| {
        let (sender, receiver) = unbounded_channel();
        kept.lock().unwrap().push(sender);
        let body = Body::stream(Coming(receiver, length));
        Response::builder().header("cache-control", "max-age=60").body(body).unwrap()
    });
    (trial, senders)
}

pub(super) fn send(senders: &Mutex<Vec<Sender>>, n: usize, text: &'static str) {
    senders.lock().unwrap()[n].send(Ok(text)).unwrap();
}

pub(super) fn end(senders: &Mutex<Vec<Sender>>, n: usize) {
    let (closed, _) = unbounded_channel();
    senders.lock().unwrap()[n] = closed;
}

/// Lets everything that can go on do so.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_asks_and_the_others_wait() {
    let trial = gated(json!({}), |_, n| {
        Response::builder()
            .header("cache-control", "max-age=60")
            .body(format!("{n}").into_bytes().into_body())
            .unwrap()
    });
    let mut first = Box::pin(trial.get("/a", &[]));
    assert!(first.as_mut().now_or_never().is_none());
    let mut others = Box::pin(futures_util::future::join_all((0..20).map(|_| trial.get("/a", &[]))));
    assert!(others.as_mut().now_or_never().is_none());
    open(1);
    assert_eq!(first.await.text(), "1");
    assert!(others.await.iter().all(|got| got.text() == "1"));
    assert_eq!(trial.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_let_go() {
    // By an answer that can't be stored: then nobody waits for anybody for a while.
    let trial = gated(json!({}), |_, n| Response::new(format!("{n}").into_bytes().into_body()));
    let mut first = Box::pin(trial.get("/a", &[]));
    assert!(first.as_mut().now_or_never().is_none());
    let mut others = Box::pin(futures_util::future::join_all((0..3).map(|_| trial.get("/a", &[]))));
    assert!(others.as_mut().now_or_never().is_none());
    open(1);
    let first = first.await;
    assert_eq!(status(&first), "ferrum-edge; fwd=uri-miss; detail=NOT_FRESH");
    assert!(others.as_mut().now_or_never().is_none(), "all of them are at the gate");
    open(3);
    let others = others.await;
    assert!(others.iter().all(|got| status(got) == "ferrum-edge; fwd=miss; detail=NOT_FRESH"));
    open(2);
    assert_eq!(status(&trial.get("/a", &[]).await), "ferrum-edge; fwd=miss; detail=NOT_FRESH");

    // When the one ahead goes away.
    let mut leaver = Box::pin(trial.get("/b", &[]));
    open(0);
    GATE.with(|gate| gate.forget_permits(10));
    assert!(leaver.as_mut().now_or_never().is_none());
    let mut behind = Box::pin(trial.get("/b", &[]));
    assert!(behind.as_mut().now_or_never().is_none());
    drop(leaver);
    open(1);
    assert_eq!(status(&behind.await), "ferrum-edge; fwd=uri-miss; detail=NOT_FRESH");

    // After a bounded time.
    let trial = gated(json!({ "lock_timeout": "1000ms" }), |_, n| {
        Response::builder()
            .header("cache-control", "max-age=60")
            .body(format!("{n}").into_bytes().into_body())
            .unwrap()
    });
    let mut slow = Box::pin(trial.get("/a", &[]));
    assert!(slow.as_mut().now_or_never().is_none());
    let mut behind = Box::pin(trial.get("/a", &[]));
    assert!(behind.as_mut().now_or_never().is_none());
    tokio::time::advance(Duration::from_millis(999)).await;
    assert!(behind.as_mut().now_or_never().is_none());
    tokio::time::advance(Duration::from_millis(2)).await;
    assert!(behind.as_mut().now_or_never().is_none(), "at the gate by now");
    open(2);
    assert_eq!(
        (behind.await.text().as_str(), slow.await.text().as_str(), trial.asked().len()),
        ("1", "2", 2)
    );
}

#[tokio::test(start_paused = true)]
async fn those_that_wait_read_along() {
    let (trial, senders) = coming(json!({}), Some(6));
    let mut first = Box::pin(trial.get("/a", &[]));
    assert!(first.as_mut().now_or_never().is_none());
    send(&senders, 0, "abc");
    settle().await;
    let mut second = Box::pin(trial.get("/a", &[]));
    assert!(second.as_mut().now_or_never().is_none());
    // The first client leaves; that ends nothing.
    drop(first);
    settle().await;
    send(&senders, 0, "def");
    end(&senders, 0);
    let second = second.await;
    assert_eq!((second.text().as_str(), status(&second)), ("abcdef", "ferrum-edge; fwd=miss; collapsed"));
    let third = trial.get("/a", &[]).await;
    assert_eq!((third.text().as_str(), trial.asked().len()), ("abcdef", 1));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_is_not_stored() {
    let (trial, senders) = coming(json!({}), Some(6));
    let mut first = Box::pin(trial.get("/a", &[]));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(trial.get("/a", &[]));
    assert!(second.as_mut().now_or_never().is_none());
    send(&senders, 0, "abc");
    senders.lock().unwrap()[0].send(Err(BodyError::Incomplete)).unwrap();
    let (first, second) = (first.await, second.await);
    assert_eq!((first.text().as_str(), first.cut.is_some()), ("abc", true));
    assert_eq!((second.text().as_str(), second.cut.is_some()), ("abc", true));
    let mut third = Box::pin(trial.get("/a", &[]));
    assert!(third.as_mut().now_or_never().is_none());
    assert_eq!(trial.asked().len(), 2);
    // One that ends early without a word is not whole either.
    send(&senders, 1, "abc");
    end(&senders, 1);
    third.await;
    assert!(trial.get("/a", &[]).now_or_never().is_none());
    assert_eq!(trial.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_turns_out_too_large_goes_on_to_its_client() {
    let (trial, senders) = coming(json!({ "max_object": 5 }), None);
    let mut first = Box::pin(trial.get("/a", &[]));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(trial.get("/a", &[]));
    assert!(second.as_mut().now_or_never().is_none(), "it waits, for how much will come is not known");
    assert_eq!(trial.asked().len(), 1);
    send(&senders, 0, "abc");
    settle().await;
    send(&senders, 0, "def");
    settle().await;
    send(&senders, 0, "ghi");
    settle().await;
    assert!(second.as_mut().now_or_never().is_none());
    assert_eq!(trial.asked().len(), 2, "it asks for itself");
    end(&senders, 0);
    assert_eq!(first.await.text(), "abcdefghi");
    send(&senders, 1, "abcde");
    end(&senders, 1);
    assert_eq!(second.await.text(), "abcde");
    assert_eq!(trial.get("/a", &[]).await.text(), "abcde", "this one is not too large");
    assert_eq!(trial.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_invalid_before_it_is_there_is_not_stored() {
    let (trial, senders) = coming(json!({}), Some(3));
    let mut first = Box::pin(trial.get("/a", &[]));
    assert!(first.as_mut().now_or_never().is_none());
    let mut change = Box::pin(trial.request("POST", "/a", &[], "x"));
    assert!(change.as_mut().now_or_never().is_none());
    for n in [0, 1] {
        send(&senders, n, "abc");
        end(&senders, n);
    }
    drop((first.await, change.await));
    assert!(trial.get("/a", &[]).now_or_never().is_none());
    assert_eq!(trial.asked().len(), 3);
}

/// The cookie that keeps a client at its target is that client's; the response is everybody's.
#[tokio::test]
async fn responses_of_an_upstream_with_sticky_clients_are_stored() {
    let spec = json!({
        "proxies": [{ "id": "p", "listen_path": "/", "upstream_id": "u" }],
        "upstreams": [{
            "id": "u", "sticky": { "cookie": "srv" },
            "targets": [{ "host": "a", "port": 80 }, { "host": "b", "port": 80 }],
        }],
        "plugin_configs": [{ "id": "c", "plugin_name": "response_cache", "proxy_id": "p", "config": {} }],
    });
    let answer = |_: &ReceivedRequest| {
        Response::builder().header("cache-control", "max-age=60").body(b"a".to_vec().into_body()).unwrap()
    };
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &World::default()).answering(answer);
    let first = trial.get("/", &[]).await;
    assert_eq!(status(&first), "ferrum-edge; fwd=uri-miss; stored");
    assert!(first.field("set-cookie").starts_with("srv="), "{}", first.field("set-cookie"));
    let second = trial.get("/", &[]).await;
    assert!(status(&second).contains("; hit"), "{}", status(&second));
    assert_eq!(second.headers.get("set-cookie"), None, "another client's");
    assert_eq!(trial.asked().len(), 1);
}

#[tokio::test]
async fn responses_with_trailers_are_stored_without_them() {
    for flows in [false, true] {
        let trial = answering(json!({}), move |_, n| {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-sum", http::HeaderValue::from_static("1"));
            let body = Body::full_with_trailers(format!("answer {n}"), trailers);
            let body = if flows { body.map(Ok) } else { body };
            let response =
                Response::builder().header("cache-control", "max-age=60").header("trailer", "x-sum");
            response.body(body).unwrap()
        });
        let first = trial.get("/a", &[]).await;
        assert_eq!(
            (first.text().as_str(), status(&first)),
            ("answer 1", "ferrum-edge; fwd=uri-miss; stored")
        );
        assert!(
            first.trailers.is_some_and(|trailers| trailers.contains_key("x-sum")),
            "the first client gets them"
        );
        let hit = trial.get("/a", &[]).await;
        assert_eq!(
            (hit.text().as_str(), hit.field("trailer"), &hit.trailers),
            ("answer 1", "", &None),
            "{flows}"
        );
    }
}
