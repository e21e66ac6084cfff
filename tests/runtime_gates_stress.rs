//! Many jobs behind random gates, keys, deadlines and budgets, with random faults, while the policies are
//! replaced: each ends exactly once, its result is its own, and what it held is back at the end.
//!
//! A short run by default; `TENURE_STRESS=<factor>` multiplies the jobs. The seed is printed.

mod runtime_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tenure::breaker::{CircuitBreaker, State, Window};
use tenure::limit::{
    AdaptiveLimit, ConcurrencyLimit, Importance, KeyedConcurrency, KeyedRateLimit, LoadShedder,
    Rate, RateLimit,
};
use tenure::retry::{RetryBudget, RetryPolicy, Stop};
use tenure::runtime::{JobCtx, JobError, JobHandle, JobKey, Outcome, Runtime, SubmitError};

use runtime_support::{LONG, hush, until};

const MILLI: Duration = Duration::from_millis(1);
/// Permits of each kind that limits have to give.
const MOST: u32 = 3;

fn factor() -> usize {
    std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1)
}

fn seed() -> u64 {
    let seed = std::env::var("TENURE_SEED").ok().and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("TENURE_SEED={seed}");
    seed
}

/// All gates that jobs are put behind.
struct Gates {
    breakers: [CircuitBreaker; 2],
    limits: [ConcurrencyLimit; 2],
    per_key: KeyedConcurrency<JobKey>,
    adaptive: AdaptiveLimit,
    rate: RateLimit,
    rate_per_key: KeyedRateLimit<JobKey>,
    shedder: LoadShedder,
}

impl Gates {
    fn new() -> Self {
        let breaker = || {
            CircuitBreaker::builder()
                .window(Window::Count(8))
                .min_calls(4)
                .failure_rate(0.5)
                .probes(2)
                .open_for(MILLI / 4)
                .probe_timeout(20 * MILLI)
                .build()
                .unwrap()
        };
        Self {
            breakers: [breaker(), breaker()],
            limits: [ConcurrencyLimit::new(1), ConcurrencyLimit::new(MOST)],
            per_key: KeyedConcurrency::new(1),
            adaptive: AdaptiveLimit::builder().initial(2).bounds(1, MOST).build().unwrap(),
            rate: RateLimit::new(Rate::per_second(50_000).unwrap().burst(8).unwrap()),
            rate_per_key: KeyedRateLimit::new(Rate::per_second(20_000).unwrap()),
            shedder: LoadShedder::builder().max_depth(400).build().unwrap(),
        }
    }

    /// Every permit is back.
    fn are_free(&self) -> bool {
        self.limits.iter().all(|limit| limit.in_use() == 0 && limit.waiting() == 0)
            && self.per_key.keys() == 0
            && self.adaptive.in_use() == 0
            && self.shedder.depth() == 0
            && self.breakers.iter().all(|b| b.snapshot().probes_in_flight == 0)
    }

    /// Changes one of them.
    fn change(&self, random: &mut fastrand::Rng) {
        match random.u32(..10) {
            0 => self.breakers[random.usize(..2)].force_open(),
            1 => self.breakers[random.usize(..2)].disable(),
            2..4 => self.breakers[random.usize(..2)].reset(),
            4 => {
                let settings = CircuitBreaker::builder()
                    .window(Window::Count(random.u32(4..20)))
                    .min_calls(4)
                    .probes(random.u32(1..4))
                    .open_for(MILLI / 4)
                    .probe_timeout(20 * MILLI);
                self.breakers[random.usize(..2)].reconfigure_by(&settings).unwrap();
            }
            // Also down to none, for a while.
            5 => self.limits[random.usize(..2)].set_limit(random.u32(..=MOST)),
            6 => self.per_key.set_limit(random.u32(..=MOST)),
            7 => self.adaptive.set_bounds(random.u32(1..=2), random.u32(2..=MOST)).unwrap(),
            8 => self.adaptive.set_target(random.u32(1..200) * MILLI),
            _ => {
                let rate = Rate::per_second(random.u32(20_000..100_000)).unwrap();
                self.rate.set_rate(rate.burst(random.u32(1..10)).unwrap());
            }
        }
    }

