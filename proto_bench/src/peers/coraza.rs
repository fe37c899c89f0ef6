//! Coraza in a small reverse proxy, whose source is in `tests/waf/coraza`.

use std::path::Path;

use super::tests::Test;
use super::{Setup, Site, upstream};

pub(super) const PROGRAM: &str = "coraza-proxy";

pub(super) fn setup(test: Test, program: &Path, site: &Site<'_>) -> Option<Setup> {
    let backend = upstream(site.backend, test.back(), false)?;
    // Go takes its number of threads from the environment.
    let mut command = vec![
        "env".to_owned(),
        format!("GOMAXPROCS={}", site.workers),
        program.to_string_lossy().into_owned(),
        "-listen".to_owned(),
        site.listen.to_string(),
        "-to".to_owned(),
        backend.to_string(),
    ];
    let mut files = Vec::new();
    if test.needs_rules() {
        let file = site.directory.join("coraza.conf");
        command.extend(["-rules".to_owned(), file.to_string_lossy().into_owned()]);
        files.push((file, site.rules?.directives()));
    }
    Some(Setup { command, files })
}
