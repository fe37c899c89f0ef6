//! Kong's routes by expression: `http.path ^= "/api" && (http.method == "GET" || net.src.ip in 10.0.0.0/8)`.

use std::rc::Rc;

use serde_json::Value;

use super::order::Rank;
use super::routes::NOT_TRANSLATED;
use super::{Kong, list, name};
use crate::cond::Cond;
use crate::draft::{Matcher, Proxy, Replaced, Rewrite, draft};
use crate::text;
use crate::tree::Node;

/// Parentheses in one another.
const MAX_DEPTH: usize = 32;
/// Bytes of an expression.
const MAX_BYTES: usize = 16_384;
/// Conditions in one another.
const MAX_CONDITIONS: usize = 14;

/// What an expression asks for.
struct Expression {
    cond: Cond,
    /// Beginnings of paths that are taken away where a route strips them; `None` where that can't be said.
    prefixes: Option<Vec<String>>,
}

impl Kong {
    /// Keeps the order of the priorities of all routes by expression and of all regexes, which may be larger than ours, or negative.
    pub(super) fn rank_expressions(&mut self, document: &Node) {
        let nested = list(document, "services").flat_map(|service| list(service, "routes"));
        let routes: Vec<&Node> = nested.chain(list(document, "routes")).collect();
        let said = |key: &str, route: &Node| route.get(key).and_then(Node::int).unwrap_or(0);
        let all = routes.iter().filter(|route| route.get("expression").is_some());
        self.priorities = all.map(|route| said("priority", route)).collect();
        self.regex_priorities = routes.iter().map(|route| said("regex_priority", route)).collect();
        for ranks in [&mut self.priorities, &mut self.regex_priorities] {
            ranks.sort_unstable();
            ranks.dedup();
        }
    }

    /// A route by expression.
    pub(super) fn expression_route(&mut self, place: &str, route: &Node, common: &Proxy, service: &str) {
        let said = route.text_of("expression").unwrap_or_default();
        let parsed = parse(said, false);
        let is_closed = parsed.is_none();
        if is_closed
            && !self.out.guard_not_converted(
                route.at,
                format!("{place}.expression"),
                NOT_TRANSLATED,
                "write it with `matches`",
            )
        {
            return;
        }
        let wide = || parse(said, true).unwrap_or(Expression { cond: Cond::Always, prefixes: None });
        let Expression { cond, prefixes } = parsed.unwrap_or_else(wide);
        if cond == Cond::Never {
            return self.out.not_needed(route.at, format!("{place}.expression"), "it takes no request");
        }
        let called = name(route);
        let id = self.out.id("proxy", if called == "unnamed" { service } else { &called });
        let mut proxy = draft!(Proxy { id: &id });
        proxy.append(&mut common.clone());
        let strips = super::routes::rules(route, &mut proxy);
        proxy.strip_listen_path(false);
        proxy.matches([cond.with_path(Matcher::prefix("/"))]);
        let priority = route.get("priority").and_then(Node::int).unwrap_or(0);
        let rank = self.priorities.binary_search(&priority).unwrap_or(0);
        // Those of one priority are asked in the order in which they come.
        let behind = i64::try_from(self.out.proxies.len() % 1000).unwrap_or(0);
        proxy.priority(i64::try_from(rank % 90_000).unwrap_or(0) * 1000 + 999 - behind);
        match prefixes.filter(|_| strips && !is_closed) {
            Some(prefixes) if !prefixes.is_empty() => {
                let base = common.get("backend_path").and_then(Value::as_str).unwrap_or_default();
                let to = format!("{}/${{1}}", base.trim_end_matches('/').replace('$', "$$"));
                let rule = |prefix: &String| {
                    let from = format!("^{}/?(.*)$", text::literal(prefix.trim_end_matches('/')));
                    draft!(Replaced { from, to: &to })
                };
                let rules: Vec<Replaced> = prefixes.iter().map(rule).collect();
                self.out.plugin(&id, "rewrite", draft!(Rewrite { regex: rules }).into());
            }
            None if strips && !is_closed => {
                let why = "what a regex finds of the path is stripped there; here the path stays as it is";
                self.out.partial(
                    route.at,
                    format_args!("{place}.strip_path"),
                    why,
                    "use the plugin `rewrite`",
                );
            }
            _ => {}
        }
        let at = self.out.proxies.len();
        self.out.proxies.push(proxy.into());
        if is_closed {
            self.close_route(&id);
        } else {
            for plug in super::routes::refusals(route) {
                self.out.plugin_when(&id, plug.name, Rc::unwrap_or_clone(plug.config), plug.when.as_deref());
            }
        }
        self.of_route.entry(called).or_default().push(at);
        self.of_service.entry(service.to_owned()).or_default().push(at);
        self.report_object(place, route, &[super::routes::KNOWN, &["expression", "priority"]].concat());
        for plugin in list(route, "plugins") {
            self.later(Rank::Route, place, plugin, Some(&[at]));
        }
        if let Some(chains) = route.get("filter_chains") {
            self.chains(place, chains, &[at]);
        }
    }
}

