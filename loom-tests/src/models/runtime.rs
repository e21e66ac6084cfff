//! The job's word and cell: each pair of what a worker, the driver, a canceller and a handle may do.
//!
//! The closure owns a loom cell that each attempt reads and its drop writes: the model fails when
//! the drop overlaps an attempt, or does not see one. The value owns another, written by the attempt
//! that made it and read by whoever gets it. Both own a loom `Arc`, so what is never dropped leaks,
//! which loom reports.
//!
//! Bounds: two threads and a waiter are explored at one preemption, without the waiter at three; three
//! threads at two. More takes minutes a model.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use tenure::lease::FencedCell;
use tenure::runtime::model::{End, Job, Keyed, job, task};
use tenure::runtime::{JobError, JobHandle};

/// Something that may be seen and must be dropped once, after all who saw it.
struct Watched {
    cell: UnsafeCell<u32>,
    drops: std::sync::Arc<AtomicU32>,
    _leak: Arc<()>,
}

// SAFETY: the cell is read by many and written by the drop alone; loom checks that.
unsafe impl Sync for Watched {}
// SAFETY: as above.
unsafe impl Send for Watched {}

impl Watched {
    fn new(drops: &std::sync::Arc<AtomicU32>) -> Self {
        let this = Self { cell: UnsafeCell::new(0), drops: drops.clone(), _leak: Arc::new(()) };
        // SAFETY: ours alone.
        this.cell.with_mut(|c| unsafe { *c = 7 });
        this
    }

