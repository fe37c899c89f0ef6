//! Conditions on files, `if (!-e $request_filename) { … }`, as `try_files`.
//!
//! What the directives of a block say is read for three kinds of paths: that of a file, that of a folder, and that of neither. Where only
//! paths without a file go elsewhere, `try_files` says the same.

use std::collections::HashMap;

use super::asked::words;
use super::blocks::{Directive, HANDLERS};
use crate::draft::Import;

/// What a path leads to beneath the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathKind {
    File,
    Folder,
    Nothing,
}

/// Who answers a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    /// The location serves it.
    Served,
    /// These directives decide, in the block of an `if` or in its place.
    Led(Vec<Directive>),
}

/// How a block treats paths that lead to no file.
struct Reading {
    /// Directives of the block that the `try_files` replaces begin here.
    start: usize,
    /// The words of `try_files` before the last.
    candidates: Vec<String>,
    last: Vec<Directive>,
}

/// A variable for the path without its first slash: the group of [`PATH_REST_REGEX`].
pub(super) const PATH_REST: &str = "path_group_1";
/// The paths of a location whose `try_files` has [`PATH_REST`].
pub(super) const PATH_REST_REGEX: &str = "/(.*)";

/// Directives that nginx runs in their order.
const SCRIPT: [&str; 5] = ["if", "set", "rewrite", "return", "break"];

/// Replaces conditions on files by `try_files` in all servers of a configuration.
pub(super) fn replace(out: &mut Import, directives: &mut [Directive]) {
    for directive in directives {
        match directive.name.as_str() {
            "http" => replace(out, &mut directive.block),
            "server" if !directive.block.is_empty() => of_server(out, directive),
            _ => {}
        }
    }
}

fn of_server(out: &mut Import, server: &mut Directive) {
    lead_named_locations(server);
    let mut named = Vec::new();
    of_locations(out, &mut server.block, &mut named);
    server.block.extend(named);
    let Some(reading) = read(&server.block) else { return };
    let Some(last) = last_word(&reading.last) else { return };
    let mut block = server.block.clone();
    if !reading.candidates.iter().any(|it| it == "$uri") || !lead_locations(out, &mut block, &reading, &last)
    {
        return;
    }
    finish(out, &mut block, &reading);
    server.block = block;
}

/// Replaces conditions on files in locations. What needs a location of its own, is added to `named`.
fn of_locations(out: &mut Import, block: &mut [Directive], named: &mut Vec<Directive>) {
    for location in block.iter_mut().filter(|it| it.name == "location") {
        of_locations(out, &mut location.block, named);
        leave_out_script_checks(out, location);
        let has = |name: &str| location.block.iter().any(|it| it.name == name);
        let is_handled = location.block.iter().any(|it| HANDLERS.contains(&it.name.as_str()));
        if has("try_files")
            || has("alias")
            || is_handled
            || location.arguments.first().is_some_and(|it| it.starts_with('@'))
        {
            continue;
        }
        let Some(reading) = read(&location.block) else { continue };
        let word = match last_word(&reading.last) {
            Some(word) => {
                let guard = location.block.iter().find(|it| super::guard_names::is_guard(&it.name));
                if let Some(guard) = guard {
                    out.partial(guard.at, guard, "it guards paths without a file as well", "");
                }
                word
            }
            None => {
                let Some(target) = named_location(location, &reading, named.len()) else { continue };
                let word = target.arguments.first().cloned().unwrap_or_default();
                named.push(target);
                word
            }
        };
        let at = location.block.get(reading.start).map(|it| it.at).unwrap_or_default();
        let mut arguments = reading.candidates.clone();
        arguments.push(word);
        finish(out, &mut location.block, &reading);
        location.block.push(Directive {
            name: "try_files".to_owned(),
            arguments,
            at,
            ..Directive::default()
        });
    }
}

