//! Renewing a lease in the background, as long as its holder gets on.

use core::fmt;
use core::time::Duration;

use super::core::{Core, superseded};
use super::error::{Lost, RenewError};
use super::keeper::Keeper;
use super::{FencingToken, LeaseKey, LeaseValue};
use crate::clock::{Clock, MonotonicClock, Timestamp};
use crate::lock::Mutex;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};

/// How a lease is kept.
///
/// | setting | default |
/// |---|---|
/// | `stall` | the ttl |
/// | `ceiling` | ten times the ttl |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Pulse {
    ttl: Duration,
    stall: Duration,
    ceiling: Duration,
}

impl Pulse {
    /// Renews to `ttl` from the moment of each beat; a beat comes every third of that, a little
    /// earlier or later by chance so that many leases do not beat together.
    pub const fn new(ttl: Duration) -> Self {
        Self { ttl, stall: ttl, ceiling: ttl.saturating_mul(10) }
    }

    /// Without [progress](Beat::progress) for this long, the lease is not renewed: a stuck holder loses
    /// it, as if it had no heartbeat. Defaults to the ttl.
    pub const fn stall(mut self, stall: Duration) -> Self {
        self.stall = stall;
        self
    }

    /// The lease is held no longer than this from when the heartbeat began, whatever its holder does.
    /// `Duration::MAX` is for ever. Defaults to ten times the ttl.
    pub const fn ceiling(mut self, ceiling: Duration) -> Self {
        self.ceiling = ceiling;
        self
    }
}

/// How a heartbeat is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BeatState {
    /// The last beat renewed the lease, or the first one is still to come.
    Beating,
    /// The holder made no progress, so the last beat did not renew. Progress before the deadline
    /// mends it.
    Stalled,
    /// The ceiling is reached: the lease runs out.
    AtCeiling,
    /// The lease is lost.
    Lost(Lost),
    /// It could not be renewed: the range of deadlines ends, or the lease is a session's.
    Refused,
}

/// Renews leases of one table on a thread of its own, which no work can starve. Made by
/// [`LeaseTable::heartbeat`](super::LeaseTable::heartbeat).
///
/// ```
/// use std::time::Duration;
/// use tenure::lease::{LeaseTable, Pulse};
///
/// let table: LeaseTable<&str, u64> = LeaseTable::new();
/// let heart = table.heartbeat();
/// let mut lease = table.try_acquire(&"report", Duration::from_secs(3))?;
/// let beat = heart.keep(lease.key(), lease.token(), Pulse::new(Duration::from_secs(3)));
/// for part in 0..10 {
///     *lease += part; // slow work
///     beat.progress();
/// }
/// lease.commit()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Cancellation and drop
///
/// Dropping it ends the thread; leases that it kept run out. Its [`Beat`]s keep nothing alive.
pub struct Heartbeat<K: LeaseKey, V: LeaseValue, C: Clock = MonotonicClock> {
    core: Arc<Core<K, V, C>>,
    keeper: Arc<Keeper>,
}

/// What holder and heartbeat share.
struct Shared {
    /// Counts calls of `progress`.
    progress: AtomicU64,
    state: Mutex<BeatState>,
    /// 1 once the holder has let go of the beat.
    ended: AtomicU64,
}

/// One lease's place in a [`Heartbeat`], for its holder. Dropping it ends the renewals.
#[must_use = "dropping a beat ends the renewals"]
pub struct Beat {
    shared: Arc<Shared>,
}

