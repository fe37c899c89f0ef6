//! What nginx makes of an authorization server's answer: fields for the target and the client (`auth_request_set`), and the
//! way to a login (`error_page 401`).

use std::collections::HashMap;

use super::blocks::Directive;
use super::{Nginx, said};
use crate::cond::Cond;
use crate::draft::{ForwardAuth, Login, draft};

/// Directives of a location with a login that change nothing of its redirect.
const HARMLESS: &[&str] = &[
    "access_log",
    "add_header",
    "auth_basic",
    "auth_request",
    "auth_request_set",
    "error_log",
    "internal",
    "proxy_set_header",
];

/// The URL of a login, as a template or as a field of the answer.
#[derive(Default)]
struct LoginUrl {
    location: Option<String>,
    field: Option<String>,
    status: u16,
}

/// Variables of a location with a login.
struct LoginVariables<'d> {
    /// Those of the answer, each with its field.
    answer: HashMap<String, String>,
    constants: Vec<(&'d str, &'d str)>,
    /// What they are where the answer has none.
    fallbacks: Vec<(&'d str, &'d str)>,
}

/// The variables that `auth_request_set` fills from header fields of the answer, by name with the dollar sign.
pub(super) fn answer_variables(levels: &[&Directive]) -> HashMap<String, String> {
    let fields =
        said(levels, "auth_request_set").into_iter().filter_map(|set| match set.arguments.as_slice() {
            [name, value] => {
                let field = value.strip_prefix("$upstream_http_")?.replace('_', "-");
                Some((name.clone(), field))
            }
            _ => None,
        });
    fields.collect()
}

/// Whether a text names a variable.
pub(super) fn names_variable(text: &str, variable: &str) -> bool {
    let name = variable.trim_start_matches('$');
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let behind = |(at, found): (usize, &str)| text.get(at + found.len()..).unwrap_or_default();
    text.contains(&format!("${{{name}}}"))
        || text.match_indices(variable).map(behind).any(|rest| !rest.chars().next().is_some_and(is_word))
}

/// The field of the answer that `add_header NAME VALUE` passes on under its own name.
pub(super) fn passed_on(name: &str, value: &str, variables: &HashMap<String, String>) -> bool {
    variables.get(value).is_some_and(|field| field.eq_ignore_ascii_case(name))
}

/// Whether a page is about refusals alone, so that it is told beside `auth_request`.
pub(super) fn is_of_refusals(page: &Directive) -> bool {
    let codes: Vec<&str> = codes(page).collect();
    page.name == "error_page" && !codes.is_empty() && codes.iter().all(|code| matches!(*code, "401" | "403"))
}

fn codes(page: &Directive) -> impl Iterator<Item = &str> {
    page.arguments.iter().map(String::as_str).filter(|word| word.bytes().all(|b| b.is_ascii_digit()))
}

