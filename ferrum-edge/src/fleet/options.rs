//! The control plane's listen address and trust settings, from the environment.

use std::net::SocketAddr;

use gateway_core::config::problem::Problems;
use gateway_fleet::is_address;

use crate::variables::taken;

/// Where edges are listened for unless something else is said.
const DEFAULT_LISTEN: &str = "0.0.0.0:9443";
/// The trust domain unless something else is said.
const DEFAULT_DOMAIN: &str = "ferrum-fleet";

/// How a control plane is reached and whom it trusts.
#[derive(Debug, Clone)]
pub(crate) struct FleetOptions {
    /// Where edges are listened for.
    pub(crate) listen: SocketAddr,
    /// `HOST:PORT` as invitations name it; `None`: the address that is listened on.
    pub(crate) address: Option<String>,
    /// The trust domain of SPIFFE ids.
    pub(crate) domain: String,
    /// Certificate and key of an authority of the operator's, in PEM.
    pub(crate) authority: Option<(String, String)>,
}

impl FleetOptions {
    /// As the environment says.
    ///
    /// # Errors
    /// Every problem there is.
    pub(crate) fn from_environment() -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let listen = taken(&mut problems, "FERRUM_FLEET_LISTEN").unwrap_or_else(|| DEFAULT_LISTEN.to_owned());
        let listen = listen.parse().unwrap_or_else(|_| {
            problems.add("FERRUM_FLEET_LISTEN", format!("`{listen}` is not an address; write IP:PORT"));
            SocketAddr::from(([0, 0, 0, 0], 0))
        });
        let address = taken(&mut problems, "FERRUM_FLEET_ADDRESS");
        if let Some(address) = address.as_deref().filter(|address| !is_address(address)) {
            problems.add("FERRUM_FLEET_ADDRESS", format!("`{address}` is not HOST:PORT"));
        }
        let domain = taken(&mut problems, "FERRUM_FLEET_DOMAIN").unwrap_or_else(|| DEFAULT_DOMAIN.to_owned());
        // The value with the certificate in it, or the one with `_FILE` behind its name.
        let certificate = taken(&mut problems, "FERRUM_FLEET_CA_CERT");
        let key = taken(&mut problems, "FERRUM_FLEET_CA_KEY");
        if certificate.is_some() != key.is_some() {
            problems
                .add("FERRUM_FLEET_CA_CERT", "FERRUM_FLEET_CA_CERT and FERRUM_FLEET_CA_KEY belong together");
        }
        let authority = certificate.zip(key);
        problems.into_result(Self { listen, address, domain, authority })
    }
}
