//! The connections of `gateway.redis`: which are in use, and who holds them.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::watch;

use crate::config::model::{RedisServer, RedisServers};

/// An attempt to connect, over when it has succeeded or failed.
pub type RedisAttempt = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Who holds a connection of `gateway.redis` for those plugin configs that name it.
pub trait RedisHolder: Send + Sync {
    /// Its name in `gateway.redis`.
    fn name(&self) -> &str;

    /// Connects to these servers before they are used under its name; `None` where there was an attempt at them and they are in use.
    fn prepare(self: Arc<Self>, server: &Arc<RedisServer>) -> Option<RedisAttempt>;

    /// Why there is no connection, or why the server rejected the last command that failed; `None` before the first failure.
    fn last_error(&self) -> Option<String>;

    /// Other servers may be in use now, or those that it prepared for may never be.
    fn settle(&self);
}

/// What is in use, and by whom.
#[derive(Default)]
pub(super) struct RedisLinks {
    pub(super) servers: watch::Sender<RedisServers>,
    holders: Mutex<Vec<Weak<dyn RedisHolder>>>,
}

impl RedisLinks {
    pub(super) fn add(&self, holder: &Arc<dyn RedisHolder>) {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.retain(|known| known.strong_count() > 0);
        let added = Arc::downgrade(holder);
        if !holders.iter().any(|known| known.ptr_eq(&added)) {
            holders.push(added);
        }
    }

    fn holders(&self) -> Vec<Arc<dyn RedisHolder>> {
        let holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn last_error(&self, name: &str) -> Option<String> {
        self.holders().iter().find(|holder| holder.name() == name)?.last_error()
    }

    pub(super) fn prepare(&self, servers: &RedisServers) -> Vec<RedisAttempt> {
        let named = self
            .holders()
            .into_iter()
            .filter_map(|holder| servers.get(holder.name()).cloned().zip(Some(holder)));
        named.filter_map(|(server, holder)| holder.prepare(&server)).collect()
    }

    pub(super) fn put(&self, servers: &RedisServers) {
        self.servers.send_if_modified(|known| {
            let is_new = *known != *servers;
            if is_new {
                known.clone_from(servers);
            }
            is_new
        });
        self.holders().iter().for_each(|holder| holder.settle());
    }
}
