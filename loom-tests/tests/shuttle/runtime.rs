//! The runtime's event count and the job's word, with more workers than loom can explore.

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

use std::time::Duration;
use tenure::clock::ManualClock;
use tenure::retry::RetryPolicy;
use tenure::runtime::model::{Job, Pool, Staff, job};
use tenure::runtime::{JobError, Runtime};

use crate::schedules::try_schedules;

/// Workers around a queue that is just a count.
struct Crew {
    pool: Pool,
    queue: AtomicU32,
    left: AtomicU32,
}

impl Crew {
    fn take(&self) -> bool {
        let took =
            self.queue.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        took.is_ok()
    }

    fn done(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
    }

    fn run(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.pool.notify_all();
        }
    }

    /// A worker, as the real one goes about it.
    fn work(&self) {
        while !self.done() {
            if self.take() {
                self.run();
                continue;
            }
            self.pool.begin_search();
            let found = loop {
                if self.done() {
                    break false;
                }
                if self.take() {
                    break true;
                }
                self.pool.sleep(|| self.queue.load(Ordering::SeqCst) > 0 || self.done());
            };
            self.pool.end_search(|| self.queue.load(Ordering::SeqCst) > 0);
            if found {
                self.run();
            }
        }
    }
}

fn six_workers() {
    let crew = Arc::new(Crew {
        pool: Pool::default(),
        queue: AtomicU32::new(0),
        left: AtomicU32::new(12),
    });
    let mut threads: Vec<_> = (0..6)
        .map(|_| {
            let crew = crew.clone();
            thread::spawn(move || crew.work())
        })
        .collect();
    threads.extend((0..2).map(|_| {
        let crew = crew.clone();
        thread::spawn(move || {
            for _ in 0..6 {
                crew.queue.fetch_add(1, Ordering::SeqCst);
                crew.pool.notify();
            }
        })
    }));
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(crew.pool.is_clear(), "{:?}", crew.pool);
}

/// A job with two failing attempts, driven, rescued twice, cancelled and read, all at once.
fn everybody_at_one_job() {
    let (job, handle) = job(true, |ctx| if ctx.attempt() < 3 { Err("as told") } else { Ok(7_u32) });
    let steps: [fn(&Job); 4] = [
        |job| _ = job.drive(5),
        |job| _ = job.rescue(1, 5, false),
        |job| _ = job.rescue(2, 5, false),
        |job| _ = job.cancel(false),
    ];
    let mut threads: Vec<_> = steps
        .into_iter()
        .map(|step| {
            let job = job.clone();
            thread::spawn(move || step(&job))
        })
        .collect();
    drop(job);
    threads.push(thread::spawn(move || {
        if let Ok(value) = handle.get() {
            assert_eq!(value, 7);
        }
    }));
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn six_workers_and_two_submitters_leave_nothing_lying() {
    try_schedules("runtime::six_workers", 3_000, six_workers);
}

#[test]
fn everybody_at_one_job_ends_it_once() {
    try_schedules("runtime::one_job", 10_000, everybody_at_one_job);
}

/// A whole runtime: its driver, three workers, two submitters. Jobs with and without a key, one that
/// fails at first, one that waits for another, one that is cancelled; then the end, which everything
/// that was taken in reaches.
fn whole_runtime() {
    let clock = ManualClock::new();
    let runtime = Runtime::builder().workers(3).clock(clock).build().unwrap();
    let runtime = Arc::new(runtime);
    let ran = Arc::new(AtomicU32::new(0));
    let submitters: Vec<_> = (0..2_u64)
        .map(|id| {
            let (runtime, ran) = (runtime.clone(), ran.clone());
            thread::spawn(move || {
                let count = move |ran: &AtomicU32| ran.fetch_add(1, Ordering::SeqCst);
                let mine = ran.clone();
                let plain = runtime.submit(move |_| Ok::<_, &str>(count(&mine))).unwrap();
                let mine = ran.clone();
                let keyed = runtime.job(move |_| Ok::<_, &str>(count(&mine))).key(7_u64);
                let keyed = keyed.submit().unwrap();
                let (mine, inside) = (ran.clone(), Arc::downgrade(&runtime));
                let waits = runtime.submit(move |_| {
                    let runtime = inside.upgrade().expect("it is not dropped before the end");
                    let mine = mine.clone();
                    let inner = runtime.submit(move |_| Ok::<_, &str>(count(&mine))).unwrap();
                    inner.get()
                });
                let cancelled = runtime.submit(|_| Ok::<_, &str>(())).unwrap();
                cancelled.cancel();
                match cancelled.get() {
                    Ok(()) | Err(JobError::Cancelled) => {}
                    Err(other) => panic!("{other}"),
                }
                let retried = runtime
                    .job(move |ctx| if ctx.attempt() == 1 { Err("at first") } else { Ok(id) });
                let retried =
                    retried.retry(RetryPolicy::immediate().max_attempts(3).build().unwrap());
                assert_eq!(retried.submit().unwrap().get().unwrap(), id);
                plain.get().unwrap();
                keyed.get().unwrap();
                waits.unwrap().get().unwrap();
            })
        })
        .collect();
    for submitter in submitters {
        submitter.join().unwrap();
    }
    assert_eq!(ran.load(Ordering::SeqCst), 6);
    let left = runtime.submit(|_| Ok::<_, &str>(())).unwrap();
    let report = runtime.shutdown(Duration::from_secs(1));
    assert!(report.abandoned.is_empty(), "{report:?}");
    match left.get() {
        Ok(()) | Err(JobError::Shutdown) => {}
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn a_whole_runtime_ends_all_it_was_given() {
    try_schedules("runtime::whole", 300, whole_runtime);
}

/// A pool of two, in which three block and go on, stand in for each other and step down.
fn stand_ins() {
    let staff = Arc::new(Staff::new(2));
    let hands: Vec<_> = (0..5).map(|_| staff.hire()).collect();
    let threads: Vec<_> = hands
        .iter()
        .enumerate()
        .map(|(id, hand)| {
            let (staff, hand) = (staff.clone(), hand.clone());
            thread::spawn(move || {
                if id < 2 {
                    // Blocks and goes on, twice; brings a stand-in if the pool is short.
                    for _ in 0..2 {
                        let held = staff.hold(false);
                        let brought = held.short.then(|| staff.hire());
                        thread::yield_now();
                        staff.let_go(false);
                        brought.map(|stand_in| staff.step_down(&stand_in));
                    }
                    return;
                }
                staff.pool.begin_search();
                while !staff.step_down(&hand) {
                    staff.pool.sleep(|| staff.is_surplus());
                }
                staff.pool.end_search(|| false);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(staff.active() >= 2, "never fewer than the pool should have");
}

#[test]
fn stand_ins_come_and_go() {
    try_schedules("runtime::stand_ins", 3_000, stand_ins);
}
