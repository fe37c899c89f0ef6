//! The same requests to an original and to the gateway with what was imported from it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ferrum_edge::import::{self, Disk, Format, Import, Options};
use http::HeaderMap;
use serde_json::Value;

use super::auth_server::AuthServer;
use super::server::{Original, adapted, folder, free_port};
use crate::support::edge::Edge;
use crate::support::h1::Talker;
use crate::support::php::PhpFpm;
use crate::support::standing::Standing;
use crate::support::wire::Wire;

/// Header fields of requests in which the gateway differs from others; the report's notes name them.
const NOT_COMPARED: &[&str] = &[
    "accept-encoding",
    "connection",
    "content-length",
    "te",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-request-id",
    "forwarded",
    "authorization",
    "x-consumer-groups",
    "x-consumer-id",
    "x-consumer-username",
];

/// Header fields of responses that each program has by itself.
const NOT_OF_RESPONSES: &[&str] = &[
    "accept-ranges",
    // By the clock of each cache; nginx's says nothing of it.
    "age",
    "allow",
    "alt-svc",
    "cache-status",
    "connection",
    "content-length",
    "content-type",
    "date",
    "etag",
    // A date, by the clock of each; nginx's `expires` is compared by `Cache-Control`.
    "expires",
    "keep-alive",
    "last-modified",
    "location",
    "proxy-connection",
    "proxy-status",
    "retry-after",
    "server",
    "status",
    "transfer-encoding",
    "vary",
    "via",
    "www-authenticate",
    "x-origin",
];

/// A configuration, the requests, and the differences that the report names.
pub(super) struct Case<'c> {
    pub(super) format: Format,
    /// With `@PORT@` for the port, `@PORT2@` for a second one where there is one, `@A@` to `@D@` for targets' addresses, `@DEAD@` for one where nobody answers, and `@DIR@` for
    /// the folder.
    pub(super) config: &'c str,
    pub(super) hosts: &'c [&'c str],
    pub(super) paths: &'c [&'c str],
    pub(super) methods: &'c [&'c str],
    /// Header fields of further requests, each as `name: value`, with `@A@` to `@D@`; the empty one is no field.
    pub(super) fields: &'c [&'c str],
    /// What may differ: a piece of the request's line or fields, and of the finding that says so.
    pub(super) known: &'c [(&'c str, &'c str)],
    /// Whether PHP-FPM listens on `@DIR@/fpm.sock`.
    pub(super) php: bool,
    /// Whether an authorization server listens on `@AUTH@`.
    pub(super) auth: bool,
    /// Files in the folder, by name.
    pub(super) files: &'c [(&'c str, &'c str)],
}

impl Default for Case<'_> {
    fn default() -> Self {
        Self {
            format: Format::Nginx,
            config: "",
            hosts: &["a.test"],
            paths: &["/"],
            methods: &["GET"],
            fields: &[""],
            known: &[],
            php: false,
            auth: false,
            files: &[],
        }
    }
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    status: u16,
    /// Which target answered; empty where none did.
    target: String,
    location: String,
    /// The media type and the body of an answer that the configuration gives; empty where a program has a page of its own.
    fixed: String,
    /// Fields of the response that not every program has by itself.
    fields: Vec<String>,
    /// The line and the fields that the target saw.
    seen: Vec<String>,
}

impl Answer {
    /// Whether a rule refuses the request; that its targets can't be reached is none.
    fn is_refusal(&self) -> bool {
        self.target.is_empty() && self.status >= 400 && !matches!(self.status, 502 | 504)
    }
}