impl Beat {
    /// The holder got on. Costs an addition; call it as often as you like, from any thread.
    #[inline]
    pub fn progress(&self) {
        // ORDERING: Relaxed: a count, of which only changes matter; the heartbeat reads it at its next
        // beat.
        self.shared.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// What the last beat did.
    #[must_use]
    pub fn state(&self) -> BeatState {
        *self.shared.state.lock()
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        // ORDERING: Relaxed: a beat that does not see it renews once more, which is harmless.
        self.shared.ended.store(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Beat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Beat").field("state", &self.state()).finish_non_exhaustive()
    }
}

/// One lease, as the heartbeat's thread sees it.
struct Kept<K> {
    key: K,
    token: FencingToken,
    pulse: Pulse,
    /// The end of the holding time.
    last: Timestamp,
    seen: u64,
    moved_on: Timestamp,
    shared: Arc<Shared>,
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Heartbeat<K, V, C> {
    pub(super) fn new(core: Arc<Core<K, V, C>>) -> Self {
        Self { core, keeper: Arc::new(Keeper::new()) }
    }

    /// Keeps the lease of `token` on `key`, from its next beat on. Starting counts as progress.
    pub fn keep(&self, key: &K, token: FencingToken, pulse: Pulse) -> Beat {
        let now = self.core.ticks.clock().now();
        let shared = Arc::new(Shared {
            progress: AtomicU64::new(0),
            state: Mutex::new(BeatState::Beating),
            ended: AtomicU64::new(0),
        });
        let kept = Kept {
            key: key.clone(),
            token,
            pulse,
            last: now.saturating_add(pulse.ceiling),
            seen: 0,
            moved_on: now,
            shared: shared.clone(),
        };
        next_beat(&self.core, &self.keeper, kept, now);
        Beat { shared }
    }
}

/// A third of the ttl after `now`, a tenth more or less. Counted from the beat itself, not from when it
/// is done: a thread that is held up in between beats late once, not late for ever.
fn next_beat<K: LeaseKey, V: LeaseValue, C: Clock>(
    core: &Arc<Core<K, V, C>>,
    keeper: &Arc<Keeper>,
    kept: Kept<K>,
    now: Timestamp,
) {
    let third = kept.pulse.ttl / 3;
    let period = third.mul_f64(fastrand::f64().mul_add(0.2, 0.9)).max(Duration::from_millis(1));
    let at = now.saturating_add(period);
    let shared = kept.shared.clone();
    let (later, own) = (core.clone(), keeper.clone());
    let job = Box::new(move || kept.beat(&later, &own));
    if Keeper::at(core, keeper, at, job).is_err() {
        // No thread, or stopped: nobody renews.
        *shared.state.lock() = BeatState::Refused;
    }
}

impl<K: LeaseKey> Kept<K> {
    fn beat<V: LeaseValue, C: Clock>(mut self, core: &Arc<Core<K, V, C>>, keeper: &Arc<Keeper>) {
        // ORDERING: Relaxed: see `Beat::drop` and `Beat::progress`.
        if self.shared.ended.load(Ordering::Relaxed) != 0 {
            return;
        }
        let now = core.ticks.clock().now();
        // ORDERING: Relaxed: only whether it moved counts; a stale count is seen a beat later.
        let progress = self.shared.progress.load(Ordering::Relaxed);
        if progress != self.seen {
            self.seen = progress;
            self.moved_on = now;
        }
        let state = self.renew(core, now);
        *self.shared.state.lock() = state;
        if matches!(state, BeatState::Beating | BeatState::Stalled) {
            next_beat(core, keeper, self, now);
        }
    }

    fn renew<V: LeaseValue, C: Clock>(
        &self,
        core: &Arc<Core<K, V, C>>,
        now: Timestamp,
    ) -> BeatState {
        let Ok(slot) = core.follow(&self.key) else { return BeatState::Lost(Lost::Removed) };
        let Some(epoch) = slot.epoch_of(self.token) else {
            return BeatState::Lost(superseded(&slot, slot.word.load()));
        };
        if let Err(lost) = core.standing(&slot, epoch) {
            return BeatState::Lost(lost);
        }
        if now.saturating_since(self.moved_on) >= self.pulse.stall {
            return BeatState::Stalled;
        }
        if now >= self.last {
            return BeatState::AtCeiling;
        }
        let ttl = self.pulse.ttl.min(self.last.saturating_since(now));
        match core.renew(&slot, epoch, ttl) {
            Ok(()) => BeatState::Beating,
            Err(RenewError::Lost(lost)) => BeatState::Lost(lost),
            Err(
                RenewError::TtlOutOfRange { .. }
                | RenewError::InSession
                | RenewError::VersionChanged
                | RenewError::TokensUsedUp,
            ) => BeatState::Refused,
        }
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Drop for Heartbeat<K, V, C> {
    fn drop(&mut self) {
        self.keeper.stop();
    }
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> fmt::Debug for Heartbeat<K, V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Heartbeat { .. }")
    }
}
