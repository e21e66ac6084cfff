//! A budget that many callers share: how many retries they may make together.

use core::fmt;
use core::time::Duration;

use super::policy::ConfigError;
use crate::clock::{Clock, MonotonicClock};
use crate::sync::atomic::{AtomicU64, Ordering};

/// What one retry costs where time pays for nothing.
const FLAT_COST: u64 = 1_000_000_000;

/// Bounds the retries of many callers together, so that what fails is not finished off by its clients.
///
/// Each success [deposits](Self::deposit) a part of a retry, time deposits so many a second, and each
/// retry [withdraws](Self::withdraw) one. When all is well the budget is full and nobody notices it;
/// when everything fails, no more than the rest and what time gives are retried. Share it by reference or in
/// an `Arc`; give it to [`Runner::budget`](super::Runner::budget), or use it alone:
///
/// ```
/// use tenure::retry::RetryBudget;
///
/// # fn main() -> Result<(), tenure::retry::ConfigError> {
/// // One retry for every ten successes, and two at once at most.
/// let budget = RetryBudget::builder().ratio(0.1).per_second(0).burst(2).build()?;
/// assert!(budget.withdraw() && budget.withdraw());
/// assert!(!budget.withdraw());
/// for _ in 0..10 {
///     budget.deposit();
/// }
/// assert!(budget.withdraw());
/// # Ok(())
/// # }
/// ```
///
/// | option | default | range |
/// |---|---|---|
/// | [`ratio`](RetryBudgetBuilder::ratio) | 0.2 | 0.0 to 1000.0 |
/// | [`per_second`](RetryBudgetBuilder::per_second) | 10 | 0 to 1,000,000 |
/// | [`burst`](RetryBudgetBuilder::burst) | 100 | 1 to `u32::MAX` |
/// | [`clock`](RetryBudgetBuilder::clock) | [`MonotonicClock`] | |
///
/// # Cost
///
/// Lock-free, one word. A deposit into a full budget reads the coarse clock and that word, and writes
/// nothing, so callers that succeed do not disturb each other. Without [`per_second`](RetryBudgetBuilder::per_second)
/// no clock is read.
///
/// # How it works
///
/// The word is a moment on a scale on which a retry is as long as time takes to pay for it: the
/// moment *up to which* time is spent. What lies between it and now is the balance, at most the burst.
/// So time refills it without anybody doing anything; a withdrawal moves it on, a deposit moves it
/// back. Where time pays nothing, now stands still.
pub struct RetryBudget<C: Clock = MonotonicClock> {
    /// Up to when time is spent. Starts at zero: now is `full` at the clock's origin.
    spent: AtomicU64,
    /// What one retry takes.
    cost: u64,
    /// What one success gives.
    gain: u64,
    /// What the burst takes.
    full: u64,
    /// Whether time pays.
    timed: bool,
    clock: C,
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudgetBuilder::new().made()
    }
}

impl RetryBudget {
    /// A budget with the defaults, to be changed. It is full when it is built.
    pub fn builder() -> RetryBudgetBuilder {
        RetryBudgetBuilder::new()
    }
}

impl<C: Clock> RetryBudget<C> {
    /// Now, on the scale of the word. [`withdraw`](Self::withdraw) may be a coarse tick behind: that
    /// only ever refuses.
    fn now(&self) -> u64 {
        if self.timed {
            self.full.saturating_add(self.clock.coarse().as_nanos())
        } else {
            self.full
        }
    }

    /// A success (or, if you prefer to count those, a first attempt) pays in its part of a retry.
    #[inline]
    pub fn deposit(&self) {
        let floor = self.now() - self.full;
        // ORDERING: Relaxed: only the number counts; the exchange checks it.
        let mut spent = self.spent.load(Ordering::Relaxed);
        while spent > floor {
            let less = spent.saturating_sub(self.gain).max(floor);
            if less == spent {
                return;
            }
            // ORDERING: Relaxed: only the number changes hands.
            match self.spent.compare_exchange_weak(
                spent,
                less,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(now) => spent = now,
            }
        }
    }

