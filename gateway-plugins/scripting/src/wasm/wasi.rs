//! The little of WASI that modules compiled for `wasm32-wasip1` need: output goes to the log, there are clocks, chance and the
//! configured environment, and nothing else: no files, no network, no arguments.

use wasmtime::{Error, Linker, Module, Store};

use super::abi::{Fail, Guest, read, write, write_u32, write_u64};
use super::host::{Host, MAX_VALUE};

/// The module that WASI's functions are in.
pub(super) const NAME: &str = "wasi_snapshot_preview1";

/// Events that a module may wait for at a time.
const MAX_POLLED: u32 = 64;
/// Bytes of a line that has not ended.
const MAX_LINE: usize = 4096;
/// The levels at which lines of the standard output and error are logged.
const LEVELS: [u32; 2] = [2, 4];

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
            1 => told(print(&mut guest, 0, at, count, written)),
            2 => told(print(&mut guest, 1, at, count, written)),
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
    linker.func_wrap(
        NAME,
        "poll_oneoff",
        |mut guest: Guest<'_>, asked: u32, events: u32, count: u32, written: u32| match count {
            1..=MAX_POLLED => told(poll(&mut guest, asked, events, count, written)),
            _ => Ok(INVALID),
        },
    )?;
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

/// Takes what is written; each line goes to the log when it ends.
fn print(guest: &mut Guest<'_>, stream: usize, at: u32, count: u32, written: u32) -> Result<(), Fail> {
    let mut text = Vec::new();
    for n in 0..count.min(1024) {
        let [part, length] = numbers(&read(guest, at.wrapping_add(n * 8), 8)?);
        let part = read(guest, part, length.min(u32::try_from(MAX_VALUE).unwrap_or(0)))?;
        text.extend_from_slice(&part);
        if text.len() > MAX_VALUE {
            break;
        }
    }
    let mut line = std::mem::take(&mut guest.data_mut().unfinished[stream]);
    line.extend_from_slice(&text);
    let (lines, rest) = line.split_at(line.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1));
    if !lines.is_empty() {
        super::abi::say(guest.data(), LEVELS[stream], &String::from_utf8_lossy(lines))?;
    }
    let rest = rest.to_vec();
    if rest.len() > MAX_LINE {
        super::abi::say(guest.data(), LEVELS[stream], &String::from_utf8_lossy(&rest))?;
    } else {
        guest.data_mut().unfinished[stream] = rest;
    }
    write_u32(guest, written, u32::try_from(text.len()).unwrap_or(0))
}

/// Logs lines that have not ended.
pub(super) fn flush(host: &mut Host) {
    for (level, line) in LEVELS.into_iter().zip(std::mem::take(&mut host.unfinished)) {
        if !line.is_empty() {
            // The levels are known ones.
            drop(super::abi::say(host, level, &String::from_utf8_lossy(&line)));
        }
    }
}

/// Two numbers, as they lie in memory.
fn numbers(bytes: &[u8]) -> [u32; 2] {
    [0, 4].map(|from: usize| {
        let part = bytes.get(from..).and_then(|rest| rest.first_chunk::<4>());
        part.map_or(0, |part| u32::from_le_bytes(*part))
    })
}

/// Comes back at once: a clock has rung, as no module may hold its worker up; of descriptors there are none.
fn poll(guest: &mut Guest<'_>, asked: u32, events: u32, count: u32, written: u32) -> Result<(), Fail> {
    const CLOCK: u8 = 0;
    for n in 0..count {
        let subscription = read(guest, asked.wrapping_add(n * 48), 48)?;
        let kind = subscription.get(8).copied().unwrap_or(CLOCK);
        let mut event = subscription.get(..8).unwrap_or_default().to_vec();
        let error = if kind == CLOCK { 0 } else { BAD_DESCRIPTOR };
        event.extend_from_slice(&u16::try_from(error).unwrap_or(0).to_le_bytes());
        event.push(kind);
        event.resize(32, 0);
        write(guest, events.wrapping_add(n * 32), &event)?;
    }
    write_u32(guest, written, count)
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
