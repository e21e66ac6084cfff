//! `--chaos`: attempts that fail on purpose, so that everything above them can be watched healing.
//!
//! Whether, where and how an attempt is struck follows from the seed, the file's path and the number
//! of the attempt alone: a run can be repeated.

use std::cell::Cell;
use std::hash::{DefaultHasher, Hasher as _};
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// The places in an attempt where something can go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing done yet.
    Start,
    /// The temporary file is there, the data is not, or not all of it.
    Copying,
    /// All is ready; the rename is next.
    Publishing,
    /// The file is in place, but nobody knows it yet.
    Published,
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blow {
    Error,
    Panic,
    /// Beyond the attempt timeout, and so long after that.
    Hang {
        afterwards: Duration,
    },
}

/// The source of misfortune for a whole run.
#[derive(Debug)]
pub(crate) struct Chaos {
    probability: f64,
    seed: u64,
    attempt_timeout: Duration,
}

impl Chaos {
    /// Strikes each attempt with `probability`; hangs outlast the attempt timeout.
    pub(crate) fn new(probability: f64, seed: u64, attempt_timeout: Duration) -> Self {
        Self { probability, seed, attempt_timeout }
    }

    /// What fate has in store for this attempt at the file with this path. `is_current` says whether
    /// the attempt still has its lease.
    pub(crate) fn fate<'a>(
        &self,
        path: impl FnOnce() -> Vec<u8>,
        attempt: u32,
        is_current: &'a dyn Fn() -> bool,
    ) -> Fate<'a> {
        let plan = if self.probability > 0.0 { self.draw(&path(), attempt) } else { None };
        Fate { plan: Cell::new(plan), attempt_timeout: self.attempt_timeout, is_current }
    }

    fn draw(&self, path: &[u8], attempt: u32) -> Option<(Stage, Blow)> {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.seed);
        hasher.write_u32(attempt);
        hasher.write(path);
        let mut rng = fastrand::Rng::with_seed(hasher.finish());
        if rng.f64() >= self.probability {
            return None;
        }
        let stage = match rng.u8(0..4) {
            0 => Stage::Start,
            1 => Stage::Copying,
            2 => Stage::Publishing,
            _ => Stage::Published,
        };
        let blow = match rng.u8(0..3) {
            0 => Blow::Error,
            1 => Blow::Panic,
            _ => Blow::Hang { afterwards: Duration::from_millis(rng.u64(0..200)) },
        };
        Some((stage, blow))
    }
}

/// What happens to one attempt, and where. It happens once.
pub(crate) struct Fate<'a> {
    plan: Cell<Option<(Stage, Blow)>>,
    attempt_timeout: Duration,
    is_current: &'a dyn Fn() -> bool,
}

impl Fate<'_> {
    /// The attempt has come to `stage`.
    pub(crate) fn at(&self, stage: Stage) -> Result<(), Failure> {
        match self.plan.get() {
            Some((when, blow)) if when == stage => self.strike(blow),
            _ => Ok(()),
        }
    }

    /// The attempt has done all it had to do. If it did not pass where fate waited, fate comes to it:
    /// each attempt is struck with the same probability, however little it does.
    pub(crate) fn at_the_end(&self) -> Result<(), Failure> {
        match self.plan.get() {
            Some((_, blow)) => self.strike(blow),
            None => Ok(()),
        }
    }

    fn strike(&self, blow: Blow) -> Result<(), Failure> {
        self.plan.set(None);
        match blow {
            Blow::Error => Err(Failure::Chaos),
            // Not `panic!`: a thousand reports of panics on purpose would bury the real one.
            Blow::Panic => std::panic::resume_unwind(Box::new("chaos: made to panic")),
            Blow::Hang { afterwards } => {
                self.hang(afterwards);
                Ok(())
            }
        }
    }

    /// Sleeps until the lease is lost, and some more; then the attempt goes on as if nothing had
    /// happened. Deaf to cancellation, as a thread stuck in the kernel would be. When a lease is lost
    /// depends on how busy the machine is, so no fixed time would do; but if nobody ever noticed, the
    /// attempt comes back all the same, and wins.
    fn hang(&self, afterwards: Duration) {
        let patience = self.attempt_timeout.saturating_mul(50);
        let start = Instant::now();
        std::thread::sleep(self.attempt_timeout);
        while (self.is_current)() && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(afterwards);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chaos(p: f64, seed: u64) -> Chaos {
        Chaos::new(p, seed, Duration::from_millis(10))
    }

    fn drawn(chaos: &Chaos, n: u32) -> Vec<Option<(Stage, Blow)>> {
        (0..n).map(|i| chaos.fate(|| i.to_string().into_bytes(), 1, &|| true).plan.get()).collect()
    }

    #[test]
    fn the_same_seed_strikes_the_same() {
        assert_eq!(drawn(&chaos(0.5, 7), 200), drawn(&chaos(0.5, 7), 200));
        assert_ne!(drawn(&chaos(0.5, 7), 200), drawn(&chaos(0.5, 8), 200));
    }

    #[test]
    fn it_strikes_about_as_often_as_asked_in_every_way() {
        let hits: Vec<_> = drawn(&chaos(0.3, 1), 10_000).into_iter().flatten().collect();
        assert!((2_700..3_300).contains(&hits.len()), "{}", hits.len());
        for stage in [Stage::Start, Stage::Copying, Stage::Publishing, Stage::Published] {
            assert!(hits.iter().filter(|(s, _)| *s == stage).count() > 500);
        }
        assert!(hits.iter().filter(|(_, blow)| matches!(blow, Blow::Hang { .. })).count() > 800);
    }

    #[test]
    fn never_and_always() {
        assert!(drawn(&chaos(0.0, 1), 100).iter().all(Option::is_none));
        assert!(drawn(&chaos(1.0, 1), 100).iter().all(Option::is_some));
    }

    #[test]
    fn an_attempt_that_skips_the_stage_is_struck_at_the_end_and_only_once() {
        let fate = fate(Stage::Copying, Blow::Error, &|| true);
        assert!(fate.at(Stage::Start).is_ok());
        assert!(matches!(fate.at_the_end(), Err(Failure::Chaos)));
        assert!(fate.at_the_end().is_ok());
    }

    fn fate(stage: Stage, blow: Blow, is_current: &dyn Fn() -> bool) -> Fate<'_> {
        Fate {
            plan: Cell::new(Some((stage, blow))),
            attempt_timeout: Duration::from_millis(1),
            is_current,
        }
    }

    #[test]
    fn a_hang_lasts_until_the_lease_is_lost_and_no_longer_than_for_ever() {
        let hang = Blow::Hang { afterwards: Duration::ZERO };
        let asked = Cell::new(0);
        let lost_at_the_third_look = || {
            asked.set(asked.get() + 1);
            asked.get() < 3
        };
        assert!(fate(Stage::Start, hang, &lost_at_the_third_look).at(Stage::Start).is_ok());
        assert_eq!(asked.get(), 3);
        assert!(fate(Stage::Start, hang, &|| true).at(Stage::Start).is_ok());
    }
}
