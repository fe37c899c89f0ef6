//! The places that access records go to.

mod kafka;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Notes, words};
use crate::condition::{Use, compile};
use crate::endpoint::Endpoint;
use crate::exporter::Compression;
use crate::file::{LogFormat, LogSink as Written, Metrics};
use crate::model::{
    LOG_FIELDS, LogDestination, LogFile, LogLayout, LogPost, LogServer, LogSink, LogTransport,
    MetricsOtlpPush, MetricsPush, StatsdPush,
};
use crate::problem::without_user;
use crate::template::{Moment, Template};
use crate::units::{Millis, Seconds};

/// How long one request of a sink may take where nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Resolves every sink; what is wrong with one stands at its place.
pub(super) fn sinks(notes: &mut Notes<'_>, written: &[Written], folder: &Path) -> Box<[Arc<LogSink>]> {
    let mut known: Vec<&str> = Vec::new();
    let mut sinks = Vec::new();
    for (n, one) in written.iter().enumerate() {
        let at = format!("{}{}access_log.sinks[{n}]", notes.at, if notes.at.is_empty() { "" } else { "." });
        let mut own = Notes::new(&at);
        let sink = sink(&mut own, one, folder);
        match one.name.as_deref() {
            Some(name) if known.contains(&name) => {
                own.add("name", format!("another sink is called `{name}`"));
            }
            Some(name) => known.push(name),
            None => {}
        }
        if own.problems.is_empty() {
            sinks.extend(sink.map(Arc::new));
        }
        notes.problems.extend(own.problems.0);
    }
    sinks.into()
}

/// Where metrics are pushed to.
pub(super) fn metrics(notes: &mut Notes<'_>, written: &Metrics) -> MetricsPush {
    let interval = |written: Option<Millis>, seconds| {
        written.map_or_else(|| Duration::from_secs(seconds), Millis::duration)
    };
    let otlp = written.otlp.as_ref().map(|otlp| MetricsOtlpPush {
        exporter: otlp.exporter.clone(),
        push_interval: interval(otlp.interval, 60),
    });
    let statsd = written.statsd.as_ref().and_then(|statsd| {
        let prefix = statsd.prefix.as_deref().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !prefix.chars().all(is_plain) {
            notes.add("metrics.statsd.prefix", "has characters other than letters, digits, `.`, `_` and `-`");
        }
        let server = server(notes, "metrics.statsd.address", statsd.address.as_deref(), None, true)?;
        if server.transport != LogTransport::Udp {
            notes.add("metrics.statsd.address", "StatsD is spoken over UDP: write `udp://host:port`");
        }
        Some(StatsdPush {
            host: server.host,
            port: server.port,
            prefix: prefix.into(),
            tags: statsd.tags.unwrap_or(true),
            push_interval: interval(statsd.interval, 10),
        })
    });
    MetricsPush { otlp, statsd }
}

/// The response headers that any sink asks for.
pub(super) fn response_headers(sinks: &[Arc<LogSink>]) -> Box<[HeaderName]> {
    let mut names: Vec<HeaderName> = Vec::new();
    for sink in sinks {
        let template = match &sink.layout {
            LogLayout::Template(template) => Some(template),
            _ => None,
        };
        let asked = template.into_iter().flat_map(Template::response_headers);
        for name in sink.response_headers.iter().chain(asked) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
    }
    names.into()
}

fn sink(notes: &mut Notes<'_>, written: &Written, folder: &Path) -> Option<LogSink> {
    let name = written.name.as_deref().unwrap_or_default();
    if name.is_empty() || !name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.'))
    {
        notes.add("name", "a sink needs a name").remedy =
            Some("letters, digits, `-`, `_` and `.`".to_owned());
    }
    let destination = destination(notes, written, folder);
    let layout = layout(notes, written);
    let when = written.when.as_ref().and_then(|when| {
        match compile(when, &format!("{}.when", notes.at), Use::Response) {
            Ok(condition) => Some(condition),
            Err(problems) => {
                notes.problems.extend(problems.0);
                None
            }
        }
    });
    let request_headers = headers(notes, "request_headers", &written.request_headers);
    let response_headers = headers(notes, "response_headers", &written.response_headers);
    let proxies = written.proxies.as_ref().map(|ids| {
        ids.iter().filter_map(|id| notes.value("proxies", words::valid_id(id))).collect::<Box<[_]>>()
    });
    let millis = |written: Option<Millis>, default| written.map_or(default, Millis::duration);
    let queue = written.queue.unwrap_or(8192);
    Some(LogSink {
        name: Arc::from(name),
        destination: destination?,
        layout,
        fields: fields(notes, written),
        request_headers,
        response_headers,
        redact_query: written.redact_query.iter().map(|name| name.to_ascii_lowercase().into()).collect(),
        when,
        slower_than: millis(written.slower_than, Duration::ZERO),
        proxies,
        sample: written.sample.unwrap_or(1.0),
        queue,
        queue_size: written.queue_size.map_or(16 << 20, |bytes| bytes.count()),
        batch: written.batch.unwrap_or(500).min(queue),
        interval: millis(written.interval, Duration::from_secs(1)),
        retry_for: millis(written.retry_for, Duration::from_secs(60)),
    })
}

