//! Responses of targets through the rules of phases 3 and 4.

use gateway_core::http::body::{Body, BodyError};
use gateway_core::http::exchange::Exchange;
use gateway_core::http::reply::{Cause, Reply};
use gateway_core::plugin::{Seat, Step, Verdict};
use gateway_waf::{ResponseHead, Transaction};
use http::Response;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, Entry, IF_RANGE, RANGE};

use super::Firewall;
use super::inspect::{Pending, version};
use super::policy::ResponsePolicy;
use super::settings::Mode;

impl ResponsePolicy {
    /// Whether the body is one to look at, if it is not compressed.
    fn takes(&self, response: &Response<Body>) -> bool {
        let headers = response.headers();
        let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let essence = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        self.max_size > 0 && !response.body().is_empty() && self.content_types.contains(&essence)
    }
}

impl Firewall {
    /// Has whoever answers send all of it: rules don't find in small pieces what they find in the whole.
    pub(super) fn ask_for_whole(&self, exchange: &mut Exchange) {
        if self.policy.response.as_ref().is_some_and(|policy| policy.max_size > 0) {
            for name in [RANGE, IF_RANGE] {
                exchange.request.headers.remove(name);
            }
        }
    }

    /// Has the target answer without compression, which rules can't see through.
    pub(super) fn ask_for_plain(&self, exchange: &mut Exchange, seat: Seat<'_>) {
        if self.policy.response.as_ref().is_none_or(|policy| policy.max_size == 0) {
            return;
        }
        let pending = exchange.state.of_mut::<Option<Pending>>(seat).and_then(Option::as_mut);
        if let (Some(pending), Entry::Occupied(field)) =
            (pending, exchange.request.headers.entry(ACCEPT_ENCODING))
        {
            pending.accepted = field.remove_entry_mult().1.collect();
        }
    }

    /// Inspects a target's response to a request that was inspected, also where it is given out again.
    pub(super) fn inspect_response<'a>(
        &'a self,
        exchange: &'a mut Exchange,
        response: &'a mut Response<Body>,
        seat: Seat<'a>,
    ) -> Step<'a> {
        let pending = exchange.state.of_mut::<Option<Pending>>(seat).and_then(Option::as_mut);
        // What compresses the response looks at what the client takes.
        let accepted = pending.map(|pending| std::mem::take(&mut pending.accepted)).unwrap_or_default();
        let headers = &mut exchange.request.headers;
        if !headers.contains_key(ACCEPT_ENCODING) {
            accepted.into_iter().for_each(|value| _ = headers.append(ACCEPT_ENCODING, value));
        }
        let is_targets = exchange.is_from_target() || exchange.is_replay();
        let Some(policy) = self.policy.response.as_ref().filter(|_| is_targets) else {
            return Step::Next;
        };
        let pending = exchange.state.of_mut::<Option<Pending>>(seat).and_then(Option::take);
        let Some(Pending { mut transaction, .. }) = pending else { return Step::Next };
        let headers: Vec<(&[u8], &[u8])> = (response.headers().iter())
            .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
            .collect();
        transaction.response_head(&ResponseHead {
            status: response.status().as_u16(),
            version: version(response.version()),
            headers: &headers,
        });
        let is_taken = policy.takes(response);
        let is_encoded = is_taken && response.headers().contains_key(CONTENT_ENCODING);
        if is_encoded {
            exchange.note("waf.not_inspected", "compressed response");
        }
        if transaction.is_refused() || !is_taken || is_encoded {
            transaction.response_body(b"");
            return self.conclude_response(exchange, transaction).map_or(Step::Next, Step::reply);
        }
        Step::wait(async move {
            // The rest of a longer body passes: it may never end.
            let seen = match response.body_mut().peek(policy.max_size).await {
                Ok(seen) => seen,
                Err(BodyError::NoRoom) => return Verdict::reply(Reply::new(Cause::Overloaded)),
                Err(BodyError::Refused(reply)) => return Verdict::Reply(reply),
                Err(_) => return Verdict::reply(Reply::new(Cause::UpstreamClosed)),
            };
            let ran = self.world.run_blocking(move || {
                transaction.response_body(&seen);
                transaction
            });
            match (ran.await, self.policy.mode) {
                (Ok(transaction), _) => {
                    self.conclude_response(exchange, transaction).map_or(Verdict::Next, Verdict::reply)
                }
                (Err(_), Mode::Block) => Verdict::reply(Reply::new(Cause::Overloaded)),
                (Err(_), Mode::Detect | Mode::Off) => Verdict::Next,
            }
        })
    }

    fn conclude_response(&self, exchange: &mut Exchange, transaction: Transaction) -> Option<Reply> {
        // What the request was denied for in `detect` was counted then.
        let denied = transaction.denied().is_some();
        let before = exchange.fields().iter().any(|(name, _)| *name == "waf.outcome");
        if transaction.matched_rules() > 0 {
            let why = (denied && !before).then_some("response_rules");
            self.audit.note(exchange, &transaction, why, self.policy.mode);
        }
        self.done(transaction);
        if !denied || before {
            return None;
        }
        if self.policy.mode == Mode::Block {
            self.outcomes.refused.add(1);
            return Some(Reply::new(Cause::UpstreamGarbage));
        }
        self.outcomes.would_refuse.add(1);
        None
    }
}
