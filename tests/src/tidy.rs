//! The rules of ARCHITECTURE.md that a program can check.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A source file, its path from the workspace's root.
pub(crate) struct Source {
    pub(crate) path: String,
    text: String,
    production: String,
}

impl Source {
    fn new(path: String, text: String) -> Self {
        Self { path, production: without_tests(&text), text }
    }

    /// The text without what is compiled for tests only. Its lines have their numbers.
    pub(crate) fn production(&self) -> &str {
        &self.production
    }

    pub(crate) fn is_test(&self) -> bool {
        let path = &self.path;
        path.contains("/tests/")
            || path.starts_with("tests/")
            || path.ends_with("/tests.rs")
            || path.contains("/benches/")
    }
}

/// A text in which every item below `#[cfg(test)]` is replaced by empty lines, wherever it stands; none are left at the end.
fn without_tests(text: &str) -> String {
    let mut production = String::with_capacity(text.len());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("#[cfg(test)]") {
            let indent = line.len() - line.trim_start().len();
            let mut skipped = 1;
            for line in lines.by_ref() {
                skipped += 1;
                if ends_item(line, indent) {
                    break;
                }
            }
            production.extend(std::iter::repeat_n('\n', skipped));
            continue;
        }
        production.push_str(line);
        production.push('\n');
    }
    production.truncate(production.trim_end().len());
    production
}

/// Whether an item that begins with this indent ends with a line.
fn ends_item(line: &str, indent: usize) -> bool {
    let is_outer = line.len() - line.trim_start().len() == indent;
    let text = line.split(" //").next().unwrap_or(line).trim();
    let is_whole = text.matches('{').count() == text.matches('}').count();
    is_outer
        && !text.starts_with(['#', '/'])
        && (text.starts_with('}') || is_whole && text.ends_with([';', ',', '}']))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every Rust file of the workspace.
pub(crate) fn sources() -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    // The project outside the workspace keeps the same rules.
    let own = CRATES.iter().filter(|folder| !folder.contains('/'));
    let mut folders: Vec<PathBuf> = own.chain(&["examples"]).map(|name| root.join(name)).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                let text = fs::read_to_string(&path).expect("a file");
                let path = path.strip_prefix(&root).expect("within").to_string_lossy().into_owned();
                found.push(Source::new(path, text));
            }
        }
    }
    assert!(found.len() > 100, "only {} files found", found.len());
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The folders of our crates; those inside another one's folder come after it.
pub(crate) const CRATES: &[&str] = &[
    "gateway-core",
    "gateway-core/config",
    "gateway-protocols",
    "gateway-plugins",
    "gateway-plugins/auth",
    "gateway-plugins/cache",
    "gateway-plugins/common",
    "gateway-plugins/scripting",
    "gateway-plugins/telemetry",
    "gateway-plugins/waf",
    "ferrum-edge",
    "ferrum-edge/fleet",
    "ferrum-edge/import",
    "proto_bench",
    "tests",
    "tests/servers",
];

/// The names of our packages.
fn packages() -> impl Iterator<Item = String> {
    CRATES.iter().map(|folder| {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        name.expect("a name").to_owned()
    })
}

/// Tests in which time is what is tested, or there is no event to wait for.
const SLOW_ON_PURPOSE: &[(&str, &str)] = &[
    (
        "proto_bench/tests/all/wrong_servers.rs",
        "its servers are slow on purpose: being late is what they do wrong",
    ),
    ("ferrum-edge/tests/all/cli/memory.rs", "its client pauses: whoever reads ahead of it shows then"),
    (
        "gateway-core/src/pipeline/http/tests/fakes.rs",
        "answers are late by a paused clock, which decides about hedges",
    ),
    (
        "gateway-plugins/src/observability/server_timing/tests.rs",
        "the time that a target takes is what is measured",
    ),
];

/// Fails with everything that is wrong at once.
#[track_caller]
fn none(rule: &str, offenders: Vec<String>) {
    assert!(offenders.is_empty(), "{rule}:\n{}", offenders.join("\n"));
}

