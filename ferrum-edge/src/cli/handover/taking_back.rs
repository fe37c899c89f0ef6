//! A gateway whose successor ended before it: it takes back the pid file and the socket beside it, so that the next gateway with
//! `--replace` finds it, and takes over the UDP sockets that it still reads.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use super::{HandoverError, OfferSocket, Turn, listen};
use crate::cli::pid_file;

/// How often it is tried while another gateway is just starting.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// Whether no gateway runs by the pid file but this one and that of the process `successor`, which has ended or has given up.
pub(super) fn is_alone(pid_file: &Path, successor: i32) -> bool {
    match pid_file::running(pid_file) {
        Ok(Some(running)) => running.pid() == successor,
        Ok(None) | Err(_) => true,
    }
}

/// Takes the place of a successor that has ended, unless another gateway is there by then.
pub(super) async fn take_back(pid_file: &Path, socket: &mut OfferSocket) {
    for _ in 0..TRIES {
        // A gateway that is just starting may ask this one, and wait for its answer while it holds the turn.
        if names_this(pid_file) {
            return;
        }
        let _turn = match Turn::take(pid_file) {
            Ok(turn) => turn,
            Err(HandoverError::Busy(_)) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(error) => return tracing::warn!(%error, "the pid file is left to the gateway that has ended"),
        };
        // One that runs may have written it meanwhile.
        if matches!(pid_file::running(pid_file), Ok(Some(_))) {
            return;
        }
        match take(pid_file) {
            Ok(taken) => {
                *socket = taken;
                tracing::info!("the gateway that took over has ended: the pid file names this one again");
            }
            Err(error) => tracing::warn!(%error, "the next gateway can't take over from this one"),
        }
        return;
    }
}

fn names_this(pid_file: &Path) -> bool {
    pid_file::read(pid_file).is_ok_and(|pid| pid.cast_unsigned() == std::process::id())
}

fn take(pid_file: &Path) -> Result<OfferSocket, Box<dyn Error>> {
    pid_file::put_back(pid_file)?;
    Ok(listen(pid_file)?)
}
