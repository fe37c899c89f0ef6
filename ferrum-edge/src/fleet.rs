//! A control plane: sends the configuration in its database to the edges of its fleet, and tracks what each edge serves.
//!
//! - `options.rs`: the listen address and the trust settings, from the environment.
//! - `rows.rs`, `roster.rs`: edges, invitations and groups, in the database; control planes on one database share them.
//!   `roster/members.rs`: the same in memory, updated row by row.
//! - `admission.rs`: which edges the protocol lets in.
//! - `views.rs`: each group's configuration, which follows the store; `scope.rs`: the objects that a group gets.
//! - `version_skew.rs`: what edges of an earlier release get.
//! - `connection_threads.rs`: the threads that carry the connections of edges.
//! - `plane.rs`: connects these with the protocol of the crate `gateway_fleet`.
//! - `report.rs`: the state of the fleet, for the admin API and for metrics.

mod admission;
mod connection_threads;
mod error;
mod meters;
mod options;
mod plane;
mod report;
mod role;
mod roster;
mod rows;
mod scope;
mod version_skew;
mod views;

pub(crate) use options::FleetOptions;
pub(crate) use plane::ControlPlane;
pub(crate) use role::{FleetRole, standing};
pub(crate) use roster::{NewInvitation, RosterError};
pub(crate) use rows::GroupRow;
pub(crate) use version_skew::LackingOf;
