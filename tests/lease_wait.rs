//! Waiting for a key, sessions, heartbeats, and being told of a loss. Time is moved by hand; threads
//! meet at events, never by sleeping.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::clock::ManualClock;
use tenure::lease::*;

type Table = LeaseTable<&'static str, u64, ManualClock>;

const KEY: &str = "key";

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn table() -> (ManualClock, Arc<Table>) {
    let clock = ManualClock::new();
    (clock.clone(), Arc::new(LeaseTable::with_clock(clock)))
}

fn number(token: FencingToken) -> u64 {
    u64::from_be_bytes(token.to_bytes())
}

/// Lets other threads run until `done`; fails after a long while instead of hanging.
fn until(mut done: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(30), "it never came true");
        std::thread::yield_now();
    }
}

// ---- waiting ----

#[test]
fn a_free_key_is_taken_at_once() {
    let (_, table) = table();
    let handle = table.handle(&KEY).expect("open");
    assert_eq!(number(handle.acquire(ms(10)).expect("free").token()), 1);
    assert_eq!(number(handle.acquire_timeout(ms(10), ms(0)).expect("free").token()), 2);
    let eventual = handle.acquire_async(ms(10));
    assert!(eventual.is_ready());
    assert_eq!(number(eventual.get().expect("free").token()), 3);
    assert_eq!(number(table.acquire(&KEY, ms(10)).expect("free").token()), 4);
}

#[test]
fn waiters_are_woken_by_release_in_order() {
    let (_, table) = table();
    let handle = table.handle(&KEY).expect("open");
    for end in 0..5 {
        let lease = handle.try_acquire_owned(ms(10)).expect("free");
        let mut waiting: Vec<_> = (0..4).map(|_| handle.acquire_async(ms(10))).collect();
        assert!(waiting.iter().all(|eventual| !eventual.is_ready()));
        match end {
            0 => drop(lease),
            1 => lease.commit().expect("held"),
            2 => assert_eq!(lease.abort(), Release::Released),
            3 => {
                let token = lease.token();
                assert_eq!(table.revoke(&KEY, token, "test"), Revocation::Revoked);
            }
            _ => assert_eq!(table.release(&KEY, lease.into_token()), Release::Released),
        }
        let mut last = None;
        while !waiting.is_empty() {
            assert!(waiting[0].is_ready(), "the first in line has it");
            assert!(waiting[1..].iter().all(|eventual| !eventual.is_ready()), "and nobody else");
            let granted = waiting.remove(0).get().expect("granted");
            assert!(granted.is_valid());
            assert!(Some(granted.token()) > last);
            last = Some(granted.token());
            granted.commit().expect("held");
        }
    }
}

#[test]
fn a_blocked_thread_wakes_when_the_key_comes_free() {
    let (_, table) = table();
    let lease = table.try_acquire(&KEY, ms(10)).expect("free");
    let ready = Arc::new(Barrier::new(2));
    let waiter = {
        let (table, ready) = (Arc::clone(&table), Arc::clone(&ready));
        std::thread::spawn(move || {
            let handle = table.handle(&KEY).expect("open");
            ready.wait();
            let mut lease = handle.acquire(ms(10)).expect("granted");
            *lease += 1;
            lease.commit().expect("held");
        })
    };
    ready.wait();
    drop(lease);
    waiter.join().expect("no panic");
    assert_eq!(table.peek(&KEY).expect("there").value, 1);
}

#[test]
fn expiry_wakes_a_waiter_at_the_deadline_and_not_before() {
    let (clock, table) = table();
    let handle = table.handle(&KEY).expect("open");
    let stuck = handle.try_acquire_owned(ms(10)).expect("free");
    let waiting = handle.acquire_async(ms(10));
    clock.advance(ms(10));
    assert!(!waiting.is_ready());
    clock.advance(ms(1));
    let granted = waiting.get().expect("granted by the keeper");
    assert!(granted.is_valid() && granted.token() > stuck.token());
    assert!(stuck.commit().is_err());
}

#[test]
fn a_renewed_lease_keeps_its_waiters_waiting() {
    let (clock, table) = table();
    let handle = table.handle(&KEY).expect("open");
    let busy = handle.try_acquire_owned(ms(10)).expect("free");
    let waiting = handle.acquire_async(ms(10));
    for _ in 0..10 {
        clock.advance(ms(9));
        busy.renew(ms(10)).expect("held");
    }
    assert!(!waiting.is_ready());
    clock.advance(ms(11));
    assert!(waiting.get().expect("granted").token() > busy.token());
}