#[test]
fn only_tests_are_left_out_of_production() {
    let text = "use a;\n#[cfg(test)]\nuse b;\nfn c() {\n    d();\n}\n#[cfg(test)]\n#[path = \"e.rs\"]\nmod e;\n\
        struct F {\n    #[cfg(test)]\n    g: u8,\n    h: u8,\n}\n#[cfg(test)]\nfn i() {\n    j {}\n}\n\
        #[cfg(any(test, feature = \"k\"))]\nmod k;\nfn l() {}\n#[cfg(test)]\nmod tests {\n    fn m() {}\n}\n";
    let production = without_tests(text);
    let left: Vec<&str> = production.lines().filter(|line| !line.is_empty()).collect();
    let expected = [
        "use a;",
        "fn c() {",
        "    d();",
        "}",
        "struct F {",
        "    h: u8,",
        "}",
        "#[cfg(any(test, feature = \"k\"))]",
        "mod k;",
        "fn l() {}",
    ];
    assert_eq!(left, expected);
    assert_eq!(
        production.lines().position(|line| line == "fn l() {}"),
        text.lines().position(|line| line == "fn l() {}")
    );
}

#[test]
fn files_stop_at_500_lines_of_production() {
    let long = sources()
        .into_iter()
        .filter(|source| !source.is_test())
        .map(|source| (source.production().lines().count(), source.path))
        .filter(|(lines, _)| *lines > 500);
    none("files stop at 500 lines", long.map(|(lines, path)| format!("{path}: {lines}")).collect());
}

#[test]
fn files_begin_by_saying_what_they_are() {
    let silent = sources().into_iter().filter(|source| !source.text.starts_with("//! "));
    none("a file begins with a `//!` sentence", silent.map(|source| source.path).collect());
}

#[test]
fn modules_are_named_after_themselves() {
    let mods = sources().into_iter().filter(|source| source.path.ends_with("/mod.rs"));
    none("`foo.rs`, not `foo/mod.rs`", mods.map(|source| source.path).collect());
}

#[test]
fn crates_depend_downwards_only() {
    /// Which of ours each may name in its `[dependencies]`.
    const MAY: &[(&str, &[&str])] = &[
        ("gateway-core/config", &[]),
        ("gateway-core", &["gateway-config"]),
        ("gateway-plugins/waf", &[]),
        ("gateway-protocols", &["gateway-core"]),
        ("gateway-plugins/common", &["gateway-core"]),
        ("gateway-plugins/auth", &["gateway-core", "gateway-plugin-common"]),
        // Its tests have callers.
        ("gateway-plugins/cache", &["gateway-core", "gateway-plugin-common", "gateway-auth"]),
        ("gateway-plugins/scripting", &["gateway-core", "gateway-plugin-common"]),
        ("gateway-plugins/telemetry", &["gateway-core"]),
        (
            "gateway-plugins",
            &[
                "gateway-core",
                "gateway-plugin-common",
                "gateway-auth",
                "gateway-cache",
                "gateway-waf",
                "gateway-scripting",
                "gateway-telemetry",
            ],
        ),
        (
            "ferrum-edge",
            &[
                "gateway-core",
                "gateway-auth",
                "gateway-waf",
                "gateway-protocols",
                "gateway-telemetry",
                "gateway-plugins",
                "gateway-fleet",
                "gateway-import",
                "test-servers",
                // For its tests only: a second implementation of the fleet's protocol.
                "proto_bench",
            ],
        ),
        ("ferrum-edge/fleet", &[]),
        ("ferrum-edge/import", &[]),
        ("proto_bench", &[]),
        ("tests", &["ferrum-edge", "test-servers"]),
        ("tests/servers", &[]),
    ];
    let mut wrong = Vec::new();
    for (name, may) in MAY {
        let manifest = read(&format!("{name}/Cargo.toml"));
        let body = manifest.split_once("\n[lints]").map_or(manifest.as_str(), |(_, rest)| rest);
        for package in packages() {
            let other = package.strip_prefix("ferrum-").filter(|key| key.starts_with("gateway-"));
            let other = other.unwrap_or(&package);
            let named = body
                .lines()
                .any(|line| line.strip_prefix(other).is_some_and(|rest| rest.starts_with([' ', '.', '='])));
            if named && !may.contains(&other) {
                wrong.push(format!("{name} depends on {other}"));
            }
        }
    }
    none("dependencies point downwards", wrong);
}

