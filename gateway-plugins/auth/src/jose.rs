//! Signed tokens (RFC 7515, RFC 7519): read strictly, verified with one key, judged by one set of rules.
//!
//! Nothing in a token decides how it is checked: the key comes from the configuration or from its issuer, and says which
//! algorithms it is for. The header's `alg` only picks among those.

pub(crate) mod algorithm;
pub(crate) mod claims;
pub(crate) mod fault;
mod header;
pub(crate) mod jwk;
pub(crate) mod key;
pub(crate) mod token;

pub(crate) use algorithm::Algorithm;
pub(crate) use claims::Rules;
pub(crate) use fault::TokenError;
pub(crate) use key::Key;
pub(crate) use token::Token;

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
