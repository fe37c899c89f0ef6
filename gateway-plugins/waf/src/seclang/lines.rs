//! Logical lines and their words: continuation with `\`, comments, quotes.

/// A quote that opens a word and has no counterpart on the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the quote {0} is never closed")]
pub(crate) struct UnclosedQuote(char);

/// A line with what continues it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogicalLine {
    /// Where it begins, from 1.
    pub(crate) number: u32,
    pub(crate) text: String,
}

/// The lines of a file that are not empty and not comments.
pub(crate) fn logical(text: &str) -> Vec<LogicalLine> {
    let mut found = Vec::new();
    let mut open: Option<LogicalLine> = None;
    for (number, raw) in (1u32..).zip(text.lines()) {
        let raw = raw.trim_end();
        let is_comment = raw.trim_start().starts_with('#');
        // A comment between continued lines is a comment nevertheless.
        if is_comment || (open.is_none() && raw.trim_start().is_empty()) {
            continue;
        }
        let (part, goes_on) = match raw.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (raw, false),
        };
        let line = open.get_or_insert_with(|| LogicalLine { number, text: String::new() });
        let part = if line.text.is_empty() { part.trim_start() } else { part };
        line.text.push_str(part);
        if !goes_on {
            found.extend(open.take());
        }
    }
    found.extend(open);
    found
}

/// The words of a line. In double quotes `\"` is a quote and every other backslash stays; single quotes keep all.
pub(crate) fn words(line: &str) -> Result<Vec<String>, UnclosedQuote> {
    let mut found = Vec::new();
    let mut rest = line.chars().peekable();
    loop {
        while rest.next_if(|c| c.is_whitespace()).is_some() {}
        let Some(first) = rest.next() else { return Ok(found) };
        let mut word = String::new();
        if first == '"' || first == '\'' {
            loop {
                match rest.next() {
                    None => return Err(UnclosedQuote(first)),
                    Some(c) if c == first => break,
                    Some('\\') if rest.peek() == Some(&first) => word.extend(rest.next()),
                    Some('\\') => {
                        word.push('\\');
                        // So that an escaped backslash does not escape the quote behind it.
                        word.extend(rest.next_if_eq(&'\\'));
                    }
                    Some(c) => word.push(c),
                }
            }
        } else {
            word.push(first);
            while let Some(c) = rest.next_if(|c| !c.is_whitespace()) {
                word.push(c);
            }
        }
        found.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_keep_the_number_of_their_first() {
        let text = "# a comment\n\nSecRule ARGS \\\n  \"@rx a\" \\\n# within\n  \"id:1\"\nSecMarker x";
        let lines = logical(text);
        assert_eq!(lines.len(), 2);
        assert_eq!((lines[0].number, lines[1].number), (3, 7));
        assert_eq!(words(&lines[0].text).unwrap(), ["SecRule", "ARGS", "@rx a", "id:1"]);
    }

    #[test]
    fn quotes_keep_backslashes() {
        let line = r#"SecRule ARGS "@rx a\"b\d\\" 'it''s'"#;
        assert_eq!(words(line).unwrap(), ["SecRule", "ARGS", r#"@rx a"b\d\\"#, "it", "s"]);
        assert_eq!(words("SecRule \"open"), Err(UnclosedQuote('"')));
    }
}
