//! Properties: what a module can ask about the exchange, by the names that Envoy gives them.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::HeaderMap;
use wasmtime::{Error, Linker};

use super::super::host::{Context, Facts, Host, MAX_PROPERTIES, MAX_VALUE};
use super::{BAD_ARGUMENT, Fail, Guest, HostResult, NOT_FOUND, give, read, told};

pub(super) fn link(linker: &mut Linker<Host>) -> Result<(), Error> {
    linker.func_wrap(
        "env",
        "proxy_get_property",
        |mut guest: Guest<'_>, path: u32, path_size: u32, data: u32, size: u32| {
            let value = read(&mut guest, path, path_size)
                .and_then(|path| property(guest.data_mut(), &path).ok_or(Fail::Status(NOT_FOUND)));
            told(value.and_then(|value| give(&mut guest, &value, data, size)))
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_property",
        |mut guest: Guest<'_>, path: u32, path_size: u32, at: u32, size: u32| {
            let path = read(&mut guest, path, path_size);
            let pair = path.and_then(|path| Ok((path, read(&mut guest, at, size)?)));
            told(pair.and_then(|(path, value)| set(guest.data_mut(), path, value)))
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_call_foreign_function",
        |_: u32, _: u32, _: u32, _: u32, _: u32, _: u32| NOT_FOUND,
    )?;
    Ok(())
}

fn set(host: &mut Host, path: Vec<u8>, value: Vec<u8>) -> HostResult {
    let context = host.context().ok_or(Fail::Status(NOT_FOUND))?;
    let is_new = !context.properties.contains_key(&path[..]);
    if (is_new && context.properties.len() >= MAX_PROPERTIES) || path.len() + value.len() > MAX_VALUE {
        return Err(Fail::Status(BAD_ARGUMENT));
    }
    context.properties.insert(path.into(), value.into());
    Ok(())
}

/// The value at a path, whose parts have zeros between them.
fn property(host: &mut Host, path: &[u8]) -> Option<Bytes> {
    let parts = host.parts.clone();
    let own = host.context().and_then(|context| context.properties.get(path).cloned());
    if own.is_some() {
        return own;
    }
    let path = path.strip_suffix(b"\0").unwrap_or(path);
    let names: Vec<&str> =
        path.split(|byte| *byte == 0).map(std::str::from_utf8).collect::<Result<_, _>>().ok()?;
    match names.as_slice() {
        ["plugin_name"] | ["plugin_vm_id"] => return Some(text(&parts.owner)),
        ["plugin_root_id"] => return Some(text(&parts.rules.root_id)),
        ["node", "id"] => return Some(text("ferrum-edge")),
        _ => {}
    }
    let context = host.context()?;
    match names.as_slice() {
        ["request" | "response", ..] if context.is_stream => None,
        ["request", rest @ ..] => request(context, rest),
        ["response", rest @ ..] => response(context, rest),
        ["route_name"] | ["xds", "route_name"] | ["cluster_name"] => {
            Some(text(context.facts.as_ref()?.proxy.as_str()))
        }
        [group, name] => context.facts.as_ref().and_then(|facts| connection(facts, group, name)),
        _ => None,
    }
}

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn number(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_le_bytes())
}

fn field(headers: &HeaderMap, name: &str) -> Option<Bytes> {
    headers.get(name).map(|value| Bytes::copy_from_slice(value.as_bytes()))
}

fn request(context: &Context, names: &[&str]) -> Option<Bytes> {
    let (line, headers) = (&context.request.line, &context.request.headers);
    let facts = context.facts.as_ref()?;
    let (path, query) = line.path.split_once('?').unwrap_or((&line.path, ""));
    Some(match names {
        ["path"] => text(&line.path),
        ["url_path"] => text(path),
        ["query"] => text(query),
        ["host"] => text(&line.authority),
        ["scheme"] => text(line.scheme),
        ["method"] => text(line.method.as_str()),
        ["protocol"] => text(&format!("{:?}", facts.version)),
        ["headers", name] => return field(headers, name),
        ["referer"] => return field(headers, "referer"),
        ["useragent"] => return field(headers, "user-agent"),
        ["id"] => Bytes::copy_from_slice(facts.request_id.as_ref()?.as_bytes()),
        ["time"] => number(nanoseconds(facts.began.duration_since(UNIX_EPOCH).unwrap_or_default())),
        ["duration"] => number(nanoseconds(facts.began.elapsed().unwrap_or_default())),
        _ => return None,
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn response(context: &Context, names: &[&str]) -> Option<Bytes> {
    let side = &context.response;
    match names {
        ["code"] if side.is_there => Some(number(u64::from(side.line.status.as_u16()))),
        ["headers", name] => field(&side.headers, name),
        _ => None,
    }
}

fn connection(facts: &Facts, group: &str, name: &str) -> Option<Bytes> {
    let client = &facts.client;
    let tls = client.tls.as_ref();
    Some(match (group, name) {
        ("source", "address") => {
            text(&std::net::SocketAddr::from((facts.client_address, client.peer.port())).to_string())
        }
        ("source", "port") => number(u64::from(client.peer.port())),
        ("destination", "address") => text(&client.local.to_string()),
        ("destination", "port") => number(u64::from(client.local.port())),
        ("upstream", "address") => text(facts.target.as_deref()?),
        ("connection", "mtls") => {
            Bytes::copy_from_slice(&[u8::from(tls.is_some_and(|tls| tls.certificate.is_some()))])
        }
        ("connection", "requested_server_name") => text(facts.server_name.as_deref()?),
        ("connection", "tls_version") => text(tls?.version),
        ("connection", "subject_peer_certificate") => text(&client.certificate_names()?.subject),
        ("connection", "dns_san_peer_certificate" | "uri_san_peer_certificate") => {
            text(client.certificate_names()?.alternative.first()?)
        }
        // Who the gateway has recognised the caller as.
        ("ferrum", "caller") => text(facts.caller.as_deref()?),
        _ => return None,
    })
}
