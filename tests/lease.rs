//! Leases through the public API: the ten promises, each a test, then what else each call does.
//!
//! The same file runs with `--cfg tenure_small_words` (4-bit epochs, a range of deadlines of 65 s).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::clock::ManualClock;
use tenure::lease::*;

type Table<V = u64> = LeaseTable<&'static str, V, ManualClock>;

const KEY: &str = "key";

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn table<V: LeaseValue>() -> (ManualClock, Table<V>) {
    let clock = ManualClock::new();
    (clock.clone(), LeaseTable::with_clock(clock))
}

fn value(table: &Table) -> u64 {
    table.peek(&KEY).expect("there").value
}

fn token(n: u64) -> FencingToken {
    FencingToken::from_bytes(n.to_be_bytes()).expect("not zero")
}

// ---- S1–S10 ----

#[test]
fn s1_every_grant_has_a_greater_token() {
    let (clock, table) = table::<u64>();
    let mut last = None;
    let mut greater = |token: FencingToken| {
        assert!(Some(token) > last, "{token} after {last:?}");
        last = Some(token);
    };
    for round in 0..40 {
        let lease = table.try_acquire(&KEY, ms(10)).expect("free");
        greater(lease.token());
        match round % 6 {
            0 => assert_eq!(lease.release(), Release::Released),
            1 => drop(lease),
            2 => lease.commit().expect("held"),
            3 => {
                // A takeover after expiry, while the late guard is alive.
                clock.advance(ms(11));
                let next = table.try_acquire(&KEY, ms(10)).expect("expired");
                greater(next.token());
                assert!(!lease.is_valid());
            }
            4 => {
                let handoff = lease.transfer("other", ms(5)).expect("held");
                greater(handoff.token());
                assert_eq!(handoff.token(), handoff.accept(ms(5)).expect("in time").token());
            }
            _ => {
                assert_eq!(table.revoke(&KEY, lease.token(), "test"), Revocation::Revoked);
                let next = table.try_acquire(&KEY, ms(10)).expect("revoked");
                greater(next.token());
            }
        }
        if round % 7 == 0 {
            table.remove(&KEY).expect("free");
        }
    }
}

#[test]
fn s1_tokens_go_on_after_a_restart() {
    let before = token(41);
    let table: LeaseTable<&str, u64> = LeaseTable::<&str, u64>::builder().floor(before).build();
    assert!(table.try_acquire(&KEY, ms(10)).expect("free").token() > before);
}

#[test]
fn s2_a_commit_with_an_older_token_takes_no_effect() {
    let (clock, table) = table::<u64>();
    let mut late = table.try_acquire(&KEY, ms(10)).expect("free");
    *late = 1;
    clock.advance(ms(11));
    let mut next = table.try_acquire(&KEY, ms(10)).expect("expired");
    *next = 2;
    let by = next.token();
    next.commit().expect("held");
    let refused = late.commit().expect_err("late");
    assert_eq!(refused.why(), Refusal::Lost(Lost::Superseded { by }));
    assert_eq!(refused.into_draft(), Some(1));
    assert_eq!(value(&table), 2);
}

#[test]
fn s3_the_holder_ends_at_the_deadline_and_others_begin_after_it() {
    let (clock, table) = table::<u64>();
    let lease = table.try_acquire(&KEY, ms(10)).expect("free");
    clock.advance(ms(10) - Duration::from_nanos(1));
    assert!(lease.is_valid());
    let handle = table.handle(&KEY).expect("open");
    clock.advance(Duration::from_nanos(1));
    // At the deadline: nobody's.
    let held = handle.try_acquire(ms(10)).expect_err("guard band");
    assert!(matches!(held, AcquireError::Held { retry_after, .. } if retry_after == ms(1)));
    assert!(!lease.is_valid());
    // The holder's own look has ended it, so now it is free; without that, a tick later.
    let second = handle.try_acquire(ms(10)).expect("ended by its holder");
    clock.advance(ms(10));
    assert!(handle.try_acquire(ms(10)).is_err());
    clock.advance(ms(1));
    assert!(handle.try_acquire(ms(10)).is_ok());
    assert!(!second.is_valid());
}

