//! The manual clock, which other rooms' models use as their clock thread.

use loom::thread;
use std::time::Duration;
use tenure::clock::{Clock, ManualClock};

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
}
