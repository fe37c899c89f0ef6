//! Header fields and trailers.

use gateway_core::http::reply::final_status;
use http::header::HeaderName;
use http::{HeaderMap, Method, StatusCode};
use wasmtime::{Error, Linker};

use super::super::host::{Context, Direction, Host};
use super::{BAD_ARGUMENT, Fail, Guest, HostResult, NOT_FOUND, give, read, told, write_u32};
use crate::message::{self, FieldError};

/// A name and a value.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

pub(super) fn link(linker: &mut Linker<Host>) -> Result<(), Error> {
    linker.func_wrap("env", "proxy_get_header_map_size", |mut guest: Guest<'_>, map: u32, size: u32| {
        let written = pairs(guest.data_mut(), map).map(|pairs| serialize(&pairs).len());
        told(
            written.and_then(|length| write_u32(&mut guest, size, u32::try_from(length).unwrap_or(u32::MAX))),
        )
    })?;
    linker.func_wrap(
        "env",
        "proxy_get_header_map_pairs",
        |mut guest: Guest<'_>, map: u32, data: u32, size: u32| {
            let written = pairs(guest.data_mut(), map).map(|pairs| serialize(&pairs));
            told(written.and_then(|bytes| give(&mut guest, &bytes, data, size)))
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_header_map_pairs",
        |mut guest: Guest<'_>, map: u32, at: u32, size: u32| told(set_pairs(&mut guest, map, at, size)),
    )?;
    linker.func_wrap(
        "env",
        "proxy_get_header_map_value",
        |mut guest: Guest<'_>, map: u32, key: u32, key_size: u32, data: u32, size: u32| {
            let value = read(&mut guest, key, key_size).and_then(|key| value(guest.data_mut(), map, &key));
            told(value.and_then(|value| give(&mut guest, &value, data, size)))
        },
    )?;
    for (name, keeps_others) in
        [("proxy_add_header_map_value", true), ("proxy_replace_header_map_value", false)]
    {
        linker.func_wrap(
            "env",
            name,
            move |mut guest: Guest<'_>, map: u32, key: u32, key_size: u32, at: u32, size: u32| {
                let key = read(&mut guest, key, key_size);
                let pair = key.and_then(|key| Ok((key, read(&mut guest, at, size)?)));
                told(pair.and_then(|(key, value)| put(guest.data_mut(), map, &key, &value, keeps_others)))
            },
        )?;
    }
    linker.func_wrap(
        "env",
        "proxy_remove_header_map_value",
        |mut guest: Guest<'_>, map: u32, key: u32, key_size: u32| {
            let key = read(&mut guest, key, key_size);
            told(key.and_then(|key| remove(guest.data_mut(), map, &key)))
        },
    )?;
    Ok(())
}

/// How maps are written: the number of pairs, the lengths of each, and the pairs, each part with a zero behind it.
pub(super) fn serialize(pairs: &[Pair]) -> Vec<u8> {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
    let mut out = Vec::new();
    out.extend_from_slice(&number(pairs.len()));
    for (name, value) in pairs {
        out.extend_from_slice(&number(name.len()));
        out.extend_from_slice(&number(value.len()));
    }
    for part in pairs.iter().flat_map(|(name, value)| [name, value]) {
        out.extend_from_slice(part);
        out.push(0);
    }
    out
}

/// Reads a map.
pub(super) fn parse(bytes: &[u8]) -> HostResult<Vec<Pair>> {
    if bytes.len() <= 1 {
        return Ok(Vec::new());
    }
    let bad = || Fail::Status(BAD_ARGUMENT);
    let number = |at: usize| -> HostResult<usize> {
        let part = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()).ok_or_else(bad)?;
        usize::try_from(u32::from_le_bytes(*part)).map_err(|_| bad())
    };
    let count = number(0)?;
    if count > message::MAX_FIELDS {
        return Err(bad());
    }
    let mut at = 4 + count * 8;
    let mut pairs = Vec::with_capacity(count);
    for n in 0..count {
        let mut part = |length: usize| -> HostResult<Vec<u8>> {
            let end = at.checked_add(length).ok_or_else(bad)?;
            let part = bytes.get(at..end).ok_or_else(bad)?.to_vec();
            at = end.saturating_add(1);
            Ok(part)
        };
        let name = part(number(4 + n * 8)?)?;
        let value = part(number(8 + n * 8)?)?;
        pairs.push((name, value));
    }
    Ok(pairs)
}

