//! Shared eventuals: many readers of one outcome, who come, wait, leave and are told, while it is set,
//! dropped, or given up by the last of them.

use shuttle::rand::Rng as _;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;
use std::future::{Future as _, IntoFuture as _};
use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tenure::promise::{OutcomeRef, Shared, promise};

use crate::schedules::try_schedules;

/// Counts how many of itself are alive.
struct Counted(Arc<AtomicU32>);

impl Counted {
    fn new(alive: &Arc<AtomicU32>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(alive.clone())
    }

    fn see(&self) {
        assert_eq!(self.0.load(Ordering::SeqCst), 1, "the one value is alive");
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn see(outcome: OutcomeRef<'_, Counted, ()>) {
    if let Ok(value) = outcome {
        value.see();
    }
}

/// A reader does one or two things, at random. `called` counts callbacks that are owed.
fn read(shared: Shared<Counted, ()>, called: &Arc<AtomicU32>, told: bool) {
    for _ in 0..shuttle::rand::thread_rng().gen_range(1..3) {
        match shuttle::rand::thread_rng().gen_range(0..6) {
            0 => see(shared.get()),
            1 => {
                if let Some(outcome) = shared.get_timeout(Duration::from_micros(5)) {
                    see(outcome);
                }
            }
            2 => {
                // Polled once, then dropped: its waker is taken back.
                let mut future = (&shared).into_future();
                let _ = Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()));
            }
            3 if told => {
                called.fetch_add(1, Ordering::SeqCst);
                let called = called.clone();
                shared.on_complete(move |outcome| {
                    see(outcome);
                    called.fetch_sub(1, Ordering::SeqCst);
                });
            }
            4 => drop(shared.clone()),
            _ => {
                if let Some(outcome) = shared.peek() {
                    see(outcome);
                }
            }
        }
    }
}

/// Seven readers and a writer.
fn seven_readers() {
    let alive = Arc::new(AtomicU32::new(0));
    let called = Arc::new(AtomicU32::new(0));
    let (p, e) = promise::<Counted, ()>();
    let shared = e.share();
    let mut threads: Vec<_> = (0..7)
        .map(|_| {
            let (shared, called) = (shared.clone(), called.clone());
            thread::spawn(move || read(shared, &called, true))
        })
        .collect();
    drop(shared);
    let writes = alive.clone();
    threads.push(thread::spawn(move || match shuttle::rand::thread_rng().gen_range(0..4) {
        0 => drop(p),
        1 => drop(p.set_error(())),
        _ => drop(p.set(Counted::new(&writes))),
    }));
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(alive.load(Ordering::SeqCst), 0, "the value was lost");
    assert_eq!(called.load(Ordering::SeqCst), 0, "a callback was not called once");
}

/// Nobody writes until the last of seven readers has left: it says so, once.
fn all_leave() {
    let (mut p, e) = promise::<Counted, ()>();
    let asked = Arc::new(AtomicU32::new(0));
    let hook = asked.clone();
    p.on_cancel(move || {
        hook.fetch_add(1, Ordering::SeqCst);
    });
    let shared = e.share();
    let threads: Vec<_> = (0..7)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn(move || {
                let _ = shared.get_timeout(Duration::from_micros(3));
                drop(shared.clone());
            })
        })
        .collect();
    drop(shared);
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(p.is_cancelled());
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn seven_readers_and_a_writer() {
    try_schedules("promise::shared_seven_readers", 5_000, seven_readers);
}

#[test]
fn the_last_of_seven_readers_gives_up() {
    try_schedules("promise::shared_all_leave", 3_000, all_leave);
}
