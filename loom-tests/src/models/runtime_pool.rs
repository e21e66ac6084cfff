//! The event count, the seat, the way into the driver, the phase: what keeps a job from being left
//! lying and a thread from oversleeping. A lost wake is a deadlock, which loom reports.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use tenure::runtime::model::{Door, End, Job, Limits, Phase, Pool, Watched, job};

/// Workers around queues that are just counts: what matters is who sleeps.
struct Crew {
    pool: Pool,
    queue: AtomicU32,
    /// A second queue, where the first one's jobs put another.
    other: AtomicU32,
    phase: Phase,
    ran: AtomicU32,
    swept: AtomicU32,
    /// Jobs until the workers may go home.
    left: AtomicU32,
    home: AtomicU32,
}

fn take(queue: &AtomicU32) -> bool {
    let mut seen = queue.load(Ordering::Acquire);
    while seen > 0 {
        match queue.compare_exchange(seen, seen - 1, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => return true,
            Err(now) => seen = now,
        }
    }
    false
}

impl Crew {
    fn new(left: u32) -> Arc<Self> {
        Arc::new(Self {
            pool: Pool::default(),
            queue: AtomicU32::new(0),
            other: AtomicU32::new(0),
            phase: Phase::default(),
            ran: AtomicU32::new(0),
            swept: AtomicU32::new(0),
            left: AtomicU32::new(left),
            home: AtomicU32::new(0),
        })
    }

    fn push(&self, queue: &AtomicU32) {
        // Release is all that a real queue gives.
        queue.fetch_add(1, Ordering::Release);
        self.pool.notify();
        if self.phase.has_begun() {
            self.sweep();
        }
    }

