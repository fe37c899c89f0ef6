//! A client that keeps its connection, and a target that says what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longer than anything here takes on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// An answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// A connection that is kept, and opened anew when it was closed.
pub(crate) struct Client {
    at: SocketAddr,
    kept: Option<BufReader<TcpStream>>,
}

impl Client {
    pub(crate) fn new(at: SocketAddr) -> Self {
        Self { at, kept: None }
    }

    pub(crate) fn get(&mut self, path: &str, key: Option<&str>) -> Answer {
        let key = key.map_or_else(String::new, |key| format!("x-api-key: {key}\r\n"));
        self.ask("GET", path, &key, b"")
    }

    /// Asks; `head` are lines of the head.
    pub(crate) fn ask(&mut self, method: &str, path: &str, head: &str, body: &[u8]) -> Answer {
        self.try_ask(method, path, head, body).unwrap_or_else(|| panic!("no answer to {method} {path}"))
    }

    /// Asks somebody who may be gone.
    pub(crate) fn try_ask(&mut self, method: &str, path: &str, head: &str, body: &[u8]) -> Option<Answer> {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{head}content-length: {}\r\n\r\n",
            body.len()
        );
        // A kept connection may have been closed since the answer before.
        if let Some(answer) = self.kept.take().and_then(|kept| self.over(kept, &text, body)) {
            return Some(answer);
        }
        let tcp = TcpStream::connect(self.at).ok()?;
        tcp.set_read_timeout(Some(TIMEOUT)).unwrap();
        tcp.set_nodelay(true).unwrap();
        self.over(BufReader::new(tcp), &text, body)
    }

    fn over(&mut self, mut tcp: BufReader<TcpStream>, head: &str, body: &[u8]) -> Option<Answer> {
        // Who refuses early reads no body, and answers all the same.
        drop(tcp.get_mut().write_all(&[head.as_bytes(), body].concat()));
        let mut status = String::new();
        tcp.read_line(&mut status).ok().filter(|bytes| *bytes > 0)?;
        let status = status.split(' ').nth(1)?.parse().ok()?;
        let mut headers: Vec<(String, String)> = Vec::new();
        loop {
            let mut line = String::new();
            tcp.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let header = |name: &str| headers.iter().find(|(known, _)| known == name).map(|(_, value)| &**value);
        let length = header("content-length").map(|length| length.parse().unwrap());
        let closes = header("connection") == Some("close");
        let text = match length {
            Some(length) => {
                let mut bytes = vec![0; length];
                tcp.read_exact(&mut bytes).ok()?;
                String::from_utf8(bytes).unwrap()
            }
            None if header("transfer-encoding") == Some("chunked") => chunks(&mut tcp)?,
            None => String::new(),
        };
        if !closes {
            self.kept = Some(tcp);
        }
        Some(Answer { status, headers, text })
    }
}

fn chunks(tcp: &mut BufReader<TcpStream>) -> Option<String> {
    let mut all = Vec::new();
    loop {
        let mut line = String::new();
        tcp.read_line(&mut line).ok()?;
        let size = usize::from_str_radix(line.trim(), 16).ok()?;
        let mut chunk = vec![0; size + 2];
        tcp.read_exact(&mut chunk).ok()?;
        all.extend(&chunk[..size]);
        if size == 0 {
            return String::from_utf8(all).ok();
        }
    }
}

/// A target that answers with its name, the path, the consumer it was told and the key it should not see.
pub(crate) fn target(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    thread::spawn(move || {
        for tcp in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(name, tcp));
        }
    });
    at
}

fn serve(name: &str, tcp: TcpStream) -> Option<()> {
    tcp.set_nodelay(true).ok()?;
    let mut tcp = BufReader::new(tcp);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            tcp.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
            if line == "\r\n" {
                break;
            }
            lines.push(line.trim_end().to_owned());
        }
        let header = |wanted: &str| {
            let value = |line: &String| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case(wanted).then(|| value.trim().to_owned())
            };
            lines.iter().find_map(value).unwrap_or_else(|| "-".to_owned())
        };
        let path = lines.first()?.split(' ').nth(1)?.to_owned();
        let text = format!("{name} {path} {} {}", header("x-consumer-username"), header("x-api-key"));
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        tcp.get_mut().write_all(answer.as_bytes()).ok()?;
    }
}

/// Waits for something that happens elsewhere.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        thread::park_timeout(Duration::from_millis(5));
    }
}