/// `text` without comments and string literals' neighbours that could only be talk.
pub(crate) fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(number, line)| {
        let line = line.split(" //").next().unwrap_or(line);
        (!line.trim_start().starts_with("//")).then_some((number + 1, line))
    })
}

fn uses(sources: &[Source], words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources {
        for (number, line) in code(source.production()) {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                found.push(format!("{}:{number}: {word}", source.path));
            }
        }
    }
    found
}

#[test]
fn configuration_and_core_use_no_sockets_files_or_clock() {
    let core: Vec<_> =
        sources().into_iter().filter(|it| it.path.starts_with("gateway-core/") && !it.is_test()).collect();
    let words = [
        "tokio::net",
        "std::net::Tcp",
        "std::net::Udp",
        "std::fs",
        "std::env",
        "tokio::spawn",
        "thread::spawn",
        "SystemTime",
    ];
    none("gateway-core and gateway-config open nothing and start nothing", uses(&core, &words));
}

#[test]
fn the_pipeline_knows_no_protocol() {
    let text = read("gateway-core/src/pipeline/http.rs").to_ascii_lowercase();
    let production = without_tests(&text);
    for word in ["h1", "h2", "h3", "http1", "http2", "http/1", "http/2", "http/3", "grpc", "websocket"] {
        for (number, line) in code(&production) {
            let words = line.split(|c: char| !(c.is_alphanumeric() || c == '/'));
            assert!(!words.into_iter().any(|it| it == word), "pipeline.rs:{number} says {word}: {line}");
        }
    }
}

/// How the table of plugins names the plugin of a file: by its type in the crate of the table, by a constant of any other.
fn row_of(path: &str) -> Option<String> {
    let (folder, module) = path.strip_suffix(".rs")?.split_once("/src/")?;
    if folder == "gateway-plugins" {
        return Some(format!("entry::<{}::", module.replace('/', "::")));
    }
    let name = module.rsplit('/').next()?.to_uppercase();
    Some(format!("gateway_{}::{name},", folder.strip_prefix("gateway-plugins/")?))
}

#[test]
fn every_plugin_file_is_in_the_table() {
    let lib = read("gateway-plugins/src/lib.rs");
    let mut missing = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        if source.production().contains("impl Plugin for")
            && row_of(&source.path).is_some_and(|row| !lib.contains(&row))
        {
            missing.push(source.path.clone());
        }
    }
    none("a plugin stands in the table of lib.rs", missing);
    assert_eq!(row_of("gateway-plugins/src/a/b.rs").as_deref(), Some("entry::<a::b::"));
    assert_eq!(row_of("gateway-plugins/a/src/b.rs").as_deref(), Some("gateway_a::B,"));
}

/// What two families of plugins need is in `gateway-plugins/common`.
#[test]
fn families_of_plugins_know_nothing_of_each_other() {
    let folder = "gateway-plugins/src/";
    let family = |source: &Source| {
        source.path.strip_prefix(folder)?.split_once('/').map(|(family, _)| family.to_owned())
    };
    let sources: Vec<Source> = sources().into_iter().filter(|source| !source.is_test()).collect();
    let families: BTreeSet<String> = sources.iter().filter_map(family).collect();
    assert!(families.contains("admission") && families.contains("content"), "{families:?}");
    let mut wrong = Vec::new();
    for source in &sources {
        let Some(own) = family(source) else { continue };
        let others: Vec<String> =
            families.iter().filter(|other| **other != own).map(|other| format!("crate::{other}::")).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        wrong.extend(uses(std::slice::from_ref(source), &others));
    }
    none("what two families of plugins need is in gateway-plugins/common", wrong);
}

/// One place opens connections whose answers are bounded; the library's own ways to connect have no bound.
#[test]
fn one_place_connects_to_redis() {
    let words = [
        "redis::Client",
        "Client::open(",
        "MultiplexedConnection",
        "get_async_",
        "ConnectionManager",
        "SentinelClient",
    ];
    let place = "gateway-plugins/common/src/redis_link/";
    let sources: Vec<Source> = sources()
        .into_iter()
        .filter(|it| it.text.contains("redis::") && !it.is_test() && !it.path.starts_with(place))
        .collect();
    assert!(sources.iter().any(|it| it.path.starts_with("gateway-plugins/")), "plugins use it");
    none("connects to Redis beside `redis_link`", uses(&sources, &words));
}

