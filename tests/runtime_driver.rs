//! The runtime's driver when foreign code holds it up: timers, rescues and the shutdown go on.

use std::cell::Cell;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tenure::clock::{AdvanceListener, Clock, ManualClock, MonotonicClock, Timestamp};
use tenure::retry::{Jitter, RetryPolicy};
use tenure::runtime::{Event, JobError, JobHandle, Runtime, blocking};

const SEC: Duration = Duration::from_secs(1);
/// Longer than any test may take; only ever waited for by a test that fails.
const LONG: Duration = Duration::from_secs(60);

/// Something that hangs when it is told to, and says so.
struct Trap {
    sprung: Mutex<Option<(Sender<()>, Receiver<()>)>>,
}

impl Trap {
    /// The trap, what says that somebody is in it, and what lets them out when it is dropped.
    fn new() -> (Arc<Self>, Receiver<()>, Sender<()>) {
        let (says, caught) = channel();
        let (release, held) = channel();
        (Arc::new(Self { sprung: Mutex::new(Some((says, held))) }), caught, release)
    }

    /// Holds the first one who comes.
    fn enter(&self) {
        let sprung = self.sprung.lock().unwrap().take();
        if let Some((says, held)) = sprung {
            says.send(()).unwrap();
            let _ = held.recv();
        }
    }
}

impl Wake for Trap {
    fn wake(self: Arc<Self>) {
        self.enter();
    }
}

/// Says that it was woken.
struct Ringer(Mutex<Sender<()>>);

impl Wake for Ringer {
    fn wake(self: Arc<Self>) {
        self.0.lock().unwrap().send(()).unwrap();
    }
}

fn value<T: Send + 'static>(job: &mut JobHandle<T>) -> Result<T, JobError> {
    job.get_timeout(LONG).expect("the job ends")
}

/// Moves the clock on until it has an answer: a driver that looks late gives grace, so one step may not
/// be enough.
fn step_until<T>(clock: &ManualClock, step: Duration, mut what: impl FnMut() -> Option<T>) -> T {
    let real = MonotonicClock::new();
    let begun = real.now();
    loop {
        clock.advance(step);
        if let Some(answer) = what() {
            return answer;
        }
        assert!(real.now().saturating_since(begun) < LONG);
        std::thread::yield_now();
    }
}

/// All that hung are back, and the runtime ends.
fn ends_clean(rt: &Runtime) {
    let real = MonotonicClock::new();
    let begun = real.now();
    while rt.stats().stuck_workers > 0 {
        assert!(real.now().saturating_since(begun) < LONG);
        std::thread::yield_now();
    }
    assert!(rt.shutdown(LONG).abandoned.is_empty());
}

fn retry(attempts: u32) -> RetryPolicy {
    RetryPolicy::fixed(SEC).jitter(Jitter::None).max_attempts(attempts).build().unwrap()
}

/// A runtime with one worker whose listener hangs on the first event that fits, and a job whose first
/// attempt hangs.
fn trapped(
    fits: fn(&Event) -> bool,
) -> (Runtime, ManualClock, JobHandle<u32>, Receiver<()>, Sender<()>, Sender<()>) {
    let clock = ManualClock::new();
    let (trap, caught, release) = Trap::new();
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .attempt_timeout(SEC)
        .retry(retry(3))
        .on_event(move |event| {
            if fits(event) {
                trap.enter();
            }
        })
        .build()
        .unwrap();
    let (first, begun, end_first) = Trap::new();
    let job = rt
        .submit(move |ctx| {
            if ctx.attempt() == 1 {
                first.enter();
            }
            Ok::<_, String>(ctx.attempt())
        })
        .unwrap();
    begun.recv_timeout(LONG).unwrap();
    (rt, clock, job, caught, release, end_first)
}

/// What the driver is about to tell, it has done: the pool has a new worker, the job its next attempt.
#[test]
fn a_listener_that_hangs_on_the_driver_holds_up_neither_the_rescue_nor_the_timers() {
    let told: [fn(&Event) -> bool; 4] = [
        |event| matches!(event, Event::DriverLate { .. }),
        |event| matches!(event, Event::AttemptFailed { .. }),
        |event| matches!(event, Event::RetryScheduled { .. }),
        |event| matches!(event, Event::WorkerStuck { .. }),
    ];
    for fits in told {
        let (rt, clock, mut job, caught, release, end_first) = trapped(fits);
        // Further than the deadline, so that the driver is late, too.
        step_until(&clock, SEC * 3 / 2, || caught.try_recv().ok());
        let mut delayed = rt.job(|_| Ok::<_, String>(7)).delay(SEC).submit().unwrap();
        let ended = step_until(&clock, SEC, || job.get_timeout(Duration::from_millis(5)));
        assert_eq!(ended.unwrap(), 2);
        let ended = step_until(&clock, SEC, || delayed.get_timeout(Duration::from_millis(5)));
        assert_eq!(ended.unwrap(), 7);
        assert_eq!(rt.stats().timed_out, 1, "judged once");
        drop((release, end_first));
        ends_clean(&rt);
    }
}

