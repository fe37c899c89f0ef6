//! Traefik's rules: `Host(…) && (PathPrefix(…) || !Method(…))`, as conditions. Version 2 and 3 are both read.

use crate::cond::Cond;
use crate::draft::Matcher;
use crate::text;

/// Parentheses in one another.
const MAX_DEPTH: usize = 32;
/// Bytes of a rule.
const MAX_RULE: usize = 16_384;

/// A rule as a condition; `None` when it can't be said here.
pub(super) fn parse(rule: &str) -> Option<Cond> {
    if rule.len() > MAX_RULE {
        return None;
    }
    let mut parser = Parser { rest: rule, depth: 0 };
    let cond = parser.any()?;
    parser.space();
    (parser.rest.is_empty() && cond.depth() <= 14).then_some(cond)
}

/// The names that a rule of a stream asks for: `HostSNI(…)` alone. `*` is every name.
pub(super) fn server_names(rule: &str) -> Option<Vec<String>> {
    let inner = rule.trim().strip_prefix("HostSNI(")?.strip_suffix(')')?;
    let mut parser = Parser { rest: inner, depth: 0 };
    let names = parser.words()?;
    parser.space();
    parser.rest.is_empty().then_some(names)
}

/// The names that a rule asks for by `Host(…)`, as Traefik looks for names to get certificates for.
pub(super) fn asked_hosts(rule: &str) -> Vec<String> {
    let mut hosts = Vec::new();
    for (at, _) in rule.match_indices("Host(") {
        let (before, inner) = rule.split_at(at);
        let is_asked = !before.trim_end().ends_with(|c: char| c == '!' || c.is_ascii_alphanumeric());
        let mut parser = Parser { rest: inner.trim_start_matches("Host("), depth: 0 };
        hosts.extend(parser.words().filter(|_| is_asked).unwrap_or_default());
    }
    hosts
}

struct Parser<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, word: &str) -> bool {
        self.space();
        match self.rest.strip_prefix(word) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn any(&mut self) -> Option<Cond> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut cond = self.all()?;
        while self.take("||") {
            cond = cond.or(self.all()?);
        }
        self.depth -= 1;
        Some(cond)
    }

    fn all(&mut self) -> Option<Cond> {
        let mut cond = self.one()?;
        while self.take("&&") {
            cond = cond.and(self.one()?);
        }
        Some(cond)
    }

    fn one(&mut self) -> Option<Cond> {
        let mut negated = false;
        while self.take("!") {
            negated = !negated;
        }
        let cond = if self.take("(") {
            let cond = self.any()?;
            self.take(")").then_some(cond)?
        } else {
            self.space();
            let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric())?;
            let (name, rest) = self.rest.split_at(end);
            self.rest = rest;
            self.take("(").then_some(())?;
            let words = self.words()?;
            self.take(")").then_some(())?;
            matcher(name, &words)?
        };
        Some(if negated { cond.negate() } else { cond })
    }

    /// Texts in backticks or quotes, with commas between them.
    fn words(&mut self) -> Option<Vec<String>> {
        let mut words = Vec::new();
        loop {
            self.space();
            let quote = self.rest.chars().next().filter(|c| matches!(c, '`' | '"' | '\''))?;
            let inner = self.rest.get(1..)?;
            let end = inner.find(quote)?;
            words.push(inner.get(..end)?.to_owned());
            self.rest = inner.get(end + 1..)?;
            if !self.take(",") {
                return Some(words);
            }
        }
    }
}

fn matcher(name: &str, words: &[String]) -> Option<Cond> {
    let first = words.first()?;
    match name {
        "Host" | "HostHeader" => {
            let good = |name: &String| {
                !name.is_empty()
                    && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'))
            };
            let names: Vec<String> = words.iter().map(|name| name.to_ascii_lowercase()).collect();
            names.iter().all(good).then(|| Cond::hosts(names))
        }
        "HostRegexp" => hosts(words),
        "Path" => paths(words, ""),
        "PathPrefix" => paths(words, ".*"),
        "PathRegexp" => {
            let whole = text::anywhere(first);
            text::is_regex(&whole).then(|| Cond::path_is(Matcher::regex(whole)))
        }
        "Method" => {
            let names: Vec<String> = words.iter().map(|it| it.to_ascii_uppercase()).collect();
            Some(Cond::methods(&names.iter().map(String::as_str).collect::<Vec<_>>()))
        }
        "Headers" | "Header" => {
            let how = Matcher::one_field(&format!("^{}$", text::literal(words.get(1)?)))?;
            Some(Cond::header(first.to_ascii_lowercase(), how))
        }
        "HeadersRegexp" | "HeaderRegexp" => {
            let how = Matcher::one_field(words.get(1)?)?;
            Some(Cond::header(first.to_ascii_lowercase(), how))
        }
        "Query" => {
            let one = |word: &String| word.split_once('=').and_then(|(name, value)| parameter(name, value));
            match words {
                // Version 3: a name and a value.
                [name, value] if !name.contains('=') => parameter(name, value),
                [name] if !name.contains('=') => Some(Cond::query(name, Matcher::present(true))),
                words => Some(Cond::all(words.iter().map(one).collect::<Option<Vec<_>>>()?)),
            }
        }
        "ClientIP" => {
            let good = words.iter().all(|it| text::is_network(it));
            good.then(|| Cond::clients(words))
        }
        _ => None,
    }
}

