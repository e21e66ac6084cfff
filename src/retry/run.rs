//! Loops around a policy: on this thread, or in a future.

use core::fmt;
use core::future::Future;
use core::time::Duration;

use thiserror::Error;

use super::budget::RetryBudget;
use super::policy::{Decision, RetryPolicy, Stop};
use crate::clock::{AnyClock, Clock, Timestamp};
use crate::sync::thread;

impl RetryPolicy {
    /// Calls `operation` until it succeeds or the policy gives up, sleeping on this thread between.
    ///
    /// Every error is retried; [`runner`](Self::runner) tells them apart.
    ///
    /// ```
    /// use tenure::retry::RetryPolicy;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = RetryPolicy::immediate().max_attempts(3).build()?;
    /// let mut failures = 2;
    /// let answer = policy.run(|| if failures == 0 { Ok(42) } else { failures -= 1; Err("busy") });
    /// assert_eq!(answer, Ok(42));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`GaveUp`] holds the last error, and who stopped.
    ///
    /// # Panics
    ///
    /// Only if `operation` does: its panic is not caught and not retried.
    ///
    /// # Blocking
    ///
    /// Sleeps on the calling thread for as long as the policy says.
    #[inline]
    pub fn run<T, E>(&self, mut operation: impl FnMut() -> Result<T, E>) -> Result<T, GaveUp<E>> {
        if self.max_elapsed().is_some() {
            return self.runner().run(|_| operation());
        }
        // A runner is made once there is something to do for it.
        match operation() {
            Ok(value) => Ok(value),
            Err(error) => self.runner().go_on(Course::untimed(), error, |_| operation()),
        }
    }

    /// Awaits the futures that `operation` makes until one succeeds or the policy gives up;
    /// between attempts it awaits what `sleep` returns (`tokio::time::sleep`, for one).
    ///
    /// ```
    /// use std::future::ready;
    /// use tenure::retry::RetryPolicy;
    ///
    /// # futures::executor::block_on(async {
    /// let policy = RetryPolicy::default();
    /// let mut failures = 2;
    /// let operation = || ready(if failures == 0 { Ok(42) } else { failures -= 1; Err("busy") });
    /// let answer = policy.run_async(operation, |_delay| ready(())).await;
    /// assert_eq!(answer, Ok(42));
    /// # });
    /// ```
    ///
    /// # Errors
    ///
    /// [`GaveUp`] holds the last error, and who stopped.
    ///
    /// # Cancellation and drop
    ///
    /// Dropping the future drops the attempt or the sleep it is in; nothing else remains.
    pub async fn run_async<T, E, F, S>(
        &self,
        mut operation: impl FnMut() -> F,
        sleep: impl FnMut(Duration) -> S,
    ) -> Result<T, GaveUp<E>>
    where
        F: Future<Output = Result<T, E>>,
        S: Future<Output = ()>,
    {
        if self.max_elapsed().is_some() {
            return self.runner().run_async(|_| operation(), sleep).await;
        }
        // Looked at, and over with, before anything else is awaited: see `go_on_async`.
        let (runner, course, delay) = match operation().await {
            Ok(value) => return Ok(value),
            Err(error) => {
                let (mut runner, mut course) = (self.runner(), Course::untimed());
                let delay = course.failed(&mut runner, error)?;
                (runner, course, delay)
            }
        };
        runner.go_on_async(course, delay, |_| operation(), sleep).await
    }

    /// A run of this policy with its surroundings still to be chosen: the clock, the sleep, the
    /// errors worth a retry, an observer, the seed.
    pub fn runner<E>(&self) -> Runner<'static, E> {
        Runner {
            policy: *self,
            clock: AnyClock::default(),
            sleep: None,
            retry_if: None,
            on_retry: None,
            budget: None,
            rng: None,
        }
    }
}

/// The attempt that is about to run, or that just failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Its number; the first is 1. Stays at `u32::MAX` once there.
    pub number: u32,
    /// How long after the run's beginning the attempt began. The beginning is that of the first attempt if
    /// the policy has a [`max_elapsed`](super::RetryPolicyBuilder::max_elapsed), else its failure.
    pub elapsed: Duration,
    /// The delay that was slept before it.
    pub delay: Duration,
}

