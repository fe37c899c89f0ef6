//! What is asked of the path and of the query.

use super::acl::Test;
use crate::cond::Cond;
use crate::draft::Matcher;

impl Test {
    /// When the path, the query or both together have one of the values.
    pub(super) fn path_or_query(&self, name: &str, how: &str) -> Option<Cond> {
        let path = |regex: String| Cond::path_is(Matcher::regex(regex));
        let query = |regex: String| Cond::query_string(Matcher::regex(regex));
        let is_listed = !self.values.is_empty() && how != "found";
        match name {
            "path" => Some(Cond::any(self.regexes(how)?.into_iter().map(path))),
            "query" if is_listed => Some(Cond::any(self.regexes(how)?.into_iter().map(query))),
            _ if self.values.iter().any(|value| value.contains('?') || value.starts_with("http")) => None,
            "url" | "pathq" if how == "beg" => Some(Cond::any(self.regexes(how)?.into_iter().map(path))),
            // A text without a question mark is in one of them.
            "url" | "pathq" if is_listed && (how == "sub" || how == "reg" && self.has_plain_texts()) => {
                let each = self.regexes(how)?.into_iter();
                Some(Cond::any(each.map(|regex| path(regex.clone()).or(query(regex)))))
            }
            _ => None,
        }
    }

    /// Whether its regexes are texts and choices of texts.
    fn has_plain_texts(&self) -> bool {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_=&%|()".contains(c);
        self.values.iter().all(|value| value.chars().all(is_plain))
    }
}
