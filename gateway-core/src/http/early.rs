//! Requests that come in TLS early data, before the client's handshake is over (RFC 8470).
//!
//! Whoever has recorded early data may send it again, so that a request in it may be carried out twice, and not by its
//! client's will. Only what changes nothing is carried out early, and its target is told; all else waits for the end of
//! the handshake, which nobody but the client can bring about. Waiting costs the client nothing: 425 would have it send
//! the request again, which gets to us no sooner.

use http::header::HeaderName;
use http::{HeaderValue, Method};

use super::dialect::Dialect;
use super::exchange::Exchange;

/// `Early-Data` (RFC 8470 §5.1).
pub const EARLY_DATA: HeaderName = HeaderName::from_static("early-data");
/// The only value it has.
pub(crate) const MARK: HeaderValue = HeaderValue::from_static("1");

/// Decides about a request whose client's handshake was not over when it was looked at: carried out early where that is
/// safe and `welcome`, else after the handshake.
pub(crate) async fn attend(exchange: &mut Exchange, welcome: bool) {
    let Some(handshake) = exchange.client.handshake.clone() else { return };
    if welcome && is_safe(exchange) {
        exchange.early = !handshake.is_over();
    } else {
        handshake.over().await;
    }
}

/// Whether carrying a request out once more changes nothing (RFC 9110 §9.2.1). Bodies, gRPC and switches of protocols
/// are not looked into.
fn is_safe(exchange: &Exchange) -> bool {
    matches!(*exchange.method(), Method::GET | Method::HEAD | Method::OPTIONS)
        && exchange.dialect == Dialect::Plain
        && exchange.upgrade.is_none()
        && exchange.body.is_empty()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::Request;

    use super::*;
    use crate::http::body::Body;
    use crate::http::exchange::Client;
    use crate::http::handshake::Handshake;

    fn exchange(method: Method, body: Body) -> (Exchange, Arc<Handshake>) {
        let handshake = Arc::new(Handshake::default());
        let anywhere = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let mut client = Client::new(anywhere, anywhere, false, None);
        client.handshake = Some(handshake.clone());
        let mut request = Request::new(body);
        *request.method_mut() = method;
        (Exchange::new(request, Arc::new(client)), handshake)
    }

    async fn is_carried_out_early(mut exchange: Exchange, handshake: Arc<Handshake>, welcome: bool) -> bool {
        let early = {
            let mut attending = std::pin::pin!(attend(&mut exchange, welcome));
            tokio::select! {
                biased;
                () = &mut attending => true,
                () = std::future::ready(()) => {
                    handshake.finish();
                    attending.await;
                    false
                }
            }
        };
        assert_eq!(exchange.early, early);
        early
    }

    #[tokio::test]
    async fn only_what_changes_nothing_is_carried_out_early() {
        for (method, early) in [
            (Method::GET, true),
            (Method::HEAD, true),
            (Method::OPTIONS, true),
            (Method::POST, false),
            (Method::PUT, false),
            (Method::DELETE, false),
            (Method::CONNECT, false),
        ] {
            let (exchange, handshake) = exchange(method.clone(), Body::empty());
            assert_eq!(is_carried_out_early(exchange, handshake, true).await, early, "{method}");
        }
        let (with_body, handshake) = exchange(Method::GET, Body::full("body"));
        assert!(!is_carried_out_early(with_body, handshake, true).await);
        let (mut upgrade, handshake) = exchange(Method::GET, Body::empty());
        upgrade.dialect = Dialect::Upgrade;
        assert!(!is_carried_out_early(upgrade, handshake, true).await);
        let (unwelcome, handshake) = exchange(Method::GET, Body::empty());
        assert!(!is_carried_out_early(unwelcome, handshake, false).await);
    }

    #[tokio::test]
    async fn after_the_handshake_nothing_is_early() {
        let (mut exchange, handshake) = exchange(Method::GET, Body::empty());
        assert!(exchange.client.is_early());
        handshake.finish();
        attend(&mut exchange, true).await;
        assert!(!exchange.early && !exchange.client.is_early());
    }
}
