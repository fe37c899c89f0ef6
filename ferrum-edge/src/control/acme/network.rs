//! Requests to a CA over the gateway's own calls: its names, TLS policy and pools, or the proxy of the environment.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use gateway_core::http::body::Body;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::{Client, Endpoint};
use http::Request;

use super::client::{Sending, Transport};
use super::error::TransportError;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The network. A CA's resources may be on several servers.
pub(super) struct Network {
    world: World,
    root_ca_path: Option<PathBuf>,
    clients: Mutex<BTreeMap<String, Client>>,
}

impl Network {
    /// Trusts only these roots, or the public ones.
    pub(super) fn new(world: World, root_ca_path: Option<PathBuf>) -> Self {
        Self { world, root_ca_path, clients: Mutex::default() }
    }

    fn client(&self, url: &str) -> Result<Client, TransportError> {
        let (endpoint, uri) = Endpoint::of_url(url)?;
        if !endpoint.encrypted {
            return Err(TransportError::NotEncrypted(url.to_owned()));
        }
        let server = uri.authority().map(ToString::to_string).unwrap_or_default();
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&server) {
            return Ok(client.clone());
        }
        let endpoint = endpoint.trusting(self.root_ca_path.clone()).within(TIMEOUT);
        let client = self.world.own_client(endpoint).map_err(TransportError::Client)?;
        clients.insert(server, client.clone());
        Ok(client)
    }
}

impl Transport for Network {
    fn send(&self, request: Request<Bytes>) -> Sending<'_> {
        Box::pin(async move {
            let client = self.client(&request.uri().to_string())?;
            let request = request.map(|body| match body.is_empty() {
                true => Body::empty(),
                false => Body::full(body),
            });
            client.fetch(request).await.map_err(TransportError::Call)
        })
    }
}
