//! Rates, limits and their refusals over real sockets: streams by splice and by copy, TLS, datagrams.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio_rustls::TlsConnector;

use crate::support::edge::Edge;
use crate::support::stream::{Echo, LOOPBACK, at, free_port, tcp_backend, udp_backend};
use crate::support::wire::{Port, Wire};
use crate::support::{soon, tls};

/// One proxy `a` with these fields and one plugin config.
fn spec(proxy: &str, plugin: &str, config: &str) -> String {
    format!(
        "proxies:\n  - {{id: a, {proxy}}}\nplugin_configs:\n  - {{id: limit, plugin_name: {plugin}, proxy_id: a, config: {config}}}\n"
    )
}

/// Sends all of it there and back; says how long that took.
async fn echoed(
    stream: impl AsyncReadExt + AsyncWriteExt + Unpin + Send + 'static,
    sent: Vec<u8>,
) -> Duration {
    let begun = Instant::now();
    let expected = sent.clone();
    let (mut reading, mut writing) = tokio::io::split(stream);
    let writer = tokio::spawn(async move {
        writing.write_all(&sent).await.unwrap();
        writing.flush().await.unwrap();
        writing
    });
    let mut got = vec![0; expected.len()];
    soon(reading.read_exact(&mut got)).await.unwrap();
    assert!(got == expected, "other bytes came back");
    let took = begun.elapsed();
    drop(reading.unsplit(soon(writer).await.unwrap()));
    took
}

/// Bytes that repeat only after a long while, so that lost and moved ones show.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n * 7 + n / 251 * 13) as u8).collect()
}

/// What it takes at least: everything beyond a burst waits.
fn least(bytes: usize, rate: usize) -> Duration {
    Duration::from_secs_f64((bytes as f64 - rate as f64 / 40.0 - 300_000.0) / rate as f64)
}

#[tokio::test]
async fn streams_keep_their_rate_and_their_bytes() {
    const BYTES: usize = 12 << 20;
    let echo = Echo::start().await;
    let port = free_port();
    // Turns of this rate are long enough for splice(2), those of half of it are copied.
    for rate in [25_000_000, 8_000_000] {
        let bytes = if rate == 8_000_000 { BYTES / 3 } else { BYTES };
        let config = format!("{{download: {rate}}}");
        let spec = spec(&format!("listen_port: {port}, {}", echo.backend()), "bandwidth_limit", &config);
        let mut edge = Edge::start_with(LOOPBACK, &spec);
        let took = echoed(soon(TcpStream::connect(at(port))).await.unwrap(), content(bytes)).await;
        assert!(took >= least(bytes, rate), "{took:?} for {rate}");
        let record = edge.only_record().await;
        assert_eq!(record.carried(), (bytes as u64, bytes as u64));
        drop(edge);
    }
}

#[tokio::test]
async fn tls_keeps_its_rate_too() {
    const BYTES: usize = 4 << 20;
    let echo = Echo::start().await;
    let (port, own) = (free_port(), tls::localhost());
    let settings = format!(
        "{LOOPBACK}\n  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}]}}\n",
        own.cert, own.key
    );
    let proxy = format!("listen_port: {port}, frontend_tls: true, {}", echo.backend());
    let _edge = Edge::start_with(&settings, &spec(&proxy, "bandwidth_limit", "{upload: 8000000}"));
    let connector = TlsConnector::from(tls::authority().client(&[]));
    let tcp = soon(TcpStream::connect(at(port))).await.unwrap();
    let stream = soon(connector.connect("localhost".try_into().unwrap(), tcp)).await.unwrap();
    let took = echoed(stream, content(BYTES)).await;
    assert!(took >= least(BYTES, 8_000_000), "{took:?}");
}

