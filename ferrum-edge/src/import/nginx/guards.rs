//! What keeps requests out of a location. What can't be said here closes it.

use super::{Directive, Nginx};

/// Directives that keep requests out.
pub(super) const NAMES: &[&str] = &[
    "allow",
    "deny",
    "satisfy",
    "auth_basic",
    "auth_basic_user_file",
    "auth_request",
    "auth_request_set",
    "auth_jwt",
    "auth_jwt_key_file",
    "auth_jwt_key_request",
    "auth_oidc",
    "internal",
    "limit_except",
    "valid_referers",
    "if",
    "secure_link",
    "secure_link_secret",
    "ssl_verify_client",
    "access_by_lua",
    "access_by_lua_block",
    "access_by_lua_file",
    "js_access",
    "perl",
    "modsecurity",
    "app_protect_enable",
];

/// What keeps requests out of a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Guard {
    /// Nothing.
    None,
    /// Everybody gets this status.
    Denied(u16),
    /// Only clients of these blocks get in.
    Only(Vec<String>),
    /// Something that can't be translated.
    Closed,
}

impl Nginx {
    /// What guards a location, by itself and by the levels around it, the outermost first.
    pub(super) fn guards(&mut self, place: &str, levels: &[&Directive]) -> Guard {
        let innermost = levels.last();
        if innermost
            .is_some_and(|level| level.name == "location" && level.block.iter().any(|d| d.name == "internal"))
        {
            // No request from outside gets there.
            return Guard::Denied(404);
        }
        let mut is_closed = false;
        for name in NAMES.iter().filter(|name| !matches!(**name, "allow" | "deny" | "internal")) {
            let Some(found) = said(levels, name) else { continue };
            let first = found.arguments.first().map(String::as_str);
            let is_off = matches!(first, Some("off" | "optional_no_ca"))
                || *name == "satisfy" && first == Some("all")
                || matches!(*name, "auth_basic_user_file" | "auth_request_set" | "auth_jwt_key_file");
            // Asked for by a plugin.
            let is_asked = *name == "auth_basic" && super::plugins::passwords(levels).is_some();
            if !is_off && !is_asked {
                let place = format!("line {}, {place}: {found}", found.line);
                is_closed |= self.out.guard(place, "it guards, and can't be translated");
            }
        }
        let unknown = |directive: &&Directive| is_guard_by_name(&directive.name);
        let mut foreign: Vec<&Directive> =
            levels.iter().flat_map(|level| level.block.iter()).filter(unknown).collect();
        foreign.dedup_by_key(|directive| directive.line);
        for found in foreign {
            let place = format!("line {}, {place}: {found}", found.line);
            is_closed |= self.out.guard(place, "its name says that it guards, and it can't be translated");
        }
        if is_closed {
            return Guard::Closed;
        }
        let of_access =
            |level: &&&Directive| level.block.iter().any(|d| matches!(d.name.as_str(), "allow" | "deny"));
        let Some(level) = levels.iter().rev().find(of_access) else { return Guard::None };
        let rules: Vec<&Directive> =
            level.block.iter().filter(|d| matches!(d.name.as_str(), "allow" | "deny")).collect();
        match by_address(&rules) {
            Some(guard) => guard,
            None => {
                let line = rules.first().map_or(0, |rule| rule.line);
                let why = "only `allow` of addresses before `deny all` can be translated";
                let place = format!("line {line}, {place}: allow and deny");
                if self.out.guard(place, why) { Guard::Closed } else { Guard::None }
            }
        }
    }
}

/// Whether a directive of a module we don't know keeps requests out, to go by its name.
fn is_guard_by_name(name: &str) -> bool {
    const WORDS: [&str; 9] =
        ["auth", "jwt", "oidc", "saml", "ldap", "waf", "captcha", "geoip2_deny", "access_by"];
    !NAMES.contains(&name)
        && !name.starts_with("proxy_")
        && WORDS.iter().any(|word| name.split('_').any(|part| part == *word) || name.starts_with(word))
}

/// The directive of this name that holds: the innermost level's.
fn said<'d>(levels: &[&'d Directive], name: &str) -> Option<&'d Directive> {
    levels.iter().rev().find_map(|level| level.block.iter().find(|directive| directive.name == name))
}

/// Rules by address, where the first that fits decides; `None` when they can't be said as one list.
fn by_address(rules: &[&Directive]) -> Option<Guard> {
    let mut allowed = Vec::new();
    for rule in rules {
        let whom = rule.arguments.first()?.as_str();
        match (rule.name.as_str(), whom) {
            ("allow", "all") if allowed.is_empty() => return Some(Guard::None),
            ("deny", "all") if allowed.is_empty() => return Some(Guard::Denied(403)),
            ("deny", "all") => return Some(Guard::Only(allowed)),
            ("allow", whom) if whom.parse::<std::net::IpAddr>().is_ok() || is_block(whom) => {
                allowed.push(whom.to_owned());
            }
            _ => return None,
        }
    }
    // Who is not named gets in.
    Some(Guard::None)
}

fn is_block(text: &str) -> bool {
    text.split_once('/').is_some_and(|(address, bits)| {
        let most = match address.parse() {
            Ok(std::net::IpAddr::V4(_)) => 32,
            Ok(std::net::IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        bits.parse::<u8>().is_ok_and(|bits| bits <= most)
    })
}
