//! Changes to the attributes of cookies that responses set.

use std::borrow::Cow;

use gateway_core::config::problem::Problems;
use gateway_core::template::{Facts, Moment, Template, TextContext};
use gateway_plugin_common::parse;
use http::header::{Entry, SET_COOKIE};
use http::{HeaderMap, HeaderValue};
use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::transformation::transform::Unusable;
use crate::transformation::transform::replace::{Rendered, Replacement, Replacer, ValueKind, replace};

/// Changes to the attributes of some cookies. Without `name` and `pattern`, it applies to all cookies.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CookieRule {
    /// Name of the cookie.
    name: Option<String>,
    /// Regex that matches a part of the cookie's name.
    pattern: Option<String>,
    /// Changes to `Domain`; the first match applies. `equals` ignores case and a leading dot, and the dot stays.
    domains: Vec<Replacement>,
    /// Changes to `Path`; the first match applies.
    paths: Vec<Replacement>,
    /// Adds `Secure` (true) or removes it (false). Default: unchanged.
    secure: Option<bool>,
    /// Adds `HttpOnly` (true) or removes it (false). Default: unchanged.
    http_only: Option<bool>,
    /// Sets or removes `SameSite`. Default: unchanged.
    same_site: Option<SameSite>,
}

/// Value of `SameSite`, or its removal.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SameSite {
    Strict,
    Lax,
    None,
    Remove,
}

/// Rules one plugin config may have.
const MAX_RULES: usize = 100;

/// Compiled rules.
pub(super) struct CookieRules(Vec<CookieChange>);

struct CookieChange {
    name: Option<String>,
    pattern: Option<Regex>,
    domains: Vec<Replacer>,
    paths: Vec<Replacer>,
    secure: Option<bool>,
    http_only: Option<bool>,
    same_site: Option<SameSite>,
}

/// Rules whose templates are rendered.
pub(super) struct RenderedRules<'r>(Vec<RenderedRule<'r>>);

struct RenderedRule<'r> {
    rule: &'r CookieChange,
    domains: Vec<Rendered<'r>>,
    paths: Vec<Rendered<'r>>,
}

impl CookieRules {
    pub(super) fn read(rules: Vec<CookieRule>, problems: &mut Problems) -> Self {
        if rules.len() > MAX_RULES {
            problems.add("config.cookies", format!("has more than {MAX_RULES} entries"));
            return Self(Vec::new());
        }
        let all = rules.into_iter().enumerate();
        Self(all.map(|(n, rule)| read(&format!("config.cookies[{n}]"), rule, problems)).collect())
    }

    /// The names of the route's path that values are made of.
    pub(super) fn captures(&self) -> Vec<&str> {
        let all = self.0.iter().flat_map(|rule| rule.domains.iter().chain(&rule.paths));
        all.flat_map(Replacer::templates).flat_map(Template::captures).collect()
    }

    /// Renders the rules; none for a response that sets no cookie.
    pub(super) fn render(&self, facts: &Facts<'_>) -> Result<RenderedRules<'_>, Unusable> {
        let sets_cookies = facts.response.is_some_and(|(_, headers)| headers.contains_key(SET_COOKIE));
        let rules = self.0.iter().filter(|_| sets_cookies).map(|rule| {
            let (domains, paths) = (rendered(&rule.domains, facts)?, rendered(&rule.paths, facts)?);
            Ok(RenderedRule { rule, domains, paths })
        });
        rules.collect::<Result<_, _>>().map(RenderedRules)
    }
}

fn rendered<'r>(list: &'r [Replacer], facts: &Facts<'_>) -> Result<Vec<Rendered<'r>>, Unusable> {
    list.iter().map(|one| one.render(facts, TextContext::Cookie)).collect()
}

fn read(at: &str, rule: CookieRule, problems: &mut Problems) -> CookieChange {
    if rule.name.is_some() && rule.pattern.is_some() {
        problems.add(at, "`name` and `pattern` exclude each other");
    }
    let changes = rule.secure.is_some() || rule.http_only.is_some() || rule.same_site.is_some();
    let is_for_all = rule.name.is_none() && rule.pattern.is_none();
    // One with a name may leave its cookies alone where a later one would not.
    if is_for_all && !changes && rule.domains.is_empty() && rule.paths.is_empty() {
        problems.add(at, "it changes nothing");
    }
    let pattern = rule.pattern.and_then(|text| parse::byte_regex(&format!("{at}.pattern"), &text, problems));
    let mut list =
        |name: &str, list| Replacer::read_all(&format!("{at}.{name}"), list, Moment::Response, problems);
    let (domains, paths) = (list("domains", rule.domains), list("paths", rule.paths));
    CookieChange {
        name: rule.name,
        pattern,
        domains,
        paths,
        secure: rule.secure,
        http_only: rule.http_only,
        same_site: rule.same_site,
    }
}

impl RenderedRules<'_> {
    /// Changes every cookie that a response sets, each by the first rule for its name.
    ///
    /// # Errors
    /// When a new value cannot be used.
    pub(super) fn apply(&self, headers: &mut HeaderMap) -> Result<(), Unusable> {
        if self.0.is_empty() {
            return Ok(());
        }
        let Entry::Occupied(mut field) = headers.entry(SET_COOKIE) else { return Ok(()) };
        for value in field.iter_mut() {
            if let Some(made) = self.changed(value.as_bytes())? {
                *value = HeaderValue::from_bytes(&made).map_err(|_| Unusable)?;
            }
        }
        Ok(())
    }

