//! State that plugin configs keep over a change of their settings.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use super::Owner;

/// What plugins keep, by owner, name and type. Holds nothing alive: a value goes with the last plugin that has it, and
/// a plugin that is built and thrown away leaves no trace.
#[derive(Default)]
pub(super) struct Kept(Mutex<HashMap<Key, Weak<dyn Any + Send + Sync>>>);

#[derive(PartialEq, Eq, Hash)]
struct Key {
    owner: Owner,
    name: Box<str>,
    kind: TypeId,
}

/// Entries at which those of freed values are removed.
const SWEEP_AT: usize = 1024;

impl Kept {
    /// The one of this process. Owners of two gateways in one process that have the same name and id share their state.
    pub(super) fn global() -> &'static Self {
        static KEPT: LazyLock<Kept> = LazyLock::new(Kept::default);
        &KEPT
    }

    /// The value kept under this name, or a new one.
    pub(super) fn take<T: Send + Sync + 'static>(
        &self,
        owner: &Owner,
        name: &str,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let key = Key { owner: owner.clone(), name: name.into(), kind: TypeId::of::<T>() };
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
