//! What users write, and what it is checked to mean.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gateway_core::config::model::BackendHttp;
use gateway_core::config::problem::Problems;
use gateway_core::config::units::{self, Millis};
use gateway_core::http::forwarding::is_told;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::Endpoint;
use gateway_core::template::{Moment, Template};
use gateway_plugin_common::headers;
use gateway_plugin_common::parse;
use gateway_plugin_common::server_url;
use http::header::HOST;
use http::{HeaderName, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;

use super::grpc::Grpc;
use super::login::{Login, LoginConfig};
use super::question::{Convention, Question};
use super::{Counts, ForwardAuth, MAX_ANSWER, REQUESTS};
use crate::turns::Turns;

/// Settings of `forward_auth`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// URL of the authorization server. With the convention `envoy`, the request's path and query are appended to its
    /// path. Required.
    url: String,
    /// PEM file with the only trusted roots for this URL. Default: the public roots.
    #[schemars(extend("format" = "path"))]
    ca_path: Option<PathBuf>,
    /// Protocol of the authorization request:
    ///
    /// - `traefik`: GET with `X-Forwarded-Method`, `-Proto`, `-Host`, `-Uri` and `-For`. 2xx admits the request; the
    ///   client receives 3xx and 4xx unchanged.
    /// - `nginx`: GET with `X-Original-URI`, `X-Original-URL` and `X-Original-Method`. 2xx admits the request; 401 and
    ///   403 reject it, without their body.
    /// - `envoy`: the request's own method, host and path. 200 admits the request; the client receives every other
    ///   response below 500.
    /// - `envoy_grpc`: the protocol `envoy.service.auth.v3` over gRPC; the URL has no path.
    ///
    /// Other responses are failures. Default `traefik`.
    convention: Convention,
    /// Time limit for the whole response of the other server. Default 5 s.
    #[schemars(range(min = 0.001, max = 60))]
    timeout: Millis,
    /// Concurrent authorization requests. Default 1000.
    #[schemars(range(min = 1, max = 100_000))]
    max_concurrent_calls: usize,
    /// Requests that wait for a free place; further ones get 503 with `Retry-After`. Default 1000.
    #[schemars(range(max = 100_000))]
    max_waiting_calls: usize,
    /// Header fields of the request that the other server receives, besides those of the convention. Default all; with
    /// the convention `envoy`, `Authorization` and `Cookie`.
    #[schemars(length(max = 100))]
    request_headers: Option<Vec<String>>,
    /// Header fields to set in the authorization request, as templates; also `Host` and those of the convention. An
    /// empty text removes the field. Not with the convention `envoy_grpc`. Default none.
    #[schemars(length(max = 100))]
    set_request_headers: BTreeMap<String, String>,
    /// Sends the request's own method instead of GET. Default false.
    preserve_method: bool,
    /// Sends the request's own `Host` instead of the host of `url`. The conventions of Envoy always do. Default false.
    preserve_host: bool,
    /// Sends the request's own query instead of the query of `url`. The conventions of Envoy always do. Default false.
    preserve_query: bool,
    /// Sends the body. Requires `preserve_method` or a convention of Envoy. Default false.
    send_body: bool,
    /// Size of such a body; a larger one gets 413. Default 64 KiB.
    max_body: units::Bytes,
    /// Sends the first `max_body` bytes of a larger body instead of rejecting it, with the convention `envoy_grpc`.
    /// Default false.
    allow_partial_body: bool,
    /// Context values for each authorization request, with the convention `envoy_grpc`. Default none.
    #[schemars(length(max = 100))]
    context_extensions: BTreeMap<String, String>,
    /// Header fields of the response that an admitted request receives. The gateway removes these fields from client
    /// requests, also if another plugin authenticates the caller and this plugin sends nothing. Default none.
    #[schemars(length(max = 100))]
    response_headers: Vec<String>,
    /// Header fields of the response that the client also receives if its request is admitted or sent to the login,
    /// such as `Set-Cookie`. Default none.
    #[schemars(length(max = 100))]
    client_headers: Vec<String>,
    /// Header fields of a rejection that the client receives, besides `WWW-Authenticate`. Default all.
    #[schemars(length(max = 100))]
    refusal_headers: Option<Vec<String>>,
    /// Redirects rejected clients to a login. Not with the convention `envoy_grpc`. Default: clients receive the
    /// rejection.
    login: Option<LoginConfig>,
    /// Header field of the response that names the caller: a consumer's username or custom ID, or any other name. A
    /// response without the field rejects the request. The gateway removes this field and `groups_header` from client
    /// requests. With the convention `envoy_grpc`, other fields that the response would set stay as the client sent
    /// them if another plugin authenticates the caller. Default none: the plugin authenticates nobody.
    caller_header: Option<String>,
    /// Header field of the response with the caller's groups, separated by commas. Requires `caller_header`. Default
    /// none.
    groups_header: Option<String>,
    /// Status while the other server fails or exceeds `timeout`, 400 to 599. Default 503.
    #[schemars(range(min = 400, max = 599))]
    status_on_error: u16,
    /// Admits requests while the other server fails or exceeds `timeout`. With the convention `envoy_grpc`, fields that
    /// the other server would have set stay as the client sent them. Not with `caller_header`. Default false.
    failure_mode_allow: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: String::new(),
            ca_path: None,
            convention: Convention::Traefik,
            timeout: Millis(5000),
            max_concurrent_calls: 1000,
            max_waiting_calls: 1000,
            request_headers: None,
            set_request_headers: BTreeMap::new(),
            preserve_method: false,
            preserve_host: false,
            preserve_query: false,
            send_body: false,
            max_body: units::Bytes(64 << 10),
            allow_partial_body: false,
            context_extensions: BTreeMap::new(),
            response_headers: Vec::new(),
            client_headers: Vec::new(),
            refusal_headers: None,
            login: None,
            caller_header: None,
            groups_header: None,
            status_on_error: 503,
            failure_mode_allow: false,
        }
    }
}