#[test]
fn s3_commit_and_renew_read_the_clock_themselves() {
    let (clock, table) = table::<u64>();
    let mut lease = table.try_acquire(&KEY, ms(10)).expect("free");
    *lease = 1;
    assert!(lease.is_valid());
    clock.advance(ms(10));
    assert_eq!(lease.renew(ms(10)), Err(RenewError::Lost(Lost::Expired)));
    assert_eq!(lease.commit().expect_err("late").why(), Refusal::Lost(Lost::Expired));
    assert_eq!(value(&table), 0);
}

#[test]
fn s4_what_is_reported_has_been_made_so() {
    let (clock, table) = table::<u64>();
    let lease = table.try_acquire(&KEY, ms(10)).expect("free");
    clock.advance(ms(10));
    // At the deadline nobody else may end it, but its own report of the loss does.
    assert_eq!(table.list()[0].state, LeaseState::Held);
    assert_eq!(lease.check().map(|_| ()), Err(Lost::Expired));
    assert_eq!(table.list()[0].state, LeaseState::Free);
    assert_eq!(lease.release(), Release::Lost(Lost::Expired));

    for look in 0..3 {
        let lease = table.try_acquire(&KEY, ms(10)).expect("free");
        clock.advance(ms(11));
        match look {
            0 => assert_eq!(table.peek(&KEY).expect("there").state, LeaseState::Free),
            1 => assert_eq!(table.list()[0].state, LeaseState::Free),
            _ => assert!(table.remove(&KEY).is_ok()),
        }
        // Even with the clock where it was, the guard can not come back.
        assert!(matches!(lease.release(), Release::Lost(_)));
    }
}

#[test]
fn s5_renewal_does_not_revive() {
    let (clock, table) = table::<u64>();
    let lease = table.try_acquire(&KEY, ms(10)).expect("free");
    clock.advance(ms(9));
    assert_eq!(lease.renew(ms(10)), Ok(()));
    clock.advance(ms(10));
    assert_eq!(lease.renew(ms(10)), Err(RenewError::Lost(Lost::Expired)));
    assert_eq!(lease.renew(ms(10)), Err(RenewError::Lost(Lost::Expired)));
    assert_eq!(table.peek(&KEY).expect("there").state, LeaseState::Free);
}

#[test]
fn s6_renewal_never_shortens() {
    let (clock, table) = table::<u64>();
    let lease = table.try_acquire(&KEY, ms(100)).expect("free");
    for ttl in [50, 0, 99] {
        lease.renew(ms(ttl)).expect("held");
        assert_eq!(lease.remaining(), ms(100));
    }
    clock.advance(ms(40));
    lease.renew(ms(100)).expect("held");
    assert_eq!(lease.remaining(), ms(100));
}

#[test]
fn s7_release_needs_the_token_and_is_idempotent() {
    let (_, table) = table::<u64>();
    let first = table.try_acquire(&KEY, ms(10)).expect("free").into_token();
    assert!(table.peek(&KEY).expect("there").state == LeaseState::Held);
    let stranger = token(77);
    assert!(matches!(table.release(&KEY, stranger), Release::Lost(Lost::Superseded { .. })));
    assert_eq!(table.release(&KEY, first), Release::Released);
    assert_eq!(table.release(&KEY, first), Release::AlreadyReleased);
    let second = table.try_acquire(&KEY, ms(10)).expect("free");
    let by = second.token();
    assert_eq!(table.release(&KEY, first), Release::Lost(Lost::Superseded { by }));
    assert!(second.is_valid());
    assert_eq!(table.release(&"other", first), Release::Lost(Lost::Removed));
}

#[test]
fn s8_what_was_lost_stays_lost() {
    let (clock, table) = table::<u64>();
    let lease = table.try_acquire(&KEY, ms(10)).expect("free");
    clock.advance(ms(10));
    assert!(!lease.is_valid());
    // Nothing that happens to the key afterwards, its removal and return included, changes it.
    table.remove(&KEY).expect("free");
    let again = table.try_acquire(&KEY, ms(10)).expect("made anew");
    assert!(again.is_valid());
    assert!(!lease.is_valid());
    assert_eq!(lease.remaining(), Duration::ZERO);
    assert!(lease.commit().is_err());
    assert!(again.is_valid());
}

