//! Access records to syslog and line servers over TLS.

use std::io::Read;
use std::sync::mpsc::{self, Receiver};

use super::phases::{Stream, server};
use crate::process::{Folder, Gateway, TIMEOUT, get, spec, until};

/// A server that hands on what it reads: its port, its certificate, and the texts.
fn reader() -> (u16, String, Receiver<String>) {
    let (sender, received) = mpsc::channel();
    let read = move |mut stream: Stream| {
        let mut buffer = [0; 65_536];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            drop(sender.send(String::from_utf8_lossy(&buffer[..read]).into_owned()));
        }
    };
    let (port, certificate) = server(read);
    (port, certificate, received)
}

/// What came, once it is whole: TLS may bring it in pieces.
fn whole(received: &Receiver<String>, is_whole: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    while !is_whole(&text) {
        text += &received.recv_timeout(TIMEOUT).unwrap_or_else(|_| panic!("no more than {text:?}"));
    }
    text
}

fn start(folder: &Folder, sink: &str) -> Gateway {
    let sinks = format!("https: off, access_log: {{ sinks: [{{ name: s, interval: 10ms, {sink} }}] }},");
    folder.write("ferrum.yaml", &spec(1, "hi").replace("https: off,", &sinks));
    Gateway::start(folder, |_| {})
}

#[test]
fn records_reach_a_syslog_server_over_tls() {
    let (folder, (port, certificate, received)) = (Folder::new(), reader());
    folder.write("ca.pem", &certificate);
    let sink = format!("syslog: {{ address: 'tls://localhost:{port}', ca_path: ca.pem }}");
    let gateway = start(&folder, &sink);
    get(gateway.http, "/one");
    // Octet counting (RFC 6587): the length, a space, the message.
    let text = whole(&received, |text| {
        let parts = text.split_once(' ');
        parts.is_some_and(|(length, message)| message.len() >= length.parse().unwrap())
    });
    let (length, message) = text.split_once(' ').unwrap();
    assert_eq!(length.parse::<usize>().unwrap(), message.len(), "{text}");
    assert!(message.starts_with("<134>1 ") && message.contains("\"url.path\":\"/one\""), "{text}");
}

#[test]
fn records_reach_a_line_server_over_tls() {
    let (folder, (port, certificate, received)) = (Folder::new(), reader());
    folder.write("ca.pem", &certificate);
    let gateway = start(&folder, &format!("tcp: {{ address: 'tls://localhost:{port}', ca_path: ca.pem }}"));
    get(gateway.http, "/one");
    let text = whole(&received, |text| text.ends_with('\n'));
    assert!(text.contains("\"url.path\":\"/one\""), "{text}");
}

#[test]
fn a_server_whose_certificate_is_not_trusted_gets_nothing_and_the_loss_is_counted() {
    let (folder, (port, _, received)) = (Folder::new(), reader());
    // The certificate of another server.
    let (_, other, _) = reader();
    folder.write("ca.pem", &other);
    let sink = format!("retry_for: 0ms, syslog: {{ address: 'tls://localhost:{port}', ca_path: ca.pem }}");
    let gateway = start(&folder, &sink);
    get(gateway.http, "/one");
    let lost = "ferrum_access_log_sink_records_total{sink=\"s\",outcome=\"failed\"} 1\n";
    until("the record is counted as lost", || get(gateway.admin, "/metrics").contains(lost));
    assert!(received.try_recv().is_err());
}
