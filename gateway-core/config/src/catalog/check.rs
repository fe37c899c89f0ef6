//! Proxies: those an edit puts, and those it concerns.

use std::collections::HashSet;
use std::sync::Arc;

use super::again::again;
use super::taken::Lost;
use super::{
    Edit, Id, ObjectKind, ObjectPlace, OnRefusal, Problem, Problems, Proxy, Put, Scope, Trial, file, resolve,
};

/// A proxy as it is to be from now on.
struct UpdatedProxy {
    proxy: Arc<Proxy>,
    /// Why it can only be closed.
    closed: Option<Problems>,
    /// Its row can't be used, and it goes on as it was.
    is_older: bool,
}

impl Trial<'_, '_> {
    /// Resolves the proxies of an edit and those it concerns.
    pub(super) fn proxies(&mut self, edit: &Edit, affected: Vec<Put<file::Proxy>>) {
        let all =
            || edit.proxies.iter().map(|put| (put, true)).chain(affected.iter().map(|put| (put, false)));
        let mut resolved = Vec::with_capacity(edit.proxies.len() + affected.len());
        for (put, is_own) in all() {
            resolved.extend(self.proxy(put, is_own).map(|found| (put, is_own, found)));
        }
        // All leave their places before any takes a new one.
        for (_, _, found) in &resolved {
            self.release_proxy(&found.proxy.id);
            if !found.is_older {
                self.catalog.forget_references(&found.proxy.id);
            }
        }
        for (put, is_own, UpdatedProxy { proxy, closed, is_older }) in resolved {
            if !is_older {
                self.catalog.note_references(&proxy.id, &put.object);
            }
            if let Err(lost) = self.catalog.taken.proxy(&proxy, &put.at, self.against.settings()) {
                self.no_place(&proxy, is_own, lost);
                continue;
            }
            match closed {
                None => {
                    // Also one that is only concerned: what was wrong with it may have been what it needs.
                    if !is_older {
                        self.catalog.mended_proxy(proxy.id.as_str());
                    }
                    self.changes.proxies.put.push(proxy);
                }
                Some(problems) => {
                    // What is wrong with the row of one that goes on as it was is noted already.
                    if is_own && !is_older {
                        self.catalog.broken.note(
                            ObjectKind::Proxies,
                            proxy.id.as_str(),
                            None,
                            problems.clone(),
                        );
                    }
                    self.changes.closed.push((proxy, problems));
                }
            }
        }
        if self.refusal == OnRefusal::Edit {
            self.scopes(edit);
        }
    }

    /// A proxy, be it as it was before, or only to be closed; `None` when it can't even be that, or the edit is refused.
    fn proxy(
        &mut self,
        put @ Put { at, object, .. }: &Put<file::Proxy>,
        is_own: bool,
    ) -> Option<UpdatedProxy> {
        let place = ObjectPlace { at, folder: self.against.folder };
        let resolved = put.resolved(|object| resolve::proxy(object, place, &self.catalog.known));
        let id = object.id.as_deref().unwrap_or_default();
        let problems = match resolved {
            Ok(proxy) => return Some(self.found(proxy, false)),
            Err(problems) => problems,
        };
        let previous = self.against.previous;
        let before = previous.proxy(id);
        let serves = before.filter(|_| !previous.is_closed(id));
        match self.refusal {
            OnRefusal::Edit if is_own => {
                self.problems.extend(problems.0);
                return None;
            }
            OnRefusal::Object if is_own && serves.is_some() => {
                self.catalog.broken.note(ObjectKind::Proxies, id, None, problems.clone());
            }
            OnRefusal::Edit | OnRefusal::Object => {}
        }
        if let Some(older) = serves
            && self.catalog.broken.has(ObjectKind::Proxies, id)
        {
            return self.older(older);
        }
        // What can't get worse doesn't stand in the way of an edit.
        if self.refusal == OnRefusal::Edit && serves.is_some() {
            self.needed(id, problems);
            return None;
        }
        match resolve::closed_proxy(object, place, &self.catalog.known) {
            Some(proxy) => {
                Some(UpdatedProxy { proxy: Arc::new(proxy), closed: Some(problems), is_older: false })
            }
            None => {
                self.catalog.broken.note(ObjectKind::Proxies, id, None, problems);
                None
            }
        }
    }

