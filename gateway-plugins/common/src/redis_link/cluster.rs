//! Connections of a cluster to its nodes.
//!
//! The library opens them by itself, whenever it learns of a node, through a function that gets a node's address and login and
//! nothing else. So a cluster is given a password that nobody uses, by which that function finds how servers are reached.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::cluster_async::Connect;
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ErrorKind, IntoConnectionInfo, RedisConnectionInfo, RedisError,
    RedisFuture,
};

use super::transport::{BoundedConnection, Transport};

/// How the clusters in use are reached, by the password that names them. Each is held by its connection.
static REACHED: LazyLock<Mutex<HashMap<String, Arc<Reached>>>> = LazyLock::new(Mutex::default);

fn reached() -> MutexGuard<'static, HashMap<String, Arc<Reached>>> {
    REACHED.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Reached {
    transport: Transport,
    settings: RedisConnectionInfo,
    connect_timeout: Duration,
}

/// A cluster's way to its nodes, for as long as it lives.
pub(super) struct NodeAccess {
    /// The password that names it.
    pub(super) name: String,
}

impl NodeAccess {
    pub(super) fn new(
        transport: Transport,
        settings: RedisConnectionInfo,
        connect_timeout: Duration,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("cluster {}", NEXT.fetch_add(1, Relaxed));
        reached().insert(name.clone(), Arc::new(Reached { transport, settings, connect_timeout }));
        Self { name }
    }
}

impl Drop for NodeAccess {
    fn drop(&mut self) {
        reached().remove(&self.name);
    }
}

impl Connect for BoundedConnection {
    fn connect_with_config<'a, T>(node: T, config: AsyncConnectionConfig) -> RedisFuture<'a, Self>
    where
        T: IntoConnectionInfo + Send + 'a,
    {
        Box::pin(async move {
            let node = node.into_connection_info()?;
            let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) = node.addr()
            else {
                return Err(RedisError::from((ErrorKind::InvalidClientConfig, "a node without an address")));
            };
            let name = node.redis_settings().password().unwrap_or_default();
            let way = reached().get(name).cloned();
            // A task of the library's may outlive its cluster for a moment.
            let way = way.ok_or_else(|| {
                RedisError::from((ErrorKind::ClusterConnectionNotFound, "the cluster is left"))
            })?;
            let opening = way.transport.open(host, *port, &way.settings, config);
            match tokio::time::timeout(way.connect_timeout, opening).await {
                Ok(opened) => opened,
                Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
            }
        })
    }
}
