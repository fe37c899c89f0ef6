//! What a gateway has resident: large bodies pass without being held, and idle connections are small.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::process::{Folder, Gateway, spec, until};

/// Bytes of what is asked for first, so that buffers and pools are there.
const FIRST: u64 = 8 << 20;
/// Bytes of what is asked for then; many times what may be held of it.
const LARGE: u64 = 512 << 20;
/// What a gateway may have more of resident for it, at any time.
const MORE: u64 = 4 << 20;

/// A target that answers `/N` with N bytes, and a request with a body with that body's length, once it has read it.
fn target() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || while answer(&stream).is_some() {});
        }
    });
    address
}

fn answer(stream: &TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut line, mut first, mut length) = (String::new(), String::new(), 0);
    while reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)? > 2 {
        if let Some(value) = line.strip_prefix("content-length: ") {
            length = value.trim().parse().ok()?;
        }
        if first.is_empty() { first = std::mem::take(&mut line) } else { line.clear() }
    }
    let wanted: u64 = first.split(' ').nth(1)?.trim_start_matches('/').parse().ok()?;
    let read = std::io::copy(&mut reader.by_ref().take(length), &mut std::io::sink()).ok()?;
    let mut stream = stream;
    if length > 0 {
        let text = read.to_string();
        return write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len()).ok();
    }
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {wanted}\r\n\r\n").ok()?;
    std::io::copy(&mut std::io::repeat(7).take(wanted), &mut stream).ok().map(drop)
}

/// Reads the head of an answer and its whole body, with a pause in the middle; the body's length.
fn read(connection: TcpStream) -> u64 {
    let mut reader = BufReader::new(connection);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).unwrap() > 2 {
        assert!(!line.starts_with("HTTP/") || line.contains(" 200 "), "{line}");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length: ") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut sink = std::io::sink();
    let half = std::io::copy(&mut reader.by_ref().take(length / 2), &mut sink).unwrap();
    // Whoever reads ahead of its client has the time for it.
    thread::sleep(Duration::from_millis(300));
    half + std::io::copy(&mut reader.take(length - half), &mut sink).unwrap()
}

fn get(gateway: &Gateway, path: &str) -> u64 {
    let mut connection = TcpStream::connect(gateway.http).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    read(connection)
}

fn put(gateway: &Gateway, bytes: u64) -> u64 {
    let mut connection = TcpStream::connect(gateway.http).unwrap();
    write!(connection, "PUT /target/0 HTTP/1.1\r\nhost: localhost\r\ncontent-length: {bytes}\r\n\r\n")
        .unwrap();
    std::io::copy(&mut std::io::repeat(7).take(bytes), &mut connection).unwrap();
    read(connection)
}

/// Bytes of its own that a process has resident (`RssAnon`): pages of its program come and go as the system pleases.
fn memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// How much more than before it had resident while this was done.
fn grown(gateway: &Gateway, work: impl FnOnce()) -> u64 {
    let process = gateway.pid();
    let before = memory(process);
    let (working, done) = mpsc::channel::<()>();
    let watch = move || {
        let mut most = before;
        while done.recv_timeout(Duration::from_millis(2)) == Err(RecvTimeoutError::Timeout) {
            most = most.max(memory(process));
        }
        most
    };
    thread::scope(|scope| {
        let watching = scope.spawn(watch);
        work();
        drop(working);
        watching.join().unwrap() - before
    })
}

