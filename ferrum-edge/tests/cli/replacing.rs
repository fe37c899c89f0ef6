//! One gateway takes the place of another on the same ports.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::{Folder, Gateway, ferrum_edge, get, spec, until};

/// Ports that nobody listens on.
fn ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.each_ref().map(|listener| listener.local_addr().unwrap().port())
}

/// The usual configuration on these ports.
fn at(text: &str, [http, admin]: [u16; 2]) -> String {
    with_workers(2, text, [http, admin])
}

fn with_workers(workers: usize, text: &str, [http, admin]: [u16; 2]) -> String {
    spec(workers, text)
        .replace("http: '127.0.0.1:0'", &format!("http: '127.0.0.1:{http}'"))
        .replace("admin: '127.0.0.1:0'", &format!("admin: '127.0.0.1:{admin}'"))
}

fn replacing(folder: &Folder) -> Gateway {
    Gateway::start(folder, |command| _ = command.args(["--replace", "--pid-file", "pid"]))
}

/// A gateway that stops waits for a second for the next request of a client. One that a busy machine lets ask so late
/// may find its connection closed.
const LATE: Duration = Duration::from_millis(500);

/// A connection, and when its last request was sent: the gateway's second begins between that and the client's reading of
/// the answer, which is late on a busy machine too.
type Kept = (BufReader<TcpStream>, Instant);

/// Asks over one connection as long as it is kept; `None` when a request got no answer.
fn ask(kept: &mut Option<Kept>, to: SocketAddr) -> Option<()> {
    let asked = Instant::now();
    let (mut tcp, last) = match kept.take() {
        Some(kept) => kept,
        None => (BufReader::new(TcpStream::connect(to).ok()?), asked),
    };
    let mut is_late = false;
    let answer = (|| {
        let sent = tcp.get_mut().write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        is_late = last.elapsed() > LATE;
        sent.ok()?;
        let (mut length, mut closes, mut line) = (0, false, String::new());
        loop {
            line.clear();
            tcp.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
            let lower = line.to_ascii_lowercase();
            length =
                lower.strip_prefix("content-length: ").map_or(Some(length), |it| it.trim().parse().ok())?;
            closes |= lower.starts_with("connection: close");
            if line == "\r\n" {
                break;
            }
        }
        tcp.read_exact(&mut vec![0; length]).ok()?;
        Some(closes)
    })();
    match answer {
        Some(closes) => {
            *kept = (!closes).then_some((tcp, asked));
            Some(())
        }
        None => is_late.then_some(()),
    }
}

#[test]
fn a_gateway_takes_the_place_of_another_and_no_request_is_lost() {
    let folder = Folder::new();
    let ports = ports();
    folder.write("ferrum.yaml", &at("'0'", ports));
    let mut current = replacing(&folder);
    let (stop, answered, http) = (AtomicBool::new(false), AtomicU64::new(0), current.http);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut kept = None;
                while !stop.load(Ordering::Relaxed) {
                    assert!(ask(&mut kept, http).is_some(), "a request got no answer");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // As many listeners as before, more and fewer.
        for (number, workers) in [2, 3, 1, 2, 4].into_iter().enumerate() {
            let before = answered.load(Ordering::Relaxed);
            until("clients are served", || answered.load(Ordering::Relaxed) > before + 20);
            folder.write("ferrum.yaml", &with_workers(workers, &format!("'{number}'"), ports));
            let next = replacing(&folder);
            assert_eq!(current.wait(), Some(0), "{}", current.log());
            assert_eq!(folder.read("pid").trim(), next.pid().to_string());
            assert!(get(next.http, "/").ends_with(&format!("\r\n\r\n{number}")));
            assert_eq!(next.status()["pid"], next.pid());
            current = next;
        }
        stop.store(true, Ordering::Relaxed);
    });
    current.signal("TERM");
    assert_eq!(current.wait(), Some(0));
    assert!(!folder.exists("pid"), "the last one removes its file");
}

#[test]
fn a_port_in_use_is_refused_without_being_asked_to_share_it() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &at("x", ports()));
    let current = replacing(&folder);
    let second = ferrum_edge(&folder).args(["run", "--pid-file", "pid"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another process listens there"), "{second:?}");
    assert!(get(current.http, "/").ends_with("\r\n\r\nx"), "the first one goes on");
    assert_eq!(folder.read("pid").trim(), current.pid().to_string());
}

#[test]
fn nobody_but_a_gateway_is_replaced() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &at("x", ports()));
    let mut stranger = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    folder.write("pid", &stranger.id().to_string());
    let refused = ferrum_edge(&folder).args(["run", "--replace", "--pid-file", "pid"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("can't be replaced"), "{refused:?}");
    assert!(stranger.try_wait().unwrap().is_none(), "it goes on");
    // One that has ended is nobody.
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    let mut gateway = replacing(&folder);
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
    let misused = ferrum_edge(&folder).args(["run", "--replace"]).output().unwrap();
    assert_eq!(misused.status.code(), Some(2), "it has to know whom");
}
