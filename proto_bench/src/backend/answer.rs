//! What the HTTP echo servers answer, the same in every version of HTTP.
//!
//! `POST` anything gives the body back; `/size/N` gives N bytes, the same each time; `/whoami/…` names the path that arrived and the
//! consumer that the gateway says it is; any other `GET` gives 64 bytes. A request's `x-bench-stamp` comes back.

use std::borrow::Cow;
use std::sync::LazyLock;

/// The parts of a request that decide its answer.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
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
pub fn body(asked: Asked<'_>) -> Option<Cow<'static, [u8]>> {
    if let Some((_, size)) = asked.path.split_once("/size/") {
        let size = size.split(['?', '/']).next().unwrap_or_default().parse::<usize>().unwrap_or(0);
        return Some(Cow::Owned(sized(size.min(LARGEST))));
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
        let size = |post, path| body(Asked { post, path, consumer: "" }).map(|body| body.len());
        assert_eq!(size(true, "/echo"), None);
        assert_eq!(size(false, "/"), Some(64));
        assert_eq!(size(false, "/size/65536"), Some(65_536));
        assert_eq!(size(false, "/size/nonsense"), Some(0));
        let who = body(Asked { post: false, path: "/whoami/7", consumer: "user-7" });
        assert_eq!(who.as_deref(), Some(&b"/whoami/7\nuser-7\n"[..]));
    }
}