    fn sweep(&self) {
        for queue in [&self.queue, &self.other] {
            while take(queue) {
                self.swept.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn has_work(&self) -> bool {
        self.queue.load(Ordering::Relaxed) > 0 || self.other.load(Ordering::Relaxed) > 0
    }

    fn find(&self) -> bool {
        take(&self.queue) || take(&self.other)
    }

    /// A job; the last one sends everybody home. `long`: the worker waits for that.
    fn run(&self, long: bool) {
        self.ran.fetch_add(1, Ordering::Relaxed);
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.home.store(1, Ordering::Release);
            self.pool.notify_all();
        }
        if long {
            while self.left.load(Ordering::Acquire) != 0 {
                thread::yield_now();
            }
        }
    }

    fn done(&self) -> bool {
        self.home.load(Ordering::Acquire) == 1 || self.phase.has_begun()
    }

    /// A worker, as the real one goes about it.
    fn work(&self, long: bool) {
        loop {
            if self.done() {
                return;
            }
            if self.find() {
                self.run(long);
                continue;
            }
            self.pool.begin_search();
            let found = loop {
                if self.done() {
                    break false;
                }
                if self.find() {
                    break true;
                }
                self.pool.sleep(|| self.has_work() || self.done());
            };
            self.pool.end_search(|| self.has_work());
            if found {
                self.run(long);
            }
        }
    }

    fn ended(&self, jobs: u32) {
        assert_eq!(self.ran.load(Ordering::Relaxed) + self.swept.load(Ordering::Relaxed), jobs);
        assert!(self.pool.is_clear(), "{:?}", self.pool);
    }
}

fn spawn(crew: &Arc<Crew>, f: impl FnOnce(&Crew) + Send + 'static) -> thread::JoinHandle<()> {
    let crew = Arc::clone(crew);
    thread::spawn(move || f(&crew))
}

fn join(threads: Vec<thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Written by one thread, read by others after it.
struct Written(UnsafeCell<u32>);

// SAFETY: loom checks the order of its accesses.
unsafe impl Sync for Written {}
// SAFETY: as above.
unsafe impl Send for Written {}

impl Default for Written {
    fn default() -> Self {
        Self(UnsafeCell::new(0))
    }
}

impl Written {
    fn write(&self) {
        // SAFETY: loom checks that nobody reads before.
        self.0.with_mut(|c| unsafe { *c = 7 });
    }

    fn read(&self) {
        // SAFETY: loom checks that nobody writes any more.
        assert_eq!(self.0.with(|c| unsafe { *c }), 7);
    }
}

/// What a pusher wrote and the driver reads; lost, it leaks, which loom reports.
struct Entry(UnsafeCell<u32>, #[allow(dead_code, reason = "leaks with it")] Arc<()>);

// SAFETY: as for `Written`.
unsafe impl Send for Entry {}

impl Entry {
    fn new(number: u32) -> Self {
        let this = Self(UnsafeCell::new(0), Arc::new(()));
        // SAFETY: ours alone.
        this.0.with_mut(|c| unsafe { *c = number });
        this
    }

    fn read(self) -> u32 {
        // SAFETY: taken; loom checks that the pusher's write came before.
        self.0.with(|c| unsafe { *c })
    }
}

/// A job for a seat.
fn idle() -> Job {
    job(true, |_| Ok(())).0
}

models! { "runtime";
    /// A job is pushed while the worker goes to sleep.
    push_x_sleep [bound: 4] {
        let crew = Crew::new(1);
        join(vec![spawn(&crew, |c| c.work(false)), spawn(&crew, |c| c.push(&c.queue))]);
        crew.ended(1);
    }
    /// Two pushers, one worker.
    push_x_push_x_sleep [bound: 2, once] {
        let crew = Crew::new(2);
        join(vec![
            spawn(&crew, |c| c.work(false)),
            spawn(&crew, |c| c.push(&c.queue)),
            spawn(&crew, |c| c.push(&c.other)),
        ]);
        crew.ended(2);
    }
    /// A worker that searched found something else; a job was pushed meanwhile, perhaps without a wake
    /// because of it: the one that sleeps gets it.
    end_search_x_push_x_sleep [bound: 2] {
        let shared = Arc::new((Pool::default(), AtomicU32::new(0)));
        let (sleeper, searcher, pusher) = (Arc::clone(&shared), Arc::clone(&shared), Arc::clone(&shared));
        let sleeper = thread::spawn(move || {
            let (pool, queue) = &*sleeper;
            pool.begin_search();
            while !take(queue) {
                pool.sleep(|| queue.load(Ordering::Relaxed) > 0);
            }
            pool.end_search(|| false);
        });
        let searcher = thread::spawn(move || {
            let (pool, queue) = &*searcher;
            pool.begin_search();
            pool.end_search(|| queue.load(Ordering::Relaxed) > 0);
        });
        let pusher = thread::spawn(move || {
            let (pool, queue) = &*pusher;
            queue.fetch_add(1, Ordering::Release);
            pool.notify();
        });
        for thread in [sleeper, searcher, pusher] {
            thread.join().unwrap();
        }
        assert!(shared.0.is_clear(), "{:?}", shared.0);
    }
    /// Two jobs, two workers, each busy until both jobs run: the last searcher has to wake the other.
    last_searcher [bound: 1, once] {
        let crew = Crew::new(2);
        join(vec![
            spawn(&crew, |c| c.work(true)),
            spawn(&crew, |c| c.work(true)),
            spawn(&crew, |c| { c.push(&c.queue); c.push(&c.other); }),
        ]);
        crew.ended(2);
    }
    /// The same with two pushers.
    last_searcher_x_pushers [bound: 1, once] {
        let crew = Crew::new(2);
        join(vec![
            spawn(&crew, |c| c.work(true)),
            spawn(&crew, |c| c.work(true)),
            spawn(&crew, |c| c.push(&c.queue)),
            spawn(&crew, |c| c.push(&c.other)),
        ]);
        crew.ended(2);
    }
    /// The phase changes while the worker goes to sleep.
    close_x_sleep [bound: 4] {
        let crew = Crew::new(1);
        join(vec![
            spawn(&crew, |c| c.work(false)),
            spawn(&crew, |c| { c.phase.begin(); c.pool.notify_all(); }),
        ]);
        crew.ended(0);
    }
    /// A job is pushed while the phase changes: somebody sweeps it, or runs it.
    push_x_close {
        let crew = Crew::new(1);
        join(vec![
            spawn(&crew, |c| c.push(&c.queue)),
            spawn(&crew, |c| { c.phase.begin(); c.sweep(); }),
        ]);
        crew.ended(1);
    }
    /// The same for a pusher that rings no worker (a job that waits in line for its key).
    line_up_x_close {
        let crew = Crew::new(1);
        join(vec![
            spawn(&crew, |c| {
                c.queue.fetch_add(1, Ordering::Release);
                if c.phase.sees_begun() { c.sweep(); }
            }),
            spawn(&crew, |c| { c.phase.begin(); c.sweep(); }),
        ]);
        crew.ended(1);
    }
    /// Push, close and a worker.
    push_x_close_x_sleep [bound: 2, once] {
        let crew = Crew::new(1);
        join(vec![
            spawn(&crew, |c| c.work(false)),
            spawn(&crew, |c| c.push(&c.queue)),
            spawn(&crew, |c| { c.phase.begin(); c.sweep(); c.pool.notify_all(); }),
        ]);
        crew.ended(1);
    }
    /// The report is written while somebody waits for it, twice. What was done before the end is
    /// theirs to see.
    finish_x_wait_x_wait [bound: 3] {
        let shared = Arc::new((Phase::default(), Written::default()));
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    assert_eq!(shared.0.wait(), (1, 1, 1));
                    shared.1.read();
                })
            })
            .collect();
        let finisher = Arc::clone(&shared);
        let finisher = thread::spawn(move || {
            finisher.1.write();
            finisher.0.begin();
            finisher.0.done();
            finisher.0.swept(true);
            finisher.0.swept(false);
            finisher.0.finish();
        });
        join(waiters);
        finisher.join().unwrap();
    }
    /// A second shutdown with an earlier deadline, while the driver goes to sleep until the first's.
    hurry_x_driver {
        let shared = Arc::new((Phase::default(), Door::<u32>::default()));
        shared.0.begin();
        let (caller, driver) = (Arc::clone(&shared), Arc::clone(&shared));
        let driver = thread::spawn(move || {
            let (phase, door) = &*driver;
            loop {
                drop(door.take());
                if phase.deadline() == 5 {
                    return;
                }
                door.sleep(u64::MAX, || false);
            }
        });
        let caller = thread::spawn(move || {
            let (phase, door) = &*caller;
            phase.hurry(5);
            phase.begin();
            door.ring();
        });
        driver.join().unwrap();
        caller.join().unwrap();
    }
    /// The pause ends while the worker, who would not touch the queue during it, goes to sleep.
    resume_x_sleep [bound: 3] {
        let shared = Arc::new((Pool::default(), Limits::new(1)));
        shared.1.pause(true, &shared.0);
        assert!(shared.1.is_paused());
        let (caller, worker) = (Arc::clone(&shared), Arc::clone(&shared));
        let worker = thread::spawn(move || {
            let (pool, limits) = &*worker;
            pool.begin_search();
            while limits.is_paused() {
                pool.sleep(|| !limits.is_paused());
            }
            pool.end_search(|| false);
        });
        let caller = thread::spawn(move || caller.1.pause(false, &caller.0));
        worker.join().unwrap();
        caller.join().unwrap();
        assert!(shared.0.is_clear());
    }
    /// Three want the two places, and one gives its place back: nobody is over the limit, and nobody
    /// is refused for good.
    take_x_take_x_give_back [bound: 3] {
        let limits = Arc::new(Limits::new(2));
        assert!(limits.take());
        let taken = Arc::new(AtomicU32::new(1));
        let job = |once: bool| {
            let (limits, taken) = (Arc::clone(&limits), Arc::clone(&taken));
            thread::spawn(move || {
                if limits.take() {
                    assert!(taken.fetch_add(1, Ordering::Relaxed) < 2, "over the limit");
                    if once {
                        taken.fetch_sub(1, Ordering::Relaxed);
                        limits.give_back();
                    }
                }
            })
        };
        join(vec![job(true), job(false)]);
        // Each place is there again, or taken.
        let kept = taken.load(Ordering::Relaxed);
        assert_eq!((kept..3).filter(|_| limits.take()).count() as u32, 2 - kept);
    }

