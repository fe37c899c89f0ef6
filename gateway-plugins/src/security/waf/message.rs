//! Messages of WebSockets through the rules.

use bytes::Bytes;
use gateway_core::plugin::{Decision, Passage};
use gateway_core::stream::session::{Direction, Message, Session};
use gateway_waf::Transaction;

use super::Firewall;
use super::settings::Mode;

/// Messages that are larger than this are inspected on another thread.
const LARGE: usize = 2 << 10;
/// The close code for what breaks a rule (RFC 6455 §7.4.1).
const POLICY: u16 = 1008;

impl Firewall {
    /// Inspects a message of the client.
    pub(super) fn inspect_message<'a>(&'a self, _session: &'a Session, message: Message<'_>) -> Passage<'a> {
        if message.direction == Direction::Down {
            return Passage::Forward;
        }
        if message.payload.len() > LARGE {
            let payload = std::mem::take(message.payload);
            return Passage::Wait(Box::pin(self.large_message(payload)));
        }
        let mut transaction = self.transaction();
        transaction.message(message.payload);
        if self.takes_message(transaction) { Passage::Forward } else { Passage::Close(POLICY) }
    }

    async fn large_message(&self, payload: Bytes) -> Decision {
        let (mut transaction, read) = (self.transaction(), payload.clone());
        let ran = self.world.run_blocking(move || {
            transaction.message(&read);
            transaction
        });
        match ran.await {
            Ok(transaction) => match self.takes_message(transaction) {
                true => Decision::Forward(payload),
                false => Decision::Close(POLICY),
            },
            // With every thread busy it can't be looked at, and does not go on.
            Err(_) if self.policy.mode == Mode::Block => Decision::Close(POLICY),
            Err(_) => Decision::Forward(payload),
        }
    }

    /// Whether a message goes on.
    pub(super) fn takes_message(&self, transaction: Transaction) -> bool {
        let refused = self.objection(&transaction).is_some();
        self.audit.count(&transaction, false);
        self.done(transaction);
        let blocks = self.policy.mode == Mode::Block;
        let outcome = match (refused, blocks) {
            (false, _) => &self.outcomes.passed,
            (true, true) => &self.outcomes.refused,
            (true, false) => &self.outcomes.would_refuse,
        };
        outcome.add(1);
        !(refused && blocks)
    }
}
