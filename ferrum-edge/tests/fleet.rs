//! A fleet as its operators see it: the real program as control planes and edges.

#![allow(clippy::unwrap_used, reason = "helpers of tests may, too")]

#[allow(dead_code, reason = "written for the tests of the database mode")]
#[path = "database/client.rs"]
mod client;
#[path = "fleet/enrolment.rs"]
mod enrolment;
#[path = "fleet/groups.rs"]
mod groups;
#[path = "fleet/place.rs"]
mod place;
#[allow(dead_code, reason = "written for the tests of the command line")]
#[path = "cli/process.rs"]
mod process;
#[allow(dead_code, reason = "written for the tests of the store")]
#[path = "store/servers.rs"]
mod servers;
#[path = "fleet/serving.rs"]
mod serving;
#[path = "fleet/stores.rs"]
mod stores;
