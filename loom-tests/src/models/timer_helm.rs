//! The helm: who has the driver's state when a call of foreign code does or does not come back, and
//! whether anybody watches then.
//!
//! The state is a plain cell: two holders at a time are an access that loom refuses. A sentinel that
//! nobody calls shows as a deadlock.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use tenure::timer::model::TestHelm;

const NEVER: u64 = u64::MAX;

struct Boat {
    helm: TestHelm,
    /// The driver's state: whoever has the token adds one.
    state: UnsafeCell<u32>,
    /// What the foreign code of the first driver leaves behind.
    foreign: UnsafeCell<u32>,
}

// SAFETY: the cells are reached by the protocol's rules, which is what loom checks.
unsafe impl Sync for Boat {}
// SAFETY: as above.
unsafe impl Send for Boat {}

impl Boat {
    fn new(helm: TestHelm) -> Arc<Self> {
        Arc::new(Self { helm, state: UnsafeCell::new(0), foreign: UnsafeCell::new(0) })
    }

    /// With the token only.
    fn drive(&self) {
        // SAFETY: the caller has the token.
        self.state.with_mut(|state| unsafe { *state += 1 });
    }

    fn state(&self) -> u32 {
        // SAFETY: the caller has the token, or is alone.
        self.state.with(|state| unsafe { *state })
    }
}

fn spawn<T: 'static>(
    boat: &Arc<Boat>,
    f: impl FnOnce(&Boat) -> T + 'static,
) -> thread::JoinHandle<T> {
    let boat = Arc::clone(boat);
    thread::spawn(move || f(&boat))
}

