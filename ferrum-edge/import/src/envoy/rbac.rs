//! Envoy's role-based access control: policies as conditions under which requests get 403.

use super::matching::{header_matched, string_matched};
use super::{Envoy, Listener};
use crate::cond::Cond;
use crate::draft::{Matcher, Plug, RequestTermination, draft};
use crate::text;
use crate::tree::Node;

/// Rules in one another.
const MAX_DEPTH: usize = 12;

impl Envoy<'_> {
    pub(super) fn rbac(&mut self, what: &str, filter: &Node, settings: &Node, made: &mut Listener) {
        let Some(rules) = settings.get("rules") else {
            if settings.has("matcher") || !filter.has("typed_config") {
                let why = "it has no rules that are known here";
                made.is_closed |= self.out.guard_not_converted(filter.at, what, why, super::filters::TODO);
            } else {
                self.out.not_needed(filter.at, what, "it has no rules that are enforced");
            }
            return;
        };
        if !self.knows_clients && mentions(rules, "remote_ip") {
            let why = "clients' addresses come from `X-Forwarded-For` where `use_remote_address` is not set";
            made.is_closed |= self.out.guard_not_converted(
                filter.at,
                what,
                why,
                "set gateway.trusted_proxies, and use `when`",
            );
            return rules.see_all();
        }
        let Some(refused) = refused(rules) else {
            let why = "its policies ask for something that is not known here";
            made.is_closed |= self.out.guard_not_converted(filter.at, what, why, super::filters::TODO);
            return;
        };
        self.out.converted(filter.at, what);
        let config = draft!(RequestTermination {
            status_code: 403,
            content_type: "text/plain",
            body: "RBAC: access denied"
        });
        match refused {
            Cond::Never => {}
            cond => made.plugins.push(Plug::of(config).when(cond.when())),
        }
    }
}

/// Which requests are refused; `None` where that can't be said here.
fn refused(rules: &Node) -> Option<Cond> {
    let policies = rules.get("policies").map_or(&[][..], Node::entries);
    let mut fits = Cond::Never;
    for (_, policy) in policies {
        if policy.has("condition") || policy.has("checked_condition") {
            return None;
        }
        let permissions = any(policy.each("permissions"), permission, 0)?;
        let principals = any(policy.each("principals"), principal, 0)?;
        fits = fits.or(permissions.and(principals));
    }
    let refused = match rules.text_of("action") {
        None | Some("ALLOW") => fits.negate(),
        Some("DENY") => fits,
        // It only writes into the log.
        Some("LOG") => Cond::Never,
        Some(_) => return None,
    };
    (refused.depth() <= MAX_DEPTH).then_some(refused)
}

/// Whether a key is anywhere in a value.
fn mentions(node: &Node, key: &str) -> bool {
    node.all_entries().iter().any(|(name, value)| name == key || mentions(value, key))
        || node.all_items().iter().any(|item| mentions(item, key))
}

type Rule = fn(&Node, usize) -> Option<Cond>;

fn any(list: &[Node], rule: Rule, depth: usize) -> Option<Cond> {
    list.iter().map(|node| rule(node, depth)).collect::<Option<Vec<_>>>().map(Cond::any)
}

fn all(list: &[Node], rule: Rule, depth: usize) -> Option<Cond> {
    list.iter().map(|node| rule(node, depth)).collect::<Option<Vec<_>>>().map(Cond::all)
}

/// What may be done.
fn permission(node: &Node, depth: usize) -> Option<Cond> {
    let [(key, value)] = node.entries() else { return None };
    if depth > MAX_DEPTH {
        return None;
    }
    match key.as_str() {
        "and_rules" => all(value.each("rules"), permission, depth + 1),
        "or_rules" => any(value.each("rules"), permission, depth + 1),
        "not_rule" => permission(value, depth + 1).map(Cond::negate),
        _ => common(key, value),
    }
}

/// Who may do it.
fn principal(node: &Node, depth: usize) -> Option<Cond> {
    let [(key, value)] = node.entries() else { return None };
    if depth > MAX_DEPTH {
        return None;
    }
    match key.as_str() {
        "and_ids" => all(value.each("ids"), principal, depth + 1),
        "or_ids" => any(value.each("ids"), principal, depth + 1),
        "not_id" => principal(value, depth + 1).map(Cond::negate),
        "source_ip" | "direct_remote_ip" | "remote_ip" => {
            let length = value.get("prefix_len");
            let length = length.and_then(|it| it.uint().or_else(|| it.get("value").and_then(Node::uint)));
            let network = match length {
                Some(length) => format!("{}/{length}", value.text_of("address_prefix")?),
                None => value.text_of("address_prefix")?.to_owned(),
            };
            text::is_network(&network).then(|| Cond::clients([network]))
        }
        _ => common(key, value),
    }
}

fn common(key: &str, value: &Node) -> Option<Cond> {
    match key {
        "any" => value.bool().map(|any| if any { Cond::Always } else { Cond::Never }),
        "header" => header_matched(value),
        "url_path" => {
            let how = string_matched(value.get("path")?)?;
            let ignores = how.ignores_case();
            let (kind, text) = how.kind();
            let text = text.as_str()?;
            let literal = text::literal(text);
            let regex = match kind {
                "exact" => literal,
                "prefix" => format!("{literal}.*"),
                "suffix" => format!(".*{literal}"),
                "contains" => format!(".*{literal}.*"),
                "regex" => text.to_owned(),
                _ => return None,
            };
            Some(Cond::path_is(Matcher::regex(format!("{}{regex}", if ignores { "(?i)" } else { "" }))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::common;
    use crate::cond::Cond;
    use crate::draft::Matcher;
    use crate::tree;

    #[test]
    fn paths_ignore_case_where_they_say_so() {
        for (path, regex) in
            [("{prefix: /Admin, ignore_case: true}", "(?i)/Admin.*"), ("{prefix: /Admin}", "/Admin.*")]
        {
            let node = tree::one("f", 0, &format!("path: {path}")).expect("a document");
            assert_eq!(common("url_path", &node), Some(Cond::path_is(Matcher::regex(regex))), "{path}");
        }
    }
}
