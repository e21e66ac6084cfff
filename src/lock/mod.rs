//! Locks: [`AdaptiveMutex`], [`AdaptiveRwLock`], [`AdaptiveCondvar`], [`PoisonMutex`].
//!
//! A mutex that costs half of `std`'s while nobody waits, tries for a moment when it is taken, then
//! sleeps in the kernel, on its own words, without a table or an allocation, and hands itself to
//! whoever has been overtaken for too long.
//!
//! ```
//! use std::thread;
//! use tenure::lock::AdaptiveMutex;
//!
//! static TOTAL: AdaptiveMutex<u64> = AdaptiveMutex::new(0);
//!
//! let threads: Vec<_> = (0..4).map(|i| thread::spawn(move || *TOTAL.lock() += i)).collect();
//! for thread in threads {
//!     thread.join().unwrap();
//! }
//! assert_eq!(*TOTAL.lock(), 6);
//! ```
//!
//! | file        | what it is                                                       |
//! |-------------|------------------------------------------------------------------|
//! | `state`     | the mutex's two words and their transitions                      |
//! | `unlock`    | who pays for finding sleepers: the sleeper, or each unlock       |
//! | `raw`       | the mutex for `lock_api`: spin, sleep, starve                    |
//! | `condvar`   | the condition variable                                           |
//! | `rwlock`    | the reader-writer lock, with a word and tables of its own        |
//! | `poison`    | a mutex that remembers panics, for those who ask for one         |
//! | `contention`| counters, behind the feature `lock-contention`                   |
//! | `house`    | which lock the rest of the crate uses                            |
//!
//! # The words
//!
//! ```text
//! | `word` | meaning                                  | who may write it                              |
//! |--------|------------------------------------------|-----------------------------------------------|
//! | FREE   | nobody owns it                           | anybody: FREE → HELD, by a CAS                |
//! | HELD   | somebody does                            | the owner alone: → FREE or HANDED, by a store |
//! | HANDED | the starving waiter does, and has not noticed | the starving waiter alone: HANDED → HELD, by a CAS |
//!
//! | `queue` bits | name      | meaning                                        | who writes it                            |
//! |--------------|-----------|------------------------------------------------|------------------------------------------|
//! | 0            | CONTENDED | an unlock has to look with a read-modify-write | a waiter sets; the owner clears          |
//! | 1            | SLEEPING  | somebody sleeps, or is about to                | a waiter sets; an unlock clears, and wakes one |
//! | 2            | STARVING  | one waiter is to be handed the lock            | that waiter sets; it clears, or an owner makes it PROMISED |
//! | 3            | PROMISED  | `word` is HANDED, or will be any moment        | an owner sets; the starving waiter clears |
//! | 4–7          | BUDGET    | how long to spin                               | nobody: as the lock was made             |
//! | 8–19         |           | zero                                           |                                          |
//! | 20–31        | QUIET     | contended unlocks since one woke somebody      | unlock +1 (wraps), or 0                  |
//!
//!        lock: CAS, Acquire                   announce: SLEEPING | CONTENDED, or STARVING | CONTENDED
//!      FREE ─────────────────► HELD      idle ───────────────────────────────► contended
//!        ▲                      │ ▲        ▲        then a heavy barrier            │
//!        └──────────────────────┘ │        └────────────────────────────────────────┘
//!       unlock: store, Release    │           the owner, after 4,095 quiet unlocks
//!                                 └─ hand-over: STARVING → PROMISED, then store HANDED, Release
//! ```
//!
//! The queue is *idle* when only BUDGET is not zero. An unlock that sees it idle before it frees the
//! word, and again afterwards, is done: a load, a store, a load.
//!
//! Sleepers are not counted. The flag says "one at least, perhaps": the unlock that clears it wakes
//! one, and whoever was woken sets it again, since others may sleep. So one wake is under way at a
//! time, however short the sections are; and a wake that nobody of this lock sent (a futex wake names
//! an address, where another lock may have lain) costs one look and leaves nothing behind. The price
//! is one wake that finds nobody, after the last sleeper.
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | HELD → FREE → HELD | `State::release_*` | `State::try_take` | the protected data |
//! | HELD → HANDED → HELD | `State::release_slowly` | `State::take_handed` | the protected data |
//! | unlock's look → waiter's announcement | `State::look_for_waiters` | `State::announce`, `announce_starving`; `sleep_starving`, when it gives up | that the word is free |
//! | waiter's announcement → unlock's second look | heavy barrier in `State::become_seen` | light barrier in `State::release_plainly` | the announcement, or that the word is free |
//!
//! # No wake is lost
//!
//! Waiter S announces itself (A1: SLEEPING and CONTENDED, one read-modify-write), passes the heavy
//! barrier if CONTENDED was off before (A2), looks at the word (A3), and lets the kernel compare the
//! queue with what A1 left there as it puts S to sleep (A4). Unlock U looks at the queue (R1), frees
//! the word (R2), and looks again (R3); where R1 or R3 saw the queue not idle, R3 is a
//! read-modify-write, and where that sees SLEEPING, it clears the flag and U wakes one.
//!
//! Claim: while SLEEPING is set, somebody is *bound* by it: a waiter between its A1 and its A3, or an
//! owner whose R3 will be a read-modify-write that sees it. Nobody stays asleep for ever then, for
//! the flag is set, or a wake is under way to someone who sets it again.
//!
//! 1. *A3 takes the lock.* S is the owner, and its own R1 sees the flag.
//! 2. *A3 finds the lock held by U, and CONTENDED was on before A1, or R1 came after A1.* R3 is a
//!    read-modify-write of the queue, as A1 is: one comes first. If A1, R3 sees S. If R3, then A1 reads
//!    from it or from what is built on it (Release, Acquire), R2 is visible at A3, and U is not the
//!    one that A3 found.
//! 3. *CONTENDED was off before A1, and R1 idle.* U's program is cut in two by S's barrier. If R2 lies
//!    before the cut, it is visible at A3. If not, R3 lies behind the cut, hence behind A1: it sees
//!    that the queue is not idle, and case 2 holds.
//! 4. *S saw CONTENDED on, but whoever turned it on, S′, has not passed its barrier.* An unlock under
//!    way may miss S. Then S′ is bound: it is between its A1 and its A3, and its A3 comes after the
//!    barrier. So whoever announces itself looks at the word afterwards, also where it does not want
//!    to sleep; that is why CONTENDED comes before the barrier, in one step with SLEEPING, and stays
//!    when SLEEPING is cleared: after A1 no unlock begins plainly, until the owner leaves the mode.
//! 5. *Leaving contended mode* is a compare-and-exchange by the owner, over a queue without waiters.
//!    If S announced itself before, it fails. If after, S saw the mode off, and case 3 holds.
//! 6. *A4.* If U cleared the flag before S slept, the queue is not what A1 left: S looks again. If
//!    another waiter set it again meanwhile, A4 may pass, and that waiter is bound. If U cleared it
//!    after S slept, U's wake comes after that, and finds S or one who sleeps longer.
//! 7. *A woken thread* announces itself once more before it takes the lock, sleeps, or gives up.
//! 8. *The starving waiter* sleeps on the *word*, while it is HELD. An unlock that saw STARVING in R1
//!    promises and hands over; one that sees it in R3 has freed the word, and wakes the starving one.
//!    It leaves SLEEPING set: the starving one takes the lock, or gives up and then tries once more;
//!    either way a later unlock sees the flag. A promise cannot be given up: who finds PROMISED when
//!    its time is over waits for the store that follows, and owns the lock.
//! 9. *No barrier to be had:* S sleeps for a millisecond at most and looks again, longer than a store
//!    stays in a buffer.
//!
//! The loom models explore all of these but the difference between the light barrier and a full one,
//! which loom does not know. `tests/lock_tso.rs` does: it compiles the files of this room once more,
//! for a machine with store buffers, explores what ships, and fails when the barrier is left out.
//!
//! # Spinning, and how to pin it
//!
//! See [`SpinPolicy`](crate::wait::SpinPolicy): a newcomer tries for 3 rounds of 1, 2 and 4 pauses and
//! then gives the processor away 7 times; one that was woken pauses for 6 rounds. The budget is fixed:
//! one that learned (half a round more for each win in the later rounds, back to the floor after a
//! loss) was built and measured beside it, with mixed results: throughput within 1.1 times of
//! `parking_lot` at 18 of 24 points instead of 21, above the best of three at 8 instead of 6, p99.9 at
//! 14 instead of 12, longest wait at 19 instead of 20. So the simpler one stays. Pin it with [`RawAdaptiveMutex::with_policy`]. On one processor, or under
//! a quota of one, nobody spins.
//!
//! # Fairness
//!
//! Whoever comes may overtake those who sleep: a lock that always goes to the longest waiter is 3 to
//! 12 times slower. A wake goes to the longest sleeper. One that was woken, found the lock taken
//! again, and has waited for half a millisecond since it came, starves: the next unlock hands it the
//! lock. It is awake then, so that costs little. One at a time; the others' turns come after it.
//!
//! # Throughput against tail
//!
//! Each mark is a lock over the 24 cases of the table below (geometric means). The pale ones are
//! other points of this one, drawn when the parameters were chosen: how long a waiter is overtaken before
//! it is handed the lock, and how long it spins. The chosen one met the most bars; where no point had
//! both, it has the shorter p99.9, and paid, in that run, with a longest wait 1.27 times that of
//! `parking_lot` on average.
//!
#![doc = include_str!("frontier.svg")]
//!
//! # When to use which
//!
//! Two processors of an AMD EPYC guest, nothing else running; 5 rounds of 25 ms for each lock, peers
//! in turns, medians (`cargo bench --bench contention -- --short --slice 25`).
//!
//! Lock and unlock with nobody waiting: 0.40 of `std`, 0.43 of `parking_lot` 0.13, 0.43 of `usync`;
//! one of 4,096 cold locks: 0.89, 0.63 and 0.76 (`cargo bench --bench lock`, beside other work, and before
//! the slow path had the form described above).
//!
//! Threads × nanoseconds under the lock / outside; over 1.00 is more throughput, or a longer wait,
//! than the peer's. *Least* is the least-served thread over its fair share: in a slice of 25 ms, where
//! the scheduler gives each of 16 threads a few turns, near nothing means that the thread was not run.
//!
//! | case | throughput, over the best of `std`, `parking_lot`, `usync` | over `parking_lot` 0.13 | p99.9 wait | longest wait | least |
//! |---|---|---|---|---|---|
//! | 2 × 0/0 pinned | 1.01 | 1.21 | 0.92 | 1.05 | 0.88 |
//! | 2 × 0/60 pinned | 0.99 | 1.09 | 1.55 | 0.83 | 0.99 |
//! | 2 × 600/0 pinned | 0.97 | 0.97 | 0.37 | 0.58 | 0.65 |
//! | 2 × 600/600 pinned | 0.94 | 1.00 | 1.63 | 0.86 | 1.00 |
//! | 2 × 6000/0 pinned | 0.89 | 0.90 | 0.29 | 0.20 | 0.89 |
//! | 2 × 6000/6000 pinned | 1.03 | 1.03 | 0.83 | 1.16 | 1.00 |
//! | 4 × 0/0 | 1.00 | 1.00 | 0.28 | 0.79 | 0.53 |
//! | 4 × 0/60 | 0.90 | 0.90 | 1.05 | 1.10 | 0.69 |
//! | 4 × 600/0 | 1.10 | 1.16 | 0.61 | 1.09 | 0.41 |
//! | 4 × 600/600 | 0.87 | 0.98 | 0.72 | 0.98 | 0.73 |
//! | 4 × 6000/0 | 0.93 | 1.23 | 4.00 | 4.63 | 0.41 |
//! | 4 × 6000/6000 | 1.00 | 1.00 | 1.48 | 1.79 | 0.78 |
//! | 16 × 0/0 | 0.96 | 0.96 | 1.22 | 1.44 | 0.55 |
//! | 16 × 0/60 | 1.06 | 1.06 | 1.09 | 1.04 | 0.01 |
//! | 16 × 600/0 | 1.02 | 1.02 | 0.42 | 0.62 | 0.58 |
//! | 16 × 600/600 | 1.00 | 1.00 | 0.74 | 0.99 | 0.09 |
//! | 16 × 6000/0 | 0.97 | 1.55 | 3.50 | 3.81 | 0.09 |
//! | 16 × 6000/6000 | 1.04 | 1.04 | 0.99 | 0.93 | 0.27 |
//! | 4 × bimodal | 0.91 | 1.05 | 1.09 | 0.91 | 0.52 |
//! | 4 × 600/600 hogs | 0.75 | 0.90 | 14.05 | 0.70 | 0.04 |
//! | 4 × 600/600 one cpu | 1.00 | 1.05 | 1.00 | 1.14 | 0.63 |
//! | 16 × bimodal | 0.92 | 1.08 | 1.34 | 1.04 | 0.14 |
//! | 16 × 600/600 hogs | 0.94 | 0.98 | 1.50 | 1.01 | 0.00 |
//! | 16 × 600/600 one cpu | 1.05 | 1.27 | 1.50 | 1.21 | 0.00 |
//!
//! Against the bars, in this one run: throughput no less than `parking_lot`'s over 1.1 at 21 of 24, and
//! more than the best of three at 9 (half was aimed at); p99.9 within 1.1 times at 14, missed by most at
//! 4 × 600/600 beside hogs and with sections of 6 µs; longest wait within twice at 22. The least-served
//! thread has half its share at 2 of the 9 points with 16 threads. Other runs of the same code differ by a
//! few points in each column: a p99.9 of a slice of 25 ms is a handful of waits.
//!
//! - **This lock**: many locks that are rarely contended; a few threads more than processors; timed
//!   locking, owned and mapped guards, counters, or models with loom.
//! - **`parking_lot`**: one byte a lock, its ecosystem, or a p99.9 that matters beside threads that keep
//!   all processors busy.
//! - **`std`**: throughput alone counts, starvation does not, or no dependency is wanted.
//! - An unlock that hands over each time (`parking_lot::FairMutex`): shares must be equal, at 3 to 12
//!   times the price.
//!
//! # Freeing
//!
//! An unlock looks at the queue after it freed the word. Safe code cannot free the lock under it,
//! for it borrows it. Unsafe code that lets the next owner free the memory has to keep it alive
//! until `unlock` returned.

