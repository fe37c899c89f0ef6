//! Converts `forward_auth`: the address of the authorization server, the request that Caddy sends to it, and the use of its response.

use serde_json::{Map, Value};

use super::sites::Scope;
use super::tokens::CaddyLine;
use super::{Caddy, matchers};
use crate::changed::{RequestChange, What};
use crate::cond::Cond;
use crate::draft::{ForwardAuth, HeaderRule, Login, Matcher, Plug, RequestTransformer, To, draft};
use crate::own_fields::is_framing;
use crate::steps::{RouteEnd, RouteStep};

/// What the lines of a `forward_auth` mean.
struct Question {
    uri: String,
    /// Fields of the answer, each with its name in the request.
    copied: Vec<(String, String)>,
    /// Fields of the question, as templates.
    fields: Map<String, Value>,
    /// Caddy asks with the client's Host, unless it is told otherwise.
    keeps_host: bool,
    login: Option<Login>,
}

impl Caddy<'_> {
    /// `forward_auth TARGET { uri U; header_up …; copy_headers …; handle_response … }`.
    pub(super) fn forward_auth(
        &mut self,
        line: &CaddyLine,
        cond: Cond,
        words: &[&str],
        scope: &mut Scope,
        steps: &mut Vec<RouteStep>,
    ) {
        let question = read(line).filter(|question| words.len() == 1 && !question.uri.contains('{'));
        let target = words.first().and_then(|target| super::proxy::dialed(target));
        let Some((question, (host, port, is_tls, _))) = question.zip(target) else {
            let why = "only one server, `uri`, `header_up`, `copy_headers`, and a redirect for a status can be converted";
            if self.out.guard_not_converted(line.at, line.text(), why, "use the plugin `forward_auth`") {
                steps.push(RouteStep::End(cond, RouteEnd::new(line.at, To::Closed)));
            }
            return;
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let scheme = if is_tls { "https" } else { "http" };
        let names: Vec<&String> = question.copied.iter().map(|(name, _)| name).collect();
        let mut config = draft!(ForwardAuth {
            url: format!("{scheme}://{host}:{port}{}", question.uri),
            convention: "traefik",
            response_headers: names,
            status_on_error: 502,
            preserve_host: question.keeps_host
        });
        // A rewrite without a query keeps that of the request.
        if !question.uri.contains('?') {
            config.preserve_query(true);
        }
        if !question.fields.is_empty() {
            config.set_request_headers(question.fields);
        }
        config.login(question.login);
        if scope.changes.iter().any(|change| change.what.is_of_path()) {
            let why = "the server is asked about the path that the client sent, not the changed one";
            self.out.partial(line.at, line.text(), why, "");
        }
        if line.inner().iter().any(|inner| inner.name() == "trusted_proxies") {
            let why = "`gateway.trusted_proxies` specifies whose `X-Forwarded-*` are believed";
            self.out.partial(
                line.at,
                format!("{}: trusted_proxies", line.text()),
                why,
                "set gateway.trusted_proxies",
            );
        }
        // What the server says under these names is not known before.
        let told = question.copied.iter().flat_map(|(from, to)| [from, to]);
        let told =
            told.map(|name| RequestChange::new(cond.clone(), What::AnyHeader(name.to_ascii_lowercase())));
        scope.changes.extend(told);
        self.out.converted(line.at, line.text());
        steps.push(RouteStep::Pass(cond.clone(), Plug::of(config)));
        for (from, to) in question.copied.iter().filter(|(from, to)| !from.eq_ignore_ascii_case(to)) {
            let why = format!("what clients send as `{from}` is removed");
            self.out.partial(line.at, format!("{}: copy_headers {from}>{to}", line.text()), why, "");
            for (when, rules) in renaming(from, to) {
                let plug = Plug::of(draft!(RequestTransformer { rules }));
                steps.push(RouteStep::Pass(cond.clone().and(when), plug));
            }
        }
    }
}

