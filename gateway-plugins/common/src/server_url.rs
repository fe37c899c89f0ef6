//! Clients for servers that a setting names by a URL.

use gateway_core::config::problem::Problems;
use gateway_core::plugin::World;
use gateway_core::plugin::world::calls::{Client, Endpoint, EndpointError};
use http::Uri;

/// Why there is no client for a URL.
#[derive(Debug, thiserror::Error)]
pub enum ServerUrlError {
    /// The URL.
    #[error(transparent)]
    Url(#[from] EndpointError),
    /// The endpoint, such as its certificates.
    #[error("{}", .0.messages())]
    Client(Problems),
}

/// A client for the server of a URL, and the URL.
///
/// # Errors
/// What is wrong with it.
pub fn client(
    world: &World,
    url: &str,
    adjust: impl FnOnce(Endpoint) -> Endpoint,
) -> Result<(Client, Uri), ServerUrlError> {
    let (endpoint, uri) = Endpoint::of_url(url)?;
    let client = world.client(adjust(endpoint)).map_err(ServerUrlError::Client)?;
    Ok((client, uri))
}

/// The same for a call of the gateway's own; see [`World::own_client`].
///
/// # Errors
/// As [`client`], and when the proxy for such calls can't be used.
pub fn own_client(
    world: &World,
    url: &str,
    adjust: impl FnOnce(Endpoint) -> Endpoint,
) -> Result<(Client, Uri), ServerUrlError> {
    let (endpoint, uri) = Endpoint::of_url(url)?;
    let client = world.own_client(adjust(endpoint)).map_err(ServerUrlError::Client)?;
    Ok((client, uri))
}
