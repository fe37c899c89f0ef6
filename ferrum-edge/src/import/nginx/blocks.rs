//! The grammar of nginx.conf: directives with arguments, and blocks of them.

use std::fmt;

/// Blocks within blocks; nginx itself has four at most.
const MAX_DEPTH: usize = 32;

/// A directive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    /// What stands in its braces.
    pub(super) block: Vec<Self>,
    /// 1-based.
    pub(super) line: usize,
}

impl fmt::Display for Directive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

/// The text is not made of nginx's blocks and directives.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct NotNginx {
    line: usize,
    what: &'static str,
}

impl NotNginx {
    pub(super) fn new(line: usize, what: &'static str) -> Self {
        Self { line, what }
    }
}

enum Token {
    Word(String),
    Open,
    Close,
    End,
}

pub(super) fn parse(text: &str) -> Result<Vec<Directive>, NotNginx> {
    let mut tokens = Tokens { rest: text.chars().peekable(), line: 1 };
    let directives = block(&mut tokens, 0)?;
    Ok(directives)
}

fn block(tokens: &mut Tokens<'_>, depth: usize) -> Result<Vec<Directive>, NotNginx> {
    if depth > MAX_DEPTH {
        return Err(tokens.wrong("there are too many blocks within blocks"));
    }
    let mut directives = Vec::new();
    let mut words: Vec<String> = Vec::new();
    let mut line = tokens.line;
    loop {
        let token = tokens.next()?;
        if words.is_empty() {
            line = tokens.line;
        }
        match token {
            Some(Token::Word(word)) => words.push(word),
            Some(Token::End | Token::Open) if words.is_empty() => {
                return Err(tokens.wrong("a directive has no name"));
            }
            Some(end @ (Token::End | Token::Open)) => {
                let name = words.remove(0);
                let block = match end {
                    Token::Open => block(tokens, depth + 1)?,
                    _ => Vec::new(),
                };
                directives.push(Directive { name, arguments: std::mem::take(&mut words), block, line });
            }
            Some(Token::Close) if depth > 0 && words.is_empty() => return Ok(directives),
            Some(Token::Close) => {
                return Err(tokens.wrong("a brace closes nothing, or a semicolon is missing"));
            }
            None if depth == 0 && words.is_empty() => return Ok(directives),
            None => return Err(tokens.wrong("the text ends within a block or a directive")),
        }
    }
}

struct Tokens<'t> {
    rest: std::iter::Peekable<std::str::Chars<'t>>,
    line: usize,
}

impl Tokens<'_> {
    fn wrong(&self, what: &'static str) -> NotNginx {
        NotNginx { line: self.line, what }
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.rest.next();
        self.line += usize::from(c == Some('\n'));
        c
    }

    fn next(&mut self) -> Result<Option<Token>, NotNginx> {
        while let Some(c) = self.rest.peek().copied() {
            match c {
                '#' => while self.bump().is_some_and(|c| c != '\n') {},
                c if c.is_whitespace() => drop(self.bump()),
                '{' | '}' | ';' => {
                    self.bump();
                    return Ok(Some(match c {
                        '{' => Token::Open,
                        '}' => Token::Close,
                        _ => Token::End,
                    }));
                }
                '"' | '\'' => return self.quoted(c).map(|word| Some(Token::Word(word))),
                _ => return Ok(Some(Token::Word(self.word()))),
            }
        }
        Ok(None)
    }

    fn quoted(&mut self, quote: char) -> Result<String, NotNginx> {
        self.bump();
        let mut word = String::new();
        while let Some(c) = self.bump() {
            match c {
                '\\' => match self.bump() {
                    Some(c) if c == quote || c == '\\' => word.push(c),
                    Some(c) => word.extend(['\\', c]),
                    None => break,
                },
                c if c == quote => return Ok(word),
                c => word.push(c),
            }
        }
        Err(self.wrong("a quoted text has no end"))
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.rest.peek().copied() {
            match c {
                // A variable in braces is part of the word.
                '{' if word.ends_with('$') => {
                    while let Some(c) = self.bump() {
                        word.push(c);
                        if c == '}' {
                            break;
                        }
                    }
                }
                '\\' => {
                    word.extend(self.bump());
                    word.extend(self.bump());
                }
                '{' | '}' | ';' => break,
                c if c.is_whitespace() => break,
                _ => word.extend(self.bump()),
            }
        }
        word
    }
}
