//! Shared data, shared queues and metrics.

use std::time::Duration;

use bytes::Bytes;
use wasmtime::{Error, Linker};

use super::super::host::{Host, MAX_METRICS, MAX_VALUE, Meter};
use super::super::queues::QueueError;
use super::{
    BAD_ARGUMENT, CAS_MISMATCH, EMPTY, Fail, Guest, HostResult, INTERNAL_FAILURE, NOT_FOUND, give, read,
    told, write_u32, write_u64,
};
use crate::shared_table::MAX_KEY;

pub(super) fn link(linker: &mut Linker<Host>) -> Result<(), Error> {
    linker.func_wrap(
        "env",
        "proxy_get_shared_data",
        |mut guest: Guest<'_>, key: u32, key_size: u32, data: u32, size: u32, cas: u32| {
            let key = read(&mut guest, key, key_size);
            told(key.and_then(|key| get(&mut guest, &key, data, size, cas)))
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_set_shared_data",
        |mut guest: Guest<'_>, key: u32, key_size: u32, at: u32, size: u32, cas: u32| {
            let key = read(&mut guest, key, key_size);
            told(key.and_then(|key| set(&mut guest, &key, at, size, cas)))
        },
    )?;
    queues(linker)?;
    metrics(linker)
}

fn get(guest: &mut Guest<'_>, key: &[u8], data: u32, size: u32, cas: u32) -> HostResult {
    let found = guest.data().parts.data.get(key, Clone::clone);
    let (value, number) = found.ok_or(Fail::Status(NOT_FOUND))?;
    give(guest, &value, data, size)?;
    write_u32(guest, cas, number)
}

fn set(guest: &mut Guest<'_>, key: &[u8], at: u32, size: u32, cas: u32) -> HostResult {
    let value = Bytes::from(read(guest, at, size)?);
    if key.len() > MAX_KEY || value.len() > MAX_VALUE {
        return Err(Fail::Status(BAD_ARGUMENT));
    }
    guest.data().parts.data.change(key, None, false, |known| {
        let number = known.map_or(0, |(_, number)| *number);
        if cas != 0 && cas != number {
            return (None, Err(Fail::Status(CAS_MISMATCH)));
        }
        // 0 stands for any number.
        (Some((value, number.wrapping_add(1).max(1))), Ok(()))
    })
}

fn queues(linker: &mut Linker<Host>) -> Result<(), Error> {
    linker.func_wrap(
        "env",
        "proxy_register_shared_queue",
        |mut guest: Guest<'_>, name: u32, name_size: u32, id: u32| {
            let name = read(&mut guest, name, name_size);
            told(name.and_then(|name| {
                let host = guest.data_mut();
                let queue = host.parts.queues.register(&name).map_err(status_of)?;
                if !host.listens.contains(&queue) {
                    host.listens.push(queue);
                    host.is_root_changed = true;
                }
                write_u32(&mut guest, id, queue)
            }))
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_resolve_shared_queue",
        |mut guest: Guest<'_>, _vm: u32, _vm_size: u32, name: u32, name_size: u32, id: u32| {
            let name = read(&mut guest, name, name_size);
            told(name.and_then(|name| {
                let queue = guest.data().parts.queues.resolve(&name).ok_or(Fail::Status(NOT_FOUND))?;
                write_u32(&mut guest, id, queue)
            }))
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_enqueue_shared_queue",
        |mut guest: Guest<'_>, id: u32, at: u32, size: u32| {
            let entry = read(&mut guest, at, size);
            told(entry.and_then(|entry| match entry.len() > MAX_VALUE {
                true => Err(Fail::Status(BAD_ARGUMENT)),
                false => guest.data().parts.queues.push(id, entry.into()).map_err(status_of),
            }))
        },
    )?;
    linker.func_wrap(
        "env",
        "proxy_dequeue_shared_queue",
        |mut guest: Guest<'_>, id: u32, data: u32, size: u32| {
            let entry = guest.data().parts.queues.pop(id).map_err(status_of);
            told(entry.and_then(|entry| give(&mut guest, &entry, data, size)))
        },
    )?;
    Ok(())
}

fn status_of(error: QueueError) -> Fail {
    Fail::Status(match error {
        QueueError::Unknown => NOT_FOUND,
        QueueError::Empty => EMPTY,
        QueueError::Full => INTERNAL_FAILURE,
    })
}

fn metrics(linker: &mut Linker<Host>) -> Result<(), Error> {
    linker.func_wrap(
        "env",
        "proxy_define_metric",
        |mut guest: Guest<'_>, kind: u32, name: u32, name_size: u32, id: u32| {
            let name = read(&mut guest, name, name_size);
            told(name.and_then(|name| {
                let id_of = define(guest.data(), kind, &String::from_utf8_lossy(&name))?;
                write_u32(&mut guest, id, id_of)
            }))
        },
    )?;
    linker.func_wrap("env", "proxy_record_metric", |guest: Guest<'_>, id: u32, value: u64| {
        told(metric(guest.data(), id).and_then(|meter| {
            match meter {
                Meter::Gauge(gauge) => gauge.set(i64::try_from(value).unwrap_or(i64::MAX)),
                Meter::Histogram(histogram) => histogram.record(Duration::from_millis(value)),
                Meter::Counter(_) => return Err(Fail::Status(BAD_ARGUMENT)),
            }
            Ok(())
        }))
    })?;
    linker.func_wrap("env", "proxy_increment_metric", |guest: Guest<'_>, id: u32, by: i64| {
        told(metric(guest.data(), id).and_then(|meter| {
            match (meter, u64::try_from(by)) {
                (Meter::Counter(counter), Ok(by)) => counter.add(by),
                (Meter::Gauge(gauge), _) => gauge.add(by),
                _ => return Err(Fail::Status(BAD_ARGUMENT)),
            }
            Ok(())
        }))
    })?;
    linker.func_wrap("env", "proxy_get_metric", |mut guest: Guest<'_>, id: u32, value: u32| {
        let known = metric(guest.data(), id).map(|meter| match meter {
            Meter::Counter(counter) => counter.get(),
            Meter::Gauge(gauge) => u64::try_from(gauge.get()).unwrap_or(0),
            Meter::Histogram(histogram) => histogram.count(),
        });
        told(known.and_then(|known| write_u64(&mut guest, value, known)))
    })?;
    Ok(())
}

fn define(host: &Host, kind: u32, name: &str) -> HostResult<u32> {
    let mut all = host.parts.metrics();
    let place = all.iter().position(|(known, _)| **known == *name);
    let place = match place {
        Some(place) => place,
        None if all.len() >= MAX_METRICS || name.len() > MAX_KEY => return Err(Fail::Status(BAD_ARGUMENT)),
        None => {
            let meter = host.parts.meter(kind, name).ok_or(Fail::Status(BAD_ARGUMENT))?;
            all.push((name.into(), meter));
            all.len() - 1
        }
    };
    u32::try_from(place + 1).map_err(|_| Fail::Status(BAD_ARGUMENT))
}

fn metric(host: &Host, id: u32) -> HostResult<Meter> {
    let place = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
    let all = host.parts.metrics();
    let found = place.and_then(|place| all.get(place)).map(|(_, meter)| meter.clone());
    found.ok_or(Fail::Status(NOT_FOUND))
}
