//! The types of credentials that consumers may have. Each is declared by the plugin that checks it
//! (`Plugin::CREDENTIAL` of `gateway-core`), and nowhere else.

use std::fmt;
use std::hash::{Hash, Hasher};

/// A type of credential.
///
/// Two are the same when their names are.
pub struct CredentialType {
    /// The name of the plugin that checks it, which is its key under `credentials`.
    pub name: &'static str,
    /// Other keys that mean the same.
    pub aliases: &'static [&'static str],
    /// The field that a plain text stands for.
    pub key: &'static str,
    /// Fields that may be there instead of [`Self::key`]; exactly one of them all has to be.
    pub instead: &'static [&'static str],
    /// Fields that may be there besides.
    pub optional: &'static [&'static str],
    /// Says what is wrong with the text of a field, without the text.
    pub check: fn(field: &str, text: &str) -> Option<&'static str>,
    /// Fewest bytes of the text of [`Self::key`].
    pub min_bytes: usize,
    /// Whether it identifies its owner by itself: no two consumers have the same, only its SHA-256 is kept in memory,
    /// and the field of [`Self::instead`] is that digest in hexadecimal digits.
    pub is_unique: bool,
    /// How a database keeps it.
    pub at_rest: AtRest,
}

/// How a database keeps a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtRest {
    /// Only the SHA-256 of the text, in this field.
    Hashed(&'static str),
    /// Encrypted; in the clear where this is its only field, because that is a hash already.
    Sealed(Option<&'static str>),
    /// In the clear: it is no secret.
    Clear,
}

/// [`CredentialType::check`] for a type whose fields take any text.
pub fn any_text(_field: &str, _text: &str) -> Option<&'static str> {
    None
}

impl CredentialType {
    /// Whether this key under `credentials` means it.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }
}

impl fmt::Debug for CredentialType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for CredentialType {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for CredentialType {}

impl Hash for CredentialType {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// The types of credentials that the plugins of a registry check.
#[derive(Debug, Clone, Default)]
pub struct CredentialTypes(Vec<&'static CredentialType>);

impl CredentialTypes {
    /// The type that a key under `credentials` means.
    pub fn find(&self, name: &str) -> Option<&'static CredentialType> {
        self.0.iter().find(|kind| kind.is_called(name)).copied()
    }

    /// The types, in the order in which their plugins run.
    pub fn iter(&self) -> impl Iterator<Item = &'static CredentialType> + Clone {
        self.0.iter().copied()
    }
}

impl FromIterator<&'static CredentialType> for CredentialTypes {
    fn from_iter<I: IntoIterator<Item = &'static CredentialType>>(types: I) -> Self {
        Self(types.into_iter().collect())
    }
}

#[cfg(any(test, feature = "testing"))]
#[allow(missing_docs, reason = "for tests")]
pub mod samples {
    //! Types for tests, of each sort one.

    use super::*;

    const ANY: CredentialType = CredentialType {
        name: "",
        aliases: &[],
        key: "key",
        instead: &[],
        optional: &[],
        check: any_text,
        min_bytes: 1,
        is_unique: false,
        at_rest: AtRest::Sealed(None),
    };
    pub static KEY: CredentialType = CredentialType {
        name: "key_auth",
        aliases: &["keyauth"],
        instead: &["key_sha256"],
        is_unique: true,
        at_rest: AtRest::Hashed("key_sha256"),
        ..ANY
    };
    pub static PASSWORD: CredentialType = CredentialType {
        name: "basic_auth",
        aliases: &["basicauth"],
        key: "password",
        instead: &["password_hash"],
        ..ANY
    };
    pub static TOKEN: CredentialType = CredentialType {
        name: "jwt_auth",
        aliases: &["jwt", "jwtauth"],
        key: "secret",
        instead: &["public_key"],
        optional: &["kid"],
        min_bytes: 32,
        ..ANY
    };
    pub static IDENTITY: CredentialType = CredentialType {
        name: "mtls_auth",
        key: "identity",
        instead: &["identity_sha256"],
        is_unique: true,
        at_rest: AtRest::Clear,
        ..ANY
    };
}
