//! When a variable of nginx's own passes a test.

use super::asked::{Test, flagged};
use super::fields;
use crate::cond::Cond;
use crate::draft::Matcher;
use crate::text;

impl Test<'_> {
    /// When a variable of nginx's own passes.
    pub(super) fn of(&self, name: &str) -> Option<Cond> {
        let family = |prefix: &str| name.strip_prefix(prefix).filter(|rest| !rest.is_empty());
        match name {
            "host" => return self.host(),
            "request_method" => return self.method(),
            "uri" | "document_uri" => return self.path(),
            "request_uri" => return fields::target(self),
            "args" | "query_string" => return fields::query(self),
            "is_args" => return self.either("?", Cond::query_string(Matcher::regex(".+"))),
            "content_type" | "content_length" => return fields::header(self, &name.replace('_', "-")),
            "ssl_protocol" if matches!(self, Self::Same("", _)) => {
                return Some(Cond::scheme("http"));
            }
            "scheme" => {
                return Some(Cond::any(
                    ["http", "https"].into_iter().filter(|it| self.fits(it)).map(Cond::scheme),
                ));
            }
            "https" => return self.either("on", Cond::scheme("https")),
            "ssl_client_verify" => {
                let yes = Cond::client_certificate();
                return Some(match (self.fits("SUCCESS"), self.fits("NONE")) {
                    (true, true) => Cond::Always,
                    (true, false) => yes,
                    (false, true) => yes.negate(),
                    (false, false) => Cond::Never,
                });
            }
            "ssl_server_name" => {
                return match self {
                    Self::Same(name, _) if !name.is_empty() => Some(Cond::server_names([name])),
                    _ => None,
                };
            }
            "remote_addr" => {
                return match self {
                    Self::Same(address, _) if address.parse::<std::net::IpAddr>().is_ok() => {
                        Some(Cond::clients([address]))
                    }
                    _ => None,
                };
            }
            _ => {}
        }
        match (family("http_"), family("arg_"), family("cookie_")) {
            (Some(name), ..) => fields::header(self, &name.replace('_', "-")),
            (_, Some(name), _) => fields::parameter(self, name),
            (.., Some(name)) => fields::cookie(self, name),
            _ => None,
        }
    }

    fn either(&self, text: &str, cond: Cond) -> Option<Cond> {
        Some(match (self.fits(text), self.fits("")) {
            (true, true) => Cond::Always,
            (true, false) => cond,
            (false, true) => cond.negate(),
            (false, false) => Cond::Never,
        })
    }

    fn host(&self) -> Option<Cond> {
        match self {
            Self::Same(name, _) if is_host(name) => Some(Cond::hosts([name.to_ascii_lowercase()])),
            Self::Regex(regex, _) => {
                // `^(a|b)\.example\.com$` as the names it stands for.
                let names = spelled(regex).unwrap_or_default();
                let good = !names.is_empty() && names.iter().all(|name| is_host(name));
                if good {
                    return Some(Cond::hosts(names));
                }
                text::host_regex(regex).map(|regex| Cond::authority(Matcher::regex(regex)))
            }
            _ => None,
        }
    }

    fn method(&self) -> Option<Cond> {
        match self {
            Self::Same(method, _) if !method.is_empty() => Some(Cond::methods(&[method])),
            Self::Regex(regex, _) => {
                // Only where no other method fits: the regex spells them out. Those of requests are in capitals.
                let names: Vec<String> =
                    spelled(regex)?.iter().map(|name| name.to_ascii_uppercase()).collect();
                let fits: Vec<&str> =
                    names.iter().map(String::as_str).filter(|name| self.fits(name)).collect();
                let is_method = |name: &&str| {
                    !name.is_empty()
                        && name.bytes().all(|b| b.is_ascii_uppercase() || matches!(b, b'-' | b'_'))
                };
                (fits.iter().all(is_method) && !fits.is_empty()).then(|| Cond::methods(&fits))
            }
            _ => None,
        }
    }

    fn path(&self) -> Option<Cond> {
        match self {
            Self::Same(path, false) if path.starts_with('/') => Some(Cond::path_is(Matcher::exact(*path))),
            Self::Same(path, true) if path.starts_with('/') => {
                Some(Cond::path_is(Matcher::regex(format!("(?i){}", text::literal(path)))))
            }
            Self::Regex(regex, ignores) => Some(Cond::path_is(Matcher::regex(flagged(regex, *ignores)?))),
            _ => None,
        }
    }
}

/// The texts that a regex of plain text and one group of alternatives stands for, where it matches whole texts.
fn spelled(regex: &str) -> Option<Vec<String>> {
    let inner = regex.strip_prefix('^')?.strip_suffix('$')?;
    let (before, rest) = inner.split_once('(').unwrap_or((inner, ""));
    let (middle, after) =
        if rest.is_empty() && !inner.contains('(') { ("", "") } else { rest.split_once(')')? };
    let middle = middle.strip_prefix("?:").unwrap_or(middle);
    let all = middle.split('|').map(|one| format!("{before}{one}{after}"));
    all.map(|text| {
        let plain = text.replace("\\.", ".").replace("\\-", "-");
        let is_plain = plain.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        // A bare dot is any character.
        (is_plain && text.matches('.').count() == text.matches("\\.").count()).then_some(plain)
    })
    .collect()
}

fn is_host(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
}