#[test]
fn a_timed_wait_ends_by_the_tables_clock() {
    let (clock, table) = table();
    let lease = table.try_acquire(&KEY, ms(100)).expect("free");
    let (begun, begins) = mpsc::channel();
    let waiter = {
        let table = Arc::clone(&table);
        std::thread::spawn(move || {
            let handle = table.handle(&KEY).expect("open");
            begun.send(()).expect("heard");
            handle.acquire_timeout(ms(10), ms(20)).map(|lease| lease.into_token())
        })
    };
    begins.recv().expect("begun");
    // However the threads are scheduled, twenty milliseconds from some moment pass in these steps.
    until(|| {
        clock.advance(ms(1));
        waiter.is_finished() || clock_is_past(&clock, 90)
    });
    let refused = waiter.join().expect("no panic");
    assert!(matches!(refused, Err(AcquireError::Held { token, .. }) if token == lease.token()));
    let handle = table.handle(&KEY).expect("open");
    assert!(matches!(handle.acquire_timeout(ms(10), ms(0)), Err(AcquireError::Held { .. })));
}

fn clock_is_past(clock: &ManualClock, ms: u64) -> bool {
    use tenure::clock::Clock;
    clock.now().as_nanos() > ms * 1_000_000
}

#[test]
fn a_waiter_that_gives_up_is_passed_over() {
    let (_, table) = table();
    let handle = table.handle(&KEY).expect("open");
    let lease = handle.try_acquire_owned(ms(10)).expect("free");
    let first = handle.acquire_async(ms(10));
    let second = handle.acquire_async(ms(10));
    let third = handle.acquire_async(ms(10));
    drop(first);
    second.cancel();
    drop(lease);
    assert!(third.is_ready());
    assert!(second.get().is_err());
    drop(third.get().expect("granted"));
    // A lease that nobody took comes back.
    let lease = handle.try_acquire_owned(ms(10)).expect("free");
    let unread = handle.acquire_async(ms(10));
    drop(lease);
    assert!(handle.try_acquire(ms(10)).is_err(), "granted, and not looked at");
    drop(unread);
    assert!(handle.try_acquire(ms(10)).is_ok());
}

#[test]
fn waiters_are_futures() {
    let (_, table) = table();
    let handle = table.handle(&KEY).expect("open");
    let lease = handle.try_acquire_owned(ms(10)).expect("free");
    let mut waiting = handle.acquire_async(ms(10));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(std::pin::Pin::new(&mut waiting).poll(&mut cx).is_pending());
    drop(lease);
    assert!(matches!(std::pin::Pin::new(&mut waiting).poll(&mut cx), Poll::Ready(Ok(_))));
}

#[test]
fn callbacks_may_acquire_again() {
    let (_, table) = table();
    let handle = table.handle(&KEY).expect("open");
    let lease = handle.try_acquire_owned(ms(10)).expect("free");
    let runs = Arc::new(AtomicUsize::new(0));
    for _ in 0..200 {
        let runs = Arc::clone(&runs);
        handle.acquire_async(ms(10)).on_complete(move |granted| {
            let mut lease = granted.expect("granted");
            *lease += 1;
            runs.fetch_add(1, Ordering::Relaxed);
            // Ends inside the callback, which grants to the next, whose callback runs after this.
            lease.commit().expect("held");
        });
    }
    drop(lease);
    assert_eq!(runs.load(Ordering::Relaxed), 200);
    assert_eq!(table.peek(&KEY).expect("there").value, 200);
}

#[test]
fn removing_or_closing_tells_who_waits() {
    let (clock, table) = table();
    let handle = table.handle(&KEY).expect("open");
    let lease = handle.try_acquire_owned(ms(10)).expect("free");
    let lost = lease.lost();
    let waiting = handle.acquire_async(ms(10));
    table.close();
    assert_eq!(outcome(waiting), Err(AcquireError::Closed));
    assert_eq!(lost.get().expect("told"), Lost::Removed);
    assert!(matches!(handle.acquire(ms(10)), Err(AcquireError::Closed)));
    clock.advance(ms(20));
}

fn outcome<T>(waiting: tenure::promise::Eventual<T, AcquireError>) -> Result<(), AcquireError> {
    waiting.get().map(|_| ()).map_err(|why| why.failed().expect("failed"))
}

#[test]
fn many_threads_wait_for_few_keys_and_all_get_their_turn() {
    let table: LeaseTable<u64, u64> = LeaseTable::new();
    let rounds = 300;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..rounds {
                    let key = (thread + round) % 2;
                    let mut lease = table.acquire(&key, Duration::from_secs(60)).expect("granted");
                    *lease += 1;
                    if round % 3 == 0 {
                        std::thread::yield_now();
                    }
                    lease.commit().expect("held");
                }
            });
        }
    });
    let sum: u64 = (0..2).map(|key| table.peek(&key).expect("there").value).sum();
    assert_eq!(sum, 4 * rounds);
}

