//! The grammar of a Caddyfile: lines of words, and blocks of lines.

use std::collections::HashMap;
use std::path::Path;

use crate::MAX_INCLUDES;
use crate::draft::Import;
use crate::error::Failure;
use crate::files::IncludeReader;
use crate::report::At;

/// Blocks within blocks.
const MAX_DEPTH: usize = 32;
/// Lines of one configuration, with all that is imported.
const MAX_LINES: usize = 200_000;

/// A line, with the block that it opens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CaddyLine {
    pub(super) at: At,
    pub(super) words: Vec<String>,
    pub(super) block: Option<Vec<Self>>,
}

impl CaddyLine {
    pub(super) fn name(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(super) fn arguments(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// A word as text; empty where there is none.
    pub(super) fn word(&self, n: usize) -> &str {
        self.words.get(n).map_or("", String::as_str)
    }

    pub(super) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// The line as it is written, for findings.
    pub(super) fn text(&self) -> String {
        self.words.join(" ")
    }
}

enum Token {
    Word(String, u32),
    Open,
    Close,
    NewLine,
}

/// Reads a text; its imports are followed by [`Imports::expand`].
pub(super) fn parse(name: &str, file: u16, text: &str) -> Result<Vec<CaddyLine>, Failure> {
    let tokens = scan(name, text)?;
    let mut at = 0;
    let lines = block(name, file, &tokens, &mut at, 0)?;
    Ok(lines)
}

fn block(
    name: &str,
    file: u16,
    tokens: &[Token],
    at: &mut usize,
    depth: usize,
) -> Result<Vec<CaddyLine>, Failure> {
    if depth > MAX_DEPTH {
        return Err(Failure::new(name, 0, format!("more than {MAX_DEPTH} blocks in one another")));
    }
    let mut lines = Vec::new();
    let mut line = CaddyLine::default();
    while let Some(token) = tokens.get(*at) {
        *at += 1;
        match token {
            Token::Word(word, number) => {
                if line.words.is_empty() {
                    line.at = At { file, line: *number, column: 0 };
                }
                line.words.push(word.clone());
            }
            Token::Open => {
                line.block = Some(block(name, file, tokens, at, depth + 1)?);
                lines.push(std::mem::take(&mut line));
            }
            Token::Close => {
                if !line.words.is_empty() {
                    lines.push(line);
                }
                if depth == 0 {
                    return Err(Failure::new(name, 0, "a brace closes nothing"));
                }
                return Ok(lines);
            }
            Token::NewLine => {
                // Addresses of a site go on in the next line after a comma.
                let goes_on = line.words.last().is_some_and(|word| word.ends_with(','));
                if !line.words.is_empty() && !goes_on {
                    lines.push(std::mem::take(&mut line));
                }
            }
        }
    }
    if depth > 0 {
        return Err(Failure::new(name, 0, "the text ends within a block"));
    }
    if !line.words.is_empty() {
        lines.push(line);
    }
    Ok(lines)
}

fn scan(name: &str, text: &str) -> Result<Vec<Token>, Failure> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    let mut line = 1_u32;
    while let Some(c) = rest.next() {
        match c {
            '\n' => {
                line += 1;
                tokens.push(Token::NewLine);
            }
            '\\' if rest.peek() == Some(&'\n') => {
                rest.next();
                line += 1;
            }
            c if c.is_whitespace() => {}
            '#' => {
                while rest.peek().is_some_and(|c| *c != '\n') {
                    rest.next();
                }
            }
            '"' | '`' => {
                let start = line;
                let mut word = String::new();
                loop {
                    match rest.next() {
                        None => return Err(Failure::new(name, start, "a quoted text has no end")),
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' && rest.peek() == Some(&'"') => word.extend(rest.next()),
                        Some(inner) => {
                            line += u32::from(inner == '\n');
                            word.push(inner);
                        }
                    }
                }
                tokens.push(Token::Word(word, start));
            }
            first => {
                let mut word = String::from(first);
                while let Some(c) = rest.peek().copied().filter(|c| !c.is_whitespace()) {
                    word.push(c);
                    rest.next();
                }
                match word.as_str() {
                    "{" => tokens.push(Token::Open),
                    "}" => tokens.push(Token::Close),
                    word if word.starts_with("<<") && word.len() > 2 => {
                        let mark = word.trim_start_matches('<').to_owned();
                        let start = line;
                        let body = heredoc(&mut rest, &mark, &mut line)
                            .ok_or_else(|| Failure::new(name, start, "a heredoc has no end"))?;
                        tokens.push(Token::Word(body, start));
                    }
                    _ => tokens.push(Token::Word(word, line)),
                }
            }
        }
    }
    Ok(tokens)
}

fn heredoc(
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    mark: &str,
    line: &mut u32,
) -> Option<String> {
    while rest.next()? != '\n' {}
    *line += 1;
    let mut lines: Vec<String> = Vec::new();
    loop {
        let mut one = String::new();
        while let Some(c) = rest.peek().copied().filter(|c| *c != '\n') {
            one.push(c);
            rest.next();
        }
        if one.trim_start().starts_with(mark) {
            let indent = one.len() - one.trim_start().len();
            let cut = |text: &String| text.get(indent.min(text.len())..).unwrap_or_default().to_owned();
            return Some(lines.iter().map(cut).collect::<Vec<_>>().join("\n"));
        }
        lines.push(one);
        rest.next()?;
        *line += 1;
    }
}

/// What imports need: snippets by name, and the files that may be read.
pub(super) struct Imports<'r, 'f> {
    pub(super) snippets: HashMap<String, Vec<CaddyLine>>,
    pub(super) reader: &'r mut IncludeReader<'f>,
    pub(super) count: usize,
}

impl Imports<'_, '_> {
    /// Puts imported lines in the places of the imports; takes snippets out.
    pub(super) fn expand(
        &mut self,
        out: &mut Import,
        lines: Vec<CaddyLine>,
        folder: &Path,
        depth: usize,
    ) -> Result<Vec<CaddyLine>, Failure> {
        let mut made = Vec::new();
        for mut line in lines {
            self.count += 1;
            if depth > MAX_INCLUDES || self.count > MAX_LINES {
                let what =
                    format!("imports go deeper than {MAX_INCLUDES}, or make more than {MAX_LINES} lines");
                return Err(Failure::new("", line.at.line, what));
            }
            if let Some(name) = line.name().strip_prefix('(').and_then(|name| name.strip_suffix(')')) {
                self.snippets.insert(name.to_owned(), line.block.unwrap_or_default());
                continue;
            }
            if line.name() != "import" {
                if let Some(block) = line.block.take() {
                    line.block = Some(self.expand(out, block, folder, depth)?);
                }
                made.push(line);
                continue;
            }
            let Some((what, values)) = line.arguments().split_first() else { continue };
            if let Some(snippet) = self.snippets.get(what).cloned() {
                let filled = snippet.into_iter().map(|line| filled(line, values)).collect();
                made.extend(self.expand(out, filled, folder, depth + 1)?);
                continue;
            }
            let paths = self.reader.matching(&folder.join(what));
            let paths = paths.and_then(|paths| {
                let mut all = Vec::new();
                for path in paths {
                    all.push((self.reader.read(&path)?, path));
                }
                Ok(all)
            });
            match paths {
                Ok(files) => {
                    for (text, path) in files {
                        let name = path.display().to_string();
                        let file = out.report.file(&name);
                        let lines: Vec<CaddyLine> =
                            parse(&name, file, &text)?.into_iter().map(|line| filled(line, values)).collect();
                        let folder = path.parent().unwrap_or(folder).to_owned();
                        made.extend(self.expand(out, lines, &folder, depth + 1)?);
                    }
                }
                // What it says may guard; see `UNREAD`.
                Err(why) => {
                    out.not_converted(line.at, line.text(), why, "run it where the file is");
                    made.push(CaddyLine { words: vec![super::UNREAD.to_owned(), what.clone()], ..line });
                }
            }
        }
        Ok(made)
    }
}

/// A snippet's line with `{args[0]}` and `{args.0}` filled in.
fn filled(mut line: CaddyLine, values: &[String]) -> CaddyLine {
    for word in &mut line.words {
        if word.contains("{args") {
            for (n, value) in values.iter().enumerate() {
                *word =
                    word.replace(&format!("{{args[{n}]}}"), value).replace(&format!("{{args.{n}}}"), value);
            }
        }
    }
    let whole = |word: &String| word == "{args[:]}";
    if let Some(at) = line.words.iter().position(whole) {
        line.words.splice(at..=at, values.iter().cloned());
    }
    line.block = line.block.map(|block| block.into_iter().map(|line| filled(line, values)).collect());
    line
}
