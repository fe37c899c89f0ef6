//! Cookies that the browser keeps: written with their attributes, split where they are too long for one.

use http::{HeaderMap, HeaderValue};
use schemars::JsonSchema;
use serde::Deserialize;

use super::visit::BrowserVisit;
use crate::credential::place::{cookies, take_out_of_cookies};

/// Bytes of one cookie's value; browsers take 4096 with its name and attributes.
const PART: usize = 3500;
/// Cookies of one value.
const MAX_PARTS: usize = 6;
/// Cookies of one name that are looked at.
const MAX_COPIES: usize = 16;
/// Ways to put parts of several copies together that are tried.
const MAX_TRIES: usize = 32;
/// `Set-Cookie` lines that remove copies. Proxies before the gateway may take a few KiB of header only.
const MAX_GONE: usize = 16;

/// When browsers send the cookie with requests from other sites.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SameSite {
    /// Only if the user follows a link.
    #[default]
    Lax,
    /// Never. A user who follows a link from another site passes through the provider again.
    Strict,
    /// Always; requires HTTPS.
    None,
}

/// Names and attributes of the cookies.
pub(super) struct Cookies {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) domain: Option<String>,
    pub(super) same_site: SameSite,
}

/// Attributes of a cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CookiePlace {
    path: String,
    domain: Option<String>,
    same_site: SameSite,
}

impl CookiePlace {
    fn line(&self, name: &str, value: &str, seconds: u64, secure: bool) -> Option<HeaderValue> {
        let same_site = match self.same_site {
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
}

/// How many parts a value has, and the first of them.
fn counted(first: &[u8]) -> Option<(usize, &[u8])> {
    let at = first.iter().position(|c| *c == b'.')?;
    let count: usize = std::str::from_utf8(first.get(..at)?).ok()?.parse().ok()?;
    (1..=MAX_PARTS).contains(&count).then_some((count, first.get(at + 1..)?))
}

/// The value of copy `i` as it is put together in this round; `None` after the last round, and where a part is missing. Of the `rest`,
/// the first round takes the parts at the place that this copy has among those that are as long.
fn joined(copies: &[(usize, &[u8])], rest: &[Vec<&[u8]>], i: usize, round: usize) -> Option<Vec<u8>> {
    let (count, first) = copies.get(i)?;
    let (mut value, mut left) = (first.to_vec(), round);
    for (n, values) in (1..*count).zip(rest) {
        let before = copies.iter().take(i).filter(|(count, _)| *count > n).count();
        value.extend_from_slice(values.get((before + left) % values.len().max(1))?);
        left /= values.len();
    }
    (left == 0).then_some(value)
}

/// `Set-Cookie` that removes cookies of these names from these places: the first name from all of them first, without which the others
/// are worth nothing.
fn gone(places: &[CookiePlace], names: &[&String], secure: bool) -> Vec<HeaderValue> {
    let each = names.iter().flat_map(|name| places.iter().map(move |place| place.line(name, "", 0, secure)));
    each.flatten().take(MAX_GONE).collect()
}

impl Cookies {
    /// Name of a part; the first has the name alone.
    fn part(name: &str, n: usize) -> String {
        if n == 0 { name.to_owned() } else { format!("{name}_{n}") }
    }

    /// The values of all cookies of a name: a browser has several with other paths or domains, and another host of the domain may
    /// have set some.
    pub(super) fn values<'h>(headers: &'h HeaderMap, name: &str) -> impl Iterator<Item = &'h [u8]> {
        cookies(headers).filter(move |(key, _)| *key == name.as_bytes()).map(|(_, value)| value)
    }

    /// Hands over each value that the parts can be put together to, until `opens` says of each first part that it was right. Where
    /// there are several copies, their parts come in the same order (RFC 6265 §5.4); other ways to put them together are tried after that.
    pub(super) fn read(&self, headers: &HeaderMap, mut opens: impl FnMut(&[u8]) -> bool) {
        let mut first = Self::values(headers, &self.name).take(MAX_COPIES).filter_map(counted);
        let Some(one) = first.next() else { return };
        let mut copies: Vec<(usize, &[u8])> = vec![one];
        copies.extend(first);
        if let [(1, value)] = &*copies {
            opens(value);
            return;
        }
        let rest: Vec<Vec<&[u8]>> = (1..MAX_PARTS)
            .map(|n| Self::values(headers, &Self::part(&self.name, n)).take(MAX_COPIES).collect())
            .collect();
        let mut is_done = vec![false; copies.len()];
        let mut tries = MAX_TRIES;
        for round in 0..MAX_TRIES {
            for (i, is_done) in is_done.iter_mut().enumerate().filter(|(_, is_done)| !**is_done) {
                match joined(&copies, &rest, i, round) {
                    Some(_) if tries == 0 => return,
                    Some(value) => {
                        tries -= 1;
                        *is_done = opens(&value);
                    }
                    None => *is_done = true,
                }
            }
        }
    }

