//! The runtime's event count and the job's word, with more workers than loom can explore.

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU32, Ordering};
use shuttle::thread;

use tenure::runtime::model::{Job, Pool, job};

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
            self.pool.end_search();
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