    /// Nothing stands in anybody's way for ever.
    fn open(&self) {
        self.breakers.iter().for_each(CircuitBreaker::reset);
        self.limits.iter().for_each(|limit| limit.set_limit(1));
        self.per_key.set_limit(1);
    }
}

/// What a job is to do, by its attempt's number.
#[derive(Clone, Copy)]
struct Fate(u32);

impl Fate {
    fn of(self, attempt: u32) -> u32 {
        self.0.rotate_right(3 * attempt) % 16
    }
}

/// One job, as its submitter knows it.
struct Mine {
    number: u64,
    handle: JobHandle<u64>,
    runs: Arc<Runs>,
    most_attempts: u32,
}

/// What the closure saw.
#[derive(Default)]
struct Runs {
    /// Attempts that began; second ones apart.
    begun: AtomicU64,
    beside: AtomicU64,
    snoozed: AtomicU64,
}

/// Counts closures that live.
#[derive(Default, Clone)]
struct Alive(Arc<AtomicI64>);

struct Captured(Alive);

impl Captured {
    fn new(alive: &Alive) -> Self {
        alive.0.fetch_add(1, SeqCst);
        Self(alive.clone())
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, SeqCst);
    }
}

struct Scene {
    rt: Runtime,
    gates: Gates,
    alive: Alive,
    random: fastrand::Rng,
    /// Refused: a unique key's live one was there.
    duplicates: u64,
    submitted: u64,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let policy = RetryPolicy::exponential(Duration::from_micros(20)).max_attempts(4);
        let rt = Runtime::builder()
            .workers(4)
            .attempt_timeout(40 * MILLI)
            .retry(policy.build().unwrap())
            .max_stuck_workers(256)
            .dead_letters(1 << 20)
            .seed(seed)
            .build()
            .unwrap();
        let random = fastrand::Rng::with_seed(seed);
        let (gates, alive) = (Gates::new(), Alive::default());
        Self { rt, gates, alive, random, duplicates: 0, submitted: 0 }
    }

    /// Hands in a job behind some of the gates. `None`: refused, and given back.
    fn submit(&mut self, number: u64) -> Option<Mine> {
        let fate = Fate(self.random.u32(..));
        let hangs = self.random.u32(..4000) == 0;
        let slow = self.random.u32(..50) == 0;
        let runs = Arc::new(Runs::default());
        let (seen, captured) = (Arc::clone(&runs), Captured::new(&self.alive));
        let run = move |ctx: &JobCtx| {
            let _captured = &captured;
            match ctx.is_hedge() {
                true => seen.beside.fetch_add(1, SeqCst),
                false => seen.begun.fetch_add(1, SeqCst),
            };
            if hangs && ctx.attempt() == 1 {
                while ctx.is_current() {
                    std::thread::yield_now();
                }
            }
            // Some take long, so that a second attempt comes.
            for _ in 0..if slow { 2000 } else { 0 } {
                if seen.beside.load(SeqCst) > 0 {
                    break;
                }
                std::thread::yield_now();
            }
            match fate.of(ctx.attempt()) {
                0 => Outcome::retry("as told"),
                1 => std::panic::panic_any("meant"),
                2 if seen.snoozed.fetch_add(1, SeqCst) == 0 => {
                    Outcome::Snooze(Duration::from_micros(20))
                }
                3 if ctx.attempt() > 1 => Outcome::fail("for good"),
                4 if number.is_multiple_of(5) => Outcome::Cancel,
                _ => Outcome::Done(number),
            }
        };
        let most_attempts = self.random.u32(1..5);
        let policy = RetryPolicy::immediate().max_attempts(most_attempts).build().unwrap();
        let random = &mut self.random;
        let mut chance = |percent: u32| random.u32(..100) < percent;
        let gates = &self.gates;
        let key = number % 11;
        let mut job = self.rt.job(run).retry(policy);
        for (limit, percent) in gates.limits.iter().zip([10, 30]) {
            if chance(percent) {
                job = job.concurrency(limit);
            }
        }
        for breaker in &gates.breakers {
            if chance(25) {
                job = job.breaker(breaker);
            }
        }
        if chance(20) {
            job = job.concurrency_per_key(&gates.per_key, key);
        }
        if chance(20) {
            job = job.adaptive_concurrency(&gates.adaptive);
        }
        if chance(20) {
            job = job.rate_limit(&gates.rate);
        }
        if chance(10) {
            job = job.rate_limit_per_key(&gates.rate_per_key, key);
        }
        if chance(10) {
            job = job.shed_by(&gates.shedder, Importance::Normal);
        }
        if chance(10) {
            job = job.key(number % 50);
        }
        if chance(10) {
            job = job.unique(number % 200);
        }
        if slow || chance(10) {
            job = job.hedge_after(MILLI / 20);
        }
        if chance(5) {
            job = job.deadline(5 * MILLI);
        }
        match job.submit() {
            Ok(handle) => {
                self.submitted += 1;
                Some(Mine { number, handle, runs, most_attempts })
            }
            Err(SubmitError::Duplicate { .. }) => {
                self.duplicates += 1;
                None
            }
            Err(SubmitError::Closed(_) | SubmitError::Shed { .. }) => None,
            Err(other) => panic!("{other}"),
        }
    }

    /// Everything is over: so is every count.
    fn over(self) {
        let Self { rt, gates, alive, submitted, .. } = self;
        until("every job is counted once", || {
            let s = rt.stats();
            s.succeeded + s.dead + s.cancelled == submitted
        });
        until("the late ones leave", || rt.stats().stuck_workers == 0);
        until("no key is left", || rt.leases().is_empty());
        until("every permit is back", || gates.are_free());
        let stats = rt.stats();
        println!("{stats:?}");
        assert_eq!(stats.submitted, submitted);
        let report = rt.shutdown(LONG);
        // At an end in the middle, late ones may be on their way out.
        assert!(report.abandoned.len() as u64 <= stats.timed_out, "{report:?}");
        drop(rt);
        until("closures are dropped", || alive.0.load(SeqCst) == 0);
        assert!(gates.are_free());
    }
}