    fn see(&self) {
        // SAFETY: shared, and the drop comes after; loom checks that.
        assert_eq!(self.cell.with(|c| unsafe { *c }), 7);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // SAFETY: the last one; loom checks that.
        self.cell.with_mut(|c| unsafe { *c = 0 });
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the handle's thread does.
#[derive(Clone, Copy)]
enum Reader {
    /// Waits for the result.
    Await,
    /// Leaves at once.
    Drop,
    /// Has left before anything begins: no thread, for races of three others.
    Gone,
    /// Waits for the result on its own thread, asleep.
    Block,
    /// Asks once, then leaves.
    PollDrop,
    /// Asks with one waker, then waits with another.
    PollAwait,
}

/// A failing attempt: which ones fail (bit `n` for attempt `n + 1`).
#[derive(Clone, Copy)]
struct Fails(u32);

type Op = fn(&Job) -> End;

/// Runs a worker, `others` and a reader against one job, each on a thread of its own.
fn race(fails: Fails, most: u32, others: &[Op], reader: Reader) {
    race_from(true, fails, others, reader, move |job| job.drive(most));
}

fn race_from(
    ready: bool,
    fails: Fails,
    others: &[Op],
    reader: Reader,
    worker: impl FnOnce(&Job) -> End + Send + 'static,
) {
    let closures = std::sync::Arc::new(AtomicU32::new(0));
    let values = std::sync::Arc::new(AtomicU32::new(0));
    let made = std::sync::Arc::new(AtomicU32::new(0));
    let captured = Watched::new(&closures);
    let (value_drops, value_made) = (values.clone(), made.clone());
    let (job, handle) = job(ready, move |ctx| {
        captured.see();
        if fails.0 & (1 << (ctx.attempt() - 1)) == 0 {
            value_made.fetch_add(1, Ordering::Relaxed);
            Ok(Watched::new(&value_drops))
        } else {
            Err("as told")
        }
    });
    let mut threads = Vec::new();
    for &op in others {
        let job = job.clone();
        threads.push(thread::spawn(move || op(&job)));
    }
    let read = if matches!(reader, Reader::Gone) {
        drop(handle);
        None
    } else {
        Some(thread::spawn(move || read(handle, reader)))
    };
    threads.push(thread::spawn(move || worker(&job)));
    let ends: Vec<End> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let seen = read.and_then(|read| read.join().unwrap());
    let ended: Vec<_> =
        ends.iter().filter(|e| matches!(e, End::Succeeded | End::Dead | End::Cancelled)).collect();
    assert_eq!(ended.len(), 1, "one end: {ends:?}");
    if let Some(seen) = seen {
        assert_eq!(seen, *ended[0], "the handle sees that end");
    }
    assert_eq!(closures.load(Ordering::Relaxed), 1, "the closure is dropped once");
    assert_eq!(
        values.load(Ordering::Relaxed),
        made.load(Ordering::Relaxed),
        "each value is dropped once"
    );
}

fn end_of(result: Result<Watched, JobError>) -> End {
    match result {
        Ok(value) => {
            value.see();
            End::Succeeded
        }
        Err(JobError::Dead(_)) => End::Dead,
        Err(JobError::Cancelled | JobError::Shutdown) => End::Cancelled,
        Err(other) => panic!("{other}"),
    }
}

fn read(mut handle: JobHandle<Watched>, reader: Reader) -> Option<End> {
    let poll = |handle: &mut JobHandle<Watched>| {
        let mut first = None;
        loom::future::block_on(std::future::poll_fn(|cx| {
            if let Poll::Ready(result) = Pin::new(&mut *handle).poll(cx) {
                first = Some(result);
            }
            Poll::Ready(())
        }));
        first
    };
    match reader {
        Reader::Await => Some(end_of(loom::future::block_on(handle))),
        Reader::Block => Some(end_of(handle.get())),
        Reader::Drop | Reader::Gone => None,
        Reader::PollDrop => poll(&mut handle).map(end_of),
        Reader::PollAwait => match poll(&mut handle) {
            Some(result) => Some(end_of(result)),
            None => Some(end_of(loom::future::block_on(handle))),
        },
    }
}

const OK: Fails = Fails(0);
const ONCE: Fails = Fails(1);
const ALWAYS: Fails = Fails(u32::MAX);

fn cancel(job: &Job) -> End {
    job.cancel(false)
}

/// A second entry of the same job, left over from somewhere.
fn entry(job: &Job) -> End {
    job.drive(2)
}

fn rescue(job: &Job) -> End {
    job.rescue(1, 2, false)
}

fn rescue_last(job: &Job) -> End {
    job.rescue(1, 1, false)
}

fn heartbeat(job: &Job) -> End {
    job.heartbeat(1);
    End::Nothing
}

/// A timer that was made for the first attempt's retry, or for a job that is not there any more.
fn fire(job: &Job) -> End {
    job.fire(1, 2)
}

/// As the end of a shutdown: whatever it is in, it ends.
fn shutdown(job: &Job) -> End {
    match job.cancel(true) {
        End::Requested => {
            // Whichever attempt runs.
            for epoch in 1..=3 {
                let end = job.rescue(epoch, 1, true);
                if end != End::Nothing {
                    return end;
                }
            }
            End::Nothing
        }
        end => end,
    }
}

/// An attempt is inside, and stays there until `others` are done; a reader waits.
fn race_inside(others: &[Op], reader: Reader) {
    let drops = std::sync::Arc::new(AtomicU32::new(0));
    let captured = Watched::new(&drops);
    let (job, handle) = job(true, move |_| {
        captured.see();
        Ok(Watched::new(&std::sync::Arc::default()))
    });
    let begun = job.begin().unwrap();
    let threads: Vec<_> = others
        .iter()
        .map(|&op| {
            let job = job.clone();
            thread::spawn(move || op(&job))
        })
        .collect();
    let read = thread::spawn(move || read(handle, reader));
    let mut ends: Vec<End> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let seen = read.join().unwrap();
    ends.push(job.go_on(begun, 1));
    let ended: Vec<_> =
        ends.iter().filter(|e| matches!(e, End::Succeeded | End::Dead | End::Cancelled)).collect();
    assert_eq!(ended.len(), 1, "one end: {ends:?}");
    assert!(seen.is_none_or(|seen| seen == *ended[0]), "the handle sees that end");
    assert_eq!(drops.load(Ordering::Relaxed), 1, "the closure is dropped once");
}

/// Written by one thread, read by another after it.
struct Data(UnsafeCell<u32>);

// SAFETY: loom checks the order of its accesses.
unsafe impl Sync for Data {}
// SAFETY: as above.
unsafe impl Send for Data {}

impl Data {
    /// One thread at a time, each after the last one.
    fn add(&self) {
        // SAFETY: loom checks that.
        self.0.with_mut(|c| unsafe { *c += 1 });
    }
}

/// A task that is pending until `flag` is set, its waker, and somebody else.
fn race_task(other: Option<Op>) {
    let flag = Arc::new(loom::sync::atomic::AtomicBool::new(false));
    let seen = Arc::clone(&flag);
    let polls = Data(UnsafeCell::new(0));
    let (job, handle) = task(move || {
        polls.add();
        // Relaxed: that the poll after the wake sees it has to come from the wake. A poll that does
        // not see it suspends the task for ever, and the model counts no end.
        seen.load(loom::sync::atomic::Ordering::Relaxed).then_some(7)
    });
    let mut threads = Vec::new();
    if let Some(op) = other {
        let job = job.clone();
        threads.push(thread::spawn(move || op(&job)));
    }
    let waker = job.clone();
    threads.push(thread::spawn(move || {
        flag.store(true, loom::sync::atomic::Ordering::Relaxed);
        waker.wake()
    }));
    threads.push(thread::spawn(move || job.drive(1)));
    let ends: Vec<End> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let ended: Vec<_> =
        ends.iter().filter(|e| matches!(e, End::Succeeded | End::Cancelled)).collect();
    assert_eq!(ended.len(), 1, "one end: {ends:?}");
    match loom::future::block_on(handle) {
        Ok(value) => assert_eq!((value, *ended[0]), (7, End::Succeeded)),
        Err(_) => assert_eq!(*ended[0], End::Cancelled),
    }
}

models! { "runtime";
    /// A task is woken before, while or after it is polled.
    wake_x_poll [bound: 3] { race_task(None); }
    /// The same, and it is cancelled.
    wake_x_poll_x_cancel [bound: 2] { race_task(Some(cancel)); }
    /// The same, and the runtime shuts down.
    wake_x_poll_x_shutdown [bound: 2] { race_task(Some(shutdown)); }
    /// A pending task is cancelled while it is polled: whoever ends it finds the waker that was left.
    suspend_x_cancel_x_await [bound: 2] {
        let (job, handle) = task(|| None::<u32>);
        let begun = job.begin().unwrap();
        let (canceller, worker) = (job.clone(), job);
        let canceller = thread::spawn(move || canceller.cancel(false));
        let reader = thread::spawn(move || loom::future::block_on(handle).map(|_| ()).unwrap_err());
        let end = thread::spawn(move || worker.go_on(begun, 1)).join().unwrap();
        let asked = canceller.join().unwrap();
        assert!(matches!(reader.join().unwrap(), JobError::Cancelled));
        assert_eq!([end, asked].iter().filter(|e| **e == End::Cancelled).count(), 1);
    }
    /// The result of a worker and a thread that sleeps until it comes.
    finish_x_block [bound: 3, std_arc] { race(OK, 1, &[], Reader::Block); }
    /// A cancelled attempt is given up while a waker is left.
    rescue_x_cancel_x_await [bound: 2] { race_inside(&[cancel, rescue_last], Reader::Await); }
    /// The shutdown gives an attempt up while a waker is left, and comes and goes.
    shutdown_x_poll_await [bound: 3] { race_inside(&[shutdown], Reader::PollAwait); }
    /// A late attempt leaves while a cancelled job is given up: one of the two drops the closure, after
    /// both.
    rescue_x_late_x_cancel [bound: 3] {
        let drops = std::sync::Arc::new(AtomicU32::new(0));
        let captured = Watched::new(&drops);
        let (job, handle) = job(true, move |_| {
            captured.see();
            Ok(())
        });
        drop(handle);
        let late = job.begin().unwrap();
        let next = job.take_over(late.epoch, || {}).unwrap();
        let (driver, canceller, worker) = (job.clone(), job.clone(), job.clone());
        let driver = thread::spawn(move || driver.judge(next.epoch));
        let canceller = thread::spawn(move || canceller.cancel(false));
        let worker = thread::spawn(move || worker.go_on(late, 1));
        driver.join().unwrap();
        canceller.join().unwrap();
        assert_eq!(worker.join().unwrap(), End::Nothing);
        assert_eq!(job.go_on(next, 1), End::Nothing);
        assert_eq!(drops.load(Ordering::Relaxed), 1, "the closure is dropped once");
    }
    /// Life that was shown is heard.
    heartbeat_x_judge {
        let (job, handle) = job(true, |_| Ok(()));
        drop(handle);
        let begun = job.begin().unwrap();
        let (shows, judges) = (job.clone(), job.clone());
        let shows = thread::spawn(move || shows.heartbeat(begun.epoch));
        let judges = thread::spawn(move || judges.judge(begun.epoch));
        let (shown, alive) = (shows.join().unwrap(), judges.join().unwrap());
        // Shown before the driver looked: alive. After it: too late, unless it was alive.
        assert_eq!(shown, alive);
        job.go_on(begun, 1);
    }
    /// What was done before a cancellation is there for whoever is told of it.
    cancel_x_read {
        let data = std::sync::Arc::new(Data(UnsafeCell::new(0)));
        let (job, handle) = job(false, |_| Ok(()));
        let (mine, theirs) = (data.clone(), data);
        let canceller = thread::spawn(move || {
            // SAFETY: nobody reads before the cancellation; loom checks that.
            mine.0.with_mut(|c| unsafe { *c = 7 });
            job.cancel(false)
        });
        let reader = thread::spawn(move || {
            let mut handle = handle;
            if let Some(result) = handle.try_get() {
                assert!(matches!(result, Err(JobError::Cancelled)));
                // SAFETY: cancelled; loom checks that the write came before.
                assert_eq!(theirs.0.with(|c| unsafe { *c }), 7);
            }
        });
        assert_eq!(canceller.join().unwrap(), End::Cancelled);
        reader.join().unwrap();
    }
    /// A late attempt writes beside its successor: a cell that takes tokens has the last word right.
    late_write_x_write [bound: 3] {
        let cell = std::sync::Arc::new(FencedCell::new(0_u32));
        let written = cell.clone();
        let (job, handle) = job(true, move |ctx| {
            if let Ok(permit) = ctx.check() {
                let attempt = ctx.attempt();
                let _fenced = written.write(permit.token(), |last| {
                    assert!(*last <= attempt, "a late write");
                    *last = attempt;
                });
            }
            Ok(())
        });
        drop(handle);
        let begun = job.begin().unwrap();
        let (late, driver) = (job.clone(), job);
        let late = thread::spawn(move || late.go_on(begun, 1));
        let next = thread::spawn(move || {
            driver.take_over(begun.epoch, || {}).map(|next| driver.go_on(next, 2))
        });
        let (first, second) = (late.join().unwrap(), next.join().unwrap());
        let last = cell.read(|last| *last).unwrap();
        match second {
            // It was current to its end, and there was no other.
            Some(end) => assert_eq!((first, end, last), (End::Nothing, End::Succeeded, 2)),
            None => assert_eq!((first, last), (End::Succeeded, 1)),
        }
    }
    /// A late attempt asks for its key's lease after it was given up: it gets none, or one that its
    /// successor's outranks and ends.
    late_lease_x_lease [bound: 2, std_arc] {
        let keyed = Arc::new(Keyed::default());
        let (job, handle) = job(true, |_| Ok(()));
        drop(handle);
        let begun = job.begin().unwrap();
        let (late, driver) = ((job.clone(), keyed.clone()), (job.clone(), keyed.clone()));
        let late = thread::spawn(move || late.1.lease(&late.0, begun.epoch));
        let next = thread::spawn(move || {
            let (job, keyed) = driver;
            let next = job.take_over(begun.epoch, || keyed.revoke()).unwrap();
            (next, keyed.lease(&job, next.epoch).expect("it is the current one"))
        });
        let late = late.join().unwrap();
        let (next, granted) = next.join().unwrap();
        assert!(granted.is_valid());
        assert_eq!(keyed.latest(), granted.number(), "what a rescue would revoke");
        if let Some(late) = late {
            assert!(late.number() < granted.number());
            assert!(!late.is_valid());
        }
        drop(granted);
        assert_eq!(job.go_on(next, 2), End::Succeeded);
        assert_eq!(job.go_on(begun, 2), End::Nothing);
    }
    /// A job's end is counted once, by whoever is first.
    count_x_count {
        let (job, handle) = job(false, |_| Ok(()));
        drop(handle);
        job.cancel(false);
        let count = || {
            let job = job.clone();
            thread::spawn(move || job.count())
        };
        let (a, b) = (count(), count());
        assert!(a.join().unwrap() != b.join().unwrap());
    }
    /// The key becomes free, and the waiter of the whole.
    resume_x_await [bound: 3] { race_from(false, OK, &[], Reader::Await, |job| job.resume(1)); }
    /// The result of a worker and whoever waits for it.
    finish_x_await [bound: 3] { race(OK, 1, &[], Reader::Await); }
    /// The result has nobody to take it, or just lost it.
    finish_x_drop { race(OK, 1, &[], Reader::Drop); }
    /// A waker is left, and its owner leaves.
    finish_x_poll_drop [bound: 3] { race(OK, 1, &[], Reader::PollDrop); }
    /// A waker is replaced by another.
    finish_x_poll_await [bound: 3] { race(OK, 1, &[], Reader::PollAwait); }
    /// The error of the last attempt.
    die_x_await [bound: 3] { race(ALWAYS, 1, &[], Reader::Await); }
    /// The error has nobody to take it.
    die_x_drop { race(ALWAYS, 1, &[], Reader::Drop); }
    /// A waker is left, and its owner leaves, while the job dies.
    die_x_poll_drop [bound: 3] { race(ALWAYS, 1, &[], Reader::PollDrop); }
    /// A retry, and the waiter of the whole.
    fail_x_await [bound: 3] { race(ONCE, 2, &[], Reader::Await); }
    /// A retry that nobody waits for.
    fail_x_drop { race(ONCE, 2, &[], Reader::Drop); }

    /// Two entries of one job: one attempt.
    start_x_start [bound: 1] { race(OK, 1, &[entry], Reader::Await); }
    /// The same, deeper, with nobody to tell.
    start_x_start_alone [bound: 3] { race(OK, 1, &[entry], Reader::Gone); }
    /// Two entries, and an attempt that fails.
    start_x_fail [bound: 2] { race(ONCE, 2, &[entry], Reader::Drop); }
    /// Cancelled before, while or after it runs.
    cancel_x_finish [bound: 1] { race(OK, 1, &[cancel], Reader::Await); }
    /// The same, deeper, with nobody to tell.
    cancel_x_finish_alone [bound: 3] { race(OK, 1, &[cancel], Reader::Gone); }
    /// The same, and nobody waits.
    cancel_x_finish_x_drop [bound: 2] { race(OK, 1, &[cancel], Reader::Drop); }
    /// Cancelled while a waker comes and goes.
    cancel_x_finish_x_poll_drop [bound: 1] { race(OK, 1, &[cancel], Reader::PollDrop); }
    /// Cancelled before, while or after it fails, is in Backoff, runs again.
    cancel_x_fail_x_fire [bound: 1] { race(ONCE, 2, &[cancel], Reader::Await); }
    /// The same, deeper, with nobody to tell.
    cancel_x_fail_x_fire_alone [bound: 3] { race(ONCE, 2, &[cancel], Reader::Gone); }
    /// Cancelled while it dies.
    cancel_x_die [bound: 1] { race(ALWAYS, 1, &[cancel], Reader::Await); }
    /// The same, deeper, with nobody to tell.
    cancel_x_die_alone [bound: 3] { race(ALWAYS, 1, &[cancel], Reader::Gone); }
    /// Cancelled twice.
    cancel_x_cancel [bound: 2] { race(OK, 1, &[cancel, cancel], Reader::Gone); }
    /// Rescued while it comes back with a value: one of the two attempts' values is the result.
    rescue_x_finish [bound: 1] { race(OK, 2, &[rescue], Reader::Await); }
    /// The same, deeper, with nobody to tell.
    rescue_x_finish_alone [bound: 3] { race(OK, 2, &[rescue], Reader::Gone); }
    /// The same, and nobody waits.
    rescue_x_finish_x_drop [bound: 2] { race(OK, 2, &[rescue], Reader::Drop); }
    /// Rescued while it fails.
    rescue_x_fail [bound: 1] { race(ONCE, 2, &[rescue], Reader::Await); }
    /// The same, deeper, with nobody to tell.
    rescue_x_fail_alone [bound: 3] { race(ONCE, 2, &[rescue], Reader::Gone); }
    /// Rescued from its last attempt while it comes back with a value.
    rescue_last_x_finish [bound: 1] { race(OK, 1, &[rescue_last], Reader::Await); }
    /// The same, deeper, with nobody to tell.
    rescue_last_x_finish_alone [bound: 3] { race(OK, 1, &[rescue_last], Reader::Gone); }
    /// The same, and nobody waits.
    rescue_last_x_finish_x_drop [bound: 2] { race(OK, 1, &[rescue_last], Reader::Drop); }
    /// Rescued from its last attempt while it dies by itself.
    rescue_last_x_die [bound: 1] { race(ALWAYS, 1, &[rescue_last], Reader::PollDrop); }
    /// Rescued and cancelled while it comes back.
    rescue_x_cancel_x_finish [bound: 2] { race(OK, 2, &[rescue, cancel], Reader::Gone); }
    /// Rescued and cancelled while it fails.
    rescue_x_cancel_x_fail [bound: 2] { race(ALWAYS, 2, &[rescue, cancel], Reader::Gone); }
    /// Life is shown while the driver judges: it is heard, or too late.
    heartbeat_x_rescue_x_finish [bound: 2] { race(OK, 2, &[heartbeat, rescue], Reader::Gone); }
    /// Life is shown while the attempt ends.
    heartbeat_x_finish [bound: 1] { race(OK, 1, &[heartbeat], Reader::Await); }
    /// The same, deeper, with nobody to tell.
    heartbeat_x_finish_alone [bound: 3] { race(OK, 1, &[heartbeat], Reader::Gone); }
    /// Life is shown while the attempt fails.
    heartbeat_x_fail [bound: 2] { race(ONCE, 2, &[heartbeat], Reader::Drop); }
    /// Life is shown while it is cancelled.
    heartbeat_x_cancel [bound: 2] { race(ONCE, 2, &[heartbeat, cancel], Reader::Gone); }
    /// Two timers for one Backoff.
    fire_x_fire [bound: 1] { race(ONCE, 2, &[fire], Reader::Await); }
    /// The same, deeper, with nobody to tell.
    fire_x_fire_alone [bound: 3] { race(ONCE, 2, &[fire], Reader::Gone); }
    /// A stale timer of the first Backoff, and a rescue that makes another.
    fire_x_rescue [bound: 2] { race(ONCE, 2, &[fire, rescue], Reader::Gone); }
    /// A stale timer, and a cancellation.
    fire_x_cancel [bound: 2] { race(ONCE, 2, &[fire, cancel], Reader::Gone); }
    /// Two rescues of one attempt.
    rescue_x_rescue [bound: 2] { race(OK, 2, &[rescue, rescue], Reader::Gone); }
    /// The shutdown and an attempt that comes back in time, or not.
    shutdown_x_finish [bound: 1] { race(OK, 1, &[shutdown], Reader::Await); }
    /// The same, deeper, with nobody to tell.
    shutdown_x_finish_alone [bound: 3] { race(OK, 1, &[shutdown], Reader::Gone); }
    /// The same, and nobody waits.
    shutdown_x_finish_x_drop [bound: 2] { race(OK, 1, &[shutdown], Reader::Drop); }
    /// The shutdown and an attempt that fails.
    shutdown_x_fail [bound: 1] { race(ONCE, 2, &[shutdown], Reader::Await); }
    /// The same, deeper, with nobody to tell.
    shutdown_x_fail_alone [bound: 3] { race(ONCE, 2, &[shutdown], Reader::Gone); }
    /// The shutdown and a rescue.
    shutdown_x_rescue [bound: 2] { race(OK, 2, &[shutdown, rescue], Reader::Gone); }
    /// The shutdown and a cancellation.
    shutdown_x_cancel [bound: 2] { race(OK, 1, &[shutdown, cancel], Reader::Gone); }
    /// The key becomes free while the job is cancelled in line.
    resume_x_cancel [bound: 1] {
        race_from(false, OK, &[cancel], Reader::Await, |job| job.resume(1));
    }
    /// The key becomes free while the shutdown sweeps.
    resume_x_shutdown [bound: 2] {
        race_from(false, OK, &[shutdown], Reader::Drop, |job| job.resume(1));
    }
}
