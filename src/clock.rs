//! Clocks: monotonic, coarse, and one that a test moves by hand.
//!
//! Everything timed in this crate takes a [`Clock`] and speaks in [`Timestamp`]s: nanoseconds since
//! the clock's own origin. No deadline is ever an `Instant`, so nothing can overflow one.
//!
//! | clock              | `now`                     | `coarse`                         | for                |
//! |--------------------|---------------------------|----------------------------------|--------------------|
//! | [`MonotonicClock`] | the system's steady clock | Linux: the kernel's last tick    | everything real    |
//! | [`ManualClock`]    | what [`ManualClock::advance`] made it | the same             | tests              |
//!
//! All monotonic clocks of a process share one origin, so their timestamps can be compared. A
//! machine that is suspended stops the monotonic clock: leases and delays stand still with it, and
//! so does everybody who could have taken over. Resources outside the process do not stand still;
//! that is what fencing tokens are for.
//!
//! ```
//! use std::time::Duration;
//! use tenure::clock::{Clock, ManualClock};
//!
//! let clock = ManualClock::new();
//! let start = clock.now();
//! clock.advance(Duration::from_secs(5));
//! assert_eq!(clock.now().saturating_since(start), Duration::from_secs(5));
//! ```

use core::fmt;
use core::time::Duration;
use std::sync::Weak;

use crate::sync::atomic::{AtomicU64, Ordering};

/// A moment: nanoseconds since its clock's origin.
///
/// [`Timestamp::NEVER`] is later than every moment. The range is 584 years; sums saturate there.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The clock's origin.
    pub const ORIGIN: Self = Self(0);
    /// Later than every moment a clock will tell.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whether this is [`Timestamp::NEVER`].
    #[must_use]
    pub const fn is_never(self) -> bool {
        self.0 == u64::MAX
    }

    /// This moment and `duration` more; [`Timestamp::NEVER`] where that is out of range.
    #[must_use]
    pub const fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos_saturating(duration)))
    }

    /// This moment and `duration` more; `None` where that is out of range or would be `NEVER`.
    #[must_use]
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        let nanos = u64::try_from(duration.as_nanos()).ok()?;
        match self.0.checked_add(nanos)? {
            u64::MAX => None,
            sum => Some(Self(sum)),
        }
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A duration in nanoseconds; `u64::MAX` where it has more.
pub(crate) const fn nanos_saturating(duration: Duration) -> u64 {
    let nanos = duration.as_nanos();
    if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_never() {
            f.write_str("never")
        } else {
            write!(f, "+{:?}", Duration::from_nanos(self.0))
        }
    }
}

/// Told when a clock jumped, so that sleepers look at it again. See [`Clock::on_advance`].
pub trait AdvanceListener: Send + Sync {
    /// The clock moved. Called on the thread that moved it, with no lock held; must not block.
    fn clock_advanced(&self);
}

/// A source of time that never goes backwards.
///
/// Implementations must be cheap and must not panic: they are read inside hot calls.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The time now, precisely.
    fn now(&self) -> Timestamp;

    /// The time a moment ago, cheaply: at most [`coarse_lag`](Clock::coarse_lag) behind
    /// [`now`](Clock::now) and never ahead of it.
    fn coarse(&self) -> Timestamp {
        self.now()
    }

    /// How far [`coarse`](Clock::coarse) may lag behind [`now`](Clock::now).
    fn coarse_lag(&self) -> Duration {
        Duration::ZERO
    }

    /// How long a thread may really sleep before this clock can have reached `deadline`.
    ///
    /// `None`: no amount of real time brings it there (it is [`Timestamp::NEVER`], or the clock is
    /// moved by hand); sleep until an [`AdvanceListener`] is told.
    fn real_time_until(&self, deadline: Timestamp) -> Option<Duration>;

    /// Asks to be told each time the clock is moved by hand. Clocks that only run ignore it.
    fn on_advance(&self, listener: Weak<dyn AdvanceListener>) {
        let _ = listener;
    }
}

impl<C: Clock + ?Sized> Clock for std::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }

    fn coarse(&self) -> Timestamp {
        (**self).coarse()
    }

    fn coarse_lag(&self) -> Duration {
        (**self).coarse_lag()
    }

    fn real_time_until(&self, deadline: Timestamp) -> Option<Duration> {
        (**self).real_time_until(deadline)
    }

    fn on_advance(&self, listener: Weak<dyn AdvanceListener>) {
        (**self).on_advance(listener);
    }
}

