//! Stored responses in Redis or Valkey, which gateways share.
//!
//! ```text
//! PREFIX:cache:{PLACE}:PARTS   a hash: `n` the names of `Vary`, `e` the place's state, and a response for each variant
//! PREFIX:cache:{PLACE}         the place's state: changed by each invalidation, so that all that is stored there is forgotten
//! PREFIX:cache:purges          a hash: the history's name (`epoch`), how many purges there were (`number`), and the latest of them
//! ```
//!
//! Each gateway reads the purges every second and carries out those of others in its own memory and on its own disk. A
//! response carries the number of the purges that were known when it was asked for; whoever reads it checks it against
//! all later ones. A purge that can't be sent to Redis waits here; until it is sent, nothing is read from Redis.

mod scripts;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::plugin::World;
use gateway_core::plugin::world::tasks::{TaskControl, TaskError};
use gateway_plugin_common::hex::hex;
use gateway_plugin_common::redis_link::{Away, Command, RedisConfig, RedisLink};
use redis::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::key::{Chooser, Variant};
use super::purge::Purge;
use super::stored::Stored;
use super::tier::{Address, Mark, TierMeters};
use super::wire::{self, Label};
use scripts::{FIND, INVALIDATE, PURGES, PUT};

/// Responses that wait to be sent, and their bytes.
const MAX_QUEUED: (usize, u64) = (4096, 16 << 20);
/// Responses that are sent at a time.
const AT_ONCE: usize = 16;
/// How often purges of other gateways are read.
const EVERY: Duration = Duration::from_secs(1);
/// Purges that are remembered; a response that has seen none of them is not used.
const REMEMBERED: u64 = 256;
/// The longest a response is kept.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a response is kept beyond its use, so that it can be validated.
const SPARE: Duration = Duration::from_secs(60);

/// What is known of purges and invalidations as a request sets out.
#[derive(Debug, Clone, Default)]
pub(super) struct Since {
    pub(super) mark: Mark,
    /// The state of the place; `None` where Redis was not asked.
    place: Option<Bytes>,
}

/// The responses in Redis of plugin configs with one id.
pub(super) struct Remote {
    link: Arc<RedisLink>,
    /// Bytes of a body.
    limit: u64,
    variants: usize,
    state: Mutex<PurgeHistory>,
    queue: Mutex<Queue>,
    work: Notify,
    held: tokio::sync::Mutex<()>,
    unsent: AtomicU64,
    world: World,
    meters: TierMeters,
}

