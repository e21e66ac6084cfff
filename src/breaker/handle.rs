//! `CircuitBreaker`: the handle.

use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::pin;
use std::sync::Weak;

use super::config::{BreakerBuilder, Settings};
use super::core::Core;
use super::error::{CallError, ConfigError, Open};
use super::permit::{Entered, Permit, Verdict};
use super::snapshot::Snapshot;
use super::word::State;
use crate::limit::Listener;
use crate::sync::Arc;

/// Stops calling what does not answer, until it does again.
///
/// Clones are the same breaker. See the [room's page](super) for its states.
///
/// ```
/// use std::time::Duration;
/// use tenure::breaker::{CallError, CircuitBreaker, State, Window};
/// use tenure::clock::ManualClock;
///
/// # fn main() -> Result<(), tenure::breaker::ConfigError> {
/// let clock = ManualClock::new();
/// let breaker = CircuitBreaker::builder()
///     .window(Window::Count(10))
///     .failure_rate(0.5)
///     .min_calls(4)
///     .probes(1)
///     .open_for(Duration::from_secs(5))
///     .clock(clock.clone())
///     .build()?;
///
/// for _ in 0..4 {
///     let failed: Result<(), _> = breaker.call(|| Err("no route"));
///     assert_eq!(failed, Err(CallError::Failed("no route")));
/// }
/// assert_eq!(breaker.state(), State::Open);
/// match breaker.call(|| Ok::<_, &str>("never called")) {
///     Err(CallError::Rejected(open)) => {
///         assert_eq!(open.retry_after, Some(Duration::from_secs(5)));
///     }
///     other => panic!("{other:?}"),
/// }
///
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(breaker.call(|| Ok::<_, &str>(200)), Ok(200));
/// assert_eq!(breaker.state(), State::Closed);
/// # Ok(())
/// # }
/// ```
///
/// | option | default | range |
/// |---|---|---|
/// | [`window`](BreakerBuilder::window) | the last 100 calls | 1 to 65,536 calls, or any time |
/// | [`failure_rate`](BreakerBuilder::failure_rate) | 0.5 | above 0, up to 1 |
/// | [`slow_calls`](BreakerBuilder::slow_calls) | none | any time; above 0, up to 1 |
/// | [`min_calls`](BreakerBuilder::min_calls) | 20, or the window if it is less | 1 to the window |
/// | [`open_for`](BreakerBuilder::open_for) | 5 s | any |
/// | [`open_growth`](BreakerBuilder::open_growth) | none | 1 to 1000; at least `open_for` |
/// | [`open_jitter`](BreakerBuilder::open_jitter) | [`Jitter::None`](crate::retry::Jitter::None) | |
/// | [`probes`](BreakerBuilder::probes) | 3 | 1 to 65,535 |
/// | [`probe_timeout`](BreakerBuilder::probe_timeout) | 60 s | any |
#[derive(Clone)]
pub struct CircuitBreaker {
    core: Arc<Core>,
}

impl CircuitBreaker {
    /// A breaker with the defaults, to be changed.
    pub fn builder() -> BreakerBuilder {
        BreakerBuilder::new()
    }

    pub(super) fn of(core: Core) -> Self {
        Self { core: Arc::new(core) }
    }

    /// Asks to be let through.
    ///
    /// # Errors
    ///
    /// [`Open`], with the time after which it is worth asking again, if time helps.
    pub fn try_acquire(&self) -> Result<Permit, Open> {
        let ticket = self.core.admit()?;
        Ok(Permit::new(Arc::clone(&self.core), ticket))
    }

    /// Makes a call, if the breaker lets it through. An error counts as a failure; so does a panic, which
    /// goes on.
    ///
    /// # Errors
    ///
    /// [`CallError::Rejected`]: `f` was not called. [`CallError::Failed`]: it was, and this is its error.
    #[inline]
    pub fn call<T, E>(&self, f: impl FnOnce() -> Result<T, E>) -> Result<T, CallError<E>> {
        self.call_judged(f, judge)
    }

