//! Who may use the admin API as the environment says.

use gateway_core::config::problem::Problems;

use super::{Access, AccessError, Role};
use crate::variables::taken;

/// Who may use the admin API, as far as the environment says; nobody where it says nothing.
///
/// # Errors
/// Every problem there is.
pub(crate) fn access_given() -> Result<Access, Problems> {
    let mut problems = Problems::default();
    let access = given(&mut problems);
    problems.into_result(access)
}

/// The same, with what is wrong noted.
pub(crate) fn given(problems: &mut Problems) -> Access {
    let mut access = Access::default();
    let noted = |name: &str, result: Result<(), AccessError>, problems: &mut Problems| {
        if let Err(error) = result {
            problems.add(name, error.to_string());
        }
    };
    for (name, role) in [
        ("FERRUM_ADMIN_TOKEN", Role::Admin),
        ("FERRUM_ADMIN_WRITE_TOKEN", Role::Write),
        ("FERRUM_ADMIN_READ_TOKEN", Role::Read),
    ] {
        if let Some(token) = taken(problems, name) {
            noted(name, access.add_token(&token, role), problems);
        }
    }
    if let Some(secret) = taken(problems, "FERRUM_ADMIN_JWT_SECRET") {
        let issuer = taken(problems, "FERRUM_ADMIN_JWT_ISSUER");
        noted("FERRUM_ADMIN_JWT_SECRET", access.set_jwt(&secret, issuer), problems);
    }
    access
}
