//! Refusing early what would wait too long.

use core::fmt;
use core::time::Duration;
use std::sync::Weak;

use crossbeam_utils::CachePadded;

use super::Listener;
use super::error::{ConfigError, Limited};
use super::watch::Watchers;
use crate::clock::{AnyClock, Clock, nanos_saturating};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// How much something matters when there is too much.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Importance {
    /// Refused first: half of the queue is open to it, and each overloaded interval halves what is let
    /// through.
    Low,
    /// Refused after two overloaded intervals, or when three quarters of the queue are full.
    #[default]
    Normal,
    /// Refused only when the queue is full.
    High,
}

/// Keeps a queue short by refusing before it: by how many wait, and by how long they waited.
///
/// Who wants to enter a queue takes a [`Place`]; whoever takes it out of the queue says
/// [`start`](Place::start), which tells how long it waited. A queue is *standing* when not even the
/// shortest wait of an interval was within the target: then it is not a burst that will pass, but more than
/// can be done. Each standing interval raises the level by one, and each level halves what is let in of
/// the least important; an interval that was not standing halves the level. An empty queue always lets in.
///
/// ```
/// use std::time::Duration;
/// use tenure::limit::{Importance, LoadShedder};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let shedder = LoadShedder::builder().target(Duration::from_millis(5)).max_depth(2).build()?;
/// let first = shedder.try_acquire(Importance::Normal)?;
/// let second = shedder.try_acquire(Importance::High)?;
/// assert!(shedder.try_acquire(Importance::High).is_err());
/// let waited = first.start();
/// assert_eq!(shedder.depth(), 1);
/// # drop(second); let _ = waited;
/// # Ok(())
/// # }
/// ```
///
/// | option | default | range |
/// |---|---|---|
/// | [`target`](ShedderBuilder::target) | 5 ms | any |
/// | [`interval`](ShedderBuilder::interval) | 100 ms | any; zero is 1 ns |
/// | [`max_depth`](ShedderBuilder::max_depth) | 1024 | 1 to `u32::MAX` |
#[derive(Clone)]
pub struct LoadShedder {
    core: Arc<Core>,
}

struct Core {
    depth: CachePadded<AtomicU64>,
    waits: CachePadded<AtomicU64>,
    /// Those who were let in or refused by level.
    arrivals: CachePadded<AtomicU64>,
    target: AtomicU64,
    max_depth: AtomicU64,
    interval: u64,
    clock: AnyClock,
    watchers: Watchers,
}

/// The waits of an interval: number of the interval 24 | level 8 | shortest wait in microseconds 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waits(u64);

impl Waits {
    const TICKS: u64 = (1 << 24) - 1;
    /// No wait was told yet.
    const NONE: u64 = u32::MAX as u64;
    const MAX_LEVEL: u64 = 40;

    const fn new(tick: u64, level: u64, shortest: u64) -> Self {
        Self((tick & Self::TICKS) << 40 | level << 32 | shortest)
    }

    const fn tick(self) -> u64 {
        self.0 >> 40
    }

    const fn level(self) -> u64 {
        self.0 >> 32 & 0xFF
    }

    const fn shortest(self) -> u64 {
        self.0 & Self::NONE
    }

    /// The same at interval `tick`: what the one before comes to. Nothing here takes longer when more
    /// intervals have passed.
    const fn at(self, tick: u64, target: u64) -> Self {
        let passed = tick.wrapping_sub(self.tick()) & Self::TICKS;
        // Half the range: a reader whose look at the clock is older than another's.
        if passed == 0 || passed > Self::TICKS / 2 {
            return self;
        }
        let level = if self.shortest() == Self::NONE || self.shortest() <= target {
            self.level() >> 1
        } else if self.level() < Self::MAX_LEVEL {
            self.level() + 1
        } else {
            Self::MAX_LEVEL
        };
        // Intervals in which nobody waited.
        let idle = if passed - 1 < 8 { passed - 1 } else { 8 };
        Self::new(tick, level >> idle, Self::NONE)
    }

    const fn with(self, wait: u64) -> Self {
        if wait < self.shortest() { Self::new(self.tick(), self.level(), wait) } else { self }
    }
}

/// Somebody listens.
const WATCHED: u64 = 1 << 63;

impl Core {
    fn tick(&self) -> u64 {
        self.clock.coarse().as_nanos() / self.interval
    }

