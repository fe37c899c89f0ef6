//! Runs one test: sends its request through the real pipeline and compares the result with the expectation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use gateway_core::config::model::Model;
use gateway_core::http::body::Body;
use gateway_core::plugin::Registry;
use gateway_core::snapshot::Snapshot;
use gateway_core::testing::{Got, ReceivedRequest, Record, Trial};
use http::header::{InvalidHeaderName, InvalidHeaderValue};
use http::method::InvalidMethod;
use http::uri::InvalidUri;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Uri};
use serde_json::Value;

use super::document::{Expectation, ExpectedSent, ScriptedTarget, Test, TestRequest};
use super::report::Outcome;
use crate::cli::offline::{UnsendableRequest, WrittenRequest};
use crate::explain::{self, Question};

/// Maximum number of characters of a body in a failure message.
const SHOWN_BODY: usize = 200;
/// Maximum number of repetitions of a request.
const MAX_REPEAT: u32 = 100_000;

/// Why a test cannot run.
#[derive(Debug, thiserror::Error)]
pub(super) enum CaseError {
    #[error("`repeat` is {0}, not between 1 and {MAX_REPEAT}")]
    Repeat(u32),
    #[error("the method `{method}`: {error}")]
    Method { method: String, error: InvalidMethod },
    #[error("the URL `{url}`: {error}")]
    Url { url: String, error: InvalidUri },
    #[error("the URL `{0}` is relative; write a path that begins with `/`, or `http://HOST/PATH`")]
    RelativeUrl(String),
    #[error("the header `{name}`: {error}")]
    Header { name: String, error: FieldError },
    #[error("the status {0} of a target is not between 200 and 999")]
    Status(u16),
    /// With some targets of the configuration.
    #[error("targets: the configuration has no target `{name}`; it has {}", .known.join(", "))]
    UnknownTarget { name: String, known: Vec<String> },
    #[error(transparent)]
    Request(#[from] UnsendableRequest),
}

/// What is wrong with a header field of a test.
#[derive(Debug, thiserror::Error)]
pub(super) enum FieldError {
    #[error(transparent)]
    Name(InvalidHeaderName),
    #[error(transparent)]
    Value(InvalidHeaderValue),
}

/// Sends the request of a test and compares the result.
///
/// # Errors
/// The test cannot run.
pub(super) async fn run(
    test: &Test,
    targets: &[ScriptedTarget],
    model: &Model,
    registry: Registry,
) -> Result<Outcome, CaseError> {
    let begun = Instant::now();
    let request = TestedRequest::new(&test.request)?;
    let answers = targets.iter().map(ScriptedAnswer::new).collect::<Result<Vec<_>, _>>()?;
    let repeat = test.repeat.unwrap_or(1);
    if !(1..=MAX_REPEAT).contains(&repeat) {
        return Err(CaseError::Repeat(repeat));
    }
    let trial = Trial::of_model(model, registry).of_client(request.written_request().client(model));
    check_targets(&answers, trial.snapshot())?;
    let trial = trial.answering(move |asked| answer(&answers, asked));
    let mut got = None;
    for _ in 0..repeat {
        trial.forget();
        got = trial.try_send(request.written_request().http()?).await;
        trial.carry_on().await;
    }
    let question = request.question();
    let explained = explain::explain(trial.snapshot(), &question);
    let happened = Happened {
        got,
        record: trial.records().pop(),
        asked: trial.asked().pop(),
        plugins: plugins(&explained),
        script: explained["proxy"]["script"]["runs"].clone(),
    };
    Ok(Outcome { name: test.name.clone(), took: begun.elapsed(), failures: happened.compare(&test.expect) })
}

/// The result of a request.
struct Happened {
    got: Option<Got>,
    record: Option<Record>,
    asked: Option<ReceivedRequest>,
    /// The plugins that run for the request, each with its name and the ID of its config.
    plugins: Vec<[String; 2]>,
    /// The script that the FastCGI target runs; null if there is none.
    script: Value,
}

fn plugins(explained: &Value) -> Vec<[String; 2]> {
    let all = explained["proxy"]["plugins"].as_array().into_iter().flatten();
    let running = all.filter(|plugin| plugin["runs"] != false);
    running
        .map(|one| [&one["plugin_name"], &one["id"]].map(|it| it.as_str().unwrap_or_default().to_owned()))
        .collect()
}

impl Happened {
    fn compare(&self, expected: &Expectation) -> Vec<String> {
        let mut failures = Failures::default();
        let record = self.record.as_ref();
        let none = || "none".to_owned();
        let of_record = |of: fn(&Record) -> Option<String>| record.and_then(of).unwrap_or_else(none);
        failures.same("proxy", expected.proxy.as_ref(), || of_record(|record| record.proxy.clone()));
        let target = || self.asked.as_ref().map_or_else(none, |asked| asked.authority.clone());
        failures.same("target", expected.target.as_ref(), target);
        failures.same("status", expected.status.map(|status| status.to_string()).as_ref(), || {
            self.got.as_ref().map_or_else(|| "no answer".to_owned(), |got| got.status.to_string())
        });
        let reason = || of_record(|record| record.reason.map(str::to_owned));
        failures.same("reason", expected.reason.as_ref(), reason);
        let config = || of_record(|record| record.plugin_config.clone());
        failures.same("plugin_config", expected.plugin_config.as_ref(), config);
        let caller = || of_record(|record| record.caller.as_deref().map(str::to_owned));
        failures.same("caller", expected.caller.as_ref(), caller);
        self.plugins(expected.plugins.as_deref().unwrap_or_default(), &mut failures);
        let (headers, body) = match &self.got {
            Some(got) => (got.headers.clone(), String::from_utf8_lossy(&got.body).into_owned()),
            None => Default::default(),
        };
        failures.headers("headers", &expected.headers, &headers);
        failures.contains("body_contains", expected.body_contains.as_ref(), &body);
        if let Some(sent) = &expected.sent {
            self.check_sent(sent, &mut failures);
        }
        failures.0
    }

