//! The access records of a running gateway, the last ones or as they come: `logs`.

use clap::Args;
use gateway_core::config::units::Millis;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::admin::{Admin, GatewayArgs};
use super::{FAILED, OutputFormat, print};

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    #[command(flatten)]
    until: Until,
    /// Only records of this proxy; may be given several times
    #[arg(long, value_name = "ID")]
    proxy: Vec<String>,
    /// Only exchanges with this status, such as 404, 5xx or 500-504; may be given several times
    #[arg(long, value_name = "STATUS")]
    status: Vec<String>,
    /// Only records with at least this duration, such as 200ms or 2s
    #[arg(long, value_name = "TIME")]
    slower: Option<Millis>,
    /// Only records of this caller; may be given several times
    #[arg(long, value_name = "NAME")]
    consumer: Vec<String>,
    /// Only records from this address, or block such as 10.0.0.0/8; may be given several times
    #[arg(long, value_name = "ADDRESS")]
    client: Vec<String>,
    /// Only exchanges whose path begins with this; may be given several times
    #[arg(long, value_name = "PREFIX")]
    path: Vec<String>,
    /// Only the exchange with this request ID, from the access log
    #[arg(long, value_name = "ID", conflicts_with = "follow")]
    request_id: Option<String>,
    #[command(flatten)]
    admin: GatewayArgs,
    /// Output format
    #[arg(long, value_enum, default_value = "text")]
    output: OutputFormat,
}

