//! The `ferrum-edge` program.

use std::process::ExitCode;

/// Settings of the allocator are compiled in, see `.cargo/config.toml`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    ferrum_edge::cli::main(ferrum_edge::plugins())
}
