//! What a circuit breaker costs: a call that goes well while it is closed, one that fails, and one that is
//! refused while it is open; on one thread, and on two at a time.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use failsafe::CircuitBreaker as _;
use recloser::Recloser;
use tenure::breaker::{CircuitBreaker, Window};
use tenure::limit::{ConcurrencyLimit, Rate, RateLimit};

const HOUR: Duration = Duration::from_secs(3600);

/// The same on `threads` threads at a time; the time of the slowest.
fn on(threads: usize, iters: u64, f: &(dyn Fn(u64) + Sync)) -> Duration {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        let times: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    let begin = Instant::now();
                    f(iters);
                    begin.elapsed()
                })
            })
            .collect();
        times.into_iter().map(|time| time.join().unwrap()).max().unwrap()
    })
}

/// The loop is inside, so that each breaker's call can be inlined, as in a program.
macro_rules! calls {
    ($iters:ident, $call:expr) => {
        for i in 0..$iters {
            let _ = black_box($call(black_box(i)));
        }
    };
}

fn ok(n: u64) -> Result<u64, u64> {
    black_box(Ok(n))
}

fn sometimes(n: u64) -> Result<u64, u64> {
    if n.is_multiple_of(5) { black_box(Err(n)) } else { black_box(Ok(n)) }
}

fn ours() -> tenure::breaker::BreakerBuilder {
    CircuitBreaker::builder().failure_rate(0.5).open_for(HOUR)
}

fn recloser() -> Recloser {
    Recloser::custom().error_rate(0.5).closed_len(100).open_wait(HOUR).build()
}

fn consecutive() -> impl failsafe::CircuitBreaker + Sync {
    let backoff = failsafe::backoff::constant(HOUR);
    failsafe::Config::new()
        .failure_policy(failsafe::failure_policy::consecutive_failures(50, backoff))
        .build()
}

fn by_rate() -> impl failsafe::CircuitBreaker + Sync {
    let backoff = failsafe::backoff::constant(HOUR);
    let policy = failsafe::failure_policy::success_rate_over_time_window(
        0.5,
        20,
        Duration::from_secs(10),
        backoff,
    );
    failsafe::Config::new().failure_policy(policy).build()
}

type Run<'a> = (&'a str, Box<dyn Fn(u64) + Sync + 'a>);

fn compare(c: &mut Criterion, what: &str, runs: &[Run<'_>]) {
    for threads in [1, 2] {
        let mut group = c.benchmark_group(format!("breaker/{what}, {threads} thread(s)"));
        for (name, run) in runs {
            group.bench_function(*name, |b| b.iter_custom(|iters| on(threads, iters, &**run)));
        }
        group.finish();
    }
}

fn closed(c: &mut Criterion) {
    let count = ours().build().unwrap();
    let time = ours().window(Window::Time(Duration::from_secs(10))).build().unwrap();
    let timed = ours().slow_calls(Duration::from_secs(2), 1.0).build().unwrap();
    let (peer, simple, rate) = (recloser(), consecutive(), by_rate());
    let runs: [Run<'_>; 6] = [
        ("tenure, by count", Box::new(|n| calls!(n, |i| count.call(|| ok(i))))),
        ("recloser, by count", Box::new(|n| calls!(n, |i| peer.call(|| ok(i))))),
        ("failsafe, in a row", Box::new(|n| calls!(n, |i| simple.call(|| ok(i))))),
        ("tenure, by time", Box::new(|n| calls!(n, |i| time.call(|| ok(i))))),
        ("failsafe, by time", Box::new(|n| calls!(n, |i| rate.call(|| ok(i))))),
        ("tenure, by count, slow calls", Box::new(|n| calls!(n, |i| timed.call(|| ok(i))))),
    ];
    compare(c, "closed", &runs);
    assert_eq!(count.state(), tenure::breaker::State::Closed);
}

/// One call in five fails; the rate is never reached.
fn failing(c: &mut Criterion) {
    let count = ours().build().unwrap();
    let (peer, simple) = (recloser(), consecutive());
    let runs: [Run<'_>; 3] = [
        ("tenure, by count", Box::new(|n| calls!(n, |i| count.call(|| sometimes(i))))),
        ("recloser, by count", Box::new(|n| calls!(n, |i| peer.call(|| sometimes(i))))),
        ("failsafe, in a row", Box::new(|n| calls!(n, |i| simple.call(|| sometimes(i))))),
    ];
    compare(c, "one in five fails", &runs);
    assert_eq!(count.state(), tenure::breaker::State::Closed);
}

fn open(c: &mut Criterion) {
    let count = ours().build().unwrap();
    let (peer, simple) = (recloser(), consecutive());
    for _ in 0..200 {
        let _ = count.call(|| Err::<u64, u64>(0));
        let _ = peer.call(|| Err::<u64, u64>(0));
        let _ = simple.call(|| Err::<u64, u64>(0));
    }
    assert!(count.call(|| ok(1)).is_err() && peer.call(|| ok(1)).is_err());
    assert!(simple.call(|| ok(1)).is_err());
    let runs: [Run<'_>; 3] = [
        ("tenure", Box::new(|n| calls!(n, |i| count.call(|| ok(i))))),
        ("recloser", Box::new(|n| calls!(n, |i| peer.call(|| ok(i))))),
        ("failsafe", Box::new(|n| calls!(n, |i| simple.call(|| ok(i))))),
    ];
    compare(c, "open", &runs);
}

/// A permit taken and returned (one that borrows, and one that owns), beside tokio's semaphore; and a permit of a rate, let through and refused.
fn limits(c: &mut Criterion) {
    let limit = ConcurrencyLimit::new(1000);
    let semaphore = tokio::sync::Semaphore::new(1000);
    let free = RateLimit::new(Rate::per(1, Duration::ZERO).unwrap());
    let spent = RateLimit::new(Rate::per(1, HOUR).unwrap());
    let _ = spent.try_acquire();
    let owned = std::sync::Arc::new(tokio::sync::Semaphore::new(1000));
    let try_owned = || std::sync::Arc::clone(&owned).try_acquire_owned().is_ok();
    let runs: [Run<'_>; 6] = [
        ("tenure, borrowed", Box::new(|n| calls!(n, |_| limit.try_enter().is_ok()))),
        ("tokio, borrowed", Box::new(|n| calls!(n, |_| semaphore.try_acquire().is_ok()))),
        ("tenure, owned", Box::new(|n| calls!(n, |_| limit.try_acquire().is_ok()))),
        ("tokio, owned", Box::new(|n| calls!(n, |_| try_owned()))),
        ("tenure, rate, let through", Box::new(|n| calls!(n, |_| free.try_acquire().is_ok()))),
        ("tenure, rate, refused", Box::new(|n| calls!(n, |_| spent.try_acquire().is_err()))),
    ];
    compare(c, "limits", &runs);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(600))
        .sample_size(20);
    targets = closed, failing, open, limits
}
criterion_main!(benches);