#[test]
fn a_value_that_panics_when_it_is_cloned_costs_one_waiter_its_turn() {
    #[derive(Default)]
    struct Touchy(Arc<AtomicUsize>);
    impl Clone for Touchy {
        fn clone(&self) -> Self {
            assert_ne!(self.0.fetch_add(1, Ordering::Relaxed), 0, "the first clone panics");
            Self(Arc::clone(&self.0))
        }
    }
    let table: LeaseTable<&str, Touchy, _> = LeaseTable::with_clock(ManualClock::new());
    let handle = table.handle(&KEY).expect("open");
    let lease = handle.try_acquire_owned(ms(10)).expect("free");
    let (first, second) = (handle.acquire_async(ms(10)), handle.acquire_async(ms(10)));
    // The key moves, so the value is cloned, on this thread.
    assert_eq!(table.revoke(&KEY, lease.token(), "test"), Revocation::Revoked);
    assert_eq!(outcome(first), Err(AcquireError::ValuePanicked));
    assert_eq!(outcome(second), Ok(()));
}

// ---- sessions ----

#[test]
fn one_renewal_keeps_every_lease_of_a_session() {
    let clock = ManualClock::new();
    let table: LeaseTable<u32, (), ManualClock> = LeaseTable::with_clock(clock.clone());
    let session = table.session(ms(10)).expect("in range");
    let leases: Vec<_> = (0..10_000)
        .map(|key| session.try_acquire(&table.handle(&key).expect("open")).expect("free"))
        .collect();
    for _ in 0..5 {
        clock.advance(ms(9));
        session.renew(ms(10)).expect("open");
    }
    assert!(leases.iter().all(|lease| lease.is_valid()));
    assert_eq!(leases[7].remaining(), ms(10));
    assert_eq!(leases[7].renew(ms(99)), Err(RenewError::InSession));
    assert!(matches!(
        table.try_acquire(&7, ms(10)),
        Err(AcquireError::Held { retry_after, .. }) if retry_after == ms(11)
    ));
    clock.advance(ms(10));
    assert_eq!(session.renew(ms(10)), Err(RenewError::Lost(Lost::SessionEnded)));
    assert!(leases.iter().all(|lease| !lease.is_valid()));
    assert!(table.try_acquire(&7, ms(10)).is_ok());
}

#[test]
fn closing_a_session_frees_its_keys_and_refuses_its_commits() {
    let (_, table) = table();
    let session = table.session(ms(10)).expect("in range");
    let mut lease = session.try_acquire(&table.handle(&KEY).expect("open")).expect("free");
    *lease = 4;
    lease.checkpoint().expect("open");
    *lease = 5;
    let waiting = table.acquire_async(&KEY, ms(10));
    session.close();
    assert_eq!(
        waiting.get().expect("granted").token(),
        FencingToken::from_bytes(2u64.to_be_bytes()).expect("not zero")
    );
    let refused = lease.commit().expect_err("closed");
    assert!(matches!(refused.why(), Refusal::Lost(_)));
    assert_eq!(table.peek(&KEY).expect("there").value, 4);
}

#[test]
fn a_contender_ends_a_late_session_and_so_all_its_leases() {
    let (clock, table) = table();
    let session = table.session(ms(10)).expect("in range");
    let a = session.try_acquire(&table.handle(&"a").expect("open")).expect("free");
    let b = session.try_acquire(&table.handle(&"b").expect("open")).expect("free");
    clock.advance(ms(11));
    let taken = table.try_acquire(&"a", ms(10)).expect("late");
    assert!(!session.is_open());
    assert_eq!(session.renew(ms(10)), Err(RenewError::Lost(Lost::SessionEnded)));
    assert!(!a.is_valid());
    assert_eq!(b.check().map(|_| ()), Err(Lost::SessionEnded));
    assert!(taken.is_valid());
    assert!(matches!(
        session.try_acquire(&table.handle(&"c").expect("open")),
        Err(AcquireError::SessionEnded)
    ));
}

#[test]
fn a_session_takes_keys_again_and_again() {
    let (clock, table) = table();
    let session = table.session(ms(50)).expect("in range");
    let handle = table.handle(&KEY).expect("open");
    for round in 0..100 {
        let mut lease = session.try_acquire(&handle).expect("free");
        *lease += 1;
        if round % 3 == 0 {
            // Revoked: the key moves, and the session takes it there.
            let _ = table.revoke(&KEY, lease.token(), "test");
            assert!(lease.commit().is_err());
        } else {
            lease.commit().expect("held");
        }
        clock.advance(ms(1));
        session.renew(ms(50)).expect("open");
    }
    assert_eq!(table.peek(&KEY).expect("there").value, 66);
}

