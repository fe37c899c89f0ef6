//! `explain`: which way a request would take, and why; without sending anything.

use std::net::IpAddr;

use clap::Args;
use gateway_core::plugin::Registry;
use gateway_core::snapshot::Snapshot;
use gateway_core::snapshot::compile::Compiler;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde_json::{Value, json};

use super::address::AdminAddress;
use super::admin::Admin;
use super::running::Wanted;
use super::{BAD_CONFIG, FAILED, MISUSED, OutputFormat, SpecArgs, Verbosity, logs, print};
use crate::explain::{self, Question};

/// Arguments of `explain`.
#[derive(Debug, Args)]
pub(super) struct ExplainArgs {
    /// The request's method
    method: Method,
    /// Its URL, or only its path
    #[arg(value_parser = url)]
    url: Uri,
    /// A header field of the request, may be given several times
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The client's address
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    client: IpAddr,
    /// The name the client asks for by TLS (SNI); a URL that begins with https:// names its host
    #[arg(long, value_name = "NAME")]
    tls: Option<String>,
    /// The request's body, or @FILE; like curl's, it is a form unless a header says otherwise
    #[arg(short, long, value_name = "TEXT|@FILE", value_parser = body)]
    data: Option<Body>,
    /// Asks a running gateway about the configuration it serves: HOST:PORT, https://HOST:PORT or unix:PATH [env: FERRUM_ADMIN_URL]
    /// [default: the configuration file is explained; without one, the gateway that runs here]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "spec")]
    admin: Option<AdminAddress>,
    #[command(flatten)]
    spec: SpecArgs,
    /// How to print the result
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

/// The size of a body: only that, and the header fields, decide which way a request takes.
#[derive(Debug, Clone, Copy)]
struct Body(u64);

fn body(text: &str) -> Result<Body, std::io::Error> {
    match text.strip_prefix('@') {
        Some(path) => Ok(Body(std::fs::metadata(path)?.len())),
        None => Ok(Body(text.len() as u64)),
    }
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
    let explained = match args.admin.is_none() && args.spec.path().is_some() {
        true => of_file(args, registry),
        false => Admin::find(&Wanted { admin: args.admin.as_ref(), ..Wanted::default() })
            .and_then(|admin| admin.ask("POST", "/v1/explain", Some(&asked(args)))),
    };
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

/// The header fields, with that of a form where a body has none.
fn headers(args: &ExplainArgs) -> HeaderMap {
    let mut headers: HeaderMap = args.headers.iter().cloned().collect();
    if args.data.is_some() && !headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    }
    headers
}

/// The question for a running gateway.
fn asked(args: &ExplainArgs) -> Value {
    let headers: Vec<_> = headers(args)
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    json!({
        "method": args.method.as_str(),
        "url": args.url.to_string(),
        "headers": headers,
        "client": args.client,
        "tls": args.tls,
        "body_bytes": args.data.map(|body| body.0),
    })
}

fn of_file(args: &ExplainArgs, registry: Registry) -> Result<Value, u8> {
    let source = args.spec.source(Vec::new()).ok_or(MISUSED)?;
    let model = source.load(&registry).map_err(|problems| {
        print::error(&problems);
        BAD_CONFIG
    })?;
    let now = tokio::time::Instant::now();
    let empty = Snapshot::empty(model.settings.clone());
    let snapshot = Compiler::new(registry).compile(&model, &empty, now).snapshot;
    let question = Question {
        method: args.method.clone(),
        url: args.url.clone(),
        headers: headers(args),
        client: args.client,
        tls: args.tls.clone(),
        body_bytes: args.data.map(|body| body.0),
    };
    Ok(explain::explain(&snapshot, &question))
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
            let upstream = &proxy["upstream"];
            print::line(format_args!(
                "upstream:  {} ({})",
                text(&upstream["id"]),
                text(&upstream["algorithm"])
            ));
            for url in list(&proxy["forwards"]) {
                print::line(format_args!("forwards:  {}", text(&url)));
            }
        }
    }
    if let Some(refusal) = document["refusal"].as_str() {
        print::line(format_args!("answer:    {refusal}"));
    }
    for loser in list(&document["not_chosen"]) {
        print::line(format_args!("not {}: {}", text(&loser["proxy"]), text(&loser["reason"])));
    }
    if let Some(others) = document["others"].as_u64().filter(|others| *others > 0) {
        print::line(format_args!("others further off: {others}"));
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