/// Leaves out `if (!-f $document_root$fastcgi_script_name) { return 404; }`: the gateway passes no script on that is not there.
fn leave_out_script_checks(out: &mut Import, location: &mut Directive) {
    let has = |name: &str| location.block.iter().any(|it| it.name == name);
    let is_split = has("fastcgi_split_path_info");
    if !has("fastcgi_pass") {
        return;
    }
    location.block.retain(|directive| {
        let is_script = |word: &str| match word {
            "$document_root$fastcgi_script_name" | "$document_root/$fastcgi_script_name" => true,
            word => word == "$request_filename" && !is_split,
        };
        let asks = match words(&directive.arguments).as_deref() {
            Some(["!-f" | "!-e", word]) => directive.name == "if" && is_script(word),
            _ => false,
        };
        let [answer] = directive.block.as_slice() else { return true };
        let is_left_out = asks && answer.name == "return" && answer.arguments == ["404"];
        if is_left_out {
            out.not_needed(directive.at, directive, "scripts that are not there are answered 404");
        }
        !is_left_out
    });
}

/// Removes the directives that `try_files` replaces.
fn finish(out: &mut Import, block: &mut Vec<Directive>, reading: &Reading) {
    let mut n = 0;
    block.retain(|it| {
        n += 1;
        let is_replaced = n > reading.start && SCRIPT.contains(&it.name.as_str());
        if is_replaced {
            out.converted(it.at, it);
        }
        !is_replaced
    });
}

/// A location for what an `if` says for paths without a file: the location's directives, and those of the `if`.
fn named_location(location: &Directive, reading: &Reading, number: usize) -> Option<Directive> {
    let known = |it: &Directive| {
        matches!(&*it.name, "rewrite" | "return" | "break") || HANDLERS.contains(&it.name.as_str())
    };
    let is_handled = reading.last.iter().any(|it| HANDLERS.contains(&it.name.as_str()));
    let returns = reading.last.iter().any(|it| it.name == "return");
    if !(is_handled || returns) || !reading.last.iter().all(known) {
        return None;
    }
    // Its guards are those of the location, and hold before files are looked for.
    let is_inherited = |it: &&Directive| {
        !SCRIPT.contains(&it.name.as_str())
            && it.name != "location"
            && !super::guard_names::is_guard(&it.name)
    };
    let mut block: Vec<Directive> = location.block.iter().filter(is_inherited).cloned().collect();
    block.extend(reading.last.iter().filter(|it| it.name != "break").cloned());
    let name = format!("@without-file-{}", number + 1);
    Some(Directive {
        name: "location".to_owned(),
        arguments: vec![name],
        block,
        at: location.at,
        ..Directive::default()
    })
}

/// Adds `try_files` to the locations of a server whose own directives lead paths without a file elsewhere. Says whether it could: a
/// location that passes requests on would not see such paths.
fn lead_locations(out: &mut Import, block: &mut Vec<Directive>, reading: &Reading, last: &str) -> bool {
    let at = block.get(reading.start).map(|it| it.at).unwrap_or_default();
    let arguments: Vec<String> = reading.candidates.iter().cloned().chain([last.to_owned()]).collect();
    let tries = Directive { name: "try_files".to_owned(), arguments, at, ..Directive::default() };
    for location in block.iter_mut().filter(|it| it.name == "location") {
        let has = |names: &[&str]| location.block.iter().any(|it| names.contains(&it.name.as_str()));
        if location.arguments.first().is_some_and(|it| it.starts_with('@')) || has(&["internal"]) {
            continue;
        }
        let is_handled = has(HANDLERS);
        if has(&["deny", "return"]) && !is_handled {
            let why = "paths without a file are refused by it as well";
            out.partial(location.at, &*location, why, "");
            continue;
        }
        let is_script = has(&["fastcgi_pass"]);
        if is_handled && !is_script || has(&["location", "root", "alias", "rewrite", "if", "try_files"]) {
            return false;
        }
        let mut own = tries.clone();
        if is_script {
            own.arguments.retain(|it| it != "$uri/");
        }
        location.block.push(own);
    }
    let is_root = |it: &Directive| it.name == "location" && it.arguments == ["/"];
    if !block.iter().any(is_root) {
        let arguments = vec!["/".to_owned()];
        block.push(Directive {
            name: "location".to_owned(),
            arguments,
            block: vec![tries],
            at,
            ..Directive::default()
        });
    }
    true
}

