//! What a pipeline may be given beside the way to targets.

use std::sync::Arc;

use super::Pipeline;
use crate::http::challenge::Challenges;
use crate::http::exchange::Exchange;
use crate::http::reply::Reply;
use crate::http::upstream::Upstream;
use crate::pipeline::revocation::Current;

impl<U: Upstream> Pipeline<U> {
    /// Ends what goes on under a configuration that no longer holds, by looking at the one in use.
    #[must_use]
    pub fn with_current(self, current: Arc<dyn Current>) -> Self {
        Self { current: Some(current), ..self }
    }

    /// Answers these challenges before anything else looks at a request.
    #[must_use]
    pub fn with_challenges(self, challenges: Challenges) -> Self {
        Self { challenges, ..self }
    }

    /// Answers a request that is a challenge.
    #[inline]
    pub(super) fn challenged(&self, exchange: &Exchange) -> Result<(), Box<Reply>> {
        self.challenges.reply(exchange).map_or(Ok(()), |reply| Err(Box::new(reply)))
    }
}
