//! What the HTTP echo servers answer, the same in every version of HTTP.
//!
//! `POST` anything gives the body back; `/size/N` gives N bytes, the same each time, and `/json/N` N bytes of JSON; `/whoami/…`
//! names the path that arrived and the consumer that the gateway says it is; any other `GET` gives 64 bytes. A request's
//! `x-bench-stamp` comes back. The query `?type=text/css&max-age=60` is what the answer says of itself; one that may be kept has
//! no stamp, which would be another request's when it comes from a cache.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::LazyLock;

/// The parts of a request that decide its answer.
#[derive(Debug, Clone, Copy)]
pub struct RequestParts<'a> {
    pub post: bool,
    pub path: &'a str,
    /// Value of `x-consumer-username`, empty where there is none.
    pub consumer: &'a str,
}

/// The header a gateway names the consumer in.
pub const CONSUMER_HEADER: &str = "x-consumer-username";
/// The header a request without a body carries its stamp in.
pub const STAMP_HEADER: &str = "x-bench-stamp";
/// Largest body `/size/N` gives.
pub const LARGEST: usize = 64 * 1024 * 1024;

const FIXED: &[u8; 64] = b"sixty-four bytes, give or take none, from proto_bench's backend\n";

/// The body of the answer; nothing when the request's own body is it.
#[must_use]
pub fn body(asked: RequestParts<'_>) -> Option<Cow<'static, [u8]>> {
    if let Some((_, size)) = asked.path.split_once("/size/") {
        let size = size.split(['?', '/']).next().unwrap_or_default().parse::<usize>().unwrap_or(0);
        return Some(Cow::Owned(sized(size.min(LARGEST))));
    }
    if let Some((_, size)) = asked.path.split_once("/json/") {
        let size = size.split(['?', '/']).next().unwrap_or_default().parse::<usize>().unwrap_or(0);
        return Some(Cow::Owned(json_again(size.min(LARGEST))));
    }
    if asked.path.contains("/whoami") {
        return Some(Cow::Owned(who(asked.path, asked.consumer)));
    }
    if asked.post {
        return None;
    }
    Some(Cow::Borrowed(FIXED))
}

/// The body of `/size/N`: no stretch of it looks like its neighbours, so that a lost or repeated piece shows.
#[must_use]
pub fn sized(size: usize) -> Vec<u8> {
    const PIECE: usize = 1 << 20;
    static PATTERN: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut random = fastrand::Rng::with_seed(0x5eed);
        (0..PIECE).map(|_| random.alphanumeric() as u8).collect()
    });
    let mut body = Vec::with_capacity(size);
    while body.len() < size {
        let piece = (size - body.len()).min(PIECE);
        body.extend_from_slice(&PATTERN[..piece]);
    }
    body
}

/// [`json`], made once for the size that a thread is asked for.
fn json_again(size: usize) -> Vec<u8> {
    thread_local! { static LAST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) }; }
    LAST.with_borrow_mut(|last| {
        if last.len() != size {
            *last = json(size);
        }
        last.clone()
    })
}

/// The body of `/json/N`: records as an API gives them, cut to the size by a text at the end that pads it.
#[must_use]
pub fn json(size: usize) -> Vec<u8> {
    const START: &[u8] = b"{\"items\":[";
    const PAD: &[u8] = b"],\"pad\":\"";
    const END: &[u8] = b"\"}";
    let frame = START.len() + PAD.len() + END.len();
    if size < frame {
        // Too small for records: a number, padded by the spaces that JSON allows.
        return (0..size).map(|at| if at == 0 { b'1' } else { b' ' }).collect();
    }
    let mut random = fastrand::Rng::with_seed(0x5eed);
    let mut body = Vec::with_capacity(size);
    body.extend_from_slice(START);
    for number in 0_u32.. {
        let (id, price, stock) = (random.u32(..), random.u32(100..100_000), random.u16(..500));
        let comma = if number == 0 { "" } else { "," };
        let record = format!(
            "{comma}{{\"id\":{id},\"name\":\"article {number}\",\"price\":{price},\"currency\":\"EUR\",\"stock\":{stock}}}"
        );
        if body.len() + record.len() + PAD.len() + END.len() > size {
            break;
        }
        body.extend_from_slice(record.as_bytes());
    }
    body.extend_from_slice(PAD);
    body.resize(size - END.len(), b'.');
    body.extend_from_slice(END);
    body
}

/// What an answer says of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyHeaders<'a> {
    pub content_type: &'a str,
    /// Seconds that caches may keep it.
    pub max_age: Option<u32>,
}

/// What the answer to a path says of its body.
#[must_use]
pub fn said(path: &str) -> BodyHeaders<'_> {
    let known = if path.contains("/json/") { "application/json" } else { "application/octet-stream" };
    let mut said = BodyHeaders { content_type: known, max_age: None };
    let Some((_, query)) = path.split_once('?') else { return said };
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        match name {
            // Anything else could break out of the header.
            "type" if value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/+-.".contains(&byte)) => {
                said.content_type = value;
            }
            "max-age" => said.max_age = value.parse().ok(),
            _ => {}
        }
    }
    said
}

/// The body of a `/whoami` answer.
#[must_use]
pub fn who(path: &str, consumer: &str) -> Vec<u8> {
    format!("{path}\n{consumer}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_decides() {
        let size = |post, path| body(RequestParts { post, path, consumer: "" }).map(|body| body.len());
        assert_eq!(size(true, "/echo"), None);
        assert_eq!(size(false, "/"), Some(64));
        assert_eq!(size(false, "/size/65536"), Some(65_536));
        assert_eq!(size(false, "/size/nonsense"), Some(0));
        assert_eq!(said("/json/9"), BodyHeaders { content_type: "application/json", max_age: None });
        assert_eq!(
            said("/size/9?type=text/css&max-age=60"),
            BodyHeaders { content_type: "text/css", max_age: Some(60) }
        );
        assert_eq!(said("/size/9?type=a%0d%0ab").content_type, "application/octet-stream");
        let who = body(RequestParts { post: false, path: "/whoami/7", consumer: "user-7" });
        for size in [0, 1, 5, 25, 26, 200, 10_240] {
            let body = json(size);
            assert_eq!(body.len(), size);
            assert!(size == 0 || serde_json::from_slice::<serde_json::Value>(&body).is_ok(), "{size}");
        }
        assert_eq!(who.as_deref(), Some(&b"/whoami/7\nuser-7\n"[..]));
    }
}