/// The ends that submitters saw.
#[derive(Debug, Default)]
struct Ends {
    values: u64,
    dead: u64,
    late: u64,
    cancelled: u64,
    swept: u64,
}

impl Ends {
    fn count(&mut self, mine: Mine) {
        let Mine { number, handle, runs, most_attempts, .. } = mine;
        let result = handle.get();
        let (begun, beside) = (runs.begun.load(SeqCst), runs.beside.load(SeqCst));
        match result {
            Ok(value) => {
                assert_eq!(value, number, "its own result");
                self.values += 1;
            }
            Err(JobError::Dead(letter)) => {
                // Waiting used none. Of two side by side each is in the history.
                assert!(letter.attempts() <= u64::from(most_attempts) + beside, "{letter:?}");
                if letter.stop == Stop::Deadline {
                    self.late += 1;
                } else {
                    assert!(begun > 0, "dead of nothing: {letter:?}");
                    self.dead += 1;
                }
            }
            Err(JobError::Cancelled) => self.cancelled += 1,
            Err(JobError::Shutdown) => self.swept += 1,
            Err(other) => panic!("{other}"),
        }
        // A turn that was snoozed is no attempt; nor is one that a breaker or a limit let wait.
        let turns = u64::from(most_attempts) + runs.snoozed.load(SeqCst).min(1);
        assert!(begun <= turns, "{begun} attempts of {most_attempts}");
    }
}

