//! The corpus of every target, as it is and changed a little.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::{TARGETS, run};

/// Octets a corpus may have in all: it is in everybody's clone.
const MAX_CORPUS: usize = 300 << 10;
/// Changed inputs a target is tried with; the fuzzer tries millions.
const TURNS: usize = 3_000;

fn fuzz(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz").join(path)
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

#[test]
fn every_target_has_its_program_and_its_corpus() {
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(known.len(), TARGETS.len(), "names are told apart");
    // Those of gateway-waf are looked at there.
    let ours = |path: &str| -> BTreeSet<String> {
        names(path).into_iter().filter(|name| !name.starts_with("waf_")).collect()
    };
    assert_eq!(ours("fuzz_targets"), known);
    assert_eq!(ours("corpus"), known);
    let manifest = fs::read_to_string(fuzz("Cargo.toml")).unwrap();
    let octets: usize = known
        .iter()
        .map(|name| {
            assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is not built");
            let program = fs::read_to_string(fuzz("fuzz_targets").join(format!("{name}.rs"))).unwrap();
            assert!(program.contains(&format!("run(\"{name}\", data)")), "{name} runs another target");
            let corpus = corpus(name);
            assert!(!corpus.is_empty(), "{name} has nothing to begin with");
            corpus.iter().map(|(_, data)| data.len()).sum::<usize>()
        })
        .sum();
    assert!(octets <= MAX_CORPUS, "{octets} octets: merge the corpus before it is kept");
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
fn what_grows_from_the_corpus_holds() {
    for (target, call) in TARGETS {
        let seeds: Vec<Vec<u8>> = corpus(target).into_iter().map(|(_, data)| data).collect();
        let mut random = fastrand::Rng::with_seed(7541);
        for turn in 0..TURNS {
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
            data.truncate(16 << 10);
            call(&data);
        }
    }
}