#[test]
fn only_the_app_names_all_crates() {
    let wrong = sources().into_iter().filter(|source| {
        source.path.starts_with("ferrum-edge/src/")
            && !matches!(source.path.as_str(), "ferrum-edge/src/app.rs")
            && !source.path.starts_with("ferrum-edge/src/app/")
            && !source.is_test()
            && ["gateway_core", "gateway_protocols", "gateway_plugins"]
                .iter()
                .all(|name| code(source.production()).any(|(_, line)| line.contains(name)))
    });
    none("only app.rs names all the crates", wrong.map(|source| source.path).collect());
}

/// Whether a function on this line takes a tuple that it takes apart: its parts have no names where it is called.
fn takes_a_tuple(line: &str) -> bool {
    line.match_indices("): (").any(|(end, _)| {
        let Some((lead, pattern)) = line.get(..end).and_then(|before| before.rsplit_once('(')) else {
            return false;
        };
        let is_name = |part: &str| part.chars().all(|c| c.is_alphanumeric() || c == '_');
        let is_pattern = pattern.split(", ").all(|part| is_name(part.trim_start_matches("mut ")));
        let lead = lead.trim_start();
        is_pattern && (lead.is_empty() || lead.contains("fn ") && lead.trim_end().ends_with([',', '(']))
    })
}

#[test]
fn parameters_have_names() {
    let mut offenders = Vec::new();
    for source in sources() {
        let lines = source.text.lines().enumerate().filter(|(_, line)| takes_a_tuple(line));
        offenders.extend(lines.map(|(n, line)| format!("{}:{}: {}", source.path, n + 1, line.trim())));
    }
    none("a parameter is no tuple: give its parts names, or make them a struct", offenders);
    let function = format!("{} add((mut a, b): (u8, u8)) {{", "fn");
    assert!(takes_a_tuple("    (worker, snapshot): (&Worker, &Snapshot),") && takes_a_tuple(&function));
    assert!(!takes_a_tuple("    let (a, b): (u8, u8) = c;"));
}

#[test]
fn nothing_is_unsafe() {
    let word = ["unsafe", " "].concat();
    none("no `unsafe`", uses(&sources(), &[&(word.clone() + "{"), &(word.clone() + "fn"), &(word + "impl")]));
}

#[test]
fn tests_wait_for_events() {
    // Put together here, so that this file does not find itself.
    let words = [["sle", "ep("].concat(), ["sleep_", "until("].concat(), ["#[ign", "ore"].concat()];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut found = Vec::new();
    for source in sources() {
        // A program that is run by hand; faults take their time.
        let is_program = source.path.starts_with("tests/faults/");
        if is_program || SLOW_ON_PURPOSE.iter().any(|(path, _)| *path == source.path) {
            continue;
        }
        let tests = match source.is_test() {
            true => source.text.as_str(),
            false => source.text.split_once("\n#[cfg(test)]").map_or("", |(_, tests)| tests),
        };
        for (number, line) in code(tests) {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                found.push(format!("{}:{number} of the tests: {word}", source.path));
            }
        }
    }
    none("tests neither pause nor stand aside", found);
}

#[test]
fn every_exception_still_exists() {
    for (path, reason) in SLOW_ON_PURPOSE {
        assert!(root().join(path).exists(), "{path} is gone; so should its exception be ({reason})");
    }
}

/// What README tells people to type must be there.
#[test]
fn the_readme_names_what_exists() {
    let readme = read("README.md");
    let mut wrong = Vec::new();
    for line in readme.lines() {
        for word in line.split(|c: char| c.is_whitespace() || "`()[],;".contains(c)) {
            let is_path =
                ["specs/", "website/", ".ci/", "tests/"].iter().any(|folder| word.starts_with(folder));
            if is_path && !root().join(word.trim_end_matches(['.', ':'])).exists() {
                wrong.push(format!("README.md names {word}, which does not exist"));
            }
        }
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            if word == "-p"
                && line.contains("cargo")
                && let Some(name) = words.next()
                && !packages().any(|package| package == name.trim_matches('`'))
            {
                wrong.push(format!("README.md names the crate {name}"));
            }
        }
    }
    none("the README's commands work", wrong);
}

