//! What a second server gets, and what the first never waits for.

use std::sync::Mutex;

use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::tunnel::Tunnel;
use gateway_core::plugin::world::blocking::Inline;
use gateway_core::plugin::world::calls::{Call, CallError, Caller, Calls};
use gateway_core::plugin::world::files::NoFiles;
use gateway_core::plugin::world::meters::Meters;
use gateway_core::plugin::world::tasks::{TaskControl, TaskHandle};
use gateway_core::plugin::world::{Owner, Reach};
use gateway_core::plugin::{Entry, entry};
use gateway_core::testing::Trial;
use http::{Request, Response};
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::*;

const PLUGINS: &[Entry] = &[entry::<RequestMirror>()];

/// A second server that tells a channel what it got.
#[derive(Clone)]
struct Second(UnboundedSender<Request<Bytes>>);

impl Calls for Second {
    fn client(&self, _endpoint: Endpoint) -> Result<Client, Problems> {
        Ok(Client::new(Arc::new(self.clone())))
    }
}

impl Caller for Second {
    fn send<'a>(&'a self, request: Request<Body>) -> Call<'a, Response<Body>> {
        Box::pin(async move {
            let (head, mut body) = request.into_parts();
            let (bytes, _) = body.collect(u64::MAX).await.unwrap();
            self.0.send(Request::from_parts(head, bytes)).unwrap();
            Ok(Response::new("thrown away".into()))
        })
    }

    fn open(&self) -> Call<'_, Tunnel> {
        Box::pin(std::future::ready(Err(CallError::new(gateway_core::http::reply::Cause::ConnectFailed))))
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn max_response(&self) -> u64 {
        1 << 20
    }
}

struct Setup {
    trial: Trial,
    got: Mutex<UnboundedReceiver<Request<Bytes>>>,
    world: World,
    /// The plugin of the same owner, whose queue is that of the one in the trial.
    plugin: RequestMirror,
}

/// Each test has an id of its own, since what is kept is kept by id.
fn setup(id: &str, mut config: Value) -> Setup {
    config["url"] = "http://second.test".into();
    let (sender, got) = unbounded_channel();
    let world = World::new(Reach {
        gateway: "test".into(),
        calls: Arc::new(Second(sender)),
        files: Arc::new(NoFiles),
        blocking: Arc::new(Inline),
        meters: Meters::default(),
        variables: Default::default(),
    });
    let spec = json!({
        "proxies": [{"id": "a", "listen_path": "/", "backend_host": "t", "backend_port": 80, "backend_scheme": "http"}],
        "plugin_configs": [{"id": id, "plugin_name": "request_mirror", "proxy_id": "a", "config": config}],
    });
    let trial = Trial::of_spec(PLUGINS, &spec.to_string(), &world);
    let owner = Owner { plugin: "request_mirror", config: id.parse().unwrap() };
    let settings = serde_json::from_value(config).unwrap();
    let plugin = RequestMirror::build(settings, &world.owned_by(owner)).unwrap_or_else(|it| panic!("{it}"));
    Setup { trial, got: Mutex::new(got), world, plugin }
}

impl Setup {
    /// Runs the task until the handle is dropped.
    fn start(&self) -> TaskHandle {
        let (handle, control) = TaskControl::new();
        let plugin = &self.plugin;
        let sending = queue::send(
            plugin.queue.clone(),
            plugin.client.clone(),
            plugin.max_in_flight,
            plugin.timeout,
            plugin.counts.clone(),
            control,
        );
        drop(tokio::spawn(sending));
        handle
    }

    async fn next(&self) -> Request<Bytes> {
        std::future::poll_fn(|cx| self.got.lock().unwrap().poll_recv(cx)).await.unwrap()
    }

    fn count(&self, outcome: &str) -> String {
        let text = self.world.meters().text();
        let line = text.lines().find(|line| line.contains(&format!("outcome=\"{outcome}\"")));
        line.and_then(|line| line.rsplit_once(' ')).map_or_else(String::new, |(_, count)| count.to_owned())
    }
}

/// A body that comes in pieces and may break off.
struct Pieces(Vec<Option<&'static str>>);

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, BodyError>>> {
        let next = (!self.0.is_empty()).then(|| self.0.remove(0));
        std::task::Poll::Ready(next.map(|piece| match piece {
            Some(piece) => Ok(http_body::Frame::data(Bytes::from_static(piece.as_bytes()))),
            None => Err(BodyError::Incomplete),
        }))
    }
}

