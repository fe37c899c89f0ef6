//! Kept connections to targets, generic over the connection.
//!
//! A worker owns one [`Idle`] for connections that carry one exchange at a time and one [`Multiplex`] for those that
//! carry many. Both go by the number of a [`Key`]: everything two connections must have in common before one may
//! stand in for the other.

pub mod idle;
pub mod key;
pub mod multiplex;

pub use idle::{Idle, Rejected};
pub use key::{Identity, Interner, Key, KeyCache};
pub use multiplex::{Choice, ConnectionId, Dial, Lease, Multiplex};