/// Reads an expression. With `is_wide`, what can't be converted is taken to hold, so that no request is left out.
fn parse(text: &str, is_wide: bool) -> Option<Expression> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let mut parser = Parser { rest: text, depth: 0, prefixes: Some(Vec::new()), is_wide, unknown: 0 };
    let cond = parser.all()?;
    parser.space();
    let is_whole = parser.rest.is_empty() && cond.depth() <= MAX_CONDITIONS;
    let prefixes = parser.prefixes.map(|mut prefixes| {
        // The longest of those that fit is the one that was asked for, as far as that can be known.
        prefixes.sort_by_key(|prefix| std::cmp::Reverse(prefix.len()));
        prefixes.dedup();
        prefixes
    });
    is_whole.then_some(Expression { cond, prefixes })
}

struct Parser<'t> {
    rest: &'t str,
    depth: usize,
    prefixes: Option<Vec<String>>,
    is_wide: bool,
    /// Predicates that can't be converted.
    unknown: usize,
}

impl<'t> Parser<'t> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, word: &str) -> bool {
        self.space();
        let rest = self.rest.strip_prefix(word);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// What is joined by `&&` holds what is joined by `||`: Kong's router has it the other way round than most languages.
    fn all(&mut self) -> Option<Cond> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let mut cond = self.any()?;
        while self.take("&&") {
            cond = cond.and(self.any()?);
        }
        self.depth -= 1;
        Some(cond)
    }

    fn any(&mut self) -> Option<Cond> {
        let mut cond = self.one()?;
        while self.take("||") {
            cond = cond.or(self.one()?);
        }
        Some(cond)
    }

    fn one(&mut self) -> Option<Cond> {
        self.space();
        let is_negated = !self.rest.starts_with("!=") && self.take("!");
        let before = self.unknown;
        let cond = if self.take("(") {
            let cond = self.all()?;
            self.take(")").then_some(cond)?
        } else {
            self.predicate()?
        };
        Some(match is_negated {
            // Neither that it holds nor that it does not is known.
            true if self.unknown > before => Cond::Always,
            true => cond.negate(),
            false => cond,
        })
    }

    fn predicate(&mut self) -> Option<Cond> {
        let (mut is_lower, mut is_any, mut open) = (false, false, 0);
        loop {
            match () {
                () if self.take("lower(") => is_lower = true,
                () if self.take("any(") => is_any = true,
                () => break,
            }
            open += 1;
        }
        self.space();
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_');
        let end = self.rest.find(|c| !good(c))?;
        let (field, rest) = self.rest.split_at(end);
        self.rest = rest;
        for _ in 0..open {
            self.take(")").then_some(())?;
        }
        const OPERATORS: [&str; 12] =
            ["==", "!=", "^=", "=^", "~", "contains", "not in", "in", ">=", "<=", ">", "<"];
        let operator = OPERATORS.into_iter().find(|operator| self.take(operator))?;
        let value = self.value()?;
        let asked = FieldTest { operator, value: &value, is_lower, is_any };
        if field == "http.path" {
            match (operator, &mut self.prefixes) {
                ("^=" | "==", Some(prefixes)) => prefixes.push(value.clone()),
                ("~", prefixes) => *prefixes = None,
                _ => {}
            }
        }
        let cond = asked.of(field);
        if cond.is_none() && self.is_wide {
            self.unknown += 1;
            return Some(Cond::Always);
        }
        cond
    }

    /// A text in quotes or as it is, a number, an address or a network.
    fn value(&mut self) -> Option<String> {
        self.space();
        if let Some(raw) = self.rest.strip_prefix("r#\"") {
            let (value, rest) = raw.split_once("\"#")?;
            self.rest = rest;
            return Some(value.to_owned());
        }
        let Some(inner) = self.rest.strip_prefix('"') else {
            let end = self.rest.find(|c: char| !(c.is_ascii_alphanumeric() || ".:/".contains(c)));
            let (value, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
            self.rest = rest;
            return (!value.is_empty()).then(|| value.to_owned());
        };
        let mut made = String::new();
        let mut chars = inner.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = inner.get(at + 1..)?;
                    return Some(made);
                }
                '\\' => made.push(match chars.next()?.1 {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    other => other,
                }),
                c => made.push(c),
            }
        }
        None
    }
}

