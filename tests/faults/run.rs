//! One run: a gateway, what is done to it, and what must hold all along.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::certificates::Certificates;
use crate::client::{Answer, Client};
use crate::gateway::{Gateway, LONG, Plan};
use crate::model::{Model, Outcome, PAIR, SINGLE, Version, key};
use crate::names::{NAME, Names};
use crate::relay::Relay;
use crate::rng::Rng;
use crate::target::{MARK, Target};

/// The token of the admin API.
const TOKEN: &str = "a-token-of-the-fault-program";

/// Something that must never happen.
#[derive(Debug)]
pub(crate) struct Violation(pub(crate) String);

/// What happened in all runs.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) acknowledged: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) unknown: AtomicU64,
    /// Requests without a valid key.
    pub(crate) attacks: AtomicU64,
}

/// What writers and attackers share with the run.
pub(crate) struct Shared {
    pub(crate) model: Mutex<Model>,
    addresses: Mutex<(SocketAddr, SocketAddr)>,
    stop: AtomicBool,
    /// The first request that got through and should not have.
    breach: Mutex<Option<String>>,
    counts: Arc<Counts>,
}

impl Shared {
    fn http(&self) -> SocketAddr {
        self.addresses.lock().unwrap().0
    }

    fn admin(&self) -> SocketAddr {
        self.addresses.lock().unwrap().1
    }
}

/// A run under way.
pub(crate) struct Run {
    pub(crate) rng: Rng,
    pub(crate) gateway: Gateway,
    pub(crate) plan: Plan,
    pub(crate) target: Target,
    /// The way to a database server; `None` with SQLite.
    pub(crate) relay: Option<Relay>,
    /// The target's name server, where there can be one.
    pub(crate) names: Option<Names>,
    pub(crate) certificates: Certificates,
    pub(crate) shared: Arc<Shared>,
    attackers: Vec<JoinHandle<()>>,
    next_version: Arc<AtomicU64>,
}

impl Run {
    pub(crate) fn start(
        rng: Rng,
        plan: Plan,
        relay: Option<Relay>,
        names: Option<Names>,
        counts: Arc<Counts>,
    ) -> Result<Self, Violation> {
        let certificates = Certificates::new(&plan.folder);
        let gateway = Gateway::start(&plan, TOKEN)?;
        let target = Target::start();
        let shared = Arc::new(Shared {
            model: Mutex::default(),
            addresses: Mutex::new((gateway.http, gateway.admin)),
            stop: AtomicBool::new(false),
            breach: Mutex::default(),
            counts,
        });
        let first = json!({
            "proxies": [{
                "id": "a", "listen_path": "/a", "backend_scheme": "http",
                "backend_host": if names.is_some() { NAME } else { "127.0.0.1" },
                "backend_port": target.at.port(), "backend_first_byte_timeout": 1, "backend_idle_timeout": 1,
            }],
            "plugin_configs": [{ "id": "a-key", "plugin_name": "key_auth", "proxy_id": "a" }],
        });
        let mut client = Client::new(gateway.admin);
        match ask(&mut client, "POST", "/v1/batch", &first) {
            Some(answer) if answer.status == 200 => {}
            other => return Err(gateway.said(&format!("the first batch is not taken: {other:?}"))),
        }
        let attackers = (0..2).map(|n| attack(shared.clone(), Rng::new(n))).collect();
        Ok(Self {
            rng,
            gateway,
            plan,
            target,
            relay,
            names,
            certificates,
            shared,
            attackers,
            next_version: Arc::new(AtomicU64::new(1)),
        })
    }

    /// Starts the gateway again, which has ended.
    pub(crate) fn restart(&mut self) -> Result<(), Violation> {
        self.gateway = Gateway::start(&self.plan, TOKEN)?;
        *self.shared.addresses.lock().unwrap() = (self.gateway.http, self.gateway.admin);
        Ok(())
    }

