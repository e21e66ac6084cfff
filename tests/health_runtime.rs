//! How a runtime is: what its workers run, who is stuck, what waits, and the verdict.

mod runtime_support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::ThreadId;
use std::time::Duration;

use tenure::clock::ManualClock;
use tenure::health::Reason;
use tenure::runtime::{Event, Priority, Runtime, RuntimeHealth, WorkerStatus};

use runtime_support::{LONG, SECOND, advance_until, at_once, until, until_event, until_stats};

/// Holds a job until it is opened.
fn gate() -> (mpsc::Sender<()>, Arc<Mutex<mpsc::Receiver<()>>>) {
    let (open, wait) = mpsc::channel();
    (open, Arc::new(Mutex::new(wait)))
}

fn pass(gate: &Mutex<mpsc::Receiver<()>>) -> Result<(), String> {
    let _ = gate.lock().unwrap().recv();
    Ok(())
}

fn statuses(health: &RuntimeHealth) -> Vec<WorkerStatus> {
    health.workers.iter().map(|worker| worker.status).collect()
}

#[test]
fn an_idle_runtime_is_ready_and_its_workers_are_idle() {
    let rt = Runtime::builder().workers(3).build().unwrap();
    let health = rt.health();
    assert_eq!(statuses(&health), [WorkerStatus::Idle; 3]);
    assert_eq!((health.wanted, health.active, health.stand_ins), (3, 3, 0));
    assert_eq!((health.queues.ready(), health.queues.in_line), (0, 0));
    assert!(!health.paused && !health.closing && health.dead_letters == 0);
    let verdict = health.verdict();
    assert!(verdict.is_ready() && verdict.is_live() && verdict.reasons().is_empty());
    assert!(health.workers.iter().all(|worker| worker.phi == 0.0 && worker.running.is_empty()));
}

#[test]
fn a_worker_says_what_it_runs_and_for_how_long() {
    let clock = ManualClock::new();
    let rt = Runtime::builder().workers(1).clock(clock.clone()).retry(at_once(3)).build().unwrap();
    let (open, wait) = gate();
    let (inside, entered) = mpsc::channel();
    let job = rt
        .job(move |ctx| {
            if ctx.attempt() == 1 {
                return Err("once more");
            }
            inside.send(()).unwrap();
            pass(&wait).map_err(|_| "never")
        })
        .name("slow")
        .key("k")
        .attempt_timeout(100 * SECOND)
        .submit()
        .unwrap();
    entered.recv_timeout(LONG).unwrap();
    clock.advance(7 * SECOND);
    let health = rt.health();
    assert_eq!(statuses(&health), [WorkerStatus::Running]);
    let [running] = &health.workers[0].running[..] else { panic!("{health:?}") };
    assert_eq!((running.job, running.attempt), (job.id(), 2));
    assert_eq!(running.name.as_deref(), Some("slow"));
    assert_eq!(running.key.as_ref().unwrap().to_string(), "k");
    assert_eq!(running.elapsed, 7 * SECOND);
    assert!(running.deadline.is_some() && !running.late);
    open.send(()).unwrap();
    job.get().unwrap();
    until("it stands up", || statuses(&rt.health()) == [WorkerStatus::Idle]);
}

#[test]
fn attempts_on_top_of_each_other_are_all_there_and_a_stand_in_is_counted() {
    let rt = Runtime::builder().workers(1).build().unwrap();
    let (open, wait) = gate();
    let (inside, entered) = mpsc::channel();
    let inner = rt.clone();
    let outer = rt
        .job(move |_| {
            let (wait, inside) = (Arc::clone(&wait), inside.clone());
            let child = inner.job(move |_| {
                inside.send(()).unwrap();
                pass(&wait)
            });
            child.name("child").submit().unwrap().get()
        })
        .name("parent")
        .submit()
        .unwrap();
    entered.recv_timeout(LONG).unwrap();
    let health = rt.health();
    // The child runs on top of its parent, or (if another worker was faster: there is none) elsewhere.
    let running = health.workers.iter().flat_map(|worker| &worker.running);
    let names: Vec<_> = running.filter_map(|running| running.name.as_deref()).collect();
    assert_eq!(names, ["parent", "child"]);
    open.send(()).unwrap();
    outer.get().unwrap();

    // One that waits in a blocking section has a stand-in.
    let (open, wait) = gate();
    let (inside, entered) = mpsc::channel();
    let job = rt
        .submit(move |_| {
            tenure::runtime::blocking(|| {
                inside.send(()).unwrap();
                pass(&wait)
            })
        })
        .unwrap();
    entered.recv_timeout(LONG).unwrap();
    let health = rt.health();
    assert_eq!(health.stand_ins, 1);
    assert!(statuses(&health).contains(&WorkerStatus::Waiting));
    open.send(()).unwrap();
    job.get().unwrap();
}

