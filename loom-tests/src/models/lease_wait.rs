//! Leases, where somebody waits: no wake is lost, and a closed session publishes nothing.
//!
//! A waiter's path goes through the shard's lock several times, so these are explored with few
//! preemptions. With one more each, three of them passed too: 526,001, 34,310 and 22,108 executions.

use loom::thread;

use super::lease::{LATE, Rig, TTL, number, rig};
use tenure::lease::{Lost, Refusal, Revocation};

models! { "lease_wait";
    /// A waiter that comes while the holder lets go: granted by one of the two, never forgotten.
    release_x_waiter [bound: 2] {
        let Rig { table, .. } = rig::<()>();
        let held = table.try_acquire(&0, TTL).unwrap();
        let handle = table.handle(&0).unwrap();
        let holder = thread::spawn(move || drop(held));
        let waiter = thread::spawn(move || {
            let lease = handle.acquire(TTL).unwrap();
            assert!(lease.is_valid());
            number(lease.token())
        });
        holder.join().unwrap();
        assert_eq!(waiter.join().unwrap(), 2);
    }

    /// The same with a commit: the waiter begins with what was committed.
    commit_x_waiter [bound: 1] {
        let Rig { table, .. } = rig::<u64>();
        let mut held = table.try_acquire(&0, TTL).unwrap();
        held.set(1);
        let handle = table.handle(&0).unwrap();
        let holder = thread::spawn(move || held.commit().unwrap());
        let waiter = thread::spawn(move || *handle.acquire(TTL).unwrap());
        holder.join().unwrap();
        assert_eq!(waiter.join().unwrap(), 1);
    }

    /// A revoked key moves to a fresh slot under its waiter.
    revoke_x_waiter [bound: 2] {
        let Rig { table, .. } = rig::<u64>();
        let held = table.try_acquire(&0, TTL).unwrap();
        let (token, handle, revoker) = (held.token(), table.handle(&0).unwrap(), table.clone());
        let revoke = thread::spawn(move || revoker.revoke(&0, token, "test"));
        let waiter = thread::spawn(move || number(handle.acquire(TTL).unwrap().token()));
        assert_eq!(revoke.join().unwrap(), Revocation::Revoked);
        assert_eq!(waiter.join().unwrap(), 2);
        assert!(!held.is_valid());
    }

    /// Two come to wait while the holder lets go: each has its turn.
    release_x_two_waiters [bound: 1] {
        let Rig { table, .. } = rig::<()>();
        let held = table.try_acquire(&0, TTL).unwrap();
        let waiter = || {
            let handle = table.handle(&0).unwrap();
            thread::spawn(move || handle.acquire_async(TTL))
        };
        let (first, second) = (waiter(), waiter());
        let holder = thread::spawn(move || drop(held));
        holder.join().unwrap();
        let (mut first, mut second) = (first.join().unwrap(), second.join().unwrap());
        // One of them has it now, the other when that one lets go.
        let mut tokens = Vec::new();
        for _ in 0..2 {
            for waiting in [&mut first, &mut second] {
                if let Some(Ok(lease)) = waiting.try_get() {
                    tokens.push(number(lease.token()));
                }
            }
        }
        tokens.sort_unstable();
        assert_eq!(tokens, [2, 3]);
    }

    /// A waiter that gives up while it is granted the key: the key is free afterwards.
    release_x_waiter_that_gives_up [bound: 2] {
        let Rig { table, .. } = rig::<()>();
        let held = table.try_acquire(&0, TTL).unwrap();
        let waiting = table.acquire_async(&0, TTL);
        let holder = thread::spawn(move || drop(held));
        let waiter = thread::spawn(move || drop(waiting));
        holder.join().unwrap();
        waiter.join().unwrap();
        assert!(table.try_acquire(&0, TTL).is_ok());
    }

    /// A waiter comes while somebody else removes the key: granted, or told.
    remove_x_waiter [bound: 1] {
        let Rig { table, .. } = rig::<()>();
        let held = table.try_acquire(&0, TTL).unwrap();
        let (handle, remover) = (table.handle(&0).unwrap(), table.clone());
        let remove = thread::spawn(move || {
            drop(held);
            remover.remove(&0).is_ok()
        });
        let waiter = thread::spawn(move || handle.acquire(TTL).is_ok());
        let removed = remove.join().unwrap();
        let granted = waiter.join().unwrap();
        assert!(removed || granted);
    }

    /// Whoever watches a lease is told, however it ends.
    lost_x_release [bound: 3] {
        let Rig { table, .. } = rig::<()>();
        let held = table.try_acquire(&0, TTL).unwrap();
        let twin = table.resume(&0, held.token()).unwrap();
        let watcher = thread::spawn(move || {
            let lost = twin.lost();
            let _ = twin.into_token();
            lost.get().unwrap()
        });
        let holder = thread::spawn(move || drop(held));
        holder.join().unwrap();
        assert_eq!(watcher.join().unwrap(), Lost::Released);
    }

    /// Nothing of a session is published after `close` is back.
    session_close_x_commit [bound: 3] {
        let Rig { table, .. } = rig::<u64>();
        let session = table.session(TTL).unwrap();
        let mut lease = session.try_acquire(&table.handle(&0).unwrap()).unwrap();
        lease.set(1);
        let commit = thread::spawn(move || lease.commit().map_err(|refused| refused.why()));
        let reader = table.clone();
        let close = thread::spawn(move || {
            session.close();
            reader.peek(&0).unwrap().value
        });
        let (committed, seen) = (commit.join().unwrap(), close.join().unwrap());
        let value = table.peek(&0).unwrap().value;
        assert_eq!(seen, value, "the value changed after the session was closed");
        match committed {
            Ok(()) => assert_eq!(value, 1),
            Err(why) => {
                assert!(matches!(why, Refusal::Lost(Lost::SessionEnded)));
                assert_eq!(value, 0);
            }
        }
    }

    /// A renewed session loses no lease; one that is late loses them all.
    session_renew_x_takeover_x_clock [bound: 2] {
        let Rig { table, clock } = rig::<()>();
        let session = table.session(TTL).unwrap();
        let lease = session.try_acquire(&table.handle(&0).unwrap()).unwrap();
        let contender = table.handle(&0).unwrap();
        let late = thread::spawn(move || clock.advance(LATE));
        let renew = thread::spawn(move || (session.renew(TTL * 9).is_ok(), session));
        let take = thread::spawn(move || {
            contender.try_acquire_owned(TTL * 9).map(|lease| lease.into_token()).is_ok()
        });
        late.join().unwrap();
        let (renewed, session) = renew.join().unwrap();
        let taken = take.join().unwrap();
        assert!(!(renewed && taken));
        assert_eq!(renewed, session.is_open());
        assert_eq!(renewed, lease.is_valid());
    }

    /// Two sessions want one key: the lease is in the session that got it, and the other's end is
    /// nothing to it.
    session_x_session_for_one_key [bound: 2] {
        let Rig { table, .. } = rig::<()>();
        let contend = || {
            let (session, handle) = (table.session(TTL).unwrap(), table.handle(&0).unwrap());
            thread::spawn(move || {
                let lease = session.try_acquire(&handle).ok();
                (session, lease)
            })
        };
        let (first, second) = (contend(), contend());
        let ends = [first.join().unwrap(), second.join().unwrap()];
        let mut won = None;
        for (session, lease) in ends {
            match lease {
                Some(lease) => assert!(won.replace((session, lease)).is_none()),
                None => session.close(),
            }
        }
        let (session, lease) = won.expect("one of them");
        assert!(lease.is_valid());
        session.close();
        assert!(!lease.is_valid());
    }

    /// A lease taken while its session closes does not outlive it.
    session_close_x_acquire [bound: 3] {
        let Rig { table, clock } = rig::<()>();
        let session = loom::sync::Arc::new(table.session(TTL).unwrap());
        let handle = table.handle(&0).unwrap();
        let late = thread::spawn(move || clock.advance(LATE));
        let (session, other) = (session.clone(), session);
        let acquire = thread::spawn(move || session.try_acquire(&handle).ok());
        let look = thread::spawn(move || other.is_open());
        late.join().unwrap();
        let lease = acquire.join().unwrap();
        let _ = look.join().unwrap();
        assert!(lease.is_none_or(|lease| !lease.is_valid()));
        assert!(table.try_acquire(&0, TTL).is_ok());
    }
}