#[test]
fn large_files_answers_and_requests_are_not_held() {
    let folder = Folder::new();
    for (name, bytes) in [("first", FIRST), ("large", LARGE)] {
        fs::File::create(folder.path(name)).unwrap().set_len(bytes).unwrap();
    }
    folder.write(
        "ferrum.yaml",
        &format!(
            "
gateway: {{ http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1, limits: {{ max_request_body: 0 }} }}
proxies:
  - {{ id: target, listen_path: /target, backend_scheme: http, backend_host: 127.0.0.1, backend_port: {} }}
  - {{ id: files, listen_path: /files, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9 }}
plugin_configs:
  - {{ id: files, plugin_name: static_files, scope: proxy, proxy_id: files, config: {{ root: {:?} }} }}
",
            target().port(),
            folder.path("")
        ),
    );
    let gateway = Gateway::start(&folder, |_| {});
    get(&gateway, "/files/first");
    get(&gateway, &format!("/target/{FIRST}"));
    put(&gateway, FIRST);
    let file = grown(&gateway, || assert_eq!(get(&gateway, "/files/large"), LARGE));
    assert!(file < MORE, "{file} bytes more for a file");
    let answer = grown(&gateway, || assert_eq!(get(&gateway, &format!("/target/{LARGE}")), LARGE));
    assert!(answer < MORE, "{answer} bytes more for an answer");
    let request = grown(&gateway, || assert_eq!(put(&gateway, LARGE), LARGE.to_string().len() as u64));
    assert!(request < MORE, "{request} bytes more for a request");
}

/// Clients that keep their connections, and what each may cost.
const CLIENTS: u64 = 500;
const IDLE_BYTES: u64 = 6 << 10;

#[test]
fn idle_connections_are_small() {
    let folder = Folder::new();
    folder.write("ferrum.yaml", &spec(1, "one"));
    let gateway = Gateway::start(&folder, |_| {});
    let ask = || {
        let mut connection = TcpStream::connect(gateway.http).unwrap();
        write!(connection, "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        let mut answer = [0; 512];
        assert!(connection.read(&mut answer).unwrap() > 0);
        connection
    };
    // What the first ones need stays, and is not theirs.
    drop((0..10).map(|_| ask()).collect::<Vec<_>>());
    let mut open = Vec::new();
    let grown = grown(&gateway, || open.extend((0..CLIENTS).map(|_| ask())));
    assert!(grown < CLIENTS * IDLE_BYTES, "{} bytes more for each idle connection", grown / CLIENTS);
}

/// How many bodies come half, of those whose gateway has little memory.
pub(super) const HALVES: usize = 3000;
/// A gateway of little memory, whose plugin holds bodies.
pub(super) const HOLDS_BODIES: &str = "
gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1, overload: { max_memory: 48MiB } }
proxies:
  - { id: held, listen_path: /, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9 }
plugin_configs:
  - { id: schema, plugin_name: request_validation, scope: global, config: { body_schema: { type: object }, max_body: 1MiB } }
";

/// A request whose body comes half.
pub(super) fn half_body(gateway: &Gateway) -> TcpStream {
    let mut connection = TcpStream::connect(gateway.http).unwrap();
    connection.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    let head =
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 131072\r\n\r\n";
    // Those that are refused may be closed already.
    drop(write!(connection, "{head}{}", "x".repeat(65536)));
    connection
}

/// A target that takes connections and reads nothing.
fn deaf() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().collect::<Vec<_>>());
    address
}

/// Bodies count as they come, not only when memory is looked at again, whoever holds them; and what is left of them is no load.
#[test]
fn bodies_that_come_half_stay_below_the_limit_and_are_forgotten() {
    let passing = HOLDS_BODIES.split("plugin_configs").next().unwrap().replace("48MiB", "60MiB");
    let passing = passing.replace("backend_port: 9", &format!("backend_port: {}", deaf().port()));
    for (held_by, spec, halves, limit, answers) in [
        ("a plugin", HOLDS_BODIES, HALVES, 48 << 20, "HTTP/1.1 502"),
        ("the way to a target", &passing, 2 * HALVES, 60 << 20, ""),
    ] {
        let folder = Folder::new();
        folder.write("ferrum.yaml", spec);
        let gateway = Gateway::start(&folder, |_| {});
        let mut open = Vec::new();
        let grown = grown(&gateway, || open.extend((0..halves).map(|_| half_body(&gateway))));
        // On a busy machine, looks at memory come late.
        assert!(grown < limit + limit / 2, "{grown} bytes more, held by {held_by}");
        until("it is overloaded", || gateway.log().contains("overloaded"));
        drop(open);
        until("it recovers", || gateway.log().contains("no longer overloaded"));
        if !answers.is_empty() {
            let answer = crate::process::get(gateway.http, "/");
            assert!(answer.starts_with(answers), "{answer}");
        }
    }
}

