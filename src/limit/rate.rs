//! A limit of how many in a time.

use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::{Pin, pin};
use core::task::Poll;
use core::time::Duration;
use std::sync::Weak;

use super::error::Limited;
use super::gcra::{Rate, Schedule};
use super::pause::Pause;
use super::watch::Watchers;
use super::{Listener, Lock};
use crate::clock::{AnyClock, Clock};
use crate::sync::Arc;
use crate::wait::Deadline;

/// At most so many in a time: the generic cell rate algorithm, in one word.
///
/// Clones are the same limit. In any interval of length *d* it lets through at most
/// `burst + d / interval` calls, where the interval is the period divided by the number; and whoever asks
/// at that pace is never refused. It begins with a whole burst.
///
/// ```
/// use std::time::Duration;
/// use tenure::clock::ManualClock;
/// use tenure::limit::{Rate, RateLimit};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = ManualClock::new();
/// let limit = RateLimit::with_clock(Rate::per_second(10)?.burst(2)?, clock.clone());
/// limit.try_acquire()?;
/// limit.try_acquire()?;
/// let refused = limit.try_acquire().unwrap_err();
/// assert_eq!(refused.retry_after, Some(Duration::from_millis(100)));
/// clock.advance(Duration::from_millis(100));
/// limit.try_acquire()?;
/// # Ok(())
/// # }
/// ```
///
/// # Cost
///
/// Letting through is a look at the clock and one locked instruction. Refusing writes nothing, and looks
/// at the coarse clock only, unless the time is nearly there.
///
/// # Changing it
///
/// [`set_rate`](Self::set_rate) keeps what has been used up: half a burst before is half a burst after. A
/// call that races it may be judged by either rate, or by the interval of one and the burst of the other.
/// Whoever waits looks again at once.
#[derive(Clone)]
pub struct RateLimit {
    core: Arc<Core>,
}

struct Core {
    schedule: Schedule,
    clock: AnyClock,
    /// The first of those who block: the others wait behind it, in order.
    head: Lock<()>,
    pause: Pause,
    watchers: Watchers,
}

impl RateLimit {
    /// A limit by the system's clock.
    #[must_use]
    pub fn new(rate: Rate) -> Self {
        Self::made(rate, AnyClock::default())
    }

    /// A limit by `clock`.
    #[must_use]
    pub fn with_clock(rate: Rate, clock: impl Clock) -> Self {
        Self::made(rate, AnyClock::new(clock))
    }

    fn made(rate: Rate, clock: AnyClock) -> Self {
        let pause = Pause::new(&clock);
        Self {
            core: Arc::new(Core {
                schedule: Schedule::new(rate),
                clock,
                head: Lock::new(()),
                pause,
                watchers: Watchers::new(),
            }),
        }
    }

    /// Takes one permit.
    ///
    /// # Errors
    ///
    /// [`Limited`] with the time after which there is one, if nobody else takes it; without one if
    /// that lies beyond the end of time.
    #[inline]
    pub fn try_acquire(&self) -> Result<RatePermit, Limited> {
        self.try_acquire_many(1)
    }

    /// Takes `count` permits, or none. 0 are always there.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire); never with a time if `count` is more than the burst.
    #[inline]
    pub fn try_acquire_many(&self, count: u32) -> Result<RatePermit, Limited> {
        let taken = self.core.schedule.take(count, &self.core.clock)?;
        Ok(RatePermit { core: Arc::clone(&self.core), before: taken.0, after: taken.1 })
    }

    /// Whether [`try_acquire`](Self::try_acquire) would be refused now. Takes nothing.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire).
    pub fn check(&self) -> Result<(), Limited> {
        self.core.schedule.check(&self.core.clock)
    }

    /// Waits for a permit. Those who block here have their turns in order; who does not block may
    /// overtake them.
    ///
    /// # Blocking
    ///
    /// Until it is time, or the rate is changed so that it is. Not for async code. On a clock that is
    /// moved by hand: until it is moved.
    pub fn acquire(&self) -> RatePermit {
        loop {
            if let Ok(permit) = self.acquire_by(Deadline::NEVER) {
                return permit;
            }
        }
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
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<RatePermit, Limited> {
        self.acquire_by(Deadline::after(timeout))
    }

    fn acquire_by(&self, deadline: Deadline) -> Result<RatePermit, Limited> {
        let core = &self.core;
        let mut limited = match self.try_acquire() {
            Err(limited) => limited,
            permit => return permit,
        };
        // Held while this thread sleeps: that is the line. Nothing foreign runs under it but the clock.
        let Some(_head) = super::lock_by(&core.head, deadline) else { return Err(limited) };
        loop {
            let seen = core.pause.look();
            limited = match self.try_acquire() {
                Err(limited) => limited,
                permit => return permit,
            };
            if deadline.has_passed() {
                return Err(limited);
            }
            let left = limited
                .retry_after
                .and_then(|left| core.clock.real_time_until(core.clock.now().saturating_add(left)));
            core.pause.sleep(seen, left, deadline);
        }
    }

    /// A permit, when it is time: sleeps by the futures that `sleep` makes, as
    /// [`RetryPolicy::run_async`](crate::retry::RetryPolicy::run_async) does. Those who wait so have no
    /// order among them.
    ///
    /// Looks again at once when the rate is changed. Dropping the future takes nothing.
    pub async fn acquire_async<S, F>(&self, mut sleep: S) -> RatePermit
    where
        S: FnMut(Duration) -> F,
        F: Future<Output = ()>,
    {
        loop {
            let mut changed = self.core.pause.changed();
            let limited = match self.try_acquire() {
                Err(limited) => limited,
                Ok(permit) => return permit,
            };
            let Some(retry_after) = limited.retry_after else {
                let _ = changed.await;
                continue;
            };
            let mut asleep = pin!(sleep(retry_after));
            poll_fn(|cx| match Pin::new(&mut changed).poll(cx) {
                Poll::Ready(_) => Poll::Ready(()),
                Poll::Pending => asleep.as_mut().poll(cx),
            })
            .await;
        }
    }

    /// Changes rate and burst.
    pub fn set_rate(&self, rate: Rate) {
        self.core.schedule.change(rate, &self.core.clock);
        self.core.pause.tell();
        self.core.watchers.tell();
    }

    /// The rate now.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.core.schedule.rate()
    }

    /// How many permits could be taken at once now.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.core.schedule.available(&self.core.clock)
    }

    /// Has `listener` told when the rate is changed or a permit is given back.
    pub fn watch(&self, listener: Weak<dyn Listener>) {
        self.core.watchers.add(listener);
    }

    /// What tells it from all others that live; its clones have the same.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.core).addr()
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("rate", &self.rate())
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

/// A permit that was used up when it was taken: dropping it does nothing.
pub struct RatePermit {
    core: Arc<Core>,
    before: u64,
    after: u64,
}

impl RatePermit {
    /// Gives it back, unused. True: it could be. False: somebody has taken one since; to give this one
    /// back then might let through more than the rate, so it stays used.
    pub fn give_back(self) -> bool {
        let back = self.core.schedule.give_back(self.before, self.after);
        if back {
            self.core.pause.tell();
            self.core.watchers.tell();
        }
        back
    }
}

impl fmt::Debug for RatePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RatePermit")
    }
}
