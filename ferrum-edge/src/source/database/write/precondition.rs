//! Conditions of a write on the object as it is.

use gateway_core::config::catalog::ObjectKind;
use gateway_core::config::model::Id;

use super::WriteError;
use crate::store::Object;

/// What has to hold of the object as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precondition {
    /// Nothing.
    Any,
    /// There is none yet.
    Absent,
    /// There is one.
    Present,
    /// There is none yet: who asks made it a condition.
    IfNone,
    /// There is one: who asks made it a condition.
    IfAny,
    /// It was last changed by this revision: who asks made it a condition.
    Revision(u64),
}

impl Precondition {
    /// Holds it against the object of this kind and id; `at` is its place in the request.
    pub(super) fn check(
        self,
        kind: ObjectKind,
        id: &Id,
        at: &str,
        object: Option<&Object>,
    ) -> Result<(), WriteError> {
        let (id, at) = (id.to_string(), at.to_owned());
        match (self, object) {
            (Self::Any, _) | (Self::Absent | Self::IfNone, None) | (Self::Present | Self::IfAny, Some(_)) => {
                Ok(())
            }
            (Self::Absent, Some(_)) => Err(WriteError::Exists { kind, id, at }),
            (Self::Present, None) => Err(WriteError::NotFound { kind, id, at }),
            (Self::IfNone, Some(_)) => Err(WriteError::Condition(WriteError::Exists { kind, id, at }.into())),
            (Self::IfAny | Self::Revision(_), None) => {
                Err(WriteError::Condition(WriteError::NotFound { kind, id, at }.into()))
            }
            (Self::Revision(wanted), Some(object)) if object.revision == wanted => Ok(()),
            (Self::Revision(_), Some(object)) => {
                Err(WriteError::Changed { kind, id, revision: object.revision, at })
            }
        }
    }
}
