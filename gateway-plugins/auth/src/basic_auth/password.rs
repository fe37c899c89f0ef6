//! Passwords as they are stored, and whether one is that of a caller.

use argon2::Argon2;
use argon2::password_hash::PasswordVerifier;
use argon2::password_hash::phc::PasswordHash;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use bcrypt::HashParts;

use super::apr1;

/// KiB of memory that one check by argon2id may take.
const MAX_ARGON2_KIB: u32 = 256 << 10;
/// Passes over that memory.
const MAX_ARGON2_PASSES: u32 = 32;
/// The cost of bcrypt, which doubles with each step; 16 takes some seconds.
const MAX_BCRYPT_COST: u32 = 16;

/// A password or its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    kind: PasswordFormat,
    text: Box<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PasswordFormat {
    Plain,
    Argon2id,
    Bcrypt,
    Apr1,
}

impl Stored {
    /// A password in clear.
    pub(super) fn plain(text: &str) -> Self {
        Self { kind: PasswordFormat::Plain, text: text.into() }
    }

    /// A hash by argon2id, bcrypt or apr1.
    ///
    /// # Errors
    /// Why it can't be used.
    pub(super) fn hash(text: &str) -> Result<Self, &'static str> {
        let kind = if text.starts_with("$argon2id$") {
            argon2id(text)?;
            PasswordFormat::Argon2id
        } else if ["$2a$", "$2b$", "$2y$"].iter().any(|prefix| text.starts_with(prefix)) {
            let parts: HashParts = text.parse().map_err(|_| "this bcrypt hash can't be read")?;
            if parts.get_cost() > MAX_BCRYPT_COST {
                return Err("this bcrypt hash has a cost above 16");
            }
            PasswordFormat::Bcrypt
        } else if text.starts_with(apr1::PREFIX) {
            apr1::parts(text).ok_or("this apr1 hash can't be read")?;
            PasswordFormat::Apr1
        } else if text.starts_with("{SHA}") {
            return Err("{SHA} has no salt and is too quick to guess; use bcrypt (`htpasswd -B`)");
        } else {
            return Err("this is not a hash by argon2id, bcrypt or apr1; use bcrypt (`htpasswd -B`)");
        };
        Ok(Self { kind, text: text.into() })
    }

    /// Whether this is the password. Takes as long for a wrong one.
    pub(super) fn verify(&self, password: &[u8]) -> bool {
        match self.kind {
            PasswordFormat::Plain => {
                let (known, given) = (digest(&SHA256, self.text.as_bytes()), digest(&SHA256, password));
                verify_slices_are_equal(known.as_ref(), given.as_ref()).is_ok()
            }
            PasswordFormat::Argon2id => PasswordHash::new(&self.text)
                .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok()),
            PasswordFormat::Bcrypt => bcrypt::verify(password, &self.text).unwrap_or(false),
            PasswordFormat::Apr1 => apr1::verify(&self.text, password),
        }
    }

    /// Whether a check takes so long that a worker must not do it.
    pub(super) fn is_slow(&self) -> bool {
        self.kind != PasswordFormat::Plain
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Two hashes with the same take equally long.
    pub(super) fn cost(&self) -> &str {
        let end = match self.kind {
            PasswordFormat::Plain => None,
            PasswordFormat::Apr1 => Some(apr1::PREFIX.len()),
            PasswordFormat::Bcrypt => self.text.match_indices('$').nth(2).map(|(at, _)| at),
            PasswordFormat::Argon2id => self.text.match_indices('$').nth(3).map(|(at, _)| at),
        };
        self.text.get(..end.unwrap_or(0)).unwrap_or_default()
    }
}

/// Whether a hash by argon2id can be checked here, and at what cost.
fn argon2id(text: &str) -> Result<(), &'static str> {
    let hash = PasswordHash::new(text).map_err(|_| "this argon2id hash can't be read")?;
    if hash.hash.is_none() || hash.salt.is_none() {
        return Err("this argon2id hash has no salt or no hash");
    }
    let cost =
        argon2::Params::try_from(&hash).map_err(|_| "this argon2id hash has parameters out of range")?;
    if cost.m_cost() > MAX_ARGON2_KIB || cost.t_cost() > MAX_ARGON2_PASSES {
        return Err("this argon2id hash needs more than 256 MiB, or more than 32 passes");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `correct horse`, by the programs that operators use.
    const HASHES: [&str; 4] = [
        "$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0$Kw3/ZjLNvvrvmWv7DSmJdvIaVuO5yzpUAyMmNiCnHLI",
        "$2y$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e",
        "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e",
        "$apr1$saltsalt$EGVZDNN6gOqijy.tv9axG/",
    ];

    #[test]
    fn hashes_of_every_kind() {
        for text in HASHES {
            let stored = Stored::hash(text).unwrap_or_else(|why| panic!("{text}: {why}"));
            assert!(stored.is_slow() && text.starts_with(stored.cost()) && !stored.cost().is_empty());
            assert!(stored.verify(b"correct horse"), "{text}");
            for wrong in [&b"correct hors"[..], b"correct horse ", b"", b"Correct horse"] {
                assert!(!stored.verify(wrong), "{text} {wrong:?}");
            }
        }
        let long = Stored::hash("$apr1$abc$POCA7lt9sCxhXw7X9Fr4a1").expect("a hash");
        assert!(long.verify(b"a much longer password than sixteen bytes, to go round"));
        assert!(Stored::plain("a").verify(b"a") && !Stored::plain("a").verify(b"b"));
    }

    #[test]
    fn hashes_that_can_not_be_used() {
        for (text, why) in [
            ("secret", "not a hash"),
            ("$1$saltsalt$Zc1fxjfHqxHJYLYAgNGRx.", "not a hash"),
            ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "no salt"),
            ("$2b$17$abcdefghijklmnopqrstuuKwGqVXbkv6RsmDSLcqOPMLYGHnqd7Su", "cost above 16"),
            ("$2b$12$short", "can't be read"),
            ("$argon2id$v=19$m=64,t=1,p=1$c2FsdHNhbHRzYWx0", "no hash"),
            (
                "$argon2id$v=19$m=1048576,t=1,p=1$c2FsdHNhbHRzYWx0$YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE",
                "256 MiB",
            ),
            ("$argon2id$nonsense", "can't be read"),
            ("$apr1$saltsalt$short", "can't be read"),
            ("$apr1$$7sB2mEUzTrQO2KFNbtH3n.", "can't be read"),
        ] {
            let refused = Stored::hash(text).expect_err(text);
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
