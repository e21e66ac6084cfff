//! The word of a rate limit: up to when its time is spent.

use core::time::Duration;

use crossbeam_utils::CachePadded;

use super::error::{ConfigError, Limited};
use crate::clock::{Clock, nanos_saturating};
use crate::sync::atomic::{AtomicU64, Ordering};

/// So many in a time, and so many at once.
///
/// Kept as an interval in whole nanoseconds, rounded up: 3 a second are one every 333,333,334 ns. So
/// rates above a million a second come out lower, by up to 0.1 % at a million and more beyond. A period
/// of zero limits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    interval: u64,
    burst: u32,
}

impl Rate {
    /// `count` in each `period`, evenly. The burst is 1.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Rate`] if `count` is 0.
    pub fn per(count: u32, period: Duration) -> Result<Self, ConfigError> {
        if count == 0 {
            return Err(ConfigError::Rate);
        }
        let interval = nanos_saturating(period).div_ceil(u64::from(count));
        Ok(Self { interval, burst: 1 })
    }

    /// `count` a second, evenly. The burst is 1.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Rate`] if `count` is 0.
    pub fn per_second(count: u32) -> Result<Self, ConfigError> {
        Self::per(count, Duration::from_secs(1))
    }

    /// How many may come at once, after a pause. Defaults to 1: none but at the pace.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Burst`] if it is 0.
    pub fn burst(mut self, burst: u32) -> Result<Self, ConfigError> {
        if burst == 0 {
            return Err(ConfigError::Burst);
        }
        self.burst = burst;
        Ok(self)
    }

    /// The time between two at the pace.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        Duration::from_nanos(self.interval)
    }

    /// The most at once.
    #[must_use]
    pub const fn most_at_once(&self) -> u32 {
        self.burst
    }

    /// Up to when time is spent after `count` more at `now`, where it was up to `spent`.
    ///
    /// # Errors
    ///
    /// [`Limited`] if that is more than the burst ahead.
    #[inline]
    pub(super) fn after(&self, spent: u64, count: u32, now: u64) -> Result<u64, Limited> {
        let wide = |count: u32| u128::from(self.interval) * u128::from(count);
        let (cost, tolerance) = (wide(count), wide(self.burst));
        let base = spent.max(now);
        let after = u128::from(base) + cost;
        let ahead = after - u128::from(now);
        if ahead <= tolerance && (base < LAST || cost == 0) {
            return Ok(u64::try_from(after).unwrap_or(LAST).min(LAST));
        }
        // More than the burst is never there, and at the end of time nothing is.
        let over = ahead.saturating_sub(tolerance);
        let at = u64::try_from(u128::from(now) + over).ok();
        let is_possible = count <= self.burst && base < LAST;
        Err(Limited::new(
            at.filter(|at| is_possible && *at < LAST).map(|at| Duration::from_nanos(at - now)),
        ))
    }

    /// Up to when time is spent under the rate `to`, if it is up to `spent` under this one: as many
    /// permits ahead. Never the end of time, from which nothing comes back.
    pub(super) fn rescaled(&self, to: &Self, spent: u64, now: u64) -> u64 {
        let ahead = u128::from(spent.saturating_sub(now));
        let scaled = ahead
            .saturating_mul(u128::from(to.interval))
            // A limit that was none has nothing ahead.
            .checked_div(u128::from(self.interval))
            .unwrap_or(0);
        now.saturating_add(u64::try_from(scaled).unwrap_or(u64::MAX)).min(LAST)
    }

    /// How many of these `ahead` nanoseconds leave free of the burst.
    fn free(&self, ahead: u64) -> u32 {
        let tolerance = self.interval.saturating_mul(u64::from(self.burst));
        match tolerance.saturating_sub(ahead).checked_div(self.interval) {
            Some(count) => u32::try_from(count).unwrap_or(u32::MAX).min(self.burst),
            None => self.burst,
        }
    }
}

/// The last moment before "never". A word that says so stays there, and lets nothing through.
const LAST: u64 = u64::MAX - 1;

/// The word, and the rate beside it.
///
/// The word is the moment up to which time is spent, on the clock's own scale: what lies between now and
/// it is used up, what is left to the tolerance is free. Time moves on by itself, so nothing refills it.
#[derive(Debug)]
pub(super) struct Schedule {
    spent: CachePadded<AtomicU64>,
    interval: AtomicU64,
    burst: AtomicU64,
}

impl Schedule {
    pub(super) fn new(rate: Rate) -> Self {
        Self {
            spent: CachePadded::new(AtomicU64::new(0)),
            interval: AtomicU64::new(rate.interval),
            burst: AtomicU64::new(u64::from(rate.burst)),
        }
    }

