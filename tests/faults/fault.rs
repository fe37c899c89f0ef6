//! What is done to a gateway.

use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sqlx::{Connection, Executor, SqliteConnection};

use crate::certificates::Certificates;
use crate::client::{Answer, Client};
use crate::gateway::LONG;
use crate::names::Zone;
use crate::relay::Line;
use crate::run::{Run, Violation};
use crate::servers::Server;
use crate::target::{MARK, Mood};

/// Everything there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    Kill,
    Terminate,
    Reload,
    Freeze,
    StalledLog,
    TargetDead,
    TargetStalled,
    TargetLying,
    Connections,
    CertificateSwapped,
    CertificateTorn,
    /// Where the target has a name of its own, from here on.
    NamesFail,
    NamesChange,
    /// SQLite alone, from here on.
    Locked,
    DiskFull,
    ClockJump,
    /// A database server alone, from here on.
    NetworkCut,
    NetworkRefuses,
    NetworkBlackHole,
    ServerRestart,
}

const EVERYWHERE: [Fault; 11] = [
    Fault::Kill,
    Fault::Terminate,
    Fault::Reload,
    Fault::Freeze,
    Fault::StalledLog,
    Fault::TargetDead,
    Fault::TargetStalled,
    Fault::TargetLying,
    Fault::Connections,
    Fault::CertificateSwapped,
    Fault::CertificateTorn,
];
const NAMES: [Fault; 2] = [Fault::NamesFail, Fault::NamesChange];
const SERVER: [Fault; 4] =
    [Fault::NetworkCut, Fault::NetworkRefuses, Fault::NetworkBlackHole, Fault::ServerRestart];

/// The faults that a run may have.
pub(crate) fn possible(run: &Run, has_disk: bool) -> Vec<Fault> {
    let mut faults = EVERYWHERE.to_vec();
    match run.relay {
        Some(_) => faults.extend(SERVER),
        None => faults.push(Fault::Locked),
    }
    if run.names.is_some() {
        faults.extend(NAMES);
    }
    if has_disk {
        faults.push(Fault::DiskFull);
    }
    if run.plan.clock.is_some() {
        faults.push(Fault::ClockJump);
    }
    faults
}

impl Fault {
    /// Does it to a gateway that is written to, and takes it back. `server` is the database's, where there is one.
    pub(crate) fn strike(self, run: &mut Run, server: Option<&mut Server>) -> Result<(), Violation> {
        let time = Duration::from_millis(50 + run.rng.below(900));
        run.beside_writes(|run| {
            thread::sleep(Duration::from_millis(run.rng.below(60)));
            match self {
                Self::Kill => {
                    run.gateway.kill();
                    run.restart()?;
                }
                Self::Terminate => {
                    run.gateway.stop()?;
                    run.restart()?;
                }
                Self::Reload => {
                    for _ in 0..=run.rng.below(5) {
                        run.gateway.signal(Signal::HUP);
                        thread::sleep(time / 20);
                    }
                }
                Self::Freeze => {
                    run.gateway.signal(Signal::STOP);
                    thread::sleep(time);
                    run.gateway.signal(Signal::CONT);
                }
                Self::StalledLog => stalled_log(run, time)?,
                Self::TargetDead => mood(run, Mood::Dead, time),
                Self::TargetStalled => mood(run, Mood::Stalled, time),
                Self::TargetLying => mood(run, Mood::Lying, time),
                Self::Connections => connections(run, time)?,
                Self::CertificateSwapped => certificate(run, None)?,
                Self::CertificateTorn => certificate(run, Some(time))?,
                Self::NamesFail => names_fail(run, time)?,
                Self::NamesChange => names_change(run, time)?,
                Self::Locked => locked(run, time),
                Self::DiskFull => full_disk(run, time)?,
                Self::ClockJump => {
                    let jumps = ["+3600s", "-3600s", "+10d", "-10d", "+1s", "+0s"];
                    if let Some((_, file)) = &run.plan.clock {
                        drop(std::fs::write(file, *run.rng.pick(&jumps)));
                    }
                    thread::sleep(time);
                }
                Self::NetworkCut => {
                    for _ in 0..=run.rng.below(4) {
                        run.relay.iter().for_each(crate::relay::Relay::cut);
                        thread::sleep(time / 4);
                    }
                }
                Self::NetworkRefuses => line(run, Line::Refuses, time),
                Self::NetworkBlackHole => line(run, Line::BlackHole, time * 3),
                Self::ServerRestart => {
                    if let Some(server) = server {
                        server.kill();
                        thread::sleep(time);
                        if !server.run() {
                            return Err(Violation("the database server does not start again".to_owned()));
                        }
                    }
                }
            }
            Ok(())
        })
    }
}

/// The probes answer whatever else does not.
fn probe(run: &Run) -> Result<(), Violation> {
    let begun = Instant::now();
    let answer = Client::new(run.gateway.admin).try_ask("GET", "/livez", "", b"");
    if answer.is_none_or(|answer| answer.status != 200) || begun.elapsed() > Duration::from_secs(30) {
        return Err(run.gateway.said("/livez does not answer"));
    }
    Ok(())
}

/// Nobody reads the log, and there is much to say.
fn stalled_log(run: &Run, time: Duration) -> Result<(), Violation> {
    run.gateway.stall(true);
    // Something to say with each, until the pipe is full.
    for _ in 0..40 {
        run.gateway.signal(Signal::HUP);
        thread::sleep(time / 40);
    }
    probe(run)?;
    run.gateway.stall(false);
    Ok(())
}

