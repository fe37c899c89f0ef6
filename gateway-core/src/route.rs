//! Which route a request takes: hosts first, then paths, at a cost that doesn't grow with the number of routes.

mod bucket;
mod captures;
mod host;
mod literal;
pub mod matcher;
mod path;
mod paths;
mod pattern;
mod regexes;
pub mod rewrite;
mod shapes;
mod table;
mod template;

pub(crate) use bucket::ties;
pub use captures::Captures;
pub use host::host_name;
pub use path::MAX_SEGMENTS;
pub use paths::RouteMatch;
pub use pattern::{HostPattern, PathPattern, hosts_overlap};
pub use rewrite::forward_path;
pub use table::{Conflict, RouteTable};
pub use template::{BadTemplate, PathTemplate};