/// A job that has no more attempts has its end before anybody is told.
#[test]
fn a_listener_that_hangs_holds_up_no_job_that_dies() {
    let clock = ManualClock::new();
    let (trap, caught, release) = Trap::new();
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .attempt_timeout(SEC)
        .retry(retry(1))
        .on_event(move |event| {
            if let Event::AttemptFailed { .. } = event {
                trap.enter();
            }
        })
        .build()
        .unwrap();
    let (hang, begun, end_job) = Trap::new();
    let mut job = rt
        .submit(move |_| {
            hang.enter();
            Ok::<_, String>(())
        })
        .unwrap();
    begun.recv_timeout(LONG).unwrap();
    step_until(&clock, SEC, || caught.try_recv().ok());
    assert!(matches!(value(&mut job), Err(JobError::Dead(_))));
    assert_eq!(rt.dead_letters().len(), 1);
    drop((release, end_job));
    ends_clean(&rt);
}

/// The waker of a job that dies on the driver hangs.
#[test]
fn a_waker_that_hangs_on_the_driver_holds_up_no_timer() {
    let clock = ManualClock::new();
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock.clone())
        .attempt_timeout(SEC)
        .retry(retry(1))
        .build()
        .unwrap();
    let (hang, begun, end_job) = Trap::new();
    let mut job = rt
        .submit(move |_| {
            hang.enter();
            Ok::<_, String>(())
        })
        .unwrap();
    begun.recv_timeout(LONG).unwrap();
    let (trap, caught, release) = Trap::new();
    let waker = Waker::from(trap);
    let mut poll = || {
        let poll = std::pin::Pin::new(&mut job).poll(&mut Context::from_waker(&waker));
        matches!(poll, Poll::Ready(Err(JobError::Dead(_))))
    };
    assert!(!poll());
    step_until(&clock, SEC, || caught.try_recv().ok());
    let mut delayed = rt.job(|_| Ok::<_, String>(7)).delay(SEC).submit().unwrap();
    let ended = step_until(&clock, SEC, || delayed.get_timeout(Duration::from_millis(5)));
    assert_eq!(ended.unwrap(), 7);
    assert!(poll());
    drop((release, end_job));
    ends_clean(&rt);
}

/// The shutdown is seen through by whoever drives then.
#[test]
fn a_shutdown_ends_though_a_listener_holds_the_driver() {
    let (rt, clock, mut job, caught, release, end_first) =
        trapped(|event| matches!(event, Event::WorkerStuck { .. }));
    step_until(&clock, SEC, || caught.try_recv().ok());
    let waits: Vec<_> = (0..100)
        .map(|_| rt.job(|_| Ok::<_, String>(())).delay(Duration::MAX).submit().unwrap())
        .collect();
    let report = rt.shutdown(LONG);
    assert_eq!(report.cancelled, 100);
    // The attempt that was given up long ago is still there.
    assert_eq!(report.abandoned.len(), 1);
    for mut job in waits {
        assert!(matches!(value(&mut job), Err(JobError::Shutdown)));
    }
    let _ = value(&mut job);
    drop((release, end_first));
}

/// Every worker hangs; a timer comes due; a stuck worker's successor runs its job.
#[test]
fn a_timer_that_is_due_while_all_workers_hang_is_run_by_their_successors() {
    let clock = ManualClock::new();
    let rt = Runtime::builder()
        .workers(2)
        .clock(clock.clone())
        .attempt_timeout(10 * SEC)
        .retry(retry(1))
        .build()
        .unwrap();
    let mut hangs = Vec::new();
    for _ in 0..2 {
        let (hang, begun, release) = Trap::new();
        let job = rt
            .submit(move |_| {
                hang.enter();
                Ok::<_, String>(())
            })
            .unwrap();
        begun.recv_timeout(LONG).unwrap();
        hangs.push((job, release));
    }
    let mut due = rt.job(|_| Ok::<_, String>(7)).delay(SEC).submit().unwrap();
    let ended = step_until(&clock, SEC, || due.get_timeout(Duration::from_millis(5)));
    assert_eq!(ended.unwrap(), 7);
}

