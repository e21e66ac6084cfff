//! Leases at the ends of their ranges, and beside foreign code that panics: what is left afterwards is
//! whole, and everybody is told the truth.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tenure::clock::ManualClock;
use tenure::lease::{
    AcquireError, FencedCell, FencedCellError, FencingToken, InsertError, LeaseEventKind,
    LeaseState, LeaseTable, Lost, RenewError,
};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn token(n: u64) -> FencingToken {
    FencingToken::from_bytes(n.to_be_bytes()).expect("not zero")
}

/// The last number from which a slot can count its epochs.
const LAST_BASE: u64 = u64::MAX - if cfg!(tenure_small_words) { 15 } else { (1 << 23) - 1 };

fn at_the_end<V: tenure::lease::LeaseValue>(
    clock: &ManualClock,
    epochs: u64,
) -> LeaseTable<u8, V, ManualClock> {
    LeaseTable::<u8, V>::builder()
        .clock(clock.clone())
        .epoch_limit(epochs)
        .floor(token(LAST_BASE))
        .build()
}

// ---- the end of the tokens ----

#[test]
fn used_up_tokens_are_an_error_and_none_is_given_twice() {
    let clock = ManualClock::new();
    let table = at_the_end::<u64>(&clock, 2);
    let mut before = token(LAST_BASE);
    for n in 1..=2 {
        let mut lease = table.try_acquire(&0, ms(10)).expect("free");
        assert!(lease.token() > before);
        before = lease.token();
        *lease = n;
        lease.commit().expect("held");
    }
    assert_eq!(table.try_acquire(&0, ms(10)).map(drop), Err(AcquireError::TokensUsedUp));
    assert_eq!(table.acquire(&0, ms(10)).map(drop), Err(AcquireError::TokensUsedUp));
    let session = table.session(ms(10)).expect("in range");
    let handle = table.find(&0).expect("there");
    assert_eq!(session.try_acquire(&handle).map(drop), Err(AcquireError::TokensUsedUp));
    let peek = table.peek(&0).expect("there");
    assert_eq!((peek.value, peek.state, peek.token), (2, LeaseState::Free, Some(before)));
}

#[test]
fn a_hand_off_without_a_token_left_gives_the_guard_back() {
    let clock = ManualClock::new();
    let table = at_the_end::<u64>(&clock, 1);
    let mut lease = table.try_acquire(&0, ms(10)).expect("free");
    *lease = 7;
    let refused = lease.transfer("heir", ms(10)).expect_err("no token left");
    assert_eq!(refused.why(), RenewError::TokensUsedUp);
    refused.into_guard().commit().expect("held as before");
    assert_eq!(table.peek(&0).expect("there").value, 7);
}

#[test]
fn a_key_that_can_have_no_token_is_not_made() {
    let clock = ManualClock::new();
    let table: LeaseTable<u8, u64, _> =
        LeaseTable::<u8, u64>::builder().clock(clock).floor(token(u64::MAX)).build();
    assert_eq!(table.handle(&0).map(drop), Err(AcquireError::TokensUsedUp));
    let Err(InsertError::TokensUsedUp(key, value)) = table.insert(3, 4) else {
        panic!("there is no token for it")
    };
    assert_eq!((key, value), (3, 4));
    assert!(table.is_empty());
}

#[test]
fn waiters_learn_that_the_tokens_are_used_up() {
    let clock = ManualClock::new();
    let table = at_the_end::<u64>(&clock, 1);
    let last = table.try_acquire(&0, ms(10)).expect("free");
    let waiting = [table.acquire_async(&0, ms(10)), table.acquire_async(&0, ms(10))];
    drop(last);
    for waiting in waiting {
        let refused = waiting.get().map(drop).expect_err("no token left");
        assert!(matches!(
            refused,
            tenure::promise::EventualError::Failed(AcquireError::TokensUsedUp)
        ));
    }
}

