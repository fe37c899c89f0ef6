//! What goes on for long ends when what its caller was admitted by does: credentials, groups, tokens.

use http::Method;

use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::wire::{Port, Wire};

const CHECKED: &str = "  session_check: 1";
/// Of ann, with the `jti` t-1, until 2100.
const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhbm4iLCJqdGkiOiJ0LTEiLCJleHAiOjQxMDI0NDQ4MDB9.eLiWgzzxLKpLnXgcUXhraf-lEkbcbdUcH0dRiLAooss";
const SECRET: &str = "a secret that has thirty-two bytes and more";

/// A proxy that asks for a key or a token, and then for a group.
fn spec(origin: &Port, mode: &str, key: &str, group: &str, revoked: &str) -> String {
    let port = origin.address.port();
    format!(
        "proxies:\n  - {{id: w, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, \
         backend_port: {port}, auth_mode: {mode}}}\n\
         plugin_configs:\n  - {{id: k, plugin_name: key_auth, proxy_id: w}}\n  \
         - {{id: j, plugin_name: jwt_auth, proxy_id: w, config: {{revoked_tokens: [{revoked}]}}}}\n  \
         - {{id: a, plugin_name: access_control, proxy_id: w, config: {{allowed_groups: [vip]}}}}\n\
         consumers:\n  - {{id: ann, username: ann, acl_groups: [{group}], credentials: {{key_auth: {key}, \
         jwt_auth: {{secret: {SECRET}}}}}}}\n  - {{id: bob, username: bob, acl_groups: [vip], credentials: \
         {{key_auth: other}}}}\n"
    )
}

/// Both a key and a token, of one caller or two.
const BOTH: &str = "all, same_caller: false";

/// What a target sends, which the gateway passes on for as long as nothing ends it.
const STREAMS: [&str; 3] = ["text/event-stream", "application/json", "application/grpc"];

/// A request whose answer has begun: the client, and the target.
async fn begun(edge: &Edge, origin: &Port, credentials: &str, kind: &str) -> (Talker, Talker) {
    let mut client = edge.talker().await;
    client.wire.send(format!("GET / HTTP/1.1\r\nhost: a.test\r\n{credentials}\r\n")).await;
    let mut far = Talker::new(Wire::new(origin.accept().await));
    far.request().await.unwrap();
    let head =
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n");
    far.wire.send(head).await;
    assert_eq!(client.response(&Method::GET).await.unwrap().status(), 200);
    assert_eq!(client.data().await.unwrap().unwrap(), "hi");
    (client, far)
}

/// The answer breaks off, on both sides, and the record says why.
async fn is_revoked(edge: &mut Edge, mut client: Talker, mut far: Talker, what: &str) {
    client.data().await.expect_err("it is cut off");
    far.wire.closed().await;
    drop((client, far));
    assert_eq!(edge.records.next().await.reason(), "revoked", "{what}");
}

#[tokio::test]
async fn answers_end_with_a_credential_or_a_group() {
    for kind in STREAMS {
        for (key, group) in [("new", "vip"), ("sesame", "staff")] {
            let origin = Port::listen(None).await;
            let mut edge = Edge::start_with(CHECKED, &spec(&origin, "single", "sesame", "vip", ""));
            let (client, far) = begun(&edge, &origin, "x-api-key: sesame\r\n", kind).await;
            edge.reload(&spec(&origin, "single", key, group, ""));
            is_revoked(&mut edge, client, far, &format!("{kind} {key} {group}")).await;
        }
    }
}

#[tokio::test]
async fn answers_end_with_their_token() {
    let origin = Port::listen(None).await;
    let mut edge = Edge::start_with(CHECKED, &spec(&origin, "single", "sesame", "vip", ""));
    let (client, far) =
        begun(&edge, &origin, &format!("authorization: Bearer {TOKEN}\r\n"), STREAMS[0]).await;
    edge.reload(&spec(&origin, "single", "sesame", "vip", "t-1"));
    is_revoked(&mut edge, client, far, "the token").await;
}

/// Where several plugins have to recognise the caller, each of them counts: the token is ann's, the key may be bob's.
#[tokio::test]
async fn answers_end_with_any_of_their_credentials() {
    for credentials in ["x-api-key: sesame", "x-api-key: other"] {
        for (key, revoked) in [("sesame", "t-1"), ("new", "")] {
            let origin = Port::listen(None).await;
            let mut edge = Edge::start_with(CHECKED, &spec(&origin, BOTH, "sesame", "vip", ""));
            let credentials = format!("{credentials}\r\nauthorization: Bearer {TOKEN}\r\n");
            let (client, far) = begun(&edge, &origin, &credentials, STREAMS[0]).await;
            edge.reload(&spec(&origin, BOTH, key, "vip", revoked));
            is_revoked(&mut edge, client, far, &format!("{credentials} {key} {revoked}")).await;
        }
    }
    // The key of the one who is not the caller in the end.
    let origin = Port::listen(None).await;
    let before = spec(&origin, BOTH, "sesame", "vip", "");
    let mut edge = Edge::start_with(CHECKED, &before);
    let credentials = format!("x-api-key: other\r\nauthorization: Bearer {TOKEN}\r\n");
    let (client, far) = begun(&edge, &origin, &credentials, STREAMS[0]).await;
    edge.reload(&before.replace("key_auth: other", "key_auth: another"));
    is_revoked(&mut edge, client, far, "bob's key").await;
}

