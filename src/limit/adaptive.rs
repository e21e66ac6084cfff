//! A limit of how many at once that finds itself.

use core::fmt;
use core::time::Duration;
use std::sync::Weak;

use super::Listener;
use super::concurrency::{self, ConcurrencyLimit};
use super::error::{ConfigError, Limited};
use crate::clock::{AnyClock, Clock, Timestamp, nanos_saturating};
use crate::promise::Eventual;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// At most so many at once, where "so many" follows from how long things take: additive increase,
/// multiplicative decrease.
///
/// Each call ends with a *signal*: how long it took, or, if you prefer to steer by that, how long it
/// waited in a queue. While signals stay within the target and the limit is in use, it rises by one for
/// each round of `limit` calls; a signal beyond the target, or a call that says
/// [`overloaded`](AdaptivePermit::overloaded), lowers it by a factor, once in a window at most, and not
/// for calls that began before the last decrease: they tell of the same jam.
///
/// ```
/// use std::time::Duration;
/// use tenure::limit::AdaptiveLimit;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limit = AdaptiveLimit::builder()
///     .initial(10)
///     .bounds(1, 100)
///     .target(Duration::from_millis(50))
///     .build()?;
/// let permit = limit.try_acquire()?;
/// permit.overloaded();
/// assert_eq!(limit.limit(), 9);
/// # Ok(())
/// # }
/// ```
///
/// | option | default | range |
/// |---|---|---|
/// | [`initial`](AdaptiveBuilder::initial) | 16 | taken into the bounds |
/// | [`bounds`](AdaptiveBuilder::bounds) | 1 to 1024 | 1 to 2³¹ − 1, in order |
/// | [`target`](AdaptiveBuilder::target) | 100 ms | any |
/// | [`window`](AdaptiveBuilder::window) | 100 ms | any |
/// | [`decrease`](AdaptiveBuilder::decrease) | 0.9 | above 0, below 1 |
#[derive(Clone)]
pub struct AdaptiveLimit {
    core: Arc<Core>,
}

struct Core {
    limit: ConcurrencyLimit,
    clock: AnyClock,
    least: AtomicU32,
    most: AtomicU32,
    target: AtomicU64,
    window: u64,
    /// In parts of 65,536.
    factor: u64,
    /// Good calls since the last change of the limit.
    gain: AtomicU32,
    /// When it was lowered last, plus one; 0: never.
    lowered: AtomicU64,
}

impl Core {
    fn bounds(&self) -> (u32, u32) {
        // ORDERING: Relaxed, both: a change that races moves the limit into the new bounds afterwards.
        let least = self.least.load(Ordering::Relaxed);
        let most = self.most.load(Ordering::Relaxed);
        (least, most.max(least))
    }

    fn bounded(&self, limit: u32) -> u32 {
        let (least, most) = self.bounds();
        limit.clamp(least, most)
    }

    /// Changes the limit within the bounds.
    ///
    /// The bounds may move meanwhile. Either the change of the limit that ends `set_bounds` comes after
    /// this one, and takes it in; or it came before, and is acquired by this one: then the second look
    /// sees the new bounds.
    fn change(&self, f: impl Fn(u32) -> u32) {
        self.limit.change_limit(|limit| self.bounded(f(limit)));
        if self.bounded(self.limit.limit()) != self.limit.limit() {
            self.limit.change_limit(|limit| self.bounded(limit));
        }
    }

    /// What a signal comes to, of a call that began at `began`.
    fn judge(&self, began: Timestamp, signal: Duration, in_use: u32) {
        // ORDERING: Relaxed: either target will do.
        if nanos_saturating(signal) > self.target.load(Ordering::Relaxed) {
            self.lower(began);
        } else {
            self.praise(in_use);
        }
    }

    /// A good call while `in_use` were out, itself included.
    fn praise(&self, in_use: u32) {
        let limit = self.limit.limit();
        let (_, most) = self.bounds();
        // A limit that is not used proves nothing by being kept.
        if limit >= most || in_use < limit.div_ceil(2) {
            return;
        }
        // ORDERING: Relaxed: a count.
        let gain = self.gain.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if gain >= limit {
            // ORDERING: Relaxed: whoever ends the round raises the limit; who comes in between is in the
            // next round.
            let mine = self.gain.compare_exchange(gain, 0, Ordering::Relaxed, Ordering::Relaxed);
            if mine.is_ok() {
                self.change(|limit| limit.saturating_add(1));
            }
        }
    }

