//! The gateway's access records, read from its access log through a pipe: each arrives as the event it is.

use std::io::{BufRead, BufReader, PipeWriter, Write};
use std::os::fd::AsRawFd;

use serde_json::Value;
use tokio::sync::mpsc;

use super::soon;

/// The reading end of an access log.
pub(crate) struct Records {
    lines: mpsc::UnboundedReceiver<Value>,
    /// Keeps the path valid until the gateway has opened it, and the reader going while the gateway lives.
    writer: PipeWriter,
}

impl Records {
    /// A new pipe, read by a thread of its own so that the gateway's writer never waits for a test.
    pub(crate) fn new() -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let (sender, lines) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines() {
                let Ok(line) = line else { return };
                let record = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
                if sender.send(record).is_err() {
                    return;
                }
            }
        });
        Self { lines, writer }
    }

    /// Where the gateway is to write.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.writer.as_raw_fd())
    }

    /// Nothing was recorded before now; for when the gateway has ended and everything is written.
    pub(crate) async fn nothing_more(&mut self) {
        self.writer.write_all(b"{\"url.path\": \"the end\"}\n").expect("a line written");
        let next = self.next().await;
        assert_eq!(next.path(), "the end", "one record too many: {next:?}");
    }

    /// The next record.
    #[track_caller]
    pub(crate) fn next(&mut self) -> impl Future<Output = Record> + '_ {
        let waiting = soon(self.lines.recv());
        async move { Record(waiting.await.expect("the access log goes on")) }
    }
}

/// One record.
#[derive(Debug)]
pub(crate) struct Record(pub(crate) Value);

impl Record {
    pub(crate) fn status(&self) -> u64 {
        self.0["http.response.status_code"].as_u64().unwrap_or(0)
    }

    /// Why it ended otherwise than with a target's whole answer; empty when it did not.
    pub(crate) fn reason(&self) -> &str {
        self.0["error.type"].as_str().unwrap_or("")
    }

    pub(crate) fn path(&self) -> &str {
        self.0["url.path"].as_str().unwrap_or("")
    }

    pub(crate) fn attempts(&self) -> u64 {
        self.0["upstream.attempts"].as_u64().unwrap_or(0)
    }
}
