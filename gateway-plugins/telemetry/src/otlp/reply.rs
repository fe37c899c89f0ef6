//! What a collector answers: which items it refused, and when to try again.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

use super::encoder::Encoding;
use crate::deliver::{Delivered, Failed};

/// Bytes of a collector's message that are shown.
const MAX_MESSAGE: usize = 500;

/// An answer over HTTP.
pub(super) fn of_http(
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
    encoding: Encoding,
) -> Result<Delivered, Failed> {
    if status.is_success() {
        return Ok(match encoding {
            Encoding::Protobuf => partial_success(body).unwrap_or_default(),
            Encoding::Json => partial_success_json(body).unwrap_or_default(),
        });
    }
    // OTLP's list; all else stays as it is.
    Err(refusal(status, headers, body, matches!(status.as_u16(), 429 | 502..=504)))
}

fn refusal(status: StatusCode, headers: &HeaderMap, body: &[u8], may_pass: bool) -> Failed {
    let said = String::from_utf8_lossy(&body[..body.len().min(MAX_MESSAGE)]);
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let message = format!("the server answered {}: {}", status.as_u16(), said.trim());
    let after = headers.get(http::header::RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?));
    Failed { message, may_pass, after: after.filter(|_| may_pass) }
}

/// An answer to a POST of any kind. Servers of logs answer 500 while parts of them are away, as Loki does: it may pass, as all
/// that is not about the request itself.
///
/// # Errors
/// When it was not taken.
pub fn of_post(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Result<Delivered, Failed> {
    if status.is_success() {
        return Ok(Delivered::default());
    }
    let may_pass = match status.as_u16() {
        408 | 429 => true,
        501 | 505 => false,
        status => status >= 500,
    };
    Err(refusal(status, headers, body, may_pass))
}

/// Seconds, or a date.
fn retry_after(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(SystemTime::now()).unwrap_or_default())
}

/// An answer over gRPC: the status of its trailers, or of its head where there is nothing else.
pub(super) fn of_grpc(
    status: StatusCode,
    head: &HeaderMap,
    trailers: &HeaderMap,
    body: &[u8],
) -> Result<Delivered, Failed> {
    if !status.is_success() {
        let may_pass = matches!(status.as_u16(), 429 | 502..=504);
        let message = format!("the collector answered {}", status.as_u16());
        return Err(Failed { message, may_pass, after: None });
    }
    let field =
        |name: &str| trailers.get(name).or_else(|| head.get(name)).and_then(|value| value.to_str().ok());
    let code = field("grpc-status").and_then(|code| code.trim().parse::<u8>().ok());
    match code {
        Some(0) => {
            // One frame: a byte that says whether it is compressed, four of length.
            let message = body.split_at_checked(5).map_or(&[][..], |(_, message)| message);
            Ok(partial_success(message).unwrap_or_default())
        }
        Some(code) => {
            let said = field("grpc-message").unwrap_or_default();
            let said = percent_encoding::percent_decode_str(said).decode_utf8_lossy();
            let said: String =
                said.chars().take(MAX_MESSAGE).map(|c| if c.is_control() { ' ' } else { c }).collect();
            // Cancelled, deadline exceeded, resource exhausted, aborted, out of range, unavailable, data loss.
            let may_pass = matches!(code, 1 | 4 | 8 | 10 | 11 | 14 | 15);
            Err(Failed {
                message: format!("the collector answered with gRPC status {code}: {said}"),
                may_pass,
                after: None,
            })
        }
        None => Err(Failed::passing("the collector answered without a gRPC status")),
    }
}

/// `partial_success = 1 { rejected = 1, error_message = 2 }`; every signal has the same.
fn partial_success(body: &[u8]) -> Option<Delivered> {
    let mut delivered = Delivered::default();
    let (number, partial) = fields(body).find(|(number, _)| *number == 1)?;
    debug_assert_eq!(number, 1);
    let Value::Bytes(partial) = partial else { return None };
    for (number, value) in fields(partial) {
        match (number, value) {
            (1, Value::Number(refused)) => delivered.refused = refused,
            (2, Value::Bytes(why)) => {
                delivered.why = String::from_utf8_lossy(&why[..why.len().min(MAX_MESSAGE)]).into_owned();
            }
            _ => {}
        }
    }
    Some(delivered)
}

