//! Marks of rows whose figure has a reservation.

pub const GENERATOR: &str = "generator-limited";
pub const BACKEND: &str = "backend-limited";
pub const MACHINE: &str = "machine-saturated";
pub const DISTURBED: &str = "disturbed";
pub const STOLEN: &str = "cpu-stolen";
pub const UNSTAMPED: &str = "answers-unstamped";
pub const UNVERIFIED: &str = "content-unverified";
pub const UNSUSTAINED: &str = "rate-not-sustained";
pub const LATE_GENERATOR: &str = "generator-late";
