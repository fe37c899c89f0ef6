//! Single values: ids, hosts, paths, methods, addresses.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use regex::{Regex, RegexBuilder};

use super::{Fault, Notes};
use crate::condition::written::PathMatch;
use crate::condition::{not_a_regex, whole};
use crate::config::file;
use crate::config::model::{Congestion, Id, SERVICE, UNIX, service_name, socket_path};
use crate::config::units::{Bytes, Millis, Seconds};
use crate::route::{HostPattern, MAX_SEGMENTS, PathPattern, PathTemplate};

/// Bytes a compiled regex may take, so that one pattern cannot eat the machine.
const MAX_REGEX_BYTES: usize = 1 << 20;
/// The namespace everything is in.
const NAMESPACE: &str = "ferrum";

/// An object's id, which has to be there.
pub(super) fn id(notes: &mut Notes<'_>, written: Option<&str>) -> Option<Id> {
    let Some(text) = written else {
        notes.add("", "`id` is missing").remedy =
            Some("give it a name of its own, such as `id: orders`".to_owned());
        return None;
    };
    notes.value("id", valid_id(text))
}

pub(super) fn valid_id(text: &str) -> Result<Id, Fault> {
    let mut bytes = text.bytes();
    let good = bytes.next().is_some_and(|b| b.is_ascii_alphanumeric())
        && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
        && text.len() <= 254;
    if good {
        return Ok(Id(Arc::from(text)));
    }
    if text.contains(['“', '”', '‘', '’']) {
        return Err(
            Fault::new(format!("`{text}` can't be an id")).remedy("write plain quotation marks, or none")
        );
    }
    Err(Fault::new(format!("`{text}` can't be an id"))
        .remedy("1 to 254 letters, digits, `.`, `_` and `-`, beginning with a letter or digit"))
}

pub(super) fn namespace(notes: &mut Notes<'_>, written: Option<&str>) {
    if let Some(other) = written.filter(|name| *name != NAMESPACE) {
        notes.add("namespace", format!("there is no namespace `{other}`")).remedy =
            Some(format!("leave it out: everything is in `{NAMESPACE}`"));
    }
}

/// A name for people: `None` when absent or empty.
pub(super) fn label(written: Option<&String>) -> Option<Arc<str>> {
    written.filter(|text| !text.is_empty()).map(|text| Arc::from(text.as_str()))
}

pub(crate) fn host_pattern(text: &str) -> Result<HostPattern, Fault> {
    let lower = text.trim_end_matches('.').to_ascii_lowercase();
    let bad = |remedy: String| Fault::new(format!("`{text}` is not a host")).remedy(remedy);
    if lower == "*" {
        return Err(bad("leave `hosts` out to take any host".to_owned()));
    }
    if let Some((_, rest)) = lower.split_once("://") {
        return Err(bad(format!("write only the name: `{}`", bare(rest))));
    }
    if lower.starts_with('[') {
        let address = lower.strip_prefix('[').and_then(|a| a.strip_suffix(']'));
        return match address.and_then(|a| a.parse::<std::net::Ipv6Addr>().ok()) {
            Some(_) => Ok(HostPattern::Exact(lower.into())),
            None => Err(bad("write an IPv6 address as `[::1]`, without a port".to_owned())),
        };
    }
    if lower.contains([':', '/']) {
        return Err(bad(format!("write only the name: `{}`", bare(&lower))));
    }
    let name = lower.strip_prefix("*.").unwrap_or(&lower);
    if name.contains('*') {
        return Err(bad("`*.` may only stand at the beginning, before whole labels".to_owned()));
    }
    if lower.len() > 253 || !name.split('.').all(is_label) {
        return Err(bad("labels of letters, digits, `-` and `_`, with dots between".to_owned()));
    }
    Ok(match lower.strip_prefix('*') {
        Some(suffix) => HostPattern::Suffix(suffix.into()),
        None => HostPattern::Exact(lower.into()),
    })
}

fn is_label(label: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    (1..=63).contains(&label.len()) && label.bytes().all(inner)
}

/// The host in something like `host:80/path`.
fn bare(text: &str) -> &str {
    text.split([':', '/']).next().unwrap_or(text)
}