/// Every worker is in a section that blocks: the timer's job runs at its time, on a stand-in.
#[test]
fn a_timer_that_is_due_while_all_workers_block_is_run_by_a_stand_in() {
    let clock = ManualClock::new();
    let rt = Runtime::builder().workers(2).clock(clock.clone()).build().unwrap();
    let mut sections = Vec::new();
    for _ in 0..2 {
        let (section, begun, release) = Trap::new();
        let block = move |_: &_| {
            blocking(|| section.enter());
            Ok::<_, String>(())
        };
        let job = rt.submit(block).unwrap();
        begun.recv_timeout(LONG).unwrap();
        sections.push((job, release));
    }
    let mut due = rt.job(|_| Ok::<_, String>(7)).delay(SEC).submit().unwrap();
    clock.advance(SEC);
    assert_eq!(value(&mut due).unwrap(), 7);
    for (mut job, release) in sections {
        drop(release);
        value(&mut job).unwrap();
    }
}

/// The process stands still for five seconds, by its clock, with attempts of every age: none is made
/// twice, nobody is given up, and all end.
#[test]
fn a_pause_of_five_seconds_gives_nobody_up() {
    let clock = ManualClock::new();
    let rt = Runtime::builder()
        .workers(3)
        .clock(clock.clone())
        .attempt_timeout(SEC)
        .retry(retry(3))
        .build()
        .unwrap();
    let events = rt.events();
    let runs = Arc::new(AtomicUsize::new(0));
    let mut jobs = Vec::new();
    for _ in 0..3 {
        let (hang, begun, release) = Trap::new();
        let count = Arc::clone(&runs);
        let job = rt
            .submit(move |_| {
                count.fetch_add(1, SeqCst);
                hang.enter();
                Ok::<_, String>(())
            })
            .unwrap();
        begun.recv_timeout(LONG).unwrap();
        clock.advance(SEC / 5);
        jobs.push((job, release));
    }
    let mut delayed = rt.job(|_| Ok::<_, String>(7)).delay(SEC / 2).submit().unwrap();
    clock.advance(5 * SEC);
    // It comes due in the pause, and waits for a worker; the lag is told when all seats were seen.
    while !matches!(events.next_timeout(LONG).expect("it is told"), Event::DriverLate { .. }) {}
    for (mut job, release) in jobs {
        drop(release);
        value(&mut job).unwrap();
    }
    assert_eq!(value(&mut delayed).unwrap(), 7);
    let stats = rt.stats();
    assert_eq!((runs.load(SeqCst), stats.timed_out, stats.replaced_workers), (3, 0, 0));
}

