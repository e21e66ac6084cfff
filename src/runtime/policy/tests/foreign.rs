//! What a gate calls may panic, or never return.
#![cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]

use super::*;

/// One that takes as long as the clock is moved meanwhile.
fn untimed(rt: &Runtime, gates: &[(Stage, &Shut)]) -> JobHandle<u32> {
    let mut job = rt.job(|ctx: &JobCtx| Ok::<_, String>(ctx.attempt())).without_attempt_timeout();
    for (stage, gate) in gates {
        job = job.gate(*stage, gate.gate());
    }
    job.submit().expect("open")
}

/// So many wait in their lines, and the workers are out of them: a refusal is counted before its job is in
/// the line.
#[track_caller]
fn wait_quietly(rt: &Runtime, jobs: u64) {
    waits(rt, jobs);
    let idle = || rt.health().workers.iter().all(|worker| worker.running.is_empty());
    until("the workers are through", idle);
}

/// Moves the clock until it is so.
#[track_caller]
fn in_time(clock: &ManualClock, what: &str, done: impl Fn() -> bool) {
    until(what, || {
        done() || {
            clock.advance(SECOND);
            false
        }
    });
}

#[test]
fn a_gate_that_panics_has_refused_and_is_asked_again() {
    let (rt, clock) = timed(1);
    let (other, gate) = (Shut::new(1), Shut::new(1));
    gate.panic_next();
    let job = untimed(&rt, &[(Stage::Rate, &other), (Stage::Breaker, &gate)]);
    waits(&rt, 1);
    until("its other permit is back", || other.inside() == 0);
    in_time(&clock, "its time comes", || job.is_finished());
    assert_eq!(job.get().unwrap(), 1);
    // In a pump, too.
    gate.0.free.store(0, SeqCst);
    let job = untimed(&rt, &[(Stage::Breaker, &gate)]);
    waits(&rt, 2);
    gate.panic_next();
    gate.open(1);
    in_time(&clock, "its time comes", || job.is_finished());
    assert_eq!((job.get().unwrap(), gate.inside(), gate.0.free.load(SeqCst)), (1, 0, 1));
}

#[test]
fn who_never_comes_back_from_a_gate_holds_up_one_job_of_its_line() {
    let (rt, clock) = timed(1);
    let gate = Shut::new(0);
    let jobs: Vec<_> = (0..5).map(|_| untimed(&rt, &[(Stage::Breaker, &gate)])).collect();
    wait_quietly(&rt, 5);
    let latch = gate.hang_next(None);
    let giver = {
        let gate = gate.clone();
        std::thread::spawn(move || gate.open(1))
    };
    latch.wait_for(1);
    // Nobody else is told of that permit.
    in_time(&clock, "the others are done", || {
        jobs.iter().filter(|job| job.is_finished()).count() == 4
    });
    let (held, done): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| !job.is_finished());
    for job in done {
        job.get().unwrap();
    }
    let [held] = held.try_into().expect("one is held up");
    assert!(held.cancel());
    assert!(matches!(held.get(), Err(JobError::Cancelled)));
    latch.open();
    giver.join().unwrap();
    assert_eq!((gate.inside(), gate.0.free.load(SeqCst)), (0, 1));
}

#[test]
fn who_never_comes_back_from_a_permit_given_back_unused_holds_up_nobody() {
    let (rt, clock) = timed(1);
    let gate = Shut::new(0);
    let [first, second] = [(), ()].map(|()| untimed(&rt, &[(Stage::Breaker, &gate)]));
    // Once by the worker, then by the pump after each.
    until("they wait", || gate.asked() == 3);
    let asked = gate.hang_next(None);
    let giver = {
        let gate = gate.clone();
        std::thread::spawn(move || gate.open(1))
    };
    asked.wait_for(1);
    // Its permit comes when it is over, and goes back.
    assert!(first.cancel());
    let hangs = Arc::new(HangsOnce(Mutex::new(Some(Latch::default()))));
    let latch = hangs.0.lock().unwrap().clone().unwrap();
    gate.gate().watch(Arc::downgrade(&hangs) as Weak<dyn Listener>);
    asked.open();
    latch.wait_for(1);
    in_time(&clock, "the other one goes on", || second.is_finished());
    assert_eq!(second.get().unwrap(), 1);
    latch.open();
    giver.join().unwrap();
    assert_eq!((gate.inside(), gate.0.free.load(SeqCst)), (0, 1));
}