/// The floor of a table is no grant's token.
#[test]
fn a_key_that_was_never_granted_shows_no_token() {
    let clock = ManualClock::new();
    let table: LeaseTable<u8, u64, _> =
        LeaseTable::<u8, u64>::builder().clock(clock).floor(token(100)).build();
    drop(table.handle(&0));
    assert_eq!(table.peek(&0).expect("there").token, None);
    assert_eq!(table.list()[0].token, None);
    assert_eq!(table.remove(&0), Ok(None));
    assert_eq!(table.try_acquire(&0, ms(1)).expect("free").token(), token(101));
    // Made again: the key has been granted nothing since.
    assert_eq!(table.remove(&0), Ok(Some(token(101))));
    drop(table.handle(&0));
    assert_eq!(table.peek(&0).expect("there").token, None);
    assert_eq!(table.try_acquire(&0, ms(1)).expect("free").token(), token(102));
}

/// A late guard whose key was removed and made again is told so, and of later grants once there are
/// any.
#[test]
fn a_guard_of_a_key_made_again_is_told_that_it_was_removed() {
    let clock = ManualClock::new();
    let table: LeaseTable<u8, u64, _> = LeaseTable::with_clock(clock.clone());
    let late = |ttl| table.try_acquire(&0, ttl).expect("free");
    let first = late(ms(5));
    clock.advance(ms(10));
    assert_eq!(table.remove(&0), Ok(Some(first.token())));
    drop(table.handle(&0));
    assert_eq!(first.check().map(drop), Err(Lost::Removed));
    assert_eq!(first.release(), tenure::lease::Release::Lost(Lost::Removed));

    let second = late(ms(5));
    clock.advance(ms(10));
    assert_eq!(table.remove(&0), Ok(Some(second.token())));
    let third = late(ms(5));
    assert_eq!(second.check().map(drop), Err(Lost::Superseded { by: third.token() }));
}

// ---- memory ----

/// A value that is counted.
#[derive(Default)]
struct Counted(Option<Arc<AtomicI64>>);

