//! Hashes of passwords, as consumers and users of the console have them.

use argon2::Argon2;
use argon2::password_hash::PasswordHasher;
use aws_lc_rs::rand;

/// The hash of a password, computed on this thread; `None` when the system has no random bits or too little memory.
pub(crate) fn hashed(password: &str) -> Option<String> {
    let mut salt = [0; 16];
    rand::fill(&mut salt).ok()?;
    let hash = Argon2::default().hash_password_with_salt(password.as_bytes(), &salt).ok()?;
    Some(hash.to_string())
}