/// The rules that put a field of the answer under another name; what the client sends there is removed.
fn renaming(from: &str, to: &str) -> [(Cond, Vec<HeaderRule>); 3] {
    let there = Cond::header(from.to_ascii_lowercase(), Matcher::present(true));
    let value = format!("${{request.header.{}}}", from.to_ascii_lowercase());
    let set = draft!(HeaderRule { operation: "set", target: "header", key: to, value });
    let remove = |name: &str| vec![draft!(HeaderRule { operation: "remove", target: "header", key: name })];
    [(there.clone(), vec![set]), (there.negate(), remove(to)), (Cond::Always, remove(from))]
}

/// The lines of a block; `None` when one of them can't be converted.
fn read(line: &CaddyLine) -> Option<Question> {
    let mut made = Question {
        uri: "/".to_owned(),
        copied: Vec::new(),
        fields: Map::new(),
        keeps_host: true,
        login: None,
    };
    let mut statuses: Vec<(&str, Vec<u16>)> = Vec::new();
    for inner in line.inner() {
        match (inner.name(), inner.arguments()) {
            ("uri", [path]) => made.uri.clone_from(path),
            ("trusted_proxies", _) => {}
            ("copy_headers", names) => {
                let own = inner.inner().iter().flat_map(|it| &it.words);
                for name in names.iter().chain(own) {
                    let (from, to) = name.split_once('>').unwrap_or((name, name));
                    if from.is_empty() || to.is_empty() || to != from && is_framing(&to.to_ascii_lowercase())
                    {
                        return None;
                    }
                    made.copied.push((from.to_owned(), to.to_owned()));
                }
            }
            ("header_up", arguments) => field(arguments, &mut made)?,
            (name, [kind, codes @ ..])
                if name.starts_with('@') && kind == "status" && inner.block.is_none() =>
            {
                let codes = codes.iter().map(|code| code.parse().ok()).collect::<Option<Vec<u16>>>()?;
                statuses.push((name, codes));
            }
            ("handle_response", [name]) if made.login.is_none() => {
                let (_, codes) = statuses.iter().find(|(known, _)| known == name)?;
                made.login = Some(login(inner, codes)?);
            }
            _ => return None,
        }
    }
    Some(made)
}

/// `header_up NAME VALUE` and `header_up -NAME`.
fn field(arguments: &[String], made: &mut Question) -> Option<()> {
    match arguments {
        [name, value] if name.eq_ignore_ascii_case("host") => match value.as_str() {
            "{host}" | "{http.request.host}" | "{hostport}" | "{http.request.hostport}" => {}
            "{upstream_hostport}" | "{http.reverse_proxy.upstream.hostport}" => made.keeps_host = false,
            value => drop(made.fields.insert("Host".to_owned(), matchers::template(value)?.into())),
        },
        [name, value] if !name.starts_with(['+', '?', '>', '-', '~']) && !name.contains('*') => {
            // Framing is the question's own.
            if !is_framing(&name.to_ascii_lowercase()) {
                let template = matchers::template(value).filter(|text| !text.contains("${target."))?;
                made.fields.insert(name.clone(), template.into());
            }
        }
        [name] => {
            let name = name.strip_prefix('-').filter(|name| !name.contains('*'))?;
            if !is_framing(&name.to_ascii_lowercase()) {
                made.fields.insert(name.to_owned(), "".into());
            }
        }
        _ => return None,
    }
    Some(())
}

/// `handle_response @name { redir [*] URL [STATUS] }` for answers with these statuses.
fn login(line: &CaddyLine, codes: &[u16]) -> Option<Login> {
    let [redir] = line.inner() else { return None };
    if redir.name() != "redir" || redir.block.is_some() || !codes.iter().all(|code| (400..500).contains(code))
    {
        return None;
    }
    let words: Vec<&str> = redir.arguments().iter().map(String::as_str).filter(|word| *word != "*").collect();
    let (url, status) = match words.as_slice() {
        [url] | [url, "temporary"] => (url, 302),
        [url, code] => (url, code.parse::<u16>().ok().filter(|code| matches!(code, 302 | 303 | 307))?),
        _ => return None,
    };
    let location = matchers::template(url)?;
    let good = ["http://", "https://", "${request.scheme}://"];
    let is_path = location.starts_with('/') && !location.starts_with("//");
    let is_good = is_path || good.iter().any(|start| location.starts_with(start));
    is_good.then(|| draft!(Login { statuses: codes.to_vec(), location, status_code: status }))
}