#[test]
fn s9_a_draft_is_private_and_hooks_cannot_block_the_key() {
    let clock = ManualClock::new();
    let table: Table = LeaseTable::<&'static str, u64>::builder()
        .clock(clock.clone())
        .audit(|_| panic!("a sink that fails"))
        .build();
    let mut lease = table.try_acquire(&KEY, ms(10)).expect("free");
    *lease = 9;
    assert_eq!((*lease, value(&table)), (9, 0));
    assert_eq!(lease.abort(), Release::Released);
    assert_eq!(value(&table), 0);
    let mut lease = table.try_acquire(&KEY, ms(10)).expect("free");
    *lease = 9;
    assert_eq!(lease.revert(), Some(9));
    assert_eq!(*lease, 0);
    *lease = 3;
    lease.commit().expect("held");
    assert_eq!(value(&table), 3);
    assert!(table.missed_events() >= 4, "the sink panicked each time");
}

#[test]
fn s10_a_name_is_no_authority() {
    let (clock, table) = table::<u64>();
    let ask = || LeaseRequest::new(ms(10)).owner("twin");
    let mut late = table.try_acquire(&KEY, ask()).expect("free");
    *late = 1;
    assert!(matches!(
        table.try_acquire(&KEY, ask()),
        Err(AcquireError::Held { owner: Some(name), .. }) if name == "twin"
    ));
    clock.advance(ms(11));
    let now = table.try_acquire(&KEY, ask()).expect("expired");
    assert!(late.commit().is_err());
    assert!(now.is_valid());
}

// ---- the guard ----

#[test]
fn a_checkpoint_publishes_and_goes_on() {
    let (_, table) = table::<u64>();
    let mut lease = table.try_acquire(&KEY, ms(10)).expect("free");
    let token = lease.token();
    for n in 1..=9 {
        *lease += 1;
        lease.checkpoint().expect("held");
        assert_eq!((value(&table), *lease, lease.version()), (n, n, n));
        assert_eq!(lease.token(), token);
        assert!(!lease.has_draft());
    }
    *lease = 100;
    drop(lease);
    let peek = table.peek(&KEY).expect("there");
    assert_eq!((peek.value, peek.version, peek.state), (9, 9, LeaseState::Free));
}

#[test]
fn a_refused_checkpoint_leaves_the_draft_in_the_guard() {
    let (clock, table) = table::<u64>();
    let mut lease = table.try_acquire(&KEY, ms(10)).expect("free");
    lease.set(5);
    clock.advance(ms(20));
    assert_eq!(lease.checkpoint(), Err(Refusal::Lost(Lost::Expired)));
    assert_eq!(*lease, 5);
    assert_eq!(lease.commit().expect_err("late").into_draft(), Some(5));
}

#[test]
fn a_late_guard_still_reads_the_value_it_began_with() {
    let (clock, table) = table::<String>();
    let mut first = table.try_acquire(&KEY, ms(10)).expect("free");
    first.push_str("old");
    first.checkpoint().expect("held");
    clock.advance(ms(11));
    for n in 0..5 {
        let mut next = table.try_acquire(&KEY, ms(10)).expect("free");
        next.set(format!("new {n}"));
        next.commit().expect("held");
    }
    assert_eq!(*first, "old");
    first.push_str("er");
    assert_eq!(first.commit().expect_err("late").into_draft().as_deref(), Some("older"));
    assert_eq!(table.peek(&KEY).expect("there").value, "new 4");
}

#[test]
fn a_guard_dropped_in_a_panic_discards_and_says_so() {
    let (_, table) = table::<u64>();
    let events = table.subscribe(8);
    let table = Arc::new(table);
    let inside = Arc::clone(&table);
    let result = std::thread::spawn(move || {
        let mut lease = inside.try_acquire(&KEY, ms(10)).expect("free");
        *lease = 1;
        panic!("the work failed");
    })
    .join();
    assert!(result.is_err());
    assert_eq!(value(&table), 0);
    let kinds: Vec<_> = events.try_iter().map(|event| event.kind).collect();
    assert_eq!(kinds, [LeaseEventKind::Acquired, LeaseEventKind::Dropped { panicking: true }]);
    assert!(table.try_acquire(&KEY, ms(10)).is_ok());
}