/// A query parameter of which one of several values is this.
fn parameter(name: &str, value: &str) -> Option<Cond> {
    let equals = if value.is_empty() { "=?" } else { "=" };
    let regex = format!("(?:.*&)?{}{equals}{}(?:&.*)?", text::in_query(name), text::in_query(value));
    text::is_regex(&regex).then(|| Cond::query_string(Matcher::regex(regex)))
}

/// `Path` and `PathPrefix`, which may have `{name}` and `{name:regex}` in version 2.
fn paths(words: &[String], after: &str) -> Option<Cond> {
    let one = |word: &String| {
        if !word.starts_with('/') {
            return None;
        }
        if !word.contains('{') {
            return Some(match (after, word.as_str()) {
                ("", path) => Cond::path_is(Matcher::exact(path)),
                (_, "/") => Cond::Always,
                (after, path) => Cond::path_is(Matcher::regex(format!("{}{after}", text::literal(path)))),
            });
        }
        let mut regex = String::new();
        let mut rest = word.as_str();
        while let Some((before, tail)) = rest.split_once('{') {
            regex.push_str(&text::literal(before));
            let (name, tail) = tail.split_once('}')?;
            let inner = name.split_once(':').map_or("[^/]+", |(_, regex)| regex);
            regex.push_str(&format!("(?:{inner})"));
            rest = tail;
        }
        regex.push_str(&text::literal(rest));
        regex.push_str(after);
        text::is_regex(&regex).then(|| Cond::path_is(Matcher::regex(regex)))
    };
    Some(Cond::any(words.iter().map(one).collect::<Option<Vec<_>>>()?))
}

/// `{sub:[a-z]+}.example.com` of version 2 and `^.+\.example\.com$` of version 3, whatever the port.
fn hosts(words: &[String]) -> Option<Cond> {
    let good = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
    };
    let one = |word: &String| {
        // All names below one.
        let inner = word.strip_prefix('^').and_then(|rest| rest.strip_suffix('$')).unwrap_or_default();
        let below = inner.strip_prefix(r".+\.").map(|rest| rest.replace("\\.", "."));
        if let Some(name) = below.filter(|name| good(name)) {
            return Some(Cond::hosts([format!("*.{}", name.to_ascii_lowercase())]));
        }
        let regex = if named(word) { template(word)? } else { word.clone() };
        let regex = text::host_regex(&regex)?;
        Some(Cond::authority(Matcher::regex(regex)))
    };
    Some(Cond::any(words.iter().map(one).collect::<Option<Vec<_>>>()?))
}

/// Whether there is a part with a name in a pattern, as version 2 has them, and not a count of a regex.
fn named(word: &str) -> bool {
    word.split('{').skip(1).any(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'))
}

/// A pattern of version 2 as a regex over the whole host.
fn template(word: &str) -> Option<String> {
    let (mut regex, mut rest) = ("^".to_owned(), word);
    while let Some((before, tail)) = rest.split_once('{') {
        regex.push_str(&text::literal(before));
        // Braces within are a regex's counts.
        let mut depth = 1_usize;
        let end = tail.char_indices().find_map(|(at, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            (depth == 0).then_some(at)
        })?;
        let inner = tail.get(..end)?.split_once(':').map_or("[^.]+", |(_, regex)| regex);
        let inner = inner.trim_start_matches('^').trim_end_matches('$');
        regex.push_str(&format!("(?:{inner})"));
        rest = tail.get(end + 1..)?;
    }
    regex.push_str(&text::literal(rest));
    regex.push('$');
    Some(regex)
}
