//! A configuration as somebody may write it, in YAML and in JSON.

use gateway_core::config::file::{self, Format, NoReferences, Origin};
use gateway_core::config::problem::Problems;
use gateway_core::config::resolve;

/// Takes every plugin with any settings.
fn any_settings(_name: &str, _settings: &serde_json::Value) -> Result<(), Problems> {
    Ok(())
}

/// Whatever the text is, it is read or refused, and problems stand where the text is.
pub(super) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for format in [Format::Yaml, Format::Json] {
        let origin = Origin { name: "fuzz".to_owned(), format: Some(format), ..Origin::default() };
        let document = file::parse(text, &origin, &NoReferences);
        // A carriage return ends a line of YAML by itself.
        let lines = text.split(['\n', '\r']).count() as u32 + 1;
        for problem in &document.problems.0 {
            assert!(problem.line <= lines, "line {} of {lines}: {problem}", problem.line);
        }
        let readable = document.problems.is_empty();
        if let Ok(model) = resolve::document(&document, &origin.folder, &any_settings) {
            assert!(readable, "a model has no problems");
            assert_eq!(model.proxies.len(), document.proxies.read.len(), "nothing is left out");
        }
    }
}