    fn check_sent(&self, expected: &ExpectedSent, failures: &mut Failures) {
        let Some(asked) = &self.asked else {
            return failures.0.push("sent: no target was asked".to_owned());
        };
        failures.same("sent.method", expected.method.as_ref(), || asked.method.to_string());
        failures.same("sent.path", expected.path.as_ref(), || asked.path.clone());
        let script = |name: &str| self.script[name].as_str().unwrap_or("none").to_owned();
        failures
            .same("sent.script_filename", expected.script_filename.as_ref(), || script("script_filename"));
        failures.same("sent.path_info", expected.path_info.as_ref(), || script("path_info"));
        failures.headers("sent.headers", &expected.headers, &asked.headers);
        let body = String::from_utf8_lossy(&asked.body);
        failures.contains("sent.body_contains", expected.body_contains.as_ref(), &body);
    }

    /// Checks that the expected plugins run in this order.
    fn plugins(&self, expected: &[String], failures: &mut Failures) {
        let mut running = self.plugins.iter();
        for wanted in expected {
            if !running.any(|names| names.contains(wanted)) {
                let shown: Vec<_> = self.plugins.iter().map(|[name, id]| format!("{name} ({id})")).collect();
                let shown = if shown.is_empty() { "none".to_owned() } else { shown.join(", ") };
                return failures.0.push(format!("plugins: expected `{wanted}`, these run: {shown}"));
            }
        }
    }
}

#[derive(Default)]
struct Failures(Vec<String>);

impl Failures {
    fn same(&mut self, what: &str, expected: Option<&String>, happened: impl FnOnce() -> String) {
        let Some(expected) = expected else { return };
        let happened = happened();
        if *expected != happened {
            self.0.push(format!("{what}: expected {expected}, got {happened}"));
        }
    }

    fn headers(&mut self, what: &str, expected: &BTreeMap<String, Option<String>>, headers: &HeaderMap) {
        for (name, wanted) in expected {
            let values: Vec<_> =
                headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
            let is_good = match wanted.as_deref() {
                None => values.is_empty(),
                Some("*") => !values.is_empty(),
                Some(wanted) => values.iter().any(|value| value == wanted),
            };
            if !is_good {
                let wanted = wanted.as_deref().unwrap_or("none");
                let found = if values.is_empty() { "none".to_owned() } else { values.join(" | ") };
                self.0.push(format!("{what}.{name}: expected {wanted}, got {found}"));
            }
        }
    }

    fn contains(&mut self, what: &str, expected: Option<&String>, body: &str) {
        if let Some(expected) = expected.filter(|expected| !body.contains(expected.as_str())) {
            let shown: String = body.chars().take(SHOWN_BODY).collect();
            self.0.push(format!("{what}: expected {expected:?} in {shown:?}"));
        }
    }
}

/// A parsed request of a test.
struct TestedRequest<'t> {
    written: &'t TestRequest,
    method: Method,
    url: Uri,
    headers: HeaderMap,
}

