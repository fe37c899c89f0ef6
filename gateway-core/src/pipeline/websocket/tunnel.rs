//! A WebSocket carried unopened: bytes pass as they come, and only where frames end is kept in mind.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use super::close_handshake::{self, ClosingDirection, Halfway};
use super::frame::{self, Scanner};
use super::{Codes, FAILED, GOING_AWAY, Rules, Switched};
use crate::stream::relay::{Carried, Clock, Direction, RelayOutcome, Watch, outcome};

/// Follows what the client gets.
#[derive(Debug, Default)]
struct Down {
    scanner: Scanner,
    /// The client has sent a Close frame itself: it expects no more than the end.
    expected: bool,
}

impl Watch for Down {
    fn passed(&mut self, bytes: &[u8]) {
        self.scanner.passed(bytes);
    }

    /// A target that goes without a word leaves the client guessing whose doing it was.
    fn final_bytes(&mut self) -> Option<Vec<u8>> {
        let unsaid = self.scanner.at_boundary() && !self.scanner.is_closed() && !self.expected;
        unsaid.then(|| frame::close(FAILED, false))
    }
}

pub(super) async fn carry(ends: Switched<'_>, rules: Rules<'_>, carried: &mut Carried) -> RelayOutcome {
    let Switched { client, target } = ends;
    let mut up = Direction::<Scanner>::default();
    let mut down = Direction::<Down>::default();
    let end = {
        let mut clock = Clock::new(rules.timeouts);
        let told = pin!(rules.drain.told());
        let mut drain = rules.drain.watch(told);
        let reborrowed = Switched { client: &mut *client, target: &mut *target };
        let (mut client, mut target) = rules.metered(reborrowed);
        poll_fn(|cx| {
            let before = *carried;
            let up_state = up.poll(cx, &mut client, &mut target, &mut (), &mut carried.up);
            down.watch.expected |= up.watch.is_closed();
            let down_state = down.poll(cx, &mut target, &mut client, &mut (), &mut carried.down);
            if let Some(end) = outcome(up_state, down_state) {
                return Poll::Ready(end);
            }
            if drain.poll(cx).is_ready() {
                return Poll::Ready(RelayOutcome::Drained);
            }
            clock.poll(cx, *carried != before)
        })
        .await
    };
    // What a quota stopped in the middle of a frame is not told more: that would be another frame's bytes.
    let is_whole = up.watch.at_boundary() && down.watch.scanner.at_boundary();
    if rules.cut.reason().is_some() && !is_whole {
        return end;
    }
    let codes = match end {
        RelayOutcome::Idle | RelayOutcome::Lifetime | RelayOutcome::Drained => Codes::both(GOING_AWAY),
        RelayOutcome::TargetReset => Codes { client: FAILED, target: GOING_AWAY },
        // The target sees that the client went without a Close frame, which is the truth.
        RelayOutcome::Closed
        | RelayOutcome::ClientReset
        | RelayOutcome::Refused
        | RelayOutcome::Violated
        | RelayOutcome::TooLarge => return end,
    };
    let halves = Halfway {
        up: ClosingDirection::of_tunnel(std::mem::take(&mut up.watch), &mut up),
        down: ClosingDirection::of_tunnel(std::mem::take(&mut down.watch.scanner), &mut down),
    };
    drop((up, down));
    // Boxed: a tunnel at rest should not carry the room for its end along.
    Box::pin(close_handshake::say(Switched { client, target }, halves, codes)).await;
    end
}
