//! Values that many objects of a configuration have in common, held once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::condition::Condition;
use crate::model::{PluginSettings, TargetRules};

/// Names of plugins that are held once, however many configs have them; far more than there are plugins.
const MAX_NAMES: usize = 1024;
/// Bytes of settings that are compared with those of the plugin's config before, to be held once.
const MAX_SETTINGS: usize = 256;
/// Conditions that are compared with the next ones.
const RECENT_CONDITIONS: usize = 16;

/// What one configuration holds once.
#[derive(Debug, Default)]
pub(super) struct SharedValues {
    plugins: Mutex<BTreeMap<Arc<str>, Option<PluginSettings>>>,
    conditions: Mutex<VecDeque<Weak<Condition>>>,
    target: Mutex<Option<Arc<TargetRules>>>,
}

impl SharedValues {
    /// A plugin's name, the same text for all configs of the plugin, and its settings, the same text as those of the config
    /// before where they are the same: a million proxies may each have the same.
    pub(super) fn plugin(&self, name: &Arc<str>, settings: &PluginSettings) -> (Arc<str>, PluginSettings) {
        let mut known = locked(&self.plugins);
        let shared = known.get_key_value(name).map(|(name, last)| (name.clone(), last.clone()));
        let (name, last) = shared.unwrap_or_else(|| (name.clone(), None));
        if let Some(last) = last.filter(|last| last == settings) {
            return (name, last);
        }
        if known.len() < MAX_NAMES || known.contains_key(&name) {
            known.insert(name.clone(), Some(settings.clone()).filter(|it| it.len() <= MAX_SETTINGS));
        }
        (name, settings.clone())
    }

    /// A condition, the same as a recent one where that is equal: thousands of proxies may ask for the same methods and
    /// headers.
    pub(super) fn condition(&self, condition: Condition) -> Arc<Condition> {
        let mut known = locked(&self.conditions);
        if let Some(same) = known.iter().filter_map(Weak::upgrade).find(|other| **other == condition) {
            return same;
        }
        let made = Arc::new(condition);
        known.truncate(RECENT_CONDITIONS - 1);
        known.push_front(Arc::downgrade(&made));
        made
    }

    /// The same target as that of the proxy before, where it is the same: a million proxies may lead to a few servers.
    pub(super) fn target(&self, target: TargetRules) -> Arc<TargetRules> {
        let mut last = locked(&self.target);
        match &*last {
            Some(known) if **known == target => known.clone(),
            _ => last.insert(Arc::new(target)).clone(),
        }
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_of_one_configuration_are_one_and_those_of_two_are_two() {
        let (one, other) = (SharedValues::default(), SharedValues::default());
        let target = || TargetRules::new("a.test".into(), 80);
        let first = one.target(target());
        assert!(Arc::ptr_eq(&first, &one.target(target())));
        assert!(!Arc::ptr_eq(&first, &other.target(target())));
        let settings = || PluginSettings::new(&serde_json::json!({"limit": 1}));
        let (name, _) = one.plugin(&"plain".into(), &settings());
        assert!(Arc::ptr_eq(&name, &one.plugin(&"plain".into(), &settings()).0));
        assert!(!Arc::ptr_eq(&name, &other.plugin(&"plain".into(), &settings()).0));
    }
}
