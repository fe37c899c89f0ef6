//! `explain`: which way a request would take, and why; without sending anything.

use std::io;
use std::net::IpAddr;

use clap::Args;
use gateway_core::config::model::Model;
use gateway_core::http::exchange::Field;
use gateway_core::plugin::Registry;
use gateway_core::testing::Trial;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde_json::{Value, json};

use super::address::AdminAddress;
use super::admin::Admin;
use super::offline::{UnsendableRequest, WrittenRequest};
use super::running::Wanted;
use super::traffic;
use super::{BAD_CONFIG, FAILED, MISUSED, OutputFormat, SpecArgs, Verbosity, logs, print};
use crate::explain::{self, MAX_EXPLAINED_BODY as MAX_SENT, Question};

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The request's method
    #[arg(required_unless_present = "request_id")]
    method: Option<Method>,
    /// Its URL, or only its path
    #[arg(value_parser = url, required_unless_present = "request_id")]
    url: Option<Uri>,
    /// Explains a request from the access log of the running gateway, by its `http.request.id`; add header fields that the log lacks with
    /// -H
    #[arg(long, value_name = "ID", conflicts_with_all = ["method", "url", "client", "tls", "data"])]
    request_id: Option<String>,
    /// A header field of the request, may be given several times
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The client's address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    client: IpAddr,
    /// Server name of the client's TLS (SNI); by default the host of an https:// URL
    #[arg(long, value_name = "NAME")]
    tls: Option<String>,
    /// Request body, or @FILE; as in curl, a form unless a header specifies another type
    #[arg(short, long, value_name = "TEXT|@FILE", value_parser = body)]
    data: Option<Body>,
    /// Username of the consumer that sends the request, for plugins that cannot derive it; asks a running gateway
    #[arg(long, value_name = "USERNAME", conflicts_with = "spec")]
    consumer: Option<String>,
    /// Asks a running gateway about the configuration it serves: HOST:PORT, https://HOST:PORT or unix:PATH [env: FERRUM_ADMIN_URL]
    /// [default: the configuration file is explained; without one, the gateway that runs here]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "spec")]
    admin: Option<AdminAddress>,
    #[command(flatten)]
    spec: SpecArgs,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// Bytes of a body that plugins are shown; of a longer one only the length counts.
const MAX_BODY: u64 = 16 << 20;

/// A body: its length, and its bytes unless it is too long.
#[derive(Debug, Clone)]
struct Body {
    length: u64,
    bytes: Vec<u8>,
}

impl Body {
    /// Whether its bytes are known.
    fn is_whole(&self) -> bool {
        self.length == self.bytes.len() as u64
    }
}

fn body(text: &str) -> Result<Body, io::Error> {
    let Some(path) = text.strip_prefix('@') else {
        return Ok(Body { length: text.len() as u64, bytes: text.as_bytes().to_vec() });
    };
    let length = std::fs::metadata(path)?.len();
    let bytes = if length > MAX_BODY { Vec::new() } else { std::fs::read(path)? };
    Ok(Body { length, bytes })
}

