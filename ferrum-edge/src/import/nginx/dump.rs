//! What `nginx -T` prints: every file of a configuration, each behind its name.

use super::blocks::{Directive, NotNginx, parse};

/// What stands before each file.
const MARK: &str = "# configuration file ";
/// Files within files.
const MAX_DEPTH: usize = 16;

/// A text's directives, with those of the files it includes in their places where the text has them.
pub(super) fn read(text: &str) -> Result<Vec<Directive>, NotNginx> {
    let files = split(text);
    let Some(((_, before, first), rest)) = files.split_first() else { return parse(text) };
    let mut parsed = Vec::with_capacity(rest.len());
    for (name, before, text) in rest {
        let mut directives = parse(text)?;
        move_down(&mut directives, *before);
        parsed.push((*name, directives));
    }
    let mut main = parse(first)?;
    move_down(&mut main, *before);
    include(&mut main, &parsed, 0);
    Ok(main)
}

/// The files in a dump: each one's name, the lines before it, and its text. None when the text is no dump.
fn split(text: &str) -> Vec<(&str, usize, &str)> {
    let mut starts = Vec::new();
    let mut at = 0;
    for (n, line) in text.split_inclusive('\n').enumerate() {
        if let Some(name) = line.trim_end().strip_prefix(MARK).and_then(|name| name.strip_suffix(':')) {
            starts.push((name, n + 1, at, at + line.len()));
        }
        at += line.len();
    }
    let ends = starts.iter().skip(1).map(|(_, _, start, _)| *start).chain([text.len()]);
    let cut = |((name, before, _, from), to): (&(_, usize, usize, usize), usize)| {
        (*name, *before, text.get(*from..to).unwrap_or_default())
    };
    starts.iter().zip(ends).map(cut).collect()
}

fn move_down(directives: &mut [Directive], lines: usize) {
    for directive in directives {
        directive.line += lines;
        move_down(&mut directive.block, lines);
    }
}

/// Puts the directives of included files in the places of the includes.
fn include(directives: &mut Vec<Directive>, files: &[(&str, Vec<Directive>)], depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    let before = std::mem::take(directives);
    for mut directive in before {
        let pattern = directive.arguments.first().filter(|_| directive.name == "include").cloned();
        let Some(pattern) = pattern else {
            include(&mut directive.block, files, depth + 1);
            directives.push(directive);
            continue;
        };
        let mut found: Vec<_> = files.iter().filter(|(name, _)| is_meant(&pattern, name)).collect();
        found.sort_by_key(|(name, _)| *name);
        if found.is_empty() && !pattern.contains('*') {
            directives.push(directive);
            continue;
        }
        for (_, included) in found {
            let mut included = included.clone();
            include(&mut included, files, depth + 1);
            directives.extend(included);
        }
    }
}

/// Whether an include means a file. Relative patterns start in the folder of nginx.conf, which the dump does not say.
fn is_meant(pattern: &str, name: &str) -> bool {
    let fits = |name: &str| match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => {
            let middle = name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
            middle.is_some_and(|middle| !middle.contains('/'))
        }
    };
    fits(name)
        || !pattern.starts_with('/')
            && name.match_indices('/').any(|(at, _)| name.get(at + 1..).is_some_and(fits))
}
