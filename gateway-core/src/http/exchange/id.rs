//! The id of a request, for templates, logs and servers that are asked about it.

use std::hash::BuildHasher as _;
use std::sync::atomic::Ordering;

use foldhash::fast::FixedState;
use http::HeaderValue;

use super::Exchange;

impl Exchange {
    /// The request's id: the one that a plugin gave it, else a random one of its own, the same whenever it is asked for.
    pub fn id(&self) -> HeaderValue {
        if let Some(id) = self.request_id() {
            return id.clone();
        }
        self.is_id_in_use.store(true, Ordering::Relaxed);
        let other = FixedState::with_seed(self.id_seed).hash_one((self.started, self.client.peer));
        uuid(u128::from(self.id_seed) << 64 | u128::from(other))
    }

    /// The id, where a plugin gave one or something has asked for it: the access log shows what others have seen.
    pub fn id_in_use(&self) -> Option<HeaderValue> {
        let is_in_use = self.request_id().is_some() || self.is_id_in_use.load(Ordering::Relaxed);
        is_in_use.then(|| self.id())
    }
}

/// A UUID (RFC 9562 §5.4, version 4) of these random bits.
pub fn uuid(random: u128) -> HeaderValue {
    let bits = random & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let parts = [hex.get(..8), hex.get(8..12), hex.get(12..16), hex.get(16..20), hex.get(20..)];
    let text = parts.map(Option::unwrap_or_default).join("-");
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Request;

    use super::*;
    use crate::http::body::Body;
    use crate::http::exchange::Client;

    fn exchange() -> Exchange {
        let address = "10.0.0.9:1".parse().unwrap();
        Exchange::new(Request::new(Body::empty()), Arc::new(Client::new(address, address, false, None)))
    }

    #[test]
    fn every_request_has_one_id() {
        let (one, other) = (exchange(), exchange());
        assert_eq!(one.id_in_use(), None, "nothing asked");
        let id = one.id();
        assert_eq!((one.id(), one.id_in_use()), (id.clone(), Some(id.clone())));
        assert_ne!(other.id(), id);
        let text = id.to_str().unwrap();
        assert_eq!((text.len(), text.as_bytes()[14]), (36, b'4'), "{text}");
    }

    #[test]
    fn an_id_that_a_plugin_gives_is_the_requests() {
        let mut exchange = exchange();
        exchange.set_request_id(HeaderValue::from_static("given"));
        assert_eq!(
            (exchange.id(), exchange.id_in_use()),
            ("given".parse().unwrap(), Some("given".parse().unwrap()))
        );
    }
}