    /// Takes out one retry. False: there is none, so give up.
    #[inline]
    #[must_use = "false says that there is no retry"]
    pub fn withdraw(&self) -> bool {
        let now = self.now();
        let floor = now - self.full;
        // ORDERING: Relaxed: as in `deposit`.
        let mut spent = self.spent.load(Ordering::Relaxed);
        loop {
            let more = spent.max(floor).saturating_add(self.cost);
            if more > now {
                return false;
            }
            // ORDERING: Relaxed: as in `deposit`.
            match self.spent.compare_exchange_weak(
                spent,
                more,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => spent = now,
            }
        }
    }

    /// How many retries could be withdrawn now. Others may be faster.
    #[must_use]
    pub fn balance(&self) -> u32 {
        let now = self.now();
        // ORDERING: Relaxed: an answer that may be out of date when it is read.
        let spent = self.spent.load(Ordering::Relaxed).max(now - self.full);
        // At most the burst, so it fits.
        (now.saturating_sub(spent) / self.cost) as u32
    }

    /// The most that it holds.
    #[must_use]
    pub fn burst(&self) -> u32 {
        (self.full / self.cost) as u32
    }
}

impl<C: Clock> fmt::Debug for RetryBudget<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryBudget")
            .field("balance", &self.balance())
            .field("burst", &self.burst())
            .finish_non_exhaustive()
    }
}

/// The options of a [`RetryBudget`].
#[derive(Clone, Debug)]
#[must_use]
pub struct RetryBudgetBuilder<C: Clock = MonotonicClock> {
    ratio: f64,
    per_second: u32,
    burst: u32,
    clock: C,
}

impl RetryBudgetBuilder {
    /// The defaults.
    fn new() -> Self {
        Self { ratio: 0.2, per_second: 10, burst: 100, clock: MonotonicClock::new() }
    }
}

impl<C: Clock> RetryBudgetBuilder<C> {
    /// The largest ratio.
    const MAX_RATIO: f64 = 1000.0;
    /// The largest rate.
    const MAX_RATE: u32 = 1_000_000;

    /// How much of a retry a success deposits: 0.2 allows one retry for five successes. From 0.0 to
    /// 1000.0. Defaults to 0.2.
    pub fn ratio(mut self, ratio: f64) -> Self {
        self.ratio = ratio;
        self
    }

    /// How many retries time deposits, so that those with few calls may retry, too. From 0 (time
    /// deposits nothing) to 1,000,000. Defaults to 10.
    pub fn per_second(mut self, per_second: u32) -> Self {
        self.per_second = per_second;
        self
    }

    /// The most retries that the budget holds, and those it begins with: so many may be made at once
    /// after all was well. At least 1. Defaults to 100.
    pub fn burst(mut self, burst: u32) -> Self {
        self.burst = burst;
        self
    }

    /// The clock by which time deposits. Defaults to [`MonotonicClock`].
    pub fn clock<D: Clock>(self, clock: D) -> RetryBudgetBuilder<D> {
        let Self { ratio, per_second, burst, clock: _ } = self;
        RetryBudgetBuilder { ratio, per_second, burst, clock }
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the first option that is out of its range.
    pub fn build(self) -> Result<RetryBudget<C>, ConfigError> {
        if !(0.0..=Self::MAX_RATIO).contains(&self.ratio) {
            return Err(ConfigError::Ratio(self.ratio));
        }
        if self.per_second > Self::MAX_RATE {
            return Err(ConfigError::PerSecond(self.per_second));
        }
        if self.burst == 0 {
            return Err(ConfigError::Burst);
        }
        Ok(self.made())
    }

    fn made(self) -> RetryBudget<C> {
        const SECOND: u64 = Duration::from_secs(1).as_nanos() as u64;
        let timed = self.per_second > 0;
        let cost = if timed { SECOND / u64::from(self.per_second) } else { FLAT_COST };
        // Fits: at most a second's worth of each.
        let full = cost * u64::from(self.burst);
        // In range by `build`: at most 1000 times the cost. Rounded up, so that three thirds are one.
        let gain = (self.ratio * cost as f64).ceil() as u64;
        let budget =
            RetryBudget { spent: AtomicU64::new(0), cost, gain, full, timed, clock: self.clock };
        // Full from now on; the clock's origin may be long ago.
        let begin = budget.now() - full;
        // ORDERING: Relaxed: nobody else has it yet.
        budget.spent.store(begin, Ordering::Relaxed);
        budget
    }
}
