//! What modules of the small interface call. Texts are given into a buffer of the module: the result is how many bytes were
//! written, no more than there is room for, and -1 where there is no such text. A place outside of its memory ends the module.

use gateway_core::http::reply::final_status;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use wasmtime::{Caller, Error, Linker, Module};

use super::{Guest, Phase};
use crate::message::{self, FieldError};

type Calling<'a> = Caller<'a, Guest>;

/// Bytes of a line for the log.
const MAX_LINE: usize = 8 << 10;
/// Bytes of a name or value that a module hands over.
const MAX_FIELD: usize = 64 << 10;

/// Gives a module what it imports, under the namespaces that it names.
///
/// # Errors
/// A function that there is not.
pub(super) fn link(linker: &mut Linker<Guest>, module: &Module) -> Result<(), Error> {
    let mut namespaces: Vec<&str> = module.imports().map(|import| import.module()).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    for space in namespaces {
        texts(linker, space)?;
        fields(linker, space)?;
        responses(linker, space)?;
    }
    Ok(())
}

/// What the module reads.
fn texts(linker: &mut Linker<Guest>, space: &str) -> Result<(), Error> {
    macro_rules! give {
        ($name:literal, |$guest:ident| $text:expr) => {
            linker.func_wrap(space, $name, |mut calling: Calling<'_>, at: u32, room: u32| {
                let $guest = calling.data();
                let text: Vec<u8> = $text;
                give(&mut calling, Some(&text), at, room)
            })?;
        };
    }
    give!("get_method", |guest| guest.method.clone().into_bytes());
    give!("get_path", |guest| guest.path.clone().into_bytes());
    give!("get_query", |guest| guest.query.clone().into_bytes());
    give!("get_uri", |guest| match guest.query.as_str() {
        "" => guest.path.clone().into_bytes(),
        query => format!("{}?{query}", guest.path).into_bytes(),
    });
    give!("get_client_ip", |guest| guest.client.clone().into_bytes());
    give!("get_request_id", |guest| guest.request_id.clone());
    give!("get_plugin_config", |guest| guest.rules.settings.to_vec());
    // One name a line.
    give!("get_header_names", |guest| {
        let names: Vec<&str> = guest.fields.keys().map(|name| name.as_str()).collect();
        names.join("\n").into_bytes()
    });
    linker.func_wrap(space, "get_header_count", |calling: Calling<'_>| {
        i32::try_from(calling.data().fields.keys_len()).unwrap_or(i32::MAX)
    })?;
    for name in ["get_header", "get_response_header"] {
        linker.func_wrap(
            space,
            name,
            |mut calling: Calling<'_>, name: u32, length: u32, at: u32, room: u32| {
                let name = read(&mut calling, name, length, MAX_FIELD)?;
                let name = http::HeaderName::from_bytes(&name).ok();
                let value =
                    name.and_then(|name| calling.data().fields.get(name)).map(|it| it.as_bytes().to_vec());
                give(&mut calling, value.as_deref(), at, room)
            },
        )?;
    }
    linker.func_wrap(space, "log", |mut calling: Calling<'_>, level: u32, at: u32, length: u32| {
        let text = read(&mut calling, at, length.min(MAX_LINE as u32), MAX_LINE)?;
        let (text, plugin_config) = (String::from_utf8_lossy(&text), &*calling.data().owner);
        match level {
            0 => tracing::trace!(target: "wasm", plugin_config, "{text}"),
            1 => tracing::debug!(target: "wasm", plugin_config, "{text}"),
            2 => tracing::info!(target: "wasm", plugin_config, "{text}"),
            3 => tracing::warn!(target: "wasm", plugin_config, "{text}"),
            _ => tracing::error!(target: "wasm", plugin_config, "{text}"),
        }
        Ok::<(), Error>(())
    })?;
    Ok(())
}

/// What it changes of the message that there is.
fn fields(linker: &mut Linker<Guest>, space: &str) -> Result<(), Error> {
    linker.func_wrap(
        space,
        "set_request_header",
        |mut calling: Calling<'_>, name: u32, length: u32, value: u32, size: u32| {
            let name = read(&mut calling, name, length, MAX_FIELD)?;
            let value = read(&mut calling, value, size, MAX_FIELD)?;
            only_in(&calling, Phase::Request, "set_request_header")?;
            let guest = calling.data_mut();
            guest.is_changed = true;
            taken(message::write(&mut guest.fields, &name, &value, false))
        },
    )?;
    for (name, phase) in
        [("remove_request_header", Phase::Request), ("remove_response_header", Phase::Response)]
    {
        linker.func_wrap(space, name, move |mut calling: Calling<'_>, at: u32, length: u32| {
            let field = read(&mut calling, at, length, MAX_FIELD)?;
            only_in(&calling, phase, name)?;
            let guest = calling.data_mut();
            guest.is_changed = true;
            if let Ok(field) = message::writable(&field) {
                guest.fields.remove(field);
            }
            Ok::<(), Error>(())
        })?;
    }
    Ok(())
}

