//! Files import downwards: no circle of imports is larger than a file and its parts.

use std::collections::{BTreeMap, BTreeSet};

use crate::tidy::{CRATES, Source, code, sources};

/// Circles that stay, with the reason.
const EXCEPTIONS: &[(&str, &[&str], &str)] = &[(
    "gateway-core",
    &["http/body", "http/reply"],
    "a body may refuse with a reply, and a reply has a body",
)];

/// Files of a circle that lies below one file, that one included.
const MOST_BELOW_ONE: usize = 4;

/// The files of a crate by their module paths; the root is `lib` or `main`.
pub(crate) struct Graph<'t> {
    root: &'static str,
    files: BTreeMap<String, File<'t>>,
}

#[derive(Default)]
struct File<'t> {
    lines: Vec<&'t str>,
    imports: Vec<Import>,
}

/// One name that is imported, by its whole path.
struct Import {
    /// From the crate's root.
    path: Vec<String>,
    /// As it is called in the file.
    name: String,
    is_reexport: bool,
}

impl<'t> Graph<'t> {
    /// Of these files, by module path, with their text without tests.
    pub(crate) fn new(texts: impl IntoIterator<Item = (String, &'t str)>) -> Self {
        let files: BTreeMap<String, File<'t>> = texts
            .into_iter()
            .map(|(path, text)| {
                let lines = code(text).map(|(_, line)| line).collect();
                (path, File { lines, imports: Vec::new() })
            })
            .collect();
        let root = if files.contains_key("lib") { "lib" } else { "main" };
        let mut graph = Self { root, files };
        let paths: Vec<String> = graph.files.keys().cloned().collect();
        for path in paths {
            let imports = graph.read(&path);
            if let Some(file) = graph.files.get_mut(&path) {
                file.imports = imports;
            }
        }
        graph
    }

    /// The module path of a file as parts.
    fn parts(&self, path: &str) -> Vec<String> {
        if path == self.root { Vec::new() } else { path.split('/').map(str::to_owned).collect() }
    }

    fn file(&self, parts: &[String]) -> Option<String> {
        let path = if parts.is_empty() { self.root.to_owned() } else { parts.join("/") };
        self.files.contains_key(&path).then_some(path)
    }

    /// What a file imports from its own crate, and what it names by its path.
    fn read(&self, path: &str) -> Vec<Import> {
        let own = self.parts(path);
        let lines = &self.files[path].lines;
        let mut imports = Vec::new();
        for (tree, is_reexport) in statements(lines) {
            for (written, name) in leaves(&tree) {
                imports.extend(self.rooted(&own, &written).map(|path| Import { path, name, is_reexport }));
            }
        }
        for written in paths(lines) {
            let path = self.rooted(&own, &written);
            imports.extend(path.map(|path| Import { path, name: String::new(), is_reexport: false }));
        }
        imports
    }

    /// A path as it is written in the module `own`, from the crate's root. `None` when it is another crate's.
    fn rooted(&self, own: &[String], written: &[String]) -> Option<Vec<String>> {
        let mut rest = written;
        let mut base = own.to_vec();
        match rest.first().map(String::as_str) {
            Some("crate") => (base, rest) = (Vec::new(), &rest[1..]),
            Some("self") => rest = &rest[1..],
            Some("super") => {
                while rest.first().is_some_and(|part| part == "super") {
                    base.pop();
                    rest = &rest[1..];
                }
            }
            // A module of this file; everything else is another crate's.
            Some(first) if self.file(&[base.clone(), vec![first.to_owned()]].concat()).is_some() => {}
            _ => return None,
        }
        base.extend(rest.iter().cloned());
        Some(base)
    }

    /// The file in which what is imported is declared.
    fn declared(&self, path: &[String], depth: usize) -> Option<String> {
        let length = (0..=path.len()).rev().find(|length| self.file(&path[..*length]).is_some())?;
        let file = self.file(&path[..length])?;
        let reexport = path.get(length).filter(|_| depth < 8).and_then(|name| {
            let import = self.files[&file].imports.iter().find(|import| import.name == *name)?;
            let rest = path.get(length + 1..).unwrap_or_default();
            self.declared(&[import.path.as_slice(), rest].concat(), depth + 1)
        });
        Some(reexport.unwrap_or(file))
    }

    /// Which files each file imports from. One that only names what others shall find in it does not count.
    fn edges(&self) -> BTreeMap<&str, BTreeSet<String>> {
        let edges_of = |path: &str, file: &File<'_>| -> BTreeSet<String> {
            let used = file.imports.iter().filter(|import| !import.is_reexport || uses(file, &import.name));
            used.filter_map(|import| self.declared(&import.path, 0)).filter(|to| to != path).collect()
        };
        self.files.iter().map(|(path, file)| (path.as_str(), edges_of(path, file))).collect()
    }