fn partial_success_json(body: &[u8]) -> Option<Delivered> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    let partial = answer.get("partialSuccess")?;
    let mut delivered = Delivered::default();
    for (key, value) in partial.as_object()? {
        // `rejectedSpans`, `rejectedLogRecords`, `rejectedDataPoints`: a text, as all 64-bit numbers are.
        if key.starts_with("rejected") {
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
            delivered.refused = number.unwrap_or_default();
        } else if key == "errorMessage" {
            delivered.why = value.as_str().unwrap_or_default().chars().take(MAX_MESSAGE).collect();
        }
    }
    Some(delivered)
}

enum Value<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// The fields of a protobuf message, up to the first that is malformed.
fn fields(mut bytes: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    std::iter::from_fn(move || {
        let tag = varint(&mut bytes)?;
        let value = match tag & 7 {
            0 => Value::Number(varint(&mut bytes)?),
            1 => Value::Bytes(taken(&mut bytes, 8)?),
            2 => {
                let length = varint(&mut bytes)?;
                Value::Bytes(taken(&mut bytes, usize::try_from(length).ok()?)?)
            }
            5 => Value::Bytes(taken(&mut bytes, 4)?),
            _ => return None,
        };
        Some((tag >> 3, value))
    })
}

fn taken<'b>(bytes: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(fields: &[(&'static str, &str)]) -> HeaderMap {
        fields.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn answers_over_http_say_what_was_refused_and_what_may_pass() {
        let ok = |body: &[u8], encoding| of_http(StatusCode::OK, &HeaderMap::new(), body, encoding).unwrap();
        assert_eq!(ok(b"", Encoding::Protobuf), Delivered::default());
        let partial = [0x0a, 7, 0x08, 0xac, 2, 0x12, 2, b'n', b'o'];
        assert_eq!(ok(&partial, Encoding::Protobuf), Delivered { refused: 300, why: "no".into() });
        assert_eq!(ok(&partial[..5], Encoding::Protobuf), Delivered::default(), "cut off");
        assert_eq!(
            ok(b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Encoding::Protobuf),
            Delivered::default()
        );
        let json = br#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}}"#;
        assert_eq!(ok(json, Encoding::Json), Delivered { refused: 3, why: "no".into() });
        assert_eq!(ok(b"{}", Encoding::Json), Delivered::default());
        let failed = |status, fields: &[(&'static str, &str)]| {
            of_http(StatusCode::from_u16(status).unwrap(), &map(fields), b"oh\nno", Encoding::Json)
                .unwrap_err()
        };
        let busy = failed(503, &[("retry-after", "7")]);
        assert_eq!((busy.may_pass, busy.after), (true, Some(Duration::from_secs(7))));
        assert_eq!(busy.message, "the server answered 503: oh no");
        assert!(
            failed(429, &[("retry-after", "Thu, 01 Jan 1970 00:00:00 GMT")]).after == Some(Duration::ZERO)
        );
        assert!(!failed(400, &[]).may_pass && !failed(500, &[]).may_pass);
    }

    #[test]
    fn what_a_server_of_logs_answers_while_it_is_ill_may_pass() {
        let failed = |status| {
            of_post(StatusCode::from_u16(status).unwrap(), &map(&[("retry-after", "7")]), b"no").unwrap_err()
        };
        for status in [408, 429, 500, 502, 503, 504, 507] {
            assert!(failed(status).may_pass && failed(status).after.is_some(), "{status}");
        }
        for status in [301, 400, 401, 404, 413, 422, 501] {
            assert!(!failed(status).may_pass && failed(status).after.is_none(), "{status}");
        }
    }

    #[test]
    fn answers_over_grpc_have_their_status_behind_or_in_front() {
        let of = |head: &[(&'static str, &str)], trailers: &[(&'static str, &str)], body: &[u8]| {
            of_grpc(StatusCode::OK, &map(head), &map(trailers), body)
        };
        let partial = [0, 0, 0, 0, 4, 0x0a, 2, 0x08, 5];
        assert_eq!(of(&[], &[("grpc-status", "0")], &partial).unwrap().refused, 5);
        assert_eq!(of(&[], &[("grpc-status", "0")], &[]).unwrap().refused, 0);
        let failed = of(&[("grpc-status", "14"), ("grpc-message", "not%20now")], &[], &[]).unwrap_err();
        assert!(failed.may_pass && failed.message.ends_with("14: not now"), "{failed}");
        assert!(!of(&[], &[("grpc-status", "3")], &[]).unwrap_err().may_pass);
        assert!(of(&[], &[], &[]).is_err());
    }
}