/// A target's host: a name or an address, in lower case, without brackets.
pub(super) fn target_host(text: &str) -> Result<Arc<str>, Fault> {
    let lower = text.trim().trim_end_matches('.').to_ascii_lowercase();
    let bad = || Fault::new(format!("`{text}` is not a host"));
    let unbracketed = lower.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(&lower);
    if let Ok(address) = unbracketed.parse::<IpAddr>() {
        return Ok(address.to_string().into());
    }
    if let Some((scheme, rest)) = lower.split_once("://") {
        let port =
            rest.split('/').next().and_then(|authority| authority.rsplit_once(':')).map(|(_, port)| port);
        let port = port.filter(|port| port.parse::<u16>().is_ok());
        let port = port.map_or_else(String::new, |port| format!(", and {port} as the port"));
        let remedy =
            format!("write only the name: `{}`{port}; the scheme `{scheme}` is `backend_scheme`", bare(rest));
        return Err(bad().remedy(remedy));
    }
    if let Some(name) = text.trim().strip_prefix('$') {
        let name = name.trim_matches(['{', '}', '(', ')']);
        return Err(bad().remedy(format!("write `${{env:{name}}}` for a variable of the environment")));
    }
    if let Some((name, port)) = lower.rsplit_once(':')
        && !name.contains(':')
    {
        return Err(bad().remedy(format!("write `{name}`, and {port} as the port")));
    }
    if lower.is_empty() || lower.len() > 253 || !lower.split('.').all(is_label) {
        return Err(bad().remedy("write a name such as `api.example.com`, or an address"));
    }
    Ok(lower.into())
}

/// The name of a congestion control.
pub(super) fn congestion(notes: &mut Notes<'_>, at: &str, name: Option<&str>) -> Option<Congestion> {
    let name = name?;
    let read = Congestion::new(name);
    if read.is_none() {
        notes.add(at, format!("`{name}` can't be a congestion control")).remedy =
            Some("a name of /proc/sys/net/ipv4/tcp_available_congestion_control, such as `bbr`".into());
    }
    read
}

/// Bytes of the path of a Unix socket (unix(7)), its final NUL left out.
const MAX_SOCKET_PATH: usize = 107;

/// Where a target is: a host as [`target_host`] takes it, `unix:` and the absolute path of a Unix socket, or `srv:` and
/// the name of a service.
pub(super) fn target_place(text: &str) -> Result<Arc<str>, Fault> {
    if let Some(name) = service_name(text.trim()) {
        let host = target_host(name)?;
        if host.parse::<IpAddr>().is_ok() {
            let fault = Fault::new(format!("`{text}` names an address, which has no SRV records"));
            return Err(fault.remedy("write `srv:` and a name, such as `srv:_http._tcp.shop.example.com`"));
        }
        return Ok(format!("{SERVICE}{host}").into());
    }
    let Some(path) = socket_path(text.trim()) else { return target_host(text) };
    let bad = |why: &str| Err(Fault::new(format!("`{text}` {why}")).remedy("write `unix:/run/app.sock`"));
    if !path.starts_with('/') || path.ends_with('/') {
        return bad("is not the absolute path of a Unix socket");
    }
    if path.contains(":/") {
        return bad("has a path after the socket's; put it into `backend_path`");
    }
    if path.len() > MAX_SOCKET_PATH {
        return bad(&format!("has a path of more than {MAX_SOCKET_PATH} bytes"));
    }
    if path.contains(char::is_control) {
        return bad("has control characters");
    }
    Ok(format!("{UNIX}{path}").into())
}

/// The port of a target at this place; a Unix socket has none.
pub(super) fn target_port(place: &str, written: Option<u32>) -> Result<u16, Fault> {
    match (socket_path(place), written) {
        (Some(_), None) => Ok(0),
        (Some(_), Some(_)) => Err(Fault::new("a Unix socket has no port").remedy("remove it")),
        (None, None) if service_name(place).is_some() => Ok(0),
        (None, Some(_)) if service_name(place).is_some() => {
            Err(Fault::new("the ports of a service's servers are found by DNS").remedy("remove it"))
        }
        (None, Some(port)) => u16::try_from(port).map_err(|_| Fault::new("this is not a port")),
        (None, None) => Err(Fault::new("this is missing").remedy("write the target's port")),
    }
}

