//! Servers for records that come and go, stall, and close in the middle: what arrives and what is counted as lost is all there was.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::soon;
use crate::support::standing::Standing;
use crate::support::stream::{at, free_port};
use crate::support::wire::{Port, Wire};

/// Records of one batch: each is sent as soon as it has so many.
pub(super) const BATCH: usize = 4;
/// Records that may wait.
pub(super) const QUEUE: usize = 8;

/// A gateway whose sink sends whole batches only, and the rest at its end.
pub(super) fn start(origin: &Standing, sink: &str) -> Edge {
    let settings = format!(
        "    sinks:\n      - {{name: s, batch: {BATCH}, queue: {QUEUE}, interval: 600000ms, {sink}}}"
    );
    Edge::start_with(&settings, &format!("proxies:\n  - {{id: a, listen_path: /, {}}}\n", origin.backend()))
}

/// Makes records with paths of their own, and counts them.
pub(super) struct Traffic {
    pub(super) edge: Edge,
    pub(super) made: usize,
}

impl Traffic {
    pub(super) async fn make(&mut self, count: usize) {
        for _ in 0..count {
            let path = format!("/{}", self.made);
            assert_eq!(self.edge.get(&path).await.0.status(), 200, "traffic goes on");
            self.edge.records.next().await;
            self.made += 1;
        }
    }

    /// Waits until so many records were counted in this way.
    pub(super) async fn until_counted(&self, outcome: &str, count: usize) {
        let counting = async {
            while counted(&self.edge.meters(), outcome) < count {
                tokio::task::yield_now().await;
            }
        };
        soon(counting).await;
    }
}

/// Records of the sink that were counted in this way.
pub(super) fn counted(page: &str, outcome: &str) -> usize {
    let outcome = format!("outcome=\"{outcome}\"");
    let lines = page.lines().filter(|line| line.starts_with("ferrum_access_log_sink_records_total"));
    let line = lines.into_iter().find(|line| line.contains(&outcome));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0)
}

/// What a server does with one request.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// Reads nothing.
    CloseAtOnce,
    CloseInTheMiddle,
    CloseUnanswered,
    Answer(u16),
    /// Answers nothing until it is told to close.
    Stall,
}

/// A Loki whose turns are these, and which takes everything after them.
struct Loki {
    address: SocketAddr,
    /// Each turn when it is over, a stall when it begins, with the records of the request.
    turns: UnboundedReceiver<(Turn, Vec<String>)>,
    close: UnboundedSender<()>,
    _server: JoinHandle<()>,
}

impl Loki {
    async fn start(script: &'static [Turn]) -> Self {
        let port = Port::listen_on(([127, 0, 0, 1], 0).into(), None).await;
        let address = port.address;
        let (said, turns) = unbounded_channel();
        let (close, closing) = unbounded_channel();
        let server = tokio::spawn(serve(port, script, said, closing));
        Self { address, turns, close, _server: server }
    }

    async fn next(&mut self) -> (Turn, Vec<String>) {
        soon(self.turns.recv()).await.expect("a turn")
    }
}

async fn serve(
    port: Port,
    script: &'static [Turn],
    said: UnboundedSender<(Turn, Vec<String>)>,
    mut closing: UnboundedReceiver<()>,
) {
    let mut script = script.iter().copied();
    let mut next = move || script.next().unwrap_or(Turn::Answer(204));
    let mut turn = next();
    loop {
        let mut talker = Talker::new(Wire::new_patient(port.accept_ever().await));
        // As long as the connection lasts.
        loop {
            if matches!(turn, Turn::CloseAtOnce) {
                drop(said.send((turn, Vec::new())));
                turn = next();
                break;
            }
            if talker.request().await.is_err() {
                break;
            }
            if matches!(turn, Turn::CloseInTheMiddle) {
                drop(talker.data().await);
                drop(said.send((turn, Vec::new())));
                turn = next();
                break;
            }
            let Ok(body) = talker.body().await else { break };
            drop(said.send((turn, paths(&body))));
            let status = match std::mem::replace(&mut turn, next()) {
                Turn::Answer(status) => status,
                Turn::Stall => {
                    _ = closing.recv().await;
                    break;
                }
                _ => break,
            };
            let line = format!("HTTP/1.1 {status} Loki");
            let framing: &[(&str, &str)] = if status == 204 { &[] } else { &[("content-length", "0")] };
            if talker.send_head(&line, framing, Some(0)).await.is_err() {
                break;
            }
        }
    }
}

/// The lines of a push: each is the path of a request.
fn paths(body: &[u8]) -> Vec<String> {
    let push: Value = serde_json::from_slice(body).expect("JSON");
    let values = push["streams"][0]["values"].as_array().expect("values");
    values.iter().map(|value| value[1].as_str().expect("a line").to_owned()).collect()
}

const SCRIPT: &[Turn] = &[
    Turn::CloseAtOnce,
    Turn::Answer(204),
    Turn::Answer(503),
    Turn::Answer(204),
    Turn::CloseInTheMiddle,
    Turn::Answer(204),
    Turn::CloseUnanswered,
    Turn::Answer(204),
    Turn::Answer(400),
    Turn::Stall,
];

