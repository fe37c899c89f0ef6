//! Plugins that recognise callers by signatures, certificates, directories and other servers, by place, and limits of gRPC:
//! the same table over every protocol.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use http::{Method, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::ways::{Fields, Row, WAYS, Way, ask, decides};
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::slapd::Slapd;
use crate::support::standing::Standing;
use crate::support::wire::{Wire, connect_as};
use crate::support::{h2, h3, soon, tls};

const SECRET: &str = "a secret of thirty-two bytes, ok";

/// A proxy with these plugin configs, of which each runs everywhere, and two consumers.
fn spec(origin: &Standing, plugins: &[(&str, &str)]) -> String {
    let mut text = format!(
        "proxies:\n  - {{id: a, listen_path: /, {}}}\nconsumers:\n  \
         - {{id: ann, username: ann, acl_groups: [staff], credentials: {{key_auth: sesame, hmac_auth: '{SECRET}', \
         mtls_auth: {{identity: ann.test}}}}}}\n  \
         - {{id: bob, username: bob, credentials: {{key_auth: hunter2}}}}\nplugin_configs:\n",
        origin.backend()
    );
    for (n, (plugin, config)) in plugins.iter().enumerate() {
        text.push_str(&format!("  - {{id: p{n}, plugin_name: {plugin}, scope: global, config: {config}}}\n"));
    }
    text
}

fn row<'a>(plugin: &'a str, good: Fields<'a>, bad: Fields<'a>, status: u16, grpc: &'a str) -> Row<'a> {
    let refused = (status, grpc);
    Row { plugin, config: "", good: ("/", good, ""), bad: ("/", bad, ""), refused, field: "", ways: &WAYS }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for n in 0..=chunk.len() {
            out.push(char::from(LETTERS[(bits >> (18 - 6 * n) & 63) as usize]));
        }
    }
    out + "=".repeat((3 - bytes.len() % 3) % 3).as_str()
}

#[tokio::test]
async fn groups_decide_in_every_protocol() {
    let origin = Standing::start("o").await;
    let plugins = [("key_auth", "{}"), ("access_control", "{allowed_groups: [staff]}")];
    let edge = h3::edge_with("", &spec(&origin, &plugins));
    let (good, bad) = ([("x-api-key", "sesame")], [("x-api-key", "hunter2")]);
    decides(&edge, &origin, &row("access_control", &good, &bad, 403, "7")).await;
}

/// A message signature (RFC 9421) for a request for `/`.
fn signature(method: &str) -> [(&'static str, String); 2] {
    let created = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
    let parameters = format!(
        "(\"@method\" \"@authority\" \"@path\" \"@query\");created={created};keyid=\"ann\";alg=\"hmac-sha256\""
    );
    let base = format!(
        "\"@method\": {method}\n\"@authority\": a.test\n\"@path\": /\n\"@query\": ?\n\"@signature-params\": {parameters}"
    );
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), base.as_bytes());
    [
        ("signature-input", format!("sig={parameters}")),
        ("signature", format!("sig=:{}:", base64(tag.as_ref()))),
    ]
}

#[tokio::test]
async fn signatures_decide_in_every_protocol() {
    let origin = Standing::start("o").await;
    let edge = h3::edge_with("", &spec(&origin, &[("hmac_auth", "{}")]));
    for way in WAYS {
        let (method, other) = if way == Way::Grpc { ("POST", "GET") } else { ("GET", "POST") };
        let (good, bad) = (signature(method), signature(other));
        let [good, bad] =
            [&good, &bad].map(|fields| fields.each_ref().map(|(name, text)| (*name, text.as_str())));
        let row = Row { ways: &[way], field: "www-authenticate", ..row("hmac_auth", &good, &bad, 401, "16") };
        decides(&edge, &origin, &row).await;
    }
}

