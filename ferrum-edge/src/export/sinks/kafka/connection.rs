//! One connection to a broker: one request at a time, after the client has been recognised.

use std::sync::Arc;

use gateway_core::config::model::{KafkaMechanism, LogKafka};
use gateway_core::config::problem::Problems;
use gateway_core::http::tunnel::Tunnel;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::{Client, Endpoint, Server};
use gateway_telemetry::deliver::Failed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::scram::{Hash, Scram};
use super::wire::{self, Broker};

/// Bytes of an answer; that about one topic of thousands of partitions has some hundred thousand.
const MAX_ANSWER: usize = 4 << 20;
/// Bytes of an answer before the client has been recognised.
const MAX_SASL_ANSWER: usize = 64 << 10;

/// A connection.
pub(super) struct BrokerConnection {
    stream: Tunnel,
    next: i32,
    limit: usize,
}

fn passing(error: impl std::fmt::Display) -> Failed {
    Failed::passing(error.to_string())
}

impl BrokerConnection {
    /// What opens streams to this broker.
    ///
    /// # Errors
    /// When what is trusted can't be read.
    pub(super) fn client(rules: &LogKafka, broker: &Broker, world: &World) -> Result<Client, Problems> {
        let address = Server::Address { host: Arc::from(broker.host.as_str()), port: broker.port };
        let endpoint = Endpoint::new(address, rules.tls).trusting(rules.ca_path.clone());
        world.client(endpoint)
    }

    /// Connects, and says who the client is where that is wanted.
    ///
    /// # Errors
    /// What went wrong; all of it may pass.
    pub(super) async fn open(rules: &LogKafka, broker: &Broker, world: &World) -> Result<Self, Failed> {
        let client = Self::client(rules, broker, world).map_err(passing)?;
        let stream = client.open().await.map_err(passing)?;
        let mut connection = Self { stream, next: 0, limit: MAX_SASL_ANSWER };
        if let Some((mechanism, user, password)) = &rules.sasl {
            connection.authenticate(*mechanism, user, password).await?;
        }
        connection.limit = MAX_ANSWER;
        Ok(connection)
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// When the connection fails; it is of no use any more.
    pub(super) async fn ask(&mut self, api: wire::Api, body: &[u8]) -> Result<Vec<u8>, Failed> {
        self.next = self.next.wrapping_add(1);
        let request = wire::frame(api, self.next, body);
        self.stream.write_all(&request).await.map_err(passing)?;
        self.stream.flush().await.map_err(passing)?;
        let length = self.stream.read_i32().await.map_err(passing)?;
        let length = usize::try_from(length).ok().filter(|length| (4..=self.limit).contains(length));
        let length = length.ok_or_else(|| Failed::passing("the broker's answer has no usable length"))?;
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).await.map_err(passing)?;
        let body = answer.split_off(4);
        if answer != self.next.to_be_bytes() {
            return Err(Failed::passing("the broker answers another request"));
        }
        Ok(body)
    }

    async fn authenticate(
        &mut self,
        mechanism: KafkaMechanism,
        user: &str,
        password: &str,
    ) -> Result<(), Failed> {
        let name = match mechanism {
            KafkaMechanism::Plain => "PLAIN",
            KafkaMechanism::ScramSha256 => "SCRAM-SHA-256",
            KafkaMechanism::ScramSha512 => "SCRAM-SHA-512",
        };
        let answer = self.ask(wire::SASL_HANDSHAKE, &wire::text(name)).await?;
        match wire::WireReader(&answer).i16() {
            Some(0) => {}
            Some(error) => {
                let why = wire::error_name(error);
                return Err(Failed::passing(format!(
                    "the broker does not take SASL {name}: {why} ({error})"
                )));
            }
            None => return Err(Failed::passing("the broker's answer is malformed")),
        }
        let hash = match mechanism {
            KafkaMechanism::Plain => {
                return self.say(format!("\0{user}\0{password}").as_bytes()).await.map(drop);
            }
            KafkaMechanism::ScramSha256 => Hash::Sha256,
            KafkaMechanism::ScramSha512 => Hash::Sha512,
        };
        let scram = Scram::new(hash, user);
        let challenge = self.say(scram.first().as_bytes()).await?;
        let (last, expected) = scram.last(&challenge, password).map_err(Failed::passing)?;
        let signature = self.say(last.as_bytes()).await?;
        // The broker knows the password as well.
        if signature == expected.as_bytes() {
            return Ok(());
        }
        Err(Failed::passing("the broker does not prove that it knows the password"))
    }

    /// One step of SASL.
    async fn say(&mut self, bytes: &[u8]) -> Result<Vec<u8>, Failed> {
        let answer = self.ask(wire::SASL_AUTHENTICATE, &wire::bytes(bytes)).await?;
        let mut reader = wire::WireReader(&answer);
        let read = (|| Some((reader.i16()?, reader.nullable_text()?, reader.bytes()?.to_vec())))();
        match read {
            Some((0, _, bytes)) => Ok(bytes),
            Some((error, why, _)) => {
                let why = why.unwrap_or_default();
                Err(Failed::passing(format!("{} ({error}): {why}", wire::error_name(error))))
            }
            None => Err(Failed::passing("the broker's answer is malformed")),
        }
    }
}
