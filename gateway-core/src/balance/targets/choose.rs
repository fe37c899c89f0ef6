//! Choosing a part of the targets.

use std::sync::Arc;

use tokio::time::Instant;

use super::Targets;
use crate::balance::subset::{Fallback, NoSubset, Subset};
use crate::health::Breakers;

impl Targets {
    /// The targets of a subset among those that the proxy uses; `Ok(None)` is any of these.
    ///
    /// # Errors
    /// When none is healthy and there is nothing to fall back to.
    pub fn choose(
        &self,
        subset: &Subset,
        used: Option<&[bool]>,
        breakers: Option<&Breakers>,
        now: Instant,
    ) -> Result<Option<Arc<[bool]>>, NoSubset> {
        let mut subset = subset;
        loop {
            let mask = self.members(subset, used);
            let mut members = mask.iter().enumerate().filter(|(_, is_member)| **is_member).peekable();
            let is_empty = members.peek().is_none();
            let is_well = members.any(|(index, _)| {
                self.list().get(index).is_some_and(|target| target.is_healthy(now))
                    && breakers.is_none_or(|breakers| breakers.admits(index, now))
            });
            if is_well {
                return Ok(Some(mask));
            }
            subset = match &subset.fallback {
                Fallback::Other(other) => other,
                Fallback::Any => return Ok(None),
                Fallback::Refuse if is_empty => return Err(NoSubset::Empty),
                Fallback::Refuse => return Err(NoSubset::Unhealthy),
            };
        }
    }

    fn members(&self, subset: &Subset, used: Option<&[bool]>) -> Arc<[bool]> {
        let mask = self.subsets.mask(subset, self.list());
        match used {
            None => mask,
            Some(used) => mask.iter().zip(used).map(|(member, used)| *member && *used).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
