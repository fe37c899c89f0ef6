//! What becomes of a response: stored, confirmed, replaced by a stored one, or let pass.

use std::sync::Arc;
use std::time::SystemTime;

use gateway_core::http::body::Body;
use gateway_core::http::exchange::Exchange;
use gateway_core::plugin::{Seat, Step};
use http::header::{CONTENT_LOCATION, LOCATION, SET_COOKIE};
use http::{HeaderMap, Response, StatusCode, Uri};
use tokio::time::Instant;

use super::ResponseCache;
use super::answer::{self, How};
use super::control::RequestControl;
use super::fill::{self, Fill, Plan};
use super::flights::Lead;
use super::key::{Chooser, Key, normal_authority};
use super::policy::{self, Use};
use super::purge;
use super::stored::{Head, Stored};
use super::visit::{CacheVisit, Fetch, Role, TAKEN, put_back};

/// Whether a stored response may stand in for one that failed.
fn serves(known: &Stored, now: Instant) -> bool {
    known.head.policy.serves_errors(known.head.age(now), known.stale_for(now))
}

impl ResponseCache {
    /// A response came.
    pub(super) fn answered<'a>(
        &'a self,
        visit: CacheVisit,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        match visit.role {
            Role::Unsafe => {
                let status = response.status();
                if exchange.is_from_target() && (status.is_success() || status.is_redirection()) {
                    self.forget(&visit.key, response.headers());
                }
                Step::Next
            }
            Role::Bypass(why, detail) => {
                let how = How::Forwarded(why, Err(detail));
                self.labels.put(response.headers_mut(), how, None, None);
                self.note(exchange, how);
                Step::Next
            }
            Role::Fetch(mut fetch) => {
                let taken = std::mem::take(&mut fetch.taken);
                put_back(&mut exchange.request.headers, taken, &TAKEN);
                self.fetched(visit.key, *fetch, exchange, response, seat)
            }
        }
    }

    /// Removes what an unsafe request has made wrong (RFC 9111 §4.4).
    fn forget(&self, key: &Key, headers: &HeaderMap) {
        self.store.invalidate(key, None);
        for name in [LOCATION, CONTENT_LOCATION] {
            let named = headers.get(name).and_then(|value| value.to_str().ok());
            if let Some(target) = named.and_then(|reference| target_at(reference, key.host())) {
                self.store.invalidate(key, Some(&target));
            }
        }
    }

    /// A response to be stored, if it may be.
    fn fetched<'a>(
        &'a self,
        key: Key,
        fetch: Fetch,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let now = Instant::now();
        let status = response.status();
        let is_failure = matches!(status.as_u16(), 500 | 502..=504);
        // What the operator wants stored is, unless something better is there.
        let is_stored = || {
            self.rules.stores_failure(status) && !fetch.known.as_ref().is_some_and(|known| serves(known, now))
        };
        if !exchange.is_from_target() || (is_failure && !is_stored()) {
            return self.failed(fetch, exchange, response, now);
        }
        if status == StatusCode::NOT_MODIFIED && fetch.asks_again {
            let stored = fetch.known.as_ref().map(|known| &known.head.headers);
            if stored.is_some_and(|stored| answer::is_about_another(stored, response.headers())) {
                self.fetch_anew(key, fetch, exchange, seat);
                return Step::Next;
            }
            self.revalidated(key, fetch, exchange, response, now);
            return Step::Next;
        }
        let stored = self.store_it(&key, fetch, exchange, response, now, seat);
        let how = match stored {
            Ok(why) => How::Forwarded(why, Ok(())),
            Err((why, detail)) => How::Forwarded(why, Err(detail)),
        };
        self.labels.put(response.headers_mut(), how, None, None);
        self.note(exchange, how);
        Step::Next
    }

    /// Stores a response while it goes to the client; says why it was fetched.
    fn store_it(
        &self,
        key: &Key,
        fetch: Fetch,
        exchange: &Exchange,
        response: &mut Response<Body>,
        now: Instant,
        seat: Seat<'_>,
    ) -> Result<&'static str, (&'static str, &'static str)> {
        let Fetch { mut lead, known, start, why, asker, accept_encoding, .. } = fetch;
        let clock = SystemTime::now();
        let took = now.saturating_duration_since(exchange.started);
        let judged = self.rules.judge(response.status(), response.headers(), asker, clock, took);
        let head = judged.and_then(|policy| {
            let tags = purge::tags(response.headers()).ok_or("TAGS")?;
            let names = policy::vary(response.headers()).ok_or("VARY")?;
            let chooser = Chooser { headers: &exchange.request.headers, accept_encoding };
            let headers = answer::stored_headers(response.headers(), self.rules.strips_set_cookie, clock);
            let variant = chooser.variant(names);
            Ok(Arc::new(Head { status: response.status(), headers, policy, received: now, variant, tags }))
        });
        let head = match head {
            Ok(head) => head,
            Err(detail) => {
                // What depends on who asked says nothing about others.
                let is_usable = known.is_some_and(|known| {
                    let age = known.head.age(now);
                    known.head.policy.allows(age, known.stale_for(now), &RequestControl::default())
                        == Use::Fresh
                });
                if !is_usable && !matches!(detail, "CREDENTIALS" | "COOKIE") {
                    self.store.pass(key, now);
                }
                settle(&lead);
                return Err((why, detail));
            }
        };
        let plan = Plan {
            store: self.store.clone(),
            key: key.clone(),
            start,
            limit: self.store.limits().object,
            within: fill::time_for(seat.proxy().timeouts.total),
            lead: lead.take(),
        };
        match fill::begin(head.clone(), std::mem::take(response.body_mut()), plan) {
            Ok(body) => *response.body_mut() = body,
            Err(body) => {
                *response.body_mut() = body;
                return Err((why, "SIZE"));
            }
        }
        if answer::conditional_is_met(&head, exchange.method(), &exchange.request.headers) {
            answer::not_modified(response);
        }
        Ok(why)
    }

    /// The target failed: a stored response stands in for it where it may.
    fn failed<'a>(
        &self,
        fetch: Fetch,
        exchange: &mut Exchange,
        response: &mut Response<Body>,
        now: Instant,
    ) -> Step<'a> {
        settle(&fetch.lead);
        if let Some(known) = fetch.known.filter(|known| serves(known, now)) {
            let answer = self.kept_answer(&known, exchange, now, How::Failing, None);
            return Step::Reply(Box::new(self.reply(exchange, answer, How::Failing)));
        }
        let how = How::Forwarded(fetch.why, Err("FAILED"));
        self.labels.put(response.headers_mut(), how, None, None);
        self.note(exchange, how);
        Step::Next
    }

    /// The target says that what is stored is still right.
    fn revalidated(
        &self,
        key: Key,
        fetch: Fetch,
        exchange: &mut Exchange,
        response: &mut Response<Body>,
        now: Instant,
    ) {
        let Some(known) = fetch.known else { return };
        let clock = SystemTime::now();
        let headers = answer::freshened(&known.head.headers, response.headers(), clock);
        let took = now.saturating_duration_since(exchange.started);
        // The 304 may say what else the response depends on (RFC 9111 §4.1). What is stored would be found by less.
        let chooser = Chooser { headers: &exchange.request.headers, accept_encoding: fetch.accept_encoding };
        let variant = chooser.variant(policy::vary(&headers).unwrap_or_default());
        let varies_anew = variant != known.head.variant;
        let mut current = known.clone();
        match self.rules.judge(known.head.status, &headers, fetch.asker, clock, took) {
            Ok(policy) => {
                let tags = purge::tags(&headers).unwrap_or_default();
                let head = Head { status: known.head.status, headers, policy, received: now, variant, tags };
                current = Arc::new(Stored::new(Arc::new(head), known.body.clone()));
                if varies_anew {
                    self.store.put_alone(&key, current.clone(), fetch.start);
                } else {
                    self.store.put(&key, current.clone(), fetch.start);
                }
            }
            Err("CREDENTIALS" | "COOKIE") if varies_anew => self.store.invalidate(&key, None),
            Err("CREDENTIALS" | "COOKIE") => {}
            Err(_) => self.store.pass(&key, now),
        }
        settle(&fetch.lead);
        let mut answer = self.kept_answer(&current, exchange, now, How::Revalidated, None);
        // What is meant for this client alone.
        for cookie in response.headers().get_all(SET_COOKIE) {
            answer.headers_mut().append(SET_COOKIE, cookie.clone());
        }
        *response = answer;
        self.note(exchange, How::Revalidated);
    }
}

/// Lets those behind look for themselves.
fn settle(lead: &Option<Lead<Fill>>) {
    if let Some(lead) = lead {
        lead.settle();
    }
}

/// Path and query of a reference to the same host.
fn target_at(reference: &str, host: &str) -> Option<String> {
    let is_path = reference.starts_with('/') && !reference.starts_with("//");
    let uri: Uri = reference.parse().ok()?;
    if !is_path && normal_authority(uri.authority()?.as_str(), uri.scheme_str().unwrap_or_default()) != host {
        return None;
    }
    let target = uri.path_and_query()?.as_str();
    gateway_core::http::path::normalise(target, false).ok().map(|normal| normal.text.into_owned())
}
