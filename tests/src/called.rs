//! What a request calls itself, an upgrade or a gRPC call, switches no plugin off, over any version of HTTP.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use h2::ext::Protocol;
use http::{Method, Request};

use crate::http3::raw::{PLAIN, Raw, headers, says};
use crate::support::edge::Edge;
use crate::support::h2::client;
use crate::support::h3::{Client as H3Client, edge_with};
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::talk::{Ask, Client, Will, WireProtocol};
use crate::support::wire::connect;

/// A folder with one file, gone with it.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ferrum-called-{}-{}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("file.txt"), "a file").unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A descriptor set with `service S { rpc M(E) returns (E); }` of the package `a`, in Base64.
const SET: &str = "CikKAWESAWEiAwoBRTIUCgFTEg8KAU0SBC5hLkUaBC5hLkViBnByb3RvMw==";

/// Proxies at these paths, each with one plugin, to a target that ignores `Upgrade`.
async fn stand(plugins: &[(&str, &str, String)]) -> (Edge, Standing) {
    let origin = Standing::start("o").await;
    let (mut proxies, mut configs) = (String::from("proxies:\n"), String::from("plugin_configs:\n"));
    for (id, name, config) in plugins {
        let backend = format!("{}, backend_http_version: '1.1'", origin.backend());
        proxies.push_str(&format!(
            "  - {{id: {id}, listen_path: /{id}, {backend}, plugins: [{{plugin_config_id: {id}}}]}}\n"
        ));
        configs.push_str(&format!(
            "  - {{id: {id}, plugin_name: {name}, scope: proxy_group, config: {config}}}\n"
        ));
    }
    (edge_with("", &format!("{proxies}{configs}")), origin)
}

