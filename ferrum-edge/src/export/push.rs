//! Metrics for those who don't scrape: pushed by OTLP, or as StatsD's lines over UDP, at an interval.
//!
//! What can't be sent is not kept: counters go on counting, and the next push has them.

mod otlp;
mod statsd;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use gateway_core::config::model::{Id, MetricsPush};
use gateway_core::config::problem::Problems;
use gateway_core::metrics::MetricVisitor;
use gateway_core::metrics::names::METRICS_PUSHED;
use gateway_core::plugin::World;
use gateway_core::plugin::world::Owner;
use gateway_core::plugin::world::meters::Counter;
use gateway_core::plugin::world::tasks::{TaskControl, TaskHandle, TaskName, Tasks};
use tokio::time::Instant;

/// Shows every metric; `false` once the gateway is gone.
pub(crate) type Scrape = Arc<dyn Fn(&mut dyn MetricVisitor) -> bool + Send + Sync>;

/// Where metrics are pushed to.
#[derive(Default)]
pub(crate) struct Pushes(Vec<Push>);

struct Push {
    to: To,
    kind: &'static str,
    interval: Duration,
    pushed: Counter,
    failed: Counter,
}

/// Why a push failed.
#[derive(Debug, thiserror::Error)]
enum PushError {
    #[error(transparent)]
    Otlp(#[from] otlp::OtlpPushError),
    #[error(transparent)]
    Statsd(#[from] statsd::StatsdPushError),
}

#[derive(Clone)]
enum To {
    Otlp(Arc<otlp::OtlpPush>),
    Statsd(Arc<statsd::StatsdPush>),
}

impl Pushes {
    /// Those of the settings. Counters began to count at `begun`, when the gateway did.
    ///
    /// # Errors
    /// What can't be used, such as a certificate.
    pub(crate) fn build(settings: &MetricsPush, begun: SystemTime, world: &World) -> Result<Self, Problems> {
        let count =
            |kind, outcome| world.meters().counter(METRICS_PUSHED, &["to", "outcome"], &[kind, outcome]);
        let push = |to, kind, interval| Push {
            to,
            kind,
            interval,
            pushed: count(kind, "sent"),
            failed: count(kind, "failed"),
        };
        let mut pushes = Vec::new();
        if let Some(rules) = &settings.otlp {
            let to = To::Otlp(Arc::new(otlp::OtlpPush::new(&rules.exporter, begun, world)?));
            pushes.push(push(to, "otlp", rules.push_interval));
        }
        if let Some(rules) = &settings.statsd {
            let to = To::Statsd(Arc::new(statsd::StatsdPush::new(rules, world)));
            pushes.push(push(to, "statsd", rules.push_interval));
        }
        Ok(Self(pushes))
    }

    /// Starts pushing; ends when what it returns is dropped.
    pub(crate) fn start(self, scrape: &Scrape, tasks: &dyn Tasks) -> Vec<TaskHandle> {
        self.0.into_iter().filter_map(|push| push.start(scrape.clone(), tasks)).collect()
    }
}

impl Push {
    fn start(self, scrape: Scrape, tasks: &dyn Tasks) -> Option<TaskHandle> {
        let (handle, control) = TaskControl::new();
        let config = self.kind.parse::<Id>().ok()?;
        let name = TaskName { owner: Owner { plugin: "metrics", config }, task: "push" };
        let push = Arc::new(self);
        let run = move |control| -> gateway_core::plugin::world::tasks::Run {
            let (push, scrape) = (push.clone(), scrape.clone());
            Box::pin(async move {
                push.run(&scrape, control).await;
                Ok(())
            })
        };
        tasks.run(name, Box::new(run), control);
        Some(handle)
    }

    /// Pushes until the task ends, and once more then.
    async fn run(&self, scrape: &Scrape, mut control: TaskControl) {
        let mut next = Instant::now() + self.interval;
        let mut failing = false;
        loop {
            let is_last = tokio::select! {
                () = control.ended() => true,
                () = tokio::time::sleep_until(next) => false,
            };
            next = Instant::now() + self.interval;
            let pushed = match &self.to {
                To::Otlp(to) => to.push(scrape).await.map_err(PushError::from),
                To::Statsd(to) => to.push(scrape).await.map_err(PushError::from),
            };
            match pushed {
                Ok(false) => return,
                Ok(true) => {
                    self.pushed.add(1);
                    control.health().works();
                    failing = false;
                }
                Err(error) => {
                    self.failed.add(1);
                    control.health().fails(&error.to_string());
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(to = self.kind, %error, "metrics can't be pushed");
                    }
                }
            }
            if is_last {
                return;
            }
        }
    }
}
