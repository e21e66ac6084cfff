//! The manual clock, which other rooms' models use as their clock thread.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::time::Duration;
use tenure::clock::{Clock, ManualClock, Timestamp};

/// What a mover did before it moved the clock.
struct Past(UnsafeCell<u32>);
// SAFETY: only for models: loom reports an access that races.
unsafe impl Sync for Past {}
// SAFETY: as above.
unsafe impl Send for Past {}

/// Two move the clock, each by its own way, after one of them wrote; who sees both moves sees the
/// write.
fn moves_publish(by_writer: fn(&ManualClock), by_other: fn(&ManualClock)) {
    let clock = ManualClock::new();
    let past = Arc::new(Past(UnsafeCell::new(0)));
    let writer = thread::spawn({
        let (clock, past) = (clock.clone(), past.clone());
        move || {
            // SAFETY: loom checks the access.
            past.0.with_mut(|n| unsafe { *n = 1 });
            by_writer(&clock);
        }
    });
    let other = thread::spawn({
        let clock = clock.clone();
        move || by_other(&clock)
    });
    let reader = thread::spawn({
        let clock = clock.clone();
        move || {
            if clock.now().as_nanos() >= 3 {
                // SAFETY: loom checks the access.
                past.0.with(|n| assert_eq!(unsafe { *n }, 1));
            }
        }
    });
    writer.join().unwrap();
    other.join().unwrap();
    reader.join().unwrap();
    assert_eq!(clock.now().as_nanos(), 3);
}

models! { "clock";
    /// Two movers and a reader: no movement is lost, and time never goes back.
    advance_x_advance_x_now {
        let clock = ManualClock::new();
        let movers: Vec<_> = (0..2)
            .map(|_| {
                let clock = clock.clone();
                thread::spawn(move || clock.advance(Duration::from_nanos(1)))
            })
            .collect();
        let first = clock.now();
        assert!(clock.now() >= first);
        for mover in movers {
            mover.join().unwrap();
        }
        assert_eq!(clock.now().as_nanos(), 2);
    }
    /// What a mover did before `advance` is seen with the time, though another moved the clock since.
    advance_x_advance_x_reader {
        moves_publish(
            |clock| clock.advance(Duration::from_nanos(2)),
            |clock| clock.advance(Duration::from_nanos(1)),
        );
    }
    /// The same of `advance_to`, which only ever moves it on.
    advance_to_x_advance_to_x_reader {
        moves_publish(
            |clock| clock.advance_to(Timestamp::from_nanos(3)),
            |clock| clock.advance_to(Timestamp::from_nanos(1)),
        );
    }
}
