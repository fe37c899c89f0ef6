//! How long the steps to a new connection take: in records and in metrics, and not where a kept one is used.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;

use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use crate::process::{Folder, Gateway, get, until};

/// One end of a connection over TLS.
pub(crate) type Stream = StreamOwned<ServerConnection, TcpStream>;

/// A server over TLS for `localhost`: its port, and its certificate, which is its own root.
pub(crate) fn server(serve: impl Fn(Stream) + Clone + Send + 'static) -> (u16, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for tcp in listener.incoming().map_while(Result::ok) {
            let (config, serve) = (config.clone(), serve.clone());
            thread::spawn(move || serve(StreamOwned::new(ServerConnection::new(config).unwrap(), tcp)));
        }
    });
    (port, made.cert.pem())
}

/// Answers whatever comes, and keeps the connection.
fn answers(mut stream: Stream) {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).is_ok_and(|read| read > 0) {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").unwrap();
    }
}

#[test]
fn only_who_waits_for_a_connection_has_its_phases() {
    let folder = Folder::new();
    let (port, _) = server(answers);
    folder.write(
        "ferrum.yaml",
        &format!(
            "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1, access_log: {{ path: access.log }} }}
upstreams: [{{ id: group, targets: [{{ host: localhost, port: {port} }}] }}]
proxies: [{{ id: a, listen_path: /, backend_scheme: https, upstream_id: group, backend_tls_verify_server_cert: false }}]
"
        ),
    );
    let gateway = Gateway::start(&folder, |_| {});
    for _ in 0..2 {
        assert!(get(gateway.http, "/").starts_with("HTTP/1.1 200"));
    }
    until("both are recorded", || folder.read("access.log").lines().count() == 2);
    let records: Vec<Value> =
        folder.read("access.log").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for phase in ["dns", "connect", "tls"] {
        let name = format!("upstream.{phase}.duration");
        assert!(records[0][&name].as_f64().is_some_and(|seconds| seconds >= 0.0), "{name}: {}", records[0]);
        assert!(records[1][&name].is_null(), "a kept connection has no phases: {}", records[1]);
    }
    assert!(records[0]["upstream.queue.duration"].is_null());
    let metrics = get(gateway.admin, "/metrics");
    for phase in ["dns", "connect", "tls"] {
        let count = format!(
            "ferrum_upstream_connection_duration_seconds_count{{upstream=\"group\",phase=\"{phase}\"}} 1\n"
        );
        assert!(metrics.contains(&count), "{count}");
    }
}

#[test]
fn who_waits_for_a_target_with_room_is_recorded_with_the_wait() {
    let folder = Folder::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (release, released) = mpsc::channel::<()>();
    thread::spawn(move || {
        for mut tcp in listener.incoming().map_while(Result::ok) {
            let mut buffer = [0; 4096];
            while tcp.read(&mut buffer).is_ok_and(|read| read > 0) {
                released.recv().unwrap();
                tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").unwrap();
            }
        }
    });
    folder.write(
        "ferrum.yaml",
        &format!(
            "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1, access_log: {{ path: access.log }} }}
upstreams: [{{ id: group, targets: [{{ host: 127.0.0.1, port: {port}, max_requests: 1 }}], queue: {{ max_waiting: 5, timeout: 60000ms }} }}]
proxies: [{{ id: a, listen_path: /, backend_scheme: http, upstream_id: group }}]
"
        ),
    );
    let gateway = Gateway::start(&folder, |_| {});
    let http = gateway.http;
    let asking = [(); 2].map(|()| thread::spawn(move || get(http, "/")));
    until("one waits for the other", || {
        get(gateway.admin, "/metrics").contains("http_server_active_requests 2\n")
    });
    release.send(()).unwrap();
    release.send(()).unwrap();
    for asking in asking {
        assert!(asking.join().unwrap().starts_with("HTTP/1.1 200"));
    }
    until("both are recorded", || folder.read("access.log").lines().count() == 2);
    let text = folder.read("access.log");
    let waited = text.lines().filter(|line| line.contains("\"upstream.queue.duration\":")).count();
    assert_eq!(waited, 1, "{text}");
    assert!(!text.contains("upstream.dns.duration"), "an address is not looked up");
}