/// Clients that ask for metrics so often and read nothing, and what all of them may take: some pages, and what each of those that are answered
/// at a time is sent.
const UNREAD: usize = 500;
const PAGES: usize = 16;
const UNREAD_BYTES: u64 = 64 << 20;

#[test]
fn pages_of_metrics_that_nobody_reads_are_few() {
    let folder = Folder::new();
    let proxies = 3000;
    let mut text = "
gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1 }
plugin_configs:
  - { id: answer, plugin_name: request_termination, scope: global, config: { status_code: 200, content_type: text/plain, body: one } }
proxies:
"
    .to_owned();
    for n in 0..proxies {
        let proxy = format!(
            "id: p{n}, listen_path: /p{n}, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9"
        );
        text.push_str(&format!("  - {{ {proxy} }}\n"));
    }
    folder.write("ferrum.yaml", &text);
    let gateway = Gateway::start(&folder, |_| {});
    let mut connection = TcpStream::connect(gateway.http).unwrap();
    for n in 0..proxies {
        let asked = format!("GET /p{n} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        connection.write_all(asked.as_bytes()).unwrap();
        let mut answer = [0; 512];
        assert!(connection.read(&mut answer).unwrap() > 0);
    }
    // All of a client's are more than a socket takes, so that pages wait for their clients.
    let page = crate::process::get(gateway.admin, "/metrics").len() as u64;
    assert!(page > 1 << 20, "a page of {page} bytes");
    let mut open = Vec::new();
    let grown = grown(&gateway, || {
        for _ in 0..UNREAD {
            let mut connection = TcpStream::connect(gateway.admin).unwrap();
            let asked = "GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(PAGES);
            connection.write_all(asked.as_bytes()).unwrap();
            open.push(connection);
        }
        assert!(crate::process::get(gateway.admin, "/livez").starts_with("HTTP/1.1 200"));
        // The last one is answered from a page that others have not read yet.
        let mut head = [0; 12];
        open.last_mut().unwrap().read_exact(&mut head).unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
    });
    assert!(grown < UNREAD_BYTES + 4 * page, "{grown} bytes more for pages of {page}");
    drop(open);
    let again = crate::process::get(gateway.admin, "/metrics");
    assert!(again.starts_with("HTTP/1.1 200"), "{}", again.lines().next().unwrap_or_default());
}

/// Proxies of a file, and what each of them may have resident beyond what a gateway with few has.
const PROXIES: u64 = 10_000;
const PROXY_BYTES: u64 = 3584;

#[test]
fn plain_proxies_are_small() {
    let with = |proxies: u64| {
        let folder = Folder::new();
        let mut text = "
gateway: { http: '127.0.0.1:0', admin: '127.0.0.1:0', https: off, workers: 1 }
proxies:
"
        .to_owned();
        for n in 0..proxies {
            let proxy = format!(
                "id: p{n}, listen_path: /p{n}, backend_scheme: http, backend_host: 127.0.0.1, backend_port: 9"
            );
            text.push_str(&format!("  - {{ {proxy} }}\n"));
        }
        folder.write("ferrum.yaml", &text);
        let gateway = Gateway::start(&folder, |_| {});
        // What reading the file took is returned to the system little by little.
        let (mut least, mut same) = (memory(gateway.pid()), 0);
        // Somewhat longer than the allocator keeps what is free.
        while same < 48 {
            thread::sleep(Duration::from_millis(250));
            let now = memory(gateway.pid());
            same = if now < least { 0 } else { same + 1 };
            least = least.min(now);
        }
        least
    };
    let (few, many) = thread::scope(|scope| {
        let few = scope.spawn(|| with(10));
        let many = with(PROXIES);
        (few.join().unwrap(), many)
    });
    let each = many.saturating_sub(few) / PROXIES;
    assert!(each < PROXY_BYTES, "{each} bytes for each proxy");
}
