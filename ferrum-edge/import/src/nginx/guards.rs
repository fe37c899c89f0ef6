//! What keeps requests out of a location. What can't be said here closes it.

use std::rc::Rc;

use serde_json::Value;

use super::blocks::Directive;
use super::guard_names::{NOT_CONVERTED, UNREAD, is_guard};
use super::location::Location;
use super::{Nginx, innermost};
use crate::cond::Cond;
use crate::draft::{BasicAuth, Match, Plug, draft};
use crate::text;

/// What keeps requests out of a location.
#[derive(Debug, Clone, Default)]
pub(super) struct Guards {
    /// Something can't be converted: 503.
    pub(super) is_closed: bool,
    /// Requests that get 403.
    pub(super) denied: Option<Cond>,
    /// Requests that get 400, for want of a certificate.
    pub(super) uncertified: Option<Cond>,
    /// Plugins that ask who it is.
    pub(super) plugins: Vec<Plug>,
}

pub(super) const TODO: &str =
    "guard it with a plugin (see `ferrum-edge plugins`), then remove `request_termination`";

impl Nginx<'_> {
    /// What guards a location, by itself and by the levels around it, the outermost first.
    pub(super) fn guards(&mut self, place: &str, levels: &[&Directive]) -> Guards {
        let mut made = Guards::default();
        for name in NOT_CONVERTED {
            let Some(found) = innermost(levels, name) else { continue };
            if found.arguments.first().is_some_and(|first| first == "off") {
                continue;
            }
            let why = if *name == UNREAD {
                "what this file says is not known"
            } else {
                "it guards, and can't be converted"
            };
            made.is_closed |=
                self.out.guard_not_converted(found.at, format_args!("{place}: {found}"), why, TODO);
        }
        let mut foreign: Vec<&Directive> = levels.iter().flat_map(|level| level.guards_by_name()).collect();
        foreign.dedup_by_key(|directive| directive.at);
        for found in foreign
            .into_iter()
            .filter(|found| found.arguments.first().is_none_or(|it| !it.eq_ignore_ascii_case("off")))
        {
            let why = "its name says that it guards, and it can't be converted";
            made.is_closed |=
                self.out.guard_not_converted(found.at, format_args!("{place}: {found}"), why, TODO);
        }
        self.asks_password(place, levels, &mut made);
        self.asks_server(place, levels, &mut made);
        self.addresses(place, levels, &mut made);
        self.limit_except(place, levels, &mut made);
        self.certificates_asked(place, levels, &mut made);
        made
    }

    /// `allow` and `deny`, and what `satisfy` makes of them beside a password or a server that is asked.
    fn addresses(&mut self, place: &str, levels: &[&Directive], made: &mut Guards) {
        let satisfy =
            innermost(levels, "satisfy").filter(|it| it.arguments.first().is_some_and(|it| it == "any"));
        let Some(satisfy) = satisfy.filter(|_| !made.plugins.is_empty()) else {
            let denied = self.by_address(place, levels, false, &mut made.is_closed);
            made.denied = Some(denied).filter(|denied| *denied != Cond::Never);
            return;
        };
        // An address that no rule names lets nobody in by itself. Who is let in by address is asked nothing.
        match self.by_address(place, levels, true, &mut made.is_closed) {
            Cond::Never => made.plugins.clear(),
            asked => {
                let when = asked.when().map(Rc::new);
                made.plugins.iter_mut().for_each(|plug| plug.when.clone_from(&when));
            }
        }
        let has_limit =
            levels.last().is_some_and(|level| level.block.iter().any(|it| it.name == "limit_except"));
        let why = match made.plugins.len() {
            2.. => "`satisfy any` of several kinds of authentication can't be converted",
            _ if has_limit => "`satisfy any` beside `limit_except` can't be converted",
            _ => return,
        };
        made.is_closed |=
            self.out.guard_not_converted(satisfy.at, format_args!("{place}: satisfy any"), why, TODO);
    }

    /// Whom `allow` and `deny` don't let in; `others` says whether they are those that no rule names, too.
    fn by_address(&mut self, place: &str, levels: &[&Directive], others: bool, is_closed: &mut bool) -> Cond {
        let has_rules =
            |level: &&&Directive| ["allow", "deny"].iter().any(|name| level.all(name).next().is_some());
        let nobody_named = || if others { Cond::Always } else { Cond::Never };
        let Some(level) = levels.iter().rev().find(has_rules) else { return nobody_named() };
        match self.denied_by(&level.block, others) {
            Some(cond) => cond,
            None => {
                let rule = level.block.iter().find(|it| matches!(it.name.as_str(), "allow" | "deny"));
                let at = rule.map(|rule| rule.at).unwrap_or_default();
                let why = "these addresses can't be converted, or clients' addresses are not known here (`real_ip_header`)";
                *is_closed |=
                    self.out.guard_not_converted(at, format_args!("{place}: allow and deny"), why, TODO);
                nobody_named()
            }
        }
    }

    /// The clients that a list of `allow` and `deny` does not let in: the first that fits decides, and `others` for those that
    /// none fits.
    pub(super) fn denied_by(&self, block: &[Directive], others: bool) -> Option<Cond> {
        let mut rules: Vec<(Cond, bool)> = Vec::new();
        for rule in block.iter().filter(|it| matches!(it.name.as_str(), "allow" | "deny")) {
            let denies = rule.name == "deny";
            let whom = rule.arguments.first()?.as_str();
            if whom == "all" {
                rules.push((Cond::Always, denies));
                continue;
            }
            if !text::is_network(whom) || self.has_unknown_clients {
                return None;
            }
            // Neighbours that say the same are one list.
            match rules.last_mut() {
                Some((Cond::Is(Value::Object(one)), said)) if *said == denies => {
                    if let Some(Value::Array(list)) = one.get_mut("clients") {
                        list.push(whom.into());
                    }
                }
                _ => rules.push((Cond::clients([whom]), denies)),
            }
        }
        let cond = Cond::first(rules.into_iter(), others);
        (cond.depth() <= 12).then_some(cond)
    }

    /// `auth_basic`, by a file that the gateway reads as well.
    fn asks_password(&mut self, place: &str, levels: &[&Directive], made: &mut Guards) {
        let Some(asked) = innermost(levels, "auth_basic") else { return };
        let realm = asked.arguments.first().map_or("", String::as_str);
        if realm == "off" {
            return;
        }
        let what = format!("{place}: {asked}");
        let file = innermost(levels, "auth_basic_user_file").and_then(|it| it.arguments.first()).cloned();
        let Some(file) = file.filter(|file| !file.contains('$') && !realm.contains('$')) else {
            made.is_closed |= self.out.guard_not_converted(
                asked.at,
                what,
                "it names no file with passwords, or has variables",
                TODO,
            );
            return;
        };
        let path = self.folder.join(&file);
        if !path.is_absolute() {
            let why = "its file has a relative name, and the folder of nginx.conf is not known";
            made.is_closed |= self.out.guard_not_converted(
                asked.at,
                what,
                why,
                "write the whole path in `auth_basic_user_file`",
            );
            return;
        }
        match self.reader.read(&path) {
            Ok(text) => {
                let is_known = |line: &str| {
                    let hash = line.split_once(':').map_or("", |(_, hash)| hash);
                    ["$apr1$", "$2", "$argon2id$"].iter().any(|start| hash.starts_with(start))
                };
                let lines =
                    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
                let bad = lines.filter(|line| !is_known(line)).count();
                if bad > 0 {
                    let why = format!("{bad} hashes in {file} are not bcrypt, argon2id or apr1");
                    let todo = "make them anew with `htpasswd -B`";
                    made.is_closed |= self.out.guard_not_converted(asked.at, what, why, todo);
                    return;
                }
                self.out.converted(asked.at, what);
            }
            Err(_) => {
                let why = format!("{file} could not be read here");
                let todo = "import where it is; its hashes are by bcrypt, argon2id or apr1";
                made.is_closed |= self.out.guard_not_converted(asked.at, what, why, todo);
                return;
            }
        }
        let realm = if realm.is_empty() { "ferrum-edge" } else { realm };
        let files = [path.display().to_string()];
        made.plugins.push(Plug::of(draft!(BasicAuth {
            realm,
            htpasswd_files: files,
            hide_credentials: false
        })));
    }

    /// `limit_except METHODS { deny all; }`.
    fn limit_except(&mut self, place: &str, levels: &[&Directive], made: &mut Guards) {
        let Some(limit) =
            levels.last().and_then(|level| level.block.iter().find(|it| it.name == "limit_except"))
        else {
            return;
        };
        let others = other_methods(limit);
        let what = format!("{place}: {limit}");
        let only_addresses = limit.block.iter().all(|it| matches!(it.name.as_str(), "allow" | "deny"));
        match self.denied_by(&limit.block, false).filter(|_| only_addresses) {
            Some(denied) => {
                self.out.converted(limit.at, what);
                let denied = others.and(denied);
                made.denied =
                    Some(made.denied.take().map_or_else(|| denied.clone(), |known| known.or(denied.clone())));
            }
            None => {
                made.is_closed |= self.out.guard_not_converted(
                    limit.at,
                    what,
                    "only addresses in it can be converted",
                    TODO,
                )
            }
        }
    }

    /// `ssl_verify_client` of a server; see `Nginx::client_certificates`.
    fn certificates_asked(&mut self, place: &str, levels: &[&Directive], made: &mut Guards) {
        let Some(asked) = innermost(levels, "ssl_verify_client") else { return };
        let mode = asked.arguments.first().map_or("", String::as_str);
        match mode {
            "on" if self.client_ca.is_some() => {
                made.uncertified = Some(Cond::client_certificate().negate());
            }
            "off" | "optional" => {}
            _ => {
                let why = match mode {
                    "on" => {
                        "the gateway has one file of authorities, and one of revocation lists, for all clients' certificates"
                    }
                    _ => "certificates that are not verified are not known here",
                };
                made.is_closed |=
                    self.out.guard_not_converted(asked.at, format_args!("{place}: {asked}"), why, TODO);
            }
        }
    }
}

/// The methods that a `limit_except` holds for: all but those that it names.
pub(super) fn other_methods(limit: &Directive) -> Cond {
    let mut methods = limit.arguments.clone();
    if methods.iter().any(|method| method == "GET") {
        methods.push("HEAD".to_owned());
    }
    Cond::is(draft!(Match { methods })).negate()
}

/// Whether a location keeps requests out, or may. `internal` lets in what nginx itself leads there.
pub(super) fn is_guarded(location: &Location<'_>) -> bool {
    is_guarded_besides(location, "")
}

/// As [`is_guarded`], without a look at the directives of this name.
pub(super) fn is_guarded_besides(location: &Location<'_>, looked_at: &str) -> bool {
    let guards = |it: &Directive| {
        let name = it.name.as_str();
        name != looked_at && (is_guard(name) && name != "internal" || matches!(name, "return" | "if"))
    };
    location.directive.block.iter().any(guards)
}
