//! Requests that another gateway's log or a browser recorded: HAR, the combined format, HAProxy's HTTP log, Caddy's and Traefik's JSON.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use regex::Regex;
use serde_json::Value;

/// A request, and what the original answered.
#[derive(Debug)]
pub(super) struct RecordedRequest {
    pub(super) method: Method,
    /// With scheme and host.
    pub(super) url: Uri,
    pub(super) headers: HeaderMap,
    pub(super) client: IpAddr,
    pub(super) status: u16,
    /// `Location` of the answer, where it was recorded.
    pub(super) location: Option<String>,
}

/// Where requests went whose record does not say it.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogOrigin<'o> {
    /// `http` or `https`.
    pub(super) scheme: &'o str,
    pub(super) host: &'o str,
}

impl<'o> LogOrigin<'o> {
    /// `HOST`, `http://HOST` or `https://HOST`; `None` for another scheme, and for more than a host.
    pub(super) fn parse(text: &'o str) -> Option<Self> {
        let (scheme, host) = text.split_once("://").unwrap_or(("http", text));
        let authority: http::uri::Authority = host.parse().ok()?;
        (matches!(scheme, "http" | "https") && !authority.as_str().contains('@'))
            .then_some(Self { scheme, host })
    }
}

/// Fields of a recorded request that are another connection's, or that a browser leaves out of requests.
const LEFT_OUT: [&str; 6] = ["connection", "content-length", "host", "transfer-encoding", "upgrade", "te"];

static COMBINED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let line = concat!(
        r"^(?:(?P<host>[^\s:]+)(?::\d+)? )?(?P<client>[0-9a-fA-F.:]+) \S+ .{1,200}? \[[^\]]*\] ",
        r#""(?P<method>[A-Z]+) (?P<target>\S+)(?: HTTP/[\d.]+)?" (?P<status>\d{3}) \S+"#,
        r#"(?: "(?P<referer>[^"]*)" "(?P<agent>[^"]*)")?"#
    );
    Regex::new(line).ok()
});
static HAPROXY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let line = concat!(
        r"(?P<client>[0-9a-fA-F.:]+):\d+ \[[^\]]*\] \S+ \S+ [-+/\d]+ (?P<status>\d{3}) ",
        r#".*"(?P<method>[A-Z]+) (?P<target>\S+) HTTP/[\d.]+""#
    );
    Regex::new(line).ok()
});

/// The requests of a log.
pub(super) struct RecordedLog {
    pub(super) requests: Vec<RecordedRequest>,
    /// Lines that are no records of requests.
    pub(super) unread: usize,
}

/// A text that begins like a HAR file and has no entries.
#[derive(Debug, thiserror::Error)]
#[error("this HAR file has no entries")]
pub(super) struct NoEntries;

/// Reads a log or a HAR file. `origin` counts where a record does not say
/// host or scheme.
///
/// # Errors
/// A text that begins like a HAR file and is none.
pub(super) fn read(text: &str, origin: LogOrigin<'_>, most: usize) -> Result<RecordedLog, NoEntries> {
    let is_har =
        text.trim_start().starts_with('{') && text.contains("\"entries\"") && text.contains("\"log\"");
    if is_har && let Ok(har) = serde_json::from_str::<Value>(text) {
        let entries = har["log"]["entries"].as_array().ok_or(NoEntries)?;
        let made: Vec<_> = entries.iter().take(most).map(of_har).collect();
        let unread = made.iter().filter(|one| one.is_none()).count();
        return Ok(RecordedLog { requests: made.into_iter().flatten().collect(), unread });
    }
    let mut read = RecordedLog { requests: Vec::new(), unread: 0 };
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if read.requests.len() >= most {
            break;
        }
        let found = match serde_json::from_str::<Value>(line) {
            Ok(record) => of_json(&record, origin),
            Err(_) => of_line(line, origin),
        };
        match found {
            Some(request) => read.requests.push(request),
            None => read.unread += 1,
        }
    }
    Ok(read)
}

