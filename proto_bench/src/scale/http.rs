//! A small blocking HTTP/1.1 client for the admin API and for single probes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::driver::h1::response::{self, Framing};

/// One keep-alive connection, reopened when the server has closed it.
#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    stream: Option<TcpStream>,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("{address}: {source}")]
    Io { address: SocketAddr, source: io::Error },
    #[error("{address} closed the connection before its answer was whole")]
    Closed { address: SocketAddr },
    #[error("{address}: {reason}")]
    Broken { address: SocketAddr, reason: String },
}

const LIMIT: Duration = Duration::from_secs(300);
const LARGEST: usize = 256 * 1024 * 1024;

impl Client {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    /// Sends a request; `head` is its first line and headers, each line ended, without the empty line.
    pub(crate) fn ask(&mut self, head: &str, body: &[u8]) -> Result<Reply, HttpError> {
        let request =
            [head.as_bytes(), format!("content-length: {}\r\n\r\n", body.len()).as_bytes(), body].concat();
        let reused = self.stream.is_some();
        match self.try_once(&request) {
            // A server may close an idle connection at any time; that is no failure of the request.
            Err(HttpError::Closed { .. } | HttpError::Io { .. }) if reused => {
                self.stream = None;
                self.try_once(&request)
            }
            outcome => outcome,
        }
    }

    fn try_once(&mut self, request: &[u8]) -> Result<Reply, HttpError> {
        let address = self.address;
        let fail = |source| HttpError::Io { address, source };
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => connect(address).map_err(fail)?,
        };
        stream.write_all(request).map_err(fail)?;
        let mut received = Vec::new();
        loop {
            let mut chunk = [0; 16 * 1024];
            let count = stream.read(&mut chunk).map_err(fail)?;
            received.extend_from_slice(&chunk[..count]);
            let broken = |reason: String| HttpError::Broken { address, reason };
            let whole = read_reply(&received, count == 0).map_err(|fault| broken(fault.to_string()))?;
            if let Some((reply, keep)) = whole {
                self.stream = keep.then_some(stream);
                return Ok(reply);
            }
            if count == 0 {
                return Err(HttpError::Closed { address });
            }
            if received.len() > LARGEST {
                return Err(broken("the answer has no end".to_owned()));
            }
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    Ok(stream)
}

/// Reads an answer if it is whole; tells also whether the connection may be used again.
fn read_reply(bytes: &[u8], ended: bool) -> Result<Option<(Reply, bool)>, crate::driver::Fault> {
    let Some(head) = response::parse(bytes)? else { return Ok(None) };
    let rest = bytes.get(head.length..).unwrap_or_default();
    if head.status < 200 {
        return read_reply(rest, ended);
    }
    let body = match head.framing {
        Framing::Length(length) => rest.get(..length).map(<[u8]>::to_vec),
        Framing::UntilClose => ended.then(|| rest.to_vec()),
        Framing::Chunked => join_chunks(rest)?,
    };
    Ok(body.map(|body| (Reply { status: head.status, body }, !head.last)))
}

fn join_chunks(bytes: &[u8]) -> Result<Option<Vec<u8>>, crate::driver::Fault> {
    let (mut at, mut body) = (0, Vec::new());
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some((size, line)) = response::chunk_size(rest)? else { return Ok(None) };
        at += line;
        if size == 0 {
            let trailers = response::trailers(bytes.get(at..).unwrap_or_default())?;
            return Ok(trailers.map(|_| body));
        }
        let Some(chunk) = bytes.get(at..at.saturating_add(size)) else { return Ok(None) };
        body.extend_from_slice(chunk);
        at += size + 2;
    }
}