/// What is asked of a field.
struct FieldTest<'a> {
    operator: &'static str,
    value: &'a str,
    is_lower: bool,
    is_any: bool,
}

/// What of a request has names.
#[derive(Clone, Copy)]
enum Named {
    Header,
    Parameter,
}

impl FieldTest<'_> {
    fn of(&self, field: &str) -> Option<Cond> {
        match (field, self.operator) {
            ("http.path", _) => self.path(),
            ("http.method", "==") => Some(Cond::methods(&[self.value])),
            ("http.method", "!=") => Some(Cond::methods(&[self.value]).negate()),
            ("http.host", _) => self.host(),
            ("net.protocol", "==" | "!=") if matches!(self.value, "http" | "https") => {
                let cond = Cond::scheme(self.value);
                Some(if self.operator == "==" { cond } else { cond.negate() })
            }
            ("net.src.ip", "==" | "in" | "!=" | "not in") if text::is_network(self.value) => {
                let cond = Cond::clients([self.value]);
                Some(if matches!(self.operator, "==" | "in") { cond } else { cond.negate() })
            }
            ("net.dst.port", "==" | "!=") => {
                let cond = Cond::port(self.value.parse().ok()?);
                Some(if self.operator == "==" { cond } else { cond.negate() })
            }
            ("tls.sni", "==") => Some(Cond::server_names([self.value.trim_end_matches('.')])),
            (field, _) => {
                if let Some(name) = field.strip_prefix("http.headers.") {
                    return self.named(Named::Header, &name.replace('_', "-").to_ascii_lowercase());
                }
                self.named(Named::Parameter, field.strip_prefix("http.queries.")?)
            }
        }
    }

    /// As a regex over the whole of a value, and whether what fits it is left out.
    fn regex(&self) -> Option<(String, bool)> {
        if self.is_lower && !is_small(self.value) {
            return None;
        }
        let literal = text::literal(self.value);
        let (regex, is_negated) = match self.operator {
            "==" => (literal, false),
            "!=" => (literal, true),
            "^=" => (format!("{literal}.*"), false),
            "=^" => (format!(".*{literal}"), false),
            "contains" => (format!(".*{literal}.*"), false),
            "~" => (text::anywhere(self.value), false),
            _ => return None,
        };
        let flag = if self.is_lower { "(?i)" } else { "" };
        let regex = format!("{flag}{regex}");
        text::is_regex(&regex).then_some((regex, is_negated))
    }

    fn path(&self) -> Option<Cond> {
        if let ("==", false) = (self.operator, self.is_lower) {
            return Some(Cond::path_is(Matcher::exact(self.value)));
        }
        if let ("^=", "/") = (self.operator, self.value) {
            return Some(Cond::Always);
        }
        let (regex, is_negated) = self.regex()?;
        let cond = Cond::path_is(Matcher::regex(regex));
        Some(if is_negated { cond.negate() } else { cond })
    }

    /// Hosts are compared without their port, and in lower case.
    fn host(&self) -> Option<Cond> {
        let regex = match self.operator {
            "~" => text::host_regex(self.value)?,
            _ => format!("(?i){}{}", self.regex()?.0.trim_start_matches("(?i)"), text::HOST_END),
        };
        let is_negated = self.operator == "!=";
        let name = self.value.to_ascii_lowercase();
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let cond = match self.operator {
            "==" | "!=" if name.chars().all(good) => Cond::hosts([name]),
            _ => Cond::authority(Matcher::regex(regex)),
        };
        Some(if is_negated { cond.negate() } else { cond })
    }

    /// A header or a parameter. Where there is none of the name, nothing is so.
    fn named(&self, kind: Named, name: &str) -> Option<Cond> {
        let (regex, is_negated) = self.regex()?;
        let is_equality = matches!(self.operator, "==" | "!=");
        let one_of_several = || Matcher::regex(format!("(?:.*, )?(?:{regex})(?:, .*)?"));
        let how = match kind {
            // Several fields of a name are one text here, with commas. There, one of them is enough with `any`, and all have to
            // fit without it.
            Named::Header if self.is_any && is_negated => return None,
            Named::Header if self.is_any || is_negated => one_of_several(),
            Named::Header if !is_equality => return None,
            _ if is_equality => Matcher::exact(self.value).ignore_case(self.is_lower),
            _ => Matcher::regex(regex),
        };
        let cond = |how| match kind {
            Named::Header => Cond::header(name, how),
            Named::Parameter => Cond::query(name, how),
        };
        let (fits, present) = (cond(how), cond(Matcher::present(true)));
        Some(if is_negated { present.and(fits.negate()) } else { fits })
    }
}

