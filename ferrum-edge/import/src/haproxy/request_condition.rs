//! Conditions over nothing else than the request, and why others are not converted.

use super::acl::{Term, Ways};
use super::why::Why;
use crate::cond::Cond;

/// The condition, if it is over the request alone; `None` if a part of it is not.
pub(super) fn request_cond(ways: &Ways) -> Option<Cond> {
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

/// As [`request_cond`], with the reason why it is not converted.
pub(super) fn convert(ways: &Ways) -> Result<Cond, Why> {
    request_cond(ways).ok_or_else(|| why_not_converted(ways).unwrap_or(Why::NotConverted))
}

/// Why the first part of a condition that is not converted is not.
pub(super) fn why_not_converted(ways: &Ways) -> Option<Why> {
    ways.iter()
        .flatten()
        .find_map(|(_, term)| if let Term::NotConverted(why) = term { Some(why.clone()) } else { None })
}