impl<'t> TestedRequest<'t> {
    fn new(written: &'t TestRequest) -> Result<Self, CaseError> {
        let method = written.method.as_deref().unwrap_or("GET");
        Ok(Self {
            written,
            method: method.parse().map_err(|error| CaseError::Method { method: method.to_owned(), error })?,
            url: url(&written.url)?,
            headers: headers(&written.headers)?,
        })
    }

    fn written_request(&self) -> WrittenRequest<'_> {
        let TestRequest { body, client, .. } = self.written;
        let Self { method, url, headers, .. } = self;
        WrittenRequest { method, url, headers, body: body.as_bytes(), client: *client, tls: None }
    }

    fn question(&self) -> Question {
        Question {
            recorded_caller: None,
            method: self.method.clone(),
            url: self.url.clone(),
            headers: self.headers.clone(),
            client: self.written.client,
            tls: None,
            body_bytes: Some(self.written.body.len() as u64).filter(|length| *length > 0),
            body: None,
            consumer: None,
        }
    }
}

/// A URL with a scheme and a host, or a path. `shop/cart` would be a host without a path.
fn url(written: &str) -> Result<Uri, CaseError> {
    let url: Uri = written.parse().map_err(|error| CaseError::Url { url: written.to_owned(), error })?;
    let is_whole = url.scheme().is_some() && url.authority().is_some();
    if is_whole || written.starts_with('/') {
        return Ok(url);
    }
    Err(CaseError::RelativeUrl(written.to_owned()))
}

/// Rejects answers of targets that the configuration does not contain: they would never be used. Targets that are found by DNS
/// have addresses that the configuration does not name.
fn check_targets(answers: &[ScriptedAnswer], snapshot: &Snapshot) -> Result<(), CaseError> {
    if !snapshot.discovered.is_empty() {
        return Ok(());
    }
    let groups = snapshot.upstreams.iter().map(|(_, group)| group);
    let groups = groups.chain(snapshot.by_id.iter().map(|(_, route)| &route.targets));
    let known: BTreeSet<&str> =
        groups.flat_map(|group| group.list()).map(|target| &**target.authority()).collect();
    let unknown = answers.iter().filter_map(|one| one.target.as_deref()).find(|name| !known.contains(name));
    unknown.map_or(Ok(()), |name| {
        let known = known.iter().take(5).map(|name| (*name).to_owned()).collect();
        Err(CaseError::UnknownTarget { name: name.to_owned(), known })
    })
}

fn headers(written: &BTreeMap<String, String>) -> Result<HeaderMap, CaseError> {
    let one = |(name, value): (&String, &String)| {
        let bad = |error| CaseError::Header { name: name.clone(), error };
        let key: HeaderName = name.parse().map_err(|error| bad(FieldError::Name(error)))?;
        Ok((key, HeaderValue::from_str(value).map_err(|error| bad(FieldError::Value(error)))?))
    };
    written.iter().map(one).collect()
}

/// A parsed response of a scripted target.
struct ScriptedAnswer {
    target: Option<String>,
    path: Option<String>,
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl ScriptedAnswer {
    fn new(written: &ScriptedTarget) -> Result<Self, CaseError> {
        let status = written.status.unwrap_or(200);
        let code = StatusCode::from_u16(status).ok().filter(|status| !status.is_informational());
        Ok(Self {
            target: written.target.clone(),
            path: written.path.clone(),
            status: code.ok_or(CaseError::Status(status))?,
            headers: headers(&written.headers)?,
            body: written.body.clone(),
        })
    }

    fn fits(&self, asked: &ReceivedRequest) -> bool {
        self.target.as_ref().is_none_or(|target| *target == asked.authority)
            && self.path.as_ref().is_none_or(|path| asked.path.starts_with(path.as_str()))
    }
}

fn answer(answers: &[ScriptedAnswer], asked: &ReceivedRequest) -> Response<Body> {
    let Some(found) = answers.iter().find(|one| one.fits(asked)) else {
        return Response::new(Body::full("ok"));
    };
    let mut response = Response::new(Body::full(found.body.clone()));
    *response.status_mut() = found.status;
    response.headers_mut().clone_from(&found.headers);
    response
}
