//! Log, time, buffers, streams, local responses.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};
use gateway_core::http::reply::final_status;
use wasmtime::{Error, Linker};

use super::super::host::{Context, Direction, Host, LocalReply, MAX_VALUE, ROOT};
use super::{
    BAD_ARGUMENT, Fail, Guest, HostResult, NOT_FOUND, UNIMPLEMENTED, fields, give, read, told, write_u32,
    write_u64,
};
use crate::message;

/// The shortest time between two ticks.
const MIN_TICK: Duration = Duration::from_millis(10);

pub(super) fn link(linker: &mut Linker<Host>) -> Result<(), Error> {
    linker.func_wrap("env", "proxy_log", |mut guest: Guest<'_>, level: u32, at: u32, size: u32| {
        told(log(&mut guest, level, at, size))
    })?;
    linker.func_wrap("env", "proxy_get_log_level", |mut guest: Guest<'_>, level: u32| {
        told(write_u32(&mut guest, level, current_level()))
    })?;
    linker.func_wrap("env", "proxy_get_current_time_nanoseconds", |mut guest: Guest<'_>, time: u32| {
        told(write_u64(&mut guest, time, now()))
    })?;
    linker.func_wrap("env", "proxy_set_tick_period_milliseconds", |mut guest: Guest<'_>, period: u32| {
        let period = Duration::from_millis(u64::from(period));
        guest.data_mut().tick = (!period.is_zero()).then(|| period.max(MIN_TICK));
        guest.data_mut().is_root_changed = true;
        0_u32
    })?;
    linker.func_wrap("env", "proxy_set_effective_context", |mut guest: Guest<'_>, id: u32| {
        let is_known = guest.data().contexts.contains_key(&id);
        if is_known {
            guest.data_mut().effective = id;
        }
        if is_known { 0 } else { BAD_ARGUMENT }
    })?;
    // A context ends when its exchange does: no module can keep one.
    linker.func_wrap("env", "proxy_done", || NOT_FOUND)?;
    buffers(linker)?;
    streams(linker)
}

/// Nanoseconds since 1970.
pub(in crate::wasm) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn current_level() -> u32 {
    let levels = [tracing::Level::TRACE, tracing::Level::DEBUG, tracing::Level::INFO, tracing::Level::WARN];
    let found = levels.into_iter().position(|level| level <= tracing::level_filters::LevelFilter::current());
    found.and_then(|place| u32::try_from(place).ok()).unwrap_or(4)
}

fn log(guest: &mut Guest<'_>, level: u32, at: u32, size: u32) -> HostResult {
    let size = size.min(u32::try_from(MAX_VALUE).unwrap_or(u32::MAX));
    let text = read(guest, at, size)?;
    say(guest.data(), level, &String::from_utf8_lossy(&text))
}

/// Writes a module's line to the program log.
pub(in crate::wasm) fn say(host: &Host, level: u32, text: &str) -> HostResult {
    let plugin_config = host.parts.owner.as_str();
    let text = text.trim_end();
    match level {
        0 => tracing::trace!(target: "wasm", plugin_config, "{text}"),
        1 => tracing::debug!(target: "wasm", plugin_config, "{text}"),
        2 => tracing::info!(target: "wasm", plugin_config, "{text}"),
        3 => tracing::warn!(target: "wasm", plugin_config, "{text}"),
        4 | 5 => tracing::error!(target: "wasm", plugin_config, "{text}"),
        _ => return Err(Fail::Status(BAD_ARGUMENT)),
    }
    Ok(())
}

fn buffers(linker: &mut Linker<Host>) -> Result<(), Error> {
    linker.func_wrap(
        "env",
        "proxy_get_buffer_bytes",
        |mut guest: Guest<'_>, id: u32, start: u32, max: u32, data: u32, size: u32| {
            told(get(&mut guest, id, start, max, data, size))
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_get_buffer_status",
        |mut guest: Guest<'_>, id: u32, size: u32, flags: u32| {
            let length = buffer(guest.data_mut(), id, <[u8]>::len);
            told(length.and_then(|length| {
                write_u32(&mut guest, size, u32::try_from(length).unwrap_or(u32::MAX))?;
                write_u32(&mut guest, flags, 0)
            }))
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_buffer_bytes",
        |mut guest: Guest<'_>, id: u32, start: u32, size: u32, at: u32, length: u32| {
            told(set(&mut guest, id, start, size, at, length))
        },
    )?;
    Ok(())
}

/// What a buffer or stream with this number is in a context: 0 and 1 are of exchanges, 2 and 3 of byte streams.
fn way_of(context: &Context, id: u32) -> Option<Direction> {
    match (id, context.is_stream) {
        (0, false) | (2, true) => Some(Direction::Request),
        (1, false) | (3, true) => Some(Direction::Response),
        _ => None,
    }
}

/// Does something with a buffer.
fn buffer<T>(host: &mut Host, id: u32, with: impl FnOnce(&[u8]) -> T) -> HostResult<T> {
    let parts = host.parts.clone();
    let bytes = match id {
        0..=3 => {
            let context = host.context().ok_or(Fail::Status(NOT_FOUND))?;
            let way = way_of(context, id).ok_or(Fail::Status(NOT_FOUND))?;
            context.side(way).body.as_deref()
        }
        4 => host.answer.as_ref().map(|answer| &answer.body[..]),
        5 => host.answer.as_ref().map(|answer| &answer.body[..]),
        6 => Some(&parts.rules.vm_settings[..]),
        7 => Some(&parts.rules.settings[..]),
        8 => None,
        _ => return Err(Fail::Status(BAD_ARGUMENT)),
    };
    bytes.map(with).ok_or(Fail::Status(NOT_FOUND))
}