/// Which map a number means.
enum Map {
    Headers(Direction),
    Trailers(Direction),
    /// Of a call's answer; can only be read.
    Answer(bool),
}

fn map_of(map: u32) -> HostResult<Map> {
    Ok(match map {
        0 => Map::Headers(Direction::Request),
        1 => Map::Trailers(Direction::Request),
        2 => Map::Headers(Direction::Response),
        3 => Map::Trailers(Direction::Response),
        4 | 6 => Map::Answer(false),
        5 | 7 => Map::Answer(true),
        _ => return Err(Fail::Status(BAD_ARGUMENT)),
    })
}

fn is_line(key: &[u8]) -> bool {
    key.first() == Some(&b':') || key.eq_ignore_ascii_case(b"host")
}

/// What a request or response has besides header fields.
fn line_of(context: &mut Context, way: Direction) -> Vec<Pair> {
    let side = context.side(way);
    let line = &side.line;
    let pair = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
    match way {
        Direction::Request => vec![
            pair(":authority", &line.authority),
            pair(":path", &line.path),
            pair(":method", line.method.as_str()),
            pair(":scheme", line.scheme),
        ],
        Direction::Response => vec![pair(":status", line.status.as_str())],
    }
}

fn listed(map: &HeaderMap) -> impl Iterator<Item = Pair> {
    map.iter().map(|(name, value)| (name.as_str().as_bytes().to_vec(), value.as_bytes().to_vec()))
}

fn pairs(host: &mut Host, map: u32) -> HostResult<Vec<Pair>> {
    let missing = || Fail::Status(NOT_FOUND);
    match map_of(map)? {
        Map::Headers(way) => {
            let context = host.context().ok_or_else(missing)?;
            if !context.side(way).is_there {
                return Err(missing());
            }
            let mut all = line_of(context, way);
            let is_field = |pair: &Pair| way == Direction::Response || !is_line(&pair.0);
            all.extend(listed(&context.side(way).headers).filter(is_field));
            Ok(all)
        }
        Map::Trailers(way) => {
            let context = host.context().ok_or_else(missing)?;
            Ok(context.side(way).trailers.iter().flat_map(listed).collect())
        }
        Map::Answer(trailers) => {
            let answer = host.answer.as_ref().ok_or_else(missing)?;
            if trailers {
                return Ok(listed(&answer.trailers).collect());
            }
            let status =
                answer.status.map(|status| (b":status".to_vec(), status.as_str().as_bytes().to_vec()));
            Ok(status.into_iter().chain(listed(&answer.headers)).collect())
        }
    }
}

fn value(host: &mut Host, map: u32, key: &[u8]) -> HostResult<Vec<u8>> {
    let missing = || Fail::Status(NOT_FOUND);
    if let Map::Headers(way) = map_of(map)?
        && !is_line(key)
    {
        // The usual question, without a list of all.
        let side = host.context().ok_or_else(missing)?.side(way);
        let name = HeaderName::from_bytes(key).map_err(|_| missing())?;
        return side.headers.get(name).map(|value| value.as_bytes().to_vec()).ok_or_else(missing);
    }
    let wanted: &[u8] = if key.eq_ignore_ascii_case(b"host") { b":authority" } else { key };
    let found = pairs(host, map)?.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
    found.map(|(_, value)| value).ok_or_else(missing)
}

/// Changes what is not a header field.
fn put_line(context: &mut Context, way: Direction, key: &[u8], value: &[u8]) -> HostResult {
    let bad = || Fail::Status(BAD_ARGUMENT);
    let text = std::str::from_utf8(value).map_err(|_| bad())?;
    let side = context.side(way);
    match (way, key.to_ascii_lowercase().as_slice()) {
        (Direction::Request, b":path") => {
            let (path, query) = text.split_once('?').unwrap_or((text, ""));
            if !message::is_path(path) || !message::is_query(query) {
                return Err(bad());
            }
            text.clone_into(&mut side.line.path);
        }
        (Direction::Request, b":method") => {
            side.line.method = Method::from_bytes(value).map_err(|_| bad())?
        }
        (Direction::Request, b":authority" | b"host") => {
            text.parse::<http::uri::Authority>().map_err(|_| bad())?;
            text.clone_into(&mut side.line.authority);
        }
        // How the target is reached is the proxy's to say.
        (Direction::Request, b":scheme") => {}
        (Direction::Response, b":status") => {
            let status = StatusCode::from_bytes(value).ok().and_then(|status| final_status(status.as_u16()));
            side.line.status = status.ok_or_else(bad)?;
        }
        _ => return Err(bad()),
    }
    side.is_changed = true;
    Ok(())
}

