//! The combined log format of NCSA and Apache: `host ident user [date] "request" status bytes "referer" "agent"`.

use std::time::SystemTime;

use gateway_core::http::credentials::redact_referer;
use gateway_core::record::ExchangeRecord;
use http::header::{REFERER, USER_AGENT};

use crate::json::MAX_TEXT;
use crate::redact::{self, Secrets};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Appends the line of an exchange, without a line feed.
pub fn exchange(out: &mut Vec<u8>, record: &ExchangeRecord<'_>, secrets: Secrets<'_>) {
    let exchange = record.exchange;
    out.extend_from_slice(exchange.client_address.to_string().as_bytes());
    out.extend_from_slice(b" - ");
    match &exchange.identity {
        Some(identity) => word(out, identity.name.as_bytes()),
        None => out.push(b'-'),
    }
    let now = SystemTime::now();
    out.extend_from_slice(
        format!(" [{}] \"", date(now.checked_sub(record.duration).unwrap_or(now))).as_bytes(),
    );
    escape(out, exchange.method().as_str().as_bytes());
    out.push(b' ');
    escape(out, exchange.uri().path().as_bytes());
    if let Some(query) = exchange.uri().query() {
        out.push(b'?');
        escape(out, redact::plain(query, secrets).as_bytes());
    }
    out.extend_from_slice(format!(" {:?}\" {} ", exchange.version(), record.status).as_bytes());
    match record.response_bytes {
        0 => out.push(b'-'),
        bytes => out.extend_from_slice(bytes.to_string().as_bytes()),
    }
    let headers = &exchange.request.headers;
    let referer = headers.get(REFERER).map(|value| redact_referer(value.as_bytes()));
    for text in [referer.as_deref(), headers.get(USER_AGENT).map(|value| value.as_bytes())] {
        out.extend_from_slice(b" \"");
        escape(out, text.unwrap_or(b"-"));
        out.push(b'"');
    }
}

/// `22/Nov/2026:07:56:02 +0000`.
fn date(time: SystemTime) -> String {
    // `YYYY-MM-DDTHH:MM:SS…`, always of this shape.
    let text = crate::json::Rfc3339(time).to_string();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let month = part(5, 7).parse::<usize>().ok().and_then(|month| MONTHS.get(month.checked_sub(1)?));
    format!("{}/{}/{}:{} +0000", part(8, 10), month.unwrap_or(&"Jan"), part(0, 4), part(11, 19))
}

/// A text within quotation marks, as Apache writes it: nothing in it ends the text or the line.
fn escape(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text.iter().take(MAX_TEXT) {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            0x20..=0x7e => out.push(*byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
}

/// A text without spaces.
fn word(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text.iter().take(MAX_TEXT) {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            0x21..=0x7e => out.push(*byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
}
