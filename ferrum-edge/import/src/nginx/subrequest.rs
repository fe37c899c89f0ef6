//! `auth_request`: the server that is asked, and what it is asked.
//!
//! nginx sends the question through the location that it names, whose directives may change it, or answer in the place of a
//! server. What `forward_auth` can't say of them closes what they guard.

use serde_json::Map;

use super::asked::Test;
use super::blocks::Directive;
use super::guards::Guards;
use super::login::names_variable;
use super::variable_names::ours;
use super::{Nginx, SILENT, first, innermost, said};
use crate::cond::Cond;
use crate::draft::{ForwardAuth, Plug, draft};
use crate::own_fields::is_framing;
use crate::text;

/// Directives of the location that change nothing of the question, or are looked at here. Access rules don't hold for it.
const GOOD: &[&str] = &[
    "access_log",
    "add_header",
    "allow",
    "auth_basic",
    "auth_basic_user_file",
    "auth_request",
    "auth_request_set",
    "client_max_body_size",
    "deny",
    "error_log",
    "internal",
    "proxy_connect_timeout",
    "proxy_hide_header",
    "proxy_method",
    "proxy_next_upstream",
    "proxy_next_upstream_timeout",
    "proxy_next_upstream_tries",
    "proxy_pass",
    "proxy_pass_request_body",
    "proxy_pass_request_headers",
    "proxy_read_timeout",
    "proxy_redirect",
    "proxy_send_timeout",
    "proxy_set_body",
    "proxy_set_header",
    "proxy_ssl_certificate",
    "proxy_ssl_name",
    "proxy_ssl_trusted_certificate",
    "proxy_ssl_verify",
    "resolver",
    "resolver_timeout",
    "root",
    "satisfy",
];

/// The longest that `forward_auth` waits for an answer.
const MAX_WAIT: u64 = 60_000;

/// What is asked, as settings of `forward_auth`, or the directive that can't be said there.
type Question<'d> = Result<ForwardAuth, &'d Directive>;

