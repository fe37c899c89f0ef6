//! The h3 crate on both sides of the gateway: whatever messages it writes come through, and come through the same.

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};

use crate::support::h3::{Client, edge_with, origin};
use crate::support::{soon, tls};

/// Numbers that are the same each time (a linear congruential generator).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

const NAMES: [&str; 14] = [
    "accept",
    "accept-encoding",
    "authorization",
    "cache-control",
    "content-type",
    "cookie",
    "etag",
    "x-a",
    "x-frame-options",
    "user-agent",
    "vary",
    "x-a-name-that-is-so-long-that-its-length-takes-two-octets",
    "early-hint",
    "if-none-match",
];
const VALUES: [&str; 9] = [
    "",
    "*/*",
    "gzip, deflate, br",
    "no-cache",
    "text/plain",
    "DENY",
    "\u{e4}\u{f6}\u{fc}",
    "a=b",
    "{\"json\": [1,2,3]}",
];

fn fields(numbers: &mut Numbers) -> HeaderMap {
    let mut map = HeaderMap::new();
    for _ in 0..numbers.below(12) {
        let name = HeaderName::from_static(NAMES[numbers.below(NAMES.len())]);
        let value = match numbers.below(4) {
            0 => "long ".repeat(numbers.below(400)).trim_end().to_owned(),
            _ => VALUES[numbers.below(VALUES.len())].to_owned(),
        };
        // One of each: crumbs of cookies are joined on the way.
        map.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    map
}

fn body(numbers: &mut Numbers) -> Vec<u8> {
    let length = [0, 1, 63, 64, 4096, 4097, 16_383, 16_384, 100_000][numbers.below(9)];
    (0..length).map(|at| (at * 31) as u8).collect()
}

/// All that was sent has come, beside what a gateway adds.
fn assert_came(sent: &HeaderMap, came: &HeaderMap) {
    for (name, value) in sent {
        assert_eq!(came.get(name), Some(value), "{name}");
    }
}

#[tokio::test]
async fn messages_of_any_kind_come_through_the_same() {
    let (address, mut streams) = origin(std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let mut edge = edge_with(
        "",
        &format!(
            "proxies:\n  - {{id: a, listen_path: /, backend_scheme: https, backend_http_version: '3', \
             backend_host: 127.0.0.1, backend_port: {}, backend_tls_ca_path: {:?}}}\n",
            address.port(),
            tls::authority().ca()
        ),
    );
    let client = Client::open(edge.https()).await;
    let mut numbers = Numbers(9114);
    for round in 0..120 {
        let (asked, answered) = (fields(&mut numbers), fields(&mut numbers));
        let (up, down) = (body(&mut numbers), body(&mut numbers));
        let method = [Method::GET, Method::POST, Method::PUT, Method::DELETE][numbers.below(4)].clone();
        let trailers = (round % 3 == 0).then(|| fields(&mut numbers)).filter(|fields| !fields.is_empty());
        let mut request = Request::builder()
            .method(method.clone())
            .uri(format!("https://a.test/{round}?q={round}"))
            .body(())
            .unwrap();
        *request.headers_mut() = asked.clone();
        if round % 2 == 0 && !up.is_empty() {
            request.headers_mut().insert("content-length", up.len().into());
        }
        let mut stream = client.send(request).await;
        if !up.is_empty() {
            stream.data(up.clone()).await;
        }
        stream.finish().await;
        let (head, mut served) = soon(streams.recv()).await.unwrap();
        assert_eq!((head.method(), head.uri().path()), (&method, format!("/{round}").as_str()));
        assert_came(&asked, head.headers());
        let mut got = Vec::new();
        while let Some(mut data) = soon(served.recv_data()).await.unwrap() {
            got.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        assert!(got == up, "{round}: {} of {}", got.len(), up.len());
        let mut response =
            Response::builder().status(200 + u16::try_from(round % 3).unwrap()).body(()).unwrap();
        *response.headers_mut() = answered.clone();
        soon(served.send_response(response)).await.unwrap();
        if !down.is_empty() {
            soon(served.send_data(Bytes::from(down.clone()))).await.unwrap();
        }
        if let Some(trailers) = &trailers {
            soon(served.send_trailers(trailers.clone())).await.unwrap();
        }
        soon(served.finish()).await.unwrap();
        let answer = stream.answer().await.unwrap();
        assert_eq!(answer.head.status().as_u16(), 200 + u16::try_from(round % 3).unwrap());
        assert_came(&answered, answer.head.headers());
        assert!(answer.body == down, "{round}: {} of {}", answer.body.len(), down.len());
        if let Some(trailers) = &trailers {
            let plain = trailers.iter().filter(|(name, _)| name.as_str().starts_with("x-a"));
            for (name, value) in plain {
                assert_eq!(answer.trailers.get(name), Some(value), "{round}: {name}");
            }
        }
        assert_eq!(edge.only_record().await.reason(), "", "{round}");
    }
}