/// Asks for a WebSocket over HTTP/1.1: status and body.
async fn upgrade(edge: &Edge, path: &str) -> (u16, String) {
    let (head, body) = edge
        .ask(&format!(
            "GET {path} HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ))
        .await;
    (head.status(), body)
}

/// The same over HTTP/2: the status.
async fn connect_h2(edge: &Edge, path: &str) -> u16 {
    let mut requests = client(connect(edge.http(), None).await).await;
    // A first answer proves that the settings have come.
    let marker = Request::get("http://marker.test/").body(()).unwrap();
    soon(requests.send_request(marker, true).unwrap().0).await.unwrap();
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri(format!("http://a.test{path}"))
        .version(http::Version::HTTP_2)
        .header("sec-websocket-version", "13")
        .body(())
        .unwrap();
    request.extensions_mut().insert(Protocol::from_static("websocket"));
    let (answer, _sending) = requests.send_request(request, false).unwrap();
    soon(answer).await.unwrap().status().as_u16()
}

/// The same over HTTP/3: whether it is answered with this status.
async fn connect_h3_says(edge: &Edge, path: &str, status: u16) -> bool {
    let raw = Raw::open(edge.https(), PLAIN).await;
    let (_send, mut recv) = raw
        .begin(&headers(&[
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":authority", "a.test"),
            (":path", path),
            ("sec-websocket-version", "13"),
        ]))
        .await;
    says(&soon(recv.read_to_end(1 << 20)).await.unwrap(), status)
}

/// The gRPC status of a POST under gRPC's media type, over HTTP/1.1, HTTP/2 and HTTP/3.
async fn called(edge: &Edge, path: &str, fields: &[(&str, &str)]) -> [String; 3] {
    let mut lines: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    lines.push_str("content-type: application/grpc\r\ncontent-length: 1\r\n\r\nx");
    let (first, _) = edge.ask(&format!("POST {path} HTTP/1.1\r\nhost: a.test\r\n{lines}")).await;
    let mut all = vec![("content-type", "application/grpc")];
    all.extend_from_slice(fields);
    let ask = Ask { method: Method::POST, path, headers: &all, body: Will::Length(1) };
    let mut second = Client::ask(edge, WireProtocol::H2, ask).await;
    drop(second.send(b"x").await);
    drop(second.finish(&[]).await);
    let second = second.head().await.unwrap();
    let third = H3Client::open(edge.https()).await;
    let mut request =
        Request::builder().method("POST").uri(format!("https://a.test{path}")).body(()).unwrap();
    *request.headers_mut() = crate::support::h2::map(&all);
    let mut third = third.send(request).await;
    drop(soon(third.0.send_data("x".into())).await);
    drop(soon(third.0.finish()).await);
    let third = third.head().await.unwrap();
    let third = third.headers().get("grpc-status").and_then(|status| status.to_str().ok()).unwrap_or("");
    [first.field("grpc-status").to_owned(), second.field("grpc-status").to_owned(), third.to_owned()]
}

#[tokio::test]
async fn an_upgrade_is_answered_by_who_answers_for_the_target() {
    let folder = Folder::new();
    let (edge, origin) = stand(&[
        ("st", "static_files", format!("{{root: {:?}}}", folder.0)),
        ("a.S", "grpc_json_transcoding", format!("{{descriptor_set: {SET}, auto_mapping: true}}")),
        ("mock", "response_mock", "{rules: [{path: /mock, status_code: 200, body: mocked}]}".into()),
    ])
    .await;
    for (path, status) in [("/st/other", 404), ("/a.S/other", 404), ("/a.S/M", 405)] {
        assert_eq!(upgrade(&edge, path).await.0, status, "{path}");
        assert_eq!(connect_h2(&edge, path).await, status, "{path}");
        assert!(connect_h3_says(&edge, path, status).await, "{path}");
    }
    // What is there is there for whoever would take a WebSocket instead. Without 101 success says that there is one.
    for (path, text) in [("/st/file.txt", "a file"), ("/mock", "mocked")] {
        assert_eq!(upgrade(&edge, path).await, (200, text.to_owned()));
        assert_eq!(connect_h2(&edge, path).await, 501, "{path}");
        assert!(connect_h3_says(&edge, path, 501).await, "{path}");
    }
    assert_eq!(origin.served(), 0);
}

/// A target behind that is passed what is not there may have WebSockets.
#[tokio::test]
async fn an_upgrade_passes_where_others_pass() {
    let folder = Folder::new();
    let (edge, origin) =
        stand(&[("st", "static_files", format!("{{root: {:?}, passthrough: true}}", folder.0))]).await;
    assert!(upgrade(&edge, "/st/file.txt").await.1.starts_with("o\n"));
    assert_eq!(origin.served(), 1);
}

#[tokio::test]
async fn a_call_is_answered_by_who_answers_for_the_target() {
    let folder = Folder::new();
    let root = format!("{:?}", folder.0);
    let (edge, origin) = stand(&[
        ("st", "static_files", format!("{{root: {root}}}")),
        ("up", "upload", format!("{{path: {root}}}")),
    ])
    .await;
    for path in ["/st/a.S/M", "/st/file.txt", "/up"] {
        assert_eq!(called(&edge, path, &[]).await, ["12", "12", "12"], "{path}");
    }
    assert_eq!(origin.served(), 0);
}

#[tokio::test]
async fn a_coded_body_is_decoded_whatever_it_calls_itself() {
    let (edge, origin) = stand(&[("d", "request_decompression", "{}".into())]).await;
    let refused = called(&edge, "/d", &[("content-encoding", "compress")]).await;
    assert_eq!(refused, ["12", "12", "12"]);
    let broken = called(&edge, "/d", &[("content-encoding", "gzip")]).await;
    assert_eq!(broken, ["3", "3", "3"]);
    assert_eq!(origin.served(), 0);
}

#[tokio::test]
async fn operations_are_limited_in_upgrades_too() {
    let (edge, origin) = stand(&[("gql", "graphql_limits", "{max_depth: 3}".into())]).await;
    let deep = "%7Ba%7Bb%7Bc%7Bd%7D%7D%7D%7D";
    for (name, status) in [("query", 400), ("%71uery", 400), ("QUERY", 400), ("extensions", 403)] {
        let path = format!("/gql?a=b&{name}={deep}");
        assert_eq!(upgrade(&edge, &path).await.0, status, "{name}");
        assert_eq!(connect_h2(&edge, &path).await, status, "{name}");
        assert!(connect_h3_says(&edge, &path, status).await, "{name}");
    }
    assert_eq!(origin.served(), 0);
    assert_eq!(upgrade(&edge, "/gql?query=%7Ba%7D").await.0, 200);
    assert_eq!(origin.served(), 1);
    // A target that answers without a WebSocket has found an operation elsewhere, such as a stored one.
    let (status, text) = upgrade(&edge, "/gql?id=stored").await;
    assert_eq!((status, text.contains("graphql_not_switched")), (400, true), "{text}");
    origin.answer(404);
    assert_eq!(upgrade(&edge, "/gql?id=stored").await.0, 404);
    assert_eq!(origin.served(), 3);
}

/// Over HTTP/2 and HTTP/3 a target's success would say that the stream is a WebSocket.
#[tokio::test]
async fn a_target_that_does_not_switch_opens_no_websocket() {
    let (mut edge, origin) = stand(&[("id", "correlation_id", "{}".into())]).await;
    assert_eq!(upgrade(&edge, "/id").await.0, 200);
    assert_eq!(edge.records.next().await.status(), 200);
    assert_eq!(connect_h2(&edge, "/id").await, 501);
    edge.records.next().await;
    assert_eq!(edge.records.next().await.reason(), "upgrade_refused");
    assert!(connect_h3_says(&edge, "/id", 501).await);
    assert_eq!(origin.served(), 3);
}
