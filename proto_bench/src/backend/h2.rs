//! An HTTP/2 echo server on the `h2` crate; requests that say they are gRPC get their message back with trailers.

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use h2::server::{self, SendResponse};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::spawn_local;

use super::answer::{self, CONSUMER_HEADER, RequestParts, STAMP_HEADER};

/// Serves one connection to its end.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> Result<(), h2::Error> {
    let mut connection = server::Builder::new()
        .initial_window_size(1024 * 1024)
        .initial_connection_window_size(16 * 1024 * 1024)
        .max_concurrent_streams(10_000)
        .handshake::<_, Bytes>(stream)
        .await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        // A failed stream is the client's to notice.
        spawn_local(async move { drop(answer_one(request, respond).await) });
    }
    Ok(())
}

async fn answer_one(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) -> Result<(), h2::Error> {
    let (head, mut body) = request.into_parts();
    let body = collect(&mut body).await?;
    let grpc =
        head.headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"));
    if grpc {
        let mut answer = Response::new(());
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let mut sending = respond.send_response(answer, false)?;
        sending.send_data(body, false)?;
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        return sending.send_trailers(trailers);
    }
    let answer = answer_to(&head);
    let body = answer.1.unwrap_or(body);
    let mut head = answer.0;
    head.headers_mut().insert(CONTENT_LENGTH, body.len().into());
    let mut sending = respond.send_response(head, body.is_empty())?;
    if !body.is_empty() {
        sending.send_data(body, true)?;
    }
    Ok(())
}

/// An answer's head, and its body unless that is the request's own.
pub(super) fn answer_to(head: &http::request::Parts) -> (Response<()>, Option<Bytes>) {
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let post = matches!(head.method, Method::POST | Method::PUT | Method::PATCH);
    let path = head.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let own = answer::body(RequestParts { post, path, consumer: text(CONSUMER_HEADER) });
    let mut answer = Response::new(());
    let said = answer::said(path);
    let kind = HeaderValue::from_str(said.content_type);
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, kind.unwrap_or(HeaderValue::from_static("application/octet-stream")));
    if let Some(value) =
        said.max_age.and_then(|age| HeaderValue::from_str(&format!("public, max-age={age}")).ok())
    {
        answer.headers_mut().insert(CACHE_CONTROL, value);
    }
    if let Some(stamp) = head.headers.get(STAMP_HEADER).filter(|_| said.max_age.is_none()) {
        answer.headers_mut().insert(STAMP_HEADER, stamp.clone());
    }
    let own = own.map(|body| match body {
        std::borrow::Cow::Borrowed(body) => Bytes::from_static(body),
        std::borrow::Cow::Owned(body) => Bytes::from(body),
    });
    (answer, own)
}

async fn collect(body: &mut RecvStream) -> Result<Bytes, h2::Error> {
    let mut collected: Option<BytesMut> = None;
    let mut first = Bytes::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        if collected.as_ref().map_or(first.len(), BytesMut::len) > answer::LARGEST {
            return Err(h2::Reason::ENHANCE_YOUR_CALM.into());
        }
        body.flow_control().release_capacity(chunk.len())?;
        if first.is_empty() && collected.is_none() {
            first = chunk;
        } else {
            collected.get_or_insert_with(|| BytesMut::from(&first[..])).extend_from_slice(&chunk);
        }
    }
    Ok(collected.map_or(first, BytesMut::freeze))
}