// ---- lost ----

#[test]
fn a_loss_is_told_with_its_reason() {
    let (clock, table) = table();
    let handle = table.handle(&KEY).expect("open");
    let lease = handle.try_acquire_owned(ms(10)).expect("free");
    let lost = lease.lost();
    clock.advance(ms(9));
    lease.renew(ms(10)).expect("held");
    clock.advance(ms(5));
    assert!(!lost.is_ready());
    clock.advance(ms(5));
    assert_eq!(lost.get().expect("told at the deadline"), Lost::Expired);

    let lease = handle.try_acquire_owned(ms(10)).expect("free");
    let lost = lease.lost();
    let _ = table.revoke(&KEY, lease.token(), "test");
    assert_eq!(lost.get().expect("told"), Lost::Revoked);
    assert_eq!(lease.lost().get().expect("over already"), Lost::Revoked);

    let lease = handle.try_acquire_owned(ms(10)).expect("free");
    let lost = lease.lost();
    let handoff = lease.transfer("heir", ms(5)).expect("held");
    assert_eq!(lost.get().expect("told"), Lost::HandedOff);
    let heir = handoff.accept(ms(10)).expect("in time");
    let lost = heir.lost();
    heir.commit().expect("held");
    assert_eq!(lost.get().expect("told"), Lost::Released);
}

// ---- heartbeats ----

#[test]
fn a_heartbeat_keeps_a_lease_whose_holder_gets_on() {
    let (clock, table) = table();
    let heart = table.heartbeat();
    let lease = table.try_acquire(&KEY, ms(30)).expect("free");
    let beat = heart.keep(lease.key(), lease.token(), Pulse::new(ms(30)).ceiling(Duration::MAX));
    for _ in 0..20 {
        beat.progress();
        let before = lease.remaining();
        clock.advance(ms(11));
        // The beat comes within a third of the ttl and a tenth of that.
        until(|| lease.remaining() > before - ms(11));
    }
    assert_eq!(beat.state(), BeatState::Beating);
    drop(beat);
    clock.advance(ms(31));
    assert!(!lease.is_valid());
}

#[test]
fn a_heartbeat_does_not_keep_a_stuck_holder() {
    let (clock, table) = table();
    let heart = table.heartbeat();
    let stuck = table.try_acquire(&KEY, ms(30)).expect("free");
    let beat = heart.keep(stuck.key(), stuck.token(), Pulse::new(ms(30)).stall(ms(40)));
    let mut steps = 0;
    until(|| {
        clock.advance(ms(1));
        steps += 1;
        std::thread::yield_now();
        !stuck.is_valid()
    });
    assert!(steps <= 40 + 30 + 1, "lost within stall and ttl, but after {steps} ms");
    until(|| {
        clock.advance(ms(1));
        matches!(beat.state(), BeatState::Lost(_))
    });
    assert!(table.try_acquire(&KEY, ms(30)).is_ok());
}

#[test]
fn a_heartbeat_ends_at_its_ceiling() {
    let (clock, table) = table();
    let heart = table.heartbeat();
    let lease = table.try_acquire(&KEY, ms(30)).expect("free");
    let beat = heart.keep(lease.key(), lease.token(), Pulse::new(ms(30)).ceiling(ms(100)));
    let mut steps = 0;
    until(|| {
        beat.progress();
        clock.advance(ms(1));
        steps += 1;
        std::thread::yield_now();
        !lease.is_valid()
    });
    assert!(steps <= 101, "{steps} ms");
}

#[test]
fn a_heartbeat_is_not_starved_by_the_work() {
    let (clock, table) = table();
    let heart = table.heartbeat();
    let lease = table.try_acquire(&KEY, ms(30)).expect("free");
    let beat = heart.keep(lease.key(), lease.token(), Pulse::new(ms(30)).stall(Duration::MAX));
    // This thread works and works and calls nothing; the heartbeat has a thread of its own.
    for _ in 0..5 {
        let before = table.peek(&KEY).expect("there").remaining;
        clock.advance(ms(11));
        let mut spins = 0_u64;
        until(|| {
            spins += 1;
            table.peek(&KEY).expect("there").remaining > before - ms(11)
        });
    }
    assert_eq!(beat.state(), BeatState::Beating);
    lease.commit().expect("held");
}
