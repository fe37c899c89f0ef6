//! Which route a request takes: hosts first, then paths, at a cost that doesn't grow with the number of routes.

mod captures;
mod literal;
pub mod matcher;
mod path;
mod pattern;
pub mod rewrite;
mod table;
mod template;

pub use captures::Captures;
pub use rewrite::forward_path;
pub use table::{Conflict, Found, MAX_SEGMENTS, RouteTable, host_name};
pub use template::{BadTemplate, PathTemplate};
