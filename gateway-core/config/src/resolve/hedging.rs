//! Hedging of a proxy.

use std::sync::Arc;
use std::time::Duration;

use http::Method;

use super::{Notes, words};
use crate::file;
use crate::model::{Hedging, Traffic};

/// Rules for hedging; refused where they could have no effect, or would have something carried out twice.
pub(super) fn hedging(
    notes: &mut Notes<'_>,
    written: &file::Hedging,
    traffic: Option<&Traffic>,
) -> Option<Hedging> {
    if matches!(traffic, Some(Traffic::Stream(_))) {
        notes.add("hedging", "only requests over HTTP are hedged").remedy = Some("remove it".to_owned());
        return None;
    }
    let methods = match &written.methods {
        Some(methods) => words::methods(notes, "hedging.methods", methods),
        None => vec![Method::GET, Method::HEAD, Method::OPTIONS],
    };
    const HEDGED: [Method; 5] = [Method::GET, Method::HEAD, Method::OPTIONS, Method::PUT, Method::DELETE];
    for method in methods.iter().filter(|method| !HEDGED.contains(method)) {
        notes.add("hedging.methods", format!("{method} may not be carried out twice")).remedy =
            Some("leave it out; unary gRPC methods go to `grpc_methods`".to_owned());
    }
    let grpc_methods = grpc_methods(notes, "hedging.grpc_methods", written.grpc_methods.as_deref());
    if methods.is_empty() && grpc_methods.is_empty() {
        notes.add("hedging.methods", "no request is hedged").remedy = Some("remove `hedging`".to_owned());
    }
    Some(Hedging {
        delay: words::millis(written.delay, Duration::from_millis(100)),
        percentile: written.delay_percentile,
        max_hedges: written.max_hedges.unwrap_or(1),
        budget_percent: written.budget_percent.unwrap_or(5),
        methods,
        grpc_methods,
        max_body: written.max_body.map_or(64 << 10, |bytes| bytes.0),
    })
}

/// The paths of the gRPC methods at `key`.
pub(super) fn grpc_methods(notes: &mut Notes<'_>, key: &str, written: Option<&[String]>) -> Vec<Arc<str>> {
    let names = written.unwrap_or_default();
    let mut found = Vec::with_capacity(names.len());
    for (n, name) in names.iter().enumerate() {
        let parts = name.trim_start_matches('/').split_once('/');
        match parts.filter(|(service, method)| is_name(service, ".") && is_name(method, "")) {
            Some((service, method)) => found.push(format!("/{service}/{method}").into()),
            None => {
                notes.add(&format!("{key}[{n}]"), format!("`{name}` is not a gRPC method")).remedy =
                    Some("write the service and the method, such as `shop.Catalog/GetItem`".to_owned());
            }
        }
    }
    found
}

/// Whether it is a name of letters, digits and `_`, with `also` in between.
fn is_name(text: &str, also: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || also.contains(c))
}
