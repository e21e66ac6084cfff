//! Locks: [`AdaptiveMutex`], [`AdaptiveRwLock`], [`AdaptiveCondvar`], [`PoisonMutex`].
//!
//! A mutex that costs half of `std`'s while nobody waits, learns for how long it is worth trying,
//! then sleeps in the kernel, on its own word, without a table or an allocation, and hands itself
//! to whoever has been overtaken for too long.
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
//!
//! # The words
//!
//! ```text
//! | `word` | meaning          | who may write it                          |
//! |--------|------------------|-------------------------------------------|
//! | FREE   | nobody owns it   | anybody: FREE → HELD, by a CAS            |
//! | HELD   | somebody does    | the owner alone: HELD → FREE, by a store  |
//!
//! | `queue` bits | name      | meaning                                        | who writes it                            |
//! |--------------|-----------|------------------------------------------------|------------------------------------------|
//! | 0            | CONTENDED | an unlock has to look with a read-modify-write | first waiter sets; the owner clears      |
//! | 1            | STARVING  | one waiter is to be handed the lock            | that waiter sets; it, or an unlock, clears |
//! | 2            | GRANTED   | it was; `word` stays HELD                      | an unlock sets; the starving waiter clears |
//! | 3            |           | zero                                           |                                          |
//! | 4–15         | SLEEPERS  | how many sleep, or are about to                | sleeper +1; its waker −1, or it itself   |
//! | 16–19        | BUDGET    | how long to spin: learned, or told             | one spinner in 32                        |
//! | 20–31        | QUIET     | contended unlocks since the last waiter came   | unlock +1 (wraps); a waiter sets 0       |
//!
//!        lock: CAS, Acquire                   announce: SLEEPERS + 1, or STARVING
//!      FREE ─────────────────► HELD      idle ──────────────────────────► announced, but an unlock
//!        ▲                      │ ▲        ▲                              under way may not see it
//!        └──────────────────────┘ │        │ the owner, after 4,095          │ heavy barrier
//!       unlock: store, Release    │        │ quiet unlocks                   ▼
//!                                 │        └─────────────────────────── CONTENDED
//!                                 └─ hand-over: STARVING → GRANTED, Release; word stays HELD
//! ```
//!
//! The queue is *idle* when only BUDGET is not zero. An unlock that sees it idle before it frees the
//! word, and again afterwards, is done: a load, a store, a load.
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | HELD → FREE → HELD | `State::release_*` | `State::try_take` | the protected data |
//! | STARVING → GRANTED | `State::hand_over` | `State::sleep_starving` | the protected data |
//! | unlock's look → waiter's announcement | `State::look_for_waiters` | `State::announce`, `announce_starving` | that the word is free |
//! | waiter's announcement → unlock's second look | heavy barrier in `State::become_seen` | light barrier in `State::release_plainly` | the announcement, or that the word is free |
//!
//! # No wake is lost
//!
//! Let waiter S announce itself (A1), pass the heavy barrier if the lock was not contended (A2), set
//! CONTENDED (A3), and let the kernel compare the word as it puts S to sleep (A4). Let unlock U look
//! at the queue (R1), free the word (R2), and look again (R3). Claim: either A4 sees the word as R2
//! or a later unlock left it, or U or a later unlock sees S announced.
//!
//! 1. R1 idle, R3 a plain load. Then S found the queue not contended, or another waiter S′ turned it
//!    contended between R1 and A1. *S passes a barrier itself:* U's program is cut in two by it. If R2
//!    lies before the cut, R2 is visible before A4. If not, R3 lies behind the cut, hence behind A1,
//!    and sees S. *S′ passed it:* its barrier lies behind its own announcement and before A3′, which
//!    S saw at A1. If R2 lies before that cut, it is visible before A1. If not, R3 lies behind it,
//!    sees that the queue is not idle, and U goes on as in case 2.
//! 2. R3 is a read-modify-write of the queue (`look_for_waiters`), and so is A1: one comes first. If
//!    A1, then R3 sees S. If R3, then A1 reads from it or from what is built on it (Release, Acquire),
//!    and R2 is visible before A4.
//! 3. Leaving contended mode is a compare-and-exchange by the owner, over a queue without waiters. If
//!    S announced itself before, it fails. If after, S saw the mode off, and case 1 holds.
//! 4. U sees S counted and wakes somebody, or finds nobody asleep: then S has not reached A4 yet, and
//!    A4 comes after R2. A woken thread that finds the word taken again leaves it to the taker's
//!    unlock, which counts whoever still sleeps; that includes threads whose deadline is over.
//! 5. The starving waiter sleeps on the *queue* word, and compares it with what it saw before its last
//!    try: a hand-over changes the queue, and so does every look of an unlock that freed the word
//!    (it adds to QUIET). An unlock that saw STARVING wakes nobody else: the starving one takes the
//!    lock, or gives up, and then tries once more; either way a later unlock sees the sleepers.
//! 6. No barrier to be had: S sleeps for a millisecond at most and looks again; CONTENDED stays off,
//!    so that every other waiter does the same.
//!
//! Cases 2 to 5 are explored by the loom models. Loom cannot tell the light barrier from a full one,
//! so case 1 has a model of its own, with store buffers: `tests/lock_tso.rs`, which fails when the
//! barrier is taken out.
//!
//! # Spinning, and how to pin it
//!
//! See [`SpinPolicy`](crate::wait::SpinPolicy): a waiter spins only while nobody sleeps, for 3 to 6
//! rounds of 1, 2, 4 … pauses and then 7 yields. One spin in 32 teaches: a win in the later pausing
//! rounds adds half a round, an early win takes half a round, and a loss takes all that was learned.
//! The floor stands: a budget that could fall to nothing would never learn again. Pin it with
//! [`RawAdaptiveMutex::with_policy`]. On one processor, or under a quota of one, nobody spins.
//!
//! # Fairness
//!
//! Whoever comes may overtake those who sleep: a lock that always goes to the longest waiter is 3 to
//! 12 times slower. An unlock wakes the longest sleeper, as long as one sleeps. A sleeper that was
//! woken, found the lock taken again, and has waited for 4 ms, starves: the next unlock hands it the
//! lock. One at a time; the others' turns come after it.
//!
//! # When to use which
//!
//! Measured on two processors of an AMD EPYC guest that other work shared, peers in turns; only the
//! ratios mean anything (`cargo bench --bench lock`, `cargo bench --bench contention -- --short`).
//!
//! Lock and unlock with nobody waiting: 0.40 of `std`, 0.43 of `parking_lot` 0.13, 0.43 of `usync`;
//! one of 4,096 cold locks: 0.89, 0.63 and 0.76.
//!
//! Threads × nanoseconds under the lock / outside; over 1.00 is more throughput, or a longer wait,
//! than `parking_lot` 0.13:
//!
//! | case | throughput, over the best of `std`, `parking_lot`, `usync` | over `parking_lot` | p99.9 wait | longest wait |
//! |---|---|---|---|---|
//! | 2 × 600/600 pinned | 0.96 | 1.19 | 0.67 | 0.36 |
//! | 2 × 6,000/6,000 pinned | 1.06 | 1.06 | 0.62 | 0.49 |
//! | 4 × 0/0 | 0.87 | 1.29 | 1.02 | 1.43 |
//! | 4 × 600/0 | 0.92 | 1.23 | 0.49 | 1.14 |
//! | 4 × 6,000/6,000 | 1.17 | 1.17 | 3.91 | 4.12 |
//! | 16 × 0/60 | 0.39 | 0.44 | 0.01 | 1.11 |
//! | 16 × 600/0 | 0.92 | 1.02 | 0.88 | 2.95 |
//! | 16 × 600/600 | 0.95 | 1.02 | 3.84 | 10.13 |
//! | 16 × 6,000/0 | 0.79 | 0.83 | 0.66 | 0.75 |
//!
//! One run of 5 rounds of 30 ms each, on two cores shared with other work, at the highest priority
//! (`nice -n -20`): repeats of one setting differed by up to twice. Read it as a sketch.
//!
//! Over all 24 cases of that run the throughput was within 1.1 times of `parking_lot` 0.13 in 19,
//! p99.9 in 16, and the longest wait within twice in 19; it beat the best of the three in 2.
//! Repetitions differ: `std` wins several of these by letting one thread run while the others starve
//! (at 16 × 600/0 its p99.9 is three times as long, and its least-served thread has an eighth of its
//! share).
//!
//! - **This lock**: many locks that are rarely contended; up to a few threads more than processors;
//!   timed locking, owned and mapped guards, counters, or models with loom.
//! - **`parking_lot`**: many more threads than processors with short work on both sides of the lock,
//!   and what counts is the longest wait; or one byte a lock.
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
mod poison;
mod raw;
mod rwlock;
mod state;
mod unlock;

pub use condvar::RawAdaptiveCondvar;
#[cfg(feature = "lock-contention")]
pub use contention::{Contention, ContentionExt};
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
///
/// # Cancellation and drop
///
/// A timed call that gives up leaves the lock as if it had never come.
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

/// Lets go of its [`AdaptiveRwLock`] when it is dropped. Not `Send`.
pub type AdaptiveRwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawAdaptiveRwLock, T>;

/// Lets go of its [`AdaptiveRwLock`] when it is dropped. Not `Send`.
pub type AdaptiveRwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawAdaptiveRwLock, T>;