/// Sends every request of a case to both, and fails with all that differs.
pub(super) async fn compare(case: Case<'_>) {
    let names = ["A", "B", "C", "D"];
    let mut targets = Vec::new();
    for name in names {
        targets.push(Standing::start(name).await);
    }
    let (folder, port, second) = (folder("compare"), free_port(), free_port());
    let ports = if case.config.contains("@PORT2@") { vec![port, second] } else { Vec::new() };
    let mut text =
        case.config.replace("@PORT@", &port.to_string()).replace("@DIR@", &folder.display().to_string());
    text = text.replace("@PORT2@", &second.to_string());
    for (name, target) in names.iter().zip(&targets) {
        text = text.replace(&format!("@{name}@"), &target.address.to_string());
    }
    let auth = if case.auth { Some(AuthServer::start().await) } else { None };
    if let Some(auth) = &auth {
        text = text.replace("@AUTH@", &auth.address.to_string());
    }
    text = text.replace("@DEAD@", &format!("127.0.0.1:{}", free_port()));
    for (name, content) in case.files {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or_else(|| Path::new("/"))).expect("a folder");
        std::fs::write(path, content).expect("a file");
    }
    let _php = if case.php { Some(PhpFpm::start(&folder).await) } else { None };
    let imported = imported(case.format, &text, &folder);
    let edge = edge(&imported, &ports);
    let original = Original::start(case.format, &text, &folder, port);
    let mut wrong = String::new();
    let (mut count, mut same) = (0, 0);
    let pairs: Vec<(SocketAddr, SocketAddr)> = match ports.as_slice() {
        [] => vec![(original.address, edge.http())],
        ports => ports.iter().map(|port| (([127, 0, 0, 1], *port).into(), (BESIDE, *port).into())).collect(),
    };
    let all = requests(&case);
    for (request, (there, here)) in
        all.iter().flat_map(|request| pairs.iter().map(move |pair| (*request, *pair)))
    {
        let (method, host, path, field) = request;
        let field = names.iter().zip(&targets).fold(field.to_owned(), |field, (name, target)| {
            field.replace(&format!("@{name}@"), &target.address.to_string())
        });
        let theirs = ask_original(there, method, host, path, &field).await;
        let ours = ask(here, method, host, path, &field)
            .await
            .unwrap_or_else(|error| panic!("{request:?}: {error}"));
        count += 1;
        if theirs == ours {
            same += 1;
            continue;
        }
        let line = format!("{} {}{} {} on {}", request.0, request.1, request.2, request.3, here.port());
        let is_open = theirs.is_refusal() && !ours.is_refusal();
        let is_named = |known: &&(&str, &str)| line.contains(known.0) && says(&imported, known.1);
        if is_open || !case.known.iter().any(|known| is_named(&known)) {
            let kind = if is_open { "OPEN" } else { "not named" };
            writeln!(wrong, "{kind}: {line}\n  there {theirs:?}\n  here  {ours:?}").expect("a text");
        }
    }
    drop(original);
    let findings: Vec<String> = imported.report.losses().map(ToString::to_string).collect();
    assert!(
        count > 0 && same * 2 > count,
        "only {same} of {count} answers are the same\n{wrong}\n{}\n{:#}",
        findings.join("\n"),
        imported.document()
    );
    assert!(wrong.is_empty(), "{wrong}\n{}\n{:#}", findings.join("\n"), imported.document());
}

/// Method, host, path and a header field of each request.
fn requests<'c>(case: &Case<'c>) -> Vec<(&'c str, &'c str, &'c str, &'c str)> {
    let mut made = Vec::new();
    for host in case.hosts {
        for path in case.paths {
            let each =
                case.methods.iter().flat_map(|method| case.fields.iter().map(move |field| (method, field)));
            made.extend(each.map(|(method, field)| (*method, *host, *path, *field)));
        }
    }
    made
}

fn says(imported: &Import, finding: &str) -> bool {
    imported.report.findings().iter().any(|one| one.to_string().contains(finding))
        || imported.report.notes().iter().any(|note| note.contains(finding))
}