    /// The file and the top-level module of every import from another top-level module, as it is written: whom a re-export is
    /// from does not count.
    pub(crate) fn crossings(&self) -> BTreeSet<(&str, &str)> {
        let of = |path: &str| path.split('/').next().unwrap_or_default().to_owned();
        let is_module = |name: &str| self.files.contains_key(name) && name != self.root;
        let crossings = self.files.iter().flat_map(|(path, file)| {
            let from = of(path);
            let to = file.imports.iter().filter_map(|import| import.path.first()).map(String::as_str);
            to.filter(move |to| from != *to).map(|to| (path.as_str(), to))
        });
        crossings.filter(|(path, to)| *path != self.root && is_module(to)).collect()
    }

    /// The top-level modules.
    pub(crate) fn modules(&self) -> BTreeSet<&str> {
        let names = self.files.keys().map(|path| path.split('/').next().unwrap_or_default());
        names.filter(|name| *name != self.root && *name != "main" && *name != "lib").collect()
    }

    /// Circles of a file and so many of its parts that nobody overlooks them: the file on top, and how many there are.
    fn large_below_one(&self) -> BTreeMap<String, usize> {
        let large = components(&self.edges()).into_iter().filter(|circle| circle.len() > MOST_BELOW_ONE);
        large
            .filter_map(|circle| Some((circle.iter().min_by_key(|path| path.len())?.clone(), circle.len())))
            .collect()
    }

    /// Circles that are more than a file and its parts, and circles of parts that don't need their file.
    fn circles(&self) -> BTreeSet<Vec<String>> {
        let mut edges = self.edges();
        let is_below = |path: &str, above: &str| {
            above == self.root || path == above || path.starts_with(&format!("{above}/"))
        };
        let whole = components(&edges);
        let too_large = whole
            .into_iter()
            .filter(|circle| !circle.iter().any(|above| circle.iter().all(|path| is_below(path, above))));
        let mut found: BTreeSet<Vec<String>> = too_large.collect();
        for (from, all) in &mut edges {
            all.retain(|to| !is_below(from, to) && !is_below(to, from));
        }
        found.extend(components(&edges));
        found
    }
}

/// Whether a name is used outside of imports.
fn uses(file: &File<'_>, name: &str) -> bool {
    let mut in_import = false;
    file.lines.iter().any(|line| {
        in_import |= import_of(line).is_some();
        let is_use =
            !in_import && line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name);
        in_import &= !line.contains(';');
        is_use
    })
}

/// What follows `use`, and whether the import is handed on.
fn import_of(line: &str) -> Option<(&str, bool)> {
    let line = line.trim_start();
    if let Some(rest) = line.strip_prefix("use ") {
        return Some((rest, false));
    }
    let rest = line.strip_prefix("pub")?;
    let rest = rest.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or(rest, |(_, rest)| rest);
    rest.strip_prefix(" use ").map(|rest| (rest, true))
}

