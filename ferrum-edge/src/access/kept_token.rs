//! The admin token that the gateway creates and stores in a file if the environment sets none.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gateway_core::config::problem::Problem;

use super::{Access, Role};

/// The name of the token file.
pub(crate) const TOKEN_FILE: &str = "admin.token";

/// Access with the token in this file and the role `admin`. Creates the file if it does not exist.
///
/// # Errors
/// The file cannot be read or created, or its token is too short.
pub(crate) fn kept_access(path: &Path) -> Result<Access, Problem> {
    let at = || path.display().to_string();
    let token = kept_token(path).map_err(|error| {
        Problem::new(at(), format!("no token of the admin API can be kept here: {error}"))
            .remedy("set FERRUM_ADMIN_TOKEN, or FERRUM_STATE to a folder that can be written")
    })?;
    let mut access = Access::default();
    access.add_token(&token, Role::Admin).map_err(|error| Problem::new(at(), error.to_string()))?;
    tracing::info!(path = %path.display(), "the admin API takes the token in this file");
    Ok(access)
}

/// Reads the token in this file, or creates it so that only this user can read it. Gateways that start at the same time get the
/// same token.
fn kept_token(path: &Path) -> io::Result<String> {
    match read(path) {
        Ok(token) => return Ok(token),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut bytes = [0_u8; 24];
    aws_lc_rs::rand::fill(&mut bytes).map_err(io::Error::other)?;
    let token: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let draft = draft(path);
    let written = write_new(&draft, &token).and_then(|()| fs::hard_link(&draft, path));
    drop(fs::remove_file(&draft));
    match written {
        Ok(()) => Ok(token),
        // Another gateway created the file first.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => read(path),
        Err(error) => Err(error),
    }
}

/// The token in a file that nobody else could have written or can read.
fn read(path: &Path) -> io::Result<String> {
    let about = fs::symlink_metadata(path)?;
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidData, why));
    if !about.is_file() {
        return refused("it is no regular file".to_owned());
    }
    if ![rustix::process::geteuid().as_raw(), 0].contains(&about.uid()) {
        return refused(format!("it belongs to another user ({})", about.uid()));
    }
    if about.mode() & 0o077 != 0 {
        return refused(format!(
            "other users have access to it: its mode is {:04o}, not 0600",
            about.mode() & 0o7777
        ));
    }
    fs::read_to_string(path).map(|token| token.trim_end().to_owned())
}

fn write_new(path: &Path, token: &str) -> io::Result<()> {
    drop(fs::remove_file(path));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{token}")
}

fn draft(path: &Path) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    draft.into()
}
