//! Which route a request takes: hosts first, then paths, at a cost that doesn't grow with the number of routes.

mod bucket;
mod captures;
mod host;
mod literal;
mod path;
mod paths;
mod regexes;
pub mod rewrite;
mod shapes;
mod table;

pub use captures::Captures;
pub use host::host_name;
pub use paths::RouteMatch;
pub use rewrite::forward_path;
pub use table::{Conflict, RouteTable};