/// Phrases that readers stumble over, in what users see: messages, help texts, guides.
const UNCLEAR: &[&str] = &[
    "told at once",
    "can't be told",
    "stands here",
    "stands there",
    "stands in the body",
    "is no header name",
    "is no status",
    "made by chance",
    "is resting",
    "goes on, changes",
    "tells how",
    "tells what",
    "tells which",
];

/// CONTRIBUTING.md, "Plain English".
#[test]
fn users_are_spoken_to_plainly() {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| !source.is_test()) {
        for (number, line) in source.production().lines().enumerate() {
            let is_message = line.contains('"') && !line.trim_start().starts_with("//");
            let is_help =
                source.path.starts_with("ferrum-edge/src/cli") && line.trim_start().starts_with("///");
            let line = line.to_lowercase();
            if let Some(phrase) =
                UNCLEAR.iter().find(|phrase| (is_message || is_help) && line.contains(**phrase))
            {
                found.push(format!("{}:{}: {phrase}", source.path, number + 1));
            }
        }
    }
    for path in ["README.md", "CHANGELOG.md"] {
        for (number, line) in read(path).lines().enumerate() {
            let line = line.to_lowercase();
            if let Some(phrase) = UNCLEAR.iter().find(|phrase| line.contains(**phrase)) {
                found.push(format!("{path}:{}: {phrase}", number + 1));
            }
        }
    }
    none("messages use plain words", found);
}

/// Names of our own for what the field has names for, with those.
const PRIVATE: &[(&str, &str)] = &[
    ("patience", "timeout"),
    ("farewell", "close handshake, GOAWAY, close_notify"),
    ("goodbye", "Close frame, GOAWAY, close_notify"),
    ("crossroads", "demultiplexer"),
    ("desk", "queue"),
    ("keeper", "store, reconciler"),
];

/// CONTRIBUTING.md, "Plain English": names and comments of the code use the field's words.
#[test]
fn code_uses_the_words_of_the_field() {
    let mut found = Vec::new();
    for source in sources() {
        if source.path.ends_with("tidy.rs") {
            continue;
        }
        for (number, line) in source.text.lines().enumerate() {
            let line = line.to_lowercase();
            let words = || line.split(|c: char| !c.is_alphanumeric());
            if let Some((word, instead)) = PRIVATE.iter().find(|(word, _)| words().any(|own| own == *word)) {
                found.push(format!("{}:{}: {word} (write {instead})", source.path, number + 1));
            }
        }
    }
    none("code uses the words of the field", found);
}

/// Names of types that say nothing about what they are, or that several modules would give to different things. One
/// place each may keep the name; elsewhere it says of what.
const VAGUE: &[(&str, &str)] = &[
    ("Answer", ""),
    ("Arrival", ""),
    ("Asked", ""),
    ("Broken", ""),
    ("Connection", "gateway-protocols/src/h2/connection.rs"),
    ("Counted", ""),
    ("Done", ""),
    ("Ending", ""),
    ("Entry", "gateway-core/src/plugin/entry.rs"),
    ("Fault", ""),
    ("Found", ""),
    ("Held", ""),
    ("Kept", ""),
    ("Kind", ""),
    ("Known", ""),
    ("Opened", ""),
    ("Place", ""),
    ("Reader", ""),
    ("Running", ""),
    ("Said", ""),
    ("Seen", ""),
    ("State", ""),
    ("Told", ""),
    ("Way", ""),
    ("Written", ""),
];

/// The name of the struct, enum or alias that a line defines.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub").map_or(line, |rest| {
        rest.strip_prefix('(')
            .and_then(|rest| rest.split_once(')'))
            .map_or(rest, |(_, rest)| rest)
            .trim_start()
    });
    let (keyword, rest) = line.split_once(' ')?;
    matches!(keyword, "struct" | "enum" | "type")
        .then(|| rest.split(|c: char| !c.is_alphanumeric()).next())?
}

