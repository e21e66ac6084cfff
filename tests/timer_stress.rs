//! Timers under real threads: every callback has exactly one fate, whatever races.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::clock::{Clock, ManualClock, MonotonicClock};
use tenure::timer::Timers;

/// How much longer than a few seconds to run: `TENURE_STRESS=<factor>`.
fn factor() -> u64 {
    std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1)
}

fn seed() -> u64 {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    seed
}

#[derive(Default)]
struct Fates {
    inserted: AtomicU64,
    refused: AtomicU64,
    ran: AtomicU64,
    cancelled: AtomicU64,
    dropped: AtomicU64,
}

struct OnDrop(Arc<Fates>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Inserts timers and does to them what a user might, until the timers are shut down.
fn user<C: Clock>(timers: &Timers<C>, fates: &Arc<Fates>, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut kept = Vec::new();
    loop {
        let (value, count) = (OnDrop(Arc::clone(fates)), Arc::clone(fates));
        let callback = move || {
            count.ran.fetch_add(1, Ordering::Relaxed);
            drop(value);
        };
        let delay = Duration::from_nanos(rng.u64(..) >> rng.u32(20..64));
        let Ok(handle) = timers.after(delay, callback) else {
            fates.refused.fetch_add(1, Ordering::Relaxed);
            break;
        };
        fates.inserted.fetch_add(1, Ordering::Relaxed);
        match rng.u32(0..8) {
            0 => drop(handle),
            1..=3 => {
                fates.cancelled.fetch_add(handle.cancel().into(), Ordering::Relaxed);
            }
            _ => kept.push(handle),
        }
        if kept.len() > 100 {
            let handle = kept.swap_remove(rng.usize(0..kept.len()));
            fates.cancelled.fetch_add(handle.cancel().into(), Ordering::Relaxed);
        }
    }
    // These race the driver's end.
    for handle in kept {
        fates.cancelled.fetch_add(handle.cancel().into(), Ordering::Relaxed);
    }
}

fn round<C: Clock>(clock: C, seed: u64, length: Duration, mover: impl Fn() + Sync) -> u64 {
    let timers = Timers::start(clock).unwrap();
    let fates = Arc::new(Fates::default());
    let real = MonotonicClock::new();
    let end = real.now().saturating_add(length);
    let shutdown = std::thread::scope(|scope| {
        for user in 0..3 {
            let (timers, fates) = (&timers, &fates);
            scope.spawn(move || self::user(timers, fates, seed ^ user));
        }
        while real.now() < end {
            mover();
            std::thread::yield_now();
        }
        timers.shutdown(Duration::MAX)
    });
    assert!(shutdown.is_complete());
    let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (inserted, ran, cancelled) = (of(&fates.inserted), of(&fates.ran), of(&fates.cancelled));
    assert_eq!(of(&fates.refused), 3);
    assert_eq!(of(&fates.dropped), inserted + 3);
    assert_eq!(Arc::strong_count(&fates), 1);
    let stats = timers.stats();
    assert_eq!((stats.fired, stats.cancelled), (ran, cancelled));
    assert_eq!(ran + cancelled + stats.discarded, inserted);
    println!("{inserted} inserted, {ran} ran, {cancelled} cancelled");
    ran.min(cancelled)
}

#[test]
fn every_callback_has_one_fate_on_a_real_clock() {
    let seed = seed();
    let mut both = 0;
    for n in 0..20 * factor() {
        both +=
            round(MonotonicClock::new(), seed.wrapping_add(n), Duration::from_millis(50), || ());
    }
    assert!(both > 0);
}

#[test]
fn every_callback_has_one_fate_on_a_clock_that_jumps() {
    let seed = seed();
    let mut both = 0;
    for n in 0..20 * factor() {
        let clock = ManualClock::new();
        let mover = clock.clone();
        both += round(clock, seed.wrapping_add(n), Duration::from_millis(50), || {
            mover.advance(Duration::from_nanos(1 << 18));
        });
    }
    assert!(both > 0);
}

/// One thread inserts what is due at once and waits for it, again and again: a lost wake hangs.
#[test]
fn no_wake_is_lost() {
    let timers = Timers::start(MonotonicClock::new()).unwrap();
    let _far = timers.after(Duration::from_secs(3600), || ()).unwrap();
    for _ in 0..20_000 * factor() {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        timers.after(Duration::ZERO, move || sender.send(()).unwrap()).unwrap();
        receiver.recv_timeout(Duration::from_secs(30)).expect("a wake was lost");
    }
}