#[test]
fn a_forgotten_guard_holds_until_its_deadline() {
    let (clock, table) = table::<u64>();
    std::mem::forget(table.try_acquire(&KEY, ms(10)).expect("free"));
    assert!(table.try_acquire(&KEY, ms(10)).is_err());
    clock.advance(ms(11));
    assert!(table.try_acquire(&KEY, ms(10)).is_ok());
}

#[test]
fn borrowed_leases_of_one_handle_may_outlive_its_moves() {
    let (clock, table) = table::<String>();
    let handle = table.handle(&KEY).expect("open");
    let mut late = Vec::new();
    for n in 0..6 {
        let mut lease = handle.try_acquire(ms(10)).expect("free");
        lease.push_str(&n.to_string());
        lease.checkpoint().expect("held");
        late.push(lease);
        clock.advance(ms(11));
    }
    let read: Vec<_> = late.iter().map(|lease| lease.to_string()).collect();
    assert_eq!(read, ["0", "01", "012", "0123", "01234", "012345"]);
    drop(late);
    handle.try_acquire(ms(10)).expect("free").commit().expect("held");
}

// ---- tokens ----

#[test]
fn a_token_resumes_its_lease() {
    let (clock, table) = table::<u64>();
    let token = table.try_acquire(&KEY, ms(10)).expect("free").into_token();
    let mut lease = table.resume(&KEY, token).expect("running");
    assert_eq!(lease.token(), token);
    *lease = 4;
    lease.checkpoint().expect("held");
    *lease += 1;
    lease.commit().expect("held");
    assert_eq!(value(&table), 5);
    assert_eq!(table.resume(&KEY, token).map(|_| ()), Err(ResumeError::Lost(Lost::Released)));
    let unknown = FencingToken::from_bytes(99u64.to_be_bytes()).expect("not zero");
    assert!(table.resume(&KEY, unknown).is_err());
    assert_eq!(table.resume(&"no", token).map(|_| ()), Err(ResumeError::NoSuchKey));
    let token = table.try_acquire(&KEY, ms(10)).expect("free").into_token();
    clock.advance(ms(10));
    assert_eq!(table.resume(&KEY, token).map(|_| ()), Err(ResumeError::Lost(Lost::Expired)));
}

#[test]
fn two_guards_with_one_token_do_not_overwrite_each_other() {
    for resumed_first in [true, false] {
        let (_, table) = table::<u64>();
        let mut first = table.try_acquire(&KEY, ms(10)).expect("free");
        let mut second = table.resume(&KEY, first.token()).expect("running");
        *first = 1;
        *second = 2;
        if resumed_first {
            second.checkpoint().expect("first to publish");
            assert_eq!(first.checkpoint(), Err(Refusal::VersionChanged));
            assert!(first.is_valid(), "the token is current");
            let refused = first.commit().expect_err("the value changed");
            assert_eq!(refused.into_draft(), Some(1));
            assert!(second.is_valid());
            assert_eq!(value(&table), 2);
        } else {
            first.checkpoint().expect("first to publish");
            *first = 7;
            first.checkpoint().expect("once more: the same entry is current again");
            assert_eq!(second.commit().expect_err("changed").why(), Refusal::VersionChanged);
            assert!(first.is_valid());
            assert_eq!(value(&table), 7);
        }
    }
}

#[test]
fn the_same_request_gets_the_same_grant() {
    let (clock, table) = table::<u64>();
    let ask = |id| LeaseRequest::new(ms(10)).request_id(id);
    let first = table.try_acquire(&KEY, ask(1)).expect("free");
    clock.advance(ms(5));
    assert!(table.try_acquire(&KEY, ask(2)).is_err());
    let again = table.try_acquire(&KEY, ask(1)).expect("the same request");
    assert_eq!(again.token(), first.token());
    assert_eq!(again.remaining(), ms(5), "it is the same grant, not a longer one");
    clock.advance(ms(6));
    let later = table.try_acquire(&KEY, ask(1)).expect("expired");
    assert!(later.token() > first.token());
    assert!(!first.is_valid() && !again.is_valid());
}

#[test]
fn asking_again_by_the_same_name_gives_no_longer_lease() {
    let (clock, table) = table::<u64>();
    let ask = || LeaseRequest::new(ms(10)).owner("me");
    let lease = table.try_acquire(&KEY, ask()).expect("free");
    clock.advance(ms(5));
    assert!(table.try_acquire(&KEY, ask()).is_err());
    assert_eq!(lease.remaining(), ms(5));
}