    /// Writes at random beside a fault, until that is over.
    pub(crate) fn beside_writes(
        &mut self,
        fault: impl FnOnce(&mut Self) -> Result<(), Violation>,
    ) -> Result<(), Violation> {
        let stop = Arc::new(AtomicBool::new(false));
        let writer = {
            let (stop, shared) = (stop.clone(), self.shared.clone());
            let (mut rng, versions) = (Rng::new(self.rng.next()), self.next_version.clone());
            thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    write(&shared, &mut rng, versions.fetch_add(1, Ordering::Relaxed));
                }
            })
        };
        let result = fault(self);
        stop.store(true, Ordering::Relaxed);
        let written = writer.join();
        result?;
        written.map_err(|_| Violation("the writer panicked".to_owned()))
    }

    /// Waits until the gateway has recovered, and looks whether everything is as it has to be.
    pub(crate) fn settle(&mut self) -> Result<(), Violation> {
        let (http, admin) = (self.shared.http(), self.shared.admin());
        self.wait("it is not ready again", || {
            Client::new(admin).try_ask("GET", "/readyz", "", b"").is_some_and(|answer| answer.status == 200)
        })?;
        // Ready means that everything works: requests, and writes once the database is back.
        let mut rng = Rng::new(self.rng.next());
        self.wait("no write is taken while it says it is ready", || {
            let version = self.next_version.fetch_add(1, Ordering::Relaxed);
            write_one(&self.shared, &mut rng, SINGLE, Some(version)) == Outcome::Acknowledged
        })?;
        let opens = |consumer: u32, version: u64| {
            let mut client = Client::new(http);
            let answer = client.try_ask("GET", "/a", &key_header(&key(consumer, version)), b"");
            answer.filter(|answer| answer.status == 200).map(|answer| answer.text)
        };
        let known = self.shared.model.lock().unwrap().of(SINGLE);
        let newest = known.into_iter().flatten().next().unwrap_or_default();
        self.wait("no request is answered while it says it is ready", || opens(SINGLE, newest).is_some())?;
        self.check_keys(&opens)?;
        if !self.certificates.is_served(self.gateway.https) {
            return Err(self.gateway.said("no good certificate is shown while it says it is ready"));
        }
        if Client::new(admin).try_ask("GET", "/metrics", "", b"").is_none_or(|answer| answer.status != 200) {
            return Err(self.gateway.said("/metrics does not answer"));
        }
        self.gateway.is_well()
    }

    /// Each consumer is one of what it may be, and its key tells whose it is.
    fn check_keys(&self, opens: &dyn Fn(u32, u64) -> Option<String>) -> Result<(), Violation> {
        let consumers = self.shared.model.lock().unwrap().consumers();
        let mut found: Vec<(u32, Version)> = Vec::new();
        for consumer in consumers {
            let may_be = self.shared.model.lock().unwrap().of(consumer);
            let mut is = Vec::new();
            for version in may_be.iter().flatten() {
                match opens(consumer, *version) {
                    Some(text) if text == format!("{MARK} c{consumer}") => is.push(*version),
                    Some(text) => {
                        let key = key(consumer, *version);
                        return Err(self.gateway.said(&format!("{key} passes as somebody else: {text}")));
                    }
                    None => {}
                }
            }
            let version = is.first().copied();
            if is.len() > 1 || !may_be.contains(&version) {
                let what = format!("consumer {consumer} should be one of {may_be:?} and is {is:?}");
                return Err(self.gateway.said(&what));
            }
            found.push((consumer, version));
        }
        let pair: Vec<Version> = found
            .iter()
            .filter(|(consumer, _)| PAIR.contains(consumer))
            .map(|(_, version)| *version)
            .collect();
        if pair.windows(2).any(|pair| pair[0] != pair[1]) {
            return Err(self.gateway.said(&format!("half of a batch is there: {pair:?}")));
        }
        let mut model = self.shared.model.lock().unwrap();
        found.into_iter().for_each(|(consumer, version)| model.is(consumer, version));
        Ok(())
    }

    fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), Violation> {
        let deadline = Instant::now() + LONG;
        while !is_so() {
            self.breach()?;
            if Instant::now() > deadline {
                return Err(self.gateway.said(what));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether somebody got through.
    pub(crate) fn breach(&self) -> Result<(), Violation> {
        match &*self.shared.breach.lock().unwrap() {
            Some(what) => Err(self.gateway.said(what)),
            None => Ok(()),
        }
    }

    /// Ends the run in an orderly way.
    pub(crate) fn end(mut self) -> Result<(), Violation> {
        self.breach()?;
        self.gateway.is_well()?;
        self.gateway.stop()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for attacker in self.attackers.drain(..) {
            drop(attacker.join());
        }
    }
}

fn key_header(key: &str) -> String {
    format!("x-api-key: {key}\r\n")
}

fn ask(client: &mut Client, method: &str, path: &str, body: &Value) -> Option<Answer> {
    let head = format!("authorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n");
    let body = if body.is_null() { String::new() } else { body.to_string() };
    client.try_ask(method, path, &head, body.as_bytes())
}

fn consumer(number: u32, version: u64) -> Value {
    json!({
        "id": format!("c{number}"), "username": format!("c{number}"),
        "credentials": { "key_auth": [{ "key": key(number, version) }] },
    })
}

/// One write of a random kind.
fn write(shared: &Shared, rng: &mut Rng, version: u64) {
    match rng.below(4) {
        0 => {
            let body = json!({ "consumers": PAIR.map(|number| consumer(number, version)) });
            let outcome = sent(shared, "POST", "/v1/batch", &body);
            let mut model = shared.model.lock().unwrap();
            PAIR.iter().for_each(|number| model.wrote(*number, Some(version), outcome));
        }
        1 => _ = write_one(shared, rng, 0, None),
        _ => _ = write_one(shared, rng, 0, Some(version)),
    }
}

/// Puts or deletes one consumer: this one, or with 0 any.
fn write_one(shared: &Shared, rng: &mut Rng, which: u32, version: Version) -> Outcome {
    let any = u32::try_from(rng.below(SINGLE.into())).unwrap_or_default();
    let number = if which == 0 { any } else { which };
    let path = format!("/v1/consumers/c{number}");
    let outcome = match version {
        Some(version) => {
            let mut body = consumer(number, version);
            body.as_object_mut().unwrap().remove("id");
            sent(shared, "PUT", &path, &body)
        }
        None => sent(shared, "DELETE", &path, &Value::Null),
    };
    shared.model.lock().unwrap().wrote(number, version, outcome);
    outcome
}

/// Sends a write, and says what came of it.
fn sent(shared: &Shared, method: &str, path: &str, body: &Value) -> Outcome {
    let answer = ask(&mut Client::new(shared.admin()), method, path, body);
    let (outcome, counter) = match answer.map(|answer| answer.status) {
        Some(200..300) => (Outcome::Acknowledged, &shared.counts.acknowledged),
        // A consumer that is not there can't be deleted; nothing was written either way.
        Some(400..500 | 507) => (Outcome::Refused, &shared.counts.refused),
        _ => (Outcome::Unknown, &shared.counts.unknown),
    };
    counter.fetch_add(1, Ordering::Relaxed);
    if outcome == Outcome::Unknown {
        thread::sleep(Duration::from_millis(20));
    }
    outcome
}

/// Asks without a valid key, as fast as it is answered.
fn attack(shared: Arc<Shared>, mut rng: Rng) -> JoinHandle<()> {
    thread::spawn(move || {
        while !shared.stop.load(Ordering::Relaxed) {
            let retired = shared.model.lock().unwrap().retired.clone();
            let key = match rng.below(4) {
                0 => None,
                1 => Some("key-0-0".to_owned()),
                _ => retired.get(usize::try_from(rng.below(retired.len() as u64)).unwrap_or(0)).cloned(),
            };
            let head = key.as_deref().map(key_header).unwrap_or_default();
            let answer = Client::new(shared.http()).try_ask("GET", "/a", &head, b"");
            match answer {
                Some(answer) if answer.text.contains(MARK) => {
                    let what = format!("the key {key:?} opened the route: {answer:?}");
                    shared.breach.lock().unwrap().get_or_insert(what);
                    return;
                }
                Some(_) => _ = shared.counts.attacks.fetch_add(1, Ordering::Relaxed),
                None => thread::sleep(Duration::from_millis(10)),
            }
        }
    })
}

/// A folder that goes when its run ends.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    is_mounted: bool,
}

impl Folder {
    /// A folder; `mounted`, one with a small disk of its own, which takes root.
    pub(crate) fn new(name: &str, mounted: bool) -> Self {
        let path = std::env::temp_dir().join(format!("ferrum-faults-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=24m", "none"]).arg(&path).stderr(std::process::Stdio::null());
        let is_mounted = mounted && mount.status().is_ok_and(|status| status.success());
        Self { path, is_mounted }
    }

    /// Whether its disk can be filled.
    pub(crate) fn has_disk(&self) -> bool {
        self.is_mounted
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_mounted {
            drop(std::process::Command::new("umount").arg("-l").arg(&self.path).status());
        }
        drop(std::fs::remove_dir_all(&self.path));
    }
}
