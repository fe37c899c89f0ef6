//! `handle_errors`: pages for errors, from a text, a folder, a server or another URL.

use super::sites::Scope;
use super::tokens::CaddyLine;
use super::{Caddy, matchers};
use crate::draft::{ErrorPages, Page, Plug, draft};
use crate::text;

/// Placeholders for the status of the error.
const STATUS: [&str; 2] = ["{err.status_code}", "{http.error.status_code}"];

/// Directives within `handle_errors` that change nothing about which page is sent.
const HARMLESS: [&str; 4] = ["encode", "log_skip", "templates", "header"];

impl Caddy<'_> {
    /// `handle_errors [STATUS…] { … }`: pages for errors. What can't be converted in it guards nothing, and is left out.
    pub(super) fn errors(&mut self, line: &CaddyLine, words: &[&str], scope: &Scope) -> Option<Plug> {
        let root = scope.root.as_deref();
        let statuses = match words {
            [] => Some("400-599".to_owned()),
            words => words.iter().all(|word| is_status(word)).then(|| words.join(",")),
        };
        let pages = statuses.and_then(|statuses| pages(line.inner(), &statuses, root));
        let Some(pages) = pages.filter(|pages| !pages.is_empty()) else {
            let why = "errors keep the gateway's own pages";
            self.out.not_converted(line.at, line.text(), why, "use the plugin `error_pages`");
            return None;
        };
        for other in line.inner().iter().filter(|it| matches!(it.name(), "header" | "templates")) {
            self.out.not_converted(other.at, other.text(), "pages of errors are sent without it", "");
        }
        let why = match pages.iter().any(|page| page.get("url").is_some()) {
            true => "the status is that of the error; Caddy sends the server's",
            false => "answers of `respond` without a body get this page, too",
        };
        self.out.partial(line.at, line.text(), why, "see the plugin `error_pages`");
        Some(Plug::of(draft!(ErrorPages { of: "gateway", pages })))
    }
}

fn is_status(word: &str) -> bool {
    let word = word.replace("xx", "00");
    word.parse::<u16>().is_ok_and(|status| (400..600).contains(&status))
}

/// The pages that these directives lead to; `None` where one of them can't be said here.
fn pages(lines: &[CaddyLine], statuses: &str, root: Option<&str>) -> Option<Vec<Page>> {
    let own_root = lines.iter().find(|it| it.name() == "root").and_then(|it| it.arguments().last().cloned());
    let root = own_root.as_deref().or(root);
    let named: Vec<(&str, String)> = lines.iter().filter_map(statuses_of).collect();
    let mut made: Vec<Page> = Vec::new();
    let mut path = None;
    for line in lines {
        let arguments = line.arguments();
        let (matcher, arguments) = match arguments.split_first() {
            Some((first, rest)) if first == "*" => (None, rest),
            Some((first, rest)) if first.starts_with('@') => (Some(first.as_str()), rest),
            _ => (None, arguments),
        };
        let of = match matcher {
            Some(name) => {
                named.iter().find(|(known, _)| *known == name).map(|(_, statuses)| statuses.clone())?
            }
            None => statuses.to_owned(),
        };
        match (line.name(), arguments) {
            (name, _) if name.starts_with('@') || name == "root" || HARMLESS.contains(&name) => continue,
            ("rewrite", [to]) if matcher.is_none() => {
                path = Some(template(to)?);
                continue;
            }
            ("handle" | "route", []) => made.extend(pages(line.inner(), &of, root)?),
            (_, arguments) => made.push(page(line, arguments, &of, path.as_deref(), root)?),
        }
        // What comes behind a page for all of them is for none.
        if matcher.is_none() {
            break;
        }
    }
    Some(made)
}

/// The page of a directive that answers.
fn page(
    line: &CaddyLine,
    arguments: &[String],
    statuses: &str,
    path: Option<&str>,
    root: Option<&str>,
) -> Option<Page> {
    let mut page = draft!(Page { status: statuses });
    match (line.name(), arguments) {
        ("respond", [body, rest @ ..]) if line.block.is_none() && !body.starts_with('/') => {
            if body.parse::<u16>().is_ok() || STATUS.contains(&body.as_str()) {
                return None;
            }
            page.content_type("text/plain; charset=utf-8");
            page.body(template(body)?);
            match rest {
                [] => {}
                [status] if STATUS.contains(&status.as_str()) => {}
                [status] => page.response_status(status.parse::<u16>().ok()?),
                _ => return None,
            }
        }
        ("redir", [to, rest @ ..]) => {
            let to = template(to)?;
            page.redirect(to);
            let status = match rest {
                [] => 302,
                [word] if word == "permanent" => 301,
                [word] if word == "temporary" => 302,
                [word] => word.parse::<u16>().ok()?,
                _ => return None,
            };
            page.response_status(status);
        }
        ("file_server", []) if line.block.is_none() => {
            let root = root.filter(|root| root.starts_with('/') && !root.contains('{'))?;
            page.root(root);
            page.path(path?);
        }
        ("reverse_proxy", [to]) => {
            let is_plain = |it: &CaddyLine| {
                it.name() == "header_up" && it.arguments().first().is_some_and(|it| it == "Host")
            };
            line.inner().iter().all(is_plain).then_some(())?;
            let to = if to.contains("://") { to.clone() } else { format!("http://{to}") };
            text::url(&to).filter(|url| url.path.is_empty() || url.path == "/")?;
            page.url(to.trim_end_matches('/'));
            page.path(path?);
        }
        _ => return None,
    }
    Some(page)
}

/// A text with the placeholders for an error; `None` when one of them has no counterpart.
fn template(text: &str) -> Option<String> {
    let marked = STATUS.iter().fold(text.to_owned(), |text, name| text.replace(name, "\u{1}"));
    let made = matchers::template(&marked.replace("${", "$${"))?;
    Some(made.replace('\u{1}', "${response.status}"))
}

/// `@missing expression {err.status_code} == 404`: a matcher's name and its statuses.
fn statuses_of(line: &CaddyLine) -> Option<(&str, String)> {
    let name = line.words.first().filter(|name| name.starts_with('@'))?;
    let words: Vec<String> = match (line.arguments(), line.inner()) {
        ([kind, rest @ ..], []) if kind == "expression" => rest.to_vec(),
        ([], [inner]) if inner.name() == "expression" => inner.arguments().to_vec(),
        ([expression], []) => vec![expression.clone()],
        _ => return None,
    };
    let text = words.join(" ");
    let text = text.trim().trim_matches('`');
    let text = STATUS.iter().find_map(|status| text.strip_prefix(status))?.trim_start();
    let number = |text: &str| text.trim().parse::<u16>().ok().filter(|it| (400..600).contains(it));
    let statuses = match text.split_once(' ')? {
        ("==", status) => number(status)?.to_string(),
        (">=", status) => format!("{}-599", number(status)?),
        (">", status) => format!("{}-599", number(status)? + 1),
        ("<", status) => format!("400-{}", number(status)? - 1),
        ("in", list) => {
            let list = list.trim().strip_prefix('[')?.strip_suffix(']')?;
            let all: Option<Vec<String>> =
                list.split(',').map(|it| number(it).map(|it| it.to_string())).collect();
            all?.join(",")
        }
        _ => return None,
    };
    Some((name, statuses))
}
