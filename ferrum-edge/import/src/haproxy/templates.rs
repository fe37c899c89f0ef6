//! HAProxy's texts with samples as the gateway's templates.

use super::changes::{SUBSTITUTED, put_before};
use super::fetch::{cuts_port, split};
use crate::draft::{Parameter, QueryChanges, Replaced, Replacement, draft};
use crate::text;

/// `\1` as `${1}`.
pub(super) fn groups(text: &str) -> String {
    let mut made = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' if rest.peek().is_some_and(char::is_ascii_digit) => {
                made.push_str("${");
                made.extend(rest.next());
                made.push('}');
            }
            '$' => made.push_str("$$"),
            c => made.push(c),
        }
    }
    made
}

/// A regex and the text that takes the place of the whole value, in which `\1` is a group.
pub(super) fn replacement(regex: &str, with: &str) -> Option<Replacement> {
    let groups = regex::RegexBuilder::new(regex).size_limit(1 << 20).build().ok()?.captures_len();
    let mut made = String::new();
    let mut rest = with;
    while let Some((before, after)) = rest.split_once('\\') {
        made.push_str(&template(before)?);
        let digit =
            after.chars().next().and_then(|c| c.to_digit(10)).and_then(|it| usize::try_from(it).ok())?;
        // A group that the regex lacks is empty.
        if digit < groups {
            made.push_str(&format!("${{match.{digit}}}"));
        }
        rest = after.get(1..).unwrap_or_default();
    }
    made.push_str(&template(rest)?);
    let pattern = format!("(?s)^.*?(?:{regex}).*$");
    text::is_regex(&pattern).then(|| draft!(Replacement { pattern, with: made }))
}

/// `%[path]` or `%[path,regsub(REGEX,TO)]` between texts: the new path for paths in which the regex is found, and for others.
pub(super) fn substituted(text: &str) -> Option<Vec<Replaced>> {
    if let Some(before) = put_before(text) {
        let to = format!("{}${{1}}", before.replace('$', "$$"));
        return Some(vec![draft!(Replaced { from: "^(.*)$", to })]);
    }
    let (before, rest) = text.split_once(SUBSTITUTED)?;
    // A class in the regex has brackets, too.
    let at = rest.find(")]")?;
    let (arguments, behind) = (rest.get(..at)?, rest.get(at + 2..)?);
    let is_plain = |text: &str| !text.contains(['%', '$']);
    let arguments = split(arguments);
    let (regex, to, flags) = match arguments.as_slice() {
        [regex] => (unquoted(regex), "", ""),
        [regex, to] => (unquoted(regex), unquoted(to), ""),
        [regex, to, flags] => (unquoted(regex), unquoted(to), unquoted(flags)),
        _ => return None,
    };
    let flag = match flags {
        "" => "",
        "i" => "(?i)",
        _ => return None,
    };
    let from = format!("{flag}^(.*?)(?:{regex})(.*)$");
    let groups = regex::RegexBuilder::new(&from).size_limit(1 << 20).build().ok()?.captures_len();
    let is_good = is_plain(before) && is_plain(behind) && !to.contains(['%', '$']) && text::is_regex(&from);
    is_good.then_some(())?;
    // The groups of the regex come behind the one before it.
    let mut new = format!("{before}${{1}}");
    let mut rest = to;
    while let Some((text, after)) = rest.split_once('\\') {
        let digit =
            after.chars().next().and_then(|c| c.to_digit(10)).and_then(|it| usize::try_from(it).ok())?;
        new.push_str(text);
        if digit == 0 || digit + 2 >= groups {
            return None;
        }
        new.push_str(&format!("${{{}}}", digit + 1));
        rest = after.get(1..).unwrap_or_default();
    }
    let new = format!("{new}{rest}${{{}}}{behind}", groups - 1);
    let found = draft!(Replaced { from, to: new });
    if before.is_empty() && behind.is_empty() {
        return Some(vec![found]);
    }
    Some(vec![found, draft!(Replaced { from: "^(.*)$", to: format!("{before}${{1}}{behind}") })])
}