#[derive(Default)]
struct PurgeHistory {
    /// What is known of the history; `None` before it was read.
    mark: Option<Mark>,
    purges: VecDeque<(u64, Purge)>,
    /// Purges of this gateway that Redis does not know yet.
    unsent: VecDeque<Purge>,
    /// Ids of purges of this gateway.
    own: VecDeque<u64>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Command, u64)>,
    bytes: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    /// Nothing is connected before [`Self::run`].
    pub(super) fn new(name: &str, limit: u64, variants: usize, world: &World, meters: TierMeters) -> Self {
        Self {
            link: Arc::new(RedisLink::new(&RedisConfig::named(name), world).storing(limit)),
            limit,
            variants,
            state: Mutex::default(),
            queue: Mutex::default(),
            work: Notify::new(),
            held: tokio::sync::Mutex::default(),
            unsent: AtomicU64::new(0),
            world: world.clone(),
            meters,
        }
    }

    /// Whether it is worth to ask now.
    pub(super) fn is_up(&self) -> bool {
        self.link.is_up() && self.unsent.load(Relaxed) == 0
    }

    /// What is known now.
    pub(super) fn since(&self) -> Since {
        Since { mark: locked(&self.state).mark.unwrap_or_default(), place: None }
    }

    fn keys(&self, address: &Address) -> (String, String) {
        let place = self.place(&address.place);
        (format!("{place}:{}", hex(&address.parts)), place)
    }

    fn place(&self, place: &[u8; 16]) -> String {
        // What is in braces decides where a cluster keeps a key: all of one place are together.
        format!("{}:cache:{{{}}}", self.link.prefix(), hex(place))
    }

    /// Whether a later purge covers a response, or can't be known.
    pub(super) fn is_purged(&self, label: &Label, tags: &[Box<str>]) -> bool {
        let state = locked(&self.state);
        let Some(mark) = state.mark.filter(|mark| mark.epoch == label.mark.epoch) else {
            // Of what was stored before anybody counted nothing can be said.
            return state.mark.is_some();
        };
        let is_forgotten = label.mark.number + REMEMBERED < mark.number;
        is_forgotten
            || state
                .purges
                .iter()
                .any(|(number, purge)| *number > label.mark.number && purge.covers(&label.url, tags))
    }

    /// Looks for the response for a request.
    pub(super) async fn find(
        &self,
        address: &Address,
        chooser: &Chooser<'_>,
        now: Instant,
    ) -> (Option<Arc<Stored>>, Option<Since>) {
        let since = self.since();
        if !self.is_up() || since.mark.epoch == 0 {
            self.meters.away.add(1);
            return (None, None);
        }
        let first = self.ask(address, &Variant::default()).await;
        let found = match first {
            Ok(found) if found.value.is_none() && !found.names.is_empty() => {
                match scripts::names_of(&found.names) {
                    Some(names) => self.ask(address, &chooser.variant(names)).await,
                    None => Ok(found),
                }
            }
            first => first,
        };
        let Ok(found) = found else {
            self.meters.away.add(1);
            return (None, None);
        };
        let stored = found.value.and_then(|value| self.read(&value, address, chooser, now));
        match stored {
            Some(_) => self.meters.hit.add(1),
            None => self.meters.miss.add(1),
        }
        (stored, Some(Since { place: Some(found.place), ..since }))
    }

    async fn ask(&self, address: &Address, variant: &Variant) -> Result<scripts::RemoteEntry, Away> {
        let (key, place) = self.keys(address);
        let command = Command::new(&FIND, vec![key, place]).arg(wire::digest_of(variant));
        scripts::found(self.link.ask(command).await?).ok_or(Away)
    }

    fn read(
        &self,
        value: &Bytes,
        address: &Address,
        chooser: &Chooser<'_>,
        now: Instant,
    ) -> Option<Arc<Stored>> {
        let (length, rest) = value.split_first_chunk()?;
        let head = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let written = wire::read(rest.get(..head)?, now)?;
        let is_right = written.label.address == *address && chooser.fits(&written.head.variant);
        if !is_right || self.is_purged(&written.label, &written.head.tags) {
            return None;
        }
        Some(written.with(value.slice(4 + head..), 0))
    }

    /// Has a response sent.
    pub(super) fn put(&self, label: Label, stored: Arc<Stored>, since: Option<Since>) {
        let since = since.unwrap_or_default();
        if since.mark.epoch == 0 || !self.link.is_up() || stored.body.len() as u64 > self.limit {
            return;
        }
        let head = &stored.head;
        let Some(written) = wire::write(&label, head, Instant::now()) else {
            return self.meters.dropped.add(1);
        };
        let policy = &head.policy;
        let of_use = policy.lifetime + policy.stale_while_revalidate.max(policy.stale_if_error) + SPARE;
        let left = of_use.saturating_sub(head.age(Instant::now())).clamp(SPARE, LONGEST);
        let mut value = Vec::with_capacity(4 + written.len() + stored.body.len());
        value.extend_from_slice(&u32::try_from(written.len()).unwrap_or(0).to_be_bytes());
        value.extend_from_slice(&written);
        value.extend_from_slice(&stored.body);
        let size = value.len() as u64;
        let (key, place) = self.keys(&label.address);
        let command = Command::new(&PUT, vec![key, place])
            .arg(if since.place.is_some() { "1" } else { "0" })
            .arg(since.place.unwrap_or_default().to_vec())
            .arg(scripts::names(&head.variant))
            .arg(wire::digest_of(&head.variant))
            .arg(value)
            .arg(left.as_millis().to_string())
            .arg(self.variants.to_string())
            .arg(format!("p{}", fastrand::u64(1..)));
        let mut queue = locked(&self.queue);
        if queue.waiting.len() >= MAX_QUEUED.0 || queue.bytes + size > MAX_QUEUED.1 {
            return self.meters.dropped.add(1);
        }
        queue.bytes += size;
        queue.waiting.push_back((command, size));
        drop(queue);
        self.work.notify_one();
    }

    /// Forgets a place. While Redis is away, what is there is found again when it is back: it is purged by its URL.
    pub(super) fn invalidate(&self, place: &[u8; 16], url: &str) {
        let command = Command::new(&INVALIDATE, vec![self.place(place)]).arg(fastrand::u64(1..).to_string());
        if !self.link.tell(command) {
            self.announce(Purge::of_url(url));
        }
    }

    /// Tells all gateways of a purge.
    pub(super) fn announce(&self, purge: Purge) {
        let mut state = locked(&self.state);
        if state.unsent.len() as u64 >= REMEMBERED {
            // More than can be told apart: all go.
            state.unsent.clear();
            state.unsent.push_back(Purge::of_all());
        } else {
            state.unsent.push_back(purge);
        }
        self.unsent.store(state.unsent.len() as u64, Relaxed);
        drop(state);
        self.work.notify_one();
    }

    /// Sends what is to be sent and reads others' purges, which `carry_out` applies, for as long as the plugin is in use.
    pub(super) async fn run(
        self: Arc<Self>,
        carry_out: Arc<dyn Fn(&Purge) + Send + Sync>,
        mut control: TaskControl,
    ) -> Result<(), TaskError> {
        let link = self.link.clone().run(control.clone());
        let work = async {
            let _one = tokio::select! {
                one = self.held.lock() => one,
                () = control.ended() => return,
            };
            // When purges are read again, and when they are not read before, after a failure.
            let (mut next, mut not_before) = (Instant::now(), Instant::now());
            while !control.is_ended() {
                let now = Instant::now();
                if self.link.is_up() {
                    let is_time = next <= now || self.unsent.load(Relaxed) > 0;
                    if is_time && not_before <= now {
                        match self.follow(&carry_out).await {
                            Ok(()) => next = now + EVERY,
                            Err(Away) => not_before = now + EVERY / 10,
                        }
                    }
                    self.send().await;
                }
                let is_pressing = self.unsent.load(Relaxed) > 0 && not_before <= Instant::now();
                let until = match self.link.is_up() {
                    true if is_pressing || !locked(&self.queue).waiting.is_empty() => continue,
                    true => next.max(not_before),
                    false => now + EVERY / 10,
                };
                tokio::select! {
                    () = self.work.notified(), if self.link.is_up() => {}
                    () = tokio::time::sleep_until(until) => {}
                    () = control.ended() => {}
                }
            }
        };
        let (linked, ()) = tokio::join!(link, work);
        linked
    }

    /// Sends some responses.
    async fn send(&self) {
        let some: Vec<Command> = {
            let mut queue = locked(&self.queue);
            let most = queue.waiting.len().min(AT_ONCE);
            let some: Vec<(Command, u64)> = queue.waiting.drain(..most).collect();
            queue.bytes -= some.iter().map(|(_, size)| size).sum::<u64>();
            some.into_iter().map(|(command, _)| command).collect()
        };
        let answers = futures_util::future::join_all(some.into_iter().map(|command| self.link.ask(command)));
        for answer in answers.await {
            match answer {
                Ok(Value::Int(1)) => self.meters.written.add(1),
                Ok(_) => self.meters.overtaken.add(1),
                Err(Away) => self.meters.failed.add(1),
            }
        }
    }

    /// Tells Redis of this gateway's purges, one at a time, and carries out those of others.
    async fn follow(&self, carry_out: &Arc<dyn Fn(&Purge) + Send + Sync>) -> Result<(), Away> {
        loop {
            let (known, own) = {
                let state = locked(&self.state);
                (state.mark.unwrap_or_default(), state.unsent.front().cloned())
            };
            let id = fastrand::u64(1..);
            let text = own.as_ref().map_or(String::new(), |purge| purge.written(id));
            let command = Command::new(&PURGES, vec![format!("{}:cache:purges", self.link.prefix())])
                .arg(fastrand::u64(1..=u64::MAX >> 1).to_string())
                .arg(known.epoch.to_string())
                .arg(known.number.to_string())
                .arg(text)
                .arg(REMEMBERED.to_string());
            let history = scripts::history(self.link.ask(command).await?).ok_or(Away)?;
            let others = self.learn(history, own.is_some().then_some(id));
            for purge in others {
                // It looks at every entry there is, which is no work for this thread.
                let attempt = || {
                    let (carry_out, purge) = (carry_out.clone(), purge.clone());
                    self.world.run_blocking(move || carry_out(&purge))
                };
                while attempt().await.is_err() {
                    tokio::time::sleep(EVERY / 10).await;
                }
            }
            if own.is_none() || self.unsent.load(Relaxed) == 0 {
                return Ok(());
            }
        }
    }

    /// Takes over what Redis says about purges; what others purged is to be carried out.
    fn learn(&self, history: scripts::History, told: Option<u64>) -> Vec<Purge> {
        let mut state = locked(&self.state);
        if let Some(id) = told {
            state.unsent.pop_front();
            self.unsent.store(state.unsent.len() as u64, Relaxed);
            state.own.push_back(id);
            if state.own.len() as u64 > REMEMBERED {
                state.own.pop_front();
            }
        }
        let is_first = state.mark.is_none();
        let mark = Mark { epoch: history.epoch, number: history.number };
        let is_other = state.mark.is_some_and(|known| known.epoch != mark.epoch);
        if is_other {
            state.purges.clear();
        }
        state.mark = Some(mark);
        let mut others = Vec::new();
        for (number, id, purge) in history.purges {
            if !is_first && !state.own.contains(&id) {
                others.push(purge.clone());
            }
            state.purges.push_back((number, purge));
            if state.purges.len() as u64 > REMEMBERED {
                state.purges.pop_front();
            }
        }
        others
    }
}
