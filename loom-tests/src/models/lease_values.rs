//! What becomes of values and tokens: each value is dropped once, whatever happened to its commit.

use loom::sync::Arc;
use loom::thread;
use tenure::lease::FenceGate;

use super::lease::{LATE, TTL, rig};

/// A value whose leak, or second drop, loom sees.
#[derive(Clone, Default)]
struct Kept {
    _count: Arc<()>,
}

models! { "lease";
    /// A commit that may come too late, and its successor's: both entries are filled, and each value is
    /// dropped once.
    commit_x_takeover_of_values [bound: 2] {
        let rig = rig::<Kept>();
        let mut late = rig.table.try_acquire(&0, TTL).unwrap();
        late.set(Kept::default());
        let committer = thread::spawn(move || drop(late.commit()));
        let taker = thread::spawn({
            let (clock, table) = (rig.clock.clone(), rig.table.clone());
            move || {
                clock.advance(LATE);
                if let Ok(mut lease) = table.try_acquire(&0, TTL) {
                    lease.set(Kept::default());
                    drop(lease.commit());
                }
            }
        });
        committer.join().unwrap();
        taker.join().unwrap();
        // Whoever comes next fills the other entry again, and the one after that the first.
        for _ in 0..2 {
            if let Ok(mut lease) = rig.table.try_acquire(&0, TTL) {
                lease.set(Kept::default());
                drop(lease.commit());
            }
        }
    }

    /// Who sees a token in the gate sees what was done before it was let through.
    admit_x_seen {
        let rig = rig::<()>();
        let token = rig.table.try_acquire(&0, TTL).unwrap().token();
        let gate = Arc::new(FenceGate::new());
        let data = Arc::new(loom::cell::UnsafeCell::new(0));
        let (gate2, data2) = (gate.clone(), data.clone());
        let writer = thread::spawn(move || {
            // SAFETY: nobody reads before the token is in the gate.
            data.with_mut(|data| unsafe { *data = 1 });
            gate.admit(token).unwrap();
        });
        let reader = thread::spawn(move || {
            if gate2.seen().is_some() {
                // SAFETY: the token was admitted after the write.
                data2.with(|data| assert_eq!(unsafe { *data }, 1));
            }
        });
        writer.join().unwrap();
        reader.join().unwrap();
    }

    /// Two checkpoints bring the word back to what it was, while a guard with the same token hands the
    /// lease off: what it hands on is what was published, or it is refused.
    checkpoints_x_hand_off_of_the_same_token [bound: 2] {
        let rig = rig::<u64>();
        let mut held = rig.table.try_acquire(&0, TTL).unwrap();
        let twin = rig.table.resume(&0, held.token()).unwrap();
        let owner = thread::spawn(move || {
            let mut published = 0;
            for n in 1..=2 {
                held.set(n);
                if held.checkpoint().is_err() {
                    break;
                }
                published = n;
            }
            held.into_token();
            published
        });
        let giver = thread::spawn(move || match twin.transfer("heir", TTL) {
            Ok(handoff) => {
                handoff.accept(TTL).unwrap().into_token();
            }
            Err(refused) => {
                refused.into_guard().into_token();
            }
        });
        let published = owner.join().unwrap();
        giver.join().unwrap();
        let peek = rig.table.peek(&0).unwrap();
        assert_eq!((peek.value, peek.version), (published, published));
    }

    /// An admitted token is remembered.
    admit_x_admit_is_remembered {
        let rig = rig::<()>();
        let next = || rig.table.try_acquire(&0, TTL).unwrap().token();
        let tokens = [next(), next()];
        let gate = Arc::new(FenceGate::new());
        let racers = tokens.map(|token| {
            let gate = gate.clone();
            thread::spawn(move || gate.admit(token).is_ok())
        });
        let [_, greater] = racers.map(|racer| racer.join().unwrap());
        assert!(greater);
        assert_eq!(gate.seen(), Some(tokens[1]));
        assert!(gate.admit(tokens[0]).is_err());
    }
}