#[test]
fn types_say_what_they_are() {
    let mut found = Vec::new();
    for source in
        sources().iter().filter(|source| !source.is_test() && !source.path.starts_with("proto_bench"))
    {
        for (number, line) in source.production().lines().enumerate() {
            let vague = |name: &str| VAGUE.iter().any(|(word, home)| *word == name && *home != source.path);
            if let Some(name) = defined(line).filter(|name| vague(name)) {
                found.push(format!("{}:{}: {name}", source.path, number + 1));
            }
        }
    }
    none("types say what they are", found);
}

/// Every field of the resolved configuration is read by what serves traffic or answers about it: a setting that is only
/// written, checked and kept does nothing.
#[test]
fn every_setting_is_read() {
    const MODEL: &str = "gateway-core/config/src/model";
    const WRITTEN: [&str; 5] = ["model", "file", "resolve", "settings", "catalog"];
    let sources = sources();
    let is_writer = |path: &str| {
        let inner = path.strip_prefix("gateway-core/config/src/");
        inner.is_some_and(|inner| WRITTEN.iter().any(|part| inner.starts_with(part)))
    };
    let readers: Vec<&Source> =
        sources.iter().filter(|source| !source.is_test() && !is_writer(&source.path)).collect();
    let is_read = |field: &str| {
        let dotted = format!(".{field}");
        let follows = |text: &str, end: usize, wanted: fn(char) -> bool| {
            text.get(end..).unwrap_or_default().chars().next().is_none_or(wanted)
        };
        let is_end = |c: char| !c.is_alphanumeric() && c != '_';
        readers.iter().any(|source| {
            let text = source.production();
            let by_dot = text.match_indices(&dotted).any(|(at, _)| follows(text, at + dotted.len(), is_end));
            // Taken apart by a pattern.
            let by_pattern = text.match_indices(field).any(|(at, _)| {
                let before = text.get(..at).unwrap_or_default().chars().next_back();
                let after = text.get(at + field.len()..).unwrap_or_default().trim_start();
                matches!(before, Some(' ' | '{')) && (after.starts_with(", ") || after.starts_with("} ="))
            });
            by_dot || by_pattern
        })
    };
    let model = sources.iter().filter(|source| source.path.starts_with(MODEL) && !source.is_test());
    let fields = model.flat_map(|source| {
        let lines = source.production().lines();
        let fields = lines.filter_map(|line| line.strip_prefix("    pub ")?.split_once(':'));
        fields.map(|(name, _)| (source.path.clone(), name.to_owned())).collect::<Vec<_>>()
    });
    let unread = fields
        .filter(|(_, name)| name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_') && !is_read(name));
    none(
        "read each setting outside the configuration",
        unread.map(|(path, name)| format!("{path}: {name}")).collect(),
    );
}

#[test]
fn the_site_names_every_warning() {
    let page: serde_json::Value =
        serde_json::from_str(&read("website/data/reference/warnings.json")).expect("JSON");
    let documented = page.as_array().expect("a list").iter();
    let documented: Vec<_> = documented.map(|row| (row["code"].as_str(), row["meaning"].as_str())).collect();
    let known = ferrum_edge::core::config::warning::CODES.iter();
    let known: Vec<_> = known.map(|(code, meaning)| (Some(*code), Some(*meaning))).collect();
    assert_eq!(documented, known, "write it anew with `npm run reference` in website");
}

/// What keeps an invariant is looked up by its name.
#[test]
fn the_architecture_names_tests_that_exist() {
    let page = read("ARCHITECTURE.md");
    let table = page.split_once("\n## Invariants").map_or("", |(_, rest)| rest);
    let table = table.split_once("\n## ").map_or(table, |(table, _)| table);
    let is_test = |word: &&str| {
        word.contains('_') && word.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_')
    };
    // Between backticks is every second part.
    let named: Vec<&str> = table.split('`').skip(1).step_by(2).filter(is_test).collect();
    assert!(named.len() > 5, "{named:?}");
    let sources = sources();
    let exists = |name: &str| sources.iter().any(|source| source.text.contains(&format!("fn {name}(")));
    let lost = named.into_iter().filter(|name| !exists(name)).map(str::to_owned).collect();
    none("ARCHITECTURE.md names tests that are not there", lost);
}