fn fields(host: &mut Host, map: u32) -> HostResult<&mut HeaderMap> {
    let (way, is_trailers) = match map_of(map)? {
        Map::Headers(way) => (way, false),
        Map::Trailers(way) => (way, true),
        Map::Answer(_) => return Err(Fail::Status(BAD_ARGUMENT)),
    };
    let side = host.context().ok_or(Fail::Status(NOT_FOUND))?.side(way);
    if !side.is_there {
        return Err(Fail::Status(NOT_FOUND));
    }
    if is_trailers {
        return Ok(side.trailers.get_or_insert_default());
    }
    side.is_changed = true;
    Ok(&mut side.headers)
}

fn put(host: &mut Host, map: u32, key: &[u8], value: &[u8], keeps_others: bool) -> HostResult {
    if let Map::Headers(way) = map_of(map)?
        && is_line(key)
        && (way == Direction::Request || key.first() == Some(&b':'))
    {
        return put_line(host.context().ok_or(Fail::Status(NOT_FOUND))?, way, key, value);
    }
    match message::write(fields(host, map)?, key, value, keeps_others) {
        // What frames the message is the gateway's own to write; modules set it as a matter of course.
        Ok(()) => Ok(()),
        Err(FieldError::Framing) => drop_length(host, map, key),
        Err(_) => Err(Fail::Status(BAD_ARGUMENT)),
    }
}

fn remove(host: &mut Host, map: u32, key: &[u8]) -> HostResult {
    if is_line(key) {
        return Ok(());
    }
    match message::writable(key) {
        Ok(name) => drop(fields(host, map)?.remove(name)),
        Err(FieldError::Framing) => drop_length(host, map, key)?,
        Err(_) => return Err(Fail::Status(BAD_ARGUMENT)),
    }
    Ok(())
}

/// Notes that a guest takes `Content-Length` away or sets it: the length of the body is open then.
fn drop_length(host: &mut Host, map: u32, key: &[u8]) -> HostResult {
    if let Map::Headers(way) = map_of(map)?
        && key.eq_ignore_ascii_case(b"content-length")
    {
        host.context().ok_or(Fail::Status(NOT_FOUND))?.side(way).drops_length = true;
    }
    Ok(())
}

fn set_pairs(guest: &mut Guest<'_>, map: u32, at: u32, size: u32) -> HostResult {
    let pairs = parse(&read(guest, at, size)?)?;
    let host = guest.data_mut();
    let all = fields(host, map)?;
    let framing: Vec<_> = all
        .iter()
        .filter(|(name, _)| message::is_framing(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    all.clear();
    for (name, value) in framing {
        all.append(name, value);
    }
    pairs.iter().try_for_each(|(key, value)| put(host, map, key, value, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_written_as_the_specification_shows() {
        let pairs = vec![(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), b"22".to_vec())];
        let written = serialize(&pairs);
        let numbers = [2, 1, 1, 1, 2_u32].map(u32::to_le_bytes).concat();
        assert_eq!(written, [&numbers[..], b"a\x001\0b\x0022\0"].concat());
        assert!(matches!(parse(&written), Ok(read) if read == pairs));
        for empty in [&b""[..], b"\0"] {
            assert!(matches!(parse(empty), Ok(read) if read.is_empty()));
        }
    }

    #[test]
    fn broken_maps_are_refused() {
        let written = serialize(&[(b"name".to_vec(), b"value".to_vec())]);
        for length in 2..written.len() - 1 {
            assert!(parse(&written[..length]).is_err(), "{length}");
        }
        assert!(parse(&u32::MAX.to_le_bytes()).is_err());
    }
}
