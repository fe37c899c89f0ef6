//! The protocol between a control plane and the edges of its fleet.
//!
//! `specs/fleet.proto` describes the protocol. Its two sides, [`ControlCore`] and [`EdgeCore`], are state machines without sockets or
//! clocks. They take messages and return messages and effects, so a simulation can drive them through partitions, restarts and restored
//! backups. The transport is a separate layer above them.
//!
//! # Where things are
//!
//! From the bottom up; no file imports a file above it.
//!
//! - `canonical.rs`: canonical JSON. `documents.rs`: configurations as sets of documents, and their hash.
//! - `message.rs`: the messages of both sides. `view.rs`: one group's configuration, and deltas to it.
//! - `edge.rs`, `control.rs`: the two sides. `hub.rs`: the control plane's side with a queue for each edge.
//! - `wire.rs`: messages as Protocol Buffers, transfers in chunks.
//! - `sealed.rs`: a configuration in an encrypted file.
//! - `authority.rs`: certificates. `invitation.rs`: one-time codes. `tls.rs`: which certificates each side trusts.
//! - `grpc_codec.rs`, `server.rs`, `client.rs`: gRPC.

mod authority;
mod canonical;
mod client;
mod control;
mod documents;
mod edge;
mod grpc_codec;
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
pub use invitation::{
    CodeError, CodeHash, Invitation, InvitationError, VALIDITY, id_of, is_address, new_code,
};
pub use message::{
    Abilities, BrokenObject, Findings, Hello, MAX_BROKEN, MAX_CONFIGURATION_BYTES, NewIdentity, ToControl,
    ToEdge, Transfer, Verdict, Welcome, WireError,
};
pub use sealed::{SealError, open_configuration, seal_configuration};
pub use server::{Answering, Refusal, Registrar, serve};
pub use tls::{
    Acceptance, FleetTlsError, Membership, ServerCertificate, check_issues, client_config, enrolment_config,
    server_config,
};
pub use view::View;
pub use wire::CHUNK_BYTES;
