//! Leases, by pairs of calls: who gets the key, who is refused, and what readers see.
//!
//! The clock is an atomic of the model, moved by a thread of its own, so each look at it is a point
//! where the time may have moved. Everything is the real thing: the 64-bit word, the entries, the
//! index; its lock is the model's own, as the real one has models of its own.
//!
//! Two are explored with few preemptions; with one more they passed too, in 101,209 and 94,219
//! executions (`commit_x_takeover_x_clock`, `peek_twice_x_commits`).

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;
use tenure::clock::ManualClock;
use tenure::lease::{
    AcquireError, FenceGate, LeaseHandle, LeaseTable, Lost, OwnedLease, Refusal, Release,
    RemoveError, RenewError, Revocation,
};

pub(super) type Table<V = u64> = LeaseTable<u8, V, ManualClock>;
type Handle<V = u64> = LeaseHandle<u8, V, ManualClock>;
type Owned<V = u64> = OwnedLease<u8, V, ManualClock>;

pub(super) const TTL: Duration = Duration::from_millis(10);
/// Beyond the deadline of a lease of `TTL` that began at the origin.
pub(super) const LATE: Duration = Duration::from_millis(11);

pub(super) struct Rig<V: tenure::lease::LeaseValue> {
    pub(super) clock: ManualClock,
    pub(super) table: Arc<Table<V>>,
}

pub(super) fn rig<V: tenure::lease::LeaseValue + Default>() -> Rig<V> {
    rig_with(u64::MAX)
}

fn rig_with<V: tenure::lease::LeaseValue + Default>(epochs: u64) -> Rig<V> {
    let clock = ManualClock::new();
    let table = LeaseTable::<u8, V>::builder().clock(clock.clone()).epoch_limit(epochs).build();
    Rig { clock, table: Arc::new(table) }
}

impl<V: tenure::lease::LeaseValue + Default> Rig<V> {
    fn handle(&self) -> Handle<V> {
        self.table.handle(&0).unwrap()
    }

    fn held(&self) -> Owned<V> {
        self.table.try_acquire(&0, TTL).unwrap()
    }

    /// A lease that is past its deadline, with nobody knowing yet.
    fn expired(&self) -> Owned<V> {
        let held = self.held();
        self.clock.advance(LATE);
        held
    }

    /// A thread that moves the clock past the deadline.
    fn late_thread(&self) -> thread::JoinHandle<()> {
        let clock = self.clock.clone();
        thread::spawn(move || clock.advance(LATE))
    }
}

/// Acquires and keeps the key to the end of the execution; gives the token.
fn take(handle: Handle) -> Option<u64> {
    match handle.try_acquire_owned(TTL) {
        Ok(lease) => Some(number(lease.into_token())),
        Err(AcquireError::Held { .. }) => None,
        Err(other) => panic!("{other:?}"),
    }
}

pub(super) fn number(token: tenure::lease::FencingToken) -> u64 {
    u64::from_be_bytes(token.to_bytes())
}

