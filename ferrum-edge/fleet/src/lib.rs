//! How a control plane and the gateways of its fleet speak to each other.
//!
//! The protocol is described in `specs/fleet.proto`. Its two sides are state machines without sockets and clocks: [`ControlCore`] and
//! [`EdgeCore`] take messages and return messages and effects, so that a simulation can drive them through partitions, restarts and
//! restored backups. What carries the messages lies above them.
//!
//! # Where things are
//!
//! From the bottom up; nothing imports a file above it.
//!
//! - `canonical.rs`: canonical JSON. `documents.rs`: configurations as sets of documents, and their hash.
//! - `message.rs`: what both sides say. `view.rs`: one group's configuration, and deltas to it.
//! - `edge.rs`, `control.rs`: the two sides.

mod canonical;
mod control;
mod documents;
mod edge;
mod message;
mod view;

pub use canonical::canonical;
pub use control::{APPLY_TIMEOUT, ControlCore, ControlEffect, EdgeState, SessionId};
pub use documents::{DocumentKey, DocumentSet, Hash, Position};
pub use edge::{Configuration, EdgeCore, EdgeEffect};
pub use message::{BrokenObject, Findings, Hello, MAX_BROKEN, ToControl, ToEdge, Transfer, Verdict, Welcome};
pub use view::View;
