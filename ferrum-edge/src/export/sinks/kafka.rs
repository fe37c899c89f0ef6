//! Records to a topic of Kafka: each batch of lines is one request to produce, one record a line, to the topic's partitions in turn.
//!
//! A client of our own, since none that exists can use this gateway's TLS: it speaks Metadata 4, Produce 7, SaslHandshake 1 and
//! SaslAuthenticate 0 (Kafka 2.1 and later), asks one request at a time, and leaves retries to whoever delivers. A request whose
//! answer is lost is sent again, so that records may come twice, never that they are counted as sent and are not there.

mod connection;
mod scram;
mod wire;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use gateway_core::config::model::{KafkaAcks, LogKafka};
use gateway_core::config::problem::Problems;
use gateway_core::plugin::World;
use gateway_telemetry::batch::Chunk;
use gateway_telemetry::deliver::{Deliver, Delivered, Failed};
use tokio::sync::Mutex;

use connection::BrokerConnection;
use wire::{Broker, Partition, Topic};

/// How long one delivery may take, connections included.
const TIMEOUT: Duration = Duration::from_secs(20);
/// How long brokers may take to have a batch on all replicas.
const ACKS_TIMEOUT: Duration = Duration::from_secs(10);
/// After so long it is asked again who leads which partition.
const STALE: Duration = Duration::from_secs(300);
/// Connections that are kept; clusters have fewer brokers that lead partitions of one topic.
const MAX_CONNECTIONS: usize = 64;
/// Bytes of a batch, from which on it is sent. Brokers take 1 MiB unless their settings say otherwise.
pub(super) const CHUNK_BYTES: usize = 512 << 10;

/// Sends batches to a topic.
pub(super) struct KafkaSender {
    rules: Arc<LogKafka>,
    world: World,
    state: Mutex<ClusterState>,
}

/// What is known of the cluster, and the connections to it.
#[derive(Default)]
struct ClusterState {
    known: Option<TopicLayout>,
    connections: HashMap<Broker, BrokerConnection>,
    turn: usize,
}

struct TopicLayout {
    /// Partitions with a leader.
    partitions: Vec<(i32, Broker)>,
    at: Instant,
}

impl KafkaSender {
    /// A sender to this topic.
    ///
    /// # Errors
    /// When what is trusted can't be read.
    pub(super) fn new(rules: &LogKafka, world: &World) -> Result<Self, Problems> {
        for (host, port) in &rules.brokers {
            BrokerConnection::client(rules, &Broker { host: host.to_string(), port: *port }, world)?;
        }
        Ok(Self { rules: Arc::new(rules.clone()), world: world.clone(), state: Mutex::default() })
    }

    async fn connection<'s>(
        &self,
        state: &'s mut ClusterState,
        broker: &Broker,
    ) -> Result<&'s mut BrokerConnection, Failed> {
        if !state.connections.contains_key(broker) {
            if state.connections.len() >= MAX_CONNECTIONS {
                state.connections.clear();
            }
            let opened = BrokerConnection::open(&self.rules, broker, &self.world).await?;
            state.connections.insert(broker.clone(), opened);
        }
        state.connections.get_mut(broker).ok_or_else(|| Failed::passing("the connection is gone"))
    }

    /// Learns who leads which partition, from the first broker that says so.
    async fn learn(&self, state: &mut ClusterState) -> Result<(), Failed> {
        let mut failed = Failed::passing("there is no broker");
        for (host, port) in &self.rules.brokers {
            let broker = Broker { host: host.to_string(), port: *port };
            let asked = match self.connection(state, &broker).await {
                Ok(connection) => {
                    connection.ask(wire::METADATA, &wire::ask_metadata(&self.rules.topic)).await
                }
                Err(error) => Err(error),
            };
            let learned = asked.and_then(|answer| {
                wire::read_metadata(&answer)
                    .ok_or_else(|| Failed::passing("the broker's answer is malformed"))
            });
            match learned.and_then(|(brokers, topic)| partitions(brokers, topic)) {
                Ok(partitions) => {
                    state.known = Some(TopicLayout { partitions, at: Instant::now() });
                    return Ok(());
                }
                Err(error) => {
                    state.connections.remove(&broker);
                    failed = Failed { message: format!("{host}:{port}: {}", error.message), ..error };
                }
            }
        }
        Err(failed)
    }

    /// Sends a chunk; one that is too large for the topic in halves, so that only a record that is too large by itself is refused.
    async fn send(&self, state: &mut ClusterState, chunk: &Chunk) -> Result<Delivered, Failed> {
        let error = self.produce(state, chunk).await?;
        if !is_too_large(error) {
            return outcome(error, chunk);
        }
        let Some([first, second]) = halves(chunk) else { return outcome(error, chunk) };
        let mut rest = vec![second, first];
        let mut delivered = Delivered::default();
        while let Some(part) = rest.pop() {
            let error = self.produce(state, &part).await?;
            let Some([first, second]) = halves(&part).filter(|_| is_too_large(error)) else {
                let outcome = outcome(error, &part)?;
                if outcome.refused > 0 {
                    delivered.refused += outcome.refused;
                    delivered.why = outcome.why;
                }
                continue;
            };
            rest.extend([second, first]);
        }
        Ok(delivered)
    }

    /// Sends a chunk in one request; what the broker's answer says of it.
    async fn produce(&self, state: &mut ClusterState, chunk: &Chunk) -> Result<i16, Failed> {
        if state.known.as_ref().is_none_or(|known| known.at.elapsed() > STALE) {
            self.learn(state).await?;
        }
        state.turn = state.turn.wrapping_add(1);
        let turn = state.turn;
        let chosen = state
            .known
            .as_ref()
            .and_then(|known| known.partitions.get(turn % known.partitions.len().max(1)).cloned());
        let (partition, broker) = chosen.ok_or_else(|| Failed::passing("no partition has a leader"))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let batch = wire::batch(&chunk.bytes, i64::try_from(now.as_millis()).unwrap_or(0), self.rules.gzip);
        let acks = match self.rules.acks {
            KafkaAcks::All => -1,
            KafkaAcks::Leader => 1,
        };
        let request = wire::ask_produce(&self.rules.topic, partition, acks, ACKS_TIMEOUT, &batch);
        let answer = self.connection(state, &broker).await?.ask(wire::PRODUCE, &request).await?;
        wire::read_produce(&answer).ok_or_else(|| Failed::passing("the broker's answer is malformed"))
    }
}