/// A run of a policy. See [`RetryPolicy::runner`].
///
/// ```
/// use std::time::Duration;
/// use tenure::clock::{Clock, ManualClock};
/// use tenure::retry::{Jitter, RetryPolicy, Stop};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let policy = RetryPolicy::fixed(Duration::from_secs(60))
///     .jitter(Jitter::None)
///     .max_elapsed(Duration::from_secs(150))
///     .build()?;
/// let clock = ManualClock::new();
/// let sleeper = clock.clone();
/// let gave_up = policy
///     .runner()
///     .clock(clock.clone())
///     .sleep_with(move |delay| sleeper.advance(delay))
///     .retry_if(|error: &&str| *error == "busy")
///     .run(|_attempt| Err::<(), _>("busy"))
///     .unwrap_err();
/// assert_eq!((gave_up.attempts, gave_up.stop), (3, Stop::MaxElapsed));
/// assert_eq!(clock.now().as_nanos(), 120_000_000_000);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct Runner<'a, E> {
    policy: RetryPolicy,
    clock: AnyClock,
    /// `None`: by blocking the thread.
    sleep: Option<Box<dyn FnMut(Duration) + Send + 'a>>,
    retry_if: Option<RetryIf<'a, E>>,
    on_retry: Option<OnRetry<'a, E>>,
    budget: Option<&'a dyn Purse>,
    /// `None`: of the process's own seed, once one is needed.
    rng: Option<fastrand::Rng>,
}

/// A budget on whatever clock.
trait Purse: Sync {
    fn deposit(&self);
    fn withdraw(&self) -> bool;
}

impl<C: Clock> Purse for RetryBudget<C> {
    fn deposit(&self) {
        RetryBudget::deposit(self);
    }

    fn withdraw(&self) -> bool {
        RetryBudget::withdraw(self)
    }
}

type RetryIf<'a, E> = Box<dyn FnMut(&E) -> bool + Send + 'a>;
type OnRetry<'a, E> = Box<dyn FnMut(&E, Attempt, Duration) + Send + 'a>;

impl<'a, E> Runner<'a, E> {
    /// The clock that measures [`max_elapsed`](super::RetryPolicyBuilder::max_elapsed). Defaults
    /// to [`MonotonicClock`](crate::clock::MonotonicClock).
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = AnyClock::new(clock);
        self
    }

    /// How [`run`](Self::run) sleeps. Defaults to blocking the thread. Returning early only starts
    /// the next attempt early.
    pub fn sleep_with(mut self, sleep: impl FnMut(Duration) + Send + 'a) -> Self {
        self.sleep = Some(Box::new(sleep));
        self
    }

    /// Which errors are worth a retry; the others end the run with [`Stop::NotRetryable`]. Asked
    /// before the limits are. Defaults to all.
    pub fn retry_if(mut self, worth_it: impl FnMut(&E) -> bool + Send + 'a) -> Self {
        self.retry_if = Some(Box::new(worth_it));
        self
    }

    /// Told of each failure that will be retried: the error, the attempt, the delay to come. Runs
    /// on the thread of the run, before the sleep.
    pub fn on_retry(mut self, observer: impl FnMut(&E, Attempt, Duration) + Send + 'a) -> Self {
        self.on_retry = Some(Box::new(observer));
        self
    }

    /// A budget shared with others. A success deposits; a retry that all else allows withdraws, and the
    /// run ends with [`Stop::Budget`] if there is nothing left. Defaults to none.
    ///
    /// ```
    /// use tenure::retry::{RetryBudget, RetryPolicy, Stop};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let policy = RetryPolicy::immediate().max_attempts(10).build()?;
    /// let budget = RetryBudget::builder().per_second(0).burst(2).build()?;
    /// let gave_up = policy.runner().budget(&budget).run(|_| Err::<(), _>("down")).unwrap_err();
    /// assert_eq!((gave_up.attempts, gave_up.stop), (3, Stop::Budget));
    /// # Ok(())
    /// # }
    /// ```
    pub fn budget<C: Clock>(mut self, budget: &'a RetryBudget<C>) -> Self {
        self.budget = Some(budget);
        self
    }

    #[inline]
    fn succeeded(&self) {
        if let Some(budget) = self.budget {
            budget.deposit();
        }
    }

    /// Makes the jitter repeatable. Defaults to a seed of the process's own.
    pub fn seed(mut self, seed: u64) -> Self {
        self.rng = Some(fastrand::Rng::with_seed(seed));
        self
    }

    /// Calls `operation` until it succeeds or the policy gives up. See [`RetryPolicy::run`].
    ///
    /// # Errors
    ///
    /// [`GaveUp`] holds the last error, and who stopped.
    pub fn run<T>(
        self,
        mut operation: impl FnMut(Attempt) -> Result<T, E>,
    ) -> Result<T, GaveUp<E>> {
        let course = Course::begin(&self);
        match operation(course.attempt) {
            Ok(value) => {
                self.succeeded();
                Ok(value)
            }
            Err(error) => self.go_on(course, error, operation),
        }
    }

    /// The rest of a run, whose last attempt failed.
    #[cold]
    fn go_on<T>(
        mut self,
        mut course: Course,
        mut error: E,
        mut operation: impl FnMut(Attempt) -> Result<T, E>,
    ) -> Result<T, GaveUp<E>> {
        loop {
            let delay = course.failed(&mut self, error)?;
            if !delay.is_zero() {
                match &mut self.sleep {
                    Some(sleep) => sleep(delay),
                    None => thread::sleep(delay),
                }
            }
            match operation(course.next(&self, delay)) {
                Ok(value) => {
                    self.succeeded();
                    return Ok(value);
                }
                Err(again) => error = again,
            }
        }
    }

    /// Awaits `operation`'s futures until one succeeds or the policy gives up. The sleep given
    /// here is used, not that of [`sleep_with`](Self::sleep_with). See [`RetryPolicy::run_async`].
    ///
    /// # Errors
    ///
    /// [`GaveUp`] holds the last error, and who stopped.
    pub async fn run_async<T, F, S>(
        mut self,
        mut operation: impl FnMut(Attempt) -> F,
        sleep: impl FnMut(Duration) -> S,
    ) -> Result<T, GaveUp<E>>
    where
        F: Future<Output = Result<T, E>>,
        S: Future<Output = ()>,
    {
        let mut course = Course::begin(&self);
        let delay = match operation(course.attempt).await {
            Ok(value) => {
                self.succeeded();
                return Ok(value);
            }
            Err(error) => course.failed(&mut self, error)?,
        };
        self.go_on_async(course, delay, operation, sleep).await
    }

    /// As [`go_on`](Self::go_on), from the first delay on: no error is held while something is awaited, so
    /// it need not be `Send` for the future to be.
    async fn go_on_async<T, F, S>(
        mut self,
        mut course: Course,
        mut delay: Duration,
        mut operation: impl FnMut(Attempt) -> F,
        mut sleep: impl FnMut(Duration) -> S,
    ) -> Result<T, GaveUp<E>>
    where
        F: Future<Output = Result<T, E>>,
        S: Future<Output = ()>,
    {
        loop {
            if !delay.is_zero() {
                sleep(delay).await;
            }
            match operation(course.next(&self, delay)).await {
                Ok(value) => {
                    self.succeeded();
                    return Ok(value);
                }
                Err(error) => delay = course.failed(&mut self, error)?,
            }
        }
    }
}