/// Why a header field was not understood.
#[derive(Debug, thiserror::Error)]
enum HeaderError {
    #[error("write it as `name: value`")]
    NoColon,
    #[error("{0}")]
    Name(#[from] http::header::InvalidHeaderName),
    #[error("{0}")]
    Value(#[from] http::header::InvalidHeaderValue),
}

fn header(text: &str) -> Result<(HeaderName, HeaderValue), HeaderError> {
    let (name, value) = text.split_once(':').ok_or(HeaderError::NoColon)?;
    Ok((name.trim().parse()?, value.trim().parse()?))
}

/// Why a URL was not understood.
#[derive(Debug, thiserror::Error)]
enum UrlError {
    #[error("{0}")]
    Uri(#[from] http::uri::InvalidUri),
    #[error("its port is not between 0 and 65535")]
    Port,
}

fn url(text: &str) -> Result<Uri, UrlError> {
    let url: Uri = text.parse()?;
    // A port that is no number of that size counts as none.
    let has_port = url.authority().is_some_and(|authority| {
        let (_, behind) = authority.as_str().rsplit_once(authority.host()).unwrap_or_default();
        behind.len() > 1
    });
    if has_port && url.port().is_none() { Err(UrlError::Port) } else { Ok(url) }
}

/// Explains; the code is 1 when the gateway itself would refuse.
pub(super) fn explain(args: &ExplainArgs, registry: Registry) -> u8 {
    logs::init(Verbosity { verbose: 0 });
    let running = || Admin::find(&Wanted { admin: args.admin.as_ref(), ..Wanted::default() });
    let question = match &args.request_id {
        None => Ok(given(args)),
        Some(id) => running().and_then(|admin| recorded(args, &admin, id)),
    };
    // A recorded request was sent to the running gateway, so that is asked.
    let is_live = args.request_id.is_some() || args.admin.is_some() || args.consumer.is_some();
    let asks_file = !is_live && args.spec.path().is_some();
    let explained = question.and_then(|question| match asks_file {
        true => of_file(args, question, registry),
        false => running().and_then(|admin| admin.ask("POST", "/v1/explain", Some(&document(&question)))),
    });
    let document = match explained {
        Ok(document) => document,
        Err(code) => return code,
    };
    match args.output {
        OutputFormat::Json => print::line(&document),
        OutputFormat::Text => tell(&document),
    }
    if document["refusal"].is_null() { 0 } else { FAILED }
}

/// The question of the command line.
fn given(args: &ExplainArgs) -> Question {
    let mut headers: HeaderMap = args.headers.iter().cloned().collect();
    // Like curl's, a body is a form unless a header says otherwise.
    if args.data.is_some() && !headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    }
    Question {
        method: args.method.clone().unwrap_or_default(),
        url: args.url.clone().unwrap_or_default(),
        headers,
        client: args.client,
        tls: args.tls.clone(),
        body_bytes: args.data.as_ref().map(|body| body.length),
        body: args.data.as_ref().filter(|body| body.is_whole()).map(|body| body.bytes.clone()),
        consumer: args.consumer.clone(),
        recorded_caller: None,
    }
}

/// The question of a record in the access log.
fn recorded(args: &ExplainArgs, admin: &Admin, id: &str) -> Result<Question, u8> {
    let id: String = percent_encoding::utf8_percent_encode(id, percent_encoding::NON_ALPHANUMERIC).collect();
    let mut record = Value::Null;
    admin.follow(&format!("/v1/access-log/recent?limit=1&request_id={id}"), |line| {
        record = serde_json::from_str(line).unwrap_or_default();
        false
    })?;
    let Some((mut question, _)) = traffic::question(&record) else {
        print::error(format_args!("the access log has no exchange with the request ID {id}"));
        return Err(FAILED);
    };
    question.headers.extend(args.headers.iter().cloned());
    question.consumer.clone_from(&args.consumer);
    Ok(question)
}

/// A question for a running gateway.
fn document(question: &Question) -> Value {
    let headers = question.headers.iter();
    let headers: Vec<_> = headers
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    json!({
        "method": question.method.as_str(),
        "url": question.url.to_string(),
        "headers": headers,
        "client": question.client,
        "tls": question.tls,
        "body_bytes": question.body_bytes,
        "body": question.body.as_deref().filter(|body| body.len() <= MAX_SENT).and_then(|body| std::str::from_utf8(body).ok()),
        "consumer": question.consumer,
        "recorded_caller": question.recorded_caller,
    })
}

fn of_file(args: &ExplainArgs, question: Question, registry: Registry) -> Result<Value, u8> {
    let source = args.spec.source(Vec::new()).ok_or(MISUSED)?;
    let model = source.load(&registry).map_err(|problems| {
        print::error(&problems);
        BAD_CONFIG
    })?;
    let trial = Trial::of_model(&model, registry);
    let mut document = explain::explain(trial.snapshot(), &question);
    let data = args.data.as_ref();
    let request = WrittenRequest {
        method: &question.method,
        url: &question.url,
        headers: &question.headers,
        body: data.map_or(&[], |body| body.bytes.as_slice()),
        client: args.client,
        tls: args.tls.as_deref(),
    };
    // What plugins and the target make of a body is only known where it is there.
    if data.is_none_or(Body::is_whole) {
        document["outcome"] = outcome(trial, &request, &model).map_err(|error| {
            print::error(error);
            FAILED
        })?;
    }
    Ok(document)
}

/// Why a request has no outcome.
#[derive(Debug, thiserror::Error)]
enum OutcomeError {
    #[error(transparent)]
    Runtime(#[from] io::Error),
    #[error(transparent)]
    Request(#[from] UnsendableRequest),
}

/// What the gateway would do with the request, whose target answers 200: the verdicts of plugins, and what the target gets.
fn outcome(trial: Trial, request: &WrittenRequest<'_>, model: &Model) -> Result<Value, OutcomeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime?;
    let trial = trial.of_client(request.client(model));
    let sent = request.http()?;
    let got = runtime.block_on(trial.try_send(sent));
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let asked = trial.asked().pop().map(|asked| {
        let headers = asked.headers.iter().map(|(name, value)| json!([name.as_str(), text(value)]));
        json!({
            "target": asked.authority,
            "method": asked.method.as_str(),
            "path": asked.path,
            "headers": headers.collect::<Vec<_>>(),
        })
    });
    let Some(record) = trial.records().pop() else { return Ok(Value::Null) };
    let fields = record.fields.iter().map(|(name, field)| ((*name).to_owned(), json!(field_text(field))));
    Ok(json!({
        "status": got.map_or(record.status, |got| got.status),
        "reason": record.reason,
        "plugin_config": record.plugin_config,
        "setting": record.decided.map(|decided| decided.name),
        "limit": record.decided.and_then(|decided| decided.limit).map(|limit| limit.to_string()),
        "caller": record.caller.as_deref(),
        "fields": fields.collect::<serde_json::Map<_, _>>(),
        "sent": asked,
    }))
}

fn field_text(field: &Field) -> String {
    match field {
        Field::Text(text) => text.to_string(),
        Field::Number(number) => number.to_string(),
        Field::Fraction(number) => number.to_string(),
        Field::Flag(flag) => flag.to_string(),
    }
}

/// Prints the targets that are unhealthy, or that failed at the last attempt.
fn tell_targets(targets: &[Value]) {
    for target in targets {
        let address = target["address"].as_str().unwrap_or_default();
        if target["healthy"] == false {
            let why = target["unhealthy_because"].as_str().unwrap_or_default();
            print::line(format_args!("unhealthy: {address}: {why}"));
        }
        if let Some(why) = target["last_attempt_failed_because"].as_str() {
            print::line(format_args!("failing:   {address}: the last attempt failed: {why}"));
        }
    }
}

/// Prints an explanation for people.
fn tell(document: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let host = document["host"].as_str().unwrap_or("(no host)");
    print::line(format_args!("{} {} for host {host}", text(&document["method"]), text(&document["path"])));
    let proxy = &document["proxy"];
    match proxy["id"].as_str() {
        None => print::line("proxy:     none"),
        Some(id) => {
            print::line(format_args!("proxy:     {id} ({})", text(&proxy["reason"])));
            let plugins: Vec<String> = list(&proxy["plugins"]).iter().map(plugin).collect();
            let plugins = if plugins.is_empty() { "none".to_owned() } else { plugins.join(", ") };
            print::line(format_args!("plugins:   {plugins}"));
            if let Some(name) = proxy["answered_by"]["plugin_name"].as_str() {
                let status = proxy["answered_by"]["status"].as_u64();
                let status = status.map_or_else(String::new, |status| format!(", with {status}"));
                print::line(format_args!("answered:  by {name}{status}; no target is asked"));
            }
            list(&proxy["plugins"]).iter().for_each(tell_verdict);
            let upstream = &proxy["upstream"];
            if !upstream.is_null() {
                let (id, algorithm) = (text(&upstream["id"]), text(&upstream["algorithm"]));
                print::line(format_args!("upstream:  {id} ({algorithm})"));
            }
            tell_targets(&list(&proxy["targets"]));
            let script = &proxy["script"]["runs"];
            if let Some(name) = script["script_filename"].as_str() {
                let unknown = if script["exists"].is_null() { " (not looked up)" } else { "" };
                print::line(format_args!("script:    {name}{unknown}"));
                let path_info = text(&script["path_info"]);
                if !path_info.is_empty() {
                    print::line(format_args!("path info: {path_info}"));
                }
            }
            for url in list(&proxy["forwards"]) {
                print::line(format_args!("forwards:  {}", text(&url)));
            }
            let mut hosts: Vec<String> =
                list(&proxy["targets"]).iter().map(|target| text(&target["host"])).collect();
            hosts.dedup();
            if !hosts.is_empty() {
                print::line(format_args!("host:      {} (by `preserve_host_header`)", hosts.join(", ")));
            }
        }
    }
    if let Some(refusal) = document["refusal"].as_str() {
        print::line(format_args!("answer:    {refusal}"));
    }
    tell_outcome(&document["outcome"]);
    for loser in list(&document["not_chosen"]) {
        print::line(format_args!("not {}: {}", text(&loser["proxy"]), text(&loser["reason"])));
    }
    match document["others"].as_u64() {
        None | Some(0) => {}
        Some(1) => print::line("1 other proxy does not match"),
        Some(others) => print::line(format_args!("{others} other proxies do not match")),
    }
}

/// What a plugin of the running gateway would decide.
fn tell_verdict(plugin: &Value) {
    let verdict = &plugin["verdict"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let Some(outcome) = verdict["outcome"].as_str() else { return };
    let (name, id) = (text(&plugin["plugin_name"]), text(&plugin["id"]));
    let status = verdict["status"].as_u64();
    let answer = status.map_or_else(String::new, |status| format!(" {status} {}", text(&verdict["reason"])));
    let why = Some(text(&verdict["why"])).filter(|why| !why.is_empty());
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    print::line(format_args!("verdict:   {name} ({id}) {}{answer}{why}", outcome.replace('_', " ")));
}

/// What the gateway would do, and what the target would get.
fn tell_outcome(outcome: &Value) {
    let Some(status) = outcome["status"].as_u64() else { return };
    let text = |name: &str| outcome[name].as_str().map(str::to_owned);
    let decided = [text("reason"), text("plugin_config").map(|id| format!("by {id}")), text("setting")];
    let decided: Vec<String> = decided.into_iter().flatten().collect();
    let from = if outcome["sent"].is_null() { "" } else { ", if the target answers 200" };
    let decided = if decided.is_empty() { String::new() } else { format!(" {}", decided.join(", ")) };
    print::line(format_args!("outcome:   {status}{decided}{from}"));
    if let Some(caller) = text("caller") {
        print::line(format_args!("caller:    {caller}"));
    }
    for (name, value) in outcome["fields"].as_object().into_iter().flatten() {
        print::line(format_args!("noted:     {name}: {}", value.as_str().unwrap_or_default()));
    }
    let sent = &outcome["sent"];
    if let (Some(method), Some(path)) = (sent["method"].as_str(), sent["path"].as_str()) {
        print::line(format_args!("sent:      {method} {path}"));
        for header in sent["headers"].as_array().into_iter().flatten() {
            let part = |n: usize| header[n].as_str().unwrap_or_default();
            print::line(format_args!("           {}: {}", part(0), part(1)));
        }
    }
}

fn plugin(plugin: &Value) -> String {
    let name = plugin["plugin_name"].as_str().unwrap_or_default();
    match &plugin["runs"] {
        Value::Bool(false) => format!("{name} (not for this request)"),
        Value::String(_) => format!("{name} (depends on the caller)"),
        _ => name.to_owned(),
    }
}