/// Whether a text has no letters that are never in a value that `lower` has made small; those behind a backslash are classes.
fn is_small(text: &str) -> bool {
    let mut is_escaped = false;
    text.chars().all(|c| {
        let is_small = is_escaped || !c.is_uppercase();
        is_escaped = c == '\\' && !is_escaped;
        is_small
    })
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::cond::Cond;

    fn cond(text: &str) -> Option<String> {
        parse(text, false).map(|it| match it.cond {
            Cond::Is(value) => value.to_string(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn expressions() {
        for (text, expected) in [
            (r#"http.path == "/a""#, r#"{"path":{"exact":"/a"}}"#),
            (r##"http.path ^= r#"/a.b"#"##, r#"{"path":{"regex":"/a\\.b.*"}}"#),
            (r#"http.path ~ "^/x/\\d+$""#, r#"{"path":{"regex":"(?:/x/\\d+)"}}"#),
            (r#"http.path ^= "/""#, "Always"),
            (
                r#"http.method == "DELETE" || http.method == "PUT" && net.dst.port == 80"#,
                r#"{"all":[{"any":[{"methods":["DELETE"]},{"methods":["PUT"]}]},{"ports":[80]}]}"#,
            ),
            (
                r#"http.host == "A.test" || http.host =^ ".b.test""#,
                r#"{"any":[{"hosts":["a.test"]},{"authority":{"regex":"(?i).*\\.b\\.test\\.?(?::[0-9]+)?"}}]}"#,
            ),
            (
                r#"net.src.ip in 10.0.0.0/8 && !(net.dst.port == 8443)"#,
                r#"{"all":[{"clients":["10.0.0.0/8"]},{"not":{"ports":[8443]}}]}"#,
            ),
            (
                r#"lower(http.headers.x_role) != "guest""#,
                r#"{"all":[{"headers":{"x-role":{"present":true}}},{"not":{"headers":{"x-role":{"regex":"(?:.*, )?(?:(?i)guest)(?:, .*)?"}}}}]}"#,
            ),
            (
                r#"any(lower(http.headers.x_role)) == "a""#,
                r#"{"headers":{"x-role":{"regex":"(?:.*, )?(?:(?i)a)(?:, .*)?"}}}"#,
            ),
            (
                r#"tls.sni == "a.test" && http.queries.v == "2""#,
                r#"{"all":[{"tls":{"server_names":["a.test"]}},{"query":{"v":{"exact":"2","ignore_case":false}}}]}"#,
            ),
        ] {
            assert_eq!(cond(text).as_deref(), Some(expected), "{text}");
        }
        for bad in [
            "",
            "http.path",
            r#"http.path == "/a" &&"#,
            r#"http.path == "/a" http.path == "/b""#,
            r#"http.path ~ "(?=x)""#,
            r#"http.path == "/a"#,
            r#"http.path.segments.0 == "a""#,
            r#"net.protocol == "tcp""#,
            r#"net.src.ip in x"#,
            r#"net.dst.port >= 80"#,
            r#"any(http.headers.x) != "a""#,
            r#"http.headers.x ^= "a""#,
            r#"lower(http.path) ^= "/Zed""#,
            &format!(r#"{}http.path == "/a""#, "(".repeat(100)),
        ] {
            assert_eq!(cond(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_part_that_cannot_be_converted_counts_as_true() {
        for (text, expected) in [
            (
                r#"http.path == "/a" && net.src.port > 1000"#,
                r#"Is(Object {"path": Object {"exact": String("/a")}})"#,
            ),
            (
                r#"http.path == "/a" && !(net.src.port > 1000 || http.method == "GET")"#,
                r#"Is(Object {"path": Object {"exact": String("/a")}})"#,
            ),
            (r#"http.path == "/a" || net.src.port > 1000"#, "Always"),
        ] {
            assert_eq!(
                parse(text, true).map(|it| format!("{:?}", it.cond)).as_deref(),
                Some(expected),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_stripped() {
        let of = |text: &str| parse(text, false).and_then(|it| it.prefixes);
        assert_eq!(
            of(r#"http.path ^= "/a" || http.path ^= "/a/b""#),
            Some(vec!["/a/b".to_owned(), "/a".to_owned()])
        );
        assert_eq!(of(r#"http.path ~ "/a""#), None);
        assert_eq!(of(r#"http.method == "GET""#), Some(vec![]));
    }
}
