//! Calls to other servers over HTTP.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::AbortHandle;
use http::{HeaderValue, Method, Request, Uri};
use wasmtime::{Error, Linker};

use super::super::host::{Call, Host, ROOT, UnderWay};
use super::fields::{Pair, parse};
use super::{BAD_ARGUMENT, Fail, Guest, HostResult, INTERNAL_FAILURE, give, read, told, write_u32};
use crate::message;

pub(super) fn link(linker: &mut Linker<Host>) -> Result<(), Error> {
    linker.func_wrap(
        "env",
        "proxy_http_call",
        |mut guest: Guest<'_>,
         name: u32,
         name_size: u32,
         headers: u32,
         headers_size: u32,
         body: u32,
         body_size: u32,
         _trailers: u32,
         trailers_size: u32,
         timeout: u32,
         id: u32| {
            let parts = [(name, name_size), (headers, headers_size), (body, body_size)];
            // Pairs of trailers need more than the number of them.
            told(if trailers_size > 4 {
                Err(Fail::Status(BAD_ARGUMENT))
            } else {
                http_call(&mut guest, parts, timeout, id)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_get_status",
        |mut guest: Guest<'_>, code: u32, data: u32, size: u32| {
            let answer = guest.data().answer.as_ref();
            let http = answer.and_then(|answer| answer.status).map(|status| u32::from(status.as_u16()));
            let status = answer.map_or(0, |answer| http.unwrap_or(answer.grpc_status));
            let text = answer.map(|answer| answer.grpc_message.clone()).unwrap_or_default();
            told(
                write_u32(&mut guest, code, status)
                    .and_then(|()| give(&mut guest, text.as_bytes(), data, size)),
            )
        },
    )?;
    Ok(())
}

/// The server of this name; the guest is told `unknown` where it may call none of that name.
pub(super) fn server(host: &Host, name: &[u8], unknown: u32) -> HostResult<usize> {
    let found = host.parts.rules.servers.iter().position(|callee| callee.name.as_bytes() == name);
    if found.is_none() {
        let name = String::from_utf8_lossy(name);
        tracing::warn!(
            plugin_config = host.parts.owner,
            "the module calls `{name}`, which is not one of `calls`"
        );
    }
    found.ok_or(Fail::Status(unknown))
}

/// The number of one more call or stream, which the guest gets.
///
/// # Errors
/// When it has as many under way as it may.
pub(super) fn one_more(guest: &mut Guest<'_>, id: u32) -> HostResult<u32> {
    let host = guest.data_mut();
    let most = host.parts.rules.max_calls;
    if host.context().is_none_or(|context| context.calls.len() + context.streams.len() >= most) {
        return Err(Fail::Status(INTERNAL_FAILURE));
    }
    let number = host.number();
    write_u32(guest, id, number)?;
    Ok(number)
}

/// Keeps a call to be made.
pub(super) fn keep(
    guest: &mut Guest<'_>,
    server: usize,
    request: Request<Bytes>,
    timeout: u32,
    is_grpc: bool,
    id: u32,
) -> HostResult {
    let id = one_more(guest, id)?;
    let host = guest.data_mut();
    let owner = host.effective;
    let timeout = Duration::from_millis(u64::from(timeout.max(1)));
    let (cancel, cancelled) = AbortHandle::new_pair();
    let context = host.context().ok_or(Fail::Status(INTERNAL_FAILURE))?;
    context.calls.push(UnderWay { id, is_grpc, cancel });
    host.calls.push(Call { id, owner, server, request, timeout, is_grpc, cancelled });
    host.is_root_changed |= owner == ROOT;
    Ok(())
}

fn http_call(guest: &mut Guest<'_>, parts: [(u32, u32); 3], timeout: u32, id: u32) -> HostResult {
    let [name, headers, body] = parts;
    let name = read(guest, name.0, name.1)?;
    let pairs = parse(&read(guest, headers.0, headers.1)?)?;
    let body = Bytes::from(read(guest, body.0, body.1)?);
    let server = server(guest.data(), &name, BAD_ARGUMENT)?;
    keep(guest, server, request(pairs, body)?, timeout, false, id)
}

fn request(pairs: Vec<Pair>, body: Bytes) -> HostResult<Request<Bytes>> {
    let bad = || Fail::Status(BAD_ARGUMENT);
    let mut request = Request::new(body);
    let (mut method, mut path, mut authority) = (None, None, None);
    for (name, value) in pairs {
        match name.as_slice() {
            b":method" => method = Method::from_bytes(&value).ok(),
            b":path" => path = Uri::try_from(value).ok(),
            b":authority" | b"host" => authority = HeaderValue::from_bytes(&value).ok(),
            name if name.first() == Some(&b':') => {}
            name => match message::write(request.headers_mut(), name, &value, true) {
                Ok(()) | Err(message::FieldError::Framing) => {}
                Err(_) => return Err(bad()),
            },
        }
    }
    *request.method_mut() = method.ok_or_else(bad)?;
    *request.uri_mut() = path.filter(|path| path.path().starts_with('/')).ok_or_else(bad)?;
    // Which server is asked is the configuration's to say; the name goes along for it to choose by.
    request.headers_mut().insert(http::header::HOST, authority.ok_or_else(bad)?);
    Ok(request)
}
