//! Finds the candidate scripts of a path.

use super::no_script;
use crate::config::model::Scripts;
use crate::http::cgi_request::Script;
use crate::http::reply::{Cause, Reply};
use crate::template::{Facts, MAX_RENDERED, Render, TextContext};

/// Maximum number of candidate scripts per request.
const MAX_SCRIPTS: usize = 32;
/// Maximum length of a file name in bytes, as in the file system.
const MAX_NAME: usize = 255;

/// The candidate scripts of a decoded path, in order: the first one that exists runs.
///
/// # Errors
/// There is no candidate.
pub(super) fn of(places: &Scripts, facts: &Facts<'_>, path: &[u8]) -> Result<Vec<Script>, Box<Reply>> {
    let mut found = Vec::new();
    for candidate in &places.candidates {
        let mut whole = candidate.before.as_bytes().to_vec();
        if let Some(behind) = &candidate.behind {
            // The request's path starts with a slash, and a folder before it ends with one.
            let path = if whole.ends_with(b"/") { path.strip_prefix(b"/").unwrap_or(path) } else { path };
            whole.extend_from_slice(path);
            let doubled = whole.ends_with(b"/") && behind.starts_with('/');
            whole.extend_from_slice(behind.as_bytes().get(usize::from(doubled)..).unwrap_or_default());
        }
        let query = match &candidate.query {
            None => None,
            Some(template) => {
                let mut query = Vec::new();
                template
                    .render(facts, TextContext::Path, MAX_RENDERED, &mut query)
                    .map_err(|_| Box::new(Reply::new(Cause::UriTooLong)))?;
                Some(query.strip_prefix(b"?").unwrap_or(&query).trim_ascii().to_vec())
            }
        };
        let mut found_in = |whole: &[u8], end: usize| {
            let (name, path_info) = whole.split_at(end);
            if may_run(places, name) && has_no_dot_segment(path_info) && found.len() < MAX_SCRIPTS {
                found.push(Script {
                    name: name.to_vec(),
                    path_info: path_info.to_vec(),
                    query: query.clone(),
                });
            }
        };
        // A path goes on behind its script only if the entry ends with the path: what stands behind `{path}` names the script.
        // Otherwise `{path}/index.php` would run `a.php` for `/a.php/`, past plugins that guard paths such as `*.php`.
        let ends_with_path = candidate.behind.as_deref() == Some("");
        ends(places, &whole)
            .filter(|end| ends_with_path || *end == whole.len())
            .for_each(|end| found_in(&whole, end));
        if whole.ends_with(b"/") {
            whole.extend_from_slice(places.index.as_bytes());
            found_in(&whole, whole.len());
        }
    }
    if found.is_empty() { Err(no_script()) } else { Ok(found) }
}

/// The ends of scripts in a path: after each name that ends with one of `endings`.
fn ends<'p>(places: &'p Scripts, path: &'p [u8]) -> impl Iterator<Item = usize> + 'p {
    let slashes = memchr::memchr_iter(b'/', path.get(1..).unwrap_or_default()).map(|at| at + 1);
    slashes.chain([path.len()]).filter(move |end| places.is_script(&path[..*end]))
}

/// Whether a script of this path may run. If the gateway does not look up files, a folder whose name contains a dot may be a
/// file, and the target may run that file instead of the script.
fn may_run(places: &Scripts, name: &[u8]) -> bool {
    let looks = places.local_root.is_some();
    let mut names = name.strip_prefix(b"/").unwrap_or(name).split(|c| *c == b'/').peekable();
    let mut first = true;
    while let Some(name) = names.next() {
        let is_known = std::mem::take(&mut first) && name == b".well-known";
        let is_hidden = name.first() == Some(&b'.') && !is_known;
        let is_odd = name.is_empty() || name.len() > MAX_NAME || name.contains(&b'\\');
        let may_be_file = !looks && !is_known && names.peek().is_some() && name.contains(&b'.');
        if is_hidden || is_odd || may_be_file {
            return false;
        }
    }
    true
}

fn has_no_dot_segment(path: &[u8]) -> bool {
    !path.split(|c| *c == b'/').any(|name| name == b".." || name == b".")
}