/// The import statements of a file: the tree of each.
fn statements(lines: &[&str]) -> Vec<(String, bool)> {
    let mut found: Vec<(String, bool)> = Vec::new();
    let mut is_open = false;
    for line in lines {
        let rest = match (is_open, import_of(line)) {
            (true, _) => line,
            (false, Some((rest, is_reexport))) => {
                found.push((String::new(), is_reexport));
                rest
            }
            (false, None) => continue,
        };
        let (part, end) = rest.split_once(';').map_or((rest, false), |(part, _)| (part, true));
        if let Some((tree, _)) = found.last_mut() {
            tree.push(' ');
            tree.push_str(part.trim());
        }
        is_open = !end;
    }
    found
}

/// Paths of the own crate that are written out in code: `crate::a::B`, `super::b::C`.
fn paths(lines: &[&str]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut in_import = false;
    for line in lines {
        in_import |= import_of(line).is_some();
        for start in ["crate::", "super::"] {
            for (at, _) in line.match_indices(start).filter(|_| !in_import) {
                let (before, from) = line.split_at(at);
                if before.ends_with("(in ") {
                    // How far something is visible.
                    continue;
                }
                let before = before.chars().next_back();
                // `super::super::a` is found at its first part; `$crate` is the crate that a macro is from.
                if before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '$' | '"' | '`')) {
                    continue;
                }
                let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':');
                let written = from.split(|c| !is_part(c)).next().unwrap_or_default();
                found.push(written.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect());
            }
        }
        in_import &= !line.contains(';');
    }
    found
}

/// The names of an import's tree: each with its path and what it is called.
fn leaves(tree: &str) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some((before, inside)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, alias)| (path, Some(alias)));
        let mut path: Vec<String> = path.split("::").map(|part| part.trim().to_owned()).collect();
        if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
            path.pop();
        }
        let name = alias.map(|alias| alias.trim().to_owned()).or_else(|| path.last().cloned());
        return vec![(path, name.unwrap_or_default())];
    };
    let inside = inside.rsplit_once('}').map_or(inside, |(inside, _)| inside);
    let mut depth = 0_usize;
    let items = inside.split(|c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    let items: Vec<&str> = items.filter(|item| !item.trim().is_empty()).collect();
    items.into_iter().flat_map(|item| leaves(&format!("{before}{}", item.trim()))).collect()
}

/// Groups of files each of which reaches all others of its group.
fn components(edges: &BTreeMap<&str, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = edges
        .keys()
        .map(|from| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![*from]);
            while let Some(path) = open.pop() {
                for to in edges.get(path).into_iter().flatten() {
                    if seen.insert(to.as_str()) {
                        open.push(to);
                    }
                }
            }
            (*from, seen)
        })
        .collect();
    let mut found = BTreeSet::new();
    for (from, seen) in reached.iter().filter(|(from, seen)| seen.contains(*from)) {
        let circle = seen.iter().filter(|to| reached.get(*to).is_some_and(|back| back.contains(from)));
        found.insert(circle.map(|path| (*path).to_owned()).collect::<Vec<String>>());
    }
    found.into_iter().collect()
}

/// The files of a crate, without its tests.
pub(crate) fn graph_of<'s>(name: &str, sources: &'s [Source]) -> Graph<'s> {
    let folder = format!("{name}/src/");
    Graph::new(sources.iter().filter(|source| !source.is_test()).filter_map(|source| {
        let path = source.path.strip_prefix(&folder)?.strip_suffix(".rs")?;
        Some((path.to_owned(), source.production()))
    }))
}

