//! The window: which calls count. Under the book's lock; only successes are counted elsewhere.
//!
//! Successes are so many that they are only counted, in [`Stripes`]. Calls that failed or were slow are
//! few, and each comes here with the lock held. A count window needs no place for a success: it remembers
//! the *number* of each bad call, which is how many calls there were up to it. Those above "calls so far,
//! less the window's length" are the window's.

use std::collections::VecDeque;

use super::config::{Settings, Window};
use super::stripes::{BUCKETS, Stripes};
use crate::clock::nanos_saturating;

/// What was bad about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bad {
    pub(super) failed: bool,
    pub(super) slow: bool,
}

/// What a window holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) calls: u64,
    pub(super) failed: u64,
    pub(super) slow: u64,
}

/// Which rate was too high.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trip {
    Failures,
    SlowCalls,
}

impl Tally {
    /// Whether there are enough calls, and too many of them bad.
    pub(super) fn trips(&self, settings: &Settings) -> Option<Trip> {
        if self.calls < u64::from(settings.min_calls) {
            return None;
        }
        let reaches = |bad: u64, ppm: u32| {
            u128::from(bad) * 1_000_000 >= u128::from(self.calls) * u128::from(ppm)
        };
        if self.failed > 0 && reaches(self.failed, settings.failure_ppm) {
            return Some(Trip::Failures);
        }
        let slow = self.slow > 0 && settings.slow_after.is_some();
        (slow && reaches(self.slow, settings.slow_ppm)).then_some(Trip::SlowCalls)
    }
}

/// How a time is divided: buckets of 2^shift ns, as many as are at least the window, 8 to 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buckets {
    pub(super) shift: u32,
    pub(super) length: u64,
}

impl Buckets {
    pub(super) fn of(window: core::time::Duration) -> Self {
        let nanos = nanos_saturating(window).max(1);
        let shift = nanos.ilog2().saturating_sub(3);
        Self { shift, length: nanos.div_ceil(1 << shift).min(BUCKETS as u64) }
    }
}

/// The window's bad calls.
#[derive(Debug)]
pub(super) enum Calls {
    Count(Counted),
    Time(Box<Timed>),
}

impl Calls {
    /// An empty window, that begins now.
    pub(super) fn new(window: Window, stripes: &Stripes) -> Self {
        match window {
            Window::Count(length) => Self::Count(Counted {
                length: u64::from(length),
                begin: stripes.ok(),
                bad: VecDeque::new(),
                all_bad: 0,
                failed: 0,
                slow: 0,
            }),
            Window::Time(time) => {
                stripes.empty();
                Self::Time(Box::new(Timed { buckets: Buckets::of(time), ring: Default::default() }))
            }
        }
    }

    /// Adds a bad call, at `now` (looked at by time windows alone). What the window holds then.
    pub(super) fn add(&mut self, bad: Bad, now: u64, stripes: &Stripes) -> Tally {
        match self {
            Self::Count(counted) => counted.add(bad, stripes),
            Self::Time(timed) => timed.add(bad, now, stripes),
        }
    }

    pub(super) fn tally(&self, now: u64, stripes: &Stripes) -> Tally {
        match self {
            Self::Count(counted) => counted.tally(stripes),
            Self::Time(timed) => timed.tally(timed.tick(now), stripes),
        }
    }
}

/// A bad call of a count window: its number, and what was bad.
#[derive(Clone, Copy, Debug)]
struct Entry(u64);

impl Entry {
    const fn new(number: u64, bad: Bad) -> Self {
        Self(number << 2 | (bad.slow as u64) << 1 | bad.failed as u64)
    }

    const fn number(self) -> u64 {
        self.0 >> 2
    }

    const fn failed(self) -> u64 {
        self.0 & 1
    }

    const fn slow(self) -> u64 {
        self.0 >> 1 & 1
    }
}

#[derive(Debug)]
pub(super) struct Counted {
    length: u64,
    /// The sum of all successes when the window began.
    begin: u64,
    /// Those that were in the window at the last look, oldest first; at most `length`.
    bad: VecDeque<Entry>,
    /// All bad calls since the window began.
    all_bad: u64,
    /// Of those in `bad`.
    failed: u64,
    slow: u64,
}

impl Counted {
    /// Calls since the window began.
    fn calls(&self, stripes: &Stripes) -> u64 {
        stripes.ok().wrapping_sub(self.begin) + self.all_bad
    }

    fn add(&mut self, bad: Bad, stripes: &Stripes) -> Tally {
        self.all_bad += 1;
        let entry = Entry::new(self.calls(stripes), bad);
        self.bad.push_back(entry);
        self.failed += entry.failed();
        self.slow += entry.slow();
        // Each is taken out once, so this is as often as they come.
        while let Some(oldest) = self.bad.front().copied()
            && oldest.number() + self.length <= entry.number()
        {
            self.bad.pop_front();
            self.failed -= oldest.failed();
            self.slow -= oldest.slow();
        }
        let calls = entry.number().min(self.length);
        Tally { calls, failed: self.failed, slow: self.slow }
    }

    fn tally(&self, stripes: &Stripes) -> Tally {
        let all = self.calls(stripes);
        let live = self.bad.iter().filter(|entry| entry.number() + self.length > all);
        let (failed, slow) =
            live.fold((0, 0), |(f, s), entry| (f + entry.failed(), s + entry.slow()));
        Tally { calls: all.min(self.length), failed, slow }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct BadBucket {
    tick: u64,
    failed: u64,
    slow: u64,
    /// Failed or slow, or both.
    calls: u64,
}

#[derive(Debug)]
pub(super) struct Timed {
    buckets: Buckets,
    ring: [BadBucket; BUCKETS],
}

impl Timed {
    const fn tick(&self, now: u64) -> u64 {
        now >> self.buckets.shift
    }

    fn add(&mut self, bad: Bad, now: u64, stripes: &Stripes) -> Tally {
        let tick = self.tick(now);
        let bucket = &mut self.ring[tick as usize % BUCKETS];
        if bucket.tick < tick {
            *bucket = BadBucket { tick, ..BadBucket::default() };
        }
        // Or later, if another thread's look at the clock was.
        let tick = bucket.tick;
        bucket.failed += u64::from(bad.failed);
        bucket.slow += u64::from(bad.slow);
        bucket.calls += 1;
        self.tally(tick, stripes)
    }

    fn tally(&self, tick: u64, stripes: &Stripes) -> Tally {
        let length = self.buckets.length;
        let mut tally = Tally { calls: stripes.since(tick, length), ..Tally::default() };
        // A bucket that was never used has nothing in it.
        for bucket in self.ring.iter().filter(|b| tick.wrapping_sub(b.tick) < length) {
            tally.calls += bucket.calls;
            tally.failed += bucket.failed;
            tally.slow += bucket.slow;
        }
        tally
    }
}
