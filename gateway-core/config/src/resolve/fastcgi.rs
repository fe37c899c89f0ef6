//! Resolves the FastCGI settings of a proxy.

use std::path::Path;

use super::{Notes, words};
use crate::file;
use crate::model::{BackendHttp, FastCgi, ParamValue, ScriptCandidate, Scripts};
use crate::template::{BadTemplate, Moment, Template};

/// The placeholder for the path of the request in `try_files`.
const PATH: &str = "{path}";
/// Parameters that select the script or the length of the body: only the gateway sets them.
const OWN: [&str; 3] = ["CONTENT_LENGTH", "PATH_TRANSLATED", "SCRIPT_FILENAME"];
/// Default of `unsized_body`, in bytes.
const UNSIZED_BODY: u64 = 1 << 20;

/// The FastCGI rules of a proxy; `None` if its targets use another protocol.
pub(super) fn fastcgi(
    notes: &mut Notes<'_>,
    written: &file::Proxy,
    version: BackendHttp,
    folder: &Path,
) -> Option<FastCgi> {
    if version != BackendHttp::FastCgi {
        if written.fastcgi.is_some() {
            notes.add("fastcgi", "the proxy's targets do not speak FastCGI").remedy =
                Some("write `backend_protocol: fastcgi`, or remove it".to_owned());
        }
        return None;
    }
    for (key, is_given) in [
        ("backend_http_version", written.backend_http_version.is_some()),
        ("backend_alt_svc", written.backend_alt_svc.is_some()),
        ("hedging", written.hedging.is_some()),
    ] {
        if is_given {
            notes.add(key, "has no effect on targets that speak FastCGI").remedy =
                Some("remove it".to_owned());
        }
    }
    let empty = file::FastCgi::default();
    let rules = written.fastcgi.as_ref().unwrap_or(&empty);
    Some(FastCgi {
        scripts: scripts(notes, rules, folder),
        params: params(notes, rules),
        keep_alive: rules.keep_alive.unwrap_or(false),
        unsized_body: rules.unsized_body.map_or(UNSIZED_BODY, |bytes| bytes.0),
    })
}

fn scripts(notes: &mut Notes<'_>, rules: &file::FastCgi, folder: &Path) -> Option<Scripts> {
    let Some(root) = rules.root.as_deref() else {
        for (key, is_given) in [
            ("local_root", rules.local_root.is_some()),
            ("check_scripts", rules.check_scripts.is_some()),
            ("index", rules.index.is_some()),
            ("split_path", rules.split_path.is_some()),
            ("try_files", rules.try_files.is_some()),
        ] {
            if is_given {
                notes.add(&format!("fastcgi.{key}"), "there are no scripts without `root`").remedy =
                    Some("write `root`, or remove it".to_owned());
            }
        }
        return None;
    };
    let checks = rules.check_scripts.unwrap_or(true);
    if !checks && rules.local_root.is_some() {
        notes.add("fastcgi.local_root", "nothing is looked for there with `check_scripts: false`").remedy =
            Some("remove one of the two".to_owned());
    }
    // A relative path is relative to the same folder as every other file in the configuration.
    let root = words::file_path(folder, root);
    let local = rules.local_root.as_deref().map_or_else(|| root.clone(), |at| words::file_path(folder, at));
    let Some(root) = root.to_str().filter(|root| !root.contains(char::is_control)) else {
        notes.add("fastcgi.root", "has characters that a parameter may not have");
        return None;
    };
    let index = rules.index.as_deref().unwrap_or("index.php");
    if !is_script_name(index) {
        notes.add("fastcgi.index", format!("`{index}` is not the name of a file"));
    }
    let written = rules.split_path.clone().unwrap_or_else(|| vec![".php".to_owned()]);
    let mut endings: Vec<Box<str>> = Vec::with_capacity(written.len());
    for (n, ending) in written.iter().enumerate() {
        if !ending.starts_with('.') || !is_script_name(ending) || !ending.is_ascii() {
            notes.add(&format!("fastcgi.split_path[{n}]"), format!("`{ending}` is not an ending")).remedy =
                Some("such as `.php`".to_owned());
        }
        endings.push(ending.to_ascii_lowercase().into());
    }
    if !endings.iter().any(|ending| index.to_ascii_lowercase().ends_with(&**ending)) {
        notes.add("fastcgi.index", format!("`{index}` has none of the endings in `split_path`"));
    }
    let candidates = candidates(notes, rules, &endings);
    Some(Scripts {
        root: root.trim_end_matches('/').into(),
        local_root: checks.then_some(local),
        index: index.into(),
        endings: endings.into(),
        candidates,
    })
}

