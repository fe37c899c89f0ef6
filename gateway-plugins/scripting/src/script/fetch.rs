//! Calls that a script has made for it, and what it gets to know of the answer.

use bytes::Bytes;
use gateway_core::http::body::Body;
use gateway_core::http::reply::Cause;
use gateway_core::plugin::world::calls::{CallError, Client};
use http::{Method, Request, Response, Uri};
use rhai::{Dynamic, Map};
use tokio::sync::Semaphore;

use super::convert;
use super::failure::{ScriptResult, error};
use super::view::text;
use crate::message;

/// The request for a call with these options.
pub(super) fn request(url: &Uri, mut options: Map) -> ScriptResult<Request<Bytes>> {
    let method = options.remove("method").map_or(Ok("GET".to_owned()), |method| convert::to_text(&method))?;
    let Ok(method) = Method::from_bytes(method.as_bytes()) else {
        return error(format_args!("`{method}` is not a method"));
    };
    let path = options.remove("path").map_or(Ok(String::new()), |path| convert::to_text(&path))?;
    let fields = options.remove("headers").unwrap_or_else(|| Dynamic::from_map(Map::new()));
    let body = options.remove("body").filter(|body| !body.is_unit());
    if let Some(name) = options.keys().next() {
        return error(format_args!("a call has no option `{name}`; it has method, path, headers and body"));
    }
    let Some(fields) = fields.try_cast::<Map>() else { return error("`headers` is a map") };
    let body = body.map_or(Ok(Bytes::new()), convert::to_bytes)?;
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = target(url, &path)?;
    for (name, value) in fields {
        let value = convert::to_text(&value)?;
        let written = message::write(request.headers_mut(), name.as_bytes(), value.as_bytes(), true);
        written.map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(request)
}

/// The URL's path with the script's behind it.
fn target(url: &Uri, path: &str) -> ScriptResult<Uri> {
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let all = match path {
        "" => url.path().to_owned(),
        path => format!("{}{path}", url.path().trim_end_matches('/')),
    };
    if !message::is_path(&all) || !query.is_none_or(message::is_query) {
        return error("the path of a call begins with `/`, is percent-encoded, and has no dot segments");
    }
    let all = query.map_or_else(|| all.clone(), |query| format!("{all}?{query}"));
    all.parse().map_err(|why| format!("the path of a call can't be used: {why}").into())
}

/// Makes the call and says what came of it, as the callback's map.
pub(super) async fn make(client: &Client, turns: &Semaphore, request: Request<Bytes>) -> Dynamic {
    let Ok(_turn) = turns.try_acquire() else { return failed("busy") };
    match client.fetch(request.map(Body::full)).await {
        Ok(response) => answered(response),
        Err(CallError { cause, detail }) => {
            tracing::debug!(?cause, detail, "a script's call failed");
            failed(if cause == Cause::UpstreamTimeout { "timeout" } else { cause.reason() })
        }
    }
}

fn failed(word: &str) -> Dynamic {
    Dynamic::from_map(Map::from_iter([
        ("status".into(), 0_i64.into()),
        ("headers".into(), Dynamic::from_map(Map::new())),
        ("body".into(), "".into()),
        ("error".into(), word.into()),
    ]))
}

fn answered(response: Response<Bytes>) -> Dynamic {
    let (head, body) = response.into_parts();
    let mut fields = Map::new();
    for (name, value) in &head.headers {
        // The first of several, as `header` gives it.
        fields.entry(name.as_str().into()).or_insert_with(|| text(value.to_str().ok()));
    }
    let body = match String::from_utf8(body.into()) {
        Ok(text) => text.into(),
        Err(bytes) => Dynamic::from_blob(bytes.into_bytes()),
    };
    Dynamic::from_map(Map::from_iter([
        ("status".into(), i64::from(head.status.as_u16()).into()),
        ("headers".into(), Dynamic::from_map(fields)),
        ("body".into(), body),
        ("error".into(), Dynamic::UNIT),
    ]))
}