#[tokio::test]
async fn certificates_that_a_proxy_forwards_decide_in_every_protocol() {
    let origin = Standing::start("o").await;
    let field = |name: &str| {
        let identity = tls::authority().issue(&format!("forwarded-{name}"), &[name]);
        let pem = std::fs::read_to_string(&identity.cert).expect("a file");
        let base64: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
        format!(":{base64}:")
    };
    let (known, unknown) = (field("ann.test"), field("eve.test"));
    let (good, bad) = ([("client-cert", known.as_str())], [("client-cert", unknown.as_str())]);
    let spec = spec(&origin, &[("mtls_auth", "{trust_forwarded: true}")]);
    let edge = h3::edge_with("  trusted_proxies: [127.0.0.0/8]\n", &spec);
    decides(&edge, &origin, &row("mtls_auth", &good, &bad, 403, "7")).await;
    // From anybody else the field says nothing.
    let edge = h3::edge_with("", &spec);
    for way in WAYS {
        let (status, fields) = ask(&edge, way, "/", &good, "").await;
        assert!(
            status == 401 || fields.get("grpc-status").is_some_and(|code| code == "16"),
            "{way:?} {status}"
        );
    }
}

/// The status of `GET /` by a client that shows this certificate, or none.
async fn shown(edge: &Edge, version: &str, identity: Option<&tls::Identity>) -> u16 {
    let client = tls::authority().client(&[version]);
    let client = identity.map_or_else(|| client.clone(), |identity| tls::showing(&client, identity));
    if version == "h3" {
        let answer = h3::Client::open_as(edge.https(), client).await.get("/").await;
        return answer.head.status().as_u16();
    }
    let io = connect_as(edge.https(), client).await;
    if version == "h2" {
        let mut requests = h2::client(io).await;
        let request = Request::get("https://a.test/").body(()).expect("a request");
        let (answer, _) = requests.send_request(request, true).expect("a request sent");
        return soon(answer).await.expect("an answer").status().as_u16();
    }
    let mut talker = Talker::new(Wire::new(io));
    talker.wire.send("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    talker.response(&Method::GET).await.expect("an answer").status()
}

#[tokio::test]
async fn certificates_of_handshakes_decide_in_every_version() {
    let origin = Standing::start("o").await;
    let (own, ca) = (tls::localhost(), tls::authority().ca());
    let settings = format!(
        "  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}], client_ca_path: {ca:?}, client_cert_required: false}}\n",
        own.cert, own.key
    );
    let edge = h3::edge_with(&settings, &spec(&origin, &[("mtls_auth", "{}")]));
    let (ann, eve) =
        (tls::authority().issue("ann", &["ann.test"]), tls::authority().issue("eve", &["eve.test"]));
    for version in ["http/1.1", "h2", "h3"] {
        for (identity, expected) in [(Some(&ann), 200), (Some(&eve), 403), (None, 401)] {
            assert_eq!(shown(&edge, version, identity).await, expected, "{version} {expected}");
        }
    }
    assert_eq!(origin.served(), 3);
}

/// Whether a client with this certificate is turned away in its handshake.
async fn turned_away(edge: &Edge, version: &str, identity: &tls::Identity) -> bool {
    let client = tls::showing(&tls::authority().client(&[version]), identity);
    if version == "h3" {
        let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a socket");
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(client).expect("TLS 1.3");
        let config = quinn::ClientConfig::new(Arc::new(crypto));
        let connecting = endpoint.connect_with(config, edge.https(), "gateway.test").expect("begun");
        // The client takes its part for done before its certificate is looked at.
        let closed = match soon(connecting).await {
            Ok(quic) => soon(quic.closed()).await,
            Err(error) => error,
        };
        return matches!(closed, quinn::ConnectionError::ConnectionClosed(_));
    }
    let mut io = connect_as(edge.https(), client).await;
    let mut answer = Vec::new();
    if io.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").await.is_ok() {
        soon(io.read_to_end(&mut answer)).await.ok();
    }
    answer.is_empty()
}

#[tokio::test]
async fn a_reload_changes_whose_certificates_are_trusted_in_every_version() {
    let origin = Standing::start("o").await;
    let (own, ca) = (tls::localhost(), tls::authority().ca());
    let settings = format!(
        "  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}], client_ca_path: {ca:?}, client_cert_required: false}}\n",
        own.cert, own.key
    );
    let spec = spec(&origin, &[("mtls_auth", "{}")]);
    let mut edge = h3::edge_with(&settings, &spec);
    let ann = tls::authority().issue("ann-again", &["ann.test"]);
    for version in ["http/1.1", "h3"] {
        assert_eq!(shown(&edge, version, Some(&ann)).await, 200, "{version}");
    }
    // An authority that has issued nothing to anybody.
    let (ca, other) = (format!("client_ca_path: {ca:?}"), format!("client_ca_path: {:?}", own.cert));
    edge.reload_with(&ca, &other, &spec);
    for version in ["http/1.1", "h3"] {
        assert!(turned_away(&edge, version, &ann).await, "{version}");
        assert_eq!(shown(&edge, version, None).await, 401, "{version}");
    }
}