impl<E> fmt::Debug for Runner<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runner")
            .field("policy", &self.policy)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// What a run remembers.
struct Course {
    /// From when on its time counts. A run that succeeds at once need not know it.
    begun: Option<Timestamp>,
    /// The one that is under way, or that failed.
    attempt: Attempt,
}

impl Course {
    /// At its first attempt, without a limit of time.
    const fn untimed() -> Self {
        let attempt = Attempt { number: 1, elapsed: Duration::ZERO, delay: Duration::ZERO };
        Self { begun: None, attempt }
    }

    fn begin<E>(runner: &Runner<'_, E>) -> Self {
        let begun = runner.policy.max_elapsed().map(|_| runner.clock.now());
        Self { begun, ..Self::untimed() }
    }

    fn elapsed<E>(&mut self, runner: &Runner<'_, E>) -> Duration {
        let now = runner.clock.now();
        now.saturating_since(*self.begun.get_or_insert(now))
    }

    /// The next attempt, after a delay.
    fn next<E>(&mut self, runner: &Runner<'_, E>, delay: Duration) -> Attempt {
        let number = self.attempt.number.saturating_add(1);
        self.attempt = Attempt { number, elapsed: self.elapsed(runner), delay };
        self.attempt
    }

    /// The delay before the next attempt.
    fn failed<E>(&mut self, runner: &mut Runner<'_, E>, error: E) -> Result<Duration, GaveUp<E>> {
        let elapsed = self.elapsed(runner);
        let Attempt { number, delay, .. } = self.attempt;
        let worth_it = runner.retry_if.as_mut().is_none_or(|worth_it| worth_it(&error));
        let decision = if worth_it {
            let rng = runner.rng.get_or_insert_with(fastrand::Rng::new);
            runner.policy.next(number, delay, elapsed, rng)
        } else {
            Decision::GiveUp(Stop::NotRetryable)
        };
        let affordable = || runner.budget.is_none_or(Purse::withdraw);
        let decision = match decision {
            Decision::Retry(_) if !affordable() => Decision::GiveUp(Stop::Budget),
            decision => decision,
        };
        match decision {
            Decision::Retry(delay) => {
                if let Some(observer) = &mut runner.on_retry {
                    observer(&error, self.attempt, delay);
                }
                Ok(delay)
            }
            Decision::GiveUp(stop) => Err(GaveUp { error, attempts: number, elapsed, stop }),
        }
    }
}

/// A run that ended without success.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("gave up after {attempts} attempt(s): {stop}")]
pub struct GaveUp<E> {
    /// The last attempt's error.
    #[source]
    pub error: E,
    /// How many attempts were made.
    pub attempts: u32,
    /// How long the run took: from the beginning of the first attempt if the policy has a
    /// [`max_elapsed`](super::RetryPolicyBuilder::max_elapsed) (which may be [`Duration::MAX`]), else from
    /// its failure, so that a run that succeeds at once reads no clock.
    pub elapsed: Duration,
    /// Why there was no further attempt.
    pub stop: Stop,
}

impl<E> GaveUp<E> {
    /// The last attempt's error.
    pub fn into_error(self) -> E {
        self.error
    }
}
