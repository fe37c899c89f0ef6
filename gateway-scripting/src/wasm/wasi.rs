//! The little of WASI that modules compiled for `wasm32-wasip1` need: output goes to the log, there are clocks, chance and the
//! configured environment, and nothing else: no files, no network, no arguments.

use wasmtime::{Error, Linker, Module, Store};

use super::abi::{Fail, Guest, read, write, write_u32, write_u64};
use super::host::{Host, MAX_VALUE};

/// The module that WASI's functions are in.
pub(super) const NAME: &str = "wasi_snapshot_preview1";

const BAD_DESCRIPTOR: u32 = 8;
const FAULT: u32 = 21;
const INVALID: u32 = 28;
const NO_SUCH_CALL: u32 = 52;
const NOT_SUPPORTED: u32 = 58;

fn told(done: Result<(), Fail>) -> Result<u32, Error> {
    match done {
        Ok(()) => Ok(0),
        Err(Fail::Status(_)) => Ok(FAULT),
        Err(Fail::Trap(error)) => Err(error),
    }
}

/// The functions.
pub(super) fn link(linker: &mut Linker<Host>) -> Result<(), Error> {
    linker.func_wrap(
        NAME,
        "fd_write",
        |mut guest: Guest<'_>, fd: u32, at: u32, count: u32, written: u32| match fd {
            1 => told(print(&mut guest, 2, at, count, written)),
            2 => told(print(&mut guest, 4, at, count, written)),
            _ => Ok(BAD_DESCRIPTOR),
        },
    )?;
    linker.func_wrap(NAME, "clock_time_get", |mut guest: Guest<'_>, clock: u32, _: u64, time: u32| {
        if clock > 1 {
            return Ok(NOT_SUPPORTED);
        }
        told(write_u64(&mut guest, time, super::abi::now()))
    })?;
    linker.func_wrap(NAME, "random_get", |mut guest: Guest<'_>, at: u32, size: u32| {
        let Some(size) = usize::try_from(size).ok().filter(|size| *size <= MAX_VALUE) else {
            return Ok(INVALID);
        };
        let mut bytes = vec![0; size];
        fastrand::fill(&mut bytes);
        told(write(&mut guest, at, &bytes))
    })?;
    linker.func_wrap(NAME, "environ_sizes_get", |mut guest: Guest<'_>, count: u32, size: u32| {
        let all = &guest.data().parts.rules.environment;
        let sizes = (all.len(), all.iter().map(|pair| pair.len() + 1).sum::<usize>());
        let number = |n: usize| u32::try_from(n).unwrap_or(0);
        told(
            write_u32(&mut guest, count, number(sizes.0))
                .and_then(|()| write_u32(&mut guest, size, number(sizes.1))),
        )
    })?;
    linker.func_wrap(NAME, "environ_get", |mut guest: Guest<'_>, array: u32, buffer: u32| {
        told(environment(&mut guest, array, buffer))
    })?;
    linker.func_wrap(NAME, "args_sizes_get", |mut guest: Guest<'_>, count: u32, size: u32| {
        told(write_u32(&mut guest, count, 0).and_then(|()| write_u32(&mut guest, size, 0)))
    })?;
    linker.func_wrap(NAME, "args_get", |_: u32, _: u32| 0_u32)?;
    linker.func_wrap(NAME, "sched_yield", || 0_u32)?;
    linker.func_wrap(NAME, "proc_exit", |code: u32| -> Result<(), Error> {
        Err(Error::msg(format!("the module ended itself with code {code}")))
    })?;
    Ok(())
}

/// Answers every other function of WASI that a module imports with an error; it has none of what they are for.
pub(super) fn link_rest(
    linker: &mut Linker<Host>,
    store: &mut Store<Host>,
    module: &Module,
) -> Result<(), Error> {
    linker.allow_shadowing(false);
    for import in module.imports().filter(|import| import.module() == NAME) {
        let wasmtime::ExternType::Func(function) = import.ty() else { continue };
        let number = if import.name().starts_with("fd_") || import.name().starts_with("sock_") {
            BAD_DESCRIPTOR
        } else {
            NO_SUCH_CALL
        };
        let refuse = move |_: Guest<'_>, _: &[wasmtime::Val], results: &mut [wasmtime::Val]| {
            if let Some(result) = results.first_mut() {
                *result = wasmtime::Val::I32(i32::try_from(number).unwrap_or(0));
            }
            Ok(())
        };
        if linker.get_by_import(&mut *store, &import).is_none() {
            linker.func_new(NAME, import.name(), function, refuse)?;
        }
    }
    Ok(())
}

fn print(guest: &mut Guest<'_>, level: u32, at: u32, count: u32, written: u32) -> Result<(), Fail> {
    let mut text = Vec::new();
    for n in 0..count.min(1024) {
        let entry = read(guest, at.wrapping_add(n * 8), 8)?;
        let number = |from: usize| {
            entry
                .get(from..)
                .and_then(|rest| rest.first_chunk::<4>())
                .map_or(0, |part| u32::from_le_bytes(*part))
        };
        let part = read(guest, number(0), number(4).min(u32::try_from(MAX_VALUE).unwrap_or(0)))?;
        text.extend_from_slice(&part);
        if text.len() > MAX_VALUE {
            break;
        }
    }
    super::abi::say(guest.data(), level, &String::from_utf8_lossy(&text))?;
    write_u32(guest, written, u32::try_from(text.len()).unwrap_or(0))
}

fn environment(guest: &mut Guest<'_>, array: u32, buffer: u32) -> Result<(), Fail> {
    let parts = guest.data().parts.clone();
    let mut at = buffer;
    for (n, pair) in (0_u32..).zip(&parts.rules.environment) {
        write_u32(guest, array.wrapping_add(n * 4), at)?;
        write(guest, at, pair.as_bytes())?;
        write(guest, at.wrapping_add(u32::try_from(pair.len()).unwrap_or(0)), &[0])?;
        at = at.wrapping_add(u32::try_from(pair.len() + 1).unwrap_or(0));
    }
    Ok(())
}
