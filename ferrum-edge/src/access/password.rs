//! Passwords of users: argon2id, as the OWASP recommends it (19 MiB, two passes).

use std::sync::LazyLock;

use argon2::Argon2;
use argon2::password_hash::PasswordVerifier;
use argon2::password_hash::phc::PasswordHash;
use aws_lc_rs::rand;
use tokio::sync::Semaphore;

use super::password_hash::hashed;

/// Characters that a password has at least.
pub(crate) const MIN_CHARACTERS: usize = 12;
/// Bytes that a password has at most.
const MAX_BYTES: usize = 1024;
/// Hashes that are computed at a time; each takes 19 MiB and some 20 ms of a core.
const AT_A_TIME: usize = 2;
/// What a password that is made up is made of: no letter looks like another.
const LETTERS: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz23456789-";
/// Letters of a password that is made up: 100 bits.
const MADE_LENGTH: usize = 20;

static PLACES: Semaphore = Semaphore::const_new(AT_A_TIME);

/// What the password of an unknown user is compared with, so that the answer takes as long.
static UNKNOWN_USER: LazyLock<String> =
    LazyLock::new(|| hashed("the password of unknown users").unwrap_or_default());

/// Why a password can't be one; `None` when it can.
pub(crate) fn objection(password: &str, name: &str) -> Option<String> {
    if password.chars().count() < MIN_CHARACTERS {
        return Some(format!("it has fewer than {MIN_CHARACTERS} characters; choose a longer one"));
    }
    if password.len() > MAX_BYTES {
        return Some(format!("it has more than {MAX_BYTES} bytes; choose a shorter one"));
    }
    let first = password.chars().next();
    if password.chars().all(|letter| Some(letter) == first)
        || password.to_lowercase().contains(&name.to_lowercase())
    {
        return Some(
            "it is easily guessed; choose one without the name and with different characters".to_owned(),
        );
    }
    None
}

/// Generates a random password; `None` when the system has no random bits.
pub(crate) fn made_up() -> Option<String> {
    let mut bits = [0; MADE_LENGTH];
    rand::fill(&mut bits).ok()?;
    Some(bits.iter().map(|bits| char::from(LETTERS[usize::from(*bits) % LETTERS.len()])).collect())
}

/// The hash of a password; `None` when the system has no random bits or too little memory.
pub(crate) async fn hash(password: String) -> Option<String> {
    let _place = PLACES.acquire().await.ok()?;
    tokio::task::spawn_blocking(move || hashed(&password)).await.ok()?
}

/// Whether this is the password of a hash; without a hash it takes as long, and is none.
pub(crate) async fn is_password(password: String, hash: Option<String>) -> bool {
    if password.len() > MAX_BYTES {
        return false;
    }
    let Ok(_place) = PLACES.acquire().await else { return false };
    let compared = tokio::task::spawn_blocking(move || {
        let is_known = hash.is_some();
        let hash = hash.unwrap_or_else(|| UNKNOWN_USER.clone());
        let is_right = PasswordHash::new(&hash)
            .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok());
        is_right && is_known
    });
    compared.await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_is_known_by_its_hash_alone() {
        let hash = hash("correct horse battery".to_owned()).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert!(is_password("correct horse battery".to_owned(), Some(hash.clone())).await);
        assert!(!is_password("correct horse batterz".to_owned(), Some(hash)).await);
        assert!(!is_password("the password of unknown users".to_owned(), None).await);
        assert!(!is_password("x".to_owned(), Some("no hash".to_owned())).await);
    }

    #[test]
    fn passwords_that_are_easily_guessed_are_refused() {
        for (password, is_good) in [
            ("short", false),
            ("aaaaaaaaaaaaaaaa", false),
            ("ann-and-her-dog", false),
            ("Ann12345678910", false),
            ("correct horse battery", true),
            ("äöüäöüäöüäöü", true),
        ] {
            assert_eq!(objection(password, "ann").is_none(), is_good, "{password}");
        }
        assert!(objection(&"ab".repeat(600), "ann").is_some());
        let made = made_up().unwrap();
        assert!(made.len() == MADE_LENGTH && objection(&made, "ann").is_none() && made_up().unwrap() != made);
    }
}