    fn target(&self) -> u64 {
        // ORDERING: Relaxed: either target will do.
        micros(self.target.load(Ordering::Relaxed))
    }

    fn level(&self) -> u64 {
        // ORDERING: Relaxed: only the number counts.
        let waits = Waits(self.waits.load(Ordering::Relaxed));
        waits.at(self.tick(), self.target()).level()
    }

    fn report(&self, wait: u64) {
        let (tick, target, wait) = (self.tick(), self.target(), micros(wait));
        // ORDERING: Relaxed: only the number counts; the exchange checks it.
        let mut seen = self.waits.load(Ordering::Relaxed);
        loop {
            let next = Waits(seen).at(tick, target).with(wait).0;
            if next == seen {
                return;
            }
            // ORDERING: Relaxed: only the number changes hands.
            match self.waits.compare_exchange_weak(seen, next, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// How many may wait for one of `importance` to be let in.
    fn bound(&self, importance: Importance) -> u64 {
        // ORDERING: Relaxed: a call that races a change is judged by either.
        let most = self.max_depth.load(Ordering::Relaxed);
        match importance {
            Importance::High => most,
            Importance::Normal => (most * 3).div_ceil(4),
            Importance::Low => most.div_ceil(2),
        }
    }

    /// Whether the level lets this one in.
    fn is_let_in(&self, importance: Importance) -> bool {
        let halvings = match importance {
            Importance::High => 0,
            Importance::Normal => self.level().saturating_sub(2),
            Importance::Low => self.level(),
        };
        // ORDERING: Relaxed: a count; every 2ⁿ-th is let in.
        halvings == 0 || self.arrivals.fetch_add(1, Ordering::Relaxed).is_multiple_of(1 << halvings)
    }

    fn leave(&self) {
        // ORDERING: Relaxed: only the number counts; who listens is under a lock.
        if self.depth.fetch_sub(1, Ordering::Relaxed) & WATCHED != 0 {
            self.watchers.tell();
        }
    }
}

/// In microseconds, rounded up so that more than nothing is not nothing; short of "none".
const fn micros(nanos: u64) -> u64 {
    let micros = nanos.div_ceil(1000);
    if micros < Waits::NONE { micros } else { Waits::NONE - 1 }
}

impl LoadShedder {
    /// A shedder with the defaults, to be changed.
    pub fn builder() -> ShedderBuilder {
        ShedderBuilder::new()
    }

    /// Takes a place in the queue.
    ///
    /// # Errors
    ///
    /// [`Limited`], after which you had better not come back soon: with the length of an interval if
    /// it was refused for how long others wait, without a time if for how many do.
    pub fn try_acquire(&self, importance: Importance) -> Result<Place, Limited> {
        let core = &self.core;
        let bound = core.bound(importance);
        // ORDERING: Relaxed: only the number counts; the exchange checks it.
        let mut seen = core.depth.load(Ordering::Relaxed);
        if seen & !WATCHED > 0 && !core.is_let_in(importance) {
            return Err(Limited::new(Some(Duration::from_nanos(core.interval))));
        }
        while seen & !WATCHED < bound {
            // ORDERING: Relaxed: as above.
            match core.depth.compare_exchange_weak(
                seen,
                seen + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    let since = core.clock.now().as_nanos();
                    return Ok(Place { core: Some(Arc::clone(core)), since });
                }
                Err(now) => seen = now,
            }
        }
        Err(Limited::UNTIL_RETURNED)
    }

    /// How many have a place.
    #[must_use]
    pub fn depth(&self) -> u32 {
        // ORDERING: Relaxed: an answer that may be out of date when it is read.
        (self.core.depth.load(Ordering::Relaxed) & !WATCHED) as u32
    }

    /// How overloaded the queue is: 0 not at all; each standing interval adds one, up to 40.
    #[must_use]
    pub fn level(&self) -> u32 {
        self.core.level() as u32
    }

    /// Changes which wait is still well.
    pub fn set_target(&self, target: Duration) {
        // ORDERING: Relaxed: see `Core::target`.
        self.core.target.store(nanos_saturating(target), Ordering::Relaxed);
    }

    /// Changes how many may have a place. Those who have one keep it.
    ///
    /// # Errors
    ///
    /// [`ConfigError::MaxDepth`] if it is 0.
    pub fn set_max_depth(&self, max_depth: u32) -> Result<(), ConfigError> {
        if max_depth == 0 {
            return Err(ConfigError::MaxDepth);
        }
        // ORDERING: Relaxed: see `Core::bound`.
        self.core.max_depth.store(u64::from(max_depth), Ordering::Relaxed);
        self.core.watchers.tell();
        Ok(())
    }

    /// Has `listener` told when a place is left or the depth is changed.
    pub fn watch(&self, listener: Weak<dyn Listener>) {
        self.core.watchers.add(listener);
        // ORDERING: Relaxed: a place that is left later, in the word's own order, finds the mark.
        self.core.depth.fetch_or(WATCHED, Ordering::Relaxed);
    }
}

impl fmt::Debug for LoadShedder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadShedder")
            .field("depth", &self.depth())
            .field("level", &self.level())
            .finish_non_exhaustive()
    }
}