fn headers(notes: &mut Notes<'_>, key: &str, names: &[String]) -> Box<[HeaderName]> {
    let read = names.iter().enumerate().filter_map(|(n, name)| match name.parse() {
        Ok(name) => Some(name),
        Err(_) => {
            notes.add(&format!("{key}[{n}]"), format!("`{name}` is not a valid header name"));
            None
        }
    });
    read.collect()
}

/// The fields that are chosen. One that no record can have is refused.
fn fields(notes: &mut Notes<'_>, written: &Written) -> Option<Box<[Box<str>]>> {
    let chosen = written.fields.as_ref()?;
    if written.template.is_some() || matches!(written.format, Some(LogFormat::Combined | LogFormat::Ecs)) {
        notes.add("fields", "applies to `json`, `logfmt` and `otlp`");
    }
    for (n, field) in chosen.iter().enumerate() {
        let is_known = LOG_FIELDS.contains(&field.as_str());
        // A plugin's own, such as `waf.score`: only the plugin knows.
        let is_own = field
            .split_once('.')
            .is_some_and(|(first, _)| !LOG_FIELDS.iter().any(|known| known.split('.').next() == Some(first)));
        if !is_known && !is_own {
            let known = crate::nearest::nearest(field, LOG_FIELDS.iter().copied());
            notes.add(&format!("fields[{n}]"), format!("no record has a field `{field}`")).remedy =
                known.map(|known| format!("did you mean `{known}`?"));
        }
    }
    Some(chosen.iter().map(|field| field.as_str().into()).collect())
}

fn layout(notes: &mut Notes<'_>, written: &Written) -> LogLayout {
    if written.otlp.is_some() && (written.format.is_some() || written.template.is_some()) {
        notes.add("otlp", "has a format of its own: `format` and `template` don't apply");
    }
    let adds = !written.request_headers.is_empty() || !written.response_headers.is_empty();
    if adds && (written.template.is_some() || written.format == Some(LogFormat::Combined)) {
        notes.add("format", "has no place for `request_headers` and `response_headers`").remedy =
            Some("use `json`, `logfmt` or `ecs`, or `${request.header.NAME}` in a template".to_owned());
    }
    let Some(template) = &written.template else {
        return match written.format {
            None | Some(LogFormat::Json) => LogLayout::Json,
            Some(LogFormat::Ecs) => LogLayout::Ecs,
            Some(LogFormat::Logfmt) => LogLayout::Logfmt,
            Some(LogFormat::Combined) => LogLayout::Combined,
        };
    };
    if written.format.is_some() {
        notes.add("template", "stands in place of `format`: remove one of them");
    }
    if !written.redact_query.is_empty() {
        notes.add("redact_query", "does not apply to a template, which names its values itself");
    }
    match Template::parse(template, Moment::End) {
        Ok(template) => LogLayout::Template(template),
        Err(bad) => {
            notes.add("template", bad.message).remedy = Some(bad.remedy);
            LogLayout::Json
        }
    }
}

fn destination(notes: &mut Notes<'_>, written: &Written, folder: &Path) -> Option<LogDestination> {
    let mut found: Vec<Option<LogDestination>> = Vec::new();
    let path = |written: &Option<String>| written.as_deref().map(|path| words::file_path(folder, path));
    if written.stdout.is_some() {
        found.push(Some(LogDestination::Stdout));
    }
    if let Some(file) = &written.file {
        let Some(file_path) = path(&file.path).filter(|path| !path.as_os_str().is_empty()) else {
            notes.add("file.path", "is missing");
            return None;
        };
        found.push(Some(LogDestination::File(LogFile {
            path: file_path,
            max_size: file.max_size.map(|bytes| bytes.0),
            max_age: file.max_age.map(Seconds::duration),
            keep: file.keep.unwrap_or(5),
        })));
    }
    if let Some(syslog) = &written.syslog {
        let server = server(notes, "syslog.address", syslog.address.as_deref(), path(&syslog.ca_path), true);
        let app_name: Box<str> = syslog.app_name.as_deref().unwrap_or("ferrum-edge").into();
        if !app_name.bytes().all(|c| c.is_ascii_graphic()) {
            notes.add("syslog.app_name", "has characters other than printable ASCII");
        }
        let facility = syslog.facility.unwrap_or(16);
        found.push(server.map(|server| LogDestination::Syslog { server, facility, app_name }));
    }
    if let Some(tcp) = &written.tcp {
        let server = server(notes, "tcp.address", tcp.address.as_deref(), path(&tcp.ca_path), false);
        found.push(server.map(LogDestination::Lines));
    }
    if let Some(http) = &written.http {
        let fields = fields_of(notes, "http", &http.headers, http.bearer_token.as_deref());
        let url = post_url(notes, "http.url", http.url.as_deref());
        found.push(url.map(|url| {
            LogDestination::Http(LogPost {
                url,
                post_headers: fields,
                gzip: http.compression == Some(Compression::Gzip),
                timeout: http.timeout.map_or(TIMEOUT, Millis::duration),
                ca_path: path(&http.ca_path),
            })
        }));
    }
    if let Some(loki) = &written.loki {
        found.push(self::loki(notes, loki, path(&loki.ca_path)));
    }
    if let Some(kafka) = &written.kafka {
        found.push(kafka::topic(notes, kafka, path(&kafka.ca_path)));
    }
    if let Some(otlp) = &written.otlp {
        found.push(Some(LogDestination::Otlp(Box::new(otlp.clone()))));
    }
    if found.len() != 1 {
        notes.add("", "a sink needs one destination").remedy =
            Some("one of `stdout`, `file`, `syslog`, `tcp`, `http`, `loki`, `kafka` and `otlp`".to_owned());
    }
    found.pop().flatten()
}

