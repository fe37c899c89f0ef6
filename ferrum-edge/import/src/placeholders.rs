//! Values for the placeholders that configurations leave to the environment: Caddy's `{$NAME}`, HAProxy's `${NAME}`, and those of
//! Compose and Traefik files.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::{Files, Format};

/// Values by name. A placeholder whose name is missing keeps its default, or stays as it is written.
#[derive(Debug, Clone, Default)]
pub struct Values {
    by_name: BTreeMap<String, String>,
    keeps_missing: bool,
}

/// What stands for a placeholder until the import is done: a word that is a host name, a path segment and a value alike.
const MARK: &str = "envref";
/// Bytes of a name that is kept: with its mark, the name of a host has at most 63.
const MAX_KEPT: usize = 28;

impl Values {
    /// Has placeholders that have neither a value nor a default end up as `${env:NAME}`, by [`crate::Import::name_environment`].
    pub fn keep_missing(&mut self, keeps: bool) {
        self.keeps_missing = keeps;
    }

    /// Adds `NAME=VALUE`, in the place of a value of the same name.
    ///
    /// # Errors
    /// What is wrong with it: no `=`, a name that is not made of letters, digits and `_`, or a control character in the value.
    pub fn set(&mut self, pair: &str) -> Result<(), String> {
        let (name, value) = pair.split_once('=').ok_or_else(|| "expected NAME=VALUE".to_owned())?;
        if !is_name(name) {
            return Err(format!("`{name}` is not a valid name: use letters, digits and `_`"));
        }
        if value.chars().any(char::is_control) {
            return Err(format!("the value of {name} contains control characters"));
        }
        self.by_name.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// Adds the lines of an environment file: `NAME=VALUE`, also after `export` and in quotes; `#` begins a comment line.
    ///
    /// # Errors
    /// The number of the first wrong line, and what is wrong with it.
    pub fn read(&mut self, text: &str) -> Result<(), (usize, String)> {
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let line = line.strip_prefix("export ").unwrap_or(line).trim_start();
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            let quoted = ['"', '\'']
                .into_iter()
                .find_map(|quote| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote)));
            let pair = if line.contains('=') {
                format!("{}={}", name.trim_end(), quoted.unwrap_or(value))
            } else {
                line.to_owned()
            };
            self.set(&pair).map_err(|why| (n + 1, why))?;
        }
        Ok(())
    }

    /// A text of this format with values in the place of its placeholders.
    pub fn fill(&self, format: Format, text: &str) -> String {
        let start = match format {
            Format::Caddyfile => "{$",
            Format::Haproxy | Format::Traefik => "${",
            _ => return text.to_owned(),
        };
        if self.by_name.is_empty() && !self.keeps_missing && format != Format::Traefik {
            return text.to_owned();
        }
        let mut made = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, inner)) = rest.split_once(start) {
            made.push_str(before);
            // `$${NAME}` is that text itself in a Compose file.
            let is_escaped = format == Format::Traefik && before.ends_with('$');
            let found = inner.split_once('}').filter(|_| !is_escaped).and_then(|(placeholder, tail)| {
                let name = placeholder.split([':', '-']).next().unwrap_or(placeholder);
                // Compose writes `${NAME:-default}` and `${NAME-default}`.
                let default = placeholder.get(name.len()..).and_then(|rest| {
                    let rest = rest.strip_prefix(':').unwrap_or(rest).strip_prefix('-')?;
                    (format != Format::Caddyfile).then(|| rest.to_owned())
                });
                let value = self.by_name.get(name).cloned().or(default).or_else(|| self.mark(placeholder));
                Some((value.filter(|_| is_name(name))?, tail))
            });
            match found {
                Some((value, tail)) => {
                    made.push_str(&value);
                    rest = tail;
                }
                None => {
                    made.push_str(start);
                    rest = inner;
                }
            }
        }
        made.push_str(rest);
        made
    }
}

impl Values {
    fn mark(&self, name: &str) -> Option<String> {
        let is_kept = self.keeps_missing && is_name(name) && name.len() <= MAX_KEPT;
        let digits: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
        is_kept.then(|| format!("{MARK}{digits}x"))
    }
}

impl crate::Import {
    /// Writes `${env:NAME}` for placeholders that [`Values::keep_missing`] kept; names of objects get the name alone.
    pub fn name_environment(&mut self) {
        let lists = [&mut self.upstreams, &mut self.plugin_configs, &mut self.proxies, &mut self.consumers];
        lists.into_iter().flatten().for_each(|value| name_marks(value, false));
        self.gateway.values_mut().for_each(|value| name_marks(value, false));
    }
}