    /// An entry with an earlier deadline is pushed while the driver goes to sleep.
    timer_x_driver {
        let door = Arc::new(Door::default());
        let (pusher, driver) = (Arc::clone(&door), Arc::clone(&door));
        let driver = thread::spawn(move || {
            loop {
                if driver.take().contains(&5) {
                    return;
                }
                driver.sleep(u64::MAX, || false);
            }
        });
        let pusher = thread::spawn(move || pusher.push(5_u32, 10));
        driver.join().unwrap();
        pusher.join().unwrap();
    }
    /// Two pushers, whose entries own something.
    timer_x_timer_x_driver [bound: 2] {
        let door = Arc::new(Door::default());
        let driver = Arc::clone(&door);
        let driver = thread::spawn(move || {
            let mut seen = 0;
            loop {
                seen += driver.take().into_iter().map(Entry::read).sum::<u32>();
                if seen == 3 {
                    return;
                }
                driver.sleep(u64::MAX, || false);
            }
        });
        let pushers = (1..=2).map(|i| {
            let door = Arc::clone(&door);
            thread::spawn(move || door.push(Entry::new(i), 10))
        });
        join(pushers.collect());
        driver.join().unwrap();
    }
    /// Entries are taken by the driver and by a pusher that sweeps after it saw the end: each once.
    timer_x_sweep {
        let shared = Arc::new((Phase::default(), Door::default()));
        let (closer, pusher) = (Arc::clone(&shared), Arc::clone(&shared));
        let read = |entries: Vec<Entry>| entries.into_iter().map(Entry::read).sum::<u32>();
        let pusher = thread::spawn(move || {
            pusher.1.push(Entry::new(1), 10);
            if pusher.0.has_begun() { read(pusher.1.sweep()) } else { 0 }
        });
        let closer = thread::spawn(move || {
            closer.0.begin();
            read(closer.1.sweep())
        });
        assert_eq!(pusher.join().unwrap() + closer.join().unwrap(), 1);
    }
    /// A worker sits down with an earlier deadline while the driver goes to sleep.
    sit_x_driver [bound: 3] {
        let shared = Arc::new((Door::<u32>::default(), Watched::default()));
        let (sitter, driver) = (Arc::clone(&shared), Arc::clone(&shared));
        let idle = idle();
        let driver = thread::spawn(move || {
            let (door, seat) = &*driver;
            loop {
                drop(door.take());
                if seat.deadline() == Some(10) {
                    return;
                }
                door.sleep(u64::MAX, || seat.deadline().is_some());
            }
        });
        let sitter = thread::spawn(move || {
            let (door, seat) = &*sitter;
            seat.sit(&idle, 1, 10);
            door.ring_for(10);
            idle
        });
        driver.join().unwrap();
        let idle = sitter.join().unwrap();
        // It stood all the time, so that the driver had to see it.
        shared.1.stand(idle);
    }
    /// The worker's attempt ends, and the job with it, while the driver holds the seat: if the driver
    /// has the last reference, it frees what the worker did.
    finish_x_pin [bound: 4] {
        let seat = Arc::new(Watched::default());
        let (worker, driver) = (Arc::clone(&seat), Arc::clone(&seat));
        let (first, handle) = job(true, |_| Ok(()));
        drop(handle);
        let driver = thread::spawn(move || {
            driver.look(|_job, _epoch, _deadline| {});
        });
        let worker = thread::spawn(move || {
            let begun = first.begin().unwrap();
            worker.hold(first, 1, 10, |first| assert_eq!(first.go_on(begun, 1), End::Succeeded));
        });
        driver.join().unwrap();
        worker.join().unwrap();
    }
    /// The same, where a third has the last reference: it frees what the worker did, by way of the
    /// driver, who gave the worker's reference up.
    finish_x_pin_x_drop [bound: 3] {
        let seat = Arc::new(Watched::default());
        let (worker, driver) = (Arc::clone(&seat), Arc::clone(&seat));
        let (first, handle) = job(true, |_| Ok(()));
        drop(handle);
        let other = first.clone();
        let driver = thread::spawn(move || {
            driver.look(|_job, _epoch, _deadline| {});
        });
        let worker = thread::spawn(move || {
            let begun = first.begin().unwrap();
            worker.hold(first, 1, 10, |first| assert_eq!(first.go_on(begun, 1), End::Succeeded));
        });
        let other = thread::spawn(move || drop(other));
        driver.join().unwrap();
        worker.join().unwrap();
        other.join().unwrap();
    }
    /// The driver looks at a seat while its worker goes from one job to the next.
    sit_x_pin [bound: 3] {
        let seat = Arc::new(Watched::default());
        let (worker, driver) = (Arc::clone(&seat), Arc::clone(&seat));
        let (first, second) = (idle(), idle());
        let driver = thread::spawn(move || {
            for _ in 0..2 {
                driver.look(|_job, epoch, deadline| assert_eq!(u64::from(epoch) * 10, deadline));
            }
        });
        let worker = thread::spawn(move || {
            worker.hold(first, 1, 10, |_| {});
            worker.hold(second, 2, 20, |_| {});
        });
        driver.join().unwrap();
        worker.join().unwrap();
    }
    /// The same with one job, tried twice.
    sit_again_x_pin [bound: 4] {
        let seat = Arc::new(Watched::default());
        let (worker, driver) = (Arc::clone(&seat), Arc::clone(&seat));
        let first = idle();
        let second = first.clone();
        let driver = thread::spawn(move || {
            driver.look(|_job, epoch, deadline| assert_eq!(u64::from(epoch) * 10, deadline));
        });
        let worker = thread::spawn(move || {
            worker.hold(first, 1, 10, |_| {});
            worker.hold(second, 2, 20, |_| {});
        });
        driver.join().unwrap();
        worker.join().unwrap();
    }
}