/// A place in a queue. Dropping it leaves the queue without a word about how long it took.
#[must_use = "a place that is dropped is left"]
pub struct Place {
    /// `None`: left.
    core: Option<Arc<Core>>,
    since: u64,
}

impl Place {
    /// Its turn has come: leaves the queue, and returns how long it waited.
    pub fn start(mut self) -> Duration {
        let Some(core) = self.core.take() else { return Duration::ZERO };
        let wait = core.clock.now().as_nanos().saturating_sub(self.since);
        core.report(wait);
        core.leave();
        Duration::from_nanos(wait)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(core) = self.core.take() {
            core.leave();
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Place")
    }
}

/// The options of a [`LoadShedder`].
#[derive(Clone, Debug)]
#[must_use]
pub struct ShedderBuilder {
    target: Duration,
    interval: Duration,
    max_depth: u32,
    clock: AnyClock,
}

impl ShedderBuilder {
    fn new() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            max_depth: 1024,
            clock: AnyClock::default(),
        }
    }

    /// Which wait is still well, in whole microseconds, rounded up. Defaults to 5 ms.
    pub fn target(mut self, target: Duration) -> Self {
        self.target = target;
        self
    }

    /// How long a queue has to stand to count as standing. Zero is 1 ns. Defaults to 100 ms.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// How many may wait; at least 1. Defaults to 1024.
    pub fn max_depth(mut self, max_depth: u32) -> Self {
        self.max_depth = max_depth;
        self
    }

    /// The clock that waits are timed by. Defaults to the system's.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = AnyClock::new(clock);
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// [`ConfigError::MaxDepth`] if it is 0.
    pub fn build(self) -> Result<LoadShedder, ConfigError> {
        if self.max_depth == 0 {
            return Err(ConfigError::MaxDepth);
        }
        let interval = nanos_saturating(self.interval).max(1);
        let tick = self.clock.coarse().as_nanos() / interval;
        Ok(LoadShedder {
            core: Arc::new(Core {
                depth: CachePadded::new(AtomicU64::new(0)),
                waits: CachePadded::new(AtomicU64::new(Waits::new(tick, 0, Waits::NONE).0)),
                arrivals: CachePadded::new(AtomicU64::new(0)),
                target: AtomicU64::new(nanos_saturating(self.target)),
                max_depth: AtomicU64::new(u64::from(self.max_depth)),
                interval,
                clock: self.clock,
                watchers: Watchers::new(),
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_judged_by_its_shortest_wait() {
        let waits = Waits::new(7, 0, Waits::NONE).with(90).with(40).with(70);
        assert_eq!((waits.tick(), waits.level(), waits.shortest()), (7, 0, 40));
        assert_eq!(waits.at(8, 39), Waits::new(8, 1, Waits::NONE));
        assert_eq!(waits.at(8, 40), Waits::new(8, 0, Waits::NONE));
        assert_eq!(waits.at(7, 0), waits);
        assert_eq!(waits.at(6, 0), waits, "an older look at the clock");
    }

    #[test]
    fn a_level_falls_by_halves_and_wraps_with_the_clock() {
        let bad = Waits::new(Waits::TICKS, 12, 100);
        assert_eq!(bad.at(Waits::TICKS + 1, 5), Waits::new(0, 13, Waits::NONE));
        assert_eq!(bad.at(Waits::TICKS + 3, 5), Waits::new(2, 3, Waits::NONE));
        assert_eq!(bad.at(Waits::TICKS + 1000, 5).level(), 0);
        assert_eq!(Waits::new(0, Waits::MAX_LEVEL, 9).at(1, 5).level(), Waits::MAX_LEVEL);
        assert_eq!(micros(u64::MAX), Waits::NONE - 1);
    }
}