    /// A bad call that began at `began`.
    fn lower(&self, began: Timestamp) {
        let now = self.clock.now();
        // ORDERING: Relaxed: the exchange checks it.
        let seen = self.lowered.load(Ordering::Relaxed);
        if seen > 0 {
            let last = seen - 1;
            let free = last.saturating_add(self.window);
            if now.as_nanos() < free || began.as_nanos() < last {
                return;
            }
        }
        // Not `NEVER`, and plus one.
        let mark = now.as_nanos().min(u64::MAX - 1) + 1;
        // ORDERING: Relaxed: elects one for this window.
        let mine = self.lowered.compare_exchange(seen, mark, Ordering::Relaxed, Ordering::Relaxed);
        if mine.is_err() {
            return;
        }
        // ORDERING: Relaxed: a count.
        self.gain.store(0, Ordering::Relaxed);
        self.change(|limit| {
            let lower = (u64::from(limit) * self.factor) >> 16;
            // At least one less, or a small limit would stay.
            u32::try_from(lower).unwrap_or(limit).min(limit.saturating_sub(1))
        });
    }
}

impl AdaptiveLimit {
    /// A limit with the defaults, to be changed.
    pub fn builder() -> AdaptiveBuilder {
        AdaptiveBuilder::new()
    }

    fn permit(core: &Arc<Core>, seat: concurrency::Permit) -> AdaptivePermit {
        let crowd = core.limit.in_use();
        AdaptivePermit { began: core.clock.now(), crowd, core: Arc::clone(core), seat }
    }

    /// Takes a permit, if there is one and nobody stands in line.
    ///
    /// # Errors
    ///
    /// [`Limited`], always without a time.
    pub fn try_acquire(&self) -> Result<AdaptivePermit, Limited> {
        let seat = self.core.limit.try_acquire()?;
        Ok(Self::permit(&self.core, seat))
    }

    /// A permit, when it is its turn. As [`ConcurrencyLimit::acquire_async`].
    pub fn acquire_async(&self) -> Eventual<AdaptivePermit, Limited> {
        let core = Arc::clone(&self.core);
        self.core.limit.acquire_async().map(move |seat| Self::permit(&core, seat))
    }

    /// Waits for a permit.
    ///
    /// # Errors
    ///
    /// None today; [`Limited`] is what it would be refused with.
    ///
    /// # Blocking
    ///
    /// Until a permit is returned or the limit rises. Not for async code.
    pub fn acquire(&self) -> Result<AdaptivePermit, Limited> {
        let seat = self.core.limit.acquire()?;
        Ok(Self::permit(&self.core, seat))
    }

    /// Waits for a permit for `timeout` at most, in real time.
    ///
    /// # Errors
    ///
    /// [`Limited`] if the time is up.
    ///
    /// # Blocking
    ///
    /// As [`acquire`](Self::acquire).
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<AdaptivePermit, Limited> {
        let seat = self.core.limit.acquire_timeout(timeout)?;
        Ok(Self::permit(&self.core, seat))
    }

    /// A signal without a permit: how long something waited in a queue whose workers this limit governs.
    pub fn observe(&self, signal: Duration) {
        self.core.judge(self.core.clock.now(), signal, self.in_use());
    }

    /// The limit now.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.core.limit.limit()
    }

    /// How many permits are out.
    #[must_use]
    pub fn in_use(&self) -> u32 {
        self.core.limit.in_use()
    }

    /// Changes the bounds; the limit is moved into them.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Bounds`] if they are not in order, or 0.
    pub fn set_bounds(&self, least: u32, most: u32) -> Result<(), ConfigError> {
        checked_bounds(least, most)?;
        // ORDERING: Relaxed, both: published by the change of the limit that follows; see `Core::change`.
        self.core.least.store(least, Ordering::Relaxed);
        // ORDERING: Relaxed: as above.
        self.core.most.store(most, Ordering::Relaxed);
        self.core.limit.change_limit(|limit| limit.clamp(least, most));
        Ok(())
    }

    /// Changes the target.
    pub fn set_target(&self, target: Duration) {
        // ORDERING: Relaxed: a call that races it is judged by either.
        self.core.target.store(nanos_saturating(target), Ordering::Relaxed);
    }

    /// Has `listener` told as [`ConcurrencyLimit::watch`] does.
    pub fn watch(&self, listener: Weak<dyn Listener>) {
        self.core.limit.watch(listener);
    }

    /// What tells it from all others that live; its clones have the same.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.core).addr()
    }
}

