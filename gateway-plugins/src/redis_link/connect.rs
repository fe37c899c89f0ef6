//! Connections to one server, to a cluster, or to the master that sentinels know.

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, RedisError, RedisResult, TlsCertificates, TlsMode,
};

use super::settings::{RedisMode, Server};

/// A connection; a clone is the same one.
#[derive(Clone)]
pub(super) enum Connection {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Connection {
    pub(super) async fn invoke(&mut self, call: &redis::ScriptInvocation<'_>) -> RedisResult<redis::Value> {
        match self {
            Self::One(connection) => call.invoke_async(connection).await,
            Self::Cluster(connection) => call.invoke_async(connection).await,
        }
    }
}

impl Server {
    /// Connects, within the time for it.
    pub(super) async fn connect(&self) -> Result<Connection, String> {
        if self.encrypted {
            // The one TLS provider of the process; where it is known already, that is the same one.
            drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
        }
        let connecting = async {
            match self.mode {
                RedisMode::Single => self.single().await,
                RedisMode::Cluster => self.cluster().await,
                RedisMode::Sentinel => self.sentinel().await,
            }
        };
        match tokio::time::timeout(self.connect_timeout, connecting).await {
            Ok(connected) => connected.map_err(|error| format!("can't connect to Redis: {error}")),
            Err(_) => Err("can't connect to Redis in time".into()),
        }
    }

    fn certificates(&self) -> TlsCertificates {
        TlsCertificates { client_tls: None, root_cert: self.roots.clone() }
    }

    async fn single(&self) -> RedisResult<Connection> {
        let node = self.nodes.first().cloned().ok_or_else(no_node)?;
        let mut settings = node.redis_settings().clone().set_db(self.database);
        if let Some(username) = &self.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let node: ConnectionInfo = node.set_redis_settings(settings);
        let client = match self.encrypted {
            true => Client::build_with_tls(node, self.certificates())?,
            false => Client::open(node)?,
        };
        let config = self.config();
        client.get_multiplexed_async_connection_with_config(&config).await.map(Connection::One)
    }

    async fn cluster(&self) -> RedisResult<Connection> {
        let mut builder = ClusterClientBuilder::new(self.nodes.clone())
            .connection_timeout(self.connect_timeout)
            .response_timeout(self.timeout * 10);
        if let Some(username) = &self.username {
            builder = builder.username(username);
        }
        if let Some(password) = &self.password {
            builder = builder.password(password);
        }
        if self.encrypted {
            builder = builder.tls(TlsMode::Secure).certs(self.certificates());
        }
        builder.build()?.get_async_connection().await.map(Connection::Cluster)
    }

    async fn sentinel(&self) -> RedisResult<Connection> {
        let sentinels = self.nodes.iter().map(|node| node.addr().clone());
        let mut builder = SentinelClientBuilder::new(sentinels, &self.master, SentinelServerType::Master)?
            .set_client_to_redis_db(self.database);
        if let Some(username) = &self.username {
            builder = builder.set_client_to_redis_username(username);
        }
        if let Some(password) = &self.password {
            builder = builder.set_client_to_redis_password(password);
        }
        if self.encrypted {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_tls_mode(TlsMode::Secure)
                .set_client_to_redis_certificates(self.certificates())
                .set_client_to_sentinel_certificates(self.certificates());
        }
        let mut client = builder.build()?;
        client.get_async_connection_with_config(&self.config()).await.map(Connection::One)
    }

    /// Answers that take much longer than anybody waits end the connection.
    fn config(&self) -> AsyncConnectionConfig {
        AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(Some(self.timeout * 10))
    }
}

fn no_node() -> RedisError {
    RedisError::from((redis::ErrorKind::InvalidClientConfig, "there is no server"))
}