/// A `try_files` whose named location only rewrites the path leads to that path.
fn lead_named_locations(server: &mut Directive) {
    let mut words: HashMap<String, String> = HashMap::new();
    for location in server.block.iter().filter(|it| it.name == "location") {
        let Some(name) = location.arguments.first().filter(|it| it.starts_with('@')) else { continue };
        let script: Vec<Directive> =
            location.block.iter().filter(|it| SCRIPT.contains(&it.name.as_str())).cloned().collect();
        if let Some(word) = last_word(&script).filter(|word| word != "=404") {
            words.insert(name.clone(), word);
        }
    }
    fn lead(block: &mut [Directive], words: &HashMap<String, String>) {
        for directive in block {
            if directive.name == "try_files"
                && let Some(last) = directive.arguments.last_mut()
                && let Some(word) = words.get(last)
            {
                last.clone_from(word);
            }
            if directive.name == "location" {
                lead(&mut directive.block, words);
            }
        }
    }
    lead(&mut server.block, &words);
}

/// Reads what the directives of a block say of files. `None` where they say nothing, or something that `try_files` can't.
fn read(block: &[Directive]) -> Option<Reading> {
    let asks_files = |it: &Directive| {
        it.name == "if"
            && file_test(&it.arguments).is_some_and(|test| test.path.starts_with("$request_filename"))
    };
    let start = block.iter().position(asks_files)?;
    let mut candidates = Vec::new();
    let mut rest: Vec<&Directive> = Vec::new();
    for directive in block.iter().skip(start).filter(|it| SCRIPT.contains(&it.name.as_str())) {
        match beside(directive) {
            Some(candidate) if rest.is_empty() => candidates.push(candidate),
            _ => rest.push(directive),
        }
    }
    // What `set` says before is known by its text alone.
    let mut known: HashMap<String, String> = HashMap::new();
    for directive in block.iter().take(start).filter(|it| it.name == "set") {
        set(&mut known, directive);
    }
    let outcome = |kind: PathKind| run(&rest, kind, &mut known.clone());
    let (file, folder, nothing) =
        (outcome(PathKind::File)?, outcome(PathKind::Folder)?, outcome(PathKind::Nothing)?);
    let Outcome::Led(last) = nothing else { return None };
    match (file, folder) {
        (Outcome::Served, Outcome::Served) => candidates.extend(["$uri".to_owned(), "$uri/".to_owned()]),
        (Outcome::Served, Outcome::Led(other)) if other == last => candidates.push("$uri".to_owned()),
        (Outcome::Led(other), Outcome::Served) if other == last => candidates.push("$uri/".to_owned()),
        _ => return None,
    }
    Some(Reading { start, candidates, last })
}

/// `if (-f $request_filename.html) { rewrite (.*) $1.html break; }`: a file beside the path.
fn beside(branch: &Directive) -> Option<String> {
    let test = file_test(&branch.arguments)?;
    let suffix = test.path.strip_prefix("$request_filename").filter(|suffix| !suffix.is_empty())?;
    let [rewrite, rest @ ..] = branch.block.as_slice() else { return None };
    let [from, to, flag] = rewrite.arguments.as_slice() else { return None };
    let is_one = rewrite.name == "rewrite"
        && rest.iter().all(|it| it.name == "break")
        && matches!(from.as_str(), "(.*)" | "^(.*)$" | "^(.+)$" | "(.+)")
        && flag == "break"
        && *to == format!("$1{suffix}");
    (is_one && !test.is_negated && test.takes(PathKind::File) && !suffix.contains('$'))
        .then(|| format!("$uri{suffix}"))
}

/// A condition on a file.
struct FileTest<'t> {
    is_negated: bool,
    /// `f`, `d` or `e`.
    letter: &'t str,
    path: &'t str,
}

impl FileTest<'_> {
    fn takes(&self, kind: PathKind) -> bool {
        let is_there = match self.letter {
            "f" => kind == PathKind::File,
            "d" => kind == PathKind::Folder,
            _ => kind != PathKind::Nothing,
        };
        is_there != self.is_negated
    }
}

fn file_test(arguments: &[String]) -> Option<FileTest<'_>> {
    let words = words(arguments)?;
    let [operator, path] = words.as_slice() else { return None };
    let (is_negated, operator) = operator.strip_prefix('!').map_or((false, *operator), |rest| (true, rest));
    let letter = operator.strip_prefix('-').filter(|it| matches!(*it, "f" | "d" | "e"))?;
    Some(FileTest { is_negated, letter, path })
}

