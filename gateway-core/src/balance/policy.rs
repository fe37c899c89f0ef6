//! The one trait all algorithms share.

use std::fmt::Debug;

use super::field::Field;

/// Says which target comes next. Never called for a group of one.
pub(super) trait Policy: Debug + Send + Sync {
    /// The index of an open target of the field; `None` when no target is open.
    fn pick(&self, field: &Field<'_>) -> Option<usize>;
}