    /// `Set-Cookie` for a value, and to remove parts of the one before and copies; `None` when it is too long.
    pub(super) fn write(&self, visit: &BrowserVisit, value: &str, seconds: u64) -> Option<Vec<HeaderValue>> {
        let parts: Vec<&[u8]> = value.as_bytes().chunks(PART).collect();
        if parts.len() > MAX_PARTS {
            return None;
        }
        let (headers, secure) = (&visit.headers, visit.is_secure());
        let several = |name: &str| Self::values(headers, name).nth(1).is_some();
        let names: Vec<String> = (0..MAX_PARTS).map(|n| Self::part(&self.name, n)).collect();
        // Before the new ones: what some browsers take for the same cookie stays then.
        let copied: Vec<&String> = names.iter().filter(|name| several(name)).collect();
        let places = if copied.is_empty() { Vec::new() } else { self.places(visit, true) };
        let mut lines = gone(places.get(1..).unwrap_or_default(), &copied, secure);
        for (n, (part, name)) in parts.iter().zip(&names).enumerate() {
            let text = std::str::from_utf8(part).ok()?;
            let text = if n == 0 { format!("{}.{text}", parts.len()) } else { text.to_owned() };
            lines.push(self.set(name, &text, seconds, secure)?);
        }
        let old = names.iter().skip(parts.len()).filter(|name| Self::values(headers, name).next().is_some());
        lines.extend(old.filter_map(|name| self.set(name, "", 0, secure)));
        Some(lines)
    }

    /// `Set-Cookie` that removes all the parts that the browser sent, also where they have another path or domain than the settings say
    /// now: a copy that stays would let in again.
    pub(super) fn clear(&self, visit: &BrowserVisit) -> Vec<HeaderValue> {
        let names: Vec<String> = (0..MAX_PARTS).map(|n| Self::part(&self.name, n)).collect();
        let sent = |name: &&String| Self::values(&visit.headers, name).next().is_some();
        let several = |name: &String| Self::values(&visit.headers, name).nth(1).is_some();
        let sent: Vec<&String> = names.iter().filter(sent).collect();
        let places = self.places(visit, names.iter().any(several));
        let (own, others) = places.split_at(1);
        let secure = visit.is_secure();
        [gone(own, &sent, secure), gone(others, &sent, secure)].concat()
    }

    /// Where copies of a cookie may be: first where it is set, then where settings of before may have put it; `all` goes through the
    /// paths and the domain above this host as well.
    fn places(&self, visit: &BrowserVisit, all: bool) -> Vec<CookiePlace> {
        let own =
            CookiePlace { path: self.path.clone(), domain: self.domain.clone(), same_site: self.same_site };
        let mut places = vec![own];
        // Browsers take cookies of this name at one place only.
        if self.name.starts_with("__Host-") {
            return places;
        }
        let mut paths = vec![self.path.as_str(), "/"];
        let path = visit.target.split(['?', '#']).next().unwrap_or_default();
        if all {
            paths.extend(path.match_indices('/').skip(1).take(MAX_GONE).filter_map(|(at, _)| path.get(..at)));
            paths.push(path);
        }
        let mut domains = vec![self.domain.clone(), None];
        if let Some(host) = visit.domain() {
            domains.push(Some(host.to_owned()));
            let above = host.split_once('.').map(|(_, above)| above).filter(|above| above.contains('.'));
            domains.extend(above.filter(|_| all).map(|above| Some(above.to_owned())));
        }
        for path in paths {
            for domain in &domains {
                let place =
                    CookiePlace { path: path.to_owned(), domain: domain.clone(), same_site: self.same_site };
                if !places.contains(&place) && path.bytes().all(|c| c.is_ascii_graphic() && c != b';') {
                    places.push(place);
                }
            }
        }
        places
    }

    /// One `Set-Cookie`; without a value it removes the cookie.
    pub(super) fn set(&self, name: &str, value: &str, seconds: u64, secure: bool) -> Option<HeaderValue> {
        let place =
            CookiePlace { path: self.path.clone(), domain: self.domain.clone(), same_site: self.same_site };
        place.line(name, value, seconds, secure)
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
        let place = CookiePlace { path: self.path.clone(), domain: self.domain.clone(), same_site };
        place.line(name, value, seconds, secure)
    }

    /// Whether browsers send the session only with what a page of this site causes.
    pub(super) fn is_strict(&self) -> bool {
        self.same_site == SameSite::Strict
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