    /// The row of a proxy can't be used, and hasn't been since before this edit where that is one. Its older version goes
    /// on, with what it refers to as that is now: the row's old problems are not the edit's.
    fn older(&mut self, before: &Arc<Proxy>) -> Option<UpdatedProxy> {
        let references = self.catalog.references.get(&before.id).cloned().unwrap_or_default();
        match again(before, &references, &self.catalog.known) {
            Ok(proxy) => Some(self.found(proxy, true)),
            Err(problems) if self.refusal == OnRefusal::Edit => {
                self.needed(before.id.as_str(), problems);
                None
            }
            Err(problems) => {
                Some(UpdatedProxy { proxy: before.clone(), closed: Some(problems), is_older: true })
            }
        }
    }

    /// A proxy that serves, unless a plugin config that would run for it can't be used.
    fn found(&self, proxy: Proxy, is_older: bool) -> UpdatedProxy {
        let older = |id: &str| self.catalog.known.plugin(id).map(|known| &known.config.scope);
        let closing = self.catalog.broken.closing(&proxy.id, proxy.owner().map(Id::as_str), older);
        UpdatedProxy { proxy: Arc::new(proxy), closed: Some(closing).filter(|why| !why.is_empty()), is_older }
    }

    /// The edit takes from a proxy what it needs.
    fn needed(&mut self, id: &str, problems: Problems) {
        let why = |problem: Problem| Problem {
            message: format!("the proxy `{id}` needs it: {}: {}", problem.path, problem.message),
            path: String::new(),
            ..problem
        };
        self.problems.extend(problems.0.into_iter().map(why));
    }

    /// A proxy's hosts and path, or its ports, are another's.
    fn no_place(&mut self, proxy: &Proxy, is_own: bool, lost: Lost) {
        // One that had none before can't lose it to the edit.
        let had_none = self.against.previous.proxy(proxy.id.as_str()).is_none()
            && self.catalog.broken.has(ObjectKind::Proxies, proxy.id.as_str());
        if self.refusal == OnRefusal::Edit && (is_own || !had_none) {
            self.problems.extend(lost.problems.0);
            return;
        }
        self.catalog.broken.note(ObjectKind::Proxies, proxy.id.as_str(), None, lost.problems);
        self.catalog.forget_references(&proxy.id);
        self.catalog.waits(&proxy.id, lost.owners);
        // Its older version has lost its place above: what was written last counts.
        self.changes.proxies.gone.push(proxy.id.clone());
    }

    /// Whether the proxies that plugin configs belong to are there.
    fn scopes(&mut self, edit: &Edit) {
        let put: HashSet<&str> = edit.proxies.iter().filter_map(|put| put.object.id.as_deref()).collect();
        let gone = |id: &Id| edit.gone.iter().any(|(kind, gone)| *kind == ObjectKind::Proxies && gone == id);
        for Put { at, object, .. } in &edit.plugin_configs {
            let Some(Scope::Proxy(proxy)) = resolve::scope_of(object) else { continue };
            let is_there = put.contains(proxy.as_str())
                || self.against.previous.proxy(proxy.as_str()).is_some() && !gone(&proxy)
                || self
                    .catalog
                    .broken
                    .iter()
                    .any(|(kind, id, _)| kind == ObjectKind::Proxies && id == proxy.as_str());
            if !is_there {
                let dot = if at.is_empty() { "" } else { "." };
                self.problems
                    .add(format!("{at}{dot}proxy_id"), format!("there is no proxy `{proxy}`"))
                    .remedy = Some("create it before, or in the same batch".to_owned());
            }
        }
    }
}
