//! The functions that Proxy-Wasm modules call (ABI 0.2.1): the table of them, and how they use a guest's memory.

mod calls;
mod fields;
mod grpc;
mod messages;
mod properties;
mod shared;

use wasmtime::{Caller, Error, Linker};

use super::host::Host;

pub(super) use messages::{now, say};

/// A guest that calls.
pub(super) type Guest<'a> = Caller<'a, Host>;

/// Why a function of the host did not do what it was asked for.
pub(super) enum Fail {
    /// The guest is told with this number (`proxy_status_t`).
    Status(u32),
    /// The guest ends.
    Trap(Error),
}

pub(super) const NOT_FOUND: u32 = 1;
pub(super) const BAD_ARGUMENT: u32 = 2;
pub(super) const PARSE_FAILURE: u32 = 4;
pub(super) const INVALID_MEMORY: u32 = 6;
pub(super) const EMPTY: u32 = 7;
pub(super) const CAS_MISMATCH: u32 = 8;
pub(super) const INTERNAL_FAILURE: u32 = 10;
pub(super) const UNIMPLEMENTED: u32 = 12;

impl From<Error> for Fail {
    fn from(error: Error) -> Self {
        Self::Trap(error)
    }
}

/// What a function of the host comes to.
pub(super) type HostResult<T = ()> = Result<T, Fail>;

/// As the guest is told.
fn told(done: HostResult) -> Result<u32, Error> {
    match done {
        Ok(()) => Ok(0),
        Err(Fail::Status(status)) => Ok(status),
        Err(Fail::Trap(error)) => Err(error),
    }
}

fn memory(guest: &mut Guest<'_>) -> HostResult<wasmtime::Memory> {
    if let Some(memory) = guest.data().memory {
        return Ok(memory);
    }
    // While the instance starts.
    let memory = guest.get_export("memory").and_then(wasmtime::Extern::into_memory);
    guest.data_mut().memory = memory;
    memory.ok_or(Fail::Status(INVALID_MEMORY))
}

fn range(at: u32, length: usize) -> Option<std::ops::Range<usize>> {
    let at = usize::try_from(at).ok()?;
    Some(at..at.checked_add(length)?)
}

/// Bytes of the guest's memory.
pub(super) fn read(guest: &mut Guest<'_>, at: u32, length: u32) -> HostResult<Vec<u8>> {
    if length == 0 {
        return Ok(Vec::new());
    }
    let memory = memory(guest)?;
    let range = usize::try_from(length).ok().and_then(|length| range(at, length));
    let bytes = range.and_then(|range| memory.data(&*guest).get(range));
    bytes.map(<[u8]>::to_vec).ok_or(Fail::Status(INVALID_MEMORY))
}

/// Writes into the guest's memory.
pub(super) fn write(guest: &mut Guest<'_>, at: u32, bytes: &[u8]) -> HostResult {
    let memory = memory(guest)?;
    let place = range(at, bytes.len()).and_then(|range| memory.data_mut(&mut *guest).get_mut(range));
    place.ok_or(Fail::Status(INVALID_MEMORY))?.copy_from_slice(bytes);
    Ok(())
}

pub(super) fn write_u32(guest: &mut Guest<'_>, at: u32, value: u32) -> HostResult {
    write(guest, at, &value.to_le_bytes())
}

pub(super) fn write_u64(guest: &mut Guest<'_>, at: u32, value: u64) -> HostResult {
    write(guest, at, &value.to_le_bytes())
}

/// Hands bytes over in memory that the guest makes room in: its place is written to `data`, its length to `size`.
pub(super) fn give(guest: &mut Guest<'_>, bytes: &[u8], data: u32, size: u32) -> HostResult {
    let length = u32::try_from(bytes.len()).map_err(|_| Fail::Status(BAD_ARGUMENT))?;
    let at = match length {
        0 => 0,
        length => {
            let allocate = guest.data().allocate.clone().ok_or(Fail::Status(INTERNAL_FAILURE))?;
            let at = allocate.call(&mut *guest, length)?;
            if at == 0 {
                return Err(Fail::Trap(Error::msg("the module has no memory left")));
            }
            write(guest, at, bytes)?;
            at
        }
    };
    write_u32(guest, data, at)?;
    write_u32(guest, size, length)
}

/// The functions of the host.
pub(super) fn linker(linker: &mut Linker<Host>) -> Result<(), Error> {
    messages::link(linker)?;
    fields::link(linker)?;
    properties::link(linker)?;
    shared::link(linker)?;
    calls::link(linker)?;
    grpc::link(linker)
}
