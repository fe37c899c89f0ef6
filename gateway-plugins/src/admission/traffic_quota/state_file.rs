//! The format of the file that keeps the usage across restarts.

use std::io;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::accounts::{Accounts, Saved};
use super::unix_now;
use crate::admission::usage_file::Kept;

/// Bytes of the largest file that is read.
pub(super) const MOST_BYTES: u64 = 1 << 30;
/// The version of the format.
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    /// Whether the gateway ended in order after this was written.
    in_order: bool,
    accounts: Vec<Saved>,
}

/// What is wrong with the file.
#[derive(Debug, Error)]
pub(super) enum UnusableState {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("its version is {0}, not {VERSION}")]
    Version(u32),
}

impl Kept for Accounts {
    type Unusable = UnusableState;

    fn restore(&self, bytes: &[u8]) -> Result<(), UnusableState> {
        let content: Content = serde_json::from_slice(bytes)?;
        if content.version != VERSION {
            return Err(UnusableState::Version(content.version));
        }
        self.take_over(content.accounts, content.in_order, unix_now());
        Ok(())
    }

    fn before_write(&self) {
        self.advance(unix_now());
    }

    fn contents(&self, is_last: bool) -> Option<io::Result<Vec<u8>>> {
        let content = Content { version: VERSION, in_order: is_last, accounts: self.save(is_last)? };
        Some(serde_json::to_vec(&content).map_err(io::Error::from))
    }

    fn write_again(&self) {
        self.save_again();
    }
}
