//! Calls to other servers, over HTTP and gRPC.

use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderValue, Method, Request, Uri};
use wasmtime::{Error, Linker};

use super::super::host::{Call, Host, ROOT};
use super::fields::{Pair, parse};
use super::{
    BAD_ARGUMENT, Fail, Guest, HostResult, INTERNAL_FAILURE, NOT_FOUND, PARSE_FAILURE, give, read, told,
    write_u32,
};
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
        "proxy_grpc_call",
        |mut guest: Guest<'_>,
         name: u32,
         name_size: u32,
         service: u32,
         service_size: u32,
         method: u32,
         method_size: u32,
         metadata: u32,
         metadata_size: u32,
         message: u32,
         message_size: u32,
         timeout: u32,
         id: u32| {
            let place = [(name, name_size), (service, service_size), (method, method_size)];
            let content = [(metadata, metadata_size), (message, message_size)];
            told(grpc_call(&mut guest, place, content, timeout, id))
        },
    )?;
    refused(linker)?;
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

/// gRPC streams, which can't be opened, and what belongs to them.
fn refused(linker: &mut Linker<Host>) -> Result<(), Error> {
    linker.func_wrap(
        "env",
        "proxy_grpc_stream",
        |_: u32, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32| INTERNAL_FAILURE,
    )?;
    linker.func_wrap("env", "proxy_grpc_send", |_: u32, _: u32, _: u32, _: u32| NOT_FOUND)?;
    for name in ["proxy_grpc_cancel", "proxy_grpc_close"] {
        linker.func_wrap("env", name, |mut guest: Guest<'_>, id: u32| {
            // A call that has begun ends by itself; its answer is not told.
            let calls = &mut guest.data_mut().calls;
            let before = calls.len();
            calls.retain(|call| call.id != id);
            if calls.len() < before { 0 } else { NOT_FOUND }
        })?;
    }
    Ok(())
}

fn server(host: &Host, name: &[u8], unknown: u32) -> HostResult<usize> {
    let found = host.parts.rules.servers.iter().position(|(known, ..)| known.as_bytes() == name);
    if found.is_none() {
        let name = String::from_utf8_lossy(name);
        tracing::warn!(
            plugin_config = host.parts.owner,
            "the module calls `{name}`, which is not one of `calls`"
        );
    }
    found.ok_or(Fail::Status(unknown))
}

/// Keeps a call to be made; the guest gets its number.
fn keep(
    guest: &mut Guest<'_>,
    server: usize,
    request: Request<Bytes>,
    timeout: u32,
    is_grpc: bool,
    id: u32,
) -> HostResult {
    let host = guest.data_mut();
    let owner = host.effective;
    let under_way = host.contexts.get(&owner).map_or(0, |context| context.calls);
    let waiting = host.calls.iter().filter(|call| call.owner == owner).count();
    if under_way + waiting >= host.parts.rules.max_calls {
        return Err(Fail::Status(INTERNAL_FAILURE));
    }
    host.next_call = host.next_call.wrapping_add(1).max(1);
    let number = host.next_call;
    let timeout = Duration::from_millis(u64::from(timeout.max(1)));
    host.calls.push(Call { id: number, owner, server, request, timeout, is_grpc });
    host.is_root_changed |= owner == ROOT;
    write_u32(guest, id, number)
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

fn grpc_call(
    guest: &mut Guest<'_>,
    place: [(u32, u32); 3],
    [metadata, message]: [(u32, u32); 2],
    timeout: u32,
    id: u32,
) -> HostResult {
    let [name, service, method] = place;
    let name = read(guest, name.0, name.1)?;
    let service = read(guest, service.0, service.1)?;
    let method = read(guest, method.0, method.1)?;
    let metadata = parse(&read(guest, metadata.0, metadata.1)?)?;
    let message = read(guest, message.0, message.1)?;
    let server = server(guest.data(), &name, PARSE_FAILURE)?;
    let mut framed = BytesMut::with_capacity(message.len() + 5);
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).map_err(|_| Fail::Status(BAD_ARGUMENT))?);
    framed.extend_from_slice(&message);
    let path = format!("/{}/{}", String::from_utf8_lossy(&service), String::from_utf8_lossy(&method));
    let mut request = Request::new(framed.freeze());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().map_err(|_| Fail::Status(BAD_ARGUMENT))?;
    for (name, value) in metadata {
        message::write(request.headers_mut(), &name, &value, true).map_err(|_| Fail::Status(BAD_ARGUMENT))?;
    }
    let headers = request.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(http::header::TE, HeaderValue::from_static("trailers"));
    keep(guest, server, request, timeout, true, id)
}
