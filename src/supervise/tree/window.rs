//! How many restarts in how much time: a window that slides with each restart.

use core::time::Duration;
use std::collections::VecDeque;

use crate::clock::Timestamp;

/// Restarts that still count. Holds at most one more than are allowed.
#[derive(Clone, Debug)]
pub(super) struct Window {
    max: u32,
    period: Duration,
    /// Until when each counts.
    until: VecDeque<Timestamp>,
    /// Those that count for ever: the period is too long to end.
    for_ever: u64,
}

impl Window {
    pub(super) fn new(max: u32, period: Duration) -> Self {
        Self { max, period, until: VecDeque::new(), for_ever: 0 }
    }

    pub(super) fn max(&self) -> u32 {
        self.max
    }

    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// A restart is to be made now. False: it is one too many within the period that ends now.
    ///
    /// One that lies exactly a period back still counts.
    #[must_use]
    pub(super) fn admit(&mut self, now: Timestamp) -> bool {
        while self.until.front().is_some_and(|until| *until < now) {
            self.until.pop_front();
        }
        // A sum that saturates is NEVER, which does not pass: a number is enough to remember it by.
        match now.saturating_add(self.period) {
            until if until.is_never() => self.for_ever += 1,
            until => self.until.push_back(until),
        }
        self.for_ever + self.until.len() as u64 <= u64::from(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ORIGIN.saturating_add(Duration::from_secs(seconds))
    }

    #[test]
    fn the_window_slides_with_each_restart() {
        let mut window = Window::new(2, Duration::from_secs(10));
        assert!(window.admit(at(0)));
        assert!(window.admit(at(9)));
        // A counter that starts anew with each quiet period, or each full one, would let this through or
        // refuse the next.
        assert!(!window.clone().admit(at(10)), "0, 9 and 10 lie within ten seconds");
        assert!(window.admit(at(11)), "only 9 and 11 do");
        assert!(!window.clone().admit(at(12)));
        assert!(window.admit(at(20)), "11 and 20");
        assert!(!window.admit(at(21)), "11, 20 and 21");
    }

    #[test]
    fn it_forgets_and_never_grows() {
        let mut window = Window::new(3, Duration::from_secs(1));
        for second in 0..10_000 {
            assert!(window.admit(at(2 * second)));
            assert!(window.until.len() <= 4);
        }
        let mut patient = Window::new(u32::MAX, Duration::MAX);
        for second in 0..10_000 {
            assert!(patient.admit(at(second)));
        }
        assert_eq!((patient.until.capacity(), patient.for_ever), (0, 10_000));
    }

    #[test]
    fn extremes() {
        assert!(!Window::new(0, Duration::MAX).admit(at(5)), "none is allowed");
        let mut for_ever = Window::new(2, Duration::MAX);
        assert!(for_ever.admit(at(0)));
        assert!(for_ever.admit(Timestamp::from_nanos(u64::MAX - 2)));
        assert!(!for_ever.admit(Timestamp::from_nanos(u64::MAX - 1)));
        let mut instant = Window::new(1, Duration::ZERO);
        assert!(instant.admit(at(1)));
        assert!(instant.admit(at(2)));
        assert!(!instant.admit(at(2)), "at the same moment");
    }
}
