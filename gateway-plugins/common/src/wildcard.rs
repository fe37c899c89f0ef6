//! Paths by a pattern in which `*` stands for any characters, slashes included.

/// A pattern: what a text has to have between any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wildcard(Vec<String>);

impl Wildcard {
    /// Reads a pattern; every text is one.
    pub fn read(text: &str) -> Self {
        Self(text.split('*').map(str::to_owned).collect())
    }

    /// Whether the pattern is for all of this text.
    pub fn fits(&self, text: &str) -> bool {
        let [first, middle @ .., last] = self.0.as_slice() else {
            return self.0.first().is_some_and(|only| only == text);
        };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
        for part in middle {
            match rest.split_once(part.as_str()) {
                Some((_, behind)) => rest = behind,
                None => return false,
            }
        }
        rest.ends_with(last.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_fit() {
        for (pattern, path, fits) in [
            ("*", "a/b", true),
            ("*.css", "a/b.css", true),
            ("*.css", "a/b.css.map", false),
            ("assets/*", "assets/x/y", true),
            ("assets/*", "other/assets/x", false),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("index.html", "index.html", true),
            ("index.html", "x/index.html", false),
            ("ab*ba", "aba", false),
        ] {
            assert_eq!(Wildcard::read(pattern).fits(path), fits, "{pattern} {path}");
        }
    }
}