/// Whether a client that may know the gateway from before is answered.
async fn answered(edge: &Edge, client: &Arc<rustls::ClientConfig>) -> bool {
    let mut io = connect_as(edge.https(), client.clone()).await;
    let mut answer = Vec::new();
    if io.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").await.is_ok() {
        soon(io.read_to_end(&mut answer)).await.ok();
    }
    answer.starts_with(b"HTTP/1.1 200")
}

#[tokio::test]
async fn revoked_certificates_are_turned_away_in_every_version() {
    let origin = Standing::start("o").await;
    let (own, authority) = (tls::localhost(), tls::authority());
    let list = authority.folder().join("callers.crl");
    authority.revoke(&list, &[77], 4000);
    let settings = format!(
        "  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}], client_ca_path: {:?}, client_crl_path: {list:?}}}\n",
        own.cert,
        own.key,
        authority.ca()
    );
    let spec = spec(&origin, &[("mtls_auth", "{}")]);
    let edge = h3::edge_with(&settings, &spec);
    let revoked = authority.issue_numbered("ann-revoked", &["ann.test"], 77);
    let good = authority.issue_numbered("ann-good", &["ann.test"], 78);
    let resuming = tls::showing(&authority.client(&["http/1.1"]), &good);
    assert!(answered(&edge, &resuming).await);
    for version in ["http/1.1", "h3"] {
        assert!(turned_away(&edge, version, &revoked).await, "{version}");
        assert_eq!(shown(&edge, version, Some(&good)).await, 200, "{version}");
    }
    // Read again with a reload, which ends what could be resumed.
    authority.revoke(&list, &[78], 4000);
    edge.reload(&spec);
    assert!(!answered(&edge, &resuming).await);
    for version in ["http/1.1", "h3"] {
        assert!(turned_away(&edge, version, &good).await, "{version}");
        assert_eq!(shown(&edge, version, Some(&revoked)).await, 200, "{version}");
    }
}

#[test]
fn revocation_lists_of_no_use_refuse_the_configuration() {
    let (own, authority) = (tls::localhost(), tls::authority());
    let file = |name: &str| authority.folder().join(name);
    authority.revoke(&file("ended.crl"), &[], 2001);
    authority.revoke(&file("good.crl"), &[], 4000);
    std::fs::create_dir_all(file("no-lists")).unwrap();
    for (name, ca, why) in [
        ("good.crl", true, None),
        ("missing.crl", true, Some("No such file")),
        ("ca.pem", true, Some("no revocation list in this PEM file")),
        ("no-lists", true, Some("no revocation list in this PEM file")),
        ("ended.crl", true, Some("the revocation list has ended")),
        ("good.crl", false, Some("no certificates of clients are checked")),
    ] {
        let ca = if ca { format!(", client_ca_path: {:?}", authority.ca()) } else { String::new() };
        let text = format!(
            "gateway:\n  http: 127.0.0.1:0\n  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}]{ca}, client_crl_path: {:?}}}\nproxies: []\n",
            own.cert,
            own.key,
            file(name)
        );
        let loaded = ferrum_edge::source::file::parse(&text, "f", &ferrum_edge::plugins());
        match why {
            None => assert!(loaded.is_ok(), "{name}"),
            Some(why) => {
                let problems = loaded.expect_err(name).to_string();
                assert!(
                    problems.contains("tls.client_crl_path") && problems.contains(why),
                    "{name}: {problems}"
                );
            }
        }
    }
}

