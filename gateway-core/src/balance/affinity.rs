//! Keeps a client at its target by a cookie.

use std::sync::Arc;

use foldhash::HashMap;
use http::{HeaderMap, HeaderValue};
use sha2::{Digest, Sha256};

use super::target::Target;
use crate::config::model::{self, CookieAttributes, SameSite, Upstream};
use crate::request_values;

/// The cookie of an upstream.
#[derive(Debug)]
pub struct Affinity {
    name: Arc<str>,
    /// What follows the value in `Set-Cookie`.
    attributes: Box<str>,
    /// The values that name a target; `None` where the value is random and gets hashed.
    secure: Option<bool>,
    names: Option<CookieNames>,
}

/// What the targets are called in cookies. Neither their addresses nor their number show.
#[derive(Debug)]
struct CookieNames {
    of: Box<[Box<str>]>,
    by: HashMap<Box<str>, usize>,
}

/// Bytes of a target's digest that name it.
const NAME_BYTES: usize = 12;

impl Affinity {
    pub(super) fn build(upstream: &Upstream, targets: &[Arc<Target>]) -> Option<Box<Self>> {
        let model::Affinity { cookie, names_target, attributes } = upstream.affinity.as_deref()?;
        let names = names_target.then(|| {
            let of: Box<[Box<str>]> = targets.iter().map(|target| name(upstream, target)).collect();
            let by = of.iter().enumerate().map(|(index, name)| (name.clone(), index)).collect();
            CookieNames { of, by }
        });
        Some(Box::new(Self {
            name: cookie.clone(),
            attributes: written(attributes).into(),
            secure: attributes.secure,
            names,
        }))
    }

    /// The target that the client's cookie names, if there is still one of this name.
    pub fn target(&self, headers: &HeaderMap) -> Option<usize> {
        let names = self.names.as_ref()?;
        let value = request_values::cookie(headers, &self.name)?;
        names.by.get(std::str::from_utf8(value).ok()?).copied()
    }

    /// What is to be hashed of a client that has no cookie yet; `None` when it has one, or none is hashed.
    pub fn new_key(&self, headers: &HeaderMap) -> Option<String> {
        let is_wanted =
            self.names.is_none() && request_values::cookie(headers, &self.name).is_none_or(<[u8]>::is_empty);
        is_wanted.then(|| format!("{:032x}", fastrand::u128(..)))
    }

    /// The cookie for a client that was sent to this target, unless it has the right one already. `new_key` is what
    /// [`Affinity::new_key`] gave.
    pub fn set_cookie(
        &self,
        headers: &HeaderMap,
        index: usize,
        new_key: Option<&str>,
        is_https: bool,
    ) -> Option<HeaderValue> {
        let value = match &self.names {
            None => new_key?,
            Some(_) if self.target(headers) == Some(index) => return None,
            Some(names) => names.of.get(index)?,
        };
        let secure = if self.secure.unwrap_or(is_https) { "; Secure" } else { "" };
        HeaderValue::try_from(format!("{}={value}{}{secure}", self.name, self.attributes)).ok()
    }
}

fn name(upstream: &Upstream, target: &Target) -> Box<str> {
    let digest = Sha256::new()
        .chain_update(b"ferrum-edge target\0")
        .chain_update(upstream.id.as_str())
        .chain_update(b"\0")
        .chain_update(target.authority().as_bytes())
        .finalize();
    digest.iter().take(NAME_BYTES).map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// The attributes as `Set-Cookie` has them (RFC 6265 §4.1).
fn written(attributes: &CookieAttributes) -> String {
    let mut text = format!("; Path={}", attributes.path);
    if let Some(domain) = &attributes.domain {
        text.extend(["; Domain=", domain]);
    }
    if !attributes.ttl.is_zero() {
        text.push_str(&format!("; Max-Age={}", attributes.ttl.as_secs()));
    }
    if attributes.http_only {
        text.push_str("; HttpOnly");
    }
    match attributes.same_site {
        None => {}
        Some(SameSite::Strict) => text.push_str("; SameSite=Strict"),
        Some(SameSite::Lax) => text.push_str("; SameSite=Lax"),
        Some(SameSite::None) => text.push_str("; SameSite=None"),
    }
    text
}
