//! Every file in `specs/` is read and resolved, and the seed's document means what its page says.

use std::io;
use std::path::{Path, PathBuf};

use gateway_core::config::file::{Origin, References};
use gateway_core::config::model::{BackendHttp, Model, PathPattern, Scheme, Traffic};
use gateway_core::config::problem::Problems;
use gateway_core::config::resolve::load;

/// Specs may refer to the environment and to files; what those hold doesn't matter here.
struct Anything;

impl References for Anything {
    fn env(&self, _name: &str) -> Option<String> {
        Some("00000000-0000-0000-0000-000000000000".to_owned())
    }

    fn file(&self, _path: &Path) -> io::Result<String> {
        Ok("00000000-0000-0000-0000-000000000000".to_owned())
    }
}

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../specs")
}

fn model(path: &Path) -> Model {
    let text = std::fs::read_to_string(path).expect("a spec can be read");
    let any_plugin = |_: &str, _: &serde_json::Value| Ok::<(), Problems>(());
    load(&text, &Origin::file(path), &Anything, &any_plugin, |_| Problems::default())
        .unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn every_spec_resolves() {
    let mut seen = 0;
    for entry in std::fs::read_dir(specs()).expect("specs/ exists") {
        let path = entry.expect("specs/ can be listed").path();
        if path.extension().is_some_and(|ending| ending == "yaml" || ending == "json") {
            assert!(!model(&path).proxies.is_empty(), "{} has no proxy", path.display());
            seen += 1;
        }
    }
    assert!(seen > 0, "specs/ is empty");
}

#[test]
fn the_seeds_document_is_taken_word_for_word() {
    let model = model(&specs().join("bench.yaml"));
    let [proxy] = model.proxies.as_slice() else {
        panic!("one proxy");
    };
    assert_eq!((proxy.id.as_str(), proxy.name.as_deref()), ("bench", Some("Bench Proxy")));
    assert_eq!((proxy.backend.scheme, proxy.backend.http_version), (Scheme::Http, BackendHttp::Auto));
    let target = &proxy.backend.upstream.targets[0];
    assert_eq!((&*target.host, target.port), ("localhost", 3000));
    let Traffic::Http(rules) = &proxy.traffic else {
        panic!("an HTTP proxy");
    };
    assert!(matches!(&rules.matches[0].path, PathPattern::Prefix(prefix) if **prefix == *"/"));
    assert!(rules.strip_listen_path && proxy.plugins.is_empty());
}