// ---- hand-off ----

#[test]
fn a_handoff_carries_the_draft_and_fences_its_giver() {
    let (_, table) = table::<u64>();
    let mut lease = table.try_acquire(&KEY, ms(10)).expect("free");
    let old = lease.token();
    *lease = 8;
    let handoff = lease.transfer("heir", ms(5)).expect("held");
    let peek = table.peek(&KEY).expect("there");
    assert_eq!(peek.state, LeaseState::HandedOff);
    assert_eq!(peek.owner.as_deref(), Some("heir"));
    assert_eq!(peek.token, Some(handoff.token()));
    assert!(table.try_acquire(&KEY, ms(10)).is_err());
    assert!(matches!(table.release(&KEY, old), Release::Lost(Lost::Superseded { .. })));
    let heir = std::thread::spawn(move || handoff.accept(ms(20))).join().expect("no panic");
    let heir = heir.expect("in time");
    assert!(heir.token() > old);
    assert_eq!((*heir, heir.remaining()), (8, ms(20)));
    heir.commit().expect("held");
    assert_eq!(value(&table), 8);
}

#[test]
fn a_handoff_that_nobody_accepts_frees_the_key() {
    let (clock, table) = table::<u64>();
    let mut lease = table.try_acquire(&KEY, ms(100)).expect("free");
    *lease = 8;
    let handoff = lease.transfer("heir", ms(5)).expect("held");
    clock.advance(ms(5));
    let refused = handoff.accept(ms(20)).expect_err("late");
    assert_eq!(refused.why(), RenewError::Lost(Lost::Expired));
    assert_eq!(refused.into_draft(), Some(8));
    assert_eq!(value(&table), 0);

    let handoff = table.try_acquire(&KEY, ms(9)).expect("free").transfer("heir", ms(5));
    clock.advance(ms(6));
    let taken = table.try_acquire(&KEY, ms(10)).expect("not accepted in time");
    assert!(handoff.expect("held").accept(ms(9)).is_err());
    assert!(taken.is_valid());
    drop(taken);

    let handoff = table.try_acquire(&KEY, ms(9)).expect("free").transfer("heir", ms(5));
    drop(handoff);
    assert!(table.try_acquire(&KEY, ms(9)).is_ok());
}

#[test]
fn a_late_transfer_gives_the_guard_back() {
    let (clock, table) = table::<u64>();
    let mut lease = table.try_acquire(&KEY, ms(10)).expect("free");
    *lease = 8;
    clock.advance(ms(10));
    let refused = lease.transfer("heir", ms(5)).expect_err("late");
    assert_eq!(refused.why(), RenewError::Lost(Lost::Expired));
    assert_eq!(refused.into_guard().revert(), Some(8));
}

// ---- from outside ----

#[test]
fn revocation_is_never_blind() {
    let (_, table) = table::<u64>();
    let first = table.try_acquire(&KEY, ms(10)).expect("free");
    let old = first.token();
    drop(first);
    assert_eq!(table.revoke(&KEY, old, "late"), Revocation::Stale { current: None });
    let mut second = table.try_acquire(&KEY, ms(10)).expect("free");
    *second = 1;
    let now = second.token();
    assert_eq!(table.revoke(&KEY, old, "late"), Revocation::Stale { current: Some(now) });
    assert!(second.is_valid());
    assert_eq!(table.revoke(&KEY, now, "stuck"), Revocation::Revoked);
    assert_eq!(second.check().map(|_| ()), Err(Lost::Revoked));
    assert_eq!(second.commit().expect_err("revoked").why(), Refusal::Lost(Lost::Revoked));
    assert_eq!(table.revoke(&"no", now, "stuck"), Revocation::NoSuchKey);
}