/// `dave:correct horse`, and another user.
const DAVE: &str = "dave:$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e\n";
const ERIN: &str = "erin:$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e\n";

fn basic_spec(origin: &Port, file: &std::path::Path) -> String {
    format!(
        "proxies:\n  - {{id: w, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {}}}\n\
         plugin_configs:\n  - {{id: b, plugin_name: basic_auth, proxy_id: w, config: {{htpasswd_files: ['{}'], \
         refresh: 1s}}}}\n",
        origin.address.port(),
        file.display()
    )
}

/// Also where the settings name another file from now on.
#[tokio::test]
async fn answers_end_with_their_user_in_a_file() {
    let folder = std::env::temp_dir().join(format!("ferrum-standing-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for is_reload in [false, true] {
        let (file, other) = (folder.join("users"), folder.join("others"));
        std::fs::write(&file, format!("{DAVE}{ERIN}")).unwrap();
        std::fs::write(&other, ERIN).unwrap();
        let origin = Port::listen(None).await;
        let mut edge = Edge::start_with(CHECKED, &basic_spec(&origin, &file));
        // `dave:correct horse`
        let dave = "authorization: Basic ZGF2ZTpjb3JyZWN0IGhvcnNl\r\n";
        let (client, far) = begun(&edge, &origin, dave, STREAMS[0]).await;
        if is_reload {
            edge.reload(&basic_spec(&origin, &other));
        } else {
            std::fs::write(&file, ERIN).unwrap();
        }
        is_revoked(&mut edge, client, far, "the user").await;
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn introspection_spec(origin: &Port, server: &Port, consumers: &str) -> String {
    format!(
        "proxies:\n  - {{id: w, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {}}}\n\
         plugin_configs:\n  - {{id: i, plugin_name: oauth2_introspection, proxy_id: w, config: {{client_id: edge, \
         require_consumer: true, introspection_url: 'http://127.0.0.1:{}/'}}}}\nconsumers: {consumers}\n",
        origin.address.port(),
        server.address.port()
    )
}

/// An authorization server that answers everything so.
fn answers(server: Port, answer: String) {
    tokio::spawn(async move {
        loop {
            let mut wire = Talker::new(Wire::new_patient(server.accept_ever().await));
            let answer = answer.clone();
            tokio::spawn(async move {
                while wire.request().await.is_ok() && wire.body().await.is_ok() {
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
                    wire.wire.send(head).await;
                }
            });
        }
    });
}

#[tokio::test]
async fn answers_end_when_a_token_that_was_asked_about_expires() {
    let (origin, server) = (Port::listen(None).await, Port::listen(None).await);
    let spec = introspection_spec(&origin, &server, "[{id: ann, username: ann}]");
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    answers(server, format!(r#"{{"active":true,"sub":"ann","exp":{}}}"#, since.as_secs() + 3));
    let mut edge = Edge::start_with(CHECKED, &spec);
    let (client, far) = begun(&edge, &origin, "authorization: Bearer t\r\n", STREAMS[0]).await;
    is_revoked(&mut edge, client, far, "the token's end").await;
}

/// What is remembered of a token is of the consumers of then.
#[tokio::test]
async fn a_remembered_token_lets_nobody_in_whose_consumer_is_gone() {
    let (origin, server) = (Port::listen(None).await, Port::listen(None).await);
    let signed = spec(&origin, "single", "sesame", "vip", "");
    let gone = signed.replace("{id: ann, username: ann,", "{id: ann, username: anna,");
    let asked = |consumers| introspection_spec(&origin, &server, consumers);
    let (asked, asked_gone) = (asked("[{id: ann, username: ann}]"), asked("[{id: bob, username: bob}]"));
    answers(server, r#"{"active":true,"sub":"ann"}"#.to_owned());
    for (before, after, token) in [(&signed, &gone, TOKEN), (&asked, &asked_gone, "t")] {
        let edge = Edge::start(before);
        let credentials = format!("authorization: Bearer {token}\r\n");
        for _ in 0..2 {
            drop(begun(&edge, &origin, &credentials, STREAMS[0]).await);
        }
        edge.reload(after);
        let request = format!("GET / HTTP/1.1\r\nhost: a.test\r\n{credentials}\r\n");
        assert_eq!(edge.ask(&request).await.0.status(), 401);
    }
}
