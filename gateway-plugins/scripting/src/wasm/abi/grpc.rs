//! gRPC: calls of one message, and streams.

use bytes::{Bytes, BytesMut};
use gateway_core::http::body::{GrpcMessage, GrpcPrefix};
use http::{HeaderValue, Method, Request};
use wasmtime::{Error, Linker};

use super::super::grpc::{OpenStream, SendError};
use super::super::host::Host;
use super::calls::{keep, one_more, server};
use super::fields::parse;
use super::{BAD_ARGUMENT, Fail, Guest, HostResult, INTERNAL_FAILURE, NOT_FOUND, PARSE_FAILURE, read, told};
use crate::message;

pub(super) fn link(linker: &mut Linker<Host>) -> Result<(), Error> {
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
            told(call(&mut guest, place, content, timeout, id))
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_grpc_stream",
        |mut guest: Guest<'_>,
         name: u32,
         name_size: u32,
         service: u32,
         service_size: u32,
         method: u32,
         method_size: u32,
         metadata: u32,
         metadata_size: u32,
         id: u32| {
            let place = [(name, name_size), (service, service_size), (method, method_size)];
            told(open(&mut guest, place, (metadata, metadata_size), id))
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_grpc_send",
        |mut guest: Guest<'_>, id: u32, at: u32, size: u32, end: u32| {
            told(send(&mut guest, id, at, size, end != 0))
        },
    )?;
    linker.func_wrap("env", "proxy_grpc_cancel", |mut guest: Guest<'_>, id: u32| {
        told(cancel(guest.data_mut(), id))
    })?;
    linker.func_wrap("env", "proxy_grpc_close", |mut guest: Guest<'_>, id: u32| {
        let host = guest.data_mut();
        told(match host.streams.get(&id).filter(|stream| stream.owner == host.effective) {
            Some(stream) => {
                // The server's direction goes on until it ends it.
                stream.outbox.end();
                Ok(())
            }
            None => cancel(host, id),
        })
    })?;
    Ok(())
}

/// What is asked of which server.
fn request(
    guest: &mut Guest<'_>,
    [name, service, method]: [(u32, u32); 3],
    metadata: (u32, u32),
) -> HostResult<(usize, Request<()>)> {
    let bad = || Fail::Status(BAD_ARGUMENT);
    let name = read(guest, name.0, name.1)?;
    let service = read(guest, service.0, service.1)?;
    let method = read(guest, method.0, method.1)?;
    let metadata = parse(&read(guest, metadata.0, metadata.1)?)?;
    let server = server(guest.data(), &name, PARSE_FAILURE)?;
    let path = format!("/{}/{}", String::from_utf8_lossy(&service), String::from_utf8_lossy(&method));
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = path.parse().map_err(|_| bad())?;
    for (name, value) in metadata {
        message::write(request.headers_mut(), &name, &value, true).map_err(|_| bad())?;
    }
    let headers = request.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(http::header::TE, HeaderValue::from_static("trailers"));
    Ok((server, request))
}

fn call(
    guest: &mut Guest<'_>,
    place: [(u32, u32); 3],
    [metadata, message]: [(u32, u32); 2],
    timeout: u32,
    id: u32,
) -> HostResult {
    let (server, mut request) = request(guest, place, metadata)?;
    let payload = Bytes::from(read(guest, message.0, message.1)?);
    let mut framed = BytesMut::with_capacity(GrpcPrefix::BYTES + payload.len());
    GrpcMessage { compressed: false, payload }.write(&mut framed);
    let longest = guest.data().parts.rules.servers.get(server).map(|callee| callee.timeout.as_millis());
    let told = u128::from(timeout.max(1)).min(longest.unwrap_or(u128::MAX));
    if let Ok(deadline) = HeaderValue::from_str(&format!("{}m", told.min(99_999_999))) {
        request.headers_mut().insert("grpc-timeout", deadline);
    }
    keep(guest, server, request.map(|()| framed.freeze()), timeout, true, id)
}

fn open(guest: &mut Guest<'_>, place: [(u32, u32); 3], metadata: (u32, u32), id: u32) -> HostResult {
    let (server, request) = request(guest, place, metadata)?;
    let id = one_more(guest, id)?;
    let host = guest.data_mut();
    let parts = host.parts.clone();
    let callee = parts.rules.servers.get(server).ok_or(Fail::Status(INTERNAL_FAILURE))?;
    host.streams.insert(id, OpenStream::new(host.effective, callee, request, parts.rules.max_body));
    host.opening.push(id);
    if let Some(context) = host.context() {
        context.streams.push(id);
    }
    Ok(())
}

fn send(guest: &mut Guest<'_>, id: u32, at: u32, size: u32, is_end: bool) -> HostResult {
    let host = guest.data_mut();
    let owner = host.effective;
    if is_call(host, id) {
        return Err(Fail::Status(BAD_ARGUMENT));
    }
    let stream = host.streams.get(&id).filter(|stream| stream.owner == owner);
    let outbox = stream.ok_or(Fail::Status(NOT_FOUND))?.outbox.clone();
    let message = read(guest, at, size)?;
    outbox.send(&message, is_end).map_err(|error| {
        Fail::Status(match error {
            SendError::Ended => BAD_ARGUMENT,
            SendError::Full => INTERNAL_FAILURE,
        })
    })
}

fn is_call(host: &mut Host, id: u32) -> bool {
    host.context().is_some_and(|context| context.calls.iter().any(|call| call.id == id && call.is_grpc))
}

/// Ends a call or stream of the context at once; the guest does not hear of it any more.
fn cancel(host: &mut Host, id: u32) -> HostResult {
    let owner = host.effective;
    let calls = host.context().map(|context| &mut context.calls);
    let place = calls.as_ref().and_then(|calls| calls.iter().position(|call| call.id == id && call.is_grpc));
    if let (Some(calls), Some(place)) = (calls, place) {
        calls.swap_remove(place).cancel.abort();
        host.calls.retain(|call| call.id != id);
        return Ok(());
    }
    if host.streams.get(&id).is_none_or(|stream| stream.owner != owner) {
        return Err(Fail::Status(NOT_FOUND));
    }
    host.end_stream(id);
    Ok(())
}
