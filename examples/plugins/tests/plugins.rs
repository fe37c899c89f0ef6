//! The example plugins do what they say.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use example_plugins as example;
use ferrum_edge::{Gateway, source};

/// A server beside the gateway: it is the target, says who may pass, and has the list.
#[derive(Default)]
struct Beside {
    lists: AtomicU64,
    denies: AtomicBool,
}

fn serve(beside: &Arc<Beside>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let beside = beside.clone();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let beside = beside.clone();
            thread::spawn(move || answer(&beside, client));
        }
    });
    address
}

fn answer(beside: &Beside, mut client: TcpStream) {
    let mut lines = BufReader::new(client.try_clone().unwrap()).lines().map_while(Result::ok);
    loop {
        let head: Vec<String> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let Some(first) = head.first() else { return };
        let is_known = head.iter().any(|line| line.eq_ignore_ascii_case("authorization: Bearer good"));
        let (status, body) = match first.split(' ').nth(1).unwrap_or_default() {
            "/may" if is_known => (204, ""),
            "/may" => (403, ""),
            "/denied" => {
                beside.lists.fetch_add(1, Ordering::Relaxed);
                (200, if beside.denies.load(Ordering::Relaxed) { "127.0.0.1\n" } else { "192.0.2.1\n" })
            }
            _ => (200, "the target"),
        };
        let length =
            if status == 204 { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        if write!(client, "HTTP/1.1 {status} X\r\n{length}\r\n{body}").is_err() {
            return;
        }
    }
}

fn gateway(plugin: &str, config: &str, target: SocketAddr) -> Gateway {
    let spec = format!(
        "gateway: {{ http: '127.0.0.1:0', https: off, admin: off, workers: 1 }}\n\
         proxies: [{{ id: p, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {} }}]\n\
         plugin_configs: [{{ id: c, plugin_name: {plugin}, proxy_id: p, config: {config} }}]\n",
        target.port()
    );
    let registry = example::registry();
    Gateway::start(source::file::parse(&spec, "edge.yaml", &registry).unwrap(), registry).unwrap()
}

fn ask(gateway: &Gateway, more: &str) -> (String, String) {
    let mut client = TcpStream::connect(gateway.addresses().http.unwrap()).unwrap();
    write!(client, "GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        thread::yield_now();
    }
}

#[test]
fn a_service_is_asked_who_may_pass() {
    let target = serve(&Arc::default());
    let asking = gateway("entitlements", &format!("{{ url: 'http://{target}/may' }}"), target);
    assert_eq!(ask(&asking, "authorization: Bearer good\r\n"), ("200".to_owned(), "the target".to_owned()));
    assert_eq!(ask(&asking, "authorization: Bearer bad\r\n").0, "403");
    assert_eq!(ask(&asking, "").0, "403");
    asking.drain();
    // Port 9 discards, if anybody listens there at all: nobody says that a request may pass.
    let alone = gateway("entitlements", "{ url: 'http://127.0.0.1:9/may' }", target);
    assert_eq!(ask(&alone, "authorization: Bearer good\r\n").0, "502");
    alone.drain();
}

#[test]
fn a_task_keeps_the_list_fresh() {
    let beside = Arc::<Beside>::default();
    let target = serve(&beside);
    let config = format!("{{ url: 'http://{target}/denied', refresh: 1 }}");
    let gateway = gateway("deny_list", &config, target);
    until("the list is there", || ask(&gateway, "").0 == "200");
    beside.denies.store(true, Ordering::Relaxed);
    until("the newer list is there", || ask(&gateway, "").0 == "403");
    assert!(beside.lists.load(Ordering::Relaxed) >= 2);
    gateway.drain();
    let alone = self::gateway("deny_list", "{ url: 'http://127.0.0.1:9/denied' }", target);
    assert_eq!(ask(&alone, "").0, "503", "without a list nobody passes");
    alone.drain();
}

#[test]
fn events_come_one_after_the_other() {
    let target = serve(&Arc::default());
    let gateway = gateway("countdown", "{ from: 3, every: 20ms }", target);
    let mut client = TcpStream::connect(gateway.addresses().http.unwrap()).unwrap();
    write!(client, "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    let lines = BufReader::new(client).lines().map_while(Result::ok);
    let events: Vec<String> = lines.filter(|line| line.starts_with("data: ")).take(4).collect();
    assert_eq!(events, ["data: 3", "data: 2", "data: 1", "data: 0"]);
    gateway.drain();
}

#[test]
fn wrong_settings_are_refused_with_their_place() {
    let registry = example::registry();
    let spec = "proxies: []\nplugin_configs: [{ id: c, plugin_name: deny_list, scope: global, config: { url: nowhere, refresh: 0 } }]\n";
    let problems = source::file::parse(spec, "edge.yaml", &registry).unwrap_err().to_string();
    assert!(problems.contains("refresh"), "{problems}");
}

#[test]
fn without_a_configuration_nothing_is_served() {
    assert!(example::run(None).is_err());
    assert!(example::run(Some("no such file".to_owned())).is_err());
}