impl Nginx<'_> {
    /// `auth_request`, whose location has to lead to a server.
    pub(super) fn asks_server(&mut self, place: &str, levels: &[&Directive], made: &mut Guards) {
        let Some(asked) = innermost(levels, "auth_request") else { return };
        let path = asked.arguments.first().map_or("", String::as_str);
        if path == "off" {
            return;
        }
        let what = format!("{place}: {asked}");
        let server = levels.iter().find(|level| level.name == "server").copied();
        let found = server.and_then(|server| Some((server, location_of(server, path)?)));
        let url = found.and_then(|(_, location)| self.asked_url(location, path));
        let (Some((server, location)), Some(url)) = (found, url) else {
            let why = "its location does not simply pass to a server";
            made.is_closed |=
                self.out.guard_not_converted(asked.at, what, why, "use the plugin `forward_auth`");
            return;
        };
        let outer: Vec<&Directive> =
            levels.iter().copied().take_while(|level| level.name != "server").collect();
        let levels_there: Vec<&Directive> = outer.into_iter().chain([server, location]).collect();
        let outer_vars = self.vars_here.clone();
        self.set_constants(&levels_there);
        let settings = self.question(&levels_there, levels, path, &url);
        self.vars_here = outer_vars;
        let mut settings = match settings {
            Ok(settings) => settings,
            Err(bad) => {
                let why = format!(
                    "`{bad}` in line {} changes what is asked, or answers by itself, and can't be converted",
                    bad.at.line
                );
                made.is_closed |=
                    self.out.guard_not_converted(asked.at, what, why, "use the plugin `forward_auth`");
                return;
            }
        };
        self.report_subrequest(&levels_there, &what, asked, &url);
        self.out.converted(asked.at, what);
        let mut config = draft!(ForwardAuth { url, convention: "nginx", status_on_error: 500 });
        self.answered_fields(place, levels, &mut config);
        self.login(place, levels, &mut config);
        config.append(&mut settings);
        made.plugins.push(Plug::of(config));
    }

    /// `set` of the location that the question goes through, whose variables are shared with the request.
    fn set_constants(&mut self, levels: &[&Directive]) {
        let Some(location) = levels.last() else { return };
        for set in location.block.iter().filter(|it| it.name == "set") {
            if let [name, value] = set.arguments.as_slice() {
                self.vars_here.set(name.trim_start_matches('$'), value, Cond::Always);
            }
        }
    }

    /// Reports what differs about the subrequest, where that opens nothing.
    fn report_subrequest(&mut self, levels: &[&Directive], what: &str, asked: &Directive, url: &str) {
        if url.starts_with("https") && first(levels, "proxy_ssl_verify") != Some("on") {
            let why = "nginx checks no certificates by default; here they are checked";
            self.out.partial(asked.at, what, why, "set `ca_path` of `forward_auth`");
        }
        for directive in levels.last().into_iter().flat_map(|level| &level.block) {
            if is_only_weaker(&directive.name) {
                self.directive_not_converted(what, directive);
            }
        }
    }

    /// What is asked by way of a location.
    fn question<'d>(
        &self,
        levels: &[&'d Directive],
        guarded: &[&Directive],
        path: &str,
        url: &str,
    ) -> Question<'d> {
        let mut made = ForwardAuth::default();
        let (server, location) = match levels {
            [.., server, location] => (*server, *location),
            _ => return Ok(made),
        };
        if let Some(taken) = server.block.iter().find(|it| may_take(it, path)) {
            return Err(taken);
        }
        let is_good = |it: &&Directive| {
            GOOD.contains(&it.name.as_str())
                || it.name == "set"
                || SILENT.contains(&it.name.as_str())
                || is_only_weaker(&it.name)
        };
        if let Some(bad) = location.block.iter().find(|it| !is_good(it)) {
            return Err(bad);
        }
        if let Some(bad) = location.block.iter().find(|it| it.name == "set" && !is_own_variable(it, guarded))
        {
            return Err(bad);
        }
        for name in ["proxy_set_body", "proxy_ssl_name", "proxy_ssl_certificate"] {
            innermost(levels, name).map_or(Ok(()), Err)?;
        }
        if let Some(method) = innermost(levels, "proxy_method") {
            match method.arguments.first().map(String::as_str) {
                Some("GET") => {}
                Some("$request_method") => made.preserve_method(true),
                _ => return Err(method),
            }
        }
        if let Some(file) = innermost(levels, "proxy_ssl_trusted_certificate") {
            let name = file.arguments.first().ok_or(file)?;
            made.ca_path(self.folder.join(name).display().to_string());
        }
        let wait = first(levels, "proxy_read_timeout").and_then(|time| text::millis(time, 1000));
        made.timeout(text::duration(wait.unwrap_or(MAX_WAIT).clamp(1, MAX_WAIT)));
        self.asked_fields(levels, url, &mut made)?;
        Ok(made)
    }

    /// The header fields of the question.
    fn asked_fields<'d>(
        &self,
        levels: &[&'d Directive],
        url: &str,
        made: &mut ForwardAuth,
    ) -> Result<(), &'d Directive> {
        let sets = said(levels, "proxy_set_header");
        let mut passed = Vec::new();
        let mut own_fields = Map::new();
        for field in sets {
            let [name, value] = field.arguments.as_slice() else { return Err(field) };
            let name = name.to_ascii_lowercase();
            let own = format!("${{request.header.{name}}}");
            let said = self.vars_here.template(value);
            if name == "host" && matches!(said.as_deref(), Some("${request.host}" | "${request.authority}")) {
                made.preserve_host(true);
            } else if said.as_ref().is_some_and(|value| *value == own) {
                passed.push(name);
            } else if !self.is_asked_anyway(&name, value, url) {
                // The path and query of the subrequest are not those of the request.
                let is_of_subrequest = |text: &str| {
                    ["${request.path", "${request.query", "${capture."].iter().any(|it| text.contains(it))
                };
                let template = said.filter(|text| !is_of_subrequest(text)).ok_or(field)?;
                if name == "host" && template.is_empty() {
                    return Err(field);
                }
                own_fields.insert(name, template.into());
            }
        }
        if !own_fields.is_empty() {
            made.set_request_headers(own_fields);
        }
        if first(levels, "proxy_pass_request_headers") == Some("off") {
            made.request_headers(passed);
        }
        Ok(())
    }

    /// Whether a field has this value in what `forward_auth` asks, or says nothing about the request.
    fn is_asked_anyway(&self, name: &str, value: &str, url: &str) -> bool {
        if name == "host" {
            let authority = url.split("://").nth(1).and_then(|rest| rest.split('/').next());
            return value == "$proxy_host" || Some(value) == authority;
        }
        if is_framing(name) || matches!(name, "accept-encoding" | "expect") {
            return true;
        }
        let wanted: &[&str] = match name {
            // The gateway sets it itself.
            "early-data" if value == "$ssl_early_data" => return true,
            "x-original-uri" => &["${request.target}"],
            "x-original-method" => &["${request.method}"],
            "x-original-url" => &[
                "${request.scheme}://${request.authority}${request.target}",
                "${request.scheme}://${request.host}${request.target}",
            ],
            "x-real-ip" => &["${client.address}"],
            "x-forwarded-for" if value == "$proxy_add_x_forwarded_for" => return true,
            "x-forwarded-for" => &["${client.address}"],
            "x-forwarded-proto" => &["${request.scheme}"],
            "x-forwarded-host" => &["${request.host}", "${request.authority}"],
            _ => return false,
        };
        self.vars_here.template(value).is_some_and(|value| wanted.contains(&value.as_str()))
    }

    /// The URL that the location of an `auth_request` asks.
    fn asked_url(&self, location: &Directive, path: &str) -> Option<String> {
        let written = location.block.iter().find(|it| it.name == "proxy_pass")?.arguments.first()?;
        let pass = match written.contains('$') {
            true => self.constant(location, written)?,
            false => written.clone(),
        };
        if pass.contains("unix:") {
            return None;
        }
        let url = text::url(&pass)?;
        let authority = match self.upstreams.get(&url.host) {
            Some(upstream) => upstream.first.clone()?,
            None => match url.port {
                Some(port) => format!("{}:{port}", url.host),
                None => url.host.clone(),
            },
        };
        let path = match location.arguments.as_slice() {
            _ if url.path.is_empty() => path.to_owned(),
            // With variables, nginx takes the path as it is.
            _ if written.contains('$') => url.path.clone(),
            [sign, _] if sign == "=" => url.path.clone(),
            [one] if one.starts_with('=') => url.path.clone(),
            [.., own] => format!("{}{}", url.path, path.strip_prefix(own.trim_start_matches("^~"))?),
            [] => return None,
        };
        Some(format!("{}://{authority}{path}", url.scheme))
    }

    /// A text whose variables are constants up to here, or of this location.
    fn constant(&self, location: &Directive, text: &str) -> Option<String> {
        let mut vars = self.vars_here.clone();
        for set in location.block.iter().filter(|it| it.name == "set") {
            if let [name, value] = set.arguments.as_slice() {
                vars.set(name.trim_start_matches('$'), value, Cond::Always);
            }
        }
        vars.template(text).filter(|text| !text.contains('$'))
    }
}