#[tokio::test]
async fn directories_decide_in_every_protocol() {
    let slapd = Slapd::start();
    let origin = Standing::start("o").await;
    let config = format!(
        "{{urls: ['ldap://127.0.0.1:{}'], plaintext: true, bind_dn: 'uid={{username}},ou=people,dc=example,dc=org'}}",
        slapd.plain
    );
    let edge = h3::edge_with("", &spec(&origin, &[("ldap_auth", &config)]));
    let login = |password: &str| format!("Basic {}", base64(format!("ann:{password}").as_bytes()));
    let (right, wrong) = (login("sesame"), login("wrong"));
    let (good, bad) = ([("authorization", right.as_str())], [("authorization", wrong.as_str())]);
    let row = Row { field: "www-authenticate", ..row("ldap_auth", &good, &bad, 401, "16") };
    decides(&edge, &origin, &row).await;
}

#[tokio::test]
async fn other_servers_decide_in_every_protocol() {
    let origin = Standing::start("o").await;
    // The server that is asked lets those pass who show the key.
    let asked = Standing::start("asked").await;
    let server = Edge::start(&spec(&asked, &[("key_auth", "{}")]));
    for convention in ["traefik", "nginx"] {
        let config = format!("{{url: 'http://{}/', convention: {convention}}}", server.http());
        let edge = h3::edge_with("", &spec(&origin, &[("forward_auth", &config)]));
        let (good, bad) = ([("x-api-key", "sesame")], [("x-api-key", "wrong")]);
        decides(&edge, &origin, &row("forward_auth", &good, &bad, 401, "16")).await;
        // While the other server is away, nobody passes.
        let away = config.replace(&server.http().to_string(), "127.0.0.1:1");
        let edge = h3::edge_with("", &spec(&origin, &[("forward_auth", &away)]));
        let served = origin.served();
        for way in WAYS {
            let (status, fields) = ask(&edge, way, "/", &good, "").await;
            let is_refused = fields.get("grpc-status").is_some_and(|code| code == "14");
            assert!(status == 503 || is_refused, "{convention} {way:?} {status} {fields:?}");
        }
        assert_eq!(origin.served(), served);
    }
}

#[tokio::test]
async fn places_decide_in_every_protocol() {
    let origin = Standing::start("o").await;
    // Its only network is 192.0.2.0/24, in DE.
    let database = tls::authority().folder().join("countries.mmdb");
    std::fs::write(&database, include_bytes!("countries.mmdb")).expect("a file");
    let config = format!("{{database: {database:?}, deny_countries: [DE]}}");
    let edge =
        h3::edge_with("  trusted_proxies: [127.0.0.0/8]\n", &spec(&origin, &[("geo_restriction", &config)]));
    let (good, bad) = ([("x-forwarded-for", "198.51.100.7")], [("x-forwarded-for", "192.0.2.7")]);
    decides(&edge, &origin, &row("geo_restriction", &good, &bad, 403, "7")).await;
}

#[tokio::test]
async fn limits_of_grpc_leave_other_traffic_alone() {
    let origin = Standing::start("o").await;
    let deadline = "{require_deadline: true, max_deadline: 10s}";
    let edge = h3::edge_with("", &spec(&origin, &[("grpc_deadline", deadline)]));
    let good = [("grpc-timeout", "5S")];
    decides(&edge, &origin, &Row { ways: &[Way::Grpc], ..row("grpc_deadline", &good, &[], 0, "3") }).await;
    for way in WAYS.into_iter().filter(|way| *way != Way::Grpc) {
        let before = origin.served();
        ask(&edge, way, "/", &[], "").await;
        assert_eq!(origin.served(), before + 1, "{way:?}");
    }
    let by_method = "{limits: [{rate: 1, per: 1d}], limit_by: grpc_method, on_missing: allow}";
    let edge = h3::edge_with("", &spec(&origin, &[("rate_limiting", by_method)]));
    for path in ["/shop.Cart/Add", "/shop.Cart/Clear"] {
        let method = Row {
            ways: &[Way::Grpc],
            good: (path, &[], ""),
            bad: (path, &[], ""),
            ..row("rate_limiting", &[], &[], 0, "8")
        };
        decides(&edge, &origin, &method).await;
    }
    for way in WAYS.into_iter().filter(|way| *way != Way::Grpc) {
        for _ in 0..2 {
            let before = origin.served();
            ask(&edge, way, "/shop.Cart/Add", &[], "").await;
            assert_eq!(origin.served(), before + 1, "{way:?} is counted");
        }
    }
}