fn get(guest: &mut Guest<'_>, id: u32, start: u32, max: u32, data: u32, size: u32) -> HostResult {
    let part = buffer(guest.data_mut(), id, |bytes| {
        let start = usize::try_from(start).unwrap_or(usize::MAX).min(bytes.len());
        let end = start.saturating_add(usize::try_from(max).unwrap_or(usize::MAX)).min(bytes.len());
        bytes.get(start..end).unwrap_or_default().to_vec()
    })?;
    give(guest, &part, data, size)
}

fn set(guest: &mut Guest<'_>, id: u32, start: u32, size: u32, at: u32, length: u32) -> HostResult {
    match id {
        0..=3 => {}
        4..=8 => return Err(Fail::Status(NOT_FOUND)),
        _ => return Err(Fail::Status(BAD_ARGUMENT)),
    }
    let new = read(guest, at, length)?;
    let max = guest.data().parts.rules.max_body;
    let context = guest.data_mut().context().ok_or(Fail::Status(NOT_FOUND))?;
    let way = way_of(context, id).ok_or(Fail::Status(NOT_FOUND))?;
    let side = context.side(way);
    let body = side.body.as_mut().ok_or(Fail::Status(NOT_FOUND))?;
    let start = usize::try_from(start).unwrap_or(usize::MAX).min(body.len());
    let end = start.saturating_add(usize::try_from(size).unwrap_or(usize::MAX)).min(body.len());
    if body.len() - (end - start) + new.len() > max.max(body.len()) {
        return Err(Fail::Status(BAD_ARGUMENT));
    }
    let mut changed = BytesMut::with_capacity(body.len() - (end - start) + new.len());
    changed.extend_from_slice(body.get(..start).unwrap_or_default());
    changed.extend_from_slice(&new);
    changed.extend_from_slice(body.get(end..).unwrap_or_default());
    *body = changed;
    side.is_body_changed = true;
    Ok(())
}

fn streams(linker: &mut Linker<Host>) -> Result<(), Error> {
    linker.func_wrap("env", "proxy_continue_stream", |mut guest: Guest<'_>, stream: u32| {
        told(end_pause(guest.data_mut(), stream, false))
    })?;
    linker.func_wrap("env", "proxy_close_stream", |mut guest: Guest<'_>, stream: u32| {
        told(end_pause(guest.data_mut(), stream, true))
    })?;
    // The names of ABI 0.1.
    linker.func_wrap("env", "proxy_continue_request", |mut guest: Guest<'_>| {
        told(end_pause(guest.data_mut(), 0, false))
    })?;
    linker.func_wrap("env", "proxy_continue_response", |mut guest: Guest<'_>| {
        told(end_pause(guest.data_mut(), 1, false))
    })?;
    linker.func_wrap(
        "env",
        "proxy_send_local_response",
        |mut guest: Guest<'_>,
         status: u32,
         details: u32,
         details_size: u32,
         body: u32,
         body_size: u32,
         headers: u32,
         headers_size: u32,
         grpc_status: i32| {
            let parts = [(details, details_size), (body, body_size), (headers, headers_size)];
            told(local_response(&mut guest, status, u8::try_from(grpc_status).ok(), parts))
        },
    )?;
    Ok(())
}

fn end_pause(host: &mut Host, stream: u32, closes: bool) -> HostResult {
    if host.effective == ROOT {
        return Err(Fail::Status(BAD_ARGUMENT));
    }
    let context = host.context().ok_or(Fail::Status(BAD_ARGUMENT))?;
    let way = way_of(context, stream).ok_or(Fail::Status(BAD_ARGUMENT))?;
    let side = context.side(way);
    if closes {
        side.is_closed = true;
    } else {
        side.is_resumed = true;
    }
    context.wake();
    Ok(())
}

fn local_response(
    guest: &mut Guest<'_>,
    status: u32,
    grpc_status: Option<u8>,
    parts: [(u32, u32); 3],
) -> HostResult {
    let [_details, (body, body_size), (headers, headers_size)] = parts;
    let body = Bytes::from(read(guest, body, body_size)?);
    let pairs = fields::parse(&read(guest, headers, headers_size)?)?;
    let status = final_status(status).ok_or(Fail::Status(BAD_ARGUMENT))?;
    let mut headers = http::HeaderMap::new();
    for (name, value) in pairs {
        // What frames the message is the gateway's own, and what can't be written would be no header.
        if let Err(why) = message::write(&mut headers, &name, &value, true) {
            tracing::debug!(name = %String::from_utf8_lossy(&name), %why, "a header of a module's response is left out");
        }
    }
    let host = guest.data_mut();
    if host.effective == ROOT {
        return Err(Fail::Status(BAD_ARGUMENT));
    }
    let context = host.context().ok_or(Fail::Status(BAD_ARGUMENT))?;
    if context.is_stream {
        return Err(Fail::Status(UNIMPLEMENTED));
    }
    context.local = Some(LocalReply { status, grpc_status, headers, body });
    context.wake();
    Ok(())
}
