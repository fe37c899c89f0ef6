//! The grammar of nginx.conf: directives with arguments, and blocks of them.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fmt;

use super::guard_names::is_guard_by_name;
use crate::error::Failure;
use crate::report::At;

/// Blocks within blocks; nginx itself has four at most.
const MAX_DEPTH: usize = 32;

/// A directive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Directive {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    /// What stands in its braces.
    pub(super) block: Vec<Self>,
    pub(super) at: At,
    pub(super) index: NameIndex,
}

/// Which directives a block has, from when it is first asked. A copy knows nothing, for it may be changed.
#[derive(Default)]
pub(super) struct NameIndex(OnceCell<Box<BlockNames>>);

struct BlockNames {
    /// A bit for each name, by [`name_bit`]: a name whose bit is not set is not in the block.
    bits: u64,
    /// Where the directives of each name are; none in a small block, which is looked through one by one.
    places: HashMap<String, Vec<usize>>,
    /// Where those are that [`is_guard_by_name`] means.
    guards: Vec<usize>,
}

/// Directives of a small block.
const SMALL: usize = 16;

/// One of 64 bits, which few names share. Inlined, it is a constant for each name that the importer asks for.
#[inline]
pub(super) fn name_bit(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let byte = |at: usize| bytes.get(at).copied().map_or(0, u32::from);
    let (length, last) = (bytes.len(), bytes.len().saturating_sub(1));
    let mixed = [byte(last), byte(length / 2), byte(length / 3), byte(0)]
        .iter()
        .fold(u32::try_from(length).unwrap_or(0), |mixed, byte| mixed.wrapping_mul(31).wrapping_add(*byte));
    1 << (mixed.wrapping_mul(0x9e37_79b1) >> 26)
}

impl Directive {
    fn names(&self) -> &BlockNames {
        self.index.0.get_or_init(|| {
            let mut made = BlockNames { bits: 0, places: HashMap::new(), guards: Vec::new() };
            for (place, directive) in self.block.iter().enumerate() {
                made.bits |= name_bit(&directive.name);
                if is_guard_by_name(&directive.name) {
                    made.guards.push(place);
                }
                if self.block.len() <= SMALL {
                    continue;
                }
                match made.places.get_mut(&directive.name) {
                    Some(places) => places.push(place),
                    None => drop(made.places.insert(directive.name.clone(), vec![place])),
                }
            }
            Box::new(made)
        })
    }

    /// The directives of this name in the block. The block may not change afterwards.
    #[inline]
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &Self> {
        self.all_by_bit(name, name_bit(name))
    }

    /// As [`Directive::all`], with the bit of the name.
    pub(super) fn all_by_bit(&self, name: &str, bit: u64) -> impl Iterator<Item = &Self> {
        let names = (!self.block.is_empty()).then(|| self.names());
        let names = names.filter(|names| names.bits & bit != 0);
        let is_large = self.block.len() > SMALL;
        let few = names.filter(|_| !is_large).map_or(&[][..], |_| self.block.as_slice());
        let places = names.filter(|_| is_large).and_then(|names| names.places.get(name));
        let named = few.iter().filter(move |directive| directive.name == name);
        named.chain(places.into_iter().flatten().filter_map(|place| self.block.get(*place)))
    }

    /// The directives of the block that guard, to go by their names. The block may not change afterwards.
    pub(super) fn guards_by_name(&self) -> impl Iterator<Item = &Self> {
        let names = (!self.block.is_empty()).then(|| self.names());
        names.into_iter().flat_map(|names| &names.guards).filter_map(|place| self.block.get(*place))
    }

    /// The directives of the block that stand behind one of them; none for another one.
    pub(super) fn behind(&self, directive: &Self) -> &[Self] {
        // Where a directive is in its block is seen by its address.
        let offset = std::ptr::from_ref(directive).addr().checked_sub(self.block.as_ptr().addr());
        let place = offset.map(|offset| offset / size_of::<Self>()).filter(|place| *place < self.block.len());
        place.and_then(|place| self.block.get(place + 1..)).unwrap_or_default()
    }
}

