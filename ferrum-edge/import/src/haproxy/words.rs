//! A line's words: quotes and backslashes taken away, and variables of the environment filled in.

use std::collections::HashMap;

/// A variable of the environment whose value is not in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnknownVariable {
    /// The place of the word that has it.
    pub(super) word: usize,
    pub(super) name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Variable {
    Unknown,
    Unset,
    Set(String),
}

/// What the `global` section says about the environment. HAProxy has the one of its process as well, which an import can't know.
#[derive(Debug)]
pub(super) struct Environment {
    named: HashMap<String, Variable>,
    /// What all others are.
    others: Variable,
}

impl Default for Environment {
    fn default() -> Self {
        Self { named: HashMap::new(), others: Variable::Unknown }
    }
}

impl Environment {
    fn get(&self, name: &str) -> &Variable {
        self.named.get(name).unwrap_or(&self.others)
    }

    /// Follows a line of `global`; `unknown` is what its words lack.
    pub(super) fn follow(&mut self, words: &[String], unknown: Option<&UnknownVariable>) {
        let Some((action, names)) = words.split_first() else { return };
        let given = match (names.get(1), unknown) {
            (Some(value), None) => Variable::Set(value.clone()),
            _ => Variable::Unknown,
        };
        match (action.as_str(), names) {
            ("setenv", [name, ..]) => drop(self.named.insert(name.clone(), given)),
            // The process may have it.
            ("presetenv", [name, ..]) if *self.get(name) == Variable::Unset => {
                self.named.insert(name.clone(), given);
            }
            ("unsetenv", names) => {
                self.named.extend(names.iter().map(|name| (name.clone(), Variable::Unset)));
            }
            ("resetenv", names) => {
                let kept = names.iter().map(|name| (name.clone(), self.get(name).clone())).collect();
                self.named = kept;
                self.others = Variable::Unset;
            }
            _ => {}
        }
    }
}

/// The lines of `global` that change the environment.
pub(super) fn is_about_environment(name: &str) -> bool {
    matches!(name, "setenv" | "presetenv" | "unsetenv" | "resetenv")
}

/// Words, and the first variable in them that is not known.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) words: Vec<String>,
    pub(super) unknown: Option<UnknownVariable>,
    word: String,
    inside: bool,
}

/// Reads a line.
pub(super) fn read(line: &str, environment: &Environment) -> Result<Words, &'static str> {
    let mut made = Words::default();
    let mut rest = line;
    while let Some(c) = next(&mut rest) {
        match c {
            '#' if !made.inside => break,
            c if c.is_whitespace() => made.end(),
            '\\' => {
                made.inside = true;
                match next(&mut rest) {
                    // Within a regex, a backslash before anything else stays.
                    Some(c @ (' ' | '#' | '\\' | '"' | '\'')) => made.word.push(c),
                    Some(c) => made.word.extend(['\\', c]),
                    None => {}
                }
            }
            '\'' => {
                made.inside = true;
                let (text, behind) = rest.split_once('\'').ok_or(NO_END)?;
                made.word.push_str(text);
                rest = behind;
            }
            '"' => {
                made.inside = true;
                made.quoted(&mut rest, environment)?;
            }
            c => {
                made.inside = true;
                made.word.push(c);
            }
        }
    }
    made.end();
    Ok(made)
}

const NO_END: &str = "a quoted text has no end";
const NO_NAME: &str = "`$` within double quotes is not followed by the name of a variable";
const NO_BRACE: &str = "`${` has no end";

fn next(rest: &mut &str) -> Option<char> {
    let mut chars = rest.chars();
    let c = chars.next();
    *rest = chars.as_str();
    c
}

impl Words {
    fn end(&mut self) {
        if self.inside {
            self.words.push(std::mem::take(&mut self.word));
        }
        self.inside = false;
    }

    /// What is within double quotes.
    fn quoted(&mut self, rest: &mut &str, environment: &Environment) -> Result<(), &'static str> {
        loop {
            match next(rest).ok_or(NO_END)? {
                '"' => return Ok(()),
                '\\' => match next(rest).ok_or(NO_END)? {
                    c @ ('"' | '\'' | '\\' | '$' | ' ' | '#') => self.word.push(c),
                    c => self.word.extend(['\\', c]),
                },
                '$' => self.variable(rest, environment)?,
                c => self.word.push(c),
            }
        }
    }

    /// `NAME`, `{NAME}`, `{NAME-default}` or `{NAME[*]}` behind the dollar sign.
    fn variable(&mut self, rest: &mut &str, environment: &Environment) -> Result<(), &'static str> {
        let inner = rest.strip_prefix('{');
        let text = inner.unwrap_or(rest);
        let is_named = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
        let (name, mut behind) = text.split_at(text.find(|c| !is_named(c)).unwrap_or(text.len()));
        if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
            return Err(NO_NAME);
        }
        let (mut default, mut are_several) = ("", false);
        if inner.is_some() {
            let (said, after) = behind.split_once('}').ok_or(NO_BRACE)?;
            (default, are_several) = match said {
                "" => ("", false),
                "[*]" => ("", true),
                said => (said.strip_prefix('-').ok_or(NO_BRACE)?, false),
            };
            behind = after;
        }
        *rest = behind;
        match environment.get(name) {
            Variable::Set(value) if are_several => self.several(value),
            Variable::Set(value) => self.word.push_str(value),
            Variable::Unset => self.word.push_str(default),
            Variable::Unknown => {
                self.word.push_str(&format!("${{{name}}}"));
                let word = self.words.len();
                self.unknown.get_or_insert_with(|| UnknownVariable { word, name: name.to_owned() });
            }
        }
        Ok(())
    }

    /// A value whose words are words of the line.
    fn several(&mut self, value: &str) {
        for (n, part) in value.split_whitespace().enumerate() {
            if n > 0 {
                self.words.push(std::mem::take(&mut self.word));
            }
            self.word.push_str(part);
        }
    }
}
