//! Passkeys of users: rows of `ferrum_user_passkeys`.

use serde::{Deserialize, Serialize};

use super::link::StoreConnection;
use super::link::failure::Failure;

/// The column, for a user with or without a row; it is column 14 of a user.
pub(super) const SELECT: &str = "COALESCE(k.passkeys, '')";
/// Joins the row to that of the user.
pub(super) const JOIN: &str = "LEFT JOIN ferrum_user_passkeys k ON k.name = u.name";

/// Passkeys of one user.
pub(crate) const MAX_PASSKEYS: usize = 10;

/// A passkey. Nothing of it is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Passkey {
    /// In base64url, as is the key.
    pub(crate) id: String,
    /// The public key as COSE has it.
    pub(crate) key: String,
    /// The host that it was made for.
    pub(crate) host: String,
    /// What the authenticator counted at its last use; 0 if it does not count.
    pub(crate) counter: u32,
    /// A label for its user.
    pub(crate) label: String,
    /// Milliseconds since 1970 UTC.
    pub(crate) created_at: u64,
    /// The same; 0 before the first use.
    pub(crate) used_at: u64,
}

/// Reads the column of [`SELECT`]. Passkeys that cannot be read are none.
pub(super) fn of(text: &str) -> Vec<Passkey> {
    serde_json::from_str(text).unwrap_or_default()
}

/// Replaces the row of a user.
pub(super) async fn write(
    link: &mut StoreConnection,
    name: &str,
    passkeys: &[Passkey],
) -> Result<(), Failure> {
    link.run("DELETE FROM ferrum_user_passkeys WHERE name = ?", vec![name.into()]).await?;
    if passkeys.is_empty() {
        return Ok(());
    }
    let text = serde_json::to_string(passkeys).map_err(|error| Failure::Row(error.to_string()))?;
    let sql = "INSERT INTO ferrum_user_passkeys (name, passkeys) VALUES (?, ?)";
    link.run(sql, vec![name.into(), text.into()]).await.map(drop)
}