models! { "lease";
    /// A free key has one winner.
    acquire_x_acquire_on_a_free_key {
        let rig = rig::<u64>();
        let (a, b) = (rig.handle(), rig.handle());
        let a = thread::spawn(move || take(a));
        let b = thread::spawn(move || take(b));
        let (a, b) = (a.join().unwrap(), b.join().unwrap());
        assert!(a.is_some() != b.is_some());
        assert_eq!(a.or(b), Some(1));
    }

    /// A key whose owner is late moves to a fresh slot; it has one winner too, and the late one knows.
    acquire_x_acquire_on_an_expired_key [bound: 3] {
        let rig = rig::<u64>();
        let late = rig.expired();
        let (a, b) = (rig.handle(), rig.handle());
        let a = thread::spawn(move || take(a));
        let b = thread::spawn(move || take(b));
        let (a, b) = (a.join().unwrap(), b.join().unwrap());
        assert!(a.is_some() != b.is_some());
        assert_eq!(a.or(b), Some(2));
        assert!(!late.is_valid());
    }

    /// Without a value there is no fresh slot: the takeover is in place.
    acquire_x_acquire_on_an_expired_pure_key {
        let rig = rig::<()>();
        let late = rig.expired();
        let spawn = |handle: Handle<()>| thread::spawn(move || {
            handle.try_acquire_owned(TTL).ok().map(|lease| number(lease.into_token()))
        });
        let (a, b) = (spawn(rig.handle()), spawn(rig.handle()));
        let (a, b) = (a.join().unwrap(), b.join().unwrap());
        assert!(a.is_some() != b.is_some());
        assert_eq!(a.or(b), Some(2));
        assert!(!late.is_valid());
    }

    /// At the last epoch both find that the key has to move; no token is given twice.
    acquire_x_acquire_at_the_last_epoch [bound: 3] {
        let rig = rig_with::<u64>(1);
        rig.held().commit().unwrap();
        let (a, b) = (rig.handle(), rig.handle());
        let a = thread::spawn(move || take(a));
        let b = thread::spawn(move || take(b));
        let (a, b) = (a.join().unwrap(), b.join().unwrap());
        assert!(a.is_some() != b.is_some());
        assert_eq!(a.or(b), Some(2));
    }

    /// Two owners, one after the other, each used up an epoch: the key moves twice in one race.
    cycle_x_cycle_moving_twice [bound: 2] {
        let rig = rig_with::<u64>(1);
        let cycle = |handle: Handle| thread::spawn(move || {
            let mut tokens = Vec::new();
            for _ in 0..2 {
                if let Ok(mut lease) = handle.try_acquire(TTL) {
                    *lease += 1;
                    tokens.push(number(lease.token()));
                    lease.commit().unwrap();
                }
            }
            tokens
        });
        let (a, b) = (cycle(rig.handle()), cycle(rig.handle()));
        let mut tokens = a.join().unwrap();
        tokens.extend(b.join().unwrap());
        tokens.sort_unstable();
        assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(rig.table.peek(&0).unwrap().value, tokens.len() as u64);
    }

    /// A renewed lease is not stolen: the contender that read the old deadline fails.
    renew_x_takeover_x_clock [bound: 3] {
        let rig = rig::<()>();
        let held = rig.held();
        let contender = rig.handle();
        let clock = rig.late_thread();
        let renew = thread::spawn(move || (held.renew(TTL * 10), held));
        let take = thread::spawn(move || {
            contender.try_acquire_owned(TTL).map(|lease| lease.into_token()).is_ok()
        });
        clock.join().unwrap();
        let (renewed, held) = renew.join().unwrap();
        let taken = take.join().unwrap();
        match renewed {
            Ok(()) => assert!(!taken && held.is_valid()),
            Err(RenewError::Lost(_)) => assert!(!held.is_valid()),
            Err(other) => panic!("{other:?}"),
        }
    }

    /// The same, where a takeover moves the key.
    renew_x_takeover_of_a_value [bound: 3] {
        let rig = rig::<u64>();
        let held = rig.held();
        let contender = rig.handle();
        let clock = rig.late_thread();
        let renew = thread::spawn(move || (held.renew(TTL * 10), held));
        let take = thread::spawn(move || take(contender));
        clock.join().unwrap();
        let (renewed, held) = renew.join().unwrap();
        let taken = take.join().unwrap();
        assert!(!(renewed.is_ok() && taken.is_some()));
        assert_eq!(renewed.is_ok(), held.is_valid());
    }

    /// Either the commit counts and the successor begins with it, or it is refused.
    commit_x_takeover_x_clock [bound: 2] {
        let rig = rig::<u64>();
        let mut held = rig.held();
        held.set(1);
        let contender = rig.handle();
        let clock = rig.late_thread();
        let commit = thread::spawn(move || held.commit().is_ok());
        let take = thread::spawn(move || {
            contender.try_acquire(TTL).ok().map(|lease| (*lease, lease.version()))
        });
        clock.join().unwrap();
        let committed = commit.join().unwrap();
        if let Some((value, version)) = take.join().unwrap() {
            assert_eq!((value, version), if committed { (1, 1) } else { (0, 0) });
        }
        assert_eq!(rig.table.peek(&0).unwrap().value, u64::from(committed));
    }

    /// A late owner goes on writing its draft while its successor publishes: neither disturbs the
    /// other, and a third sees the successor's value.
    late_commit_x_successors_commits [bound: 3] {
        let rig = rig::<u64>();
        let mut late = rig.expired();
        late.set(7);
        let successor = rig.handle();
        let zombie = thread::spawn(move || late.commit().unwrap_err().into_draft());
        let next = thread::spawn(move || {
            for _ in 0..2 {
                let mut lease = successor.try_acquire(TTL * 9).unwrap();
                *lease += 1;
                lease.commit().unwrap();
            }
        });
        assert_eq!(zombie.join().unwrap(), Some(7));
        next.join().unwrap();
        let peek = rig.table.peek(&0).unwrap();
        assert_eq!((peek.value, peek.version), (2, 2));
    }

    /// A revoked lease does not commit; a committed one is not revoked.
    commit_x_revoke {
        let rig = rig::<u64>();
        let mut held = rig.held();
        held.set(1);
        let token = held.token();
        let table = rig.table.clone();
        let commit = thread::spawn(move || held.commit().map_err(|refused| refused.why()));
        let revoke = thread::spawn(move || table.revoke(&0, token, "test"));
        let (committed, revoked) = (commit.join().unwrap(), revoke.join().unwrap());
        match committed {
            Ok(()) => assert_eq!(revoked, Revocation::Stale { current: None }),
            Err(why) => {
                assert_eq!(why, Refusal::Lost(Lost::Revoked));
                assert_eq!(revoked, Revocation::Revoked);
            }
        }
        assert_eq!(rig.table.peek(&0).unwrap().value, u64::from(committed.is_ok()));
    }

    /// A checkpoint, its next checkpoint and a revocation: what the guard was told is what stands.
    checkpoints_x_revoke [bound: 3] {
        let rig = rig::<u64>();
        let mut held = rig.held();
        let token = held.token();
        let table = rig.table.clone();
        let owner = thread::spawn(move || {
            let mut published = 0;
            for n in 1..=3 {
                held.set(n);
                match held.checkpoint() {
                    Ok(()) => published = n,
                    Err(_) => break,
                }
            }
            published
        });
        let revoke = thread::spawn(move || table.revoke(&0, token, "test"));
        let published = owner.join().unwrap();
        let _ = revoke.join().unwrap();
        let peek = rig.table.peek(&0).unwrap();
        assert_eq!((peek.value, peek.version), (published, published));
    }

    /// Plain data written under the lease is the next owner's to read: Release and Acquire.
    release_x_acquire_hands_over_plain_data {
        let rig = rig::<()>();
        let data = Arc::new(UnsafeCell::new(0));
        let held = rig.held();
        let contender = rig.handle();
        let (mine, theirs) = (data.clone(), data);
        let owner = thread::spawn(move || {
            // SAFETY: the lease is held.
            mine.with_mut(|data| unsafe { *data = 1 });
            assert_eq!(held.release(), Release::Released);
        });
        let next = thread::spawn(move || {
            if let Ok(_lease) = contender.try_acquire(TTL) {
                // SAFETY: the lease is held.
                theirs.with(|data| assert_eq!(unsafe { *data }, 1));
            }
        });
        owner.join().unwrap();
        next.join().unwrap();
    }

    /// The next owner writes the entry that the last one read by reference.
    read_then_release_x_acquire_and_commit [bound: 3] {
        let rig = rig::<u64>();
        let held = rig.held();
        let contender = rig.handle();
        let owner = thread::spawn(move || {
            assert_eq!(*held, 0);
            drop(held);
        });
        let next = thread::spawn(move || {
            for _ in 0..2 {
                if let Ok(mut lease) = contender.try_acquire(TTL) {
                    lease.set(1);
                    lease.commit().unwrap();
                }
            }
        });
        owner.join().unwrap();
        next.join().unwrap();
    }

    /// One guard dropped late, another grant made meanwhile: the drop releases nothing of it.
    drop_x_takeover_x_clock [bound: 3] {
        let rig = rig::<u64>();
        let held = rig.held();
        let contender = rig.handle();
        let clock = rig.late_thread();
        let owner = thread::spawn(move || drop(held));
        let next = thread::spawn(move || contender.try_acquire_owned(TTL * 9).ok());
        clock.join().unwrap();
        owner.join().unwrap();
        if let Some(lease) = next.join().unwrap() {
            assert!(lease.is_valid());
        }
    }

    /// A hand-off that is accepted in time, or taken over after its deadline; never both.
    accept_x_takeover_x_clock [bound: 3] {
        let rig = rig::<u64>();
        let handoff = rig.held().transfer("heir", TTL).unwrap();
        let contender = rig.handle();
        let clock = rig.late_thread();
        let accept = thread::spawn(move || handoff.accept(TTL * 9).ok());
        let next = thread::spawn(move || contender.try_acquire_owned(TTL * 9).ok());
        clock.join().unwrap();
        let (accepted, taken) = (accept.join().unwrap(), next.join().unwrap());
        assert!(!(accepted.is_some() && taken.is_some()));
        for lease in [accepted, taken].into_iter().flatten() {
            assert!(lease.is_valid());
        }
    }

    /// A hand-off is accepted or revoked.
    accept_x_revoke {
        let rig = rig::<u64>();
        let handoff = rig.held().transfer("heir", TTL).unwrap();
        let token = handoff.token();
        let table = rig.table.clone();
        let accept = thread::spawn(move || handoff.accept(TTL).ok());
        let revoke = thread::spawn(move || table.revoke(&0, token, "test"));
        let accepted = accept.join().unwrap();
        assert_eq!(revoke.join().unwrap(), Revocation::Revoked);
        assert!(accepted.is_none_or(|lease| !lease.is_valid()));
    }

    /// A transfer and the end of the lease: handed off, or taken over.
    transfer_x_expiry [bound: 3] {
        let rig = rig::<u64>();
        let held = rig.held();
        let contender = rig.handle();
        let clock = rig.late_thread();
        let transfer = thread::spawn(move || held.transfer("heir", TTL * 9).ok());
        let next = thread::spawn(move || contender.try_acquire_owned(TTL * 9).ok());
        clock.join().unwrap();
        let (handed, taken) = (transfer.join().unwrap(), next.join().unwrap());
        assert!(!(handed.is_some() && taken.is_some()));
        if let Some(handoff) = handed {
            assert!(handoff.accept(TTL).is_ok());
        }
    }

    /// The same at the last epoch, where the hand-off moves the key.
    transfer_x_expiry_at_the_last_epoch [bound: 2] {
        let rig = rig_with::<u64>(1);
        let held = rig.held();
        let contender = rig.handle();
        let clock = rig.late_thread();
        let transfer = thread::spawn(move || held.transfer("heir", TTL * 9).ok());
        let next = thread::spawn(move || contender.try_acquire_owned(TTL * 9).ok());
        clock.join().unwrap();
        let (handed, taken) = (transfer.join().unwrap(), next.join().unwrap());
        assert!(!(handed.is_some() && taken.is_some()));
        if let Some(handoff) = handed {
            assert!(handoff.accept(TTL).is_ok());
        }
    }

    /// A removed key is granted to nobody; a held one is not removed; tokens go on afterwards.
    remove_x_acquire {
        let rig = rig::<u64>();
        rig.held().commit().unwrap();
        let handle = rig.handle();
        let table = rig.table.clone();
        let acquire = thread::spawn(move || match handle.try_acquire_owned(TTL) {
            Ok(lease) => Some(number(lease.into_token())),
            Err(AcquireError::NoSuchKey) => None,
            Err(other) => panic!("{other:?}"),
        });
        let remove = thread::spawn(move || table.remove(&0));
        let (taken, removed) = (acquire.join().unwrap(), remove.join().unwrap());
        match removed {
            Ok(latest) => {
                assert_eq!(taken, None);
                assert_eq!(latest.map(number), Some(1));
            }
            Err(RemoveError::Held { .. }) => assert_eq!(taken, Some(2)),
            Err(other) => panic!("{other:?}"),
        }
        if taken.is_none() {
            assert_eq!(number(rig.held().token()), 2);
        }
    }

    /// A key removed and made again while an old handle asks: no token is given twice.
    remove_and_insert_x_acquire [bound: 3] {
        let rig = rig::<u64>();
        rig.held().commit().unwrap();
        let handle = rig.handle();
        let table = rig.table.clone();
        let acquire = thread::spawn(move || {
            handle.try_acquire(TTL).map(|lease| number(lease.token())).ok()
        });
        let again = thread::spawn(move || {
            table.remove(&0).ok()?;
            table.try_acquire(&0, TTL).map(|lease| number(lease.into_token())).ok()
        });
        let (old, new) = (acquire.join().unwrap(), again.join().unwrap());
        assert!(old.is_none() || old != new);
        assert!(old.into_iter().chain(new).all(|token| token > 1));
    }

    /// A reader sees a published value, whole, with the version that belongs to it.
    peek_x_checkpoints [bound: 3] {
        let rig = rig::<u64>();
        let mut held = rig.held();
        let table = rig.table.clone();
        let owner = thread::spawn(move || {
            for n in 1..=3 {
                held.set(n);
                held.checkpoint().unwrap();
            }
            assert_eq!(*held, 3);
        });
        let reader = thread::spawn(move || {
            let peek = table.peek(&0).unwrap();
            assert_eq!(peek.value, peek.version);
        });
        owner.join().unwrap();
        reader.join().unwrap();
    }

    /// The same across owners, and twice: what was seen does not come back as it was.
    peek_twice_x_commits [bound: 2] {
        let rig = rig::<u64>();
        let handle = rig.handle();
        let table = rig.table.clone();
        let owner = thread::spawn(move || {
            for _ in 0..2 {
                let mut lease = handle.try_acquire(TTL).unwrap();
                *lease += 1;
                lease.commit().unwrap();
            }
        });
        let reader = thread::spawn(move || {
            let (first, second) = (table.peek(&0).unwrap(), table.peek(&0).unwrap());
            assert_eq!((first.value, second.value), (first.version, second.version));
            assert!(first.version <= second.version);
            assert!(first.token <= second.token);
        });
        owner.join().unwrap();
        reader.join().unwrap();
    }

    /// Two guards with one token: one publishes, the other is told.
    commit_x_commit_with_one_token [bound: 3] {
        let rig = rig::<u64>();
        let mut held = rig.held();
        let mut twin = rig.table.resume(&0, held.token()).unwrap();
        held.set(1);
        twin.set(2);
        let first = thread::spawn(move || { let done = held.checkpoint(); (done, held) });
        let second = thread::spawn(move || { let done = twin.checkpoint(); (done, twin) });
        let (first, held) = first.join().unwrap();
        let (second, twin) = second.join().unwrap();
        assert!(first.is_ok() != second.is_ok());
        assert_eq!(first.and(second), Err(Refusal::VersionChanged));
        assert_eq!(rig.table.peek(&0).unwrap().value, if first.is_ok() { 1 } else { 2 });
        assert!(held.is_valid() && twin.is_valid());
    }

    /// A token's release and its guard's commit: one of them ends the term.
    commit_x_release_by_token [bound: 3] {
        let rig = rig::<u64>();
        let mut held = rig.held();
        held.set(1);
        let (token, table) = (held.token(), rig.table.clone());
        let commit = thread::spawn(move || held.commit().is_ok());
        let release = thread::spawn(move || table.release(&0, token));
        let (committed, released) = (commit.join().unwrap(), release.join().unwrap());
        let expected = if committed { Release::AlreadyReleased } else { Release::Released };
        assert_eq!(released, expected);
        let mut next = rig.held();
        assert_eq!(*next, u64::from(committed));
        next.set(5);
        next.commit().unwrap();
    }

    /// Nothing is published once `close` is back.
    commit_x_close {
        let rig = rig::<u64>();
        let mut held = rig.held();
        held.set(1);
        let table = rig.table.clone();
        let commit = thread::spawn(move || held.commit().map_err(|refused| refused.why()));
        let close = thread::spawn(move || table.close());
        let committed = commit.join().unwrap();
        close.join().unwrap();
        if let Err(why) = committed {
            assert_eq!(why, Refusal::Lost(Lost::Removed));
        }
        assert!(matches!(rig.table.try_acquire(&0, TTL), Err(AcquireError::Closed)));
    }

    /// Three contenders for an expired key and its late owner.
    three_acquire_an_expired_key [bound: 2] {
        let rig = rig::<()>();
        let late = rig.expired();
        let contenders: Vec<_> = (0..3)
            .map(|_| {
                let handle = rig.handle();
                thread::spawn(move || {
                    handle.try_acquire_owned(TTL).map(|lease| lease.into_token()).is_ok()
                })
            })
            .collect();
        let winners = contenders.into_iter().filter_map(|c| c.join().unwrap().then_some(())).count();
        assert_eq!(winners, 1);
        assert!(!late.is_valid());
    }

    /// A gate publishes what was done before an admission to whoever is admitted after it.
    admit_x_admit {
        let rig = rig::<()>();
        let older = rig.held();
        let old = older.token();
        drop(older);
        let new = rig.held().into_token();
        let gate = Arc::new(FenceGate::new());
        let data = Arc::new(UnsafeCell::new(0));
        let (gate2, data2) = (gate.clone(), data.clone());
        let first = thread::spawn(move || {
            // SAFETY: nobody reads before the newer token is in the gate.
            data.with_mut(|data| unsafe { *data = 1 });
            gate.admit(new).unwrap();
        });
        let second = thread::spawn(move || {
            if gate2.admit(old).is_err() {
                // SAFETY: the newer token was admitted after the write.
                data2.with(|data| assert_eq!(unsafe { *data }, 1));
            }
        });
        first.join().unwrap();
        second.join().unwrap();
    }
}
