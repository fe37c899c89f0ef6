//! A target that works, and then does not.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

/// What a target says first in every answer: whoever reads it got through.
pub(crate) const MARK: &str = "behind";

/// How it behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mood {
    /// Says whom it was asked by.
    Good,
    /// Closes every connection.
    Dead,
    /// Takes requests and answers none.
    Stalled,
    /// Answers what is no HTTP, or less than it promises.
    Lying,
}

/// A target at an address of its own.
pub(crate) struct Target {
    pub(crate) at: SocketAddr,
    mood: Arc<AtomicU8>,
}

impl Target {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mood = Arc::new(AtomicU8::new(Mood::Good as u8));
        let shared = mood.clone();
        thread::spawn(move || {
            for tcp in listener.incoming().map_while(Result::ok) {
                let mood = shared.clone();
                thread::spawn(move || serve(tcp, &mood));
            }
        });
        Self { at, mood }
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.mood.store(mood as u8, Ordering::Relaxed);
    }
}

fn serve(tcp: TcpStream, mood: &AtomicU8) -> Option<()> {
    tcp.set_nodelay(true).ok()?;
    tcp.set_read_timeout(Some(Duration::from_secs(120))).ok()?;
    let mut tcp = BufReader::new(tcp);
    let is = |wanted: Mood| mood.load(Ordering::Relaxed) == wanted as u8;
    loop {
        if is(Mood::Dead) {
            return None;
        }
        let mut consumer = "-".to_owned();
        loop {
            let mut line = String::new();
            tcp.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
            if line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("x-consumer-username")
            {
                value.trim().clone_into(&mut consumer);
            }
        }
        while is(Mood::Stalled) {
            thread::sleep(Duration::from_millis(20));
        }
        if is(Mood::Dead) {
            return None;
        }
        if is(Mood::Lying) {
            let lies: [&[u8]; 3] = [
                b"220 smtp.example.org ready\r\n",
                b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort",
                b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
            ];
            drop(tcp.get_mut().write_all(lies[consumer.len() % lies.len()]));
            return None;
        }
        let text = format!("{MARK} {consumer}");
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len());
        tcp.get_mut().write_all(answer.as_bytes()).ok()?;
    }
}