impl Counted {
    fn new(alive: &Arc<AtomicI64>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self(Some(alive.clone()))
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        self.0.as_ref().map_or_else(Self::default, Self::new)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(alive) = &self.0 {
            alive.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// What a forgotten guard costs: the memory that its key moves from stays with the handle, to the
/// handle's end.
#[test]
fn a_forgotten_guard_keeps_memory_no_longer_than_its_handle() {
    let alive = Arc::new(AtomicI64::new(0));
    let clock = ManualClock::new();
    let table: LeaseTable<u8, Counted, _> = LeaseTable::with_clock(clock.clone());
    let handle = table.insert(0, Counted::new(&alive)).map_err(|_| ()).expect("new");
    for _ in 0..10 {
        std::mem::forget(handle.try_acquire(ms(5)).expect("free or late"));
        clock.advance(ms(10));
    }
    assert_eq!(alive.load(Ordering::Relaxed), 10, "each takeover moved the key");
    drop(handle);
    assert_eq!(alive.load(Ordering::Relaxed), 1);
    // A handle whose guards are dropped keeps none.
    let handle = table.find(&0).expect("there");
    for _ in 0..10 {
        let late = handle.try_acquire(ms(5)).expect("free or late");
        clock.advance(ms(10));
        drop(late);
    }
    assert!(alive.load(Ordering::Relaxed) <= 2);
}

/// Refused or not, a handle goes to where its key is, and lets go of where it was.
#[test]
fn a_refused_handle_lets_go_of_the_memory_that_its_key_left() {
    let alive = Arc::new(AtomicI64::new(0));
    let clock = ManualClock::new();
    let table: LeaseTable<u8, Counted, _> = LeaseTable::with_clock(clock.clone());
    let handle = table.insert(0, Counted::new(&alive)).map_err(|_| ()).expect("new");
    drop(table.try_acquire(&0, ms(5)).map(tenure::lease::OwnedLease::into_token));
    clock.advance(ms(10));
    let held = table.try_acquire(&0, ms(50)).expect("late");
    assert_eq!(alive.load(Ordering::Relaxed), 2, "the handle is still at the old place");
    assert!(matches!(handle.try_acquire(ms(5)).map(drop), Err(AcquireError::Held { .. })));
    assert_eq!(alive.load(Ordering::Relaxed), 1);
    drop(held);
    assert!(handle.try_acquire(ms(5)).is_ok());
    // The same of one that waits for its turn.
    let late = table.try_acquire(&0, ms(5)).expect("free").into_token();
    clock.advance(ms(10));
    assert!(handle.acquire(ms(50)).expect("late").token() > late);
    assert_eq!(alive.load(Ordering::Relaxed), 1);
}

// ---- foreign code that panics ----

thread_local! {
    /// Calls of a key's `Hash` or `Eq` until one panics; zero: none does.
    static PANIC_IN: Cell<u32> = const { Cell::new(0) };
}

fn may_panic() {
    let left = PANIC_IN.get();
    if left > 0 {
        PANIC_IN.set(left - 1);
        assert!(left > 1, "a panic of the test's");
    }
}

/// Runs `f`, in which the `n`th call of `Hash` or `Eq` panics; `None` if it did.
fn panicking_in<R>(n: u32, f: impl FnOnce() -> R) -> Option<R> {
    PANIC_IN.set(n);
    let done = catch_unwind(AssertUnwindSafe(f)).ok();
    PANIC_IN.set(0);
    done
}

/// A key with few hashes, so that `Eq` is called for others than itself, too.
#[derive(Clone, Debug)]
struct Key(u32);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        may_panic();
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        may_panic();
        (self.0 / 3).hash(state);
    }
}

/// Whatever `Hash` or `Eq` panics, in whatever call: the keys, their values and their leases are as
/// before or as after, and every later call works.
#[test]
fn a_panic_in_hash_or_eq_loses_no_key() {
    for at in 1..40 {
        let clock = ManualClock::new();
        let table: LeaseTable<Key, u32, _> =
            LeaseTable::<Key, u32>::builder().clock(clock.clone()).shards(1).build();
        let mut made = Vec::new();
        for n in 0..30 {
            // The table grows several times on the way; the panic wanders over the keys.
            if panicking_in(at + n % 7, || table.insert(Key(n), n).map(drop)).is_some() {
                made.push(n);
            }
        }
        assert!(table.len() >= made.len());
        for n in &made {
            assert_eq!(table.peek(&Key(*n)).expect("still there").value, *n);
        }
        let before = table.len();
        for n in made {
            // A term that ends badly, and the takeover that moves the key.
            let late = table.try_acquire(&Key(n), ms(5)).expect("free");
            let waiting = table.acquire_async(&Key(n), ms(5));
            clock.advance(ms(10));
            drop(panicking_in(at, || table.try_acquire(&Key(n), ms(5)).map(drop)));
            drop((late, waiting));
            let _ = panicking_in(at, || table.peek(&Key(n)).map(|peek| peek.value));
            clock.advance(ms(10));
            // In line: the keeper may be granting the key to the waiter that is no more.
            let mut lease = table.acquire(&Key(n), ms(5)).expect("free or late");
            *lease += 100;
            lease.commit().expect("held");
            assert_eq!(table.peek(&Key(n)).expect("there").value, n + 100);
            let _ = panicking_in(at, || table.remove(&Key(n)));
            // Not at once: the waiter that is no more may hold the key for the moment in which the
            // keeper finds nobody to give it to.
            let begun = std::time::Instant::now();
            while table.peek(&Key(n)).is_some() {
                let _ = table.remove(&Key(n));
                assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", table.peek(&Key(n)));
                std::thread::yield_now();
            }
        }
        assert!(table.len() < before);
    }
}

/// A value that panics as it is dropped, if it was told to.
#[derive(Clone, Debug, Default)]
struct Bomb(bool);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 && !std::thread::panicking() {
            self.0 = false;
            panic!("a panic of the test's");
        }
    }
}

