//! The passwords of consumers.

use gateway_core::config::credential::{AtRest, CredentialType};

/// KiB of memory and passes over it that one check by argon2id may take.
const MAX_ARGON2_KIB: u32 = 256 << 10;
const MAX_ARGON2_PASSES: u32 = 32;
/// The cost of bcrypt, which doubles with each step; 16 takes some seconds.
const MAX_BCRYPT_COST: u32 = 16;
/// Length of a hash by bcrypt.
const BCRYPT_BYTES: usize = 60;

/// A password, or its hash.
pub(super) static PASSWORD: CredentialType = CredentialType {
    name: "basic_auth",
    aliases: &["basicauth"],
    key: "password",
    instead: &["password_hash"],
    optional: &[],
    check: password_hash,
    min_bytes: 1,
    is_unique: false,
    at_rest: AtRest::Sealed(Some("password_hash")),
};

/// A hash must be of a kind that can be checked, at a cost that a gateway can bear.
fn password_hash(field: &str, text: &str) -> Option<&'static str> {
    if field != "password_hash" {
        return None;
    }
    if text.starts_with("$argon2id$") {
        // `$argon2id$v=19$m=65536,t=3,p=4$salt$hash`
        let cost = |name: &str| {
            let mut costs = text.split('$').flat_map(|part| part.split(','));
            costs.find_map(|part| part.strip_prefix(name)?.parse::<u32>().ok())
        };
        return match (cost("m="), cost("t=")) {
            (Some(memory), Some(passes)) if memory <= MAX_ARGON2_KIB && passes <= MAX_ARGON2_PASSES => None,
            _ => Some("this argon2id hash can't be read, or needs more than 256 MiB or 32 passes"),
        };
    }
    if ["$2a$", "$2b$", "$2y$"].iter().any(|kind| text.starts_with(kind)) {
        let cost = text.get(4..6).and_then(|digits| digits.parse::<u32>().ok());
        return match cost {
            Some(cost) if cost <= MAX_BCRYPT_COST && text.len() == BCRYPT_BYTES => None,
            _ => Some("this bcrypt hash can't be read, or has a cost above 16"),
        };
    }
    (!text.starts_with("$apr1$")).then_some("this is not a hash by argon2id, bcrypt or apr1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_that_can_be_checked() {
        assert_eq!(password_hash("password", "plain"), None);
        for (hash, is_good) in [
            ("$2b$16$abcdefghijklmnopqrstuuKwGqVXbkv6RsmDSLcqOPMLYGHnqd7Su", true),
            ("$2b$17$abcdefghijklmnopqrstuuKwGqVXbkv6RsmDSLcqOPMLYGHnqd7Su", false),
            ("$2b$12$x", false),
            ("$argon2id$v=19$m=65536,t=3,p=4$c2FsdHNhbHRzYWx0$aGFzaA", true),
            ("$argon2id$v=19$m=1048576,t=3,p=4$c2FsdHNhbHRzYWx0$aGFzaA", false),
            ("$argon2id$v=19$m=65536,t=99,p=4$c2FsdHNhbHRzYWx0$aGFzaA", false),
            ("$argon2id$x", false),
            ("$apr1$saltsalt$EGVZDNN6gOqijy.tv9axG/", true),
            ("{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", false),
            ("5f4dcc3b5aa765d61d8327deb882cf99", false),
        ] {
            assert_eq!(password_hash("password_hash", hash).is_none(), is_good, "{hash}");
        }
    }
}
