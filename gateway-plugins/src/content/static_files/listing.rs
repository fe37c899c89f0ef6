//! The list of a folder, as a page or as JSON.

use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use gateway_plugin_common::conditional;
use gateway_plugin_common::html::escape_html;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use super::root::DirectoryEntry;

/// Files and folders of one list; further ones are left out, and the list says so.
pub(super) const MAX_ENTRIES: usize = 10_000;
/// What stands in a link without being encoded.
const LINK: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The list as JSON.
pub(super) fn as_json(entries: &[DirectoryEntry]) -> String {
    let list: Vec<_> = entries
        .iter()
        .map(|entry| {
            let modified = entry.modified.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
            match entry.is_file {
                true => {
                    json!({ "name": entry.name, "type": "file", "size": entry.size, "modified": modified })
                }
                false => json!({ "name": entry.name, "type": "folder", "modified": modified }),
            }
        })
        .collect();
    format!("{}\n", json!({ "entries": list, "complete": entries.len() < MAX_ENTRIES }))
}

/// The list as a page. Names are texts, never markup.
pub(super) fn as_html(path: &str, entries: &[DirectoryEntry], is_root: bool) -> String {
    let title = escape_html(path);
    let mut page = format!(
        "<!doctype html>\n<html><head><meta charset=\"utf-8\"><title>{title}</title></head>\n<body><h1>{title}</h1>\n<table>\n"
    );
    // Writing to a string can't fail.
    if !is_root {
        page.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    for entry in entries {
        let slash = if entry.is_file { "" } else { "/" };
        let link = utf8_percent_encode(&entry.name, LINK);
        let name = escape_html(&entry.name);
        let size = if entry.is_file { entry.size.to_string() } else { String::new() };
        let modified = conditional::http_date(entry.modified);
        let modified = modified.to_str().unwrap_or_default();
        _ = writeln!(
            page,
            "<tr><td><a href=\"./{link}{slash}\">{name}{slash}</a></td><td>{size}</td><td>{modified}</td></tr>"
        );
    }
    if entries.len() >= MAX_ENTRIES {
        _ = writeln!(page, "<tr><td>There are more.</td></tr>");
    }
    page.push_str("</table>\n</body></html>\n");
    page
}