/// The commit's displaced value panics in the committer, after everything was settled and told.
#[test]
fn a_displaced_value_that_panics_swallows_no_event_and_no_waiters_turn() {
    let clock = ManualClock::new();
    let table: LeaseTable<u8, Bomb, _> = LeaseTable::with_clock(clock);
    let publish = |bomb| {
        let mut lease = table.try_acquire(&0, ms(10)).expect("free");
        lease.set(Bomb(bomb));
        lease.commit()
    };
    publish(true).expect("held");
    publish(false).expect("held");
    // The first one is in the spare entry now.
    let events = table.subscribe(16);
    let mut lease = table.try_acquire(&0, ms(10)).expect("free");
    let by = lease.token();
    lease.set(Bomb(false));
    let mut waiting = table.acquire_async(&0, ms(10));
    assert!(catch_unwind(AssertUnwindSafe(|| lease.commit())).is_err());
    let committed =
        events.try_iter().any(|event| event.token == by && event.kind == LeaseEventKind::Committed);
    assert!(committed);
    assert!(matches!(waiting.try_get(), Some(Ok(_))), "the waiter had its turn");
    assert_eq!(table.peek(&0).expect("there").version, 3);
}

/// The same of a checkpoint: the guard goes on.
#[test]
fn a_displaced_value_that_panics_leaves_the_guard_whole() {
    let table: LeaseTable<u8, Bomb, _> = LeaseTable::with_clock(ManualClock::new());
    let mut lease = table.try_acquire(&0, ms(10)).expect("free");
    for n in 1..=2 {
        lease.set(Bomb(n == 1));
        lease.checkpoint().expect("held");
    }
    lease.set(Bomb(false));
    assert!(catch_unwind(AssertUnwindSafe(|| lease.checkpoint())).is_err());
    assert_eq!((lease.version(), lease.has_draft()), (3, false));
    lease.set(Bomb(false));
    lease.commit().expect("held");
    assert_eq!(table.peek(&0).expect("there").version, 4);
}

// ---- fences and waiting ----

#[test]
fn a_timed_write_gives_up_when_others_are_at_the_value() {
    let cell = Arc::new(FencedCell::new(0));
    let ok = |n| cell.try_write_for(Duration::ZERO, token(n), |value| *value = n);
    assert_eq!(ok(1), Ok(()));
    let (inside, is_inside) = std::sync::mpsc::channel();
    let (leave, may_leave) = std::sync::mpsc::channel::<()>();
    let writer = std::thread::spawn({
        let cell = cell.clone();
        move || {
            cell.write(token(2), |value| {
                let _ = inside.send(());
                let _ = may_leave.recv();
                *value = 2;
            })
        }
    });
    is_inside.recv().expect("sent inside the write");
    assert_eq!(ok(3), Err(FencedCellError::Busy));
    let waited = cell.try_write_for(ms(1), token(3), |value| *value = 3);
    assert_eq!(waited, Err(FencedCellError::Busy));
    drop(leave);
    assert_eq!(writer.join().expect("no panic"), Ok(()));
    // A token that was never looked at is not remembered.
    assert_eq!(cell.seen(), Some(token(2)));
    assert_eq!(cell.try_write_for(Duration::MAX, token(3), |value| *value = 3), Ok(()));
    assert!(matches!(ok(1), Err(FencedCellError::Fenced(_))));
}

/// The processor time of this thread.
#[cfg(target_os = "linux")]
fn cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid clock id and a place for the answer that lives in this frame.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Threads that wait for a key sleep. (How long they wait is real time; that they were at it for most
/// of it is not asserted, only that they did not work meanwhile.)
#[cfg(target_os = "linux")]
#[test]
fn blocked_acquirers_burn_no_processor() {
    const WAITERS: usize = 4;
    let table: Arc<LeaseTable<u8, u64>> = Arc::new(LeaseTable::new());
    let held = table.try_acquire(&0, Duration::from_secs(50)).expect("free");
    let start = Arc::new(std::sync::Barrier::new(WAITERS + 1));
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let (table, start) = (table.clone(), start.clone());
            std::thread::spawn(move || {
                start.wait();
                let before = cpu();
                let lease = table.acquire(&0, Duration::from_secs(50)).expect("in turn");
                let burnt = cpu() - before;
                drop(lease);
                burnt
            })
        })
        .collect();
    start.wait();
    std::thread::sleep(ms(400));
    drop(held);
    for waiter in waiters {
        let burnt = waiter.join().expect("no panic");
        println!("{burnt:?} of processor in 400 ms");
        // A spinner would have burnt its share of 400 ms; a sleeper some microseconds.
        assert!(burnt < ms(50), "{burnt:?}");
    }
}
