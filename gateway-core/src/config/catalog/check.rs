//! Proxies: those an edit puts, and those it concerns.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Edit, Id, Kind, Place, Problem, Problems, Proxy, Put, Refusal, Scope, Trial, file, resolve};

impl Trial<'_, '_> {
    /// Resolves the proxies of an edit and those it concerns.
    pub(super) fn proxies(&mut self, edit: &Edit, affected: Vec<Put<file::Proxy>>) {
        let all =
            || edit.proxies.iter().map(|put| (put, true)).chain(affected.iter().map(|put| (put, false)));
        let mut resolved = Vec::with_capacity(edit.proxies.len() + affected.len());
        for (put, is_own) in all() {
            resolved.extend(self.proxy(put, is_own).map(|proxy| (put, is_own, proxy)));
        }
        // All leave their places before any takes a new one.
        for (_, _, (proxy, _)) in &resolved {
            self.release_proxy(&proxy.id);
            self.catalog.forget_references(&proxy.id);
        }
        for (put, is_own, (proxy, closed)) in resolved {
            self.catalog.note_references(&proxy.id, &put.object);
            if let Err(problems) = self.catalog.taken.proxy(&proxy, &put.at, self.against.settings()) {
                self.no_place(proxy, problems);
                continue;
            }
            match closed {
                None => {
                    // Also one that is only concerned: what was wrong with it may have been what it needs.
                    self.catalog.broken.mended(Kind::Proxies, proxy.id.as_str());
                    self.changes.proxies.put.push(proxy);
                }
                Some(problems) => {
                    if is_own {
                        self.catalog.broken.note(Kind::Proxies, proxy.id.as_str(), None, problems.clone());
                    }
                    self.changes.closed.push((proxy, problems));
                }
            }
        }
        if self.refusal == Refusal::Edit {
            self.scopes(edit);
        }
    }

    /// A proxy and, when it can only be closed, why; `None` when it can't even be that, or stays as it was.
    fn proxy(
        &mut self,
        put @ Put { at, object, .. }: &Put<file::Proxy>,
        is_own: bool,
    ) -> Option<(Arc<Proxy>, Option<Problems>)> {
        let place = Place { at, folder: self.against.folder };
        let resolved = put.resolved(|object| resolve::proxy(object, place, &self.catalog.known));
        let id = object.id.as_deref().unwrap_or_default();
        let problems = match resolved {
            Ok(proxy) => {
                let older = |id: &str| self.catalog.known.plugin(id).map(|known| &known.config.scope);
                let closing = self.catalog.broken.closing(&proxy.id, older);
                return Some((Arc::new(proxy), Some(closing).filter(|why| !why.is_empty())));
            }
            Err(problems) => problems,
        };
        let before = self.against.previous.by_id.get(id);
        let was_closed = before.is_some_and(|route| route.quarantine.is_some());
        match self.refusal {
            Refusal::Edit if is_own => {
                self.problems.0.extend(problems.0);
                None
            }
            // What can't get worse doesn't stand in the way of an edit.
            Refusal::Edit if !was_closed => {
                let why = |problem: Problem| Problem {
                    message: format!("the proxy `{id}` needs it: {}: {}", problem.path, problem.message),
                    path: String::new(),
                    ..problem
                };
                self.problems.0.extend(problems.0.into_iter().map(why));
                None
            }
            Refusal::Object if is_own && before.is_some() && !was_closed => {
                self.catalog.broken.note(Kind::Proxies, id, None, problems);
                None
            }
            Refusal::Edit | Refusal::Object => match resolve::closed_proxy(object, place) {
                Some(proxy) => Some((Arc::new(proxy), Some(problems))),
                None => {
                    self.catalog.broken.note(Kind::Proxies, id, None, problems);
                    None
                }
            },
        }
    }

    /// A proxy's hosts and path, or its ports, are another's.
    fn no_place(&mut self, proxy: Arc<Proxy>, problems: Problems) {
        if self.refusal == Refusal::Edit {
            self.problems.0.extend(problems.0);
            return;
        }
        self.catalog.broken.note(Kind::Proxies, proxy.id.as_str(), None, problems);
        self.catalog.forget_references(&proxy.id);
        // Its older version has lost its place above: what was written last counts.
        self.changes.proxies.gone.push(proxy.id.clone());
    }

    /// Whether the proxies that plugin configs belong to are there.
    fn scopes(&mut self, edit: &Edit) {
        let put: HashSet<&str> = edit.proxies.iter().filter_map(|put| put.object.id.as_deref()).collect();
        let gone = |id: &Id| edit.gone.iter().any(|(kind, gone)| *kind == Kind::Proxies && gone == id);
        for Put { at, object, .. } in &edit.plugin_configs {
            let Some(Scope::Proxy(proxy)) = resolve::scope_of(object) else { continue };
            let is_there = put.contains(proxy.as_str())
                || self.against.previous.by_id.contains_key(&proxy) && !gone(&proxy)
                || self
                    .catalog
                    .broken
                    .iter()
                    .any(|(kind, id, _)| kind == Kind::Proxies && id == proxy.as_str());
            if !is_there {
                let dot = if at.is_empty() { "" } else { "." };
                self.problems
                    .add(format!("{at}{dot}proxy_id"), format!("there is no proxy `{proxy}`"))
                    .remedy = Some("create it before, or in the same batch".to_owned());
            }
        }
    }
}