/// A prefix, a path with names, or a regex.
pub(super) fn listen_path(text: &str) -> Result<PathPattern, Fault> {
    if text.starts_with('/') && text.contains(['{', '}']) {
        return template(text);
    }
    if let Some(pattern) = text.strip_prefix('~') {
        return path_regex(pattern).map(PathPattern::Regex);
    }
    prefix(text)
}

fn prefix(text: &str) -> Result<PathPattern, Fault> {
    if text.is_empty() {
        return Err(
            Fault::new("this is empty").remedy("write `/` for every path, or leave it out and give `hosts`")
        );
    }
    if let Some(exact) = text.strip_prefix("= ") {
        return Err(Fault::new(format!("`{text}` doesn't begin with `/`"))
            .remedy(format!("write `matches: [{{path: {{exact: {exact}}}}}]` for one path")));
    }
    if !text.starts_with('/') {
        return Err(Fault::new(format!("`{text}` doesn't begin with `/`"))
            .remedy(format!("write `/{text}`, or `~{text}` if it is a regex")));
    }
    if let Some(prefix) = text.strip_suffix("/*").or_else(|| text.strip_suffix("/**")) {
        let prefix = if prefix.is_empty() { "/" } else { prefix };
        return Err(Fault::new("`*` means nothing in a path")
            .remedy(format!("write `{prefix}`, which takes all below")));
    }
    if text.split('/').any(|segment| matches!(segment, "*" | "**")) {
        return Err(Fault::new("`*` means nothing in a path")
            .remedy("write `{name}` for any one segment, such as `/users/{id}/posts`"));
    }
    if text.contains(['?', '#']) || text.contains(char::is_whitespace) || text.contains(char::is_control) {
        return Err(
            Fault::new(format!("`{text}` can't be a path")).remedy("a path has no query, fragment or spaces")
        );
    }
    let prefix = if text == "/" { text } else { text.strip_suffix('/').unwrap_or(text) };
    if prefix != "/" && prefix.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")) {
        return Err(Fault::new(format!("`{text}` has an empty, `.` or `..` segment"))
            .remedy("requests' paths have none when they are matched"));
    }
    if prefix.matches('/').count() > MAX_SEGMENTS {
        return Err(Fault::new(format!("this has more than {MAX_SEGMENTS} segments")));
    }
    Ok(PathPattern::Prefix(prefix.into()))
}

/// The path of a condition; a problem comes with the key it stands under.
pub(crate) fn path_match(written: &PathMatch) -> Result<PathPattern, (&'static str, Fault)> {
    let named = match written {
        PathMatch::Text(text) => return listen_path(text).map_err(|fault| ("", fault)),
        PathMatch::Named(named) => named,
    };
    let several = || Fault::new("this names more than one way to match").remedy("keep one of them");
    match (&named.exact, &named.prefix, &named.template, &named.regex) {
        (Some(text), None, None, None) => exact(text).map_err(|fault| ("exact", fault)),
        (None, Some(text), None, None) if text.starts_with('~') => Err((
            "prefix",
            Fault::new(format!("`{text}` doesn't begin with `/`")).remedy("write `regex` instead"),
        )),
        (None, Some(text), None, None) => prefix(text).map_err(|fault| ("prefix", fault)),
        (None, None, Some(text), None) => template(text).map_err(|fault| ("template", fault)),
        (None, None, None, Some(text)) => {
            let text = text.strip_prefix('~').unwrap_or(text);
            path_regex(text).map(PathPattern::Regex).map_err(|fault| ("regex", fault))
        }
        (None, None, None, None) => Err((
            "",
            Fault::new("this says nothing about the path").remedy("one of: exact, prefix, template, regex"),
        )),
        _ => Err(("", several())),
    }
}

/// One path, as requests have it when they are matched.
fn exact(text: &str) -> Result<PathPattern, Fault> {
    if text == "*" {
        return Ok(PathPattern::Exact(text.into()));
    }
    let without_slash = text.strip_suffix('/').filter(|cut| !cut.is_empty()).unwrap_or(text);
    if text.starts_with('~') {
        return Err(Fault::new(format!("`{text}` doesn't begin with `/`")).remedy("write `regex` instead"));
    }
    prefix(without_slash)?;
    Ok(PathPattern::Exact(text.into()))
}

