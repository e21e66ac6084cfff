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
