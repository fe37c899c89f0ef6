//! The examples on plugins' reference pages: each is loaded, and its requests get the answers that it says.

use bytes::Bytes;
use http::Method;

use crate::support::edge::Edge;
use crate::support::h2 as two;
use crate::support::standing::Standing;
use crate::support::talk::{Ask, Client, Will, WireProtocol};
use crate::support::wire::Port;

/// One request, as a line of `curl` says it.
struct Line {
    method: Method,
    path: String,
    fields: Vec<(String, String)>,
    body: String,
    status: u16,
}

/// The words of a command, in quotes or not.
fn words(text: &str) -> Vec<String> {
    let (mut all, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for c in text.chars() {
        match c {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => all.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    all.push(word);
    all.retain(|word| !word.is_empty());
    all
}

fn read(line: &str) -> Line {
    let (command, status) = line.rsplit_once(" -> ").expect("an answer");
    let mut line = Line {
        method: Method::GET,
        path: String::new(),
        fields: Vec::new(),
        body: String::new(),
        status: status.parse().expect("a status"),
    };
    let words = words(command);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut next = || words.next().expect("an argument").as_str();
        match word.as_str() {
            "-X" => line.method = next().parse().expect("a method"),
            "-d" => {
                line.method = Method::POST;
                line.body = next().to_owned();
            }
            "-F" => {
                line.method = Method::POST;
                line.fields.push(("content-type".to_owned(), "multipart/form-data; boundary=xyz".to_owned()));
                line.body = form(next());
            }
            "-H" => {
                let (name, value) = next().split_once(": ").expect("a field");
                line.fields.push((name.to_owned(), value.to_owned()));
            }
            url => line.path = url.strip_prefix("http://127.0.0.1:8000").expect("a URL").to_owned(),
        }
    }
    line
}

/// `NAME=CONTENT;filename=FILE` as a form.
fn form(text: &str) -> String {
    let (name, rest) = text.split_once('=').expect("a field");
    let (content, filename) = rest.split_once(";filename=").expect("a file");
    format!(
        "--xyz\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"{filename}\"\r\n\r\n{content}\r\n--xyz--\r\n"
    )
}

/// A gRPC server that answers every call with the same message; its port.
async fn grpc() -> u16 {
    // The fields 1 and 2, texts.
    const MESSAGE: &[u8] = b"\0\0\0\0\x08\x0a\x017\x12\x03cup";
    let port = Port::listen(None).await;
    let at = port.address.port();
    let mut calls = two::origin(port);
    tokio::spawn(async move {
        while let Some((mut request, mut respond)) = calls.recv().await {
            while let Ok(Some(_)) = two::data(request.body_mut()).await {}
            let head = http::Response::builder().header("content-type", "application/grpc");
            let Ok(mut body) = respond.send_response(head.body(()).expect("a head"), false) else { continue };
            drop(body.send_data(Bytes::from_static(MESSAGE), false));
            drop(body.send_trailers(two::map(&[("grpc-status", "0")])));
        }
    });
    at
}

async fn holds(name: &str, example: &str, origin: &Standing, grpc: u16) {
    let folder = crate::support::tls::authority().folder().join(format!("example-{name}"));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("GeoLite2-Country.mmdb"), include_bytes!("admission/countries.mmdb"))
        .expect("a file");
    std::fs::write(folder.join("shop.pb"), include_bytes!("examples/shop.pb")).expect("a file");
    let spec = example
        .replace("backend_port: 50051", &format!("backend_port: {grpc}"))
        .replace("backend_port: 3000", &format!("backend_port: {}", origin.address.port()))
        .replace("/var/lib/ferrum-edge", &folder.display().to_string());
    let edge = Edge::start(&spec);
    let lines: Vec<Line> =
        example.lines().filter_map(|line| line.strip_prefix("# curl ")).map(read).collect();
    assert!(!lines.is_empty(), "{name}: nothing is asked");
    for (n, line) in lines.iter().enumerate() {
        let fields: Vec<(&str, &str)> = line.fields.iter().map(|(name, value)| (&**name, &**value)).collect();
        let body = if line.body.is_empty() { Will::Nothing } else { Will::Length(line.body.len()) };
        let ask = Ask { method: line.method.clone(), path: &line.path, headers: &fields, body };
        let mut client = Client::ask(&edge, WireProtocol::H1, ask).await;
        if !line.body.is_empty() && client.send(line.body.as_bytes()).await.is_ok() {
            drop(client.finish(&[]).await);
        }
        let got = client.head().await.expect("an answer");
        assert_eq!(got.status, line.status, "{name}: line {}: {:?}", n + 1, got.headers);
    }
}

#[tokio::test]
async fn the_examples_of_plugins_do_what_they_say() {
    let (origin, grpc) = (Standing::start("o").await, grpc().await);
    let mut seen = Vec::new();
    for entry in ferrum_edge::plugins().entries().iter().filter(|entry| !entry.example.is_empty()) {
        holds(entry.name, entry.example, &origin, grpc).await;
        seen.push(entry.name);
    }
    let mut needed = Vec::new();
    for name in ADMISSION.iter().chain(&CONTENT).filter(|name| !seen.contains(name)) {
        needed.push(*name);
    }
    assert!(needed.is_empty(), "there is no example for {needed:?}");
}

/// Further plugins that are hard to set up without one.
const CONTENT: [&str; 2] = ["grpc_json_transcoding", "upload"];

/// The plugins that decide who may pass, and how much.
const ADMISSION: [&str; 32] = [
    "access_control",
    "bandwidth_limit",
    "basic_auth",
    "bot_detection",
    "concurrency_limiting",
    "connection_limit",
    "cors",
    "csrf",
    "forward_auth",
    "geo_restriction",
    "graphql_limits",
    "grpc_deadline",
    "hmac_auth",
    "ip_restriction",
    "jwks_auth",
    "jwt_auth",
    "key_auth",
    "ldap_auth",
    "mtls_auth",
    "oauth2_introspection",
    "oidc",
    "quota",
    "rate_limiting",
    "request_deduplication",
    "request_size_limiting",
    "request_validation",
    "response_size_limiting",
    "security_headers",
    "traffic_quota",
    "udp_rate_limiting",
    "ws_message_size_limiting",
    "ws_rate_limiting",
];
