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
//! An unlock may also wake somebody unasked (see *Fairness*): like any stray wake, that costs one look.
//! Models leave it out, as it would hide a lost one.
//!
//! The loom models explore all of these but the difference between the light barrier and a full one,
//! which loom does not know. `tests/lock_tso.rs` does: it compiles the files of this room once more,
//! for a machine with store buffers, explores what ships, and fails when the barrier is left out.
//!
//! # Spinning, and how to pin it
//!
//! See [`SpinPolicy`](crate::wait::SpinPolicy): a newcomer tries for 3 rounds of 1, 2 and 4 pauses and
//! then gives the processor away 7 times; one that was woken pauses for 6 rounds, and for 9 if it is to
//! be handed the lock. The budget is fixed:
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
//! lock. It tries for 12 µs before it sleeps then, about the price of a sleep and a wake. One at a
//! time; the others' turns come after it.
//!
//! One wake is under way at a time, and the thread it is for may be kept from running: it stands in
//! the queue of the processor that the owner has, for a slice of the scheduler's, while all others
//! sleep and another processor idles. So the 16th, 64th, 256th and 1,024th quiet unlock wake one
//! more, unasked. Where nobody sleeps, that is four system calls for nothing in an episode.
//!
//! Interleaved, 4 or 5 loops of 3 rounds of 25 ms, medians: before it, with it, and `parking_lot`.
//!
//! | case | k op/s | p99.9, µs | longest, µs | least |
//! |---|---|---|---|---|
//! | 4 × 6000/0 | 128, 117, 120 | 3293, 803, 819 | 4391, 1008, 1237 | 0.50, 0.77, 0.78 |
//! | 16 × 6000/0 | 156, 138, 98 | 10355, 1360, 2638 | 11600, 1475, 2851 | 0.10, 0.65, 0.64 |
//! | 16 × 60000/0 | 16, 16, 15 | 25035, 11829, 26673 | 25035, 11830, 26674 | 0.10, 0.21, 0.04 |
//! | 4 × bimodal | 469, 431, 457 | 2015, 1106, 1925 | 5898, 2097, 8225 | 0.58, 0.69, 0.14 |
//! | 16 × bimodal | 488, 448, 466 | 8340, 3883, 8045 | 17826, 5292, 18154 | 0.09, 0.39, 0.00 |
//! | 16 × 600/0 | 1501, 1465, 1528 | 283, 317, 905 | 487, 483, 2073 | 0.67, 0.62, 0.52 |
//!
//! Throughput and tail cannot both be had at these points: a lock that stays with its owner does the
//! most work. The tail was chosen; it costs up to 12 % of throughput. Tried beside it and not kept: a woken
//! thread that
//! says only after its spin that others sleep (p99.9 at 16 × 6000/0 2,408); half the patience (479 at
//! 4 × 6000/0, for 6 % of throughput, and 2,130 at 16 × 6000/0); 8, 32 or 64 unlocks
//! instead of 16. Not tried: a hand-off to the longest *sleeper* through a
//! record of its own, and a queue other than the kernel's.
//!
//! # Throughput against tail
//!
//! Each mark is a lock over the 78 cases below (geometric means), drawn by `contention --from … --svg`.
//!
#![doc = include_str!("frontier.svg")]
//!
//! # When to use which
//!
//! Two processors of an AMD EPYC guest, in an interval that was not quiet throughout: peers in turns,
//! 5 rounds of 40 ms (4 and 16 threads) or 25 ms for each lock, medians, part by part
//! (`cargo bench --bench contention -- --case … --save f`, then `--from f`).
//!
//! Lock and unlock with nobody waiting: 2.75 ns, 0.59 of `std`, 0.51 of `parking_lot` 0.13, 0.58 of
//! `usync`; one of 4,096 cold locks: 0.76 of `std` (`cargo bench --bench lock`; an earlier run of the same
//! fast path gave 0.40, 0.43, 0.43 and 0.89: the bar, 0.55 of `std`, lies between the two).
//!
//! For each number of threads: sections of 0, 60, 600, 6,000 and 60,000 ns, with nothing, as much, and four times
//! as much outside. *Best* is the best of `std`, `parking_lot` and `usync` in the case. Medians of ratios, and
//! at how many points the bar is met.
//!
//! | threads | points | throughput over best: median, ≥ 1 | over `parking_lot` 0.13: median, ≥ 1/1.1 | p99.9 over its: median, ≤ 1.1 | longest over its: median, ≤ 2 |
//! |---|---|---|---|---|---|
//! | 2, pinned | 15 | 1.03, 9 | 1.04, 15 | 1.01, 9 | 0.90, 14 |
//! | 2 | 15 | 0.95, 3 | 0.98, 11 | 0.82, 12 | 1.31, 10 |
//! | 4 | 15 | 0.98, 6 | 0.99, 14 | 1.00, 12 | 0.86, 14 |
//! | 16 | 15 | 0.94, 3 | 1.00, 12 | 0.96, 8 | 0.77, 15 |
//! | 64 (sections up to 6,000 ns) | 12 | 0.62, 1 | 0.96, 8 | 0.85, 9 | 0.93, 11 |
//! | 4 and 16, bimodal, beside two hogs, on one processor | 6 | 0.88, 0 | 0.94, 4 | 1.00, 6 | 0.81, 6 |
//! | all | 78 | 22 | 64 | 56 | 70 |
//!
//! Missed: p99.9 within 1.1 times at 22 points, among them 7 of 15 with 16 threads (1.15 to 1.70 times, six
//! of them with work outside). The far ones (2 × 6000/24000 and 2 × 60000/240000 pinned,
//! 4 × 0/0) are points where a thousandth of the turns is about how many meet anybody: the p99.9 of either lock is
//! a spin in one run and a sleep in the next. Throughput no less than the best of three at half of the points: at 22.
//! Least-served thread at least half its share with 16 threads: at 7 of 18 points, with `parking_lot` at 6. In 40 ms
//! the scheduler gives each of 16 busy threads three turns or so, and where there is work outside, a lock has
//! little say in who runs; with nothing outside it is 0.51 to 0.68 up to 6,000 ns.
//!
//! | | this crate | `std` | `parking_lot` 0.13 | 0.12 |
//! |---|---|---|---|---|
//! | 8 threads, `try_lock_for` 50 µs, holds of 100 µs: tries, of them successful | 21,686, 12.9 % | | 14,064, 17.5 % | 15,448, 13.5 % |
//! | … how late those are that give up, µs: median, p99, longest | 8.4, 1434, 7537 | | 85, 1180, 17433 | 80, 709, 9175 |
//! | `notify_all` of 16, and 16 answers, µs | 89 | 75 | 130 | |
//! | reader-writer lock, 600 ns: 2 threads, 1 of 100 writes; 4; 4, 1 of 10; k op/s | 1542, 1542, 1535 | 1564, 1852, 1533 | 1614, 1571, 1465 | |
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
/// writers. Where writes are frequent take an [`AdaptiveMutex`], which wakes one.
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