/// The lag that is told after jobs that came due so much before the driver looked, one after another.
fn lags_told(builder: tenure::runtime::Builder, lags: [Duration; 3]) -> Vec<Duration> {
    let clock = ManualClock::new();
    let rt = builder.workers(1).clock(clock.clone()).build().unwrap();
    let events = rt.events();
    for lag in lags {
        let due = clock.now().saturating_add(SEC);
        let mut job = rt.job(|_| Ok::<_, String>(())).run_at(due).submit().unwrap();
        // It knows when it is to wake up.
        let real = MonotonicClock::new();
        let begun = real.now();
        while rt.health().driver.sleeps_until != Some(due) {
            assert!(real.now().saturating_since(begun) < LONG);
            std::thread::yield_now();
        }
        clock.advance(SEC + lag);
        value(&mut job).unwrap();
    }
    ends_clean(&rt);
    // It has ended, and with it the subscription.
    let told = events.filter_map(|event| match event {
        Event::DriverLate { lag } => Some(lag),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_lag_is_told_from_the_threshold_on() {
    let (short, long) = (Duration::from_millis(10), SEC / 2);
    let almost = short - Duration::from_nanos(1);
    let lags = [almost, short, long];
    assert_eq!(lags_told(Runtime::builder(), lags), [short, long]);
    assert_eq!(lags_told(Runtime::builder().driver_late_after(long), lags), [long]);
    assert_eq!(lags_told(Runtime::builder().driver_late_after(Duration::ZERO), lags), lags);
    assert!(lags_told(Runtime::builder().driver_late_after(Duration::MAX), lags).is_empty());
}

/// The listener hangs on the end of an attempt that the shutdown does not wait for: the job has its end,
/// and the report counts it once.
#[test]
fn a_listener_that_hangs_on_an_abandoned_job_leaves_the_report_true() {
    let (trap, caught, release) = Trap::new();
    let rt = Runtime::builder()
        .workers(1)
        .on_event(move |event| {
            if let Event::JobCancelled { .. } = event {
                trap.enter();
            }
        })
        .build()
        .unwrap();
    let (hang, begun, end_job) = Trap::new();
    let mut job = rt
        .submit(move |_| {
            hang.enter();
            Ok::<_, String>(())
        })
        .unwrap();
    begun.recv_timeout(LONG).unwrap();
    let report = rt.shutdown(Duration::ZERO);
    assert_eq!((report.abandoned.len(), report.requeued, report.cancelled), (1, 0, 0));
    caught.recv_timeout(LONG).unwrap();
    assert!(matches!(value(&mut job), Err(JobError::Shutdown)));
    drop((release, end_job));
}

/// The same for a job that waits.
#[test]
fn a_listener_that_hangs_on_a_cancelled_job_holds_up_no_end() {
    let clock = ManualClock::new();
    let (trap, caught, release) = Trap::new();
    let rt = Runtime::builder()
        .workers(1)
        .clock(clock)
        .on_event(move |event| {
            if let Event::JobCancelled { .. } = event {
                trap.enter();
            }
        })
        .build()
        .unwrap();
    let mut jobs: Vec<_> =
        (0..3).map(|_| rt.job(|_| Ok::<_, String>(())).delay(SEC).submit().unwrap()).collect();
    let (rings, rang) = channel();
    let waker = Waker::from(Arc::new(Ringer(Mutex::new(rings))));
    for job in &mut jobs {
        assert!(std::pin::Pin::new(job).poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let report = rt.shutdown(LONG);
    assert_eq!((report.abandoned.len(), report.requeued, report.cancelled), (0, 0, 3));
    caught.recv_timeout(LONG).unwrap();
    for mut job in jobs {
        rang.recv_timeout(LONG).expect("who waits is woken");
        assert!(matches!(value(&mut job), Err(JobError::Shutdown)));
    }
    drop(release);
}

/// A clock that holds the driver up, once, when it is read for the second time between two sleeps: in
/// the middle of judging an attempt, unless the driver did not sleep at all.
#[derive(Debug)]
struct Snare {
    clock: ManualClock,
    armed: AtomicBool,
}

thread_local! {
    static READINGS: Cell<u32> = const { Cell::new(0) };
}

impl Clock for Snare {
    fn now(&self) -> Timestamp {
        READINGS.set(READINGS.get() + 1);
        let driver = std::thread::current().name().is_some_and(|name| name.ends_with("-driver"));
        if driver && READINGS.get() == 2 && self.armed.swap(false, SeqCst) {
            // Real time: longer than somebody else waits before they take over.
            std::thread::sleep(Duration::from_millis(200));
        }
        self.clock.now()
    }

    fn real_time_until(&self, deadline: Timestamp) -> Option<Duration> {
        READINGS.set(0);
        self.clock.real_time_until(deadline)
    }

    fn on_advance(&self, listener: Weak<dyn AdvanceListener>) {
        self.clock.on_advance(listener);
    }
}

/// The driver is so slow to judge an attempt that somebody takes over from it; then it finds that the
/// attempt had shown life. What it found is lost: the attempt is watched all the same.
#[test]
fn an_attempt_is_watched_though_its_judge_was_overtaken() {
    let clock = ManualClock::new();
    let snare = Arc::new(Snare { clock: clock.clone(), armed: AtomicBool::new(false) });
    let rt = Runtime::builder()
        .workers(1)
        .clock(Arc::clone(&snare))
        .attempt_timeout(SEC)
        .retry(retry(2))
        .build()
        .unwrap();
    let (first, begun, end_first) = Trap::new();
    let mut job = rt
        .submit(move |ctx| {
            if ctx.attempt() == 1 {
                ctx.heartbeat().unwrap();
                first.enter();
            }
            Ok::<_, String>(ctx.attempt())
        })
        .unwrap();
    begun.recv_timeout(LONG).unwrap();
    snare.armed.store(true, SeqCst);
    step_until(&clock, SEC, || (!snare.armed.load(SeqCst)).then_some(()));
    let ended = step_until(&clock, SEC, || job.get_timeout(Duration::from_millis(5)));
    assert_eq!(ended.unwrap(), 2);
    drop(end_first);
    ends_clean(&rt);
}
