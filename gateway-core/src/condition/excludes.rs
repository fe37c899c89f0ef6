//! Whether two conditions can't hold for one request.

use super::{Condition, Part};
use crate::route::{PathPattern, hosts_overlap};

pub(super) fn conditions(a: &Condition, b: &Condition) -> bool {
    // `any` excludes what each of its choices excludes.
    let by_any = |a: &Condition, b: &Condition| {
        a.parts.iter().any(|part| match part {
            Part::Any(choices) => choices.iter().all(|choice| conditions(choice, b)),
            // What is denied holds for all that the other means.
            Part::Not(denied) => denied.parts.iter().all(|part| b.parts.contains(part)),
            _ => false,
        })
    };
    a.parts.iter().any(|a| b.parts.iter().any(|b| parts(a, b))) || by_any(a, b) || by_any(b, a)
}

fn parts(a: &Part, b: &Part) -> bool {
    match (a, b) {
        (Part::Methods(a), Part::Methods(b)) => !a.iter().any(|method| b.contains(method)),
        (Part::Path(PathPattern::Exact(path)), Part::Path(other))
        | (Part::Path(other), Part::Path(PathPattern::Exact(path))) => !other.covers(path),
        (Part::Hosts(a), Part::Hosts(b)) | (Part::ServerNames(a), Part::ServerNames(b)) => {
            !hosts_overlap(a, b)
        }
        (Part::Encrypted(a), Part::Encrypted(b)) => a != b,
        (Part::Ports(a), Part::Ports(b)) => !a.iter().any(|port| b.contains(port)),
        (Part::Encrypted(false), Part::ServerNames(_) | Part::Certificate(_))
        | (Part::ServerNames(_) | Part::Certificate(_), Part::Encrypted(false)) => true,
        (Part::Header(a, x), Part::Header(b, y)) => a == b && x.excludes(y),
        (Part::Query(a, x), Part::Query(b, y)) | (Part::Cookie(a, x), Part::Cookie(b, y)) => {
            a == b && x.excludes(y)
        }
        (Part::QueryString(x), Part::QueryString(y)) | (Part::Authority(x), Part::Authority(y)) => {
            x.excludes(y)
        }
        (Part::Grpc { service: s, method: m }, Part::Grpc { service: t, method: n }) => {
            s.as_ref().zip(t.as_ref()).is_some_and(|(a, b)| a != b)
                || m.as_ref().zip(n.as_ref()).is_some_and(|(a, b)| a != b)
        }
        (Part::ContentTypes(a), Part::ContentTypes(b)) => !a.iter().any(|a| {
            let same = |a: &str, b: &str| a.is_empty() || b.is_empty() || a.eq_ignore_ascii_case(b);
            b.iter().any(|b| same(&a.main, &b.main) && same(&a.sub, &b.sub))
        }),
        (Part::Clients(a), Part::Clients(b)) | (Part::Addresses(a), Part::Addresses(b)) => {
            !a.iter().any(|a| b.iter().any(|b| a.contains(b) || b.contains(a)))
        }
        (Part::Certificate(a), Part::Certificate(b)) => {
            let apart = |x: &Option<super::Text>, y: &Option<super::Text>| {
                x.as_ref().zip(y.as_ref()).is_some_and(|(x, y)| x.excludes(y))
            };
            // A certificate may have several alternative names, so that they exclude nothing.
            a.present != b.present || apart(&a.subject, &b.subject) || apart(&a.common_name, &b.common_name)
        }
        (Part::Statuses(a), Part::Statuses(b)) => {
            !a.iter().any(|(low, high)| b.iter().any(|(l, h)| low <= h && l <= high))
        }
        _ => false,
    }
}