#[test]
fn who_never_comes_back_as_it_begins_holds_up_nobody_behind() {
    let (rt, clock) = timed(2);
    let gate = Shut::new(0);
    let jobs: Vec<_> = (0..2).map(|_| untimed(&rt, &[(Stage::Breaker, &gate)])).collect();
    wait_quietly(&rt, 2);
    let latch = gate.hang_at_begin();
    gate.open(1);
    latch.wait_for(1);
    // Nobody is told of that one.
    gate.refill(1);
    in_time(&clock, "the other one goes on", || jobs.iter().any(JobHandle::is_finished));
    assert!(!jobs.iter().all(JobHandle::is_finished));
    latch.open();
    for job in jobs {
        assert_eq!(job.get().unwrap(), 1);
    }
    assert_eq!((gate.inside(), gate.0.free.load(SeqCst)), (0, 2));
}

#[test]
fn what_was_put_off_by_who_never_comes_back_is_made_up_for() {
    let (rt, clock) = timed(1);
    let (limit, breaker) = (Shut::new(0), Shut::new(0));
    let job = untimed(&rt, &[(Stage::Concurrency, &limit)]);
    let held = untimed(&rt, &[(Stage::Breaker, &breaker)]);
    wait_quietly(&rt, 2);
    // The limit's line is told inside the pump of the breaker's.
    let latch = breaker.hang_next(Some(&limit));
    let giver = {
        let breaker = breaker.clone();
        std::thread::spawn(move || breaker.open(1))
    };
    latch.wait_for(1);
    in_time(&clock, "it goes on", || job.is_finished());
    job.get().unwrap();
    assert!(!held.is_finished());
    latch.open();
    giver.join().unwrap();
    held.get().unwrap();
    assert_eq!((limit.inside(), breaker.inside()), (0, 0));
}

#[test]
fn a_worker_that_never_comes_back_from_a_gate_is_replaced_and_its_job_found_at_the_end() {
    let (rt, clock) = timed(1);
    let gate = Shut::new(2);
    let latch = gate.hang_next(None);
    let held = gated(&rt, &gate, |_| Outcome::Done(()));
    latch.wait_for(1);
    let [running] = &rt.health().workers[0].running[..] else { panic!("{:?}", rt.health()) };
    assert_eq!((running.job, running.attempt, running.late), (held.id(), 1, false));
    let other = untimed(&rt, &[(Stage::Concurrency, &gate)]);
    in_time(&clock, "there is another worker", || other.is_finished());
    other.get().unwrap();
    let stats = rt.stats();
    assert_eq!((stats.replaced_workers, stats.stuck_workers, stats.started), (1, 1, 1));
    let report = rt.shutdown(Duration::ZERO);
    assert_eq!((report.abandoned.len(), report.abandoned[0].id), (1, held.id()), "{report:?}");
    assert!(matches!(held.get(), Err(JobError::Shutdown)));
    latch.open();
    until("the worker is gone", || rt.stats().stuck_workers == 0);
    until("its permit is back", || gate.inside() == 0);
    assert_eq!(rt.stats().started, 1);
}

/// A listener that hangs at a latch, the first time.
struct HangsOnce(Mutex<Option<Latch>>);

impl Listener for HangsOnce {
    fn permit_freed(&self) {
        let latch = self.0.lock().unwrap().take();
        if let Some(latch) = latch {
            latch.pass();
        }
    }
}

/// A listener that hangs at a latch.
struct Hangs(Latch);

impl Listener for Hangs {
    fn permit_freed(&self) {
        self.0.pass();
    }
}

#[test]
fn whoever_gives_an_attempt_up_finds_the_permits_behind_a_listener_that_hangs() {
    let (rt, clock) = timed(2);
    let (limit, breaker) = (Shut::new(1), Shut::new(2));
    let latch = Latch::default();
    // Told on the way out of the attempt, before the permit of the limit is back.
    let hang: Arc<dyn Listener> = Arc::new(Hangs(latch.clone()));
    breaker.gate().watch(Arc::downgrade(&hang));
    let job = rt
        .job(|_| Ok::<_, String>(()))
        .retry(RetryPolicy::never())
        .gate(Stage::Concurrency, limit.gate())
        .gate(Stage::Breaker, breaker.gate())
        .submit()
        .unwrap();
    latch.wait_for(1);
    assert_eq!((limit.inside(), job.is_finished()), (1, false));
    in_time(&clock, "it is given up", || job.is_finished());
    assert!(matches!(job.get(), Err(JobError::Dead(_))));
    until("the permit is back", || limit.inside() == 0);
    latch.open();
    until("the late one is back", || rt.stats().fenced == 1);
    assert_eq!((limit.0.free.load(SeqCst), breaker.0.free.load(SeqCst)), (1, 2));
}