/// What does not go together.
fn check(config: &Config, problems: &mut Problems) {
    let grpc = config.convention == Convention::EnvoyGrpc;
    let mut wrong = |option: &str, why: &str, remedy: Option<&str>| {
        problems.add(format!("config.{option}"), why).remedy = remedy.map(str::to_owned);
    };
    if config.groups_header.is_some() && config.caller_header.is_none() {
        wrong("groups_header", "needs `caller_header`", None);
    }
    let is_envoy = grpc || config.convention == Convention::Envoy;
    if config.send_body && !config.preserve_method && !is_envoy {
        wrong("send_body", "a GET has no body", Some("set `preserve_method: true`"));
    }
    if config.failure_mode_allow && config.caller_header.is_some() {
        wrong("failure_mode_allow", "without an answer nobody knows who the caller is", None);
    }
    let their_own = "the answer over gRPC says itself which fields are copied";
    for (option, is_set) in [
        ("response_headers", !config.response_headers.is_empty()),
        ("client_headers", !config.client_headers.is_empty()),
        ("refusal_headers", config.refusal_headers.is_some()),
        ("login", config.login.is_some()),
    ] {
        if grpc && is_set {
            wrong(option, their_own, None);
        }
    }
    if grpc && !config.set_request_headers.is_empty() {
        wrong("set_request_headers", "fields of the request are part of the question over gRPC", None);
    }
    if is_envoy && config.preserve_host {
        wrong("preserve_host", "the request's own host is told in any case", None);
    }
    if is_envoy && config.preserve_query {
        wrong("preserve_query", "the request's own query is told in any case", None);
    }
    if grpc && config.preserve_method {
        wrong("preserve_method", "the method is part of the question over gRPC", None);
    }
    if config.convention == Convention::Envoy && config.preserve_method {
        wrong("preserve_method", "the request's own method is asked with in any case", None);
    }
    if config.allow_partial_body && !(grpc && config.send_body) {
        wrong("allow_partial_body", "needs `send_body` and the convention `envoy_grpc`", None);
    }
    if !grpc && !config.context_extensions.is_empty() {
        wrong("context_extensions", "needs the convention `envoy_grpc`", None);
    }
    let path = Endpoint::of_url(&config.url).ok().and_then(|(_, uri)| uri.path_and_query().cloned());
    if grpc && path.is_some_and(|path| path.as_str() != "/") {
        wrong("url", "must not have a path; the protocol says which", None);
    }
}