/// Runs directives for a path of this kind. `None` where something else decides.
fn run(script: &[&Directive], kind: PathKind, known: &mut HashMap<String, String>) -> Option<Outcome> {
    for (n, directive) in script.iter().enumerate() {
        match directive.name.as_str() {
            "set" => set(known, directive),
            "break" => return Some(Outcome::Served),
            "if" if holds(directive, kind, known)? => {
                let sets_only = directive.block.iter().all(|it| it.name == "set");
                if sets_only {
                    directive.block.iter().for_each(|it| set(known, it));
                } else if directive.block.iter().all(|it| it.name == "break") {
                    return Some(Outcome::Served);
                } else {
                    return Some(Outcome::Led(directive.block.clone()));
                }
            }
            "if" => {}
            _ => return Some(Outcome::Led(script.iter().skip(n).map(|it| (*it).clone()).collect())),
        }
    }
    Some(Outcome::Served)
}

/// Notes a variable's text, or that it is not known.
fn set(known: &mut HashMap<String, String>, directive: &Directive) {
    let [name, value] = directive.arguments.as_slice() else { return };
    let name = name.trim_start_matches('$');
    let value = value.replace(&format!("${{{name}}}"), known.get(name).map_or("", String::as_str));
    let value = value.replace(&format!("${name}"), known.get(name).map_or("", String::as_str));
    match value.contains('$') {
        true => known.remove(name),
        false => known.insert(name.to_owned(), value),
    };
}

/// Whether a condition holds for a path of this kind; `None` where something else decides.
fn holds(branch: &Directive, kind: PathKind, known: &HashMap<String, String>) -> Option<bool> {
    if let Some(test) = file_test(&branch.arguments) {
        return (test.path == "$request_filename").then(|| test.takes(kind));
    }
    let text = |word: &str| known.get(word.strip_prefix('$')?).cloned();
    match words(&branch.arguments)?.as_slice() {
        [variable] => text(variable).map(|text| !matches!(text.as_str(), "" | "0")),
        [variable, "=", value] if !value.contains('$') => text(variable).map(|text| text == *value),
        [variable, "!=", value] if !value.contains('$') => text(variable).map(|text| text != *value),
        _ => None,
    }
}

/// What decides for paths without a file, as the last word of `try_files`: a path that all are rewritten to, or `=404`.
fn last_word(script: &[Directive]) -> Option<String> {
    let [first, rest @ ..] = script else { return None };
    if !rest.iter().all(|it| it.name == "break") {
        return None;
    }
    match (first.name.as_str(), first.arguments.as_slice()) {
        ("return", [status]) if status == "404" => Some("=404".to_owned()),
        ("rewrite", [from, to]) => rewritten(from, to),
        ("rewrite", [from, to, flag]) if flag == "last" => rewritten(from, to),
        _ => None,
    }
}

/// The path and query that a `rewrite` of all paths makes.
fn rewritten(from: &str, to: &str) -> Option<String> {
    let group = match from {
        "^" | "." | ".*" | ".+" | "^.*$" | "^.+$" | "^.*" | "^/" | "^/.*$" | "^/.*" => None,
        "(.*)" | "^(.*)$" | "^(.+)$" | "(.+)" | "^(.*)" | "^(/.*)$" => Some("$uri"),
        "^/(.*)$" | "^/(.+)$" | "/(.*)" | "^/(.*)" | "/(.*)$" => Some(""),
        _ => return None,
    };
    let to = match group {
        // A query begins without the slash.
        Some("") => to.replace("/$1", "$uri").replace("$1", &format!("${{{PATH_REST}}}")),
        Some(group) => to.replace("$1", group),
        None => to.to_owned(),
    };
    let is_group = |c: char| c.is_ascii_digit();
    let path = to.split('?').next().unwrap_or_default();
    let has_rest = path.contains(PATH_REST);
    if has_rest || to.split('$').skip(1).any(|rest| rest.starts_with(is_group)) || !to.starts_with('/') {
        return None;
    }
    // nginx adds the query of the request, unless a question mark ends the text.
    Some(match to.strip_suffix('?') {
        Some(to) => to.to_owned(),
        None if to.contains("$args") || to.contains("$query_string") => to,
        None if to.contains('?') => format!("{to}&$args"),
        None => format!("{to}?$args"),
    })
}