fn of_har(entry: &Value) -> Option<RecordedRequest> {
    let (request, response) = (&entry["request"], &entry["response"]);
    let pairs = request["headers"].as_array().into_iter().flatten();
    let pairs = pairs.filter_map(|one| Some((one["name"].as_str()?, one["value"].as_str()?)));
    let mut answered = response["headers"].as_array().into_iter().flatten();
    let is_location =
        |one: &&Value| one["name"].as_str().is_some_and(|name| name.eq_ignore_ascii_case("location"));
    let location = answered.find(is_location).and_then(|one| one["value"].as_str()).map(str::to_owned);
    Some(RecordedRequest {
        method: request["method"].as_str()?.parse().ok()?,
        url: request["url"]
            .as_str()?
            .split('#')
            .next()?
            .parse()
            .ok()
            .filter(|url: &Uri| url.host().is_some())?,
        headers: fields(pairs),
        client: IpAddr::V4(Ipv4Addr::LOCALHOST),
        status: u16::try_from(response["status"].as_u64()?).ok().filter(|status| *status >= 200)?,
        location,
    })
}

/// A record of the gateway's own, of Caddy or of Traefik.
fn of_json(record: &Value, origin: LogOrigin<'_>) -> Option<RecordedRequest> {
    let text = |at: &str| record.pointer(at).and_then(Value::as_str);
    let first = |names: &[&str]| names.iter().find_map(|at| text(at));
    let number = |names: &[&str]| names.iter().find_map(|at| record.pointer(at).and_then(Value::as_u64));
    let method = first(&["/request/method", "/RequestMethod", "/http.request.method", "/request_method"])?;
    let query = text("/url.query").map(|query| format!("?{query}")).unwrap_or_default();
    let target = first(&["/request/uri", "/RequestPath", "/url.path", "/request_uri"])?;
    let host = first(&["/request/host", "/RequestHost", "/server.address", "/host"]).unwrap_or(origin.host);
    let names = ["/status", "/DownstreamStatus", "/http.response.status_code"];
    let status = number(&names).or_else(|| names.iter().find_map(|at| text(at)?.parse().ok()))?;
    let client = first(&["/request/remote_ip", "/ClientHost", "/client.address", "/remote_addr"]);
    let own = record.pointer("/request/headers").and_then(Value::as_object).into_iter().flatten();
    let pairs = own.filter_map(|(name, values)| Some((name.as_str(), values.get(0)?.as_str()?)));
    let agent = first(&["/user_agent.original", "/http_user_agent", "/request_User-Agent"]);
    let scheme = match record.pointer("/request") {
        Some(request) if request.get("tls").is_some() => "https",
        Some(_) => "http",
        None => first(&["/RequestScheme", "/url.scheme", "/scheme"]).unwrap_or(origin.scheme),
    };
    let location = record.pointer("/resp_headers/Location/0").and_then(Value::as_str).map(str::to_owned);
    Some(RecordedRequest {
        method: method.parse().ok()?,
        url: url(scheme, host, &format!("{target}{query}"))?,
        headers: fields(pairs.chain(agent.map(|agent| ("user-agent", agent)))),
        client: client.and_then(|client| client.parse().ok()).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        status: u16::try_from(status).ok().filter(|status| (200..600).contains(status))?,
        location,
    })
}

/// A line of the combined format, also with a host before it, or of HAProxy's HTTP log.
fn of_line(line: &str, origin: LogOrigin<'_>) -> Option<RecordedRequest> {
    let found = COMBINED.as_ref().and_then(|regex| regex.captures(line));
    let found = found.or_else(|| HAPROXY.as_ref().and_then(|regex| regex.captures(line)))?;
    let text = |name: &str| found.name(name).map(|it| it.as_str());
    let is_said = |value: &&str| *value != "-";
    let agent = text("agent").filter(is_said).map(|agent| ("user-agent", agent));
    let referer = text("referer").filter(is_said).map(|referer| ("referer", referer));
    Some(RecordedRequest {
        method: text("method")?.parse().ok()?,
        url: url(origin.scheme, text("host").unwrap_or(origin.host), text("target")?)?,
        headers: fields(agent.into_iter().chain(referer)),
        client: text("client")?.parse().ok()?,
        status: text("status")?.parse().ok().filter(|status| (200..600).contains(status))?,
        location: None,
    })
}

fn url(scheme: &str, host: &str, target: &str) -> Option<Uri> {
    match target.contains("://") && !target.starts_with('/') {
        true => target.parse().ok(),
        false => format!("{scheme}://{host}{target}").parse().ok(),
    }
}