fn loki(
    notes: &mut Notes<'_>,
    loki: &crate::file::LokiSink,
    ca_path: Option<PathBuf>,
) -> Option<LogDestination> {
    const PUSH: &str = "/loki/api/v1/push";
    let mut headers = loki.headers.clone();
    if let Some(tenant) = &loki.tenant {
        headers.insert("x-scope-orgid".to_owned(), tenant.clone());
    }
    let fields = fields_of(notes, "loki", &headers, loki.bearer_token.as_deref());
    let url = loki.url.as_deref().map(|url| match url.trim_end_matches('/') {
        url if url.ends_with(PUSH) => url.to_owned(),
        url => format!("{url}{PUSH}"),
    });
    let is_label = |name: &str| {
        !name.starts_with(|c: char| c.is_ascii_digit())
            && !name.is_empty()
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_')
    };
    for name in loki.labels.keys().filter(|name| !is_label(name)) {
        notes.add("loki.labels", format!("`{name}` is not a valid label name"));
    }
    let mut labels = loki.labels.clone();
    if labels.is_empty() {
        labels.insert("job".to_owned(), "ferrum-edge".to_owned());
    }
    let post = LogPost {
        url: post_url(notes, "loki.url", url.as_deref())?,
        post_headers: fields,
        gzip: loki.compression != Some(Compression::None),
        timeout: loki.timeout.map_or(TIMEOUT, Millis::duration),
        ca_path,
    };
    Some(LogDestination::Loki { post, labels })
}

/// The URL at `key` that records are posted to.
fn post_url(notes: &mut Notes<'_>, key: &str, url: Option<&str>) -> Option<Box<str>> {
    let Some(url) = url else {
        notes.add(key, "is missing");
        return None;
    };
    if let Err(error) = Endpoint::of_url(url) {
        notes.add(key, error);
        return None;
    }
    Some(url.into())
}

fn fields_of(
    notes: &mut Notes<'_>,
    key: &str,
    written: &BTreeMap<String, String>,
    token: Option<&str>,
) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in written {
        match (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            (Ok(name), Ok(value)) => drop(headers.insert(name, value)),
            // Not the value: it may be a secret.
            _ => {
                notes.add(&format!("{key}.headers"), format!("`{name}` is not a valid header field"));
            }
        }
    }
    match token.map(|token| HeaderValue::try_from(format!("Bearer {token}"))) {
        Some(Ok(value)) => drop(headers.insert(AUTHORIZATION, value)),
        Some(Err(_)) => {
            notes.add(&format!("{key}.bearer_token"), "has characters that a header may not have");
        }
        None => {}
    }
    headers
}

/// `udp://host:port`, `tcp://host:port` or `tls://host:port`.
fn server(
    notes: &mut Notes<'_>,
    key: &str,
    address: Option<&str>,
    ca_path: Option<PathBuf>,
    has_udp: bool,
) -> Option<LogServer> {
    let parsed = address.and_then(|address| {
        let (scheme, authority) = address.split_once("://")?;
        let transport = match scheme {
            "udp" if has_udp => LogTransport::Udp,
            "tcp" => LogTransport::Tcp,
            "tls" => LogTransport::Tls,
            _ => return None,
        };
        let (host, port) = authority.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().ok().filter(|port| *port > 0)?;
        (!host.is_empty() && !host.contains(['/', '@'])).then(|| (transport, Arc::from(host), port))
    });
    let Some((transport, host, port)) = parsed else {
        let shapes = if has_udp {
            "`udp://host:port`, `tcp://host:port` or `tls://host:port`"
        } else {
            "`tcp://host:port` or `tls://host:port`"
        };
        notes
            .add(
                key,
                match address {
                    Some(address) => format!("`{}` is not an address", without_user(address)),
                    None => "is missing".to_owned(),
                },
            )
            .remedy = Some(shapes.to_owned());
        return None;
    };
    if ca_path.is_some() && transport != LogTransport::Tls {
        notes.add(key, "`ca_path` applies to `tls://` only");
    }
    Some(LogServer { transport, host, port, ca_path })
}