impl Clone for NameIndex {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for NameIndex {
    /// It says nothing that the block does not say.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for NameIndex {}

impl fmt::Debug for NameIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameIndex")
    }
}

impl fmt::Display for Directive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

enum Token {
    Word(String),
    Open,
    Close,
    End,
}

/// Reads a text of a file, which findings name by its place in the report's list.
pub(super) fn parse(name: &str, file: u16, text: &str) -> Result<Vec<Directive>, Failure> {
    block(&mut Tokens { rest: text.chars().peekable(), line: 1, name, file }, 0)
}

/// Directives without a block that people forget a semicolon behind.
const SIMPLE: &[&str] = &[
    "access_log",
    "add_header",
    "allow",
    "auth_basic",
    "auth_basic_user_file",
    "auth_request",
    "client_max_body_size",
    "default_type",
    "deny",
    "error_log",
    "error_page",
    "expires",
    "gzip",
    "include",
    "index",
    "internal",
    "keepalive",
    "listen",
    "proxy_http_version",
    "proxy_pass",
    "proxy_read_timeout",
    "proxy_redirect",
    "proxy_set_header",
    "resolver",
    "return",
    "rewrite",
    "root",
    "satisfy",
    "sendfile",
    "server_name",
    "set",
    "ssl_certificate",
    "ssl_certificate_key",
    "ssl_ciphers",
    "ssl_protocols",
    "ssl_verify_client",
    "try_files",
    "worker_processes",
];

fn block(tokens: &mut Tokens<'_>, depth: usize) -> Result<Vec<Directive>, Failure> {
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
                if matches!(end, Token::Open) && SIMPLE.contains(&name.as_str()) {
                    let what = format!("`{name}` has no block: a semicolon is missing behind it");
                    return Err(Failure::new(tokens.name, line, what));
                }
                let block = match end {
                    Token::Open if name.ends_with("_by_lua_block") || name == "perl_set" => tokens.code()?,
                    Token::Open => block(tokens, depth + 1)?,
                    _ => Vec::new(),
                };
                let at = At { file: tokens.file, line, column: 0 };
                let arguments = std::mem::take(&mut words);
                directives.push(Directive { name, arguments, block, at, ..Directive::default() });
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
    line: u32,
    name: &'t str,
    file: u16,
}

impl Tokens<'_> {
    fn wrong(&self, what: &'static str) -> Failure {
        Failure::new(self.name, self.line, what)
    }

    /// Code in another language, up to the brace that ends it.
    fn code(&mut self) -> Result<Vec<Directive>, Failure> {
        let mut depth = 1_usize;
        while let Some(c) = self.bump() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Ok(Vec::new());
            }
        }
        Err(self.wrong("a block of code has no end"))
    }

    fn bump(&mut self) -> Option<char> {
        let c = self.rest.next();
        self.line += u32::from(c == Some('\n'));
        c
    }

    fn next(&mut self) -> Result<Option<Token>, Failure> {
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

    fn quoted(&mut self, quote: char) -> Result<String, Failure> {
        self.bump();
        let mut word = String::new();
        while let Some(c) = self.bump() {
            match c {
                '\\' => self.escaped(&mut word),
                c if c == quote => return Ok(word),
                c => word.push(c),
            }
        }
        Err(self.wrong("a quoted text has no end"))
    }

    /// What a backslash stands for; before other characters it stays, as regexes need it.
    fn escaped(&mut self, word: &mut String) {
        match self.bump() {
            Some(c @ ('"' | '\'' | '\\')) => word.push(c),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            c => {
                word.push('\\');
                word.extend(c);
            }
        }
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
                    self.bump();
                    self.escaped(&mut word);
                }
                '{' | '}' | ';' => break,
                c if c.is_whitespace() => break,
                _ => word.extend(self.bump()),
            }
        }
        word
    }
}

/// Directives that say where requests go.
pub(super) const HANDLERS: &[&str] = &[
    "proxy_pass",
    "grpc_pass",
    "fastcgi_pass",
    "uwsgi_pass",
    "scgi_pass",
    "memcached_pass",
    "stub_status",
    "content_by_lua_block",
    "empty_gif",
    "dav_methods",
];