fn fields<'f>(pairs: impl Iterator<Item = (&'f str, &'f str)>) -> HeaderMap {
    let mut made = HeaderMap::new();
    for (name, value) in pairs {
        let name = name.to_ascii_lowercase();
        // Browsers write `:authority` and its like into HAR files.
        if name.starts_with(':') || LEFT_OUT.contains(&name.as_str()) {
            continue;
        }
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            made.append(name, value);
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::{LogOrigin, RecordedLog, read};

    const ORIGIN: LogOrigin<'_> = LogOrigin { scheme: "http", host: "a.test" };

    #[test]
    fn each_format_is_read() {
        let lines = [
            r#"10.0.0.7 - ada [27/Nov/2026:10:00:00 +0000] "GET /a?x=1 HTTP/1.1" 200 5 "-" "curl/8""#,
            r#"b.test:443 10.0.0.7 - - [27/Nov/2026:10:00:00 +0000] "GET /a?x=1 HTTP/1.1" 200 5 "-" "curl/8""#,
            r#"haproxy[1]: 10.0.0.7:4000 [27/Nov/2026:10:00:00.1] main one/s1 0/0/1/2/3 200 5 - - ---- 1/1/0/0/0 0/0 "GET /a?x=1 HTTP/1.1""#,
            r#"{"request":{"remote_ip":"10.0.0.7","method":"GET","host":"b.test","uri":"/a?x=1","headers":{"User-Agent":["curl/8"]}},"status":200}"#,
            r#"{"ClientHost":"10.0.0.7","RequestMethod":"GET","RequestHost":"b.test","RequestPath":"/a?x=1","DownstreamStatus":200}"#,
            r#"{"kind":"http","client.address":"10.0.0.7","http.request.method":"GET","server.address":"b.test","url.path":"/a","url.query":"x=1","http.response.status_code":200}"#,
        ];
        for (line, host) in
            lines.into_iter().zip(["a.test", "b.test", "a.test", "b.test", "b.test", "b.test"])
        {
            let RecordedLog { requests: made, unread } = read(line, ORIGIN, 9).expect("a log");
            assert_eq!((made.len(), unread), (1, 0), "{line}");
            assert_eq!(made[0].url.to_string(), format!("http://{host}/a?x=1"), "{line}");
            assert_eq!((made[0].status, made[0].client.to_string().as_str()), (200, "10.0.0.7"), "{line}");
        }
        let RecordedLog { requests: made, unread } = read("nonsense\n\n{}\n", ORIGIN, 9).expect("a log");
        assert_eq!((made.len(), unread), (0, 2));
    }

    #[test]
    fn an_origin_gives_the_scheme_that_a_record_lacks() {
        let line = r#"10.0.0.7 - - [27/Nov/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl/8""#;
        for (given, url) in [
            ("https://shop.test", "https://shop.test/a"),
            ("http://shop.test:8080", "http://shop.test:8080/a"),
            ("shop.test", "http://shop.test/a"),
        ] {
            let made = read(line, LogOrigin::parse(given).expect(given), 9).expect("a log").requests;
            assert_eq!(made[0].url.to_string(), url, "{given}");
        }
        for refused in
            ["ftp://shop.test", "https://shop.test/path", "a b", "", "https://ann@shop.test", "https://"]
        {
            assert!(LogOrigin::parse(refused).is_none(), "{refused}");
        }
    }

    #[test]
    fn browsers_write_har() {
        let har = r#"{"log":{"entries":[{"request":{"method":"GET","url":"https://a.test/x#top","headers":
            [{"name":":authority","value":"a.test"},{"name":"Cookie","value":"a=b"},{"name":"Host","value":"a.test"}]},
            "response":{"status":302,"headers":[{"name":"Location","value":"/y"}]}},
            {"request":{"method":"GET","url":"https://a.test/y"},"response":{"status":0}}]}}"#;
        let RecordedLog { requests: made, unread } = read(har, ORIGIN, 9).expect("a HAR file");
        assert_eq!((made.len(), unread, made[0].status), (1, 1, 302));
        assert_eq!((made[0].url.to_string().as_str(), made[0].headers.len()), ("https://a.test/x", 1));
        assert_eq!(made[0].location.as_deref(), Some("/y"));
    }
}