mod condvar;
#[cfg(feature = "lock-contention")]
mod contention;
mod house;
mod poison;
mod raw;
mod rwlock;
mod state;
mod unlock;

pub use condvar::RawAdaptiveCondvar;
#[cfg(feature = "lock-contention")]
pub use contention::{Contention, ContentionExt};
pub(crate) use house::{Mutex, Unseen, UnseenGuard};
pub use poison::{PoisonGuard, PoisonMutex, Poisoned};
pub use raw::RawAdaptiveMutex;
pub use rwlock::RawAdaptiveRwLock;
pub use unlock::{AsymmetricUnlock, PlatformUnlock, SymmetricUnlock, Unlock};

/// A mutual exclusion lock that tries for a moment and then sleeps.
///
/// Everything of [`lock_api::Mutex`]: [`lock`](lock_api::Mutex::lock),
/// [`try_lock`](lock_api::Mutex::try_lock), [`try_lock_for`](lock_api::Mutex::try_lock_for),
/// [`try_lock_until`](lock_api::Mutex::try_lock_until), guards that own an `Arc` of the lock
/// ([`lock_arc`](lock_api::Mutex::lock_arc)), guards of a part of the data
/// ([`MutexGuard::map`](lock_api::MutexGuard::map)), and a `const fn`
/// [`new`](lock_api::Mutex::new). No poisoning: a panic under the lock unlocks it. `Debug` shows
/// `<locked>` rather than blocking.
///
/// # Blocking
///
/// A thread that locks a lock it already owns waits for ever.
///
/// # Threads
///
/// The lock may be shared if its data may be sent. A guard stays on its thread:
///
/// ```
/// use tenure::lock::{AdaptiveMutex, AdaptiveMutexGuard};
/// fn shared<T: Sync>() {}
/// shared::<AdaptiveMutex<std::cell::Cell<u32>>>();
/// shared::<AdaptiveMutexGuard<'_, u32>>();
/// ```
/// ```compile_fail,E0277
/// use tenure::lock::AdaptiveMutexGuard;
/// fn sent<T: Send>() {}
/// sent::<AdaptiveMutexGuard<'_, u32>>();
/// ```
/// ```compile_fail,E0277
/// use tenure::lock::AdaptiveMutex;
/// fn shared<T: Sync>() {}
/// shared::<AdaptiveMutex<std::rc::Rc<u32>>>();
/// ```
/// ```compile_fail,E0277
/// use tenure::lock::AdaptiveMutexGuard;
/// fn shared<T: Sync>() {}
/// shared::<AdaptiveMutexGuard<'_, std::cell::Cell<u32>>>();
/// ```
/// ```compile_fail,E0277
/// use tenure::lock::ArcAdaptiveMutexGuard;
/// fn sent<T: Send>() {}
/// sent::<ArcAdaptiveMutexGuard<u32>>();
/// ```
/// ```compile_fail,E0277
/// use tenure::lock::MappedAdaptiveMutexGuard;
/// fn sent<T: Send>() {}
/// sent::<MappedAdaptiveMutexGuard<'_, u32>>();
/// ```
/// ```compile_fail,E0277
/// use tenure::lock::PoisonGuard;
/// fn sent<T: Send>() {}
/// sent::<PoisonGuard<'_, u32>>();
/// ```
///
/// # Cancellation and drop
///
/// A timed call that gives up leaves the lock as if it had never come, but for one wake that the next
/// unlock may send in vain.
pub type AdaptiveMutex<T> = lock_api::Mutex<RawAdaptiveMutex, T>;

