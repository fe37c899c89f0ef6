//! `valid_referers`.

use super::Nginx;
use super::blocks::Directive;
use crate::cond::Cond;
use crate::draft::Matcher;
use crate::text;

impl Nginx<'_> {
    /// `valid_referers`, as what `$invalid_referer` means.
    pub(super) fn referers(&mut self, directive: &Directive, names: &[String]) {
        let field = |how: Matcher| Cond::header("referer", how);
        let mut valid = Cond::Never;
        for argument in &directive.arguments {
            let more = match argument.as_str() {
                "none" => Some(field(Matcher::present(false))),
                "blocked" => {
                    Some(field(Matcher::present(true)).and(field(Matcher::regex("(?i)https?://.*")).negate()))
                }
                "server_names" => names
                    .iter()
                    .map(|name| site_regex(name))
                    .collect::<Option<Vec<_>>>()
                    .map(|all| Cond::any(all.into_iter().map(|regex| field(Matcher::regex(regex))))),
                name => match name.strip_prefix('~') {
                    Some(regex) => {
                        let after = format!("(?i)https?://(?:{})", text::anywhere(regex));
                        text::is_regex(&after).then(|| field(Matcher::regex(after)))
                    }
                    None => site_regex(name).map(|regex| field(Matcher::regex(regex))),
                },
            };
            let Some(more) = more else {
                self.invalid_referer = None;
                return;
            };
            valid = valid.or(more);
        }
        self.invalid_referer = Some(valid.negate());
    }
}

/// A referer of a host, which may begin or end with `*`, and a path.
fn site_regex(name: &str) -> Option<String> {
    let (host, path) = name.find('/').map_or((name, ""), |at| name.split_at(at));
    let host = match (host.strip_prefix("*."), host.strip_prefix('.'), host.strip_suffix(".*")) {
        (Some(rest), ..) => format!(r"[^/]+\.{}", text::literal(rest)),
        (_, Some(rest), _) => format!(r"(?:[^/]+\.)?{}", text::literal(rest)),
        (.., Some(rest)) => format!(r"{}\.[^/]+", text::literal(rest)),
        _ => text::literal(host),
    };
    let end = if path.is_empty() { "(?:[:/].*)?".to_owned() } else { format!("{}.*", text::literal(path)) };
    Some(format!("(?i)https?://{host}{end}"))
}