/// Whether a `set` names a variable of its own that the guarded location does not use: requests share theirs with questions.
fn is_own_variable(set: &Directive, guarded: &[&Directive]) -> bool {
    let [name, _] = set.arguments.as_slice() else { return false };
    let is_used = |it: &Directive| it.arguments.iter().any(|word| names_variable(word, name));
    let own = guarded.iter().filter(|level| level.name == "location").flat_map(|level| &level.block);
    ours(name.trim_start_matches('$')).is_none() && !own.into_iter().any(is_used)
}

/// The location that a question goes through: an exact one, or that of the longest prefix where no regex goes before it.
fn location_of<'d>(server: &'d Directive, path: &str) -> Option<&'d Directive> {
    if !path.starts_with('/') || path.contains(['$', '?']) {
        return None;
    }
    let all = || server.block.iter().filter(|it| it.name == "location");
    let exact = all().find(|it| match it.arguments.as_slice() {
        [sign, own] => sign == "=" && own == path,
        [one] => one.strip_prefix('=') == Some(path),
        _ => false,
    });
    if exact.is_some() {
        return exact;
    }
    let may_fit = |it: &Directive| match it.arguments.as_slice() {
        [sign, regex] if sign.starts_with('~') => fits(regex, sign == "~*", path),
        [one] => match (one.strip_prefix("~*"), one.strip_prefix('~')) {
            (Some(regex), _) => fits(regex, true, path),
            (None, Some(regex)) => fits(regex, false, path),
            (None, None) => false,
        },
        _ => false,
    };
    let has_regex = all().any(|it| may_fit(it) || it.block.iter().any(|it| it.name == "location"));
    let prefix = |it: &Directive| match it.arguments.as_slice() {
        [sign, own] if sign == "^~" && path.starts_with(own.as_str()) => Some((own.len(), true)),
        [one] => {
            let own = one.strip_prefix("^~").unwrap_or(one);
            path.starts_with(own).then_some((own.len(), own.len() < one.len()))
        }
        _ => None,
    };
    let (_, goes_first, longest) =
        all().filter_map(|it| prefix(it).map(|(length, first)| (length, first, it))).max_by_key(|it| it.0)?;
    (goes_first || !has_regex).then_some(longest)
}

/// Whether a regex fits a path; one that is none here may.
fn fits(regex: &str, ignores: bool, path: &str) -> bool {
    !text::is_regex(regex) || Test::Regex(regex, ignores).fits_text(path)
}

/// Whether a directive of the server may take the question elsewhere, or answer it, though it let the request pass.
fn may_take(directive: &Directive, path: &str) -> bool {
    let words = &directive.arguments;
    match directive.name.as_str() {
        "rewrite" => words.first().is_none_or(|regex| fits(regex, false, path)),
        "if" => {
            let asks_path = words.iter().any(|word| word.contains("$uri") || word.contains("$document_uri"));
            asks_path || directive.block.iter().any(|it| may_take(it, path))
        }
        _ => false,
    }
}

/// What makes nginx keep answers, or give others in their place: without it fewer requests pass.
fn is_only_weaker(name: &str) -> bool {
    name.starts_with("proxy_cache")
        || matches!(name, "error_page" | "proxy_intercept_errors" | "proxy_no_cache")
}