#[test]
fn imports_make_no_circles() {
    let sources = sources();
    let (mut wrong, mut excused) = (Vec::new(), BTreeSet::new());
    for name in CRATES {
        for circle in graph_of(name, &sources).circles() {
            match EXCEPTIONS.iter().position(|(of, files, _)| of == name && circle == *files) {
                Some(excuse) => drop(excused.insert(excuse)),
                None => wrong.push(format!("{name}: {}", circle.join(", "))),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "move what both need to a file below, as these import each other:\n{}",
        wrong.join("\n")
    );
    for (n, (name, files, reason)) in EXCEPTIONS.iter().enumerate() {
        assert!(
            excused.contains(&n),
            "{name}: {files:?} are a circle no more; remove the exception ({reason})"
        );
    }
}

#[test]
fn parts_of_a_file_import_few_of_each_other() {
    let sources = sources();
    let mut wrong = Vec::new();
    for name in CRATES {
        let large = graph_of(name, &sources).large_below_one();
        if !large.is_empty() {
            wrong.push(format!("{name}: {large:?}"));
        }
    }
    assert!(wrong.is_empty(), "move what the parts of a file share into one below:\n{}", wrong.join("\n"));
}

#[test]
fn circles_are_found() {
    fn circles(texts: &[(&str, &'static str)]) -> Vec<String> {
        let texts = texts.iter().map(|(path, text)| ((*path).to_owned(), *text));
        Graph::new(texts).circles().into_iter().map(|circle| circle.join(" ")).collect()
    }
    let root = ("lib", "mod a;\nmod b;\nmod c;");
    let none: [&str; 0] = [];
    // Over three files, in either way of writing it.
    let three = [
        root,
        ("a", "use crate::b::B;"),
        ("b", "use super::{\n    c::{C, D},\n};"),
        ("c", "use crate::a::A as B;"),
    ];
    assert_eq!(circles(&three), ["a b c"]);
    assert_eq!(
        circles(&[root, ("a", "use crate::b::B;"), ("b", "use std::fmt;"), ("c", "use crate::a::A;")]),
        none
    );
    // A file and its part; two parts of it.
    assert_eq!(circles(&[root, ("a", "mod x;\nuse x::X;"), ("a/x", "use super::Y;")]), none);
    let parts =
        [root, ("a", "use x::X;"), ("a/x", "use super::y::Y;\nuse super::A;"), ("a/y", "use super::x::X;")];
    assert_eq!(circles(&parts), ["a/x a/y"]);
    // Many parts that need each other through their file.
    let star = [
        root,
        ("a", "use x::X;\nuse y::Y;\nuse z::Z;\nuse w::W;\nstruct A;"),
        ("a/w", "use super::A;"),
        ("a/x", "use super::A;"),
        ("a/y", "use super::A;"),
        ("a/z", "use super::A;"),
    ];
    let graph = Graph::new(star.map(|(path, text)| (path.to_owned(), text)));
    assert_eq!(graph.large_below_one(), BTreeMap::from([("a".to_owned(), 5)]));
    assert_eq!(circles(&star), none);
    // Through a file that only hands a name on, the declaring file is meant.
    let facade = [
        root,
        ("a", "pub(crate) use x::X;"),
        ("a/x", "use crate::b::B;"),
        ("b", "use crate::c::C;"),
        ("c", "use crate::a::Z;"),
    ];
    assert_eq!(circles(&facade), none);
    let through = [
        root,
        ("a", "pub(crate) use x::X;"),
        ("a/x", "use crate::b::B;"),
        ("b", "use crate::a::X;"),
        ("c", ""),
    ];
    assert_eq!(circles(&through), ["a/x b"]);
    // A path that is written out is as good as an import.
    let written = [
        root,
        ("a", "fn f(b: &crate::b::B) {}"),
        ("b", "fn g() -> u8 { super::c::h() }"),
        ("c", "use crate::a::A;"),
    ];
    assert_eq!(circles(&written), ["a b c"]);
    // Comments import nothing.
    assert_eq!(
        circles(&[
            root,
            ("a", "use crate::b::B;"),
            ("b", "// use crate::a::A;\n/// use crate::a::A;"),
            ("c", "")
        ]),
        none
    );
}