#[test]
fn whatever_stands_in_their_way_each_ends_once_and_leaves_nothing() {
    hush();
    let jobs = 8_000 * factor() as u64;
    let mut scene = Scene::new(seed());
    let mut ends = Ends::default();
    let mut forgotten = 0;
    let mut number = 0;
    while number < jobs {
        let mut batch = Vec::new();
        for _ in 0..500 {
            number += 1;
            batch.extend(scene.submit(number));
            if scene.random.u32(..60) == 0 {
                scene.gates.change(&mut scene.random);
            }
            match scene.random.u32(..2000) {
                0 => scene.rt.set_retry_budget(RetryBudget::builder().build().unwrap()),
                1 => scene.rt.remove_retry_budget(),
                2 => scene.rt.set_attempt_timeout(scene.random.u32(30..60) * MILLI),
                _ => {}
            }
        }
        scene.gates.open();
        for mine in batch {
            match scene.random.u32(..30) {
                0 => forgotten += 1,
                1 | 2 => {
                    mine.handle.cancel();
                    ends.count(mine);
                }
                _ => ends.count(mine),
            }
        }
    }
    println!("{ends:?}, {forgotten} forgotten, {} duplicates", scene.duplicates);
    let Ends { values, dead, late, cancelled, swept } = ends;
    assert_eq!(values + dead + late + cancelled + forgotten, scene.submitted);
    assert_eq!(swept, 0);
    assert!(values > 0 && dead > 0 && cancelled > 0 && scene.duplicates > 0);
    let stats = scene.rt.stats();
    assert!(stats.gated > 0 && stats.hedged > 0);
    scene.over();
}

#[test]
fn a_shutdown_in_the_middle_ends_each_once_and_gives_back_what_it_held() {
    hush();
    let mut random = fastrand::Rng::with_seed(seed());
    for _ in 0..20 * factor() {
        let mut scene = Scene::new(random.u64(..));
        let closed = Arc::new(AtomicBool::new(false));
        let at = random.u64(1..400);
        let submitted = Arc::new(AtomicUsize::new(0));
        let closer = {
            let (rt, closed) = (scene.rt.clone(), Arc::clone(&closed));
            let submitted = Arc::clone(&submitted);
            std::thread::spawn(move || {
                until("so many are in", || submitted.load(SeqCst) as u64 >= at);
                closed.store(true, SeqCst);
                rt.shutdown(LONG)
            })
        };
        let mut batch = Vec::new();
        for number in 1..=500 {
            batch.extend(scene.submit(number));
            submitted.fetch_add(1, SeqCst);
            if random.u32(..60) == 0 {
                scene.gates.change(&mut random);
            }
        }
        // Gates that are shut stay shut: the end does not wait for them.
        let report = closer.join().unwrap();
        let mut ends = Ends::default();
        for mine in batch {
            ends.count(mine);
        }
        assert!(closed.load(SeqCst));
        let Ends { values, dead, late, cancelled, swept } = ends;
        assert_eq!(values + dead + late + cancelled + swept, scene.submitted);
        assert_eq!(swept, (report.cancelled + report.requeued) as u64, "{report:?}");
        scene.over();
    }
}

/// Everybody waits for a breaker that is never let alone: opened, closed, replaced, with probes that fail.
#[test]
fn jobs_suspended_by_a_breaker_use_no_attempt_however_often_it_opens() {
    hush();
    let rt = Runtime::builder().workers(4).build().unwrap();
    let gates = Gates::new();
    let [breaker, _] = &gates.breakers;
    let stop = AtomicBool::new(false);
    let jobs = 2_000 * factor();
    breaker.force_open();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = fastrand::Rng::with_seed(seed());
            until("some wait", || rt.stats().gated >= 100);
            while !stop.load(SeqCst) {
                match random.u32(..4) {
                    0 | 1 => breaker.force_open(),
                    2 => breaker.disable(),
                    _ => breaker.reset(),
                }
                std::thread::yield_now();
            }
            breaker.reset();
        });
        let all: Vec<_> = (0..jobs)
            .map(|n| {
                // One attempt each: whoever lost it to a refusal would be dead.
                let job = rt.job(move |ctx: &JobCtx| Ok::<_, String>((n, ctx.attempt())));
                let job = job.retry(RetryPolicy::never()).breaker(breaker);
                job.concurrency(&gates.limits[1]).submit().unwrap()
            })
            .collect();
        for (n, job) in all.into_iter().enumerate() {
            assert_eq!(job.get().unwrap(), (n, 1));
        }
        stop.store(true, SeqCst);
    });
    let stats = rt.stats();
    println!("{stats:?}");
    assert_eq!(stats.started, jobs as u64);
    assert!(stats.gated >= 100);
    assert_eq!(breaker.state(), State::Closed);
    until("every permit is back", || gates.are_free());
}