/// The system's steady clock. All of a process's share one origin.
///
/// `now` costs 25–40 ns on the machines we measured, `coarse` 6 ns (Linux only; elsewhere it is
/// `now`). It stands still while the machine is suspended (Linux: `CLOCK_MONOTONIC`).
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock(());

impl MonotonicClock {
    /// The clock.
    #[must_use]
    pub const fn new() -> Self {
        Self(())
    }
}

#[cfg(target_os = "linux")]
mod system {
    //! Both clocks count from the same origin: the machine's boot.

    use core::time::Duration;

    /// Two ticks of the slowest kernel that Linux can be built as (100 Hz).
    pub(super) const COARSE_LAG: Duration = Duration::from_millis(20);

    fn read(clock: libc::clockid_t) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a valid clock id and a place for the answer that lives in this frame.
        let _ = unsafe { libc::clock_gettime(clock, &raw mut time) };
        (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
    }

    #[inline]
    pub(super) fn now() -> u64 {
        read(libc::CLOCK_MONOTONIC)
    }

    #[inline]
    pub(super) fn coarse() -> u64 {
        read(libc::CLOCK_MONOTONIC_COARSE)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    //! One reading is the origin; the clock has no cheaper one.

    use core::time::Duration;
    use std::sync::OnceLock;
    use std::time::Instant;

    pub(super) const COARSE_LAG: Duration = Duration::ZERO;

    pub(super) fn now() -> u64 {
        static ORIGIN: OnceLock<Instant> = OnceLock::new();
        super::nanos_saturating(ORIGIN.get_or_init(Instant::now).elapsed())
    }

    pub(super) fn coarse() -> u64 {
        now()
    }
}

impl Clock for MonotonicClock {
    #[inline]
    fn now(&self) -> Timestamp {
        Timestamp(system::now())
    }

    #[inline]
    fn coarse(&self) -> Timestamp {
        Timestamp(system::coarse())
    }

    fn coarse_lag(&self) -> Duration {
        system::COARSE_LAG
    }

    fn real_time_until(&self, deadline: Timestamp) -> Option<Duration> {
        (!deadline.is_never()).then(|| deadline.saturating_since(self.now()))
    }
}

/// Any clock, for what does not name its clock in its type: the system's is read without a call
/// through a table.
#[derive(Clone, Debug)]
pub(crate) enum AnyClock {
    Monotonic(MonotonicClock),
    Other(std::sync::Arc<dyn Clock>),
}

impl AnyClock {
    pub(crate) fn new(clock: impl Clock) -> Self {
        let any: &dyn core::any::Any = &clock;
        match any.downcast_ref::<MonotonicClock>() {
            Some(clock) => Self::Monotonic(*clock),
            None => Self::Other(std::sync::Arc::new(clock)),
        }
    }
}

impl Default for AnyClock {
    fn default() -> Self {
        Self::Monotonic(MonotonicClock::new())
    }
}

impl Clock for AnyClock {
    #[inline]
    fn now(&self) -> Timestamp {
        match self {
            Self::Monotonic(clock) => clock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    #[inline]
    fn coarse(&self) -> Timestamp {
        match self {
            Self::Monotonic(clock) => clock.coarse(),
            Self::Other(clock) => clock.coarse(),
        }
    }

    fn coarse_lag(&self) -> Duration {
        match self {
            Self::Monotonic(clock) => clock.coarse_lag(),
            Self::Other(clock) => clock.coarse_lag(),
        }
    }

    fn real_time_until(&self, deadline: Timestamp) -> Option<Duration> {
        match self {
            Self::Monotonic(clock) => clock.real_time_until(deadline),
            Self::Other(clock) => clock.real_time_until(deadline),
        }
    }

    fn on_advance(&self, listener: Weak<dyn AdvanceListener>) {
        match self {
            Self::Monotonic(clock) => clock.on_advance(listener),
            Self::Other(clock) => clock.on_advance(listener),
        }
    }
}

/// A clock that a test moves by hand. Clones are the same clock.
///
/// Moving it tells every [`AdvanceListener`], so that timers which became due fire without anybody
/// sleeping in real time.
#[derive(Clone)]
pub struct ManualClock {
    shared: std::sync::Arc<Manual>,
}

struct Manual {
    nanos: AtomicU64,
    // A `std` lock: the crate's own lock stands on rooms that stand on this one, and this is never
    // on a hot path. Poison is ignored: the list is whole between any two of its operations.
    // `std`'s: the clock stands below the room `lock`.
    listeners: std::sync::Mutex<Vec<Weak<dyn AdvanceListener>>>,
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl ManualClock {
    /// A clock that stands at its origin.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: std::sync::Arc::new(Manual {
                nanos: AtomicU64::new(0),
                listeners: std::sync::Mutex::new(Vec::new()),
            }),
        }
    }

