//! Real threads, random scripts: every value is delivered, given back or dropped, once.
//!
//! `TENURE_STRESS=<factor>` makes it longer.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use tenure::promise::{Eventual, Promise, Slot, promise, trim_pool};

static ALIVE: AtomicIsize = AtomicIsize::new(0);

struct Value(u64);

impl Value {
    fn new(n: u64) -> Self {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        Self(n)
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
        // Seen by whoever reads it after it is gone.
        self.0 = u64::MAX;
    }
}

#[derive(Default)]
struct Count(AtomicUsize);
impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn write(random: &mut fastrand::Rng, n: u64, mut p: Promise<Value, u64>) {
    if random.u8(..) < 50 {
        p.on_cancel(|| ());
    }
    for _ in 0..random.u32(..30) {
        std::hint::spin_loop();
    }
    match random.u8(..5) {
        0 => drop(p),
        1 => drop(p.set_error(n)),
        2 if p.is_cancelled() => p.set_cancelled(),
        _ => drop(p.set(Value::new(n))),
    }
}

fn read(random: &mut fastrand::Rng, n: u64, mut e: Eventual<Value, u64>) {
    let check = move |outcome: tenure::promise::Outcome<Value, u64>| match outcome {
        Ok(value) => assert_eq!(value.0, n),
        Err(error) => assert!(error.failed().is_none_or(|m| m == n)),
    };
    let waker = Waker::from(Arc::new(Count::default()));
    for _ in 0..random.u32(..3) {
        let waker = if random.bool() { &waker } else { &Waker::from(Arc::new(Count::default())) };
        if let std::task::Poll::Ready(outcome) =
            Pin::new(&mut e).poll(&mut Context::from_waker(waker))
        {
            return check(outcome);
        }
    }
    for _ in 0..random.u32(..30) {
        std::hint::spin_loop();
    }
    match random.u8(..10) {
        0 => drop(e),
        1 => e.detach(),
        2 => {
            e.cancel();
            check(e.get());
        }
        3 => e.on_complete(check),
        4 => check(e.map(|v| v).map(|v| v).get()),
        5 => drop(e.map(|v| v)),
        6 => {
            if let Some(outcome) = e.try_get() {
                check(outcome);
            }
        }
        7 => {
            let outcome = e.get_timeout(Duration::from_nanos(random.u64(..2000)));
            if !matches!(outcome, Err(tenure::promise::EventualError::TimedOut)) {
                check(outcome);
            }
        }
        8 => {
            let shared = e.share();
            shared.on_complete(move |outcome| assert!(outcome.map_or(true, |v| v.0 == n)));
            drop(shared.clone());
            let _ = shared.get();
        }
        _ => check(e.get()),
    }
}

#[test]
fn every_value_is_delivered_given_back_or_dropped_once() {
    let factor = std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1u64);
    let rounds = if cfg!(miri) { 50 } else { 60_000 * factor };
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let pairs: Vec<_> = (0..2)
        .map(|lane| {
            let (send, receive) = std::sync::mpsc::sync_channel::<(u64, Promise<Value, u64>)>(64);
            let writer = thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed ^ lane);
                for (n, p) in receive {
                    write(&mut random, n, p);
                }
            });
            let reader = thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed ^ lane ^ 0xffff);
                let mut slot = Slot::new();
                for n in 0..rounds {
                    let (p, e) = if random.u8(..) < 60 { slot.pair() } else { promise() };
                    send.send((n, p)).unwrap();
                    read(&mut random, n, e);
                    if random.u32(..) < u32::MAX / 5000 {
                        trim_pool();
                    }
                }
            });
            [writer, reader]
        })
        .collect();
    for thread in pairs.into_iter().flatten() {
        thread.join().unwrap();
    }
    assert_eq!(ALIVE.load(Ordering::Relaxed), 0);
}
