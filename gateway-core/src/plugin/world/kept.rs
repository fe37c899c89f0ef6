//! State that plugin configs keep over a change of their settings.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Owner;

/// What plugins keep, by owner, name and type. Holds nothing alive: a value goes with the last plugin that has it, and
/// a plugin that is built and thrown away leaves no trace.
#[derive(Default)]
pub(super) struct KeptStates(Mutex<HashMap<Key, Weak<dyn Any + Send + Sync>>>);

#[derive(PartialEq, Eq, Hash)]
struct Key {
    /// `None` is all plugin configs together.
    owner: Option<Owner>,
    name: Box<str>,
    kind: TypeId,
}

/// Entries at which those of freed values are removed.
const SWEEP_AT: usize = 1024;

impl KeptStates {
    /// The value kept under this name, or a new one.
    pub(super) fn take<T: Send + Sync + 'static>(
        &self,
        owner: Option<&Owner>,
        name: &str,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let key = Key { owner: owner.cloned(), name: name.into(), kind: TypeId::of::<T>() };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = kept.get(&key).and_then(Weak::upgrade)
            && let Ok(value) = value.downcast::<T>()
        {
            return value;
        }
        if kept.len() >= SWEEP_AT && kept.len() == kept.capacity() {
            kept.retain(|_, value| value.strong_count() > 0);
        }
        let value = Arc::new(make());
        let weak: Weak<dyn Any + Send + Sync> = Arc::<T>::downgrade(&value);
        kept.insert(key, weak);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::World;

    #[test]
    fn state_is_a_plugin_configs_own_within_one_world() {
        let owner = |config: &str| Owner { plugin: "p", config: config.parse().expect("an id") };
        let world = World::default();
        let first = world.owned_by(owner("a")).kept("n", || 1);
        assert!(Arc::ptr_eq(&first, &world.owned_by(owner("a")).kept("n", || 2)), "kept over a change");
        assert_eq!(*world.owned_by(owner("b")).kept("n", || 2), 2, "another config has its own");
        assert_eq!(*World::default().owned_by(owner("a")).kept("n", || 3), 3, "another gateway has its own");
        let shared = world.shared("n", || 5);
        assert!(Arc::ptr_eq(&shared, &world.owned_by(owner("a")).shared("n", || 6)), "one for all configs");
        assert!(!Arc::ptr_eq(&shared, &first), "and nobody's own");
        drop(first);
        assert_eq!(*world.owned_by(owner("a")).kept("n", || 4), 4, "nobody held it any more");
    }
}
