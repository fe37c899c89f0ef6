//! Which requests a directive of a Caddyfile means: its matcher as a condition.

use super::sites::Scope;
use super::tokens::CaddyLine;
use super::{Caddy, matchers};
use crate::cond::Cond;

impl Caddy<'_> {
    /// A directive's matcher and its other arguments; `None` when the matcher can't be converted.
    pub(super) fn matched(&self, line: &CaddyLine, scope: &Scope) -> (Option<Cond>, Vec<String>) {
        let arguments = line.arguments();
        let Some(first) = arguments.first() else { return (Some(Cond::Always), Vec::new()) };
        let rest = || arguments.get(1..).unwrap_or_default().to_vec();
        let lone = arguments.len() == 1 && matches!(line.name(), "redir" | "rewrite" | "root" | "try_files");
        if matches!(line.name(), "try_files" | "tls" | "log" | "bind") {
            return (Some(Cond::Always), arguments.to_vec());
        }
        match first.as_str() {
            "*" => (Some(Cond::Always), rest()),
            name if name.starts_with('@') => {
                (scope.named.get(name).and_then(|line| self.matcher_set(line)), rest())
            }
            path if path.starts_with('/') && !lone => (matchers::path(path), rest()),
            _ => (Some(Cond::Always), arguments.to_vec()),
        }
    }

    /// `@name …` or `@name { … }`: all lines have to hold, of several lines of one kind any.
    fn matcher_set(&self, line: &CaddyLine) -> Option<Cond> {
        if line.block.is_none() || line.words.len() > 1 {
            let words = line.arguments().to_vec();
            return self.matcher(&CaddyLine { words, at: line.at, block: line.block.clone() });
        }
        self.each_matcher(line.inner())
    }

    /// All of these, of those that ask for the same header any.
    fn each_matcher(&self, lines: &[CaddyLine]) -> Option<Cond> {
        let mut all: Vec<(String, Cond)> = Vec::new();
        let effective = lines.iter().enumerate().filter(|(n, line)| !is_replaced(line, &lines[n + 1..]));
        for (_, line) in effective {
            let made = self.matcher(line)?;
            let kind = match line.name() {
                "header" => format!("header {}", field(line)),
                name @ ("path" | "host" | "method" | "query" | "remote_ip" | "client_ip") => name.to_owned(),
                _ => String::new(),
            };
            match all.iter_mut().find(|(known, _)| !kind.is_empty() && *known == kind) {
                Some((_, known)) => *known = known.clone().or(made),
                None => all.push((kind, made)),
            }
        }
        Some(Cond::all(all.into_iter().map(|(_, cond)| cond)))
    }

    fn matcher(&self, line: &CaddyLine) -> Option<Cond> {
        let arguments = line.arguments();
        if line.block.is_some() && line.name() != "not" {
            return None;
        }
        let (first, rest) = (arguments.first().map(String::as_str), arguments.get(1..).unwrap_or_default());
        match line.name() {
            "path" => {
                arguments.iter().map(|one| matchers::path(one)).collect::<Option<Vec<_>>>().map(Cond::any)
            }
            "path_regexp" => arguments.last().and_then(|regex| matchers::path_regex(regex)),
            "host" => matchers::hosts(arguments),
            "method" => {
                let names: Vec<String> = arguments.iter().map(|it| it.to_ascii_uppercase()).collect();
                Some(Cond::methods(&names.iter().map(String::as_str).collect::<Vec<_>>()))
            }
            "header" => matchers::header(first?, rest),
            "header_regexp" => match arguments {
                [name, regex] | [_, name, regex] => matchers::header_regex(name, regex),
                _ => None,
            },
            "query" => {
                let pairs = arguments.iter().map(|it| {
                    let (name, value) = it.split_once('=').unwrap_or((it, ""));
                    (name.to_owned(), value.to_owned())
                });
                Some(matchers::query(&pairs.collect::<Vec<_>>()))
            }
            "remote_ip" | "client_ip" => {
                // With `forwarded`, it is the address that the request names.
                if first? == "forwarded" { None } else { matchers::clients(arguments) }
            }
            "protocol" => match first? {
                scheme @ ("http" | "https") => Some(Cond::scheme(scheme)),
                "grpc" => Some(Cond::grpc()),
                _ => None,
            },
            "not" if line.block.is_some() => Some(self.each_matcher(line.inner())?.negate()),
            "not" => {
                let inner = CaddyLine { words: arguments.to_vec(), at: line.at, block: None };
                Some(self.matcher(&inner)?.negate())
            }
            _ => None,
        }
    }
}

/// The header that a line of a matcher asks for.
fn field(line: &CaddyLine) -> String {
    line.word(1).trim_start_matches('!').to_ascii_lowercase()
}

/// Whether a line behind it takes the place of what a line asks of a header: that a header is missing and that it has a value
/// can't be asked together.
fn is_replaced(line: &CaddyLine, behind: &[CaddyLine]) -> bool {
    let is_absence = |line: &CaddyLine| line.word(1).starts_with('!');
    let mut same = behind.iter().filter(|other| other.name() == "header" && field(other) == field(line));
    line.name() == "header" && same.any(|other| is_absence(other) || is_absence(line))
}
