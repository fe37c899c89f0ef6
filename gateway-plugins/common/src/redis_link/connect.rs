//! Connections to one server, to a cluster, or to the master that sentinels know.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gateway_core::config::model::{RedisMode, RedisServer};
use gateway_core::plugin::world::files::Files;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult, TlsMode, Value,
};

use super::cluster::NodeAccess;
use super::transport::{BoundedConnection, RedisTlsError, Transport, settings};

/// A connection; a clone is the same one.
#[derive(Clone)]
pub(super) enum RedisConnection {
    One(BoundedConnection),
    Cluster { connection: ClusterConnection<BoundedConnection>, _access: Arc<NodeAccess> },
}

impl RedisConnection {
    /// Whether it has several nodes, of which one that is away does not end it: it connects to each again by itself.
    pub(super) fn has_nodes(&self) -> bool {
        matches!(self, Self::Cluster { .. })
    }

    pub(super) async fn invoke(&mut self, call: &redis::ScriptInvocation<'_>) -> RedisResult<Value> {
        match self {
            Self::One(connection) => call.invoke_async(connection).await,
            Self::Cluster { connection, .. } => call.invoke_async(connection).await,
        }
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Tls(#[from] RedisTlsError),
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error("not in time")]
    Late,
}

/// Connects, within the time for it. Answers may have what plugins store in one place, and [`super::transport::MAX_ANSWER`].
pub(super) async fn connect(
    server: &RedisServer,
    files: &Arc<dyn Files>,
    stored: &Arc<AtomicU64>,
) -> Result<RedisConnection, ConnectError> {
    let dial = Dial { server, transport: Transport::of(server, files, stored.clone())? };
    let connecting = async {
        match &server.mode {
            RedisMode::Single => dial.single().await,
            RedisMode::Cluster => dial.cluster().await,
            RedisMode::Sentinel(master) => dial.sentinel(master).await,
        }
    };
    match tokio::time::timeout(server.connect_timeout, connecting).await {
        Ok(connected) => Ok(connected?),
        Err(_) => Err(ConnectError::Late),
    }
}

struct Dial<'a> {
    server: &'a RedisServer,
    transport: Transport,
}

impl Dial<'_> {
    fn nodes(&self) -> RedisResult<Vec<ConnectionInfo>> {
        self.server.urls.iter().map(|url| (&**url).into_connection_info()).collect()
    }

    async fn single(self) -> RedisResult<RedisConnection> {
        let node = self.nodes()?.into_iter().next().ok_or_else(no_node)?;
        let settings = settings(self.server.login.as_ref(), self.server.database);
        self.open(&node, &settings).await.map(RedisConnection::One)
    }

    async fn cluster(self) -> RedisResult<RedisConnection> {
        let nodes = self.nodes()?;
        let settings = settings(self.server.login.as_ref(), 0);
        let access = NodeAccess::new(self.transport, settings, self.server.connect_timeout);
        let mut builder = ClusterClientBuilder::new(nodes)
            .connection_timeout(self.server.connect_timeout)
            .response_timeout(self.server.timeout * GIVE_UP)
            // Nobody waits long enough for many attempts at a node that is away.
            .retries(RETRIES)
            .min_retry_wait(RETRY_WAITS.0)
            .max_retry_wait(RETRY_WAITS.1)
            .password(access.name.clone());
        if self.server.is_encrypted {
            builder = builder.tls(TlsMode::Secure);
        }
        let connection = builder.build()?.get_async_generic_connection().await?;
        Ok(RedisConnection::Cluster { connection, _access: Arc::new(access) })
    }

    /// Asks the sentinels one after the other; why the last one was of no use, if none was.
    async fn sentinel(self, master: &str) -> RedisResult<RedisConnection> {
        let mut why = no_node();
        for sentinel in self.nodes()? {
            match self.master(&sentinel, master).await {
                Ok(connection) => return Ok(RedisConnection::One(connection)),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// The master that one sentinel names, if it says so of itself.
    async fn master(&self, sentinel: &ConnectionInfo, master: &str) -> RedisResult<BoundedConnection> {
        let login = settings(self.server.sentinel_login.as_ref(), 0);
        let mut asked = self.open(sentinel, &login).await?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        let named: Option<(String, u16)> = command.query_async(&mut asked).await?;
        let (host, port) = named.ok_or_else(|| {
            RedisError::from((ErrorKind::MasterNameNotFoundBySentinel, "the sentinels know no such master"))
        })?;
        let login = settings(self.server.login.as_ref(), self.server.database);
        let mut connection = self.transport.open(&host, port, &login, self.config()).await?;
        // A sentinel may not have heard yet that it is a replica now.
        let role: Value = redis::cmd("ROLE").query_async(&mut connection).await?;
        let is_master = matches!(&role, Value::Array(role) if matches!(role.first(), Some(Value::BulkString(it)) if it == b"master"));
        match is_master {
            true => Ok(connection),
            false => {
                Err(RedisError::from((ErrorKind::Client, "the server that the sentinels name is no master")))
            }
        }
    }

    async fn open(
        &self,
        node: &ConnectionInfo,
        settings: &RedisConnectionInfo,
    ) -> RedisResult<BoundedConnection> {
        match node.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                self.transport.open(host, *port, settings, self.config()).await
            }
            _ => Err(no_node()),
        }
    }

    fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.server.connect_timeout))
            .set_response_timeout(Some(self.server.timeout * GIVE_UP))
    }
}

/// Further attempts at a cluster's nodes for one command, and the pauses between them in milliseconds.
const RETRIES: u32 = 8;
const RETRY_WAITS: (u64, u64) = (10, 100);
/// Answers that take so many times as long as anybody waits end the connection.
pub(super) const GIVE_UP: u32 = 10;

fn no_node() -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, "there is no server"))
}