    fn changed(&self, cookie: &[u8]) -> Result<Option<Vec<u8>>, Unusable> {
        let mut parts = cookie.split(|c| *c == b';').map(<[u8]>::trim_ascii);
        // What has no `=` is no cookie.
        let Some(first) = parts.next().filter(|pair| pair.contains(&b'=')) else { return Ok(None) };
        let name = split(first).0;
        let Some(rule) = self.0.iter().find(|rule| rule.rule.is_for(name)) else { return Ok(None) };
        let mut attributes: Vec<Cow<'_, [u8]>> = parts.filter(|it| !it.is_empty()).map(Cow::from).collect();
        let mut has_changed = false;
        for attribute in &mut attributes {
            if let Some(made) = rule.attribute(attribute)? {
                *attribute = made.into();
                has_changed = true;
            }
        }
        has_changed |= rule.rule.set_flags(&mut attributes);
        if !has_changed {
            return Ok(None);
        }
        let mut made = first.to_vec();
        for attribute in attributes {
            made.extend_from_slice(b"; ");
            made.extend_from_slice(&attribute);
        }
        Ok(Some(made))
    }
}

impl RenderedRule<'_> {
    /// The new `Domain` or `Path`; `None` where it stays.
    fn attribute(&self, attribute: &[u8]) -> Result<Option<Vec<u8>>, Unusable> {
        let (name, Some(value)) = split(attribute) else { return Ok(None) };
        let made = match () {
            () if name.eq_ignore_ascii_case(b"domain") => replace(&self.domains, value, ValueKind::Domain)?,
            () if name.eq_ignore_ascii_case(b"path") => replace(&self.paths, value, ValueKind::Text)?,
            () => None,
        };
        Ok(made.map(|made| [name, b"=", &made].concat()))
    }
}

impl CookieChange {
    fn is_for(&self, name: &[u8]) -> bool {
        match (&self.name, &self.pattern) {
            (Some(own), _) => own.as_bytes() == name,
            (None, Some(pattern)) => pattern.is_match(name),
            (None, None) => true,
        }
    }

    /// Sets and removes the attributes that are flags; says whether any changed.
    fn set_flags(&self, attributes: &mut Vec<Cow<'_, [u8]>>) -> bool {
        let before = attributes.clone();
        set_flag(attributes, b"Secure", self.secure);
        set_flag(attributes, b"HttpOnly", self.http_only);
        let is_same_site = |it: &Cow<'_, [u8]>| split(it).0.eq_ignore_ascii_case(b"samesite");
        let text: Option<&'static [u8]> = match self.same_site {
            None => return *attributes != before,
            Some(SameSite::Remove) => None,
            Some(SameSite::Strict) => Some(b"SameSite=Strict"),
            Some(SameSite::Lax) => Some(b"SameSite=Lax"),
            Some(SameSite::None) => Some(b"SameSite=None"),
        };
        match (text, attributes.iter().position(is_same_site)) {
            (Some(text), Some(at)) => {
                if let Some(known) = attributes.get_mut(at) {
                    *known = text.into();
                }
            }
            (Some(text), None) => attributes.push(text.into()),
            (None, _) => attributes.retain(|it| !is_same_site(it)),
        }
        *attributes != before
    }
}

fn set_flag(attributes: &mut Vec<Cow<'_, [u8]>>, name: &'static [u8], wanted: Option<bool>) {
    let is_it = |it: &Cow<'_, [u8]>| split(it).0.eq_ignore_ascii_case(name);
    match wanted {
        Some(true) if !attributes.iter().any(is_it) => attributes.push(name.into()),
        Some(false) => attributes.retain(|it| !is_it(it)),
        _ => {}
    }
}

/// A name and its value, where there is one.
fn split(part: &[u8]) -> (&[u8], Option<&[u8]>) {
    match part.iter().position(|c| *c == b'=') {
        Some(at) => (part[..at].trim_ascii(), part.get(at + 1..).map(<[u8]>::trim_ascii)),
        None => (part, None),
    }
}