/// More silent connections than the gateway has room for.
fn connections(run: &Run, time: Duration) -> Result<(), Violation> {
    let count = if run.plan.descriptors > 0 { 2 * run.plan.descriptors } else { 300 };
    let connect = |_| TcpStream::connect_timeout(&run.gateway.http, Duration::from_secs(1)).ok();
    let silent: Vec<_> = (0..count.min(600)).map(connect).collect();
    thread::sleep(time);
    probe(run)?;
    drop(silent);
    Ok(())
}

/// Nothing fits on the disk any more.
fn full_disk(run: &Run, time: Duration) -> Result<(), Violation> {
    let file = run.plan.folder.join("full");
    // Until nothing more fits.
    drop(std::fs::write(&file, vec![0; 64 << 20]));
    thread::sleep(time);
    probe(run)?;
    drop(std::fs::remove_file(&file));
    Ok(())
}

fn mood(run: &Run, mood: Mood, time: Duration) {
    run.target.set(mood);
    // Requests with a good key meet it as well.
    let until = Instant::now() + time;
    while Instant::now() < until {
        _ = ask_with_key(run);
        thread::sleep(Duration::from_millis(5));
    }
    run.target.set(Mood::Good);
}

fn line(run: &Run, line: Line, time: Duration) {
    let Some(relay) = &run.relay else { return };
    relay.set(line);
    if line == Line::Refuses {
        relay.cut();
    }
    thread::sleep(time);
    relay.set(Line::Good);
}

/// Somebody else holds the database's lock.
fn locked(run: &Run, time: Duration) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let Ok(mut holder) = SqliteConnection::connect(&run.plan.database).await else { return };
        if holder.execute("BEGIN IMMEDIATE").await.is_ok() {
            tokio::time::sleep(time).await;
            drop(holder.execute("ROLLBACK").await);
        }
        drop(holder.close().await);
    });
}

/// Another certificate is put in place while clients come; `torn`, after half a file lay there for a while.
fn certificate(run: &mut Run, torn: Option<Duration>) -> Result<(), Violation> {
    let folder = run.plan.folder.clone();
    let reload = |run: &Run| run.gateway.signal(Signal::HUP);
    if let Some(time) = torn {
        Certificates::tear(&folder, usize::try_from(run.rng.below(700)).unwrap_or_default());
        reload(run);
        thread::sleep(time);
        if !run.certificates.is_served(run.gateway.https) {
            return Err(run.gateway.said("the good certificate is gone since a torn one lies there"));
        }
        run.certificates.renew(&folder);
    } else {
        // A reload between the two files meets a key that is not the certificate's.
        let (gateway, pause) = (&run.gateway, Duration::from_millis(run.rng.below(100)));
        run.certificates.exchange(&folder, || {
            gateway.signal(Signal::HUP);
            thread::sleep(pause);
        });
    }
    let deadline = Instant::now() + LONG;
    loop {
        reload(run);
        thread::sleep(Duration::from_millis(50));
        if run.certificates.settle(run.gateway.https) {
            return Ok(());
        }
        if !run.certificates.is_served(run.gateway.https) {
            return Err(run.gateway.said("neither certificate is shown"));
        }
        if Instant::now() > deadline {
            return Err(run.gateway.said("the new certificate is not shown"));
        }
    }
}

/// The name server fails in one of its ways. A name that was known goes on being known.
fn names_fail(run: &mut Run, time: Duration) -> Result<(), Violation> {
    let zone = *run.rng.pick(&[Zone::Fails, Zone::Silent, Zone::Unknown, Zone::Garbage]);
    let Some(names) = &run.names else { return Ok(()) };
    // Nobody may have asked for the target yet, or nobody has a key.
    let was_known = ask_with_key(run).is_some_and(|answer| answer.text.contains(MARK));
    names.set(zone);
    // Longer than an answer is kept.
    let until = Instant::now() + time + Duration::from_millis(1200);
    let mut result = Ok(());
    while Instant::now() < until && result.is_ok() {
        if let Some(answer) = ask_with_key(run)
            && was_known
            && answer.text.contains("dns_failed")
        {
            result =
                Err(run.gateway.said(&format!("the target's name is forgotten while its server {zone:?}")));
        }
        thread::sleep(Duration::from_millis(20));
    }
    names.set(Zone::Good);
    result
}

/// The target's name is given to a machine where nobody listens, and back.
fn names_change(run: &Run, time: Duration) -> Result<(), Violation> {
    let Some(names) = &run.names else { return Ok(()) };
    names.point(Ipv4Addr::new(127, 78, 0, 1));
    let until = Instant::now() + time + Duration::from_millis(1200);
    while Instant::now() < until {
        _ = ask_with_key(run);
        thread::sleep(Duration::from_millis(20));
    }
    names.point(Ipv4Addr::LOCALHOST);
    let deadline = Instant::now() + LONG;
    while ask_with_key(run).is_none_or(|answer| answer.status >= 500) {
        if Instant::now() > deadline {
            return Err(run
                .gateway
                .said(&format!("the target is not found where {} says it is", names.at())));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What a request is answered that has a good key, if any is known.
fn ask_with_key(run: &Run) -> Option<Answer> {
    let good = run.shared.model.lock().unwrap().good_key();
    let head = good.as_deref().map(|key| format!("x-api-key: {key}\r\n")).unwrap_or_default();
    Client::new(run.gateway.http).try_ask("GET", "/a", &head, b"")
}
