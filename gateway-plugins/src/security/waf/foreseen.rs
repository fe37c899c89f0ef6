//! What the firewall would say of a request that is not sent: nothing is counted and nothing is written.

use gateway_core::http::reply::Reply;
use gateway_core::plugin::{Foreseen, Foresight};
use gateway_waf::Buffers;

use super::audit::matches_text;
use super::inspect::{body_encoded, body_too_large, is_encoded, is_multipart, with_head};
use super::settings::{Mode, OnTrouble};
use super::{Firewall, media};

impl Firewall {
    /// The verdict about head and body; `None` where the firewall is off.
    pub(super) fn foresee(&self, foresight: &Foresight<'_>) -> Option<Foreseen> {
        let dry_run = match self.policy.mode {
            Mode::Off => return None,
            Mode::Detect => true,
            Mode::Block => false,
        };
        let exchange = foresight.exchange;
        let has_body = self.policy.body.inspect && foresight.body_bytes > 0;
        if has_body && let Some((reply, why)) = self.body_refusal(foresight) {
            return Some(Foreseen::refuses(reply, why, dry_run));
        }
        let mut transaction = self.policy.transaction(Buffers::without_cache());
        self.policy.exclude(&mut transaction, exchange);
        with_head(exchange, |head| transaction.request_head(head));
        let body = foresight.body.filter(|_| has_body).unwrap_or_default();
        transaction.request_body(body);
        let objection = self.objection(&transaction);
        let report = transaction.report();
        let said = match report.matches.is_empty() {
            true => "no rule matches".to_owned(),
            false => format!("score {}: {}", report.score, matches_text(&report)),
        };
        Some(match objection {
            Some(why) => Foreseen::refuses(self.refusal(), format!("{why}: {said}"), dry_run),
            None if has_body && foresight.body.is_none() => {
                Foreseen::Unknown(format!("the body is inspected, and only its length is known; {said}"))
            }
            None => Foreseen::Passes(said),
        })
    }

    /// Why a body can't be inspected, where that refuses the request.
    fn body_refusal(&self, foresight: &Foresight<'_>) -> Option<(Reply, &'static str)> {
        let (policy, exchange) = (&self.policy.body, foresight.exchange);
        if is_encoded(exchange) {
            return (policy.encoded == OnTrouble::Reject).then(|| (body_encoded(), "the body is compressed"));
        }
        let limit = if is_multipart(exchange) { policy.max_upload } else { policy.max_size };
        let is_refused = foresight.body_bytes > limit
            && policy.over_limit == OnTrouble::Reject
            && !media::is_media_type(&exchange.request.headers);
        is_refused.then(|| (body_too_large(), "the body is larger than `body.max_size`"))
    }
}
