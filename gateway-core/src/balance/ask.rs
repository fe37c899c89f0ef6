//! What is asked of an upstream.

use tokio::time::Instant;

use crate::health::Breakers;

/// What one pick is to consider.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'t, 'a> {
    /// The bytes [`super::Targets::hash_on`] names; without them consistent hashing takes each in turn.
    pub hash_key: Option<&'a [u8]>,
    /// Indexes this exchange tried already; avoided as long as another healthy target is left.
    pub tried: &'a [usize],
    /// The target to take before all others, as long as nothing speaks against it.
    pub preferred: Option<usize>,
    /// For each target whether the proxy uses it; `None` uses all.
    pub subset: Option<&'a [bool]>,
    /// The proxy's breakers, built for these targets.
    pub breakers: Option<&'t Breakers>,
    /// This moment.
    pub now: Instant,
}

impl Ask<'_, '_> {
    /// Any target will do.
    pub fn any(now: Instant) -> Self {
        Self { hash_key: None, tried: &[], preferred: None, subset: None, breakers: None, now }
    }

    pub(super) fn takes(&self, index: usize) -> bool {
        self.subset.is_none_or(|subset| subset.get(index).copied().unwrap_or(false))
    }
}