/// What it changes of the response that there is, or makes of its own.
fn responses(linker: &mut Linker<Guest>, space: &str) -> Result<(), Error> {
    linker.func_wrap(space, "get_response_status", |calling: Calling<'_>| {
        i32::from(calling.data().status.as_u16())
    })?;
    linker.func_wrap(space, "set_response_status", |mut calling: Calling<'_>, status: u32| {
        only_in(&calling, Phase::Request, "set_response_status")?;
        calling.data_mut().status =
            final_status(status).ok_or_else(|| Error::msg(format!("{status} is not a final status")))?;
        Ok::<(), Error>(())
    })?;
    linker.func_wrap(
        space,
        "set_response_header",
        |mut calling: Calling<'_>, name: u32, length: u32, value: u32, size: u32| {
            let name = read(&mut calling, name, length, MAX_FIELD)?;
            let value = read(&mut calling, value, size, MAX_FIELD)?;
            let guest = calling.data_mut();
            let headers = match guest.phase {
                Phase::Request => &mut guest.own,
                Phase::Response => &mut guest.fields,
            };
            guest.is_changed |= guest.phase == Phase::Response;
            taken(message::write(headers, &name, &value, false))
        },
    )?;
    for name in ["set_response_body", "replace_response_body"] {
        linker.func_wrap(space, name, |mut calling: Calling<'_>, at: u32, length: u32| {
            let limit = calling.data().rules.max_body;
            let body = read(&mut calling, at, length, limit)?;
            calling.data_mut().body = Some(body.into());
            Ok::<(), Error>(())
        })?;
    }
    linker.func_wrap(space, "abort_with_redirect", |mut calling: Calling<'_>, at: u32, length: u32| {
        only_in(&calling, Phase::Request, "abort_with_redirect")?;
        let place = read(&mut calling, at, length, MAX_FIELD)?;
        let place = HeaderValue::from_bytes(&place)?;
        let guest = calling.data_mut();
        guest.status = StatusCode::FOUND;
        guest.own.insert(LOCATION, place);
        Ok::<(), Error>(())
    })?;
    Ok(())
}

fn only_in(calling: &Calling<'_>, phase: Phase, name: &str) -> Result<(), Error> {
    if calling.data().phase == phase {
        return Ok(());
    }
    Err(Error::msg(format!("`{name}` is not for this phase")))
}

/// A field that frames the message is left as it is; one that can't be written ends the module.
fn taken(written: Result<(), FieldError>) -> Result<(), Error> {
    match written {
        Ok(()) | Err(FieldError::Framing) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn memory(calling: &mut Calling<'_>) -> Result<wasmtime::Memory, Error> {
    if let Some(memory) = calling.data().memory {
        return Ok(memory);
    }
    // While the instance starts.
    let memory = calling.get_export("memory").and_then(wasmtime::Extern::into_memory);
    memory.ok_or_else(|| Error::msg("the module has no memory"))
}

fn read(calling: &mut Calling<'_>, at: u32, length: u32, limit: usize) -> Result<Vec<u8>, Error> {
    let (at, length) = (usize::try_from(at)?, usize::try_from(length)?);
    if length > limit {
        return Err(Error::msg(format!("{length} bytes are more than the {limit} that may be")));
    }
    let memory = memory(calling)?;
    let bytes = at.checked_add(length).and_then(|end| memory.data(&*calling).get(at..end));
    bytes.map(<[u8]>::to_vec).ok_or_else(|| Error::msg("a place outside of the module's memory"))
}

fn give(calling: &mut Calling<'_>, text: Option<&[u8]>, at: u32, room: u32) -> Result<i32, Error> {
    let Some(text) = text else { return Ok(-1) };
    let (at, room) = (usize::try_from(at)?, usize::try_from(room)?);
    let text = text.get(..room).unwrap_or(text);
    let memory = memory(calling)?;
    let place = at.checked_add(text.len()).and_then(|end| memory.data_mut(&mut *calling).get_mut(at..end));
    place.ok_or_else(|| Error::msg("a place outside of the module's memory"))?.copy_from_slice(text);
    Ok(i32::try_from(text.len()).unwrap_or(i32::MAX))
}
