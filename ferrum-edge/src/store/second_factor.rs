//! Second factors of users: rows of `ferrum_user_totp`.

use super::link::failure::Failure;
use super::link::{Cells, StoreConnection};

/// The columns, for a user with or without a row; the first is column 9 of a user.
pub(super) const SELECT: &str = "COALESCE(t.required, 0), COALESCE(t.secret, ''), COALESCE(t.pending, ''), \
                                 COALESCE(t.used_step, 0), COALESCE(t.recovery, '')";
/// Joins the row to that of the user.
pub(super) const JOIN: &str = "LEFT JOIN ferrum_user_totp t ON t.name = u.name";

/// The second factor of a user, by an authenticator app.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct SecondFactor {
    /// The user has to enrol before anything else.
    pub(crate) is_required: bool,
    /// Encrypted; empty if the user is not enrolled.
    pub(crate) secret: String,
    /// Encrypted; the next secret, until a code confirms it.
    pub(crate) pending: String,
    /// The step of the last accepted code.
    pub(crate) used_step: u64,
    /// Hashes of unused recovery codes.
    pub(crate) recovery: Vec<String>,
}

impl std::fmt::Debug for SecondFactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecondFactor(required: {}, enrolled: {})", self.is_required, self.is_enrolled())
    }
}

impl SecondFactor {
    /// Whether logins need a code.
    pub(crate) fn is_enrolled(&self) -> bool {
        !self.secret.is_empty()
    }

    /// Reads the columns of [`SELECT`].
    pub(super) fn of(row: &Cells, first: usize) -> Result<Self, Failure> {
        Ok(Self {
            is_required: row.int(first)? != 0,
            secret: row.text(first + 1)?,
            pending: row.text(first + 2)?,
            used_step: row.int(first + 3)?,
            recovery: row.text(first + 4)?.split_whitespace().map(str::to_owned).collect(),
        })
    }
}

/// Replaces the row of a user; there is none for what is default.
pub(super) async fn write(
    link: &mut StoreConnection,
    name: &str,
    factor: &SecondFactor,
) -> Result<(), Failure> {
    link.run("DELETE FROM ferrum_user_totp WHERE name = ?", vec![name.into()]).await?;
    if *factor == SecondFactor::default() {
        return Ok(());
    }
    let sql = "INSERT INTO ferrum_user_totp (name, required, secret, pending, used_step, recovery) VALUES (?, ?, ?, ?, ?, ?)";
    let recovery = factor.recovery.join(" ");
    let values = vec![
        name.into(),
        u64::from(factor.is_required).into(),
        factor.secret.as_str().into(),
        factor.pending.as_str().into(),
        factor.used_step.into(),
        recovery.into(),
    ];
    link.run(sql, values).await.map(drop)
}
