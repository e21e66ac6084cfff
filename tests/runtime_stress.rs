//! Many jobs with random errors, panics, hangs, cancellations and rescues, on real threads: each ends
//! exactly once, its result is its own, nothing leaks.
//!
//! A short run by default; `TENURE_STRESS=<factor>` multiplies the jobs. The seed is printed.

mod runtime_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use tenure::retry::RetryPolicy;
use tenure::runtime::{JobCtx, JobError, Outcome, Priority, Runtime};

use runtime_support::{hush, until};

fn factor() -> usize {
    std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1)
}

fn seed() -> u64 {
    let seed = std::env::var("TENURE_SEED").ok().and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("TENURE_SEED={seed}");
    seed
}

/// Counts what is alive.
struct Alive(Arc<AtomicI64>);
impl Alive {
    fn new(count: &Arc<AtomicI64>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(Arc::clone(count))
    }
}
impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

struct Leaves<'a>(&'a AtomicUsize);
impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[test]
fn random_faults_end_each_job_exactly_once() {
    hush();
    let jobs = 100_000 * factor();
    let seed = seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let timeout = Duration::from_millis(40);
    let rt = Runtime::builder()
        .workers(4)
        .attempt_timeout(timeout)
        .retry(RetryPolicy::exponential(Duration::from_micros(50)).max_attempts(4).build().unwrap())
        .max_stuck_workers(256)
        .dead_letters(100_000)
        .seed(seed)
        .build()
        .unwrap();
    let alive = Arc::new(AtomicI64::new(0));
    let drops = Arc::new(AtomicUsize::new(0));
    let mut ends = [0_u64; 4];
    let (mut forgotten, mut pushed) = (0_u64, 0_usize);
    let told = Arc::new(AtomicUsize::new(0));
    let meetings = Arc::new(AtomicUsize::new(0));
    for _ in 0..jobs.div_ceil(1000) {
        let batch: Vec<_> = (0..1000)
            .map(|i| {
                let (captured, values) = (Alive::new(&alive), Arc::clone(&alive));
                let drops = Arc::clone(&drops);
                let chance = random.u32(..);
                // Hangs are rare: each takes a timeout.
                let hangs = random.u32(0..4000) == 0;
                let snoozed = AtomicBool::new(false);
                let (inside, met) = (AtomicUsize::new(0), Arc::clone(&meetings));
                let in_turn = chance.is_multiple_of(9);
                let run = move |ctx: &JobCtx| {
                    let _captured = &captured;
                    let others = inside.fetch_add(1, SeqCst);
                    let _out = Leaves(&inside);
                    met.fetch_add(usize::from(in_turn && others > 0), SeqCst);
                    if hangs && ctx.attempt() == 1 {
                        let begun = Instant::now();
                        while ctx.is_current() && begun.elapsed() < Duration::from_secs(20) {
                            std::thread::yield_now();
                        }
                    }
                    // Another fate for each attempt.
                    match chance.rotate_right(3 * ctx.attempt()) % 16 {
                        0 => Outcome::retry("as told"),
                        1 => std::panic::panic_any("meant"),
                        2 if !snoozed.swap(true, SeqCst) => {
                            Outcome::Snooze(Duration::from_micros(20))
                        }
                        3 => Outcome::fail("for good"),
                        4 if chance.is_multiple_of(3) => Outcome::Cancel,
                        _ => Outcome::Done((i, Alive::new(&values), drops.clone())),
                    }
                };
                let priority = match chance % 5 {
                    0 => Priority::High,
                    1 => Priority::Low,
                    _ => Priority::Normal,
                };
                let key = chance.is_multiple_of(7).then(|| u64::from(chance % 50));
                macro_rules! submit {
                    ($job:expr) => {{
                        let job = $job.priority(priority);
                        match key {
                            Some(key) => job.key(key).submit().unwrap(),
                            None => job.submit().unwrap(),
                        }
                    }};
                }
                let job = if in_turn { submit!(rt.job_mut(run)) } else { submit!(rt.job(run)) };
                (i, job, random.u32(..))
            })
            .collect();
        for (i, job, what) in batch {
            if what % 11 == 0 {
                job.cancel();
            }
            if what % 13 == 0 {
                forgotten += 1;
                drop(job);
                continue;
            }
            if what % 17 == 0 {
                // Pushed instead of fetched: once, whatever comes of it.
                pushed += 1;
                let told = Arc::clone(&told);
                job.on_complete(move |result| {
                    assert!(result.is_err() || result.is_ok_and(|(number, ..)| number == i));
                    told.fetch_add(1, SeqCst);
                });
                continue;
            }
            match job.get() {
                Ok((number, _value, _)) => {
                    assert_eq!(number, i, "its own result");
                    ends[0] += 1;
                }
                Err(JobError::Dead(letter)) => {
                    assert!(!letter.history.is_empty());
                    ends[1] += 1;
                }
                Err(JobError::Cancelled) => ends[2] += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    let total = (jobs.div_ceil(1000) * 1000) as u64;
    until("every job is counted once", || {
        let s = rt.stats();
        s.succeeded + s.dead + s.cancelled == total
    });
    assert_eq!(meetings.load(SeqCst), 0, "attempts that must not meet");
    until("every callback is called", || told.load(SeqCst) == pushed);
    until("the late ones leave", || rt.stats().stuck_workers == 0);
    let stats = rt.stats();
    println!("{stats:?}");
    assert_eq!(stats.submitted, total);
    assert!(stats.succeeded >= ends[0] && stats.dead >= ends[1] && stats.cancelled >= ends[2]);
    assert_eq!(ends.iter().sum::<u64>() + forgotten + pushed as u64, total);
    assert_eq!(stats.dead - stats.letters_lost, rt.dead_letters().len() as u64);
    assert_eq!(stats.workers, 4, "the pool is whole");
    until("no key is left", || rt.leases().is_empty());
    let report = rt.shutdown(Duration::from_secs(60));
    assert!(report.abandoned.is_empty(), "{report:?}");
    until("closures and values are dropped", || alive.load(SeqCst) == 0);
}

#[test]
fn no_wake_is_lost() {
    // `TENURE_WATCH=<seconds>` watches for so long instead.
    let watch = std::env::var("TENURE_WATCH").ok().and_then(|s| s.parse().ok());
    let watch = watch.map(Duration::from_secs);
    let rounds = if watch.is_some() { usize::MAX } else { 3_000 * factor() };
    let begun = Instant::now();
    let rt = Runtime::builder().workers(2).build().unwrap();
    let mut random = fastrand::Rng::with_seed(seed());
    for round in 0..rounds {
        if watch.is_some_and(|watch| begun.elapsed() >= watch) {
            println!("{round} rounds in {:?}, {:?}", begun.elapsed(), rt.stats());
            break;
        }
        let jobs: Vec<_> = (0..random.usize(1..4))
            .map(|i| {
                let inner = rt.clone();
                let child = random.bool();
                rt.submit_once(move |_| {
                    if child {
                        inner
                            .submit(move |_| Ok::<_, String>(i))
                            .map_err(|e| e.to_string())?
                            .get()
                            .map_err(|e| e.to_string())
                    } else {
                        Ok(i)
                    }
                })
                .unwrap()
            })
            .collect();
        for (i, mut job) in jobs.into_iter().enumerate() {
            let got = job.get_timeout(Duration::from_secs(30));
            assert_eq!(got.unwrap_or_else(|| panic!("lost in round {round}: {rt:?}")).unwrap(), i);
        }
        // Sometimes long enough for the workers to fall asleep.
        for _ in 0..random.u32(0..200) {
            std::hint::spin_loop();
        }
    }
}