async fn post(trial: &Trial, pieces: &[Option<&'static str>]) -> u16 {
    let request = Request::post("/p?q=1").body(Body::stream(Pieces(pieces.to_vec()))).unwrap();
    trial.send(request).await.status
}

#[tokio::test]
async fn copies_have_method_path_headers_and_body() {
    let setup = setup("copies", json!({"remove_headers": ["Authorization"]}));
    let _handle = setup.start();
    let fields = [("authorization", "secret"), ("x-a", "1")];
    assert_eq!(setup.trial.request("PUT", "/p?q=1", &fields, "body").await.text(), "ok");
    let copy = setup.next().await;
    assert_eq!((copy.method().as_str(), copy.uri().to_string().as_str()), ("PUT", "/p?q=1"));
    assert_eq!(
        (&copy.headers()["x-a"], copy.body()),
        (&http::HeaderValue::from_static("1"), &Bytes::from("body"))
    );
    assert!(!copy.headers().contains_key("authorization"));
    assert_eq!(setup.trial.asked()[0].field("authorization"), "secret", "the original keeps it");
    assert_eq!(post(&setup.trial, &[Some("ab"), Some("cd")]).await, 200);
    assert_eq!(setup.next().await.body(), "abcd");
    setup.trial.get("/", &[]).await;
    assert!(setup.next().await.body().is_empty());
}

/// The copy is what the target gets: path, host, identity and way, whatever the client sent.
#[tokio::test]
async fn copies_are_what_the_first_target_gets() {
    for (request, path, host, seen) in
        [("as_sent", "/base/p?q=1", "t", true), ("as_received", "/api/%70?q=1", "client.test", false)]
    {
        let mut setup = setup(request, json!({ "request": request }));
        let config = json!({ "url": "http://second.test", "request": request });
        let spec = json!({
            "proxies": [{"id": "a", "listen_path": "/api", "backend_path": "/base", "backend_host": "t", "backend_port": 80,
                         "backend_scheme": "http"}],
            "plugin_configs": [{"id": request, "plugin_name": "request_mirror", "proxy_id": "a", "config": config}],
        });
        setup.trial = Trial::of_spec(PLUGINS, &spec.to_string(), &setup.world);
        let _handle = setup.start();
        let fields = [("host", "client.test"), ("x-forwarded-for", "10.6.6.6"), ("x-a", "1")];
        assert_eq!(setup.trial.get("/api/%70?q=1", &fields).await.status, 200);
        let (copy, asked) = (setup.next().await, setup.trial.asked().pop().expect("a request"));
        assert_eq!((copy.uri().to_string().as_str(), copy.headers()["host"].to_str().unwrap()), (path, host));
        let way = copy.headers().get("x-forwarded-for").map(|value| value.to_str().unwrap());
        assert_eq!(way, seen.then(|| asked.field("x-forwarded-for")), "{request}");
        if seen {
            assert_eq!(asked.path, path);
            for (name, value) in copy.headers() {
                assert_eq!(asked.headers.get(name), Some(value), "{name}");
            }
        }
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_or_cut_off_is_not_copied() {
    let setup = setup("large", json!({"max_body": 4}));
    let _handle = setup.start();
    assert_eq!(setup.trial.request("POST", "/", &[], "12345").await.status, 200);
    assert_eq!(post(&setup.trial, &[Some("123"), Some("45")]).await, 200);
    assert_ne!(post(&setup.trial, &[Some("123"), None]).await, 200);
    assert_eq!(post(&setup.trial, &[Some("12"), Some("34")]).await, 200);
    assert_eq!(setup.next().await.body(), "1234", "the first that came through");
    assert_eq!(setup.count("too_large"), "2");
    assert_eq!(setup.trial.asked().len(), 3);
}

#[tokio::test]
async fn a_full_queue_drops_and_never_waits() {
    let setup = setup("full", json!({}));
    for _ in 0..queue::MAX_WAITING + 7 {
        assert_eq!(setup.trial.get("/", &[]).await.status, 200);
    }
    assert_eq!(setup.count("dropped"), "7");
    let _handle = setup.start();
    for _ in 0..queue::MAX_WAITING {
        setup.next().await;
    }
}

#[tokio::test]
async fn only_the_share_that_is_wanted() {
    let setup = setup("share", json!({"percentage": 0}));
    setup.trial.get("/", &[]).await;
    assert!(setup.plugin.queue.is_empty());
}

#[test]
fn settings_that_can_not_be_meant_are_refused() {
    for config in [
        json!({}),
        json!({"url": "http://a", "upstream_id": "b"}),
        json!({"url": "http://a/path"}),
        json!({"url": "ftp://a"}),
        json!({"url": "http://u:p@a"}),
        json!({"url": "http://a", "percentage": 101}),
        json!({"url": "http://a", "max_in_flight": 0}),
        json!({"url": "http://a", "timeout": "0ms"}),
        json!({"url": "http://a", "remove_headers": ["a b"]}),
    ] {
        Trial::refused(PLUGINS, "request_mirror", &config);
    }
}
