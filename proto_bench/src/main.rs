//! The `proto_bench` program; everything it does is in the library, where tests reach it.

use std::process::ExitCode;

// glibc's allocator gives worse tail latencies under many small allocations (HTTP/2, QUIC).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    proto_bench::cli::main()
}
