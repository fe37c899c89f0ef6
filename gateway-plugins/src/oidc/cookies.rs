//! Cookies that the browser keeps: written with their attributes, split where they are too long for one.

use http::{HeaderMap, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::credential::place::{cookies, take_out_of_cookies};

/// Bytes of one cookie's value; browsers take 4096 with its name and attributes.
const PART: usize = 3500;
/// Cookies of one value.
const MAX_PARTS: usize = 6;

/// When browsers send a cookie along with requests that other sites cause.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SameSite {
    /// Only when the user goes there by a link.
    #[default]
    Lax,
    /// Never: who comes by a link of another site goes by way of the provider once more.
    Strict,
    /// Always; needs https.
    None,
}

/// How the cookies are called and who gets them.
pub(super) struct Cookies {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) domain: Option<String>,
    pub(super) same_site: SameSite,
}

impl Cookies {
    /// Name of a part; the first has the name alone.
    fn part(name: &str, n: usize) -> String {
        if n == 0 { name.to_owned() } else { format!("{name}_{n}") }
    }

    /// The value of one cookie; `None` where there is none, or several.
    pub(super) fn one<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h [u8]> {
        let mut values = cookies(headers).filter(|(key, _)| *key == name.as_bytes()).map(|(_, value)| value);
        values.next().filter(|_| values.next().is_none())
    }

    /// A value put together from its parts; `None` unless all of them are there.
    pub(super) fn read(&self, headers: &HeaderMap) -> Option<Vec<u8>> {
        let first = Self::one(headers, &self.name)?;
        let at = first.iter().position(|c| *c == b'.')?;
        let count: usize = std::str::from_utf8(first.get(..at)?).ok()?.parse().ok()?;
        let mut value = first.get(at + 1..)?.to_vec();
        if !(1..=MAX_PARTS).contains(&count) {
            return None;
        }
        for n in 1..count {
            value.extend_from_slice(Self::one(headers, &Self::part(&self.name, n))?);
        }
        Some(value)
    }

    /// `Set-Cookie` for a value, and to remove parts of the one before; `None` when it is too long.
    pub(super) fn write(
        &self,
        headers: &HeaderMap,
        value: &str,
        seconds: u64,
        secure: bool,
    ) -> Option<Vec<HeaderValue>> {
        let parts: Vec<&[u8]> = value.as_bytes().chunks(PART).collect();
        if parts.len() > MAX_PARTS {
            return None;
        }
        let mut lines = Vec::new();
        for (n, part) in parts.iter().enumerate() {
            let text = std::str::from_utf8(part).ok()?;
            let text = if n == 0 { format!("{}.{text}", parts.len()) } else { text.to_owned() };
            lines.push(self.set(&Self::part(&self.name, n), &text, seconds, secure)?);
        }
        let old = (parts.len()..MAX_PARTS).map(|n| Self::part(&self.name, n));
        lines.extend(self.gone(headers, old, secure));
        Some(lines)
    }

    /// `Set-Cookie` that removes all the parts that the browser sent.
    pub(super) fn clear(&self, headers: &HeaderMap, secure: bool) -> Vec<HeaderValue> {
        self.gone(headers, (0..MAX_PARTS).map(|n| Self::part(&self.name, n)), secure)
    }

    fn gone(
        &self,
        headers: &HeaderMap,
        names: impl Iterator<Item = String>,
        secure: bool,
    ) -> Vec<HeaderValue> {
        let sent = names.filter(|name| cookies(headers).any(|(key, _)| key == name.as_bytes()));
        sent.filter_map(|name| self.set(&name, "", 0, secure)).collect()
    }

    /// One `Set-Cookie`; without a value it removes the cookie.
    pub(super) fn set(&self, name: &str, value: &str, seconds: u64, secure: bool) -> Option<HeaderValue> {
        self.line(name, value, seconds, secure, self.same_site)
    }

    /// `Set-Cookie` for a login: the browser comes back by a link of the provider's, so that a strict one would not come back.
    pub(super) fn set_login(
        &self,
        name: &str,
        value: &str,
        seconds: u64,
        secure: bool,
    ) -> Option<HeaderValue> {
        let same_site = if self.is_strict() { SameSite::Lax } else { self.same_site };
        self.line(name, value, seconds, secure, same_site)
    }

    /// Whether browsers send the session only with what a page of this site causes.
    pub(super) fn is_strict(&self) -> bool {
        self.same_site == SameSite::Strict
    }

    fn line(
        &self,
        name: &str,
        value: &str,
        seconds: u64,
        secure: bool,
        same_site: SameSite,
    ) -> Option<HeaderValue> {
        let same_site = match same_site {
            SameSite::Lax => "Lax",
            SameSite::Strict => "Strict",
            SameSite::None => "None",
        };
        let mut line =
            format!("{name}={value}; Path={}; Max-Age={seconds}; HttpOnly; SameSite={same_site}", self.path);
        if let Some(domain) = &self.domain {
            line.push_str(&format!("; Domain={domain}"));
        }
        if secure {
            line.push_str("; Secure");
        }
        HeaderValue::try_from(line).ok()
    }

    /// The name of the cookie of one login.
    pub(super) fn login(&self, state: &str) -> String {
        format!("{}_login_{}", self.name, state.get(..8).unwrap_or(state))
    }

    /// Removes what is the gateway's alone from a request.
    pub(super) fn take_out(&self, headers: &mut HeaderMap) {
        let prefix = format!("{}_login_", self.name);
        let mut ours: Vec<String> = cookies(headers)
            .filter_map(|(key, _)| std::str::from_utf8(key).ok())
            .filter(|key| key.starts_with(&prefix))
            .map(str::to_owned)
            .collect();
        ours.extend((0..MAX_PARTS).map(|n| Self::part(&self.name, n)));
        for name in ours {
            if cookies(headers).any(|(key, _)| key == name.as_bytes()) {
                take_out_of_cookies(headers, &name);
            }
        }
    }

    /// How many logins the browser has begun and not finished.
    pub(super) fn logins(&self, headers: &HeaderMap) -> Vec<String> {
        let prefix = format!("{}_login_", self.name);
        let names = cookies(headers).filter_map(|(key, _)| std::str::from_utf8(key).ok());
        names.filter(|name| name.starts_with(&prefix)).map(str::to_owned).collect()
    }
}