fn template(text: &str) -> Result<PathPattern, Fault> {
    if text.contains(['?', '#']) || text.contains(char::is_whitespace) || text.contains(char::is_control) {
        return Err(
            Fault::new(format!("`{text}` can't be a path")).remedy("a path has no query, fragment or spaces")
        );
    }
    match PathTemplate::parse(text) {
        Ok(template) => Ok(PathPattern::Template(Arc::new(template))),
        Err(error) => Err(Fault::new(format!("`{text}`: {error}")).remedy("such as `/users/{id}/{rest...}`")),
    }
}

fn path_regex(pattern: &str) -> Result<Regex, Fault> {
    RegexBuilder::new(&whole(pattern)).size_limit(MAX_REGEX_BYTES).build().map_err(|error| {
        // nginx writes `~* regex`.
        let remedy = match pattern
            .strip_prefix('*')
            .map_or_else(|| pattern.strip_prefix(' '), |it| it.strip_prefix(' '))
        {
            Some(regex) => format!("write `~(?i).*{regex}`: it is the whole path that has to match"),
            None => "see docs.rs/regex for the syntax; a plain prefix has no `~`".to_owned(),
        };
        Fault::new(not_a_regex(pattern, &error)).remedy(remedy)
    })
}

/// A path put before the forwarded one: `None` when it adds nothing.
pub(super) fn base_path(text: &str) -> Result<Option<Arc<str>>, Fault> {
    let cut = text.trim_end_matches('/');
    if cut.is_empty() {
        return Ok(None);
    }
    if !cut.starts_with('/') {
        return Err(Fault::new(format!("`{text}` doesn't begin with `/`")).remedy(format!("write `/{text}`")));
    }
    if cut.contains(['?', '#'])
        || cut.contains(|c: char| c.is_whitespace() || c.is_control() || !c.is_ascii())
    {
        return Err(Fault::new(format!("`{text}` can't be a path"))
            .remedy("a path has no query, fragment or spaces; percent-encode what isn't ASCII"));
    }
    Ok(Some(Arc::from(cut)))
}

pub(super) fn methods(notes: &mut Notes<'_>, key: &str, written: &[String]) -> Vec<Method> {
    let mut methods = Vec::with_capacity(written.len());
    for (n, text) in written.iter().enumerate() {
        let at = format!("{key}[{n}]");
        match Method::from_bytes(text.to_ascii_uppercase().as_bytes()) {
            Ok(method) if methods.contains(&method) => {
                notes.add(&at, format!("{method} is listed twice")).remedy = Some("remove it".to_owned());
            }
            Ok(method) => methods.push(method),
            Err(_) => {
                notes.add(&at, format!("`{text}` is not a method")).remedy = Some("such as GET".to_owned());
            }
        }
    }
    methods
}

pub(super) fn address(text: &str) -> Result<IpAddr, Fault> {
    let cut = text.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(text);
    cut.parse().map_err(|_| {
        let remedy =
            if text == "localhost" { "write 127.0.0.1 or ::1" } else { "such as 127.0.0.1, 0.0.0.0 or ::" };
        Fault::new(format!("`{text}` is not an address")).remedy(remedy)
    })
}

/// A path of a file, relative ones from the document's folder.
pub(super) fn file_path(folder: &Path, text: &str) -> PathBuf {
    folder.join(text)
}

pub(super) fn seconds(written: Option<Seconds>, default: u64) -> Duration {
    written.unwrap_or(Seconds(default)).duration()
}

pub(super) fn millis(written: Option<Millis>, default: Duration) -> Duration {
    written.map_or(default, Millis::duration)
}

/// Bytes within the range that the schema has checked.
pub(super) fn small(written: Option<Bytes>, default: u32) -> u32 {
    written.map_or(default, |bytes| u32::try_from(bytes.0).unwrap_or(u32::MAX))
}

/// The nearest of `names`, as a question.
pub(super) fn did_you_mean<'n>(text: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    file::nearest(text, names).map(|name| format!("did you mean `{name}`?"))
}