#[derive(Debug, Args)]
struct Until {
    /// Follow new records until interrupted
    #[arg(short, long)]
    follow: bool,
    /// Print the last N records of the access log; with --follow, before the new ones [default: 10, with --follow 0]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    last: Option<u64>,
    /// Follow, and exit after this many records
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Prints the last records, or records as they come.
pub(super) fn logs(args: &LogsArgs) -> u8 {
    let admin = match args.admin.open() {
        Ok(admin) => admin,
        Err(code) => return code,
    };
    let follows = args.until.follow || args.until.count.is_some();
    if let Some(last) = args.until.last.or_else(|| (!follows).then_some(LAST)) {
        let request_id = args.request_id.iter().map(|id| format!("request_id={}", encoded(id)));
        let query: Vec<_> = query(args).into_iter().chain(request_id).collect();
        let path = format!("/v1/access-log/recent?limit={last}&{}", query.join("&"));
        let mut found = 0_u64;
        let read = admin.follow(path.trim_end_matches('&'), |line| {
            show(line, args.output);
            found += 1;
            true
        });
        if let Err(code) = read {
            return code;
        }
        if let (Some(id), 0) = (&args.request_id, found) {
            print::error(format_args!("the access log has no exchange with the request ID {id}"));
            return FAILED;
        }
    }
    if follows { follow(&admin, args) } else { 0 }
}

/// Records that are printed unless the command line says how many.
const LAST: u64 = 10;

/// Prints records as they come.
fn follow(admin: &Admin, args: &LogsArgs) -> u8 {
    let path = format!("/v1/access-log?{}", query(args).join("&"));
    let mut left = args.until.count.unwrap_or(u64::MAX);
    loop {
        let followed = admin.follow(&path, |line| {
            if !line.trim().is_empty() {
                show(line, args.output);
                left -= u64::from(!line.contains("\"kind\":\"lost\""));
            }
            left > 0
        });
        match followed {
            Ok(()) if left == 0 => return 0,
            // The gateway ends a connection after some time, and when it needs its place.
            Ok(()) => {}
            Err(code) => return code,
        }
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

fn query(args: &LogsArgs) -> Vec<String> {
    let lists = [
        ("proxy", &args.proxy),
        ("status", &args.status),
        ("consumer", &args.consumer),
        ("client", &args.client),
        ("path", &args.path),
    ];
    let each = |(name, list): (&'static str, &'_ Vec<String>)| {
        list.iter().map(|value| format!("{name}={}", encoded(value))).collect::<Vec<_>>()
    };
    let slower = args.slower.map(|slower| format!("slower_than={}", slower.0));
    lists.into_iter().flat_map(each).chain(slower).collect()
}

fn show(line: &str, output: OutputFormat) {
    let (OutputFormat::Text, Ok(record)) = (output, serde_json::from_str::<Value>(line)) else {
        return print::line(line.trim_end());
    };
    if record["kind"] == "lost" {
        let count = record["records"].as_u64().unwrap_or_default();
        return print::error(format_args!(
            "{count} records are left out: they come faster than they can be shown"
        ));
    }
    print::line(text(&record));
}

/// One line for people. What clients sent is shown without control characters.
pub(super) fn text(record: &Value) -> String {
    let field = |name: &str| match &record[name] {
        Value::String(text) => text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let first = |names: &[&str]| {
        names.iter().map(|name| field(name)).find(|text| !text.is_empty()).unwrap_or_default()
    };
    let port = record["server.port"].as_u64().map_or_else(String::new, |port| format!(":{port}"));
    let seconds = record["http.server.request.duration"].as_f64();
    let seconds = seconds.or_else(|| record["session.duration"].as_f64());
    let took = seconds.map_or_else(String::new, |seconds| format!("{:.1}ms", seconds * 1000.0));
    let words = [
        field("timestamp"),
        first(&["http.response.status_code", "kind"]),
        field("http.request.method"),
        format!("{}{port}{}", field("server.address"), field("url.path")),
        took,
        field("client.address"),
        first(&["enduser.id"]),
        first(&["proxy.id"]),
        field("upstream.address"),
        first(&["error.type", "reply.reason", "session.end"]),
        decided(record),
        labelled(&field("waf.rules"), "rules "),
        by_target(record).to_owned(),
        labelled(&field("error.message"), "- "),
    ];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn labelled(text: &str, name: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{name}{text}") }
}

/// Who answered with an error, where that was the target.
fn by_target(record: &Value) -> &'static str {
    let is_decided = !record["error.type"].is_null() || !record["reply.reason"].is_null();
    if is_decided || record["upstream.address"].is_null() {
        return "";
    }
    match record["http.response.status_code"].as_u64() {
        Some(421) => {
            "(answered by the target: it does not serve this Host; see proxies.preserve_host_header)"
        }
        Some(400..) => "(answered by the target)",
        _ => "",
    }
}

/// The setting that decided, with its value, or the plugin config that has it.
fn decided(record: &Value) -> String {
    let text = |name: &str| record[name].as_str().unwrap_or_default();
    let (setting, limit) = (text("error.setting"), text("error.limit"));
    let setting = match (setting, limit) {
        ("", _) => String::new(),
        (setting, "") => setting.to_owned(),
        (setting, limit) => format!("{setting}={limit}"),
    };
    match (setting.as_str(), text("plugin_config.id")) {
        ("", "") => String::new(),
        ("", config) => format!("({config})"),
        (setting, "") => format!("({setting})"),
        (setting, config) => format!("({setting} of {config})"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::text;

    #[test]
    fn a_record_is_a_line_that_no_value_breaks() {
        let record = json!({
            "timestamp": "T", "kind": "http", "http.request.method": "GET", "url.path": "/a\u{1b}[31m\nb",
            "server.address": "h", "server.port": 81, "http.response.status_code": 502, "http.server.request.duration": 0.2501,
            "proxy.id": "shop", "upstream.address": "t:80", "error.type": "upstream_timeout",
            "error.setting": "proxies.backend_first_byte_timeout", "error.limit": "5s", "error.message": "silent\nfor 5 s",
        });
        assert_eq!(
            text(&record),
            "T 502 GET h:81/a\u{fffd}[31m\u{fffd}b 250.1ms shop t:80 upstream_timeout \
             (proxies.backend_first_byte_timeout=5s) - silent\u{fffd}for 5 s"
        );
        let session =
            json!({ "timestamp": "T", "kind": "tcp", "session.end": "closed", "session.duration": 1.0 });
        assert_eq!(text(&session), "T tcp 1000.0ms closed");
    }
}
