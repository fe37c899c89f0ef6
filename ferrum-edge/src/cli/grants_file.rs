//! A file with grants, or with what a workspace covers.

use std::path::Path;

use gateway_core::config::file::{Origin, foreign};
use serde_json::Value;

use super::{MISUSED, print};

/// Bytes of such a file.
const MAX_BYTES: usize = 1 << 20;

/// The document in the file; else the exit code, after telling why.
pub(super) fn read(file: &Path) -> Result<Value, u8> {
    let failed = |why: String| {
        print::error(format_args!("{}: {why}", file.display()));
        MISUSED
    };
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    if text.len() > MAX_BYTES {
        return Err(failed(format!("it has more than {MAX_BYTES} bytes")));
    }
    foreign(&text, &Origin::file(file)).map_err(|problems| {
        print::error(&problems);
        MISUSED
    })
}
