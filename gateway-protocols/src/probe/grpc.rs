//! `grpc.health.v1.Health/Check` over HTTP/2, its two messages written and read by hand.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, USER_AGENT};
use ::http::{HeaderMap, HeaderValue, Method, StatusCode};
use bytes::{Bytes, BytesMut};
use gateway_core::config::model::Http2Rules;

use super::ProbeError;
use crate::h2::connection::{Extra, RequestLine};
use crate::h2::handle::ResponseHead;
use crate::h2::stream::StreamError;
use crate::link::Link;
use crate::upstream::h2::H2Connection;

/// Bytes of the answer; a good one has seven.
const MAX_ANSWER_BYTES: usize = 4096;
/// `ServingStatus.SERVING`
const SERVING: u64 = 1;

/// Asks for a service's health; an empty name asks for the server's.
pub(super) async fn check(
    link: Link,
    scheme: &'static str,
    authority: &str,
    service: &str,
) -> Result<(), ProbeError> {
    // The connection ends with this call: nothing else will be asked on it.
    let connection = H2Connection::open_on(link, &Http2Rules::default(), Arc::default(), None);
    let headers: HeaderMap = [
        (CONTENT_TYPE, HeaderValue::from_static("application/grpc")),
        (USER_AGENT, HeaderValue::from_static("ferrum-edge-probe")),
    ]
    .into_iter()
    .collect();
    let path = "/grpc.health.v1.Health/Check";
    let line = RequestLine { method: &Method::POST, scheme, authority: authority.as_bytes(), path };
    let extra = Extra { trailers: true, ..Extra::default() };
    let stream = connection.open(&line, &headers, &extra, false).await.ok_or(ProbeError::Malformed)?;
    poll_fn(|cx| stream.poll_room(cx, FOREVER)).await.map_err(broken)?;
    stream.send_data(question(service), true).map_err(broken)?;
    let head = loop {
        match poll_fn(|cx| stream.poll_said(cx, || None)).await.map_err(broken)? {
            ResponseHead::Interim(_) => {}
            ResponseHead::Final(head) => break head,
        }
    };
    if head.status() != StatusCode::OK {
        return Err(ProbeError::Status(head.status().as_u16()));
    }
    let mut answer = BytesMut::new();
    while let Some(data) = poll_fn(|cx| stream.poll_data(cx, FOREVER)).await {
        answer.extend_from_slice(&data.map_err(broken)?);
        if answer.len() > MAX_ANSWER_BYTES {
            return Err(ProbeError::Malformed);
        }
    }
    // A call refused at once has its status in the head.
    succeeded(stream.trailers().as_ref().unwrap_or_else(|| head.headers()))?;
    match serving_status(&answer).ok_or(ProbeError::Malformed)? {
        SERVING => Ok(()),
        other => Err(ProbeError::NotServing(other)),
    }
}

/// A probe has one timeout for all of it.
const FOREVER: Duration = Duration::ZERO;

fn broken(error: StreamError) -> ProbeError {
    ProbeError::Http2(io::Error::other(error))
}

/// The request's message: field 1, a string.
fn question(service: &str) -> Bytes {
    let mut message = Vec::with_capacity(service.len() + 16);
    if !service.is_empty() {
        message.push(0x0a);
        let mut len = service.len();
        while len >= 0x80 {
            message.push((len & 0x7f) as u8 | 0x80);
            len >>= 7;
        }
        message.push(len as u8);
        message.extend_from_slice(service.as_bytes());
    }
    let mut framed = Vec::with_capacity(message.len() + 5);
    framed.push(0);
    // A service's name comes from a configuration file and is far from four gigabytes.
    framed.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    framed.append(&mut message);
    framed.into()
}

fn succeeded(trailers: &HeaderMap) -> Result<(), ProbeError> {
    match trailers.get("grpc-status") {
        Some(status) if status == "0" => Ok(()),
        Some(status) => Err(ProbeError::Grpc(String::from_utf8_lossy(status.as_bytes()).into_owned())),
        None => Err(ProbeError::Malformed),
    }
}

/// The answer's field 1, a number; absent is 0. `None` when the message is no such message.
fn serving_status(framed: &[u8]) -> Option<u64> {
    let (frame, mut message) = framed.split_at_checked(5)?;
    let len = u32::from_be_bytes(frame[1..].try_into().ok()?);
    if frame[0] != 0 || message.len() != len as usize {
        return None;
    }
    let mut status = 0;
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match (tag >> 3, tag & 7) {
            (1, 0) => status = varint(&mut message)?,
            (_, 0) => drop(varint(&mut message)?),
            (_, 2) => {
                let len = usize::try_from(varint(&mut message)?).ok()?;
                message = message.get(len..)?;
            }
            (_, 1) => message = message.get(8..)?,
            (_, 5) => message = message.get(4..)?,
            _ => return None,
        }
    }
    Some(status)
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_status_among_other_fields() {
        assert_eq!(serving_status(&[0, 0, 0, 0, 2, 8, 1]), Some(1));
        assert_eq!(serving_status(&[0, 0, 0, 0, 0]), Some(0), "absent is the default");
        assert_eq!(serving_status(&[0, 0, 0, 0, 7, 0x12, 1, b'x', 0x18, 9, 8, 2]), Some(2));
    }

    #[test]
    fn refuses_what_is_no_such_message() {
        for bad in [
            &[][..],
            &[0, 0, 0, 0],
            &[1, 0, 0, 0, 2, 8, 1],
            &[0, 0, 0, 0, 9, 8, 1],
            &[0, 0, 0, 0, 1, 8],
            &[0, 0, 0, 0, 2, 0x12, 99],
            &[0, 0, 0, 0, 2, 0x0b, 1],
        ] {
            assert_eq!(serving_status(bad), None, "{bad:?}");
        }
        let endless = [&[0, 0, 0, 0, 12, 8][..], &[0xff; 11]].concat();
        assert_eq!(serving_status(&endless), None);
    }

    #[test]
    fn a_long_name_has_a_long_length() {
        let framed = question(&"s".repeat(300));
        assert_eq!(&framed[..8], &[0, 0, 0, 1, 47, 0x0a, 0xac, 0x02]);
        assert_eq!(&question("")[..], &[0; 5]);
    }
}