/// The partitions of the topic that have a leader.
fn partitions(brokers: HashMap<i32, Broker>, topic: Topic) -> Result<Vec<(i32, Broker)>, Failed> {
    if topic.error != 0 {
        return Err(refused(topic.error));
    }
    let leaders = topic.partitions.iter();
    let found: Vec<_> = leaders
        .filter_map(|Partition { index, leader }| Some((*index, brokers.get(leader)?.clone())))
        .collect();
    if found.is_empty() { Err(Failed::passing("no partition of the topic has a leader")) } else { Ok(found) }
}

/// The lines of a chunk in two; `None` for one line.
fn halves(chunk: &Chunk) -> Option<[Chunk; 2]> {
    let items = chunk.items / 2;
    let end = memchr::memchr_iter(b'\n', &chunk.bytes).nth(items.checked_sub(1)?)?;
    let part = |bytes: &[u8], items| Chunk { bytes: bytes.to_vec(), items };
    Some([part(chunk.bytes.get(..end)?, items), part(chunk.bytes.get(end + 1..)?, chunk.items - items)])
}

/// Whether fewer records may do. Those that are invalid are so in any company.
const fn is_too_large(error: i16) -> bool {
    matches!(error, wire::MESSAGE_TOO_LARGE | wire::RECORD_LIST_TOO_LARGE)
}

/// What an error of the broker comes to.
fn outcome(error: i16, chunk: &Chunk) -> Result<Delivered, Failed> {
    match error {
        0 => Ok(Delivered::default()),
        // The broker has the batch and does not want it: too large, or records that it takes for invalid.
        wire::MESSAGE_TOO_LARGE | wire::RECORD_LIST_TOO_LARGE | wire::INVALID_RECORD => {
            Ok(Delivered { refused: chunk.items as u64, why: refused(error).message })
        }
        error => Err(refused(error)),
    }
}

fn refused(error: i16) -> Failed {
    let name = wire::error_name(error);
    let message = format!("the broker says {name} ({error})");
    if wire::is_lasting(error) { Failed::lasting(message) } else { Failed::passing(message) }
}

impl Deliver for KafkaSender {
    async fn deliver(&self, chunk: &Chunk) -> Result<Delivered, Failed> {
        let mut state = self.state.lock().await;
        let done = tokio::time::timeout(TIMEOUT, self.send(&mut state, chunk)).await;
        let done = done.unwrap_or_else(|_| Err(Failed::passing("the brokers did not answer in time")));
        if done.is_err() {
            // Whatever it was: the next time begins with what the cluster says then. An answer that comes late is never taken for
            // that of another request.
            *state = ClusterState { turn: state.turn, ..ClusterState::default() };
        }
        done
    }
}

#[cfg(test)]
mod tests;
