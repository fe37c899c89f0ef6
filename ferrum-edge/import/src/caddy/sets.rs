//! Matcher sets of Caddy's JSON as conditions.

use super::matchers;
use crate::cond::Cond;
use crate::tree::{Node, NodeValue};

/// All parts of a matcher set; `None` when one of them is not known here.
pub(super) fn matcher_set(set: &Node) -> Option<Cond> {
    let mut all = Cond::Always;
    for (name, value) in set.entries() {
        let list: Vec<String> = value.items().iter().filter_map(Node::plain).collect();
        let one = match name.as_str() {
            "path" => Cond::any(list.iter().map(|it| matchers::path(it)).collect::<Option<Vec<_>>>()?),
            "path_regexp" => matchers::path_regex(value.text_of("pattern")?)?,
            "host" => matchers::hosts(&list)?,
            "method" => Cond::methods(&list.iter().map(String::as_str).collect::<Vec<_>>()),
            "header" => {
                let fields = value.entries().iter().map(|(name, values)| {
                    let is_absent = values.value == NodeValue::Null;
                    let values: Vec<String> = values.items().iter().filter_map(Node::plain).collect();
                    matchers::header(&if is_absent { format!("!{name}") } else { name.clone() }, &values)
                });
                Cond::all(fields.collect::<Option<Vec<_>>>()?)
            }
            "header_regexp" => {
                let fields = value
                    .entries()
                    .iter()
                    .map(|(name, regex)| matchers::header_regex(name, regex.text_of("pattern")?));
                Cond::all(fields.collect::<Option<Vec<_>>>()?)
            }
            "query" => {
                let pairs: Vec<(String, String)> = value
                    .entries()
                    .iter()
                    .flat_map(|(name, values)| {
                        values.items().iter().filter_map(Node::plain).map(move |it| (name.clone(), it))
                    })
                    .collect();
                matchers::query(&pairs)
            }
            "remote_ip" if value.get("forwarded").and_then(Node::bool) == Some(true) => return None,
            "remote_ip" | "client_ip" => matchers::clients(&value.texts("ranges"))?,
            "protocol" => match value.str()? {
                scheme @ ("http" | "https") => Cond::scheme(scheme),
                _ => return None,
            },
            "not" => Cond::any(value.items().iter().map(matcher_set).collect::<Option<Vec<_>>>()?).negate(),
            _ => return None,
        };
        all = all.and(one);
    }
    Some(all)
}
