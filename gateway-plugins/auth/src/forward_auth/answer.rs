//! What another server's answer means.

use std::sync::Arc;

use bytes::Bytes;
use gateway_core::consumer::{Consumers, Identity};
use gateway_core::http::body::Body;
use gateway_core::http::reply::{Cause, Reply, final_status};
use gateway_plugin_common::headers;
use http::header::{CONNECTION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, Response, StatusCode};

use super::question::Convention;

/// Whether a request may pass.
pub(super) enum AuthDecision {
    Pass,
    /// The client gets this.
    Refuse(Box<Reply>),
    /// It is none: the other server failed.
    Failed,
}

/// Which of a refusal's fields the client gets; `None` is all.
pub(super) type Shown = Option<Vec<HeaderName>>;

pub(super) fn judge(convention: Convention, response: &Response<Bytes>, shown: &Shown) -> AuthDecision {
    let status = response.status();
    if final_status(status.as_u16()).is_none() {
        return AuthDecision::Failed;
    }
    match convention {
        Convention::Traefik if status.is_success() => AuthDecision::Pass,
        Convention::Traefik if status.is_server_error() => AuthDecision::Failed,
        Convention::Traefik => AuthDecision::Refuse(refusal(response, shown)),
        Convention::Nginx if status.is_success() => AuthDecision::Pass,
        Convention::Nginx => match status {
            StatusCode::UNAUTHORIZED => {
                let mut reply = Reply::new(Cause::Unauthenticated).reason("forward_auth_refused");
                for challenge in response.headers().get_all(WWW_AUTHENTICATE) {
                    reply = reply.header(WWW_AUTHENTICATE, challenge.clone());
                }
                AuthDecision::Refuse(Box::new(reply))
            }
            StatusCode::FORBIDDEN => {
                AuthDecision::Refuse(Box::new(Reply::new(Cause::Forbidden).reason("forward_auth_refused")))
            }
            _ => AuthDecision::Failed,
        },
        Convention::EnvoyGrpc => AuthDecision::Failed,
        Convention::Envoy if status == StatusCode::OK => AuthDecision::Pass,
        Convention::Envoy if status.is_server_error() => AuthDecision::Failed,
        Convention::Envoy => AuthDecision::Refuse(refusal(response, shown)),
    }
}

/// The other server's response as a reply.
fn refusal(response: &Response<Bytes>, shown: &Shown) -> Box<Reply> {
    let cause = match response.status() {
        StatusCode::UNAUTHORIZED => Cause::Unauthenticated,
        StatusCode::FORBIDDEN => Cause::Forbidden,
        _ => Cause::Plugin,
    };
    let mut headers = HeaderMap::new();
    // What is about the connection to the other server is nothing to the client (RFC 9110 §7.6.1).
    let lines = response.headers().get_all(CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let named: Vec<&str> = lines.flat_map(|line| line.split(',')).map(str::trim).collect();
    let is_framing = |name: &HeaderName| {
        headers::is_framing(name) || named.iter().any(|named| named.eq_ignore_ascii_case(name.as_str()))
    };
    let is_shown = |name: &HeaderName| {
        let asked = shown.as_ref().is_none_or(|shown| shown.contains(name) || *name == WWW_AUTHENTICATE);
        asked && !is_framing(name)
    };
    for (name, value) in response.headers().iter().filter(|(name, _)| is_shown(name)) {
        headers.append(name, value.clone());
    }
    // A success that does not pass, such as Envoy's 204, must not look like one to the client.
    let status = match response.status() {
        status if status.is_success() => StatusCode::FORBIDDEN,
        status => status,
    };
    let mut reply = Reply::new(cause).status(status).reason("forward_auth_refused");
    (reply.headers, reply.body) = (headers, Some(Body::full(response.body().clone())));
    Box::new(reply)
}

/// Whom the answer names: the consumer of that name, or somebody the other server vouches for.
pub(super) fn caller(
    headers: &HeaderMap,
    name: &HeaderName,
    groups: Option<&HeaderName>,
    consumers: &Consumers,
) -> Option<Arc<Identity>> {
    let mut names = headers.get_all(name).iter();
    let (Some(value), None) = (names.next(), names.next()) else { return None };
    let name = value.to_str().ok().map(str::trim).filter(|name| !name.is_empty())?;
    let identity = consumers.by_name(name).map_or_else(|| Identity::external(name), |it| Identity::clone(it));
    let all = groups.into_iter().flat_map(|groups| headers.get_all(groups));
    let all = all.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    let groups = all.map(str::trim).filter(|group| !group.is_empty()).map(Arc::from).collect();
    Some(Arc::new(Identity { groups, ..identity }))
}