#[test]
fn events_tell_who_when_which_and_why() {
    let (clock, table) = table::<u64>();
    let events = table.subscribe(64);
    clock.advance(ms(3));
    let ask = LeaseRequest::new(ms(10)).owner("ann").reason("tidy");
    let lease = table.try_acquire(&KEY, ask).expect("free");
    lease.renew(ms(20)).expect("held");
    let first = lease.token();
    assert_eq!(table.revoke(&KEY, first, "stuck"), Revocation::Revoked);
    assert!(lease.commit().is_err());
    let seen: Vec<_> = events.try_iter().collect();
    let kinds: Vec<_> = seen.iter().map(|event| event.kind).collect();
    use LeaseEventKind::*;
    assert_eq!(
        kinds,
        [Acquired, Renewed, Revoked, CommitRefused, Dropped { panicking: false }][..4]
    );
    assert!(seen.iter().all(|event| event.token == first && event.key == KEY));
    assert_eq!(seen[0].owner.as_deref(), Some("ann"));
    assert_eq!(seen[0].reason.as_deref(), Some("tidy"));
    assert_eq!(seen[2].owner.as_deref(), Some("ann"));
    assert_eq!(seen[2].reason.as_deref(), Some("stuck"));
    assert_eq!(seen[0].at.as_nanos(), 3_000_000);
}

#[test]
fn a_slow_subscriber_misses_and_is_told_so() {
    let (_, table) = table::<u64>();
    let events = table.subscribe(1);
    for _ in 0..3 {
        table.try_acquire(&KEY, ms(10)).expect("free").commit().expect("held");
    }
    assert_eq!(events.len(), 1);
    assert_eq!(table.missed_events(), 5);
    drop(events);
    table.try_acquire(&KEY, ms(10)).expect("free").commit().expect("held");
    assert_eq!(table.missed_events(), 5);
}

#[test]
fn a_sink_may_call_the_table() {
    let clock = ManualClock::new();
    type Held = Arc<Mutex<Option<Arc<Table>>>>;
    let back: Held = Arc::default();
    let inner = Arc::clone(&back);
    let states = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&states);
    let table: Table = LeaseTable::<&'static str, u64>::builder()
        .clock(clock)
        .audit(move |event| {
            if let Some(table) = inner.lock().expect("no panic").clone() {
                let state = table.peek(&event.key).map(|peek| peek.state);
                seen.lock().expect("no panic").push(state);
            }
        })
        .build();
    let table = Arc::new(table);
    *back.lock().expect("no panic") = Some(Arc::clone(&table));
    table.try_acquire(&KEY, ms(10)).expect("free").commit().expect("held");
    assert_eq!(*states.lock().expect("no panic"), [Some(LeaseState::Held), Some(LeaseState::Free)]);
    *back.lock().expect("no panic") = None;
}

// ---- keys ----

#[test]
fn keys_are_made_found_and_removed() {
    let (_, table) = table::<u64>();
    assert!(table.is_empty() && table.find(&KEY).is_none() && table.peek(&KEY).is_none());
    let handle = table.insert(KEY, 5).expect("new");
    assert_eq!(table.insert(KEY, 6).map(|_| ()), Err(InsertError::Exists(KEY, 6)));
    assert_eq!((table.len(), *handle.key()), (1, KEY));
    let lease = handle.try_acquire(ms(10)).expect("free");
    assert!(matches!(table.remove(&KEY), Err(RemoveError::Held { .. })));
    let first = lease.token();
    drop(lease);
    assert_eq!(table.remove(&KEY), Ok(Some(first)));
    assert_eq!(table.remove(&KEY), Err(RemoveError::NoSuchKey));
    assert!(matches!(handle.try_acquire(ms(10)), Err(AcquireError::NoSuchKey)));
    // Made anew: the old handle stands for the key, and its tokens go on.
    let _ = table.insert(KEY, 7).expect("removed");
    let again = handle.try_acquire(ms(10)).expect("free");
    assert!(again.token() > first);
    assert_eq!(*again, 7);
}

#[test]
fn a_closed_table_grants_nothing() {
    let (_, table) = table::<u64>();
    let handle = table.handle(&KEY).expect("open");
    let mut lease = handle.try_acquire(ms(10)).expect("free");
    *lease = 1;
    table.close();
    assert!(!lease.is_valid());
    assert_eq!(lease.commit().expect_err("closed").why(), Refusal::Lost(Lost::Removed));
    assert!(matches!(handle.try_acquire(ms(10)), Err(AcquireError::Closed)));
    assert_eq!(table.insert("b", 1).map(|_| ()), Err(InsertError::Closed("b", 1)));
    assert!(matches!(table.handle(&"c"), Err(AcquireError::Closed)));
    let owned = {
        let table: Table = LeaseTable::with_clock(ManualClock::new());
        table.try_acquire(&KEY, ms(10)).expect("free")
    };
    assert!(!owned.is_valid());
}