    #[inline]
    pub(super) fn rate(&self) -> Rate {
        // ORDERING: Relaxed, both: a call that races a change may see either of each.
        Rate {
            interval: self.interval.load(Ordering::Relaxed),
            burst: self.burst.load(Ordering::Relaxed) as u32,
        }
    }

    /// Takes `count`. Returns the word before and after.
    #[inline]
    pub(super) fn take(&self, count: u32, clock: &impl Clock) -> Result<(u64, u64), Limited> {
        let rate = self.rate();
        self.refuse_early(&rate, count, clock)?;
        let now = clock.now().as_nanos();
        // ORDERING: Relaxed: only the number counts; the exchange checks it.
        let mut seen = self.spent.load(Ordering::Relaxed);
        loop {
            let after = rate.after(seen, count, now)?;
            // ORDERING: Relaxed: only the number changes hands.
            match self.spent.compare_exchange_weak(
                seen,
                after,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok((seen, after)),
                Err(now) => seen = now,
            }
        }
    }

    /// Refuses by the coarse clock, where it is far from time: then `now`, which is at most the lag
    /// ahead, would refuse, too. It never lets anything through: a coarse now would count as if the
    /// permits had been taken a little earlier than they were, and that is more than the rate.
    #[inline]
    fn refuse_early(&self, rate: &Rate, count: u32, clock: &impl Clock) -> Result<(), Limited> {
        // ORDERING: Relaxed: an old value lets it through to the exchange, or is as good as if this call
        // had come a little earlier.
        let spent = self.spent.load(Ordering::Relaxed);
        let coarse = clock.coarse().as_nanos();
        let late = coarse.saturating_add(nanos_saturating(clock.coarse_lag()));
        rate.after(spent, count, late).map(drop).map_err(|limited| {
            // From the coarse now: at most the lag too long, never too short.
            rate.after(spent, count, coarse).err().unwrap_or(limited)
        })
    }

    pub(super) fn check(&self, clock: &impl Clock) -> Result<(), Limited> {
        // ORDERING: Relaxed: an answer that may be out of date when it is read.
        let spent = self.spent.load(Ordering::Relaxed);
        self.rate().after(spent, 1, clock.now().as_nanos()).map(drop)
    }

    pub(super) fn available(&self, clock: &impl Clock) -> u32 {
        let rate = self.rate();
        let now = clock.now().as_nanos();
        // ORDERING: Relaxed: an answer that may be out of date when it is read.
        let ahead = self.spent.load(Ordering::Relaxed).saturating_sub(now);
        rate.free(ahead)
    }

    /// Undoes a take, unless the word has moved since.
    pub(super) fn give_back(&self, before: u64, after: u64) -> bool {
        // ORDERING: Relaxed, both: only the number changes hands.
        self.spent.compare_exchange(after, before, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Changes the rate; what is used up stays the same part of a permit.
    pub(super) fn change(&self, rate: Rate, clock: &impl Clock) {
        let now = clock.now().as_nanos();
        // ORDERING: Relaxed: two changes at once leave one of the two, or a part of each; whoever wants
        // neither serialises them.
        let old = self.interval.swap(rate.interval, Ordering::Relaxed);
        // ORDERING: Relaxed: see `rate`.
        self.burst.store(u64::from(rate.burst), Ordering::Relaxed);
        // ORDERING: Relaxed: as in `take`.
        let mut seen = self.spent.load(Ordering::Relaxed);
        loop {
            let next = Rate { interval: old, ..rate }.rescaled(&rate, seen, now);
            // ORDERING: Relaxed: only the number changes hands.
            match self.spent.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_the_scale() {
        let slow = Rate::per(1, Duration::MAX).unwrap().burst(2).unwrap();
        let spent = slow.after(0, 1, 5).unwrap();
        assert_eq!(spent, LAST);
        assert_eq!(slow.after(spent, 1, 5), Err(Limited::new(None)), "it has to stop somewhere");
        let none = Rate::per(u32::MAX, Duration::ZERO).unwrap();
        assert_eq!(none.after(0, u32::MAX, LAST), Ok(LAST));
        assert_eq!(none.free(0), 1);
        let fast = Rate::per(u32::MAX, Duration::from_nanos(1)).unwrap();
        assert_eq!(fast.interval(), Duration::from_nanos(1));
        assert_eq!(fast.after(0, 1, LAST), Err(Limited::new(None)));
        assert_eq!(fast.after(7, 2, 0), Err(Limited::new(None)), "more than the burst");
        assert_eq!(fast.after(7, 1, 0), Err(Limited::new(Some(Duration::from_nanos(7)))));
    }
}