fn is_script_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '\\']) && !name.contains(char::is_control) && name != ".."
}

fn candidates(notes: &mut Notes<'_>, rules: &file::FastCgi, endings: &[Box<str>]) -> Box<[ScriptCandidate]> {
    let default = [PATH.to_owned()];
    let written = rules.try_files.as_deref().unwrap_or(&default);
    let mut found = Vec::with_capacity(written.len());
    for (n, text) in written.iter().enumerate() {
        let at = format!("fastcgi.try_files[{n}]");
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(format!("?{query}"))),
            None => (text.as_str(), None),
        };
        let query = match query.as_deref().map(|query| Template::parse(query, Moment::Request)) {
            None => None,
            Some(Ok(template)) => Some(template),
            Some(Err(BadTemplate { message, remedy })) => {
                notes.add(&at, message).remedy = Some(remedy);
                continue;
            }
        };
        let (before, behind) = match path.split_once(PATH) {
            Some((before, behind)) => (before, Some(behind)),
            None => (path, None),
        };
        let fixed = [before, behind.unwrap_or_default()];
        let is_clean = |part: &&str| {
            let odd = part.split('/').any(|name| name == ".." || name == ".");
            !odd && !part.contains(char::is_control) && !part.contains(['\\', '{', '}', '$'])
        };
        let lower = before.to_ascii_lowercase();
        let is_script = || endings.iter().any(|ending| lower.contains(&**ending)) || lower.ends_with('/');
        if !fixed.iter().all(is_clean) {
            notes.add(&at, format!("`{text}` is not a path")).remedy =
                Some("such as `{path}`, `{path}/index.php` or `/index.php`".to_owned());
            continue;
        }
        if behind.is_none() && !is_script() {
            notes.add(&at, format!("`{text}` is not a script, and only scripts are passed on")).remedy =
                Some("files are for the plugin `static_files`".to_owned());
            continue;
        }
        let slash = if before.starts_with('/') || (before.is_empty() && behind.is_some()) { "" } else { "/" };
        found.push(ScriptCandidate {
            before: format!("{slash}{before}").into(),
            behind: behind.map(Into::into),
            query,
        });
    }
    found.into()
}

fn params(notes: &mut Notes<'_>, rules: &file::FastCgi) -> Box<[(Box<str>, ParamValue)]> {
    let mut params = Vec::with_capacity(rules.params.len());
    for (name, value) in &rules.params {
        let at = format!("fastcgi.params.{name}");
        let is_name = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
        if name.is_empty() || name.len() > 255 || !name.bytes().all(is_name) {
            notes.add(&at, "this is not the name of a parameter").remedy =
                Some("letters, digits and `_`".to_owned());
        } else if name == "HTTP_PROXY" {
            notes.add(&at, "is never sent, since programs take it for their proxy").remedy =
                Some("remove it".to_owned());
        } else if OWN.contains(&name.as_str()) {
            notes.add(&at, "the gateway says it: `root` and `try_files` choose the script").remedy =
                Some("remove it".to_owned());
        } else {
            match param(value) {
                Ok(value) => params.push((name.as_str().into(), value)),
                Err(BadTemplate { message, remedy }) => notes.add(&at, message).remedy = Some(remedy),
            }
        }
    }
    params.into()
}

fn param(value: &file::Param) -> Result<ParamValue, BadTemplate> {
    match value {
        file::Param::Lines(lines) => Ok(ParamValue::Text(lines.join("\n").into())),
        file::Param::Text(text) => {
            let template = Template::parse(text, Moment::Attempt)?;
            let fixed = template.literal().map(Into::into);
            Ok(fixed.map_or(ParamValue::Template(template), ParamValue::Text))
        }
    }
}
