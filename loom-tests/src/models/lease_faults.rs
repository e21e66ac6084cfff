//! Races in which reviews found a fault once, or where one would be easy to make.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::lease::{LATE, Rig, TTL, number, rig};
use tenure::lease::{FenceGate, Lost};

/// Written by one thread, read by another after it; loom checks the order.
#[derive(Default)]
struct Data(UnsafeCell<u32>);

// SAFETY: loom checks the order of its accesses.
unsafe impl Sync for Data {}
// SAFETY: as above.
unsafe impl Send for Data {}

impl Data {
    fn write(&self) {
        // SAFETY: loom checks that nobody else is here.
        self.0.with_mut(|data| unsafe { *data = 7 });
    }

    fn read(&self) {
        // SAFETY: loom checks that the write came before.
        assert_eq!(self.0.with(|data| unsafe { *data }), 7);
    }
}

models! { "lease_faults";
    /// The contender for a late key copies its value into a fresh slot while the owner, who does not
    /// know yet, publishes into both entries in turn: the copy is of one of them, whole.
    checkpoints_x_takeover_x_clock [bound: 2] {
        let Rig { table, clock } = rig::<u64>();
        let mut held = table.try_acquire(&0, TTL).unwrap();
        let contender = table.handle(&0).unwrap();
        let late = thread::spawn(move || clock.advance(LATE));
        let owner = thread::spawn(move || {
            let mut published = 0;
            for n in 1..=3 {
                held.set(n);
                if held.checkpoint().is_err() {
                    break;
                }
                published = n;
            }
            published
        });
        let taken = thread::spawn(move || {
            contender.try_acquire(TTL * 9).ok().map(|lease| (*lease, lease.version()))
        });
        late.join().unwrap();
        let published = owner.join().unwrap();
        if let Some((value, version)) = taken.join().unwrap() {
            assert_eq!((value, version), (published, published));
        }
        assert_eq!(table.peek(&0).unwrap().value, published);
    }

    /// The same where a late key is copied only to be looked at.
    checkpoints_x_peek_x_takeover [bound: 2] {
        let Rig { table, clock } = rig::<u64>();
        let mut held = table.try_acquire(&0, TTL).unwrap();
        held.set(1);
        held.checkpoint().unwrap();
        clock.advance(LATE);
        let (contender, reader) = (table.handle(&0).unwrap(), table.clone());
        let owner = thread::spawn(move || {
            held.set(2);
            held.checkpoint().is_ok()
        });
        let next = thread::spawn(move || {
            let mut lease = contender.try_acquire(TTL * 9).unwrap();
            *lease += 10;
            lease.commit().unwrap();
        });
        let reader = thread::spawn(move || {
            let peek = reader.peek(&0).unwrap();
            assert!(matches!((peek.value, peek.version), (1, 1) | (11, 2)), "{peek:?}");
        });
        assert!(!owner.join().unwrap());
        next.join().unwrap();
        reader.join().unwrap();
    }

    /// Two sessions want one key: one has it, under its own deadline.
    session_x_session {
        let Rig { table, .. } = rig::<()>();
        let take = |table: &Arc<super::lease::Table<()>>| {
            let (session, handle) = (table.session(TTL).unwrap(), table.handle(&0).unwrap());
            thread::spawn(move || {
                let lease = session.try_acquire(&handle).ok();
                (session, lease)
            })
        };
        let (a, b) = (take(&table), take(&table));
        let (a, b) = (a.join().unwrap(), b.join().unwrap());
        let ((winner, lease), (loser, none)) = if a.1.is_some() { (a, b) } else { (b, a) };
        let lease = lease.unwrap();
        assert!(none.is_none());
        loser.close();
        assert!(lease.is_valid(), "the other's end is none of its business");
        winner.close();
        assert!(!lease.is_valid());
        assert!(table.try_acquire(&0, TTL).is_ok());
    }

    /// A session comes for a key whose lease, of another session, is late.
    session_x_late_session_x_renew [bound: 3] {
        let Rig { table, clock } = rig::<()>();
        let first = table.session(TTL).unwrap();
        let old = first.try_acquire(&table.handle(&0).unwrap()).unwrap();
        clock.advance(LATE);
        let second = table.session(TTL).unwrap();
        let handle = table.handle(&0).unwrap();
        let renew = thread::spawn(move || (first.renew(TTL).is_ok(), first));
        let take = thread::spawn(move || (second.try_acquire(&handle).unwrap(), second));
        let (renewed, first) = renew.join().unwrap();
        let (lease, second) = take.join().unwrap();
        assert!(!renewed && !old.is_valid());
        drop(first);
        assert!(lease.is_valid());
        drop(second);
    }

    /// What an owner did before it let go is there for whoever is told of that.
    release_x_lost [bound: 3] {
        let Rig { table, .. } = rig::<()>();
        let held = table.try_acquire(&0, TTL).unwrap();
        let twin = table.resume(&0, held.token()).unwrap();
        let data = Arc::new(Data::default());
        let mine = Arc::clone(&data);
        let watcher = thread::spawn(move || {
            let mut lost = twin.lost();
            if let Some(lost) = lost.try_get() {
                assert_eq!(lost.unwrap(), Lost::Released);
                data.read();
            }
            let _ = twin.into_token();
        });
        let holder = thread::spawn(move || {
            mine.write();
            drop(held);
        });
        holder.join().unwrap();
        watcher.join().unwrap();
    }

    /// Who sees a token in the gate sees what was done before it was let through.
    admit_x_seen {
        let Rig { table, .. } = rig::<()>();
        let token = table.try_acquire(&0, TTL).unwrap().into_token();
        let shared = Arc::new((FenceGate::new(), Data::default()));
        let theirs = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            theirs.1.write();
            theirs.0.admit(token).unwrap();
        });
        let reader = thread::spawn(move || {
            if let Some(seen) = shared.0.seen() {
                assert_eq!(number(seen), number(token));
                shared.1.read();
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
    }
}
