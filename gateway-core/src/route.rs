//! Which route a request takes: hosts first, then paths, at a cost that doesn't grow with the number of routes.

mod literal;
pub mod matcher;
mod path;
pub mod rewrite;
mod table;

pub use rewrite::forward_path;
pub use table::{Conflict, Found, MAX_SEGMENTS, RouteTable};
