//! Conditions that are asked of the request alone, and why others can't be said.

use super::acl::{Term, Ways};
use super::why::Why;
use crate::cond::Cond;

/// What is asked of the request, where nothing else is; `None` when something is not known here.
pub(super) fn plain(ways: &Ways) -> Option<Cond> {
    let mut any = Cond::Never;
    for way in ways {
        let mut all = Cond::Always;
        for (holds, term) in way {
            let Term::Asks(cond) = term else { return None };
            all = all.and(if *holds { cond.clone() } else { cond.clone().negate() });
        }
        any = any.or(all);
    }
    (any.depth() <= 14).then_some(any)
}

/// What is asked of the request, where nothing else is; or why that can't be said.
pub(super) fn told(ways: &Ways) -> Result<Cond, Why> {
    plain(ways).ok_or_else(|| unknown(ways).unwrap_or(Why::Untranslated))
}

/// Why one of the parts of a condition is not known.
pub(super) fn unknown(ways: &Ways) -> Option<Why> {
    ways.iter()
        .flatten()
        .find_map(|(_, term)| if let Term::Unknown(why) = term { Some(why.clone()) } else { None })
}
