//! Places that records and metrics go to follow a reload.

use std::net::UdpSocket;

use super::process::{Folder, Gateway, TIMEOUT, get, spec, until};

/// The configuration with these settings of the gateway.
fn with(gateway: &str) -> String {
    spec(1, "hi").replace("https: off,", &format!("https: off, {gateway},"))
}

fn sinks(names: &[&str]) -> String {
    let one = |name: &&str| format!("{{ name: {name}, interval_ms: 100, file: {{ path: {name}.log }} }}");
    format!("access_log: {{ sinks: [{}] }}", names.iter().map(one).collect::<Vec<_>>().join(", "))
}

#[test]
fn records_go_where_the_newest_configuration_says() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &with(&sinks(&["kept", "gone"])));
    let gateway = Gateway::start(&folder, |_| {});
    let lines = |name: &str| folder.read(name).lines().count();
    get(gateway.http, "/first");
    until("both have the first", || lines("kept.log") == 1 && lines("gone.log") == 1);
    folder.write("ferrum.yaml", &with(&sinks(&["kept", "new"])));
    gateway.signal("HUP");
    until("it is in use", || gateway.status()["config"]["revision"] == 2);
    get(gateway.http, "/second");
    until("those of now have the second", || lines("kept.log") == 2 && lines("new.log") == 1);
    assert!(folder.read("new.log").contains("/second") && lines("gone.log") == 1);
    // One that can't be opened is a refused reload, and nothing is different.
    folder.write("ferrum.yaml", &with(&sinks(&["kept", "bad"]).replace("bad.log", "none/bad.log")));
    gateway.signal("HUP");
    until("it is refused", || gateway.status()["config"]["refused"] == 1);
    get(gateway.http, "/third");
    until("those before have the third", || lines("kept.log") == 3 && lines("new.log") == 2);
}

#[test]
fn metrics_are_pushed_where_the_newest_configuration_says() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "hi"));
    let gateway = Gateway::start(&folder, |_| {});
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    let at = socket.local_addr().unwrap();
    folder.write(
        "ferrum.yaml",
        &with(&format!("metrics: {{ statsd: {{ address: 'udp://{at}', interval_ms: 100 }} }}")),
    );
    gateway.signal("HUP");
    let mut buffer = [0; 65_536];
    let read = socket.recv(&mut buffer).unwrap();
    assert!(String::from_utf8_lossy(&buffer[..read]).contains("http"), "a push after the reload");
}
