//! Locks: [`AdaptiveMutex`].
//!
//! A mutex that costs half of `std`'s while nobody waits, tries for a moment before it sleeps, and
//! sleeps in the kernel, on its own word, without a table or an allocation.
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
//! # The words
//!
//! ```text
//! | `word` | meaning          | who may write it                  |
//! |--------|------------------|-----------------------------------|
//! | FREE   | nobody owns it   | anybody: FREE → HELD, by a CAS    |
//! | HELD   | somebody does    | the owner alone: HELD → FREE      |
//!
//! | `queue` bits | name      | meaning                                          | who writes it      |
//! |--------------|-----------|--------------------------------------------------|--------------------|
//! | 0            | CONTENDED | an unlock has to look with a read-modify-write   | first sleeper sets; the owner clears |
//! | 1–3          |           | zero                                             |                    |
//! | 4–15         | SLEEPERS  | how many sleep, or are about to                  | sleeper +1; its waker −1, or it itself |
//! | 16–19        |           | zero                                             |                    |
//! | 20–31        | QUIET     | contended unlocks since the last sleeper came    | unlock +1; a sleeper sets 0 |
//!
//!   lock: CAS, Acquire                      announce: SLEEPERS + 1
//!  FREE ─────────────────► HELD      idle ─────────────────────────► uncounted for by the unlock
//!    ▲                      │         ▲                              that is under way
//!    └──────────────────────┘         │ the owner, after 4,095          │ heavy barrier
//!   unlock: store, Release            │ quiet unlocks                   ▼
//!                                     └──────────────────────────── CONTENDED
//! ```
//!
//! `queue == 0` is *idle*. An unlock that sees it idle before it frees the word, and again
//! afterwards, is done: a load, a store, a load.
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | HELD → FREE → HELD | `State::release` | `State::try_take` | the protected data |
//! | unlock's look → sleeper's count | `State::look_for_sleepers` | `State::announce` | that the word is free |
//! | sleeper's count → unlock's second look | heavy barrier in `State::announce` | light barrier in `State::release` | the count, or that the word is free |
//!
//! # No wake is lost
//!
//! Let sleeper S count itself (A1), pass the heavy barrier if the lock was not contended (A2), set
//! CONTENDED (A3), and let the kernel compare the word as it puts S to sleep (A4). Let unlock U look
//! at the queue (R1), free the word (R2), and look again (R3). Claim: either A4 sees the word as R2
//! or a later unlock left it, or U or a later unlock counts S.
//!
//! 1. R1 idle, R3 a plain load. S found the queue not contended, or U could not have found it idle
//!    after; or another sleeper S′ turned it contended between R1 and A1. *S passes a barrier itself:*
//!    U's program is cut in two by it. If R2 lies before the cut, R2 is visible before A4. If not,
//!    R3 lies behind the cut, hence behind A1, and sees S counted. *S′ passed it:* its barrier lies
//!    behind its own count and before A3′, which S saw at A1. If R2 lies before that cut, it is
//!    visible before A1. If not, R3 lies behind it, sees S′ counted or CONTENDED, so not idle, and U
//!    goes on as in case 2.
//! 2. R3 is a read-modify-write of the queue (`look_for_sleepers`), and so is A1: one comes first. If
//!    A1, then R3 counts S. If R3, then A1 reads from it or from what is built on it (Acquire, Release),
//!    and R2 is visible before A4.
//! 3. Leaving contended mode is a compare-and-exchange by the owner, over a queue without sleepers.
//!    If S counted itself before, it fails. If after, S saw the mode off, and case 1 holds.
//! 4. U counts S and wakes somebody, or finds nobody asleep: then S has not reached A4 yet, and A4
//!    comes after R2. A woken thread that finds the word taken again leaves it to the taker's unlock,
//!    which counts whoever still sleeps; that includes threads whose deadline is over.
//! 5. No barrier to be had: S sleeps for a millisecond at most and looks again; CONTENDED stays off,
//!    so that every other sleeper does the same.
//!
//! Cases 2 to 4 are explored by the loom models. Loom cannot tell the light barrier from a full one,
//! so case 1 has a model of its own, with store buffers: `tests/lock_tso.rs`, which fails when the
//! barrier is taken out.
//!
//! # Freeing
//!
//! An unlock looks at the queue after it freed the word. Safe code cannot free the lock under it,
//! for it borrows it. Unsafe code that lets the next owner free the memory has to keep it alive
//! until `unlock` returned.

mod raw;
mod state;
mod unlock;

pub use raw::RawAdaptiveMutex;
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