/// Unlocks its [`AdaptiveMutex`] when it is dropped. Not `Send`: it is dropped where it was made.
pub type AdaptiveMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawAdaptiveMutex, T>;

/// A guard of a part of the data, from [`MutexGuard::map`](lock_api::MutexGuard::map).
pub type MappedAdaptiveMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawAdaptiveMutex, T>;

/// A guard that owns an `Arc` of its lock, from [`lock_arc`](lock_api::Mutex::lock_arc).
pub type ArcAdaptiveMutexGuard<T> = lock_api::ArcMutexGuard<RawAdaptiveMutex, T>;

/// A condition variable for [`AdaptiveMutex`], with timeouts.
///
/// ```
/// use std::sync::Arc;
/// use std::thread;
/// use tenure::lock::{AdaptiveCondvar, AdaptiveMutex};
///
/// let shared = Arc::new((AdaptiveMutex::new(false), AdaptiveCondvar::new()));
/// let setter = thread::spawn({
///     let shared = Arc::clone(&shared);
///     move || {
///         *shared.0.lock() = true;
///         shared.1.notify_one();
///     }
/// });
/// let mut ready = shared.0.lock();
/// shared.1.wait_while(&mut ready, |ready| !*ready);
/// assert!(*ready);
/// drop(ready);
/// setter.join().unwrap();
/// ```
///
/// Wake-ups may be spurious: wait in a loop, or with
/// [`wait_while`](lock_api::Condvar::wait_while). Change the condition under the mutex; notify with
/// or without it.
pub type AdaptiveCondvar = lock_api::Condvar<RawAdaptiveCondvar>;