#[test]
fn a_stuck_worker_is_named_and_does_not_make_the_runtime_unready() {
    let (rt, clock) = runtime_support::timed(1, 1);
    let events = rt.events();
    let (open, wait) = gate();
    let job = rt.job(move |_| pass(&wait)).name("stuck").submit().unwrap();
    until("it runs", || rt.stats().started == 1);
    advance_until(&clock, SECOND, "given up", || rt.stats().replaced_workers == 1);
    assert!(job.get().is_err());
    let health = rt.health();
    let stuck = health.workers.iter().find(|w| matches!(w.status, WorkerStatus::Stuck { .. }));
    let stuck = stuck.expect("listed");
    assert_eq!(stuck.status, WorkerStatus::Stuck { replaced: true });
    assert_eq!(stuck.running[0].name.as_deref(), Some("stuck"));
    assert!(stuck.running[0].late);
    let verdict = health.verdict();
    assert!(verdict.is_ready(), "{verdict}");
    assert_eq!(verdict.reasons(), [Reason::WorkersStuck(1)]);
    open.send(()).unwrap();
    until_event(&events, |e| matches!(e, Event::WorkerReturned { .. }));
    until("it is gone", || rt.health().workers.len() == 1);
    assert!(rt.health().verdict().reasons().is_empty());
}

#[test]
fn with_all_workers_stuck_and_none_to_come_it_is_not_live() {
    let clock = ManualClock::new();
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .attempt_timeout(SECOND)
        .retry(at_once(1))
        .max_stuck_workers(0)
        .build()
        .unwrap();
    let (open, wait) = gate();
    let job = rt.submit(move |_| pass(&wait)).unwrap();
    until("it runs", || rt.stats().started == 1);
    advance_until(&clock, SECOND, "given up", || rt.stats().replaced_workers == 1);
    assert!(job.get().is_err());
    let health = rt.health();
    assert_eq!(statuses(&health), [WorkerStatus::Stuck { replaced: false }]);
    let verdict = health.verdict();
    assert!(!verdict.is_live() && !verdict.is_ready());
    assert_eq!(verdict.to_string(), "not live: no workers; 1 workers are stuck");
    open.send(()).unwrap();
    until("it goes on", || rt.health().verdict().is_ready());
}

/// A dead worker leaves the pool before another job is given to it: neither what lies in its own queue, nor
/// what is pushed while it is stuck, nor what its own late attempt waits for runs on its thread any more.
#[test]
fn a_dead_worker_is_given_no_further_job() {
    for round in 0..10 {
        let clock = ManualClock::new();
        let rt = Runtime::builder()
            .workers(1)
            .clock(clock.clone())
            .attempt_timeout(SECOND)
            .retry(at_once(1))
            .build()
            .unwrap();
        let events = rt.events();
        let (open, wait) = gate();
        let threads = Arc::new(Mutex::new(Vec::<ThreadId>::new()));
        let dead = Arc::new(Mutex::new(None::<ThreadId>));
        let note = {
            let threads = Arc::clone(&threads);
            move || {
                threads.lock().unwrap().push(std::thread::current().id());
                Ok::<_, String>(())
            }
        };
        let (inner, dead_id, inside) = (rt.clone(), Arc::clone(&dead), note.clone());
        let children = Arc::new(AtomicUsize::new(0));
        let ran = Arc::clone(&children);
        let job = rt
            .job(move |_| {
                *dead_id.lock().unwrap() = Some(std::thread::current().id());
                let child = || {
                    let (note, ran) = (inside.clone(), Arc::clone(&ran));
                    inner
                        .submit(move |_| {
                            ran.fetch_add(1, SeqCst);
                            note()
                        })
                        .unwrap()
                };
                // Into this worker's own slot and queue, before it is stuck.
                let (first, second) = (child(), child());
                pass(&wait)?;
                // Dead by now, and it does not know: more of the same, and it waits for all.
                let (third, fourth) = (child(), child());
                for handle in [fourth, third, second, first] {
                    handle.get().unwrap();
                }
                Ok::<_, String>(())
            })
            .submit()
            .unwrap();
        until("it is inside", || dead.lock().unwrap().is_some());
        advance_until(&clock, SECOND, "given up", || rt.stats().replaced_workers == 1);
        assert!(job.get().is_err());
        for _ in 0..round {
            let note = note.clone();
            rt.submit(move |_| note()).unwrap().get().unwrap();
        }
        open.send(()).unwrap();
        until_event(&events, |e| matches!(e, Event::WorkerReturned { .. }));
        assert_eq!(children.load(SeqCst), 4);
        let note = note.clone();
        rt.submit(move |_| note()).unwrap().get().unwrap();
        let threads = threads.lock().unwrap();
        let dead = dead.lock().unwrap().unwrap();
        assert_eq!(threads.len(), 4 + round + 1);
        assert!(threads.iter().all(|thread| *thread != dead));
    }
}