impl Nginx<'_> {
    /// The fields of the answer that the target gets, and those that the client gets.
    pub(super) fn answered_fields(&mut self, place: &str, levels: &[&Directive], made: &mut ForwardAuth) {
        let variables = answer_variables(levels);
        for set in said(levels, "auth_request_set") {
            let is_of_field = set.arguments.get(1).is_some_and(|value| value.starts_with("$upstream_http_"));
            if !is_of_field {
                let why = "only header fields of the answer are taken over";
                self.out.not_converted(set.at, format_args!("{place}: {set}"), why, "");
            }
        }
        let values =
            ["proxy_set_header", "grpc_set_header", "fastcgi_param"].map(|name| said(levels, name)).concat();
        let is_used = |variable: &str| {
            values.iter().any(|it| it.arguments.get(1).is_some_and(|value| names_variable(value, variable)))
        };
        let mut fields: Vec<&String> =
            variables.iter().filter(|(name, _)| is_used(name)).map(|(_, field)| field).collect();
        fields.sort();
        fields.dedup();
        made.response_headers(fields);
        let mut shown: Vec<String> = Vec::new();
        for header in said(levels, "add_header") {
            let [name, value, rest @ ..] = header.arguments.as_slice() else { continue };
            if !passed_on(name, value, &variables) {
                continue;
            }
            shown.push(name.clone());
            if rest.is_empty() {
                let why = "responses with other statuses get it as well";
                self.out.partial(header.at, format_args!("{place}: {header}"), why, "");
            } else {
                self.out.converted(header.at, format_args!("{place}: {header}"));
            }
        }
        shown.sort();
        shown.dedup();
        if !shown.is_empty() {
            made.client_headers(shown);
        }
    }

    /// `error_page 401 …` beside `auth_request`: where refused clients are sent. Without a conversion they get the refusal.
    pub(super) fn login(&mut self, place: &str, levels: &[&Directive], made: &mut ForwardAuth) {
        let mut login: Option<(&Directive, Vec<u16>, LoginUrl)> = None;
        for page in said(levels, "error_page") {
            let statuses: Vec<u16> = codes(page).filter_map(|code| code.parse().ok()).collect();
            let of_refusals: Vec<u16> =
                statuses.into_iter().filter(|code| matches!(code, 401 | 403)).collect();
            if of_refusals.is_empty() {
                continue;
            }
            let what = format!("{place}: {page}");
            let todo = "set `login` of `forward_auth`, or use the plugin `error_pages`";
            let Some((url, why)) = self.login_url(levels, page) else {
                let why = "where it leads can't be converted; clients get the refusal itself";
                self.out.not_converted(page.at, what, why, todo);
                continue;
            };
            if login.is_some() {
                let why =
                    "refusals lead to one place here, that of the first page; clients get the refusal itself";
                self.out.not_converted(page.at, what, why, todo);
                continue;
            }
            match why {
                "" => self.out.converted(page.at, what),
                why => self.out.partial(page.at, what, why, ""),
            }
            login = Some((page, of_refusals, url));
        }
        let Some((_, statuses, url)) = login else { return };
        made.login(draft!(Login {
            statuses,
            status_code: url.status,
            location: url.location,
            location_header: url.field,
        }));
    }

    /// Where an `error_page` leads, and what differs.
    fn login_url(&self, levels: &[&Directive], page: &Directive) -> Option<(LoginUrl, &'static str)> {
        let to = page.arguments.last()?;
        let variables = answer_variables(levels);
        let overwrite = page.arguments.iter().find_map(|word| word.strip_prefix('='));
        let status = match overwrite {
            None | Some("") => None,
            Some(code) => Some(code.parse::<u16>().ok()?),
        };
        let server = levels.iter().find(|level| level.name == "server")?;
        if to.starts_with('@') || to.starts_with('/') && !to.contains(['$', '?']) {
            let location = location_named(server, to);
            if let Some(url) = location.and_then(|it| self.login_of_location(levels, it, status)) {
                return Some((url, ""));
            }
            // The page of a login that another server makes is on this site as well.
            let is_served = location.is_none_or(|it| it.block.iter().any(|it| it.name == "proxy_pass"));
            let location = format!("{to}?rd=${{request.target}}");
            return (to.starts_with('/') && is_served).then(|| {
                let url = LoginUrl { location: Some(location), field: None, status: 302 };
                (
                    url,
                    "clients are sent to this page; nginx answers with it in the place of what was asked for",
                )
            });
        }
        let status = status.filter(|status| matches!(status, 302 | 303 | 307)).unwrap_or(302);
        if let Some(field) = variables.get(to) {
            return Some((LoginUrl { location: None, field: Some(field.clone()), status }, ""));
        }
        let location = self.login_template(to, &variables, &[])?;
        Some((LoginUrl { location: Some(location), field: None, status }, ""))
    }

    /// The redirect that is all that a location does.
    fn login_of_location(
        &self,
        levels: &[&Directive],
        location: &Directive,
        overwrite: Option<u16>,
    ) -> Option<LoginUrl> {
        let mut answer = answer_variables(levels);
        answer.extend(answer_variables(&[location]));
        let mut variables = LoginVariables { answer, constants: Vec::new(), fallbacks: Vec::new() };
        for directive in &location.block {
            let words: Vec<&str> = directive.arguments.iter().map(String::as_str).collect();
            match (directive.name.as_str(), words.as_slice()) {
                ("set", [name, value]) if !variables.answer.contains_key(*name) => {
                    variables.constants.push((name, value));
                }
                // A URL of its own where the answer has none.
                ("if", words) => {
                    let words: Vec<&str> = words
                        .iter()
                        .map(|word| word.trim_matches(['(', ')', '\'', '"']))
                        .filter(|it| !it.is_empty())
                        .collect();
                    let ([name, "="], [inner]) = (words.as_slice(), directive.block.as_slice()) else {
                        return None;
                    };
                    match (inner.name.as_str(), inner.arguments.as_slice()) {
                        ("set", [own, url]) if own == name => variables.fallbacks.push((name, url)),
                        _ => return None,
                    }
                }
                ("return", [url]) => {
                    return self.returned_login(url, 302, overwrite, &variables);
                }
                ("return", [code, url]) => {
                    let code = code.parse().ok()?;
                    return self.returned_login(url, code, overwrite, &variables);
                }
                (name, _) if HARMLESS.contains(&name) => {}
                _ => return None,
            }
        }
        None
    }

    fn returned_login(
        &self,
        url: &str,
        code: u16,
        overwrite: Option<u16>,
        variables: &LoginVariables<'_>,
    ) -> Option<LoginUrl> {
        let status = Some(code).filter(|code| matches!(code, 302 | 303 | 307))?;
        overwrite.is_none_or(|code| code == status).then_some(())?;
        let template = |url| self.login_template(url, &variables.answer, &variables.constants);
        let Some(field) = variables.answer.get(url) else {
            return Some(LoginUrl { location: Some(template(url)?), field: None, status });
        };
        let fallback = variables.fallbacks.iter().find(|(name, _)| *name == url);
        let location = fallback.and_then(|(_, url)| template(url));
        Some(LoginUrl { location, field: Some(field.clone()), status })
    }

    /// A URL as a template, in which variables of the answer are its fields.
    fn login_template(
        &self,
        url: &str,
        variables: &HashMap<String, String>,
        constants: &[(&str, &str)],
    ) -> Option<String> {
        let mut vars = self.vars_here.clone();
        for (name, field) in variables {
            let value = format!("$upstream_http_{}", field.replace('-', "_"));
            vars.set(name.trim_start_matches('$'), &value, Cond::Always);
        }
        for (name, value) in constants {
            vars.set(name.trim_start_matches('$'), value, Cond::Always);
        }
        let cases = vars.texts(url)?;
        let [(Cond::Always, location)] = cases.as_slice() else { return None };
        let good = ["http://", "https://", "${request.scheme}://"];
        let is_path = location.starts_with('/') && !location.starts_with("//");
        (is_path || good.iter().any(|start| location.starts_with(start))).then(|| location.clone())
    }
}

/// The location that a page of this name is answered by: of this very name or path.
fn location_named<'d>(server: &&'d Directive, to: &str) -> Option<&'d Directive> {
    server.block.iter().filter(|it| it.name == "location").find(|it| match it.arguments.as_slice() {
        [one] => one == to || one.strip_prefix('=') == Some(to),
        [sign, own] => matches!(sign.as_str(), "=" | "^~") && own == to,
        _ => false,
    })
}
