//! A control plane: gives the configuration of its database to the gateways of its fleet, and knows what each of them serves.
//!
//! - `options.rs`: where it listens and who it trusts, as the environment says.
//! - `rows.rs`, `roster.rs`: who belongs to the fleet, in the database; several control planes on one database share it.
//! - `views.rs`: the configuration as each group gets it, following the store; `scope.rs`: which objects that are.
//! - `plane.rs`: puts these together with the protocol of the crate `gateway_fleet`.
//! - `report.rs`: what is known, for the admin API and for metrics.

mod meters;
mod options;
mod plane;
mod report;
mod role;
mod roster;
mod rows;
mod scope;
mod views;

pub(crate) use options::FleetOptions;
pub(crate) use plane::ControlPlane;
pub(crate) use role::{FleetRole, standing};
pub(crate) use roster::RosterError;