/// A session that would take hours goes on at once when the limit is lifted.
#[tokio::test]
async fn a_reload_changes_the_rate_of_a_running_session() {
    let echo = Echo::start().await;
    let port = free_port();
    let proxy = format!("listen_port: {port}, {}", echo.backend());
    let edge =
        Edge::start_with(LOOPBACK, &spec(&proxy, "bandwidth_limit", "{upload: 1000, limit_by: gateway}"));
    let stream = soon(TcpStream::connect(at(port))).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    let sent = content(2 << 20);
    let expected = sent.clone();
    let writer = tokio::spawn(async move { writing.write_all(&sent).await.map(|()| writing) });
    let mut got = vec![0; expected.len()];
    soon(reading.read_exact(&mut got[..4096])).await.unwrap();
    edge.reload(&spec(&proxy, "bandwidth_limit", "{upload: 1GB, limit_by: gateway}"));
    soon(reading.read_exact(&mut got[4096..])).await.unwrap();
    assert!(got == expected, "other bytes came back");
    drop(soon(writer).await.unwrap().unwrap());
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_with_a_reason() {
    let origin = Port::listen(None).await;
    let port = free_port();
    let proxy = format!("listen_port: {port}, {}", tcp_backend(origin.address));
    let config = "{max_concurrent: 1, limit_by: address}";
    let mut edge = Edge::start_with(LOOPBACK, &spec(&proxy, "connection_limit", config));
    let mut first = Wire::open(at(port)).await;
    let _far = Wire::new(origin.accept().await);
    Wire::open(at(port)).await.closed().await;
    assert_eq!(edge.session().await.end(), "connection_limit_concurrent");
    let metrics = edge.metrics().await;
    let refused = "ferrum_session_ends_total{protocol=\"tcp\",reason=\"connection_limit_concurrent\"} 1";
    assert!(metrics.contains(refused), "{metrics}");
    first.shutdown().await;
}

/// Metrics learn of them while the session is open.
#[tokio::test]
async fn dropped_datagrams_of_an_open_session_are_counted() {
    let origin = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = free_port();
    let backend = udp_backend(origin.local_addr().unwrap());
    let proxy = format!("listen_port: {port}, udp_idle_timeout: 600, {backend}");
    let config = "{datagrams_per_second: 1, datagram_burst: 3}";
    let edge = Edge::start_with(LOOPBACK, &spec(&proxy, "udp_rate_limiting", config));
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(at(port)).await.unwrap();
    let counted = async {
        loop {
            client.send(b"x").await.unwrap();
            let metrics = edge.metrics().await;
            let line = metrics.lines().find(|line| {
                line.starts_with("ferrum_session_datagrams_dropped_total{protocol=\"udp\"}")
                    && !line.ends_with(" 0")
            });
            if line.is_some() {
                return metrics;
            }
        }
    };
    let metrics = soon(counted).await;
    assert!(!metrics.contains("ferrum_sessions_total{protocol=\"udp\"} 1"), "it is open: {metrics}");
}

#[tokio::test]
async fn datagrams_beyond_the_limit_are_dropped_and_counted() {
    let origin = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = free_port();
    let backend = udp_backend(origin.local_addr().unwrap());
    let proxy = format!("listen_port: {port}, udp_idle_timeout: 1, {backend}");
    let config = "{datagrams_per_second: 1, datagram_burst: 3}";
    let mut edge = Edge::start_with(LOOPBACK, &spec(&proxy, "udp_rate_limiting", config));
    let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    client.connect(at(port)).await.unwrap();
    for n in 0..10_u8 {
        client.send(&[n]).await.unwrap();
    }
    let mut buffer = [0; 16];
    for n in 0..3 {
        let length = soon(origin.recv(&mut buffer)).await.unwrap();
        assert_eq!((length, buffer[0]), (1, n), "the first datagrams pass");
    }
    let record = edge.session().await;
    assert_eq!((record.end(), record.carried()), ("idle", (3, 0)));
    assert_eq!(record.0["session.datagrams_dropped"], 7);
    assert!(edge.metrics().await.contains("ferrum_session_datagrams_dropped_total{protocol=\"udp\"} 7"));
}

/// Bytes that reach the target, over a quota's end, by splice and by copy; and nothing of them is lost with a restart.
#[tokio::test]
async fn a_quota_ends_every_stream_with_its_last_byte_and_survives_a_restart() {
    const LIMIT: usize = 3_000_000;
    let folder = tls::authority().folder().join("traffic-quota");
    std::fs::create_dir_all(&folder).unwrap();
    let origin = Port::listen(None).await;
    let port = free_port();
    let proxy = format!("listen_port: {port}, {}", tcp_backend(origin.address));
    let config = format!("{{limit: {LIMIT}, path: {folder:?}}}");
    let mut edge = Edge::start_with(LOOPBACK, &spec(&proxy, "traffic_quota", &config));
    let pour = async |bytes: usize| {
        let mut client = soon(TcpStream::connect(at(port))).await.unwrap();
        let mut far = origin.accept().await;
        let sent = content(bytes);
        let sending = tokio::spawn(async move {
            drop(client.write_all(&sent).await);
            drop(client.shutdown().await);
            client
        });
        let mut got = Vec::new();
        // A stream that was cut off ends with a reset.
        drop(soon(far.read_to_end(&mut got)).await);
        assert!(got == content(bytes)[..got.len()], "other bytes came");
        drop(far);
        drop(soon(sending).await);
        got.len()
    };
    assert_eq!(pour(2_000_000).await, 2_000_000);
    assert_eq!(edge.session().await.end(), "closed");
    drop(edge);
    let mut edge = Edge::start_with(LOOPBACK, &spec(&proxy, "traffic_quota", &config));
    // What a reset takes from the kernel's buffers may not arrive, but no more than the quota ever does.
    assert!(pour(2_000_000).await <= LIMIT - 2_000_000);
    let record = edge.session().await;
    assert_eq!((record.end(), record.carried().0), ("quota_exceeded", (LIMIT - 2_000_000) as u64));
    let mut refused = soon(TcpStream::connect(at(port))).await.unwrap();
    assert_eq!(soon(refused.read(&mut [0; 1])).await.unwrap_or(0), 0);
    assert_eq!(edge.session().await.end(), "quota_exceeded");
}

/// Metrics say what sessions have carried that are still open, and nothing twice.
#[tokio::test]
async fn bytes_are_counted_while_sessions_run() {
    let echo = Echo::start().await;
    let sink = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let (port, udp) = (free_port(), free_port());
    let spec = format!(
        "proxies:\n  - {{id: a, listen_port: {port}, {}}}\n  - {{id: b, listen_port: {udp}, {}}}\n",
        echo.backend(),
        udp_backend(sink.local_addr().unwrap())
    );
    let mut edge = Edge::start_with(LOOPBACK, &spec);
    let mut client = Wire::open(at(port)).await;
    client.send("hello").await;
    client.expect("hello").await;
    let datagrams = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    datagrams.send_to(b"four", at(udp)).await.unwrap();
    soon(sink.recv(&mut [0; 8])).await.unwrap();
    let counted = async |edge: &Edge, protocol: &str, up: u64, down: u64| {
        let line = |direction: &str, bytes: u64| {
            format!(
                "ferrum_session_bytes_total{{protocol=\"{protocol}\",direction=\"{direction}\"}} {bytes}\n"
            )
        };
        let page = edge.metrics().await;
        page.contains(&line("up", up)) && page.contains(&line("down", down))
    };
    assert!(counted(&edge, "tcp", 5, 5).await);
    soon(async { while !counted(&edge, "udp", 4, 0).await {} }).await;
    client.send("more!").await;
    client.expect("more!").await;
    client.shutdown().await;
    client.closed().await;
    assert_eq!(edge.session().await.carried(), (10, 10));
    assert!(counted(&edge, "tcp", 10, 10).await);
    assert!(counted(&edge, "udp", 4, 0).await);
}

/// An owner who comes with a certificate to a proxy that is nobody's counts as the owner's own proxies do.
#[tokio::test]
async fn owners_are_known_by_their_certificates_on_proxies_of_all() {
    let echo = Echo::start().await;
    let (port, own_port, own) = (free_port(), free_port(), tls::localhost());
    let settings = format!(
        "{LOOPBACK}\n  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}], client_ca_path: {:?}}}\n",
        own.cert,
        own.key,
        tls::authority().ca()
    );
    let identity = tls::authority().issue("owner-ann", &["ann.test"]);
    let backend = echo.backend();
    let spec = format!(
        "proxies:\n  - {{id: all, listen_port: {port}, frontend_tls: true, {backend}, plugins: [{{plugin_config_id: who}}]}}\n  \
         - {{id: anns, owner: ann, listen_port: {own_port}, {backend}}}\n\
         consumers:\n  - {{id: c1, username: ann, credentials: {{mtls_auth: ann.test}}}}\n\
         plugin_configs:\n  - {{id: who, plugin_name: mtls_auth, scope: proxy_group, config: {{}}}}\n  \
         - {{id: envelope, plugin_name: connection_limit, scope: global, config: {{limit_by: owner, max_concurrent: 1}}}}\n"
    );
    let mut edge = Edge::start_with(&settings, &spec);
    let tcp = soon(TcpStream::connect(at(port))).await.unwrap();
    let shown = tls::showing(&tls::authority().client(&[]), &identity);
    let mut ann =
        soon(TlsConnector::from(shown).connect("localhost".try_into().unwrap(), tcp)).await.unwrap();
    ann.write_all(b"x").await.unwrap();
    soon(ann.read_exact(&mut [0; 1])).await.unwrap();
    Wire::open(at(own_port)).await.closed().await;
    let record = edge.session().await;
    assert_eq!((record.proxy(), record.end()), ("anns", "connection_limit_concurrent"));
    ann.shutdown().await.unwrap();
    let record = edge.session().await;
    assert_eq!((record.proxy(), record.end(), &record.0["enduser.id"]), ("all", "closed", &"ann".into()));
    let mut client = Wire::open(at(own_port)).await;
    client.send("y").await;
    client.expect("y").await;
}

/// A consumer is recognised by the certificate of its connection, and has its own rates whatever address it comes from.
#[tokio::test]
async fn consumers_of_streams_are_known_by_their_certificates() {
    let echo = Echo::start().await;
    let (port, own) = (free_port(), tls::localhost());
    let settings = format!(
        "{LOOPBACK}\n  tls: {{certificates: [{{cert_path: {:?}, key_path: {:?}}}], client_ca_path: {:?}, client_cert_required: false}}\n",
        own.cert,
        own.key,
        tls::authority().ca()
    );
    let identity = tls::authority().issue("caps-ann", &["ann.test"]);
    let spec = format!(
        "proxies:\n  - {{id: a, listen_port: {port}, frontend_tls: true, {}, plugins: [{{plugin_config_id: who}}, {{plugin_config_id: one}}]}}\n\
         consumers:\n  - {{id: ann, username: ann, credentials: {{mtls_auth: ann.test}}}}\n\
         plugin_configs:\n  - {{id: who, plugin_name: mtls_auth, scope: proxy_group, config: {{}}}}\n  \
         - {{id: one, plugin_name: connection_limit, scope: proxy_group, config: {{limit_by: consumer, max_concurrent: 1}}}}\n",
        echo.backend()
    );
    let mut edge = Edge::start_with(&settings, &spec);
    let connect = async |config| {
        let tcp = soon(TcpStream::connect(at(port))).await.unwrap();
        soon(TlsConnector::from(config).connect("localhost".try_into().unwrap(), tcp)).await.unwrap()
    };
    let plain = tls::authority().client(&[]);
    let mut nobody = connect(plain.clone()).await;
    assert_eq!(soon(nobody.read(&mut [0; 1])).await.unwrap_or(0), 0);
    assert_eq!(edge.session().await.end(), "certificate_missing");
    let mut ann = connect(tls::showing(&plain, &identity)).await;
    ann.write_all(b"x").await.unwrap();
    soon(ann.read_exact(&mut [0; 1])).await.unwrap();
    let mut again = connect(tls::showing(&plain, &identity)).await;
    assert_eq!(soon(again.read(&mut [0; 1])).await.unwrap_or(0), 0);
    let record = edge.session().await;
    assert_eq!((record.end(), &record.0["enduser.id"]), ("connection_limit_concurrent", &"ann".into()));
}
