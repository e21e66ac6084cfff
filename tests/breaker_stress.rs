//! Real threads, real time: breakers that open and close all the while, limits that are changed while
//! they are in use. `TENURE_STRESS=n` runs n times as long.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use tenure::breaker::*;
use tenure::limit::*;

/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(60);

fn time(base: Duration) -> Duration {
    let factor = std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1.0);
    base.mul_f64(factor)
}

struct Told(AtomicU64);

impl Listener for Told {
    fn permit_freed(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_breaker_that_changes_all_the_while_never_sticks_and_never_lets_too_many_through() {
    const PROBES: u32 = 3;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let events = Arc::new(AtomicU64::new(0));
    let heard = Arc::clone(&events);
    let breaker = CircuitBreaker::builder()
        .window(Window::Count(20))
        .min_calls(5)
        .failure_rate(0.5)
        .probes(PROBES)
        .open_for(Duration::from_micros(50))
        .probe_timeout(LONG)
        .on_event(move |_| {
            heard.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    let told = Arc::new(Told(AtomicU64::new(0)));
    let weak: Weak<dyn Listener> = Arc::downgrade(&told) as _;
    breaker.watch(weak);
    let stop = AtomicBool::new(false);
    let (probes, made) = (AtomicU32::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (breaker, stop, probes, made) = (&breaker, &stop, &probes, &made);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + thread);
                while !stop.load(Ordering::Relaxed) {
                    let Ok(permit) = breaker.try_acquire() else {
                        thread::yield_now();
                        continue;
                    };
                    made.fetch_add(1, Ordering::Relaxed);
                    let is_probe = permit.is_probe();
                    if is_probe {
                        probes.fetch_add(1, Ordering::Relaxed);
                        let snapshot = breaker.snapshot();
                        assert!(snapshot.probes_in_flight + snapshot.probes_passed <= PROBES);
                    }
                    match rng.u32(..10) {
                        0..4 => permit.success(),
                        4..8 => permit.failure(),
                        8 => permit.ignore(),
                        _ => drop(permit),
                    }
                }
            });
        }
        scope.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(seed ^ 1);
            let begin = Instant::now();
            while begin.elapsed() < time(Duration::from_millis(1500)) {
                match rng.u32(..8) {
                    0 => breaker.reset(),
                    1 => {
                        breaker.force_open();
                        breaker.reset();
                    }
                    2 => {
                        breaker.disable();
                        breaker.reset();
                    }
                    3 => breaker.reconfigure(breaker.settings()),
                    _ => {
                        let _ = breaker.snapshot();
                    }
                }
                thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    // Nobody is inside: none is counted as inside, and it closes when calls go well.
    assert_eq!(breaker.snapshot().probes_in_flight, 0);
    let begin = Instant::now();
    while breaker.state() != State::Closed {
        let _ = breaker.call(|| Ok::<(), ()>(()));
        assert!(begin.elapsed() < LONG, "stuck: {breaker:?}");
    }
    let totals = breaker.snapshot().totals;
    println!(
        "{} calls, {} probes, {} changes, {totals:?}",
        made.load(Ordering::Relaxed),
        probes.load(Ordering::Relaxed),
        events.load(Ordering::Relaxed)
    );
    assert!(totals.succeeded + totals.failed + totals.late <= made.load(Ordering::Relaxed) + 1000);
}

/// Fields of a struct that is only right under the limit.
struct Inside {
    now: AtomicU32,
    most: AtomicU32,
}

#[test]
fn a_limit_that_is_changed_all_the_while_serves_everybody() {
    const HIGHEST: u32 = 3;
    let limit = ConcurrencyLimit::new(1);
    let inside = Inside { now: AtomicU32::new(0), most: AtomicU32::new(0) };
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    let until = Instant::now() + time(Duration::from_millis(1000));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u64)
            .map(|thread| {
                let (limit, inside, served) = (&limit, &inside, &served);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(thread);
                    while Instant::now() < until {
                        let permit = match rng.u32(..5) {
                            0 => limit.try_acquire(),
                            1 => limit.acquire_timeout(Duration::from_micros(20)),
                            2 => {
                                drop(limit.acquire_async());
                                continue;
                            }
                            _ => limit.acquire(),
                        };
                        let Ok(permit) = permit else { continue };
                        let now = inside.now.fetch_add(1, Ordering::Relaxed) + 1;
                        inside.most.fetch_max(now, Ordering::Relaxed);
                        thread::yield_now();
                        inside.now.fetch_sub(1, Ordering::Relaxed);
                        served.fetch_add(1, Ordering::Relaxed);
                        drop(permit);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(9);
            while !stop.load(Ordering::Relaxed) {
                limit.set_limit(rng.u32(..=HIGHEST));
                thread::yield_now();
            }
            limit.set_limit(1);
        });
        for worker in workers {
            // While it is 0 now and then, nobody is stuck for long.
            worker.join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(inside.most.load(Ordering::Relaxed) <= HIGHEST);
    assert!(served.load(Ordering::Relaxed) > 0);
    assert_eq!(limit.in_use(), 0);
    assert!(limit.acquire_timeout(LONG).is_ok());
}

#[test]
fn keys_are_served_and_forgotten() {
    let limit = KeyedConcurrency::new(1);
    let inside: Vec<_> = (0..3).map(|_| AtomicU32::new(0)).collect();
    let until = Instant::now() + time(Duration::from_millis(500));
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (limit, inside) = (&limit, &inside);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                while Instant::now() < until {
                    let key = rng.usize(..3);
                    let permit = match rng.u32(..3) {
                        0 => limit.try_acquire(&key),
                        1 => limit.acquire_timeout(&key, Duration::from_micros(20)),
                        _ => limit.acquire(&key),
                    };
                    let Ok(permit) = permit else { continue };
                    assert_eq!(inside[key].fetch_add(1, Ordering::Relaxed), 0);
                    inside[key].fetch_sub(1, Ordering::Relaxed);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!(limit.keys(), 0);
}

#[test]
fn a_rate_is_kept_by_racing_threads_on_a_real_clock() {
    const INTERVAL: Duration = Duration::from_micros(50);
    let rate = Rate::per(1, INTERVAL).unwrap().burst(10).unwrap();
    let limit = RateLimit::new(rate);
    let taken = AtomicU64::new(0);
    let begin = Instant::now();
    let until = begin + time(Duration::from_millis(500));
    thread::scope(|scope| {
        for thread in 0..4 {
            let (limit, taken) = (&limit, &taken);
            scope.spawn(move || {
                while Instant::now() < until {
                    if thread == 0 {
                        limit.acquire();
                    } else if limit.acquire_timeout(2 * INTERVAL).is_err() {
                        continue;
                    }
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let most = 10 + begin.elapsed().as_nanos() / INTERVAL.as_nanos();
    let taken = u128::from(taken.load(Ordering::Relaxed));
    assert!(taken <= most, "{taken} of {most}");
    assert!(taken > 0);
}