#[test]
fn values_are_dropped_once() {
    /// Counts what is made, also by a takeover or a move to a new slot, and what is dropped.
    #[derive(Debug)]
    struct Counted(Arc<[AtomicUsize; 2]>);
    impl Counted {
        fn new(counts: &Arc<[AtomicUsize; 2]>) -> Self {
            counts[0].fetch_add(1, Ordering::Relaxed);
            Self(Arc::clone(counts))
        }
    }
    impl Clone for Counted {
        fn clone(&self) -> Self {
            Self::new(&self.0)
        }
    }
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0[1].fetch_add(1, Ordering::Relaxed);
        }
    }
    let counts = Arc::default();
    let counted = || Counted::new(&counts);
    let (clock, table) = table::<Counted>();
    let handle = table.insert(KEY, counted()).expect("new");
    for round in 0..20 {
        let mut lease = handle.try_acquire(ms(10)).expect("free");
        lease.set(counted());
        match round % 4 {
            0 => lease.commit().expect("held"),
            1 => lease.checkpoint().expect("held"),
            2 => drop(lease),
            _ => {
                clock.advance(ms(11));
                let next = handle.try_acquire(ms(10)).expect("expired");
                drop(lease.commit().expect_err("late"));
                drop(next);
            }
        }
    }
    drop(handle);
    drop(table);
    let [made, dropped] = [0, 1].map(|i: usize| counts[i].load(Ordering::Relaxed));
    assert!(made >= 26, "{made}");
    assert_eq!(dropped, made);
}

// ---- the ends of ranges ----

#[test]
fn durations_out_of_range_are_errors_and_change_nothing() {
    let (_, table) = table::<u64>();
    let max = table.longest_ttl();
    assert!(matches!(
        table.try_acquire(&KEY, Duration::MAX),
        Err(AcquireError::TtlOutOfRange { max: m }) if m == max
    ));
    let lease = table.try_acquire(&KEY, max).expect("in range");
    assert_eq!(lease.remaining(), max);
    assert_eq!(lease.renew(Duration::MAX), Err(RenewError::TtlOutOfRange { max }));
    let lease = lease.transfer("heir", Duration::MAX).expect_err("too long").into_guard();
    assert!(lease.is_valid());
    let handoff = lease.transfer("heir", ms(5)).expect("held");
    let refused = handoff.accept(Duration::MAX).expect_err("too long");
    assert_eq!(refused.why(), RenewError::TtlOutOfRange { max });
    let zero = table.try_acquire(&KEY, Duration::ZERO).expect("free");
    assert!(!zero.is_valid());
}

#[test]
fn epochs_used_up_move_the_key_and_nobody_notices() {
    let clock = ManualClock::new();
    let table: Table =
        LeaseTable::<&'static str, u64>::builder().clock(clock.clone()).epoch_limit(3).build();
    let handle = table.handle(&KEY).expect("open");
    let other = handle.clone();
    for n in 1..=100u64 {
        let by = if n % 3 == 0 { &other } else { &handle };
        let mut lease = by.try_acquire(ms(10)).expect("free");
        assert_eq!(lease.token().to_string(), n.to_string(), "no token is skipped");
        assert_eq!(*lease, n - 1);
        *lease = n;
        lease.commit().expect("held");
    }
    // A transfer at the last epoch.
    for _ in 0..8 {
        let mut lease = handle.try_acquire(ms(10)).expect("free");
        let old = lease.token();
        *lease += 1;
        let new = lease.transfer("heir", ms(5)).expect("held").accept(ms(5)).expect("in time");
        assert!(new.token() > old);
        new.commit().expect("held");
    }
    assert_eq!(value(&table), 108);
}

#[test]
fn a_pure_lease_has_no_value_to_move() {
    let (clock, table) = table::<()>();
    let handle = table.handle(&KEY).expect("open");
    let late = handle.try_acquire(ms(10)).expect("free");
    clock.advance(ms(11));
    let mut now = handle.try_acquire(ms(10)).expect("expired");
    assert!(!late.is_valid());
    now.set(());
    now.checkpoint().expect("held");
    now.commit().expect("held");
    assert!(late.commit().is_err());
    for _ in 0..40 {
        handle.try_acquire(ms(10)).expect("free").commit().expect("held");
    }
}