crate::models! { "timer";
    /// The driver comes back while the sentinel takes over: one of them drives on, with all that was
    /// done before.
    take_back_x_take_over {
        let boat = Boat::new(TestHelm::new());
        let driver = spawn(&boat, |boat| {
            boat.drive();
            let out = boat.helm.put_down();
            let back = boat.helm.take_back(out);
            if back {
                boat.drive();
                let _ = boat.helm.put_down();
            }
            back
        });
        let sentinel = spawn(&boat, |boat| {
            let seen = boat.helm.look();
            let taken = seen.is_out() && boat.helm.take_over(seen) == Ok(());
            if taken {
                boat.drive();
            }
            taken
        });
        let (back, taken) = (driver.join().unwrap(), sentinel.join().unwrap());
        assert_eq!(boat.state(), 1 + u32::from(back) + u32::from(taken));
    }

    /// The token lies there for a second call when the sentinel takes what it saw in the first: that
    /// was in time, so it must fail. (Here the second call is told by the state.)
    a_second_call_x_take_over {
        let boat = Boat::new(TestHelm::new());
        let driver = spawn(&boat, |boat| {
            for _ in 0..2 {
                boat.drive();
                let out = boat.helm.put_down();
                if !boat.helm.take_back(out) {
                    return false;
                }
            }
            true
        });
        let sentinel = spawn(&boat, |boat| {
            let seen = boat.helm.look();
            let again = boat.helm.look();
            if !seen.is_out() || boat.helm.take_over(seen).is_err() {
                return None;
            }
            boat.drive();
            // What was taken is what both looks saw, if they saw the same.
            Some((seen == again, boat.state()))
        });
        let (kept, taken) = (driver.join().unwrap(), sentinel.join().unwrap());
        assert_eq!(kept, taken.is_none());
        if let Some((same, _)) = taken {
            assert!(same, "a token was taken that was not there any more");
        }
    }

    /// Who took over is held up in turn, and who comes back watches and takes it from that one.
    there_and_back_again [bound: 3] {
        let boat = Boat::new(TestHelm::new());
        let driver = spawn(&boat, |boat| {
            boat.drive();
            let out = boat.helm.put_down();
            if boat.helm.take_back(out) {
                boat.drive();
                return 1;
            }
            if boat.helm.leave() || !boat.helm.fill() {
                return 0;
            }
            let seen = boat.helm.look();
            if seen.is_out() && boat.helm.take_over(seen) == Ok(()) {
                boat.drive();
                return 1;
            }
            0
        });
        let sentinel = spawn(&boat, |boat| {
            let seen = boat.helm.look();
            if !seen.is_out() || boat.helm.take_over(seen).is_err() {
                return 0;
            }
            boat.drive();
            let out = boat.helm.put_down();
            if boat.helm.take_back(out) {
                boat.drive();
                return 2;
            }
            1
        });
        let drives = driver.join().unwrap() + sentinel.join().unwrap();
        assert_eq!(boat.state(), 1 + drives);
    }

    /// The sentinel goes to rest while the driver puts the token down: it is called, or does not rest.
    rest_x_put_down {
        let boat = Boat::new(TestHelm::new());
        let driver = spawn(&boat, |boat| {
            let _ = boat.helm.put_down();
            assert!(!boat.helm.call(0));
        });
        let sentinel = spawn(&boat, |boat| {
            let seen = boat.helm.look();
            if !seen.is_out() && boat.helm.rest(seen, NEVER) {
                boat.helm.sleep();
            }
        });
        driver.join().unwrap();
        sentinel.join().unwrap();
    }

    /// A rest that is over by itself needs no call; the next one, which lasts, does.
    rest_again_x_put_down {
        let boat = Boat::new(TestHelm::new());
        let driver = spawn(&boat, |boat| {
            let _ = boat.helm.put_down();
            assert!(!boat.helm.call(5));
        });
        let sentinel = spawn(&boat, |boat| {
            let seen = boat.helm.look();
            if seen.is_out() || !boat.helm.rest(seen, 1) {
                return;
            }
            boat.helm.wake();
            let seen = boat.helm.look();
            if !seen.is_out() && boat.helm.rest(seen, 10) {
                boat.helm.sleep();
            }
        });
        driver.join().unwrap();
        sentinel.join().unwrap();
    }

    /// Three rests and calls meet: a call that ends no rest does no harm.
    rest_x_calls [bound: 3] {
        let boat = Boat::new(TestHelm::new());
        let driver = spawn(&boat, |boat| {
            for _ in 0..2 {
                let out = boat.helm.put_down();
                assert!(!boat.helm.call(0));
                if !boat.helm.take_back(out) {
                    return;
                }
            }
            boat.helm.end();
        });
        let sentinel = spawn(&boat, |boat| {
            while !boat.helm.is_over() {
                let seen = boat.helm.look();
                if !seen.is_out() && boat.helm.rest(seen, NEVER) {
                    boat.helm.sleep();
                }
                thread::yield_now();
            }
        });
        driver.join().unwrap();
        sentinel.join().unwrap();
    }

    /// The end comes while the sentinel rests, or is about to.
    rest_x_end {
        let boat = Boat::new(TestHelm::new());
        let driver = spawn(&boat, |boat| boat.helm.end());
        let sentinel = spawn(&boat, |boat| {
            while !boat.helm.is_over() {
                let seen = boat.helm.look();
                if boat.helm.rest(seen, NEVER) {
                    boat.helm.sleep();
                }
                thread::yield_now();
            }
        });
        driver.join().unwrap();
        sentinel.join().unwrap();
    }

    /// As many are held up as may be. One comes back as another one takes over: so somebody watches,
    /// the one that is back or one that is started.
    leave_x_vacant {
        let boat = Boat::new(TestHelm::full());
        let driver = spawn(&boat, |boat| {
            let out = boat.helm.put_down();
            if boat.helm.take_back(out) {
                return None;
            }
            assert!(!boat.helm.leave());
            Some(boat.helm.fill())
        });
        let sentinel = spawn(&boat, |boat| {
            let seen = boat.helm.look();
            if !seen.is_out() || boat.helm.take_over(seen).is_err() {
                return false;
            }
            let _ = boat.helm.put_down();
            boat.helm.call(0)
        });
        let (filled, started) = (driver.join().unwrap(), sentinel.join().unwrap());
        if let Some(filled) = filled {
            assert!(filled != started, "somebody watches, and only one");
        }
    }

    /// The last one to go sees what all others did in foreign code.
    leave_x_end {
        let boat = Boat::new(TestHelm::new());
        let all_back = |boat: &Boat| {
            if boat.helm.leave() {
                // SAFETY: all others are through.
                let foreign = boat.foreign.with(|foreign| unsafe { *foreign });
                assert_eq!(foreign, 1);
            }
        };
        let driver = spawn(&boat, move |boat| {
            let out = boat.helm.put_down();
            // SAFETY: the foreign code's own; nobody looks before all are back.
            boat.foreign.with_mut(|foreign| unsafe { *foreign += 1 });
            if boat.helm.take_back(out) {
                boat.helm.end();
            }
            all_back(boat);
        });
        let sentinel = spawn(&boat, move |boat| {
            let seen = boat.helm.look();
            if !seen.is_out() {
                return;
            }
            match boat.helm.take_over(seen) {
                Ok(()) => {
                    boat.helm.end();
                    all_back(boat);
                }
                Err(false) => {}
                Err(true) => {
                    // SAFETY: as above.
                    let foreign = boat.foreign.with(|foreign| unsafe { *foreign });
                    assert_eq!(foreign, 1);
                }
            }
        });
        driver.join().unwrap();
        sentinel.join().unwrap();
    }
}