#[tokio::test]
async fn a_loki_that_flaps_costs_records_of_its_own_and_each_is_counted_once() {
    let origin = Standing::start("o").await;
    let mut loki = Loki::start(SCRIPT).await;
    let sink =
        format!("loki: {{url: 'http://{}', compression: none}}, template: '${{request.path}}'", loki.address);
    let mut traffic = Traffic { edge: start(&origin, &sink), made: 0 };
    let mut taken = BTreeMap::<String, u32>::new();
    let mut refused = 0;
    let mut take = |(turn, paths): (Turn, Vec<String>)| match turn {
        Turn::Answer(204) => paths.into_iter().for_each(|path| *taken.entry(path).or_default() += 1),
        Turn::Answer(400) => refused += paths.len(),
        _ => {}
    };
    let mut turns = SCRIPT.iter();
    // One batch each; what fails for the moment comes again.
    for _ in 0..4 {
        traffic.make(BATCH).await;
        for _ in turns.by_ref().take(2) {
            take(loki.next().await);
        }
    }
    traffic.make(BATCH).await;
    take(loki.next().await);
    traffic.make(BATCH).await;
    assert!(matches!(loki.next().await.0, Turn::Stall));
    // A batch is on its way, and the queue takes this many.
    traffic.make(30).await;
    loki.close.send(()).expect("a server");
    traffic.until_counted("queue_full", 30 - QUEUE).await;
    // The batch that was on its way, and what waited.
    for _ in 0..=QUEUE / BATCH {
        take(loki.next().await);
    }
    let made = traffic.made;
    let page = traffic.edge.meters_at_the_end().await;
    let [sent, full, failed] = ["sent", "queue_full", "failed"].map(|outcome| counted(&page, outcome));
    assert_eq!((full, failed, counted(&page, "refused")), (30 - QUEUE, BATCH, 0), "{page}");
    assert_eq!(sent + full + failed, made);
    assert_eq!((taken.len(), refused), (sent, failed));
    assert!(taken.values().all(|times| *times == 1), "{taken:?}");
}

/// The messages of RFC 6587 that came over a connection: each ends with a path.
fn messages(mut bytes: &[u8]) -> Vec<String> {
    let mut messages = Vec::new();
    while let Some(space) = bytes.iter().position(|byte| *byte == b' ') {
        let length: usize = std::str::from_utf8(&bytes[..space]).expect("digits").parse().expect("a length");
        let message = std::str::from_utf8(&bytes[space + 1..space + 1 + length]).expect("UTF-8");
        let line = message.rsplit_once(" access - ").expect("a head").1;
        messages.push(line.split(' ').next().expect("a path").to_owned());
        bytes = &bytes[space + 1 + length..];
    }
    messages
}

/// A listener that takes little before it is read.
fn narrow(port: u16) -> TcpListener {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_reuseaddr(true).expect("an option");
    socket.set_recv_buffer_size(4096).expect("an option");
    socket.bind(at(port)).expect("the port");
    socket.listen(16).expect("a listener")
}

async fn accept(listener: &TcpListener) -> Wire {
    Wire::new_patient(Box::new(soon(listener.accept()).await.expect("a connection").0))
}

#[tokio::test]
async fn a_syslog_server_that_flaps_costs_records_of_its_own_and_each_is_counted_once() {
    let origin = Standing::start("o").await;
    let port = free_port();
    let long = "x".repeat(8000);
    let sink = format!(
        "syslog: {{address: 'tcp://{}'}}, retry_for: 0ms, template: '${{request.path}} {long}'",
        at(port)
    );
    let mut traffic = Traffic { edge: start(&origin, &sink), made: 0 };
    // Nobody listens.
    traffic.make(2 * BATCH).await;
    traffic.until_counted("failed", 2 * BATCH).await;
    let listener = narrow(port);
    traffic.make(BATCH).await;
    let mut wire = accept(&listener).await;
    let mut taken = Vec::new();
    // It reads a batch and closes; the next one comes over another connection.
    let mut bytes = Vec::new();
    for last in [3 * BATCH - 1, 4 * BATCH - 1] {
        bytes.clear();
        while messages_of(&bytes).last() != Some(&format!("/{last}")) {
            bytes.extend_from_slice(&soon(wire.some(usize::MAX)).await.expect("bytes"));
        }
        taken.extend(messages(&bytes));
        drop(wire);
        traffic.make(BATCH).await;
        wire = accept(&listener).await;
    }
    // It reads nothing more until records are lost, then everything.
    while counted(&traffic.edge.meters(), "queue_full") < 3 {
        traffic.make(1).await;
    }
    let made = traffic.made;
    let (page, rest) = tokio::join!(traffic.edge.meters_at_the_end(), wire.rest());
    taken.extend(messages(&rest));
    let [sent, full, failed] = ["sent", "queue_full", "failed"].map(|outcome| counted(&page, outcome));
    assert_eq!((full >= 3, failed, counted(&page, "refused")), (true, 2 * BATCH, 0));
    assert_eq!(sent + full + failed, made);
    assert_eq!(taken.len(), sent);
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), sent, "none twice");
}

/// Those of the messages that are whole.
fn messages_of(bytes: &[u8]) -> Vec<String> {
    let mut whole = 0;
    while let Some(space) = bytes[whole..].iter().position(|byte| *byte == b' ') {
        let length: usize =
            std::str::from_utf8(&bytes[whole..whole + space]).expect("digits").parse().expect("a length");
        let end = whole + space + 1 + length;
        if end > bytes.len() {
            break;
        }
        whole = end;
    }
    messages(&bytes[..whole])
}