/// A reader-writer lock that tries for a moment and then sleeps. Eight bytes.
///
/// New readers queue up behind a waiting writer, so a stream of readers does not starve it; a stream
/// of writers may starve readers. So a thread that reads and locks for reading once more may wait
/// for ever, behind a writer that waits for it.
///
/// When it is let go of, all who wait are woken and try again: it is made for many readers and few
/// writers. Where sections are short and writes are frequent, an [`AdaptiveMutex`] is faster.
pub type AdaptiveRwLock<T> = lock_api::RwLock<RawAdaptiveRwLock, T>;

/// Lets go of its [`AdaptiveRwLock`] when it is dropped. Not `Send`:
///
/// ```compile_fail,E0277
/// use tenure::lock::AdaptiveRwLockReadGuard;
/// fn sent<T: Send>() {}
/// sent::<AdaptiveRwLockReadGuard<'_, u32>>();
/// ```
pub type AdaptiveRwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawAdaptiveRwLock, T>;

/// Lets go of its [`AdaptiveRwLock`] when it is dropped. Not `Send`:
///
/// ```compile_fail,E0277
/// use tenure::lock::AdaptiveRwLockWriteGuard;
/// fn sent<T: Send>() {}
/// sent::<AdaptiveRwLockWriteGuard<'_, u32>>();
/// ```
pub type AdaptiveRwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawAdaptiveRwLock, T>;
