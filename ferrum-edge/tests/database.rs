//! Database mode as its users see it: traffic over real connections while the configuration changes.

#![allow(clippy::unwrap_used, reason = "helpers of tests may, too")]

#[path = "database/api.rs"]
mod api;
#[path = "database/broken.rs"]
mod broken;
#[path = "database/client.rs"]
mod client;
#[path = "database/hammer.rs"]
mod hammer;
#[path = "database/place.rs"]
mod place;
