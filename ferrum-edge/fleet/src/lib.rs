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
//! - `edge.rs`, `control.rs`: the two sides. `hub.rs`: the control plane's side with a queue for each edge.
//! - `wire.rs`: messages as Protocol Buffers, transfers in chunks.
//! - `sealed.rs`: a configuration in a file.
//! - `authority.rs`: certificates. `invitation.rs`: one-time codes. `tls.rs`: who trusts whom.
//! - `server.rs`, `client.rs`: gRPC.

mod authority;
mod canonical;
mod client;
mod control;
mod documents;
mod edge;
mod hub;
mod invitation;
mod message;
mod sealed;
mod server;
mod tls;
mod view;
mod wire;

pub use authority::{
    Authority, AuthorityError, CertifiedEdge, EDGE_VALIDITY, Issued, SERVER_NAME, SERVER_VALIDITY, read_edge,
    signing_request,
};
pub use canonical::canonical;
pub use client::{Link, LinkError, LinkReceiver, LinkSender};
pub use control::{APPLY_TIMEOUT, ControlCore, ControlEffect, EdgeState, SessionId};
pub use documents::{DocumentKey, DocumentSet, Hash, Position};
pub use edge::{Configuration, EdgeCore, EdgeEffect};
pub use hub::{Hub, clock};
pub use invitation::{CodeHash, Invitation, InvitationError, VALIDITY, id_of, is_address, new_code};
pub use message::{
    BrokenObject, Findings, Hello, MAX_BROKEN, NewIdentity, ToControl, ToEdge, Transfer, Verdict, Welcome,
};
pub use sealed::{open_configuration, seal_configuration};
pub use server::{Answering, Refusal, Registrar, serve};
pub use tls::{Acceptance, ServerCertificate, client_config, enrolment_config, server_config};
pub use view::View;
pub use wire::{CHUNK_BYTES, MAX_CONFIGURATION_BYTES, WireError};
