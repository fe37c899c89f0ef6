//! Which script a FastCGI target would run for a request.

use std::path::Path;

use gateway_core::cgi;
use gateway_core::config::model::HttpRules;
use gateway_core::http::cgi_request::Script;
use gateway_core::http::exchange::Exchange;
use gateway_core::route::forward_path;
use gateway_core::snapshot::Route;
use gateway_core::template::Facts;
use serde_json::{Value, json};

use super::refusal;

/// The candidate scripts of a request, and the first one that exists.
pub(super) struct Scripts {
    /// The folder as the target sees it.
    root: String,
    candidates: Vec<Candidate>,
    /// Index of the script that would run.
    runs: Option<usize>,
    /// What the gateway would answer if there is none.
    pub(super) refusal: Option<String>,
}

struct Candidate {
    name: String,
    path_info: String,
    query: Option<String>,
    /// `None` if the gateway does not look for files.
    exists: Option<bool>,
}

impl Scripts {
    /// `None` for a proxy whose targets speak another protocol or run no scripts. Looks up files where the gateway does.
    pub(super) fn of(
        route: &Route,
        rules: &HttpRules,
        exchange: &Exchange,
        target: &str,
        matched: usize,
    ) -> Option<Self> {
        let fastcgi = route.proxy.backend.fastcgi()?;
        let places = fastcgi.scripts.as_ref()?;
        // All targets of a proxy have the same scripts; the path of the first one is as good as another's.
        let first = route.targets.list().first()?;
        let prefix = first.rules.path.as_deref().or(rules.backend_path.as_deref());
        let path = forward_path(target, matched, rules.strip_listen_path, prefix);
        let proxy = Some(route.proxy.id.as_str());
        let facts = Facts { proxy, target: Some(&**first), ..Facts::of(exchange) };
        let local = places.local_root.as_deref();
        let (candidates, refusal) = match cgi::candidate_scripts(fastcgi, &facts, &path) {
            Ok(found) => (found.iter().map(|script| Candidate::new(script, local)).collect(), None),
            Err(reply) => (Vec::new(), Some(reply)),
        };
        let runs = candidates.iter().position(|one: &Candidate| one.exists != Some(false));
        let unreadable = local.and_then(|root| std::fs::metadata(root).err().map(|error| (root, error)));
        let refusal = match (runs, unreadable, refusal) {
            (_, Some((root, error)), None) => {
                Some(format!("503 scripts_unreadable {}: {error}", root.display()))
            }
            (Some(_), ..) => None,
            (None, _, reply) => Some(refusal_of(&reply.unwrap_or_else(cgi::no_script))),
        };
        let runs = runs.filter(|_| refusal.is_none());
        Some(Self { root: places.root.to_string(), candidates, runs, refusal })
    }

    /// The script that runs, and the candidates in their order.
    pub(super) fn document(&self) -> Value {
        let shown = |one: &Candidate| {
            json!({
                "script_filename": format!("{}{}", self.root, one.name),
                "script_name": one.name,
                "path_info": one.path_info,
                "query": one.query,
                "exists": one.exists,
            })
        };
        json!({
            "runs": self.runs.and_then(|n| self.candidates.get(n)).map(shown),
            "candidates": self.candidates.iter().map(shown).collect::<Vec<_>>(),
        })
    }
}

fn refusal_of(reply: &gateway_core::http::reply::Reply) -> String {
    let reason = reply.reason.unwrap_or_else(|| reply.cause.reason());
    refusal(reply).replacen(reply.cause.reason(), reason, 1)
}

impl Candidate {
    fn new(script: &Script, local_root: Option<&Path>) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let name = text(&script.name);
        let exists = local_root.map(|root| is_file_below(root, &name));
        Self { exists, name, path_info: text(&script.path_info), query: script.query.as_deref().map(text) }
    }
}

/// Whether `name`, which begins with a slash, is a file below the folder once all links are followed.
fn is_file_below(root: &Path, name: &str) -> bool {
    let found = root.canonicalize().and_then(|root| {
        let file = root.join(name.trim_start_matches('/')).canonicalize()?;
        Ok(file.starts_with(&root) && file.is_file())
    });
    found.unwrap_or(false)
}
