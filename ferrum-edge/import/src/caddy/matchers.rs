//! Caddy's matchers and placeholders as conditions and templates.

use crate::cond::Cond;
use crate::draft::Matcher;
use crate::text;

/// A path pattern: exact, or with `*` at its ends or anywhere. Case does not matter.
pub(super) fn path(pattern: &str) -> Option<Cond> {
    if pattern.contains('{') {
        return None;
    }
    if pattern == "*" || pattern == "/*" {
        return Some(Cond::Always);
    }
    let pieces: Vec<String> = pattern.split('*').map(text::literal).collect();
    let inner = pattern.trim_matches('*').contains('*');
    // A star inside stands for one segment, at the ends for anything.
    let mut regex = "(?i)".to_owned();
    for (n, piece) in pieces.iter().enumerate() {
        if n > 0 {
            let is_end =
                n == 1 && pattern.starts_with('*') || n == pieces.len() - 1 && pattern.ends_with('*');
            regex.push_str(if inner && !is_end { "[^/]*" } else { ".*" });
        }
        regex.push_str(piece);
    }
    text::is_regex(&regex).then(|| Cond::path_is(Matcher::regex(regex)))
}

/// A regex on the path.
pub(super) fn path_regex(regex: &str) -> Option<Cond> {
    let whole = text::anywhere(regex);
    text::is_regex(&whole).then(|| Cond::path_is(Matcher::regex(whole)))
}

/// Host names, with `*` for one label in front.
pub(super) fn hosts(names: &[String]) -> Option<Cond> {
    let good = names.iter().all(|name| !name.contains('{') && !name.trim_start_matches("*.").contains('*'));
    let names: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    good.then(|| Cond::hosts(names))
}

/// A header with patterns of values, of which one has to fit. None: it is there.
pub(super) fn header(name: &str, values: &[String]) -> Option<Cond> {
    let (name, negated) = name.strip_prefix('!').map_or((name, false), |name| (name, true));
    let field = |how: Matcher| field(name, how);
    if values.is_empty() {
        return Some(field(Matcher::present(!negated)));
    }
    if values.iter().any(|value| value.contains('{')) {
        return None;
    }
    // Each of several fields of one name counts by itself.
    let regex = |before: &str, value: &str, after: &str| {
        field(Matcher::regex(format!("{before}{}{after}", text::literal(value))))
    };
    let one = |value: &String| match (value.strip_prefix('*'), value.strip_suffix('*')) {
        _ if value == "*" => field(Matcher::present(true)),
        (Some(rest), Some(_)) => field(Matcher::contains(rest.trim_end_matches('*'))),
        (Some(rest), None) => regex(".*", rest, OTHERS_BEHIND),
        (None, Some(rest)) => regex(OTHERS_BEFORE, rest, ".*"),
        (None, None) => regex(OTHERS_BEFORE, value, OTHERS_BEHIND),
    };
    Some(Cond::any(values.iter().map(one)))
}

/// Further fields of the same name, which are joined by a comma and a space.
const OTHERS_BEFORE: &str = "(?:.*, )?";
const OTHERS_BEHIND: &str = "(?:, .*)?";

/// A header of which one field's value fits a regex.
pub(super) fn header_regex(name: &str, regex: &str) -> Option<Cond> {
    let how = Matcher::one_field(regex)?;
    Some(field(name, how))
}

/// What is asked of a header; `Host` is the authority, with its port.
fn field(name: &str, how: Matcher) -> Cond {
    match name.to_ascii_lowercase().as_str() {
        "host" => Cond::authority(how),
        name => Cond::header(name, how),
    }
}

/// Query parameters `name=value`, of which one has to fit.
pub(super) fn query(pairs: &[(String, String)]) -> Cond {
    Cond::any(pairs.iter().map(|(name, value)| match value.as_str() {
        "*" => Cond::query(name, Matcher::present(true)),
        value => Cond::query(name, Matcher::exact(value)),
    }))
}

/// Clients in these networks.
pub(super) fn clients(ranges: &[String]) -> Option<Cond> {
    networks(ranges).map(Cond::clients)
}

/// Networks, as the gateway writes them; `None` where there is none, or one is not understood.
pub(super) fn networks(ranges: &[String]) -> Option<Vec<String>> {
    let mut networks = Vec::new();
    for range in ranges {
        match range.as_str() {
            "private_ranges" => {
                let private =
                    ["192.168.0.0/16", "172.16.0.0/12", "10.0.0.0/8", "127.0.0.1/8", "fd00::/8", "::1"];
                networks.extend(private.iter().map(|it| (*it).to_owned()));
            }
            range if text::is_network(range) => networks.push(range.to_owned()),
            _ => return None,
        }
    }
    (!networks.is_empty()).then_some(networks)
}

/// A text with Caddy's placeholders as one with ours; `None` when one of them has no counterpart.
pub(super) fn template(text: &str) -> Option<String> {
    template_with(text, &|_| None)
}

/// The same where some placeholders stand for other texts.
pub(super) fn template_with(text: &str, known: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        made.push_str(before);
        let (name, tail) = after.split_once('}')?;
        rest = tail;
        match known(name) {
            Some(known) => made.push_str(&known),
            None => made.push_str(&format!("${{{}}}", variable(name)?)),
        }
    }
    made.push_str(rest);
    Some(made)
}

/// Whether a text has placeholders that Caddy fills in.
pub(super) fn has_placeholders(text: &str) -> bool {
    let names = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    names
        .into_iter()
        .any(|(name, _)| variable(name).is_some() || PREFIXES.iter().any(|it| name.starts_with(it)))
}

/// What names of further placeholders begin with.
const PREFIXES: [&str; 6] = ["http.", "env.", "system.", "time.", "file.", "err."];

fn variable(name: &str) -> Option<String> {
    let known = match name {
        "host" | "http.request.host" => "request.host",
        "hostport" | "http.request.hostport" => "request.authority",
        "uri" | "http.request.uri" => "request.target",
        "path" | "http.request.uri.path" => "request.path",
        "query" | "http.request.uri.query" => "request.query",
        "method" | "http.request.method" => "request.method",
        "scheme" | "http.request.scheme" => "request.scheme",
        "remote_host" | "http.request.remote.host" | "client_ip" => "client.address",
        "remote_port" | "http.request.remote.port" => "client.port",
        "http.request.uuid" => "request.id",
        "http.auth.user.id" => "consumer.username",
        "tls_client_subject" | "http.request.tls.client.subject" => "tls.client.subject",
        "tls_version" | "http.request.tls.version" => "tls.version",
        "upstream_hostport" | "http.reverse_proxy.upstream.hostport" => "target.authority",
        _ => {
            for (theirs, ours) in [
                ("header.", "request.header."),
                ("http.request.header.", "request.header."),
                ("query.", "request.query."),
                ("http.request.uri.query.", "request.query."),
                ("cookie.", "request.cookie."),
                ("http.request.cookie.", "request.cookie."),
            ] {
                if let Some(rest) = name.strip_prefix(theirs).filter(|rest| !rest.is_empty()) {
                    let rest =
                        if ours == "request.header." { rest.to_ascii_lowercase() } else { rest.to_owned() };
                    return Some(format!("{ours}{rest}"));
                }
            }
            return None;
        }
    };
    Some(known.to_owned())
}
