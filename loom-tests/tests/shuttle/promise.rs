//! Promises over several threads: chains, cancellation and waits that run out.

use shuttle::rand::Rng as _;
use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;
use std::time::Duration;

use tenure::promise::{Eventual, EventualError, Promise, promise};

use crate::schedules::try_schedules;

/// Counts how many of itself are alive.
struct Counted(Arc<AtomicU32>);

impl Counted {
    fn new(alive: &Arc<AtomicU32>) -> Self {
        alive.fetch_add(1, Ordering::SeqCst);
        Self(alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

type Pair = (Promise<Counted, ()>, Eventual<Counted, ()>);

fn write(promise: Promise<Counted, ()>, alive: &Arc<AtomicU32>) {
    match shuttle::rand::thread_rng().gen_range(0..4) {
        0 => drop(promise),
        1 => drop(promise.set_error(())),
        _ => drop(promise.set(Counted::new(alive))),
    }
}

fn read(mut eventual: Eventual<Counted, ()>, called: &Arc<AtomicU32>) {
    match shuttle::rand::thread_rng().gen_range(0..6) {
        0 => drop(eventual.get()),
        1 => {
            let first = eventual.get_timeout(Duration::from_micros(5));
            if matches!(first, Err(EventualError::TimedOut)) {
                drop(eventual.get());
            }
        }
        2 => {
            eventual.cancel();
            drop(eventual.get());
        }
        3 => drop(eventual),
        4 => drop(eventual.map(|value| value).get()),
        _ => {
            called.fetch_add(1, Ordering::SeqCst);
            let called = called.clone();
            eventual.on_complete(move |_| {
                called.fetch_sub(1, Ordering::SeqCst);
            });
        }
    }
}

/// Four pairs, whose ends are on eight threads; each ends in its own way.
fn four_pairs() {
    let alive = Arc::new(AtomicU32::new(0));
    let called = Arc::new(AtomicU32::new(0));
    let mut threads = Vec::new();
    for _ in 0..4 {
        let (promise, eventual): Pair = promise();
        threads.push(thread::spawn({
            let alive = alive.clone();
            move || write(promise, &alive)
        }));
        threads.push(thread::spawn({
            let called = called.clone();
            move || read(eventual, &called)
        }));
    }
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(alive.load(Ordering::SeqCst), 0, "a value was lost");
    assert_eq!(called.load(Ordering::SeqCst), 0, "a callback was not called once");
}

/// A chain of stages that is built on one thread while another sets its beginning and a third
/// cancels its end.
fn chain() {
    let alive = Arc::new(AtomicU32::new(0));
    let (promise, eventual): Pair = promise();
    let setter = thread::spawn({
        let alive = alive.clone();
        move || write(promise, &alive)
    });
    let builder = thread::spawn(move || {
        let mut chain = eventual;
        for _ in 0..5 {
            chain = chain.map(|value| value);
        }
        if shuttle::rand::thread_rng().gen_bool(0.5) {
            chain.cancel();
        }
        drop(chain.get());
    });
    setter.join().unwrap();
    builder.join().unwrap();
    assert_eq!(alive.load(Ordering::SeqCst), 0, "a value was lost");
}

#[test]
fn four_pairs_end_in_all_ways() {
    try_schedules("promise::four_pairs", 10_000, four_pairs);
}

#[test]
fn a_chain_is_built_set_and_cancelled() {
    try_schedules("promise::chain", 10_000, chain);
}