// ---- more of what has gone wrong elsewhere ----

#[test]
fn a_sink_that_blocks_holds_up_its_own_caller_and_nobody_else() {
    use std::sync::mpsc;
    let (stuck, is_stuck) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let first = AtomicUsize::new(0);
    let table: Table = LeaseTable::<&'static str, u64>::builder()
        .clock(ManualClock::new())
        .audit(move |_| {
            if first.fetch_add(1, Ordering::Relaxed) == 0 {
                stuck.send(()).expect("heard");
                may_go_on.lock().expect("no panic").recv().expect("told");
            }
        })
        .build();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| table.try_acquire(&KEY, ms(10)).expect("free").into_token());
        is_stuck.recv().expect("the sink was called");
        // The key is granted, and everybody can see and do everything.
        let seen = table.peek(&KEY).expect("there");
        assert_eq!(seen.state, LeaseState::Held);
        let _ = table.revoke(&KEY, seen.token.expect("granted"), "meanwhile");
        table.try_acquire(&KEY, ms(10)).expect("revoked").commit().expect("held");
        go_on.send(()).expect("heard");
        assert_eq!(slow.join().expect("no panic"), token(1));
    });
}

#[test]
fn a_late_owner_removes_nothing_of_its_successor() {
    let (clock, table) = table::<u64>();
    let late = table.try_acquire(&KEY, ms(10)).expect("free");
    clock.advance(ms(11));
    let next = table.try_acquire(&KEY, ms(10)).expect("expired");
    assert!(matches!(late.release(), Release::Lost(Lost::Superseded { .. })));
    assert!(matches!(table.remove(&KEY), Err(RemoveError::Held { .. })));
    assert!(next.is_valid());
}

#[test]
fn a_jump_of_the_clock_ends_what_it_jumps_over() {
    let (clock, table) = table::<u64>();
    let lease = table.try_acquire(&KEY, ms(10)).expect("free");
    clock.advance(Duration::MAX);
    assert!(!lease.is_valid());
    assert!(matches!(table.try_acquire(&KEY, ms(1)), Err(AcquireError::TtlOutOfRange { .. })));
    assert_eq!(table.longest_ttl(), Duration::ZERO);
}

// ---- fences ----

#[test]
fn a_gate_lets_no_older_token_through() {
    let gate = FenceGate::starting_at(token(3));
    assert_eq!(gate.admit(token(2)), Err(Fenced { token: token(2), seen: token(3) }));
    assert_eq!(gate.admit(token(3)), Ok(()));
    assert_eq!(gate.admit(token(5)), Ok(()));
    assert!(gate.admit(token(4)).is_err());
    assert_eq!(gate.seen(), Some(token(5)));
    assert_eq!(FenceGate::new().seen(), None);
}

#[test]
fn a_fenced_cell_keeps_late_writers_out_and_remembers_a_torn_write() {
    let cell = FencedCell::new(0);
    cell.write(token(2), |n| *n = 2).expect("first");
    assert!(matches!(cell.write(token(1), |n| *n = 1), Err(FencedCellError::Fenced(_))));
    let torn = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        cell.write(token(3), |n| {
            *n = 99;
            panic!("half way");
        })
    }));
    assert!(torn.is_err());
    assert_eq!(cell.read(|n| *n), Err(FencedCellError::Poisoned));
    assert_eq!(cell.write(token(3), |n| *n = 3), Err(FencedCellError::Poisoned));
    assert!(cell.recover(token(2), 0).is_err());
    assert_eq!(cell.recover(token(3), 3), Ok(99));
    assert_eq!(cell.read(|n| *n), Ok(3));
}

#[test]
fn threads_may_share_what_they_should() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Table>();
    sync::<Table>();
    send::<LeaseHandle<u8, u8>>();
    send::<OwnedLease<u8, u8>>();
    send::<Handoff<u8, u8>>();
    send::<FenceGate>();
    sync::<FenceGate>();
    sync::<FencedCell<u8>>();
}
