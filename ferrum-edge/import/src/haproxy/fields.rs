//! Values that come several times: of headers, cookies and parameters.

use crate::cond::Cond;
use crate::draft::Matcher;
use crate::text;

/// Where values are looked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field {
    /// The values of a header, with commas between them.
    Values,
    /// The first or the last of those.
    First,
    Last,
    /// The lines of a header.
    Lines,
    /// Cookies, between which HAProxy takes commas, too.
    Cookies,
    /// Parameters of the query as they were sent, with `&` or `;` between them.
    Parameters,
}

impl Field {
    pub(super) fn there(self, name: &str) -> Cond {
        match self {
            Self::Values | Self::First | Self::Last | Self::Lines => {
                Cond::header(name, Matcher::present(true))
            }
            // HAProxy finds `name=` without a value only before another cookie, or after a space.
            Self::Cookies => {
                let name = text::literal(name);
                let filled = format!(r"(?:.*[;,])?\s*{name}(?:\s+=.*|=\s*[^,\s].*)");
                cookie_header(&format!(r"(?:{filled}|.*;\s+{name}=.*)"))
            }
            Self::Parameters => {
                let regex = format!("(?:.*[&;])?{}=.*", text::literal(name));
                Cond::query_string(Matcher::regex(regex))
            }
        }
    }

    /// When one of the values fits a regex over the whole of it.
    pub(super) fn with(self, name: &str, flag: &str, regex: &str) -> Option<Cond> {
        let headers =
            |regex: String| text::is_regex(&regex).then(|| Cond::header(name, Matcher::regex(regex)));
        let name_of = text::literal(name);
        match self {
            Self::Values => headers(format!(r"{flag}(?:.*,\s*)?(?:{regex})(?:\s*,.*)?")),
            Self::First => headers(format!(r"{flag}(?:{regex})(?:\s*,.*)?")),
            Self::Last => headers(format!(r"{flag}(?:.*,\s*)?(?:{regex})")),
            Self::Lines => headers(format!("{flag}(?:.*, )?(?:{regex})(?:, .*)?")),
            Self::Cookies => {
                let value = regex;
                let regex = format!(r#"(?:.*[;,])?\s*{name_of}\s*=\s*"?{flag}(?:{regex})"?\s*(?:[;,].*)?"#);
                let takes_nothing =
                    regex::Regex::new(&format!("^(?:{value})$")).is_ok_and(|regex| regex.is_match(""));
                let there = if takes_nothing { self.there(name) } else { Cond::Always };
                text::is_regex(&regex).then(|| there.and(cookie_header(&regex)))
            }
            Self::Parameters => {
                let regex = format!("(?:.*[&;])?{name_of}={flag}(?:{regex})(?:[&;].*)?");
                text::is_regex(&regex).then(|| Cond::query_string(Matcher::regex(regex)))
            }
        }
    }
}

fn cookie_header(regex: &str) -> Cond {
    Cond::header("cookie", Matcher::regex(regex))
}

/// How often a header comes, compared with a number: whether it comes at all.
pub(super) fn counted(name: &str, compared: &[String]) -> Option<Cond> {
    let there = match name.to_ascii_lowercase().as_str() {
        "" => return None,
        name if name.contains(',') => return None,
        "host" => Cond::authority(Matcher::present(true)),
        name => Field::Lines.there(name),
    };
    let compared: Vec<&str> = compared.iter().map(String::as_str).collect();
    match compared.as_slice() {
        ["0"] | ["eq" | "le", "0"] | ["lt", "1"] => Some(there.negate()),
        ["gt", "0"] | ["ge", "1"] => Some(there),
        _ => None,
    }
}