    /// Moves the clock on; it stops one nanosecond short of [`Timestamp::NEVER`].
    pub fn advance(&self, by: Duration) {
        let by = nanos_saturating(by);
        // ORDERING: Release: what the mover did before is visible to whoever reads the new time
        // (Acquire in `now`), as a reader of a real clock would expect of its own past; later moves
        // continue its release sequence. Relaxed where it fails: looked at anew.
        let mut seen = self.shared.nanos.load(Ordering::Relaxed);
        loop {
            let next = seen.saturating_add(by).min(u64::MAX - 1);
            match self.shared.nanos.compare_exchange(
                seen,
                next,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        self.tell();
    }

    /// Moves the clock on to `at`, if that lies ahead.
    pub fn advance_to(&self, at: Timestamp) {
        // ORDERING: Release, as in `advance`.
        self.shared.nanos.fetch_max(at.0.min(u64::MAX - 1), Ordering::Release);
        self.tell();
    }

    fn tell(&self) {
        let listeners: Vec<_> = {
            let mut list =
                self.shared.listeners.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            list.retain(|listener| listener.strong_count() > 0);
            list.iter().filter_map(Weak::upgrade).collect()
        };
        for listener in listeners {
            listener.clock_advanced();
        }
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ManualClock").field(&self.now()).finish()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        // ORDERING: Acquire: pairs with the Release in `advance` and `advance_to`.
        Timestamp(self.shared.nanos.load(Ordering::Acquire))
    }

    fn real_time_until(&self, _deadline: Timestamp) -> Option<Duration> {
        None
    }

    fn on_advance(&self, listener: Weak<dyn AdvanceListener>) {
        self.shared
            .listeners
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(listener);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_saturate_and_never_is_not_a_moment() {
        let at = Timestamp::from_nanos(5);
        assert_eq!(at.saturating_add(Duration::MAX), Timestamp::NEVER);
        assert_eq!(at.checked_add(Duration::MAX), None);
        assert_eq!(at.checked_add(Duration::from_nanos(u64::MAX - 5)), None);
        assert_eq!(at.checked_add(Duration::ZERO), Some(at));
        assert_eq!(at.saturating_since(Timestamp::NEVER), Duration::ZERO);
    }

    #[test]
    fn coarse_is_never_ahead_and_lags_within_its_bound() {
        let clock = MonotonicClock::new();
        for _ in 0..10_000 {
            let before = clock.now();
            let coarse = clock.coarse();
            let after = clock.now();
            assert!(coarse <= after);
            assert!(before.saturating_since(coarse) <= clock.coarse_lag(), "{before:?} {coarse:?}");
        }
    }

    #[test]
    fn a_manual_clock_stops_short_of_never_and_tells_its_listeners() {
        use crate::sync::atomic::AtomicU32;
        use std::sync::Arc;

        struct Count(AtomicU32);
        impl AdvanceListener for Count {
            fn clock_advanced(&self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let clock = ManualClock::new();
        let count = Arc::new(Count(AtomicU32::new(0)));
        let listener: Weak<dyn AdvanceListener> = Arc::downgrade(&count) as _;
        clock.on_advance(listener);
        clock.advance(Duration::MAX);
        assert!(!clock.now().is_never());
        clock.advance(Duration::MAX);
        clock.advance_to(Timestamp::NEVER);
        assert!(!clock.now().is_never());
        assert_eq!(count.0.load(Ordering::Relaxed), 3);
        assert_eq!(clock.real_time_until(Timestamp::ORIGIN), None);
    }
}
