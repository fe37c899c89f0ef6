//! Groups and the query of the request in where a directive leads to.

use super::values::Variables;
use super::variable_names::{ValuePiece, pieces};
use crate::text;

/// How texts end with the query of the request.
const OWN_QUERIES: [&str; 4] = ["$is_args$args", "$is_args$query_string", "?$args", "?$query_string"];

impl Variables {
    /// A text without the query of the request, if it ends with that.
    pub(super) fn without_query<'t>(&self, text: &'t str) -> Option<&'t str> {
        let start = OWN_QUERIES.iter().find_map(|query| text.strip_suffix(query))?;
        let is_own = ["args", "query_string", "is_args"].iter().all(|name| self.is_of_request(name));
        Some(start).filter(|start| is_own && !start.contains('?'))
    }
}

/// Whether a text in the place of a path begins with a slash: by itself, or by a group of the regex that the path fits, as with
/// `^/v1(/.*)$` and `$1`.
pub(super) fn begins_with_slash(to: &str, regex: &str) -> bool {
    match pieces(to).first() {
        Some(ValuePiece::Text(text)) => text.starts_with('/'),
        Some(ValuePiece::Variable(name)) => {
            let begins = |group: &str| group.starts_with('/') && !text::has_top_choice(group);
            name.parse().ok().and_then(|number| group(regex, number)).is_some_and(begins)
        }
        None => false,
    }
}

/// What is in a group of a regex, by its number; `None` where it may be left out, or is within another one.
fn group(regex: &str, number: usize) -> Option<&str> {
    let (mut count, mut depth, mut start) = (0, 0_usize, None);
    let (mut in_class, mut is_escaped) = (false, false);
    for (at, c) in regex.char_indices() {
        let rest = regex.get(at + 1..).unwrap_or_default();
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => {
                depth += 1;
                count +=
                    usize::from(!rest.starts_with('?') || rest.starts_with("?<") || rest.starts_with("?P<"));
                if count == number && start.is_none() && depth == 1 {
                    let name = rest.strip_prefix('?').and_then(|rest| rest.find('>'));
                    start = Some(at + name.map_or(1, |end| end + 3));
                }
            }
            ')' if !in_class => {
                depth = depth.checked_sub(1)?;
                if depth == 0
                    && let Some(start) = start
                {
                    let may_lack = rest.starts_with(['?', '*', '{']);
                    return regex.get(start..at).filter(|_| !may_lack && count >= number);
                }
            }
            _ => {}
        }
    }
    None
}
