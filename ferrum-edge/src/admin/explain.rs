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
use crate::explain::{MAX_EXPLAINED_BODY, Question, explain_live};

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
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    consumer: Option<String>,
    #[serde(default)]
    recorded_caller: Option<String>,
}

/// `POST /v1/explain`.
pub(super) async fn ask(State(engine): State<Arc<Engine>>, body: Bytes) -> Response {
    let question = match question(&body) {
        Ok(question) => question,
        Err(refused) => return answer(Err(refused)),
    };
    // Rules of a firewall may take a while.
    let explained = tokio::task::spawn_blocking(move || explain_live(&engine.snapshot(), &question));
    answer(match explained.await {
        Ok(Ok(document)) => Ok(Json(document).into_response()),
        Ok(Err(unknown)) => Err(bad(&unknown)),
        Err(error) => {
            let detail = error.to_string();
            Err(Box::new(problem(StatusCode::INTERNAL_SERVER_ERROR, "internal", &detail)))
        }
    })
}

fn question(body: &Bytes) -> Result<Question, Refused> {
    let asked: ExplainRequest =
        serde_json::from_value(Value::Object(object(body)?)).map_err(|error| bad(&error))?;
    if asked.headers.len() > MAX_HEADERS {
        return Err(bad(&format_args!("there are more than {MAX_HEADERS} header fields")));
    }
    if asked.body.as_ref().is_some_and(|body| body.len() > MAX_EXPLAINED_BODY) {
        return Err(bad(&format_args!(
            "`body` has more than {MAX_EXPLAINED_BODY} bytes; give `body_bytes` instead"
        )));
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
        body_bytes: asked.body.as_ref().map(|body| body.len() as u64).or(asked.body_bytes),
        body: asked.body.map(String::into_bytes),
        consumer: asked.consumer,
        recorded_caller: asked.recorded_caller,
    })
}

fn bad(error: &dyn std::fmt::Display) -> Refused {
    Box::new(problem(StatusCode::UNPROCESSABLE_ENTITY, "invalid", &error.to_string()))
}