#[test]
fn what_waits_is_counted_by_where_it_waits() {
    let rt = Runtime::builder().workers(1).capacity(10).build().unwrap();
    rt.pause();
    let (open, wait) = gate();
    let mut jobs = Vec::new();
    for priority in [Priority::High, Priority::Normal, Priority::Normal, Priority::Low] {
        let wait = Arc::clone(&wait);
        let job = rt.job(move |_| pass(&wait)).priority(priority);
        jobs.push(job.submit().unwrap());
    }
    for _ in 0..3 {
        jobs.push(rt.job(|_| Ok::<_, String>(())).key("k").submit().unwrap());
    }
    let health = rt.health();
    let queues = health.queues;
    assert_eq!((queues.high, queues.normal, queues.low, queues.local), (1, 3, 1, 0));
    assert_eq!((queues.in_line, queues.held, queues.capacity), (2, Some(7), Some(10)));
    assert_eq!(health.verdict().to_string(), "not ready: paused");
    for _ in 0..3 {
        jobs.push(rt.submit(|_| Ok::<_, String>(())).unwrap());
    }
    assert_eq!(rt.health().verdict().to_string(), "not ready: paused; full");
    drop(open);
    rt.resume();
    for job in jobs {
        job.get().unwrap();
    }
    until("there is room", || rt.health().verdict().is_ready());
    let _ = rt.shutdown(LONG);
    let verdict = rt.health().verdict();
    assert!(verdict.is_live() && !verdict.is_ready());
    assert_eq!(verdict.to_string(), "not ready: shutting down");
    until("the threads are gone", || rt.health().workers.is_empty());
}

#[test]
fn an_attempt_that_takes_unusually_long_makes_its_worker_suspect() {
    let clock = ManualClock::new();
    let rt = Runtime::builder().workers(1).clock(clock.clone()).build().unwrap();
    // What is usual: two seconds, seen by who asks once a second.
    for _ in 0..20 {
        let (open, wait) = gate();
        let (inside, entered) = mpsc::channel();
        let job = rt
            .submit(move |_| {
                inside.send(()).unwrap();
                pass(&wait)
            })
            .unwrap();
        entered.recv_timeout(LONG).unwrap();
        for _ in 0..2 {
            assert_eq!(statuses(&rt.health()), [WorkerStatus::Running]);
            clock.advance(SECOND);
        }
        open.send(()).unwrap();
        job.get().unwrap();
    }
    let (open, wait) = gate();
    let (inside, entered) = mpsc::channel();
    let (step, steps) = mpsc::channel::<mpsc::Sender<()>>();
    let steps = Mutex::new(steps);
    let job = rt
        .submit(move |ctx| {
            inside.send(()).unwrap();
            // A heartbeat whenever it is asked for one.
            while let Ok(done) = steps.lock().unwrap().recv() {
                ctx.heartbeat().unwrap();
                done.send(()).unwrap();
            }
            pass(&wait)
        })
        .unwrap();
    entered.recv_timeout(LONG).unwrap();
    assert_eq!(statuses(&rt.health()), [WorkerStatus::Running]);
    // With heartbeats it may take as long as it likes.
    for _ in 0..50 {
        clock.advance(5 * SECOND);
        let (done, is_done) = mpsc::channel();
        step.send(done).unwrap();
        is_done.recv_timeout(LONG).unwrap();
        assert_eq!(statuses(&rt.health()), [WorkerStatus::Running]);
    }
    clock.advance(200 * SECOND);
    let health = rt.health();
    assert_eq!(statuses(&health), [WorkerStatus::Suspect]);
    assert!(health.workers[0].phi >= 8.0);
    assert_eq!(health.verdict().reasons(), [Reason::WorkersSuspect(1)]);
    assert!(health.verdict().is_ready());
    drop(step);
    open.send(()).unwrap();
    job.get().unwrap();
    until("well again", || rt.health().verdict().reasons().is_empty());
}

#[test]
fn who_asks_all_the_time_disturbs_nobody() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }
    let jobs: usize =
        std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1) * 20_000;
    let rt = Runtime::builder()
        .workers(2)
        .attempt_timeout(Duration::from_secs(100))
        .retry(at_once(2))
        .build()
        .unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    let health = rt.health();
                    for running in health.workers.iter().flat_map(|worker| &worker.running) {
                        assert!(running.job.get() > 0 && running.name.as_deref() != Some(""));
                    }
                }
            });
        }
        for i in 0..jobs {
            let mark = Counted(Arc::clone(&drops));
            let job = move |ctx: &tenure::JobCtx| {
                let _captured = &mark;
                if ctx.attempt() == 1 && i % 16 == 0 { Err("again") } else { Ok(i) }
            };
            let handle = match i % 3 {
                0 => rt.job(job).name("named").submit().unwrap(),
                _ => rt.submit(job).unwrap(),
            };
            if i % 2 == 0 {
                assert_eq!(handle.get().unwrap(), i);
            }
        }
        until_stats(&rt, |stats| stats.succeeded == jobs as u64);
        over.store(true, SeqCst);
    });
    until("every closure is dropped, once", || drops.load(SeqCst) == jobs);
}
