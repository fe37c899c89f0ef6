//! Which way a request would take through the configuration that is served: `/v1/explain`.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;

use super::problem::{Refused, problem};
use super::request::object;
use super::resources::answer;
use crate::engine::Engine;
use crate::explain::{Question, explain};

/// Where it is asked for.
pub(super) const PATH: &str = "/v1/explain";

/// Header fields of a question.
const MAX_HEADERS: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExplainRequest {
    #[serde(default)]
    method: Option<String>,
    url: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    #[serde(default)]
    client: Option<IpAddr>,
    #[serde(default)]
    tls: Option<String>,
    #[serde(default)]
    body_bytes: Option<u64>,
}

/// `POST /v1/explain`.
pub(super) async fn ask(State(engine): State<Arc<Engine>>, body: Bytes) -> Response {
    let explained = || {
        let question = question(&body)?;
        Ok(Json(explain(&engine.snapshot(), &question)).into_response())
    };
    answer(explained())
}

fn question(body: &Bytes) -> Result<Question, Refused> {
    let asked: ExplainRequest =
        serde_json::from_value(Value::Object(object(body)?)).map_err(|error| bad(&error))?;
    if asked.headers.len() > MAX_HEADERS {
        return Err(bad(&format_args!("there are more than {MAX_HEADERS} header fields")));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &asked.headers {
        let name = name.parse::<HeaderName>().map_err(|error| bad(&error))?;
        headers.append(name, HeaderValue::from_str(value).map_err(|error| bad(&error))?);
    }
    Ok(Question {
        method: asked.method.as_deref().unwrap_or("GET").parse::<Method>().map_err(|error| bad(&error))?,
        url: asked.url.parse::<Uri>().map_err(|error| bad(&error))?,
        headers,
        client: asked.client.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        tls: asked.tls,
        body_bytes: asked.body_bytes,
    })
}

fn bad(error: &dyn std::fmt::Display) -> Refused {
    Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", &error.to_string()))
}
