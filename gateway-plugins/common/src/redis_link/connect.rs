//! Connections to one server, to a cluster, or to the master that sentinels know.

use std::path::Path;
use std::sync::Arc;

use gateway_core::config::model::{RedisMode, RedisServer};
use gateway_core::plugin::world::files::Files;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionInfo, IntoConnectionInfo, RedisError,
    RedisResult, TlsCertificates, TlsMode,
};

/// Bytes of a file with certificates.
const MAX_FILE: u64 = 4 << 20;

/// A connection; a clone is the same one.
#[derive(Clone)]
pub(super) enum RedisConnection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl RedisConnection {
    /// Whether it has several nodes, of which one that is away does not end it: it connects to each again by itself.
    pub(super) fn has_nodes(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(super) async fn invoke(&mut self, call: &redis::ScriptInvocation<'_>) -> RedisResult<redis::Value> {
        match self {
            Self::One(connection) => call.invoke_async(connection).await,
            Self::Cluster(connection) => call.invoke_async(connection).await,
        }
    }
}

/// Connects, within the time for it.
pub(super) async fn connect(server: &RedisServer, files: &Arc<dyn Files>) -> Result<RedisConnection, String> {
    if server.is_encrypted {
        // The one TLS provider of the process; where it is known already, that is the same one.
        drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    }
    let dial = Dial { server, certificates: certificates(server, files)? };
    let connecting = async {
        match &server.mode {
            RedisMode::Single => dial.single().await,
            RedisMode::Cluster => dial.cluster().await,
            RedisMode::Sentinel(master) => dial.sentinel(master).await,
        }
    };
    match tokio::time::timeout(server.connect_timeout, connecting).await {
        Ok(connected) => connected.map_err(|error| error.to_string()),
        Err(_) => Err("not in time".into()),
    }
}

/// Reads the files anew each time, so that renewed certificates are used.
fn certificates(server: &RedisServer, files: &Arc<dyn Files>) -> Result<TlsCertificates, String> {
    let read = |path: &Path| match files.read(path, MAX_FILE) {
        Ok(bytes) => Ok(bytes.to_vec()),
        Err(error) => Err(format!("{} can't be read: {error}", path.display())),
    };
    let client_tls = match &server.client_cert {
        Some((cert, key)) => Some(ClientTlsConfig { client_cert: read(cert)?, client_key: read(key)? }),
        None => None,
    };
    let root_cert = server.ca_path.as_deref().map(read).transpose()?;
    Ok(TlsCertificates { client_tls, root_cert })
}

struct Dial<'a> {
    server: &'a RedisServer,
    certificates: TlsCertificates,
}

impl Dial<'_> {
    fn nodes(&self) -> RedisResult<Vec<ConnectionInfo>> {
        self.server.urls.iter().map(|url| (&**url).into_connection_info()).collect()
    }

    async fn single(self) -> RedisResult<RedisConnection> {
        let node = self.nodes()?.into_iter().next().ok_or_else(no_node)?;
        let mut settings = node.redis_settings().clone().set_db(self.server.database.into());
        if let Some(login) = &self.server.login {
            if let Some(username) = &login.username {
                settings = settings.set_username(username);
            }
            settings = settings.set_password(&login.password);
        }
        let node = node.set_redis_settings(settings);
        let config = self.config();
        let client = match self.server.is_encrypted {
            true => Client::build_with_tls(node, self.certificates)?,
            false => Client::open(node)?,
        };
        client.get_multiplexed_async_connection_with_config(&config).await.map(RedisConnection::One)
    }

    async fn cluster(self) -> RedisResult<RedisConnection> {
        let mut builder = ClusterClientBuilder::new(self.nodes()?)
            .connection_timeout(self.server.connect_timeout)
            .response_timeout(self.server.timeout * GIVE_UP)
            // Nobody waits long enough for many attempts at a node that is away.
            .retries(RETRIES)
            .min_retry_wait(RETRY_WAITS.0)
            .max_retry_wait(RETRY_WAITS.1);
        if let Some(login) = &self.server.login {
            if let Some(username) = &login.username {
                builder = builder.username(username.as_ref());
            }
            builder = builder.password(login.password.as_ref());
        }
        if self.server.is_encrypted {
            builder = builder.tls(TlsMode::Secure).certs(self.certificates);
        }
        builder.build()?.get_async_connection().await.map(RedisConnection::Cluster)
    }

    async fn sentinel(self, master: &str) -> RedisResult<RedisConnection> {
        let nodes = self.nodes()?;
        let sentinels = nodes.iter().map(|node| node.addr().clone());
        let mut builder = SentinelClientBuilder::new(sentinels, master, SentinelServerType::Master)?
            .set_client_to_redis_db(self.server.database.into());
        if let Some(login) = &self.server.login {
            if let Some(username) = &login.username {
                builder = builder.set_client_to_redis_username(username);
            }
            builder = builder.set_client_to_redis_password(&login.password);
        }
        if let Some(login) = &self.server.sentinel_login {
            if let Some(username) = &login.username {
                builder = builder.set_client_to_sentinel_username(username);
            }
            builder = builder.set_client_to_sentinel_password(&login.password);
        }
        let config = self.config();
        if self.server.is_encrypted {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(self.certificates.clone())
                .set_client_to_sentinel_certificates(self.certificates);
        }
        let mut client = builder.build()?;
        client.get_async_connection_with_config(&config).await.map(RedisConnection::One)
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
    RedisError::from((redis::ErrorKind::InvalidClientConfig, "there is no server"))
}
