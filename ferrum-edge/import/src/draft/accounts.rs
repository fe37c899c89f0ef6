//! Callers who log in with a name and a password: consumers, and the plugins that ask them.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{AccessControl, BasicAuth, BasicCredential, Consumer, Credentials, Import, Plug, draft};

/// How a password is known.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Password<'p> {
    Plain(&'p str),
    Hash(&'p str),
}

/// Where the consumers are that have accounts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accounts {
    /// Places among the consumers, by username.
    places: HashMap<String, usize>,
    /// Which groups each is in.
    groups: HashSet<(usize, String)>,
}

impl Import {
    /// Has a consumer with this name and password in these groups; false when the name has another password already.
    pub(crate) fn account(&mut self, name: &str, password: Password<'_>, groups: &[String]) -> bool {
        let credential = match password {
            Password::Plain(text) => draft!(BasicCredential { password: text }),
            Password::Hash(hash) => draft!(BasicCredential { password_hash: hash }),
        };
        let credentials = Value::from(draft!(Credentials { basic_auth: credential }));
        let known = self.accounts.places.get(name).copied();
        let at = known.unwrap_or(self.consumers.len());
        if self.consumers.get(at).is_some_and(|consumer| consumer["credentials"] != credentials) {
            return false;
        }
        let accounts = &mut self.accounts;
        let groups: Vec<&String> =
            groups.iter().filter(|group| accounts.groups.insert((at, (*group).clone()))).collect();
        if let Some(consumer) = known.and_then(|at| self.consumers.get_mut(at)) {
            if let Some(Value::Array(all)) = consumer.get_mut("acl_groups") {
                all.extend(groups.into_iter().map(|group| Value::from(group.as_str())));
            }
            return true;
        }
        let id = self.id("consumer", name);
        self.accounts.places.insert(name.to_owned(), at);
        let made = draft!(Consumer { id, username: name, acl_groups: groups, credentials });
        self.consumers.push(made.into());
        true
    }
}

/// Asks for a name and a password.
pub(crate) fn basic_auth(realm: &str, hides_credentials: bool) -> Plug {
    Plug::of(draft!(BasicAuth { realm, hide_credentials: hides_credentials }))
}

/// Lets members of a group in.
pub(crate) fn only_group(group: &str) -> Plug {
    Plug::of(draft!(AccessControl { allowed_groups: [group] }))
}