impl fmt::Debug for AdaptiveLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLimit")
            .field("limit", &self.limit())
            .field("in_use", &self.in_use())
            .finish_non_exhaustive()
    }
}

/// One of those that are let through at once. Returned when it is dropped, with no signal.
#[must_use = "a permit that is dropped is returned"]
pub struct AdaptivePermit {
    began: Timestamp,
    /// How many were out when it was given.
    crowd: u32,
    core: Arc<Core>,
    seat: concurrency::Permit,
}

impl AdaptivePermit {
    fn end(self, judge: impl FnOnce(&Core, u32)) {
        // Before the seat is returned: so that it counts as in use. The limit was in use if it was at
        // either end: of calls that come and go together the first begin alone, and the last end so.
        judge(&self.core, self.core.limit.in_use().max(self.crowd));
        drop(self.seat);
    }

    /// The call went well. The signal is the time since the permit was given.
    pub fn success(self) {
        let took = self.core.clock.now().saturating_since(self.began);
        self.success_with(took);
    }

    /// The call went well. The signal is the one given: how long it waited in a queue, say.
    pub fn success_with(self, signal: Duration) {
        let began = self.began;
        self.end(|core, in_use| core.judge(began, signal, in_use));
    }

    /// The call met somebody who is overloaded: a time-out, a refusal.
    pub fn overloaded(self) {
        let began = self.began;
        self.end(|core, _| core.lower(began));
    }

    /// The call says nothing about load: it failed for a reason of its own. The same as a drop.
    pub fn ignore(self) {
        drop(self);
    }
}

impl fmt::Debug for AdaptivePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptivePermit").field("began", &self.began).finish_non_exhaustive()
    }
}

fn checked_bounds(least: u32, most: u32) -> Result<(), ConfigError> {
    if least == 0 || least > most || most > ConcurrencyLimit::MAX {
        return Err(ConfigError::Bounds { least, most });
    }
    Ok(())
}

/// The options of an [`AdaptiveLimit`].
#[derive(Clone, Debug)]
#[must_use]
pub struct AdaptiveBuilder {
    initial: u32,
    least: u32,
    most: u32,
    target: Duration,
    window: Duration,
    decrease: f64,
    clock: AnyClock,
}

impl AdaptiveBuilder {
    fn new() -> Self {
        Self {
            initial: 16,
            least: 1,
            most: 1024,
            target: Duration::from_millis(100),
            window: Duration::from_millis(100),
            decrease: 0.9,
            clock: AnyClock::default(),
        }
    }

    /// The limit to begin with; taken into the bounds. Defaults to 16.
    pub fn initial(mut self, initial: u32) -> Self {
        self.initial = initial;
        self
    }

    /// Between what the limit moves. Defaults to 1 and 1024.
    pub fn bounds(mut self, least: u32, most: u32) -> Self {
        (self.least, self.most) = (least, most);
        self
    }

    /// Up to which signal all is well. Defaults to 100 ms.
    pub fn target(mut self, target: Duration) -> Self {
        self.target = target;
        self
    }

    /// How long after a decrease there is no other. At least about as long as a call takes. Defaults to
    /// 100 ms.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// What a decrease leaves of the limit, rounded down: above 0, below 1. Defaults to 0.9.
    pub fn decrease(mut self, factor: f64) -> Self {
        self.decrease = factor;
        self
    }

    /// The clock that calls are timed by. Defaults to the system's.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = AnyClock::new(clock);
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the first option that is out of its range.
    pub fn build(self) -> Result<AdaptiveLimit, ConfigError> {
        checked_bounds(self.least, self.most)?;
        if !(self.decrease > 0.0 && self.decrease < 1.0) {
            return Err(ConfigError::Decrease(self.decrease));
        }
        Ok(AdaptiveLimit {
            core: Arc::new(Core {
                limit: ConcurrencyLimit::new(self.initial.clamp(self.least, self.most)),
                clock: self.clock,
                least: AtomicU32::new(self.least),
                most: AtomicU32::new(self.most),
                target: AtomicU64::new(nanos_saturating(self.target)),
                window: nanos_saturating(self.window),
                factor: (self.decrease * 65_536.0).ceil().min(65_535.0) as u64,
                gain: AtomicU32::new(0),
                lowered: AtomicU64::new(0),
            }),
        })
    }
}