    /// The same where `judge` says what a result comes to: a "not found" may be no failure, and a value
    /// one. A panic in it counts as a failure and goes on.
    ///
    /// ```
    /// use std::io::{Error, ErrorKind};
    /// use tenure::breaker::{CircuitBreaker, State, Verdict, Window};
    ///
    /// # fn main() -> Result<(), tenure::breaker::ConfigError> {
    /// let disk = CircuitBreaker::builder().window(Window::Count(1)).build()?;
    /// let read = || Err::<Vec<u8>, _>(Error::from(ErrorKind::NotFound));
    /// let found = disk.call_judged(read, |result| match result {
    ///     Err(error) if error.kind() != ErrorKind::NotFound => Verdict::Failure,
    ///     _ => Verdict::Success,
    /// });
    /// assert!(found.is_err() && disk.state() == State::Closed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    #[inline]
    pub fn call_judged<T, E>(
        &self,
        f: impl FnOnce() -> Result<T, E>,
        judge: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<T, CallError<E>> {
        let mut entered = Entered::new(&self.core, self.core.admit()?);
        entered.runs = true;
        let result = f();
        let verdict = judge(&result);
        entered.record(verdict);
        result.map_err(CallError::Failed)
    }

    /// Makes an asynchronous call. It asks the breaker at its first poll.
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    ///
    /// # Cancellation and drop
    ///
    /// Dropping the future returns the permit, with nothing recorded. A panic in a poll counts as a
    /// failure and goes on.
    pub async fn call_async<T, E, F>(&self, f: impl FnOnce() -> F) -> Result<T, CallError<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        self.call_async_judged(f, judge).await
    }

    /// The same where `judge` says what a result comes to, as in [`call_judged`](Self::call_judged).
    ///
    /// # Errors
    ///
    /// As [`call`](Self::call).
    pub async fn call_async_judged<T, E, F>(
        &self,
        f: impl FnOnce() -> F,
        judge: impl FnOnce(&Result<T, E>) -> Verdict,
    ) -> Result<T, CallError<E>>
    where
        F: Future<Output = Result<T, E>>,
    {
        let mut entered = Entered::new(&self.core, self.core.admit()?);
        entered.runs = true;
        let mut call = pin!(f());
        let result = poll_fn(|cx| {
            entered.runs = true;
            let polled = call.as_mut().poll(cx);
            entered.runs = false;
            polled
        })
        .await;
        entered.runs = true;
        let verdict = judge(&result);
        entered.record(verdict);
        result.map_err(CallError::Failed)
    }

    /// Where it stands. An opening whose time is over is still [`Open`](State::Open): the next call makes
    /// it half-open.
    #[must_use]
    pub fn state(&self) -> State {
        self.core.word().state()
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.core.name()
    }

    /// How it stands.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.core.snapshot()
    }

    /// Refuses all calls until [`reset`](Self::reset) or [`disable`](Self::disable).
    pub fn force_open(&self) {
        self.core.ask_for(State::ForcedOpen);
    }

    /// Lets all calls through and counts none, until [`reset`](Self::reset) or
    /// [`force_open`](Self::force_open).
    pub fn disable(&self) {
        self.core.ask_for(State::Disabled);
    }

    /// Closes it, with an empty window. What is under way counts for nothing.
    pub fn reset(&self) {
        self.core.ask_for(State::Closed);
    }

    /// Replaces the settings while it is in use. The window is emptied if it is another one. An opening
    /// under way gets its new length, counted from its begin; probes under way go on, and close the
    /// breaker at once if as many as are wanted now have passed. Calls that race it may see either.
    pub fn reconfigure(&self, settings: Settings) {
        self.core.reconfigure(settings);
    }

    /// What it is told to do.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.core.settings()
    }

    /// The settings of `builder`, for [`reconfigure`](Self::reconfigure).
    ///
    /// # Errors
    ///
    /// As [`BreakerBuilder::settings`].
    pub fn reconfigure_by(&self, builder: &BreakerBuilder) -> Result<(), ConfigError> {
        self.reconfigure(builder.settings()?);
        Ok(())
    }

    /// Has `listener` told whenever it may let somebody through for another reason than that time has
    /// passed: it became half-open, closed or disabled, a probe was returned, the settings were changed.
    /// A [`try_acquire`](Self::try_acquire) that is refused after this call is followed by such a call.
    pub fn watch(&self, listener: Weak<dyn Listener>) {
        self.core.watchers().add(listener);
    }

    /// What tells it from all others that live; its clones have the same.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.core).addr()
    }
}

fn judge<T, E>(result: &Result<T, E>) -> Verdict {
    match result {
        Ok(_) => Verdict::Success,
        Err(_) => Verdict::Failure,
    }
}

impl fmt::Debug for CircuitBreaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CircuitBreaker")
            .field("name", &self.name())
            .field("word", &self.core.word())
            .finish_non_exhaustive()
    }
}
