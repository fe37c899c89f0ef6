//! What plugins keep of one exchange or session.

use std::any::Any;

use smallvec::SmallVec;

/// A plugin's place in a chain, beginning at 1, under which its state is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeatNumber(pub(crate) u16);

/// Values that plugins keep, each in its own seat: two configs of one plugin don't see each other's.
#[derive(Default)]
pub struct PluginState(SmallVec<[(u16, Box<dyn Any + Send + Sync>); 2]>);

impl PluginState {
    /// Whether no plugin keeps anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps `value` for this seat, replacing an earlier one.
    pub fn put<T: Any + Send + Sync>(&mut self, seat: impl Into<SeatNumber>, value: T) {
        let boxed: Box<dyn Any + Send + Sync> = Box::new(value);
        let SeatNumber(own) = seat.into();
        match self.0.iter_mut().find(|(place, _)| *place == own) {
            Some(slot) => slot.1 = boxed,
            None => self.0.push((own, boxed)),
        }
    }

    /// The value this seat keeps, if it keeps one of this type.
    pub fn of<T: Any + Send + Sync>(&self, seat: impl Into<SeatNumber>) -> Option<&T> {
        let SeatNumber(own) = seat.into();
        self.0.iter().find(|(place, _)| *place == own).and_then(|(_, value)| value.downcast_ref())
    }

    /// The value this seat keeps, to be changed.
    pub fn of_mut<T: Any + Send + Sync>(&mut self, seat: impl Into<SeatNumber>) -> Option<&mut T> {
        let SeatNumber(own) = seat.into();
        let slot = self.0.iter_mut().find(|(place, _)| *place == own);
        slot.and_then(|(_, value)| value.downcast_mut())
    }
}

impl std::fmt::Debug for PluginState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "State({} values)", self.0.len())
    }
}
