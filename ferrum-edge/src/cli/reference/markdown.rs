//! The reference of the plugins as a page: `website/plugins.md` is what this writes.

use std::fmt::Write;

use gateway_core::plugin::{Entry, Registry};
use serde_json::Value;

use super::{protocols, sentence, within};

/// How deep options are within options, at most.
const MAX_DEPTH: usize = 3;
/// The type that has a section of its own instead of being listed wherever it is used.
const CONDITION: &str = "Condition";

/// The page, with a section for each plugin.
pub(super) fn plugins(entries: &[&Entry], registry: &Registry) -> String {
    let mut page = String::from(
        "# Plugins\n\nIn the order in which they run. `ferrum-edge plugins --output markdown` writes this page, \
         `ferrum-edge plugins NAME` prints one plugin.\n\n| plugin | |\n|---|---|\n",
    );
    for entry in entries {
        let row = format_args!("| [`{0}`](#{0}) | {1} |", entry.name, entry.summary.replace('|', "\\|"));
        push(&mut page, row);
    }
    for entry in entries {
        section(&mut page, entry, registry);
    }
    conditions(&mut page, entries);
    page
}

/// What conditions can ask, which every plugin config has in `when` and many have in their settings.
fn conditions(page: &mut String, entries: &[&Entry]) {
    let schemas = entries.iter().map(|entry| (entry.schema)());
    let Some(whole) = schemas.map(Value::from).find(|whole| whole["$defs"].get(CONDITION).is_some()) else {
        return;
    };
    push(
        page,
        format_args!(
            "\n## Conditions\n\nWhat `when` of a plugin config and conditions in settings can ask.\n"
        ),
    );
    options(page, &whole, &whole["$defs"][CONDITION], 0);
}

fn section(page: &mut String, entry: &Entry, registry: &Registry) {
    push(page, format_args!("\n## {}\n\n{}", entry.name, entry.summary));
    if let Some(protocols) = protocols(entry, registry) {
        push(page, format_args!("\nRuns for {protocols}."));
    }
    let schema = (entry.schema)();
    if schema.as_value().get("properties").and_then(Value::as_object).is_some_and(|all| !all.is_empty()) {
        page.push('\n');
        options(page, schema.as_value(), schema.as_value(), 0);
    }
    if !entry.actions.is_empty() {
        push(page, format_args!("\nActions (`POST /v1/plugins/{}/actions/NAME`):\n", entry.name));
        for (name, about) in entry.actions {
            push(page, format_args!("- `{name}`: {about}"));
        }
    }
    if !entry.example.is_empty() {
        push(page, format_args!("\n```yaml\n{}\n```", entry.example.trim_end()));
    }
}

/// The options of an object as a list, each with those within it.
fn options(page: &mut String, whole: &Value, object: &Value, depth: usize) {
    for (name, option) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let indent = 2 * depth;
        let within = within(whole, option);
        let is_condition = within.is_some_and(|it| std::ptr::eq(it, &whole["$defs"][CONDITION]));
        let link = if is_condition { " ([Conditions](#conditions))" } else { "" };
        push(page, format_args!("{:indent$}- `{name}`: {}{link}", "", sentence(option)));
        if let Some(within) = within.filter(|_| depth < MAX_DEPTH && !is_condition) {
            options(page, whole, within, depth + 1);
        }
    }
}

fn push(page: &mut String, line: std::fmt::Arguments<'_>) {
    // A string takes whatever is written.
    let _written = writeln!(page, "{line}");
}
