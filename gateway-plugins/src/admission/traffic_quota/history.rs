//! The bytes of each minute of the last 7 days, and of each hour of the last 90 days.

use std::collections::VecDeque;

pub(super) use gateway_core::plugin::world::usage::HistoryStep as Step;
use serde::{Deserialize, Serialize};

const MINUTES: u32 = Step::Minute.steps_kept() as u32;
const HOURS: u32 = Step::Hour.steps_kept() as u32;

/// The history of one key. Times without bytes take no room.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct History {
    minutes: Series,
    hours: Series,
}

/// Bytes by time, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Series {
    at: VecDeque<u32>,
    bytes: VecDeque<u64>,
}

impl Series {
    fn add(&mut self, at: u32, bytes: u64, kept: u32) {
        match (self.at.back(), self.bytes.back_mut()) {
            // A clock that was set back adds to what is there.
            (Some(last), Some(sum)) if *last >= at => *sum = sum.saturating_add(bytes),
            _ => {
                self.at.push_back(at);
                self.bytes.push_back(bytes);
            }
        }
        while self.at.front().is_some_and(|first| first.saturating_add(kept) <= at)
            || self.at.len() > kept as usize
        {
            self.at.pop_front();
            self.bytes.pop_front();
        }
    }
}

impl History {
    /// Adds what passed since the last time; `now` in seconds since 1970.
    pub(super) fn add(&mut self, now: u64, bytes: u64) {
        let at = |step: Step| u32::try_from(now / step.seconds()).unwrap_or(u32::MAX);
        self.minutes.add(at(Step::Minute), bytes, MINUTES);
        self.hours.add(at(Step::Hour), bytes, HOURS);
    }

    /// Adds the bytes of one minute or hour, counted from 1970. To be called in the order of time.
    pub(super) fn add_step(&mut self, step: Step, at: u64, bytes: u64) {
        let at = u32::try_from(at).unwrap_or(u32::MAX);
        match step {
            Step::Minute => self.minutes.add(at, bytes, MINUTES),
            Step::Hour => self.hours.add(at, bytes, HOURS),
        }
    }

    /// Adds another history, of later times.
    pub(super) fn append(&mut self, later: &Self) {
        for step in [Step::Minute, Step::Hour] {
            for (at, bytes) in later.list(step, 0) {
                self.add_step(step, at / step.seconds(), bytes);
            }
        }
    }

    /// The beginnings of times in seconds since 1970, and the bytes that passed in them, from `since` on.
    pub(super) fn list(&self, step: Step, since: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let series = match step {
            Step::Minute => &self.minutes,
            Step::Hour => &self.hours,
        };
        let all = series.at.iter().zip(&series.bytes);
        all.map(move |(at, bytes)| (u64::from(*at) * step.seconds(), *bytes))
            .filter(move |(at, _)| *at >= since)
    }

    /// Whether a file that was read makes sense.
    pub(super) fn is_sound(&self) -> bool {
        let is_sound = |series: &Series, most: u32| {
            series.at.len() == series.bytes.len()
                && series.at.len() <= most as usize
                && series.at.iter().zip(series.at.iter().skip(1)).all(|(a, b)| a < b)
        };
        is_sound(&self.minutes, MINUTES) && is_sound(&self.hours, HOURS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_times_are_forgotten_and_others_summed() {
        let mut history = History::default();
        let begun = 1_800_000_000 / 3600 * 3600;
        for minute in 0..MINUTES as u64 + 100 {
            history.add(begun + minute * 60, 1);
            history.add(begun + minute * 60 + 59, 2);
        }
        let minutes: Vec<_> = history.list(Step::Minute, 0).collect();
        assert_eq!((minutes.len(), minutes[0]), (MINUTES as usize, (begun + 6000, 3)));
        let hours: Vec<_> = history.list(Step::Hour, begun + 7200).collect();
        assert_eq!((hours.len(), hours[0]), (168, (begun + 7200, 180)));
        history.add(begun, 7);
        assert!(history.is_sound());
        history.minutes.at.pop_back();
        assert!(!history.is_sound());
    }
}
