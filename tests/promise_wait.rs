//! The learned wait: what takes long burns next to nothing.
//!
//! That what recurs quickly is found without sleeping, and how seldom a wait looks in vain, is counted
//! in `src/promise/patience.rs`, where a test can come in at each pause; how long it takes is the
//! `hand-off` rows of `benches/promise.rs`.

#![cfg(target_os = "linux")]

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tenure::promise::{Promise, promise};

fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid clock and a place for the answer.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) }, 0);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn long_waits_burn_next_to_nothing() {
    let (send, receive) = mpsc::channel::<Promise<u32, ()>>();
    let writer = thread::spawn(move || {
        for p in receive {
            thread::sleep(Duration::from_millis(5));
            p.set(1).unwrap();
        }
    });
    let wait = || {
        let (p, e) = promise();
        send.send(p).unwrap();
        e.get().unwrap();
    };
    // It learns.
    (0..10).for_each(|_| wait());
    let (wall, burnt) = (Instant::now(), thread_cpu());
    (0..100).for_each(|_| wait());
    let (wall, burnt) = (wall.elapsed(), thread_cpu() - burnt);
    drop(send);
    writer.join().unwrap();
    println!("100 waits of 5 ms: {burnt:?} of processor in {wall:?}");
    // A hundredth of it is usual. Looking all the time would be all of it, looking for as long as a
    // look may last (60 us) before each sleep an eightieth more.
    assert!(burnt < wall / 5, "{burnt:?} of {wall:?}");
}
