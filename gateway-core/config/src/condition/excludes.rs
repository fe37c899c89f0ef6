//! Whether two conditions can't hold for one request.

use super::{Condition, ConditionPart};
use crate::pattern::{PathPattern, hosts_overlap};

pub(super) fn conditions(a: &Condition, b: &Condition) -> bool {
    // `any` excludes what each of its choices excludes.
    let by_any = |a: &Condition, b: &Condition| {
        a.parts.iter().any(|part| match part {
            ConditionPart::Any(choices) => choices.iter().all(|choice| conditions(choice, b)),
            // What is denied holds for all that the other means.
            ConditionPart::Not(denied) => denied.parts.iter().all(|part| b.parts.contains(part)),
            _ => false,
        })
    };
    a.parts.iter().any(|a| b.parts.iter().any(|b| parts(a, b))) || by_any(a, b) || by_any(b, a)
}

fn parts(a: &ConditionPart, b: &ConditionPart) -> bool {
    match (a, b) {
        (ConditionPart::Methods(a), ConditionPart::Methods(b)) => !a.iter().any(|method| b.contains(method)),
        (
            ConditionPart::Path { pattern: PathPattern::Exact(path), .. },
            ConditionPart::Path { pattern: other, .. },
        )
        | (
            ConditionPart::Path { pattern: other, .. },
            ConditionPart::Path { pattern: PathPattern::Exact(path), .. },
        ) => !other.covers(path),
        (ConditionPart::Hosts(a), ConditionPart::Hosts(b))
        | (ConditionPart::ServerNames(a), ConditionPart::ServerNames(b)) => !hosts_overlap(a, b),
        (ConditionPart::Encrypted(a), ConditionPart::Encrypted(b)) => a != b,
        (ConditionPart::Ports(a), ConditionPart::Ports(b)) => !a.iter().any(|port| b.contains(port)),
        (ConditionPart::Encrypted(false), ConditionPart::ServerNames(_) | ConditionPart::Certificate(_))
        | (ConditionPart::ServerNames(_) | ConditionPart::Certificate(_), ConditionPart::Encrypted(false)) => {
            true
        }
        (ConditionPart::Header(a, x), ConditionPart::Header(b, y)) => a == b && x.excludes(y),
        (ConditionPart::Query(a, x), ConditionPart::Query(b, y))
        | (ConditionPart::Cookie(a, x), ConditionPart::Cookie(b, y)) => a == b && x.excludes(y),
        (ConditionPart::QueryString(x), ConditionPart::QueryString(y))
        | (ConditionPart::Authority(x), ConditionPart::Authority(y)) => x.excludes(y),
        (
            ConditionPart::Grpc { service: s, method: m, .. },
            ConditionPart::Grpc { service: t, method: n, .. },
        ) => {
            s.as_ref().zip(t.as_ref()).is_some_and(|(a, b)| a != b)
                || m.as_ref().zip(n.as_ref()).is_some_and(|(a, b)| a != b)
        }
        (ConditionPart::ContentTypes(a), ConditionPart::ContentTypes(b)) => !a.iter().any(|a| {
            let same = |a: &str, b: &str| a.is_empty() || b.is_empty() || a.eq_ignore_ascii_case(b);
            b.iter().any(|b| same(&a.main, &b.main) && same(&a.sub, &b.sub))
        }),
        (ConditionPart::Clients(a), ConditionPart::Clients(b))
        | (ConditionPart::Addresses(a), ConditionPart::Addresses(b)) => {
            !a.iter().any(|a| b.iter().any(|b| a.contains(b) || b.contains(a)))
        }
        (ConditionPart::Certificate(a), ConditionPart::Certificate(b)) => {
            let apart = |x: &Option<super::Text>, y: &Option<super::Text>| {
                x.as_ref().zip(y.as_ref()).is_some_and(|(x, y)| x.excludes(y))
            };
            // A certificate may have several alternative names, so that they exclude nothing.
            a.present != b.present || apart(&a.subject, &b.subject) || apart(&a.common_name, &b.common_name)
        }
        (ConditionPart::Statuses(a), ConditionPart::Statuses(b)) => {
            !a.iter().any(|(low, high)| b.iter().any(|(l, h)| low <= h && l <= high))
        }
        _ => false,
    }
}
