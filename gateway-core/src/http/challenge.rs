//! Answers to those who check that a host's name is this gateway's (RFC 8555, section 8.3).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};

use super::exchange::Exchange;
use super::reply::Reply;

/// What comes before the token.
const PATH: &str = "/.well-known/acme-challenge/";

/// What is answered, by the token that is asked for.
type Answers = HashMap<Box<str>, Box<str>>;

/// The challenges under way; the same for all who have a copy.
#[derive(Debug, Clone, Default)]
pub struct Challenges(Arc<UnderWay>);

#[derive(Debug, Default)]
struct UnderWay {
    /// Hardly ever is there one: every request looks at this first.
    any: AtomicBool,
    answers: ArcSwap<Answers>,
}

impl Challenges {
    /// Puts these in the place of those before.
    pub fn replace(&self, answers: Answers) {
        let any = !answers.is_empty();
        self.0.answers.store(Arc::new(answers));
        self.0.any.store(any, Ordering::Release);
    }

    /// The reply to a request over plain HTTP for a token under way. Anything else goes the usual way.
    #[inline]
    pub fn reply(&self, exchange: &Exchange) -> Option<Reply> {
        if !self.0.any.load(Ordering::Acquire) {
            return None;
        }
        self.find(exchange)
    }

    #[inline(never)]
    fn find(&self, exchange: &Exchange) -> Option<Reply> {
        let token = exchange.request.uri.path().strip_prefix(PATH)?;
        let is_asked = matches!(*exchange.method(), Method::GET | Method::HEAD);
        if !is_asked || exchange.client.tls.is_some() {
            return None;
        }
        let answer = self.0.answers.load().get(token)?.to_string();
        let reply = Reply::fixed(StatusCode::OK, answer)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))
            .header(CACHE_CONTROL, HeaderValue::from_static("no-store"))
            .reason("acme_challenge");
        Some(reply)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use http::Request;

    use super::*;
    use crate::http::body::Body;
    use crate::http::exchange::{Client, ClientTls};

    fn status(challenges: &Challenges, method: &str, path: &str, tls: bool) -> Option<StatusCode> {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let client = Client::new(address, address, false, tls.then(ClientTls::default));
        let request = Request::builder().method(method).uri(path).body(Body::empty()).expect("is a request");
        let exchange = Exchange::new(request, Arc::new(client));
        challenges.reply(&exchange).map(|reply| reply.http_status())
    }

    #[test]
    fn only_tokens_under_way_are_answered_and_only_over_plain_http() {
        let challenges = Challenges::default();
        let path = "/.well-known/acme-challenge/token";
        assert_eq!(status(&challenges, "GET", path, false), None);
        challenges.replace([("token".into(), "token.thumb".into())].into());
        for (method, path, tls, expected) in [
            ("GET", path, false, Some(StatusCode::OK)),
            ("HEAD", path, false, Some(StatusCode::OK)),
            ("GET", "http://shop.example/.well-known/acme-challenge/token?a", false, Some(StatusCode::OK)),
            ("POST", path, false, None),
            ("GET", path, true, None),
            ("GET", "/.well-known/acme-challenge/other", false, None),
            ("GET", "/.well-known/acme-challenge/token/", false, None),
            ("GET", "/.well-known/acme-challenge/", false, None),
            ("GET", "/token", false, None),
        ] {
            assert_eq!(status(&challenges, method, path, tls), expected, "{method} {path} {tls}");
        }
        let copy = challenges.clone();
        challenges.replace(HashMap::new());
        assert_eq!(status(&copy, "GET", path, false), None, "it is over for everybody");
    }
}
