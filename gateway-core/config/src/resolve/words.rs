//! Single values: ids, targets, methods, addresses, files, times.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::Notes;
use crate::file::AdminRole;
use crate::model::{Congestion, Id, SERVICE, UNIX, service_name, socket_path};
use crate::nearest::nearest;
use crate::pattern::parse::{bare, behind_user, is_label};
use crate::problem::{ValueProblem, without_user};
use crate::units::{Bytes, Millis, Seconds};

/// An object's id, which has to be there.
pub(super) fn id(notes: &mut Notes<'_>, written: Option<&str>) -> Option<Id> {
    let Some(text) = written else {
        notes.add("", "`id` is missing").remedy =
            Some("give it a name of its own, such as `id: orders`".to_owned());
        return None;
    };
    notes.value("id", valid_id(text))
}

pub(super) fn valid_id(text: &str) -> Result<Id, ValueProblem> {
    if let Some(id) = Id::new(text) {
        return Ok(id);
    }
    if text.contains(['“', '”', '‘', '’']) {
        return Err(ValueProblem::new(format!("`{text}` can't be an id"))
            .remedy("write plain quotation marks, or none"));
    }
    Err(ValueProblem::new(format!("`{text}` can't be an id"))
        .remedy("1 to 254 letters, digits, `.`, `_` and `-`, beginning with a letter or digit"))
}

/// A name for people: `None` when absent or empty.
pub(super) fn label(written: Option<&String>) -> Option<Arc<str>> {
    written.filter(|text| !text.is_empty()).map(|text| Arc::from(text.as_str()))
}

/// A target's host: a name or an address, in lower case, without brackets.
pub(super) fn target_host(text: &str) -> Result<Arc<str>, ValueProblem> {
    let lower = text.trim().trim_end_matches('.').to_ascii_lowercase();
    let bad = || ValueProblem::new(format!("`{}` is not a host", without_user(text)));
    let unbracketed = lower.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(&lower);
    if let Ok(address) = unbracketed.parse::<IpAddr>() {
        return Ok(address.to_string().into());
    }
    if let Some((scheme, rest)) = lower.split_once("://") {
        let rest = behind_user(rest);
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
    if let Some((name, port)) = behind_user(&lower).rsplit_once(':')
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
pub(super) fn target_place(text: &str) -> Result<Arc<str>, ValueProblem> {
    if let Some(name) = service_name(text.trim()) {
        let host = target_host(name)?;
        if host.parse::<IpAddr>().is_ok() {
            let fault = ValueProblem::new(format!("`{text}` names an address, which has no SRV records"));
            return Err(fault.remedy("write `srv:` and a name, such as `srv:_http._tcp.shop.example.com`"));
        }
        return Ok(format!("{SERVICE}{host}").into());
    }
    let Some(path) = socket_path(text.trim()) else { return target_host(text) };
    let bad =
        |why: &str| Err(ValueProblem::new(format!("`{text}` {why}")).remedy("write `unix:/run/app.sock`"));
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
pub(super) fn target_port(place: &str, written: Option<u32>) -> Result<u16, ValueProblem> {
    match (socket_path(place), written) {
        (Some(_), None) => Ok(0),
        (Some(_), Some(_)) => Err(ValueProblem::new("a Unix socket has no port").remedy("remove it")),
        (None, None) if service_name(place).is_some() => Ok(0),
        (None, Some(_)) if service_name(place).is_some() => {
            Err(ValueProblem::new("the ports of a service's servers are found by DNS").remedy("remove it"))
        }
        (None, Some(port)) => u16::try_from(port).map_err(|_| ValueProblem::new("this is not a port")),
        (None, None) => Err(ValueProblem::new("this is missing").remedy("write the target's port")),
    }
}

/// A path put before the forwarded one: `None` when it adds nothing.
pub(super) fn base_path(text: &str) -> Result<Option<Arc<str>>, ValueProblem> {
    let cut = text.trim_end_matches('/');
    if cut.is_empty() {
        return Ok(None);
    }
    if !cut.starts_with('/') {
        return Err(
            ValueProblem::new(format!("`{text}` doesn't begin with `/`")).remedy(format!("write `/{text}`"))
        );
    }
    if cut.contains(['?', '#'])
        || cut.contains(|c: char| c.is_whitespace() || c.is_control() || !c.is_ascii())
    {
        return Err(ValueProblem::new(format!("`{text}` can't be a path"))
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

pub(super) fn address(text: &str) -> Result<IpAddr, ValueProblem> {
    let cut = text.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(text);
    cut.parse().map_err(|_| {
        let remedy =
            if text == "localhost" { "write 127.0.0.1 or ::1" } else { "such as 127.0.0.1, 0.0.0.0 or ::" };
        ValueProblem::new(format!("`{text}` is not an address")).remedy(remedy)
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
    nearest(text, names).map(|name| format!("did you mean `{name}`?"))
}

/// The names of roles.
pub(super) fn roles(written: &[AdminRole]) -> Box<[&'static str]> {
    let name = |role: &AdminRole| match role {
        AdminRole::Read => "read",
        AdminRole::Write => "write",
        AdminRole::Admin => "admin",
    };
    written.iter().map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_target_shows_no_password() {
        for text in
            ["http://u:SECRET@h", "http://u:80/SECRET@h:81/", "u:SECRET@h", "u:SECRET@h:80", "SECRET@h"]
        {
            let refused = target_host(text).expect_err("it is no host");
            let said = format!("{refused:?}").to_ascii_lowercase();
            assert!(said.contains("redacted@") && !said.contains("secret"), "{text}: {said}");
        }
    }
}