/// What the importer makes of a text in a folder; of a Caddyfile whose JSON is meant, what Caddy makes of it.
pub(super) fn imported(format: Format, text: &str, folder: &Path) -> Import {
    let name: PathBuf = folder.join(match format {
        Format::Nginx => "nginx.conf",
        Format::Haproxy => "haproxy.cfg",
        _ => "Caddyfile",
    });
    let text = if format == Format::CaddyJson { adapted(text, folder) } else { text.to_owned() };
    let source = (name.display().to_string(), text);
    import::import(format, &[source], &Disk, Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// The document without what needs files or ports that are not there.
pub(super) fn spec(imported: &Import) -> (String, String) {
    let document = imported.document();
    let mut settings = String::new();
    for (key, value) in document["gateway"].as_object().into_iter().flatten() {
        if !matches!(
            key.as_str(),
            "http" | "https" | "additional_http" | "additional_https" | "tls" | "http3"
        ) {
            writeln!(settings, "  {key}: {value}").expect("a text");
        }
    }
    let mut spec = String::new();
    for section in ["upstreams", "consumers", "plugin_configs", "proxies"] {
        let list = document[section].as_array().cloned().unwrap_or_default();
        if list.is_empty() && section == "proxies" {
            spec.push_str("proxies: []\n");
        } else if !list.is_empty() {
            writeln!(spec, "{section}:").expect("a text");
            list.iter().for_each(|one: &Value| writeln!(spec, "  - {one}").expect("a text"));
        }
    }
    (settings, spec)
}

/// Where the gateway listens on the ports of an original, which has them on 127.0.0.1.
const BESIDE: [u8; 4] = [127, 0, 0, 2];

fn edge(imported: &Import, ports: &[u16]) -> Edge {
    let (mut settings, spec) = spec(imported);
    if !ports.is_empty() {
        let addresses: Vec<String> =
            ports.iter().map(|port| SocketAddr::from((BESIDE, *port)).to_string()).collect();
        writeln!(settings, "  additional_http: {addresses:?}").expect("a text");
    }
    Edge::start_with(&settings, &spec)
}

/// An original that closes a connection is asked again: what it answers is the measure, and not what is tested.
async fn ask_original(to: SocketAddr, method: &str, host: &str, path: &str, field: &str) -> Answer {
    for _ in 0..3 {
        if let Ok(answer) = ask(to, method, host, path, field).await {
            return answer;
        }
    }
    ask(to, method, host, path, field)
        .await
        .unwrap_or_else(|error| panic!("the original, {method} {host}{path}: {error}"))
}

async fn ask(to: SocketAddr, method: &str, host: &str, path: &str, field: &str) -> Result<Answer, String> {
    let mut talker = Talker::new(Wire::open(to).await);
    let field = if field.is_empty() { String::new() } else { format!("{field}\r\n") };
    let length = if method == "POST" || method == "PUT" { "content-length: 2\r\n" } else { "" };
    let body = if length.is_empty() { "" } else { "hi" };
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n{field}{length}connection: close\r\n\r\n{body}");
    talker.wire.send(&request).await;
    let parsed = method.parse().expect("a method");
    let head = talker.response(&parsed).await.map_err(|error| error.to_string())?;
    let body = talker.body().await.unwrap_or_default();
    let target = head.field("x-origin").to_owned();
    let body = String::from_utf8_lossy(&body);
    let seen = if target.is_empty() { Vec::new() } else { seen(&body) };
    let kind = head.field("content-type").split(';').next().unwrap_or_default();
    let is_fixed = target.is_empty() && head.status() == 200 && !body.is_empty() && !body.contains("<html");
    // Of a target that was told its body, that is what came.
    let is_told = !target.is_empty() && field.contains("reply-body");
    let seen = if is_told { vec![body.to_string()] } else { seen };
    let fixed = if is_fixed { format!("{kind} {body}") } else { String::new() };
    // HAProxy's own answers have it.
    let own = |field: &String| target.is_empty() && field == "cache-control: no-cache";
    let fields = fields(&head.headers).into_iter().filter(|field| !own(field)).collect();
    Ok(Answer {
        status: head.status(),
        target,
        location: location(&head.headers, to, host),
        fixed,
        fields,
        seen,
    })
}

fn fields(headers: &HeaderMap) -> Vec<String> {
    let named = headers.iter().filter(|(name, _)| !NOT_OF_RESPONSES.contains(&name.as_str()));
    let mut made: Vec<String> =
        named.map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))).collect();
    made.sort();
    made
}

/// The line and the fields that a target saw, as it wrote them.
fn seen(body: &str) -> Vec<String> {
    let mut lines = body.lines().skip(1);
    let line = lines
        .next()
        .unwrap_or_default()
        .trim_end_matches(" HTTP/1.0")
        .trim_end_matches(" HTTP/1.1")
        .to_owned();
    let mut fields: Vec<String> = lines
        .filter(|line| {
            !NOT_COMPARED.contains(&line.split(':').next().unwrap_or_default().to_ascii_lowercase().as_str())
        })
        .map(str::to_owned)
        .collect();
    fields.sort();
    fields.insert(0, line);
    fields
}

/// Where a redirect leads, without what differs by the port.
fn location(headers: &HeaderMap, to: SocketAddr, host: &str) -> String {
    let text = headers.get("location").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let text = text.replace(&format!(":{}", to.port()), "");
    // A path alone and the same with this host are one place.
    text.strip_prefix(&format!("http://{host}")).unwrap_or(&text).to_owned()
}
