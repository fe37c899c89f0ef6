//! Compiles `specs/fleet.proto`, without a `protoc` of the system's.

use std::error::Error;

/// Where the protocol is described.
const FOLDER: &str = "../../specs";
const FILE: &str = "fleet.proto";

fn main() -> Result<(), Box<dyn Error>> {
    let files = protox::compile([FILE], [FOLDER])?;
    tonic_prost_build::configure()
        .bytes(".ferrum.fleet.v1")
        .build_client(true)
        .build_server(true)
        .build_transport(false)
        .codec_path("crate::grpc_codec::SmallBuffers")
        .compile_fds(files)?;
    Ok(())
}