/// What is added to the query: `a=b&%[query]`, or the other way round.
pub(super) fn added_query(text: &str) -> Option<QueryChanges> {
    let added = text.strip_suffix("&%[query]").or_else(|| text.strip_prefix("%[query]&"))?;
    let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b));
    let pairs = added.split('&').map(|pair| pair.split_once('='));
    let pairs =
        pairs.map(|pair| pair.filter(|(name, value)| !name.is_empty() && is_plain(name) && is_plain(value)));
    let add = pairs
        .map(|pair| pair.map(|(name, value)| draft!(Parameter { name, value })))
        .collect::<Option<Vec<_>>>()?;
    Some(draft!(QueryChanges { add }))
}

/// An argument of a converter without its quotes.
fn unquoted(text: &str) -> &str {
    let within = |quote: char| text.strip_prefix(quote)?.strip_suffix(quote);
    within('"').or_else(|| within('\'')).unwrap_or(text)
}

/// A text with HAProxy's `%[…]` as one with ours; `None` when one of them has no counterpart.
pub(super) fn template(text: &str) -> Option<String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        made.push_str(&before.replace('$', "$$"));
        if let Some(after) = after.strip_prefix('%') {
            made.push('%');
            rest = after;
            continue;
        }
        let (sample, tail) = match after.strip_prefix('[') {
            Some(inner) => {
                let (fetch, tail) = inner.split_once(']')?;
                (converted(fetch)?, tail)
            }
            None => alias(after)?,
        };
        made.push_str(&sample);
        rest = tail;
    }
    made.push_str(&rest.replace('$', "$$"));
    Some(made)
}

/// A sample with its converters.
fn converted(expression: &str) -> Option<String> {
    let parts = split(expression);
    let (fetch, converters) = parts.split_first()?;
    if converters.is_empty() {
        return match fetch.as_str() {
            "base" => Some("${request.authority}${request.path}".to_owned()),
            fetch => variable(fetch).map(|name| format!("${{{name}}}")),
        };
    }
    let name = variable(fetch)?;
    let is_host = matches!(name.as_str(), "request.authority" | "request.host");
    let is_known = |converter: &String| is_host && (cuts_port(converter) || converter == "lower");
    // In lower case the port stays.
    let cuts = converters.iter().any(|it| cuts_port(it));
    (converters.iter().all(is_known) && cuts).then(|| "${request.host}".to_owned())
}

/// `%HU` and others of the log format.
fn alias(text: &str) -> Option<(String, &str)> {
    let known = [
        ("HM", "request.method"),
        ("HU", "request.target"),
        ("HP", "request.path"),
        ("ci", "client.address"),
        ("cp", "client.port"),
        ("fi", "server.address"),
        ("fp", "server.port"),
        ("ID", "request.id"),
    ];
    let found = known.into_iter().find_map(|(name, ours)| Some((ours, text.strip_prefix(name)?)));
    found.map(|(ours, rest)| (format!("${{{ours}}}"), rest))
}

fn variable(fetch: &str) -> Option<String> {
    let (name, argument) =
        fetch.split_once('(').map_or((fetch, ""), |(name, rest)| (name, rest.trim_end_matches(')')));
    let known = match name {
        "src" => "client.address",
        "src_port" => "client.port",
        "dst" => "server.address",
        "dst_port" => "server.port",
        "path" => "request.path",
        "query" => "request.query",
        "url" | "capture.req.uri" | "pathq" => "request.target",
        "method" | "capture.req.method" => "request.method",
        "uuid" | "unique-id" => "request.id",
        "ssl_fc_sni" => "tls.server_name",
        "ssl_fc_protocol" => "tls.version",
        "ssl_fc_cipher" => "tls.cipher",
        "ssl_c_s_dn" if argument.is_empty() => "tls.client.subject",
        "ssl_c_s_dn" if argument == "cn" || argument == "CN" => "tls.client.common_name",
        "hdr" | "req.hdr" | "req.fhdr" if argument.eq_ignore_ascii_case("host") => "request.authority",
        "hdr" | "req.hdr" | "req.fhdr" if !argument.is_empty() && !argument.contains(',') => {
            return Some(format!("request.header.{}", argument.to_ascii_lowercase()));
        }
        "url_param" | "urlp" if !argument.is_empty() => return Some(format!("request.query.{argument}")),
        "cook" | "req.cook" if !argument.is_empty() => return Some(format!("request.cookie.{argument}")),
        _ => return None,
    };
    Some(known.to_owned())
}