/// Replaces marks in all texts of a value.
fn name_marks(value: &mut Value, is_id: bool) {
    match value {
        Value::String(text) => {
            if let Some(new) = without_marks(text, is_id) {
                *text = new;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|one| name_marks(one, is_id)),
        Value::Object(object) => {
            for (key, one) in object {
                name_marks(one, key == "id" || key.ends_with("_id") || key == "before");
            }
        }
        _ => {}
    }
}

/// A text with names in the place of its marks; `None` where it has none.
fn without_marks(text: &str, is_id: bool) -> Option<String> {
    let mut made = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(MARK) {
        made.push_str(before);
        let is_end = |end: &usize| after.get(*end..).is_some_and(|rest| rest.starts_with('x'));
        let end = after.find(|c: char| !c.is_ascii_hexdigit()).filter(is_end);
        let bytes = end.and_then(|end| {
            let digits = after.get(..end)?.as_bytes().chunks(2);
            let each = digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
            String::from_utf8(each.collect::<Option<Vec<u8>>>()?).ok().filter(|name| is_name(name))
        });
        match bytes.zip(end) {
            Some((name, end)) => {
                made.push_str(&if is_id { name.to_ascii_lowercase() } else { format!("${{env:{name}}}") });
                rest = after.get(end + 1..).unwrap_or_default();
            }
            None => {
                made.push_str(MARK);
                rest = after;
            }
        }
    }
    if made.is_empty() && rest.len() == text.len() {
        return None;
    }
    made.push_str(rest);
    Some(made)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Files with values in the place of their placeholders.
pub struct FilledFiles<'f> {
    /// Where the files come from.
    pub files: &'f dyn Files,
    /// The values.
    pub values: &'f Values,
    /// Whose configuration they are of.
    pub format: Format,
}

impl Files for FilledFiles<'_> {
    fn read(&self, path: &Path) -> io::Result<String> {
        self.files.read(path).map(|text| self.values.fill(self.format, &text))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        self.files.list(folder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[&str]) -> Values {
        let mut made = Values::default();
        pairs.iter().for_each(|pair| made.set(pair).expect("a pair"));
        made
    }

    #[test]
    fn values_take_the_place_of_placeholders() {
        let all = values(&["HOST=a.test", "PORT=81", "EMPTY="]);
        for (format, text, wanted) in [
            (Format::Caddyfile, "{$HOST}:{$PORT:80} {$NONE:x} {host}", "a.test:81 {$NONE:x} {host}"),
            (Format::Caddyfile, "a{$EMPTY}b {$", "ab {$"),
            (Format::Haproxy, "server a \"${HOST}:${PORT}\" ${NONE}", "server a \"a.test:81\" ${NONE}"),
            (Format::Traefik, "Host(`${HOST:-b.test}`) $${HOST}", "Host(`a.test`) $${HOST}"),
            (Format::Traefik, "Host(`${SUB:-www}.b.test`) ${NONE-x} ${NONE}", "Host(`www.b.test`) x ${NONE}"),
            (Format::Haproxy, "server a ${ADDRESS-10.0.0.1}:${PORT}", "server a 10.0.0.1:81"),
            (Format::Nginx, "${HOST}", "${HOST}"),
        ] {
            assert_eq!(all.fill(format, text), wanted, "{text}");
        }
        assert_eq!(Values::default().fill(Format::Caddyfile, "{$A:b}"), "{$A:b}");
    }

    #[test]
    fn placeholders_without_a_value_are_kept_for_the_environment() {
        let mut all = values(&["PORT=81"]);
        all.keep_missing(true);
        let text = "http://{$HOST} {\n header X-Key {$KEY}-1\n reverse_proxy {$TARGET}:{$PORT} {\n header_up X-D {$D:d}\n }\n}\n";
        let filled = all.fill(Format::Caddyfile, text);
        let source = ("/Caddyfile".to_owned(), filled);
        let mut made =
            crate::import(Format::Caddyfile, &[source], &crate::NoFiles, crate::Options::default())
                .expect("an import");
        made.name_environment();
        let proxy = &made.proxies[0];
        assert_eq!(proxy["backend_host"], "${env:TARGET}", "{:#}", made.document());
        assert_eq!(proxy["backend_port"], 81);
        let document = made.document().to_string();
        assert!(document.contains("${env:HOST}") && document.contains("${env:KEY}-1"), "{document}");
        assert!(!document.contains(MARK) && document.contains("\"d\""), "{document}");
    }

    #[test]
    fn environment_files_are_read_line_by_line() {
        let mut made = Values::default();
        made.read("# comment\n\nA=1\nexport B=\"two words\"\nC='x=y'\nD=\n").expect("lines");
        let wanted = [("A", "1"), ("B", "two words"), ("C", "x=y"), ("D", "")];
        assert!(made.by_name.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(wanted));
        for (bad, line) in [("A=1\nB", 2), ("1A=x", 1), ("A B=x", 1), ("A=\u{1}", 1)] {
            assert_eq!(Values::default().read(bad).map_err(|(line, _)| line), Err(line), "{bad}");
        }
    }

    #[test]
    fn included_files_are_filled_too() {
        struct One;
        impl Files for One {
            fn read(&self, _path: &Path) -> io::Result<String> {
                Ok("reverse_proxy {$T}\n".to_owned())
            }
            fn list(&self, _folder: &Path) -> io::Result<Vec<String>> {
                Ok(Vec::new())
            }
        }
        let all = values(&["T=10.0.0.1:81"]);
        let files = FilledFiles { files: &One, values: &all, format: Format::Caddyfile };
        let source = ("/Caddyfile".to_owned(), "http://a.test {\n import x\n}\n".to_owned());
        let made = crate::import(Format::Caddyfile, &[source], &files, crate::Options::default())
            .expect("an import");
        assert_eq!(made.document()["proxies"][0]["backend_port"], 81);
    }
}
