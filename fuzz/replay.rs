//! The corpus of each fuzz target of a crate, as it is and mutated: a module of the crate's `fuzzing`, for its tests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{TARGETS, run};

/// Bytes that all corpora may have together: they are in everybody's clone.
const MAX_CORPUS: usize = 360 << 10;
/// The longest mutated input.
const MAX_INPUT: usize = 16 << 10;
/// Mutated inputs that each target gets; a fuzzer tries millions.
const TURNS: usize = 3_000;
/// The same for targets that run or compile many rules.
const SLOW_TURNS: usize = 200;
const SLOW: [&str; 2] = ["waf_request", "waf_rules"];
/// The same for importers, which make a configuration of each.
const IMPORT_TURNS: usize = 500;

fn fuzz(path: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = own.ancestors().find(|folder| folder.join("fuzz/Cargo.toml").exists());
    root.expect("the workspace").join("fuzz").join(path)
}

fn names(path: &str) -> BTreeSet<String> {
    fs::read_dir(fuzz(path))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .map(|name| name.trim_end_matches(".rs").to_owned())
        .collect()
}

fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = format!("corpus/{target}");
    let read = |name: String| {
        let data = fs::read(fuzz(&folder).join(&name)).unwrap();
        (name, data)
    };
    names(&folder).into_iter().map(read).collect()
}

fn program(target: &str) -> String {
    fs::read_to_string(fuzz("fuzz_targets").join(format!("{target}.rs"))).unwrap()
}

#[test]
fn every_target_has_its_program_and_its_corpus() {
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(known.len(), TARGETS.len(), "no two targets share a name");
    let (programs, corpora) = (names("fuzz_targets"), names("corpus"));
    assert_eq!(programs, corpora, "each program has a corpus, each corpus a program");
    let ours = concat!(env!("CARGO_CRATE_NAME"), "::fuzzing::run(");
    let ours: BTreeSet<String> = programs.into_iter().filter(|name| program(name).contains(ours)).collect();
    assert_eq!(ours, known);
    let manifest = fs::read_to_string(fuzz("Cargo.toml")).unwrap();
    for name in &known {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is not built");
        assert!(program(name).contains(&format!("run(\"{name}\", data)")), "{name} runs another target");
        assert!(!corpus(name).is_empty(), "{name} has nothing to begin with");
    }
    let inputs = corpora.iter().flat_map(|name| corpus(name));
    let bytes: usize = inputs.map(|(_, data)| data.len()).sum();
    assert!(bytes <= MAX_CORPUS, "{bytes} bytes: merge the corpora before they are kept");
}

#[test]
fn the_corpus_holds() {
    for (target, _) in TARGETS {
        for (name, data) in corpus(target) {
            let held = std::panic::catch_unwind(|| run(target, &data));
            assert!(held.is_ok(), "fuzz/corpus/{target}/{name} breaks its target");
        }
    }
}

#[test]
fn mutations_of_the_corpus_hold() {
    for (target, call) in TARGETS {
        let seeds: Vec<Vec<u8>> = corpus(target).into_iter().map(|(_, data)| data).collect();
        let mut random = fastrand::Rng::with_seed(7541);
        let turns = match target {
            target if SLOW.contains(&target) => SLOW_TURNS,
            target if target.starts_with("import_") => IMPORT_TURNS,
            _ => TURNS,
        };
        for turn in 0..turns {
            let mut data = seeds[turn % seeds.len()].clone();
            for _ in 0..random.usize(..6) {
                let at = random.usize(..data.len().max(1)).min(data.len());
                match random.u8(..5) {
                    0 => data.insert(at, random.u8(..)),
                    1 => data.truncate(at),
                    2 => data.extend_from_slice(&seeds[random.usize(..seeds.len())]),
                    3 if at < data.len() => data[at] = random.u8(..),
                    _ if at < data.len() => data[at] ^= 1 << random.u8(..8),
                    _ => {}
                }
            }
            data.truncate(MAX_INPUT);
            call(&data);
        }
    }
}