/// Makes the plugin.
pub(super) fn build(config: Config, world: &World) -> Result<ForwardAuth, Problems> {
    let mut problems = Problems::default();
    check(&config, &mut problems);
    let is_grpc = config.convention == Convention::EnvoyGrpc;
    let (ca_path, timeout) = (config.ca_path, config.timeout.duration());
    let server = server_url::client(world, &config.url, |endpoint| {
        let mut endpoint = endpoint.trusting(ca_path).within_setting(timeout, "timeout");
        endpoint.max_response = MAX_ANSWER;
        if is_grpc {
            endpoint.http = BackendHttp::Http2;
        }
        endpoint
    });
    let mut names = |option: &str, written: Vec<String>| -> Vec<HeaderName> {
        let all = written.into_iter().enumerate();
        all.filter_map(|(n, name)| header(&format!("config.{option}[{n}]"), &name, &mut problems)).collect()
    };
    let copied =
        (names("response_headers", config.response_headers), names("client_headers", config.client_headers));
    let request_headers = config.request_headers.map(|all| names("request_headers", all));
    let refusal_headers = config.refusal_headers.map(|all| names("refusal_headers", all));
    check_copied(&copied.0, &mut problems);
    let set = set_fields(&config.set_request_headers, &mut problems);
    let login = config.login.as_ref().and_then(|login| Login::compile(login, &mut problems));
    let caller = config.caller_header.and_then(|name| header("config.caller_header", &name, &mut problems));
    let groups = config.groups_header.and_then(|name| header("config.groups_header", &name, &mut problems));
    let (client, uri) = match server {
        Ok(server) if problems.is_empty() => server,
        Ok(_) => return Err(problems),
        Err(message) => {
            problems.add("config.url", message);
            return Err(problems);
        }
    };
    let body = config.send_body.then_some(config.max_body.0);
    let grpc = is_grpc.then(|| Grpc {
        headers: request_headers.clone(),
        body,
        partial: config.allow_partial_body,
        context: config.context_extensions.into_iter().collect(),
        timeout,
    });
    Ok(ForwardAuth {
        client,
        server: uri.authority().map_or("", |authority| authority.as_str()).into(),
        grpc,
        passes_failures: config.failure_mode_allow,
        question: Question {
            uri,
            convention: config.convention,
            headers: request_headers,
            preserve_method: config.preserve_method,
            preserve_host: config.preserve_host,
            preserve_query: config.preserve_query,
            body,
            set,
        },
        login,
        turns: Turns::new(config.max_concurrent_calls, config.max_waiting_calls),
        copied,
        refusal_headers,
        caller,
        groups,
        status_on_error: StatusCode::from_u16(config.status_on_error)
            .unwrap_or(StatusCode::SERVICE_UNAVAILABLE),
        counts: counts(world),
    })
}

fn counts(world: &World) -> Counts {
    let count = |result| world.meters().counter(REQUESTS, &["result"], &[result]);
    Counts {
        passed: count("passed"),
        refused: count("refused"),
        failed: count("failed"),
        allowed: count("allowed"),
    }
}

/// Fields of the answer for the request are none that the gateway writes itself.
fn check_copied(names: &[HeaderName], problems: &mut Problems) {
    for (n, name) in names.iter().enumerate().filter(|(_, name)| is_told(name)) {
        let path = format!("config.response_headers[{n}]");
        problems.add(path, format!("the gateway writes `{name}` itself, so that it can't be copied"));
    }
}

/// Fields of questions that templates make.
fn set_fields(written: &BTreeMap<String, String>, problems: &mut Problems) -> Vec<(HeaderName, Template)> {
    let mut made = Vec::new();
    for (name, text) in written {
        let path = format!("config.set_request_headers.{name}");
        let is_host = name.eq_ignore_ascii_case("host");
        if is_host && text.is_empty() {
            problems.add(&path, "a request without `Host` is not valid");
        }
        let read = if is_host { Some(HOST) } else { header(&path, name, problems) };
        let template = parse::template(&path, text, Moment::Request, problems);
        made.extend(read.zip(template));
    }
    made
}

/// Reads the name of a field that frames no message.
fn header(path: &str, name: &str, problems: &mut Problems) -> Option<HeaderName> {
    let read = parse::header_name(path, name, problems)?;
    if headers::is_framing(&read) {
        problems.add(path, format!("`{name}` frames messages and can't be copied"));
        return None;
    }
    Some(read)
}
