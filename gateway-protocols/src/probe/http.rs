//! One GET over a connection of its own, of whose answer only the status matters.

use ::http::HeaderValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::ProbeError;
use crate::link::Link;

/// Bytes of an answer's head, interim answers included.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Header fields of an answer.
const MAX_HEADERS: usize = 128;

/// The final status of `GET path`.
pub(super) async fn get(mut link: Link, host: &HeaderValue, path: &str) -> Result<u16, ProbeError> {
    let mut request = Vec::with_capacity(256);
    request.extend_from_slice(b"GET ");
    request.extend_from_slice(path.as_bytes());
    request.extend_from_slice(b" HTTP/1.1\r\nhost: ");
    request.extend_from_slice(host.as_bytes());
    request
        .extend_from_slice(b"\r\nuser-agent: ferrum-edge-probe\r\naccept: */*\r\nconnection: close\r\n\r\n");
    link.write_all(&request).await?;
    link.flush().await?;
    let mut head = Vec::with_capacity(1024);
    loop {
        if let Some(status) = final_status(&mut head)? {
            return Ok(status);
        }
        if head.len() >= MAX_HEAD_BYTES || link.read_buf(&mut head).await? == 0 {
            return Err(ProbeError::Malformed);
        }
    }
}

/// The status, once a whole final head is there. Interim ones are taken off the front.
fn final_status(head: &mut Vec<u8>) -> Result<Option<u16>, ProbeError> {
    loop {
        let mut fields = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = response.parse(head).map_err(|_| ProbeError::Malformed)?;
        let httparse::Status::Complete(bytes) = parsed else { return Ok(None) };
        match response.code.ok_or(ProbeError::Malformed)? {
            100..=199 => drop(head.drain(..bytes)),
            status => return Ok(Some(status)),
        }
    }
}
