//! Requests of a server and what becomes of them.

use std::rc::Rc;

use serde_json::Value;

use super::blocks::Directive;
use super::location::Base;
use super::site::Site;
use crate::cond::Cond;
use crate::draft::{Plug, Proxy, QueryChanges, Rewrite, StaticFiles, To, draft};

/// Requests and what becomes of them; the first item that takes a request has it.
#[derive(Debug, Clone)]
pub(super) struct Item {
    pub(super) base: Base,
    pub(super) to: To,
    pub(super) label: String,
    pub(super) settings: Proxy,
    /// Files that precede its target.
    pub(super) files: Option<StaticFiles>,
    pub(super) plugins: Vec<Plug>,
    /// Where its records go, by number; `None` as its server says.
    pub(super) logs: Option<Vec<usize>>,
}

impl Item {
    pub(super) fn new(base: &Base, to: To, label: &str) -> Self {
        Self {
            base: base.clone(),
            to,
            label: label.to_owned(),
            settings: Proxy::default(),
            files: None,
            plugins: Vec::new(),
            logs: None,
        }
    }
}

impl Item {
    /// Has its target asked without the query of the request.
    pub(super) fn without_query(&mut self) {
        if !matches!(self.to, To::Upstream { .. } | To::Host { .. }) {
            return;
        }
        let query = draft!(QueryChanges { remove_all: true });
        match self.plugins.iter_mut().find(|plug| plug.name == "rewrite" && plug.when.is_none()) {
            Some(plug) => {
                if let Value::Object(known) = Rc::make_mut(&mut plug.config) {
                    let has_path = known.contains_key("path") || known.contains_key("regex");
                    let mut rewrite = if has_path { Rewrite::default() } else { same_path() };
                    rewrite.query(query);
                    known.append(&mut rewrite);
                }
            }
            None => {
                let mut rewrite = same_path();
                rewrite.query(query);
                self.plugins.push(Plug::of(rewrite));
            }
        }
    }
}

/// A `rewrite` that leaves the path: without one, the query that headers and logs name would change, too.
pub(super) fn same_path() -> Rewrite {
    draft!(Rewrite { path: "${request.path}" })
}

/// Whether a request's path was rewritten before it is passed on, to which template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rewritten {
    No,
    /// By the location that passes it on.
    Break(String),
    /// On the way to that location.
    Last(String),
}

/// What a level is called in findings.
pub(super) fn place(site: &Site<'_>, levels: &[&Directive]) -> String {
    let mut made = site.place.clone();
    for level in levels.iter().filter(|level| matches!(level.name.as_str(), "location" | "if")) {
        made.push_str(", ");
        made.push_str(&level.name);
        made.push(' ');
        for (n, argument) in level.arguments.iter().enumerate() {
            made.push_str(if n == 0 { "" } else { " " });
            made.push_str(argument);
        }
    }
    made
}

/// Where to, and what the proxy says besides.
pub(super) struct Passed {
    pub(super) cond: Cond,
    pub(super) to: To,
    pub(super) settings: Proxy,
    /// Files that precede the target.
    pub(super) files: Option<StaticFiles>,
    pub(super) rewrite: Option<Rewrite>,
    /// In the place of those of the location, where another one's settings hold.
    pub(super) plugins: Option<Vec<Plug>>,
    /// What its target answers is rewritten and kept by these.
    pub(super) answers: Vec<Plug>,
}

impl Passed {
    /// All requests, with settings of its own.
    pub(super) fn new(to: To, settings: Proxy) -> Self {
        Self {
            cond: Cond::Always,
            to,
            settings,
            files: None,
            rewrite: None,
            plugins: None,
            answers: Vec::new(),
        }
    }
}
