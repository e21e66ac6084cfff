//! For the models: gates with their lines, second attempts, deadlines, unique keys, replaced policies.

use core::time::Duration;
use std::sync::{Arc, Weak};

use super::{Begun, End, Job};
use crate::clock::Timestamp;
use crate::limit::Listener;
use crate::lock::Mutex;
use crate::retry::RetryPolicy;
use crate::runtime::cell::{JobRef, Many};
use crate::runtime::ctx::JobCtx;
use crate::runtime::handle::JobHandle;
use crate::runtime::options::{Hedge, JobKey, Options, Priority};
use crate::runtime::policy::line::{Host, Line};
use crate::runtime::policy::live::{Budget, Known, Live};
use crate::runtime::policy::unique::Uniques;
use crate::runtime::policy::{self, Gate, GateId, Gates, Pass, Stage, Turn, Verdict};
use crate::runtime::shutdown::Closing;
use crate::runtime::state::{Cancel, State, StateCell};

/// The permits of a gate: the model's own, so that their orderings are.
pub trait Seats: Send + Sync {
    /// Takes one. False: there seems to be none.
    fn take(&self) -> bool;
    fn put(&self);
}

/// A gate with permits, which tells its line when one comes back.
struct Turnstile {
    seats: Arc<dyn Seats>,
    line: Mutex<Option<Weak<dyn Listener>>>,
}

impl Turnstile {
    fn give_back(&self) {
        self.seats.put();
        let line = self.line.lock().as_ref().and_then(Weak::upgrade);
        if let Some(line) = line {
            line.permit_freed();
        }
    }
}

struct Shut(Arc<Turnstile>);

impl Gate for Shut {
    fn try_pass(&self) -> Result<Box<dyn Pass>, Option<Duration>> {
        if self.0.seats.take() {
            Ok(Box::new(Through(Arc::clone(&self.0))))
        } else {
            Err(Some(Duration::from_secs(1)))
        }
    }

    fn watch(&self, listener: Weak<dyn Listener>) {
        *self.0.line.lock() = Some(listener);
    }

    fn id(&self) -> GateId {
        (0, None)
    }
}

struct Through(Arc<Turnstile>);

impl Pass for Through {
    fn end(self: Box<Self>, _verdict: Verdict) {
        self.0.give_back();
    }
}

/// The runtime around the line: its queue, its phase, its timers.
struct Hall {
    queue: Mutex<Vec<JobRef>>,
    calls: Mutex<Vec<(Arc<Line>, Timestamp)>>,
    closing: Closing,
    lines: Mutex<Vec<Arc<Line>>>,
    most_granted: usize,
}

impl Hall {
    fn sweep(&self) {
        let lines = self.lines.lock().clone();
        let queued = core::mem::take(&mut *self.queue.lock());
        let lined_up = lines.iter().flat_map(|line| line.drain());
        for job in lined_up.chain(queued) {
            Job(job).give_up(true);
        }
    }
}

impl Host for Hall {
    fn go_on(&self, job: JobRef) {
        self.queue.lock().push(job);
        if self.closing.sees_begun() {
            self.sweep();
        }
    }

    fn gone(&self, _job: &JobRef) {}

    fn lined_up(&self) {
        if self.closing.sees_begun() {
            self.sweep();
        }
    }

    fn most_granted(&self) -> usize {
        self.most_granted
    }

    fn moment_after(&self, delay: Duration) -> Timestamp {
        Timestamp::ORIGIN.saturating_add(delay)
    }

    fn call_at(&self, line: Arc<Line>, at: Timestamp) {
        self.calls.lock().push((line, at));
    }
}

/// Gates, the lines before them, and the runtime that both are in. Kept by the model to its end.
pub struct Gatehouse {
    hall: Arc<Hall>,
    lines: Vec<Arc<Line>>,
    tickets: Mutex<u64>,
}

/// A permit that somebody outside holds.
pub struct Borrowed(Box<dyn Pass>);

impl Borrowed {
    pub fn give_back(self) {
        self.0.end(Verdict::Ignored);
    }
}

impl Gatehouse {
    /// With a gate for each.
    pub fn new(gates: impl IntoIterator<Item = Arc<dyn Seats>>, most_granted: usize) -> Self {
        let hall = Arc::new(Hall {
            queue: Mutex::new(Vec::new()),
            calls: Mutex::new(Vec::new()),
            closing: Closing::new(),
            lines: Mutex::new(Vec::new()),
            most_granted,
        });
        let lines = gates.into_iter().map(|seats| {
            let turnstile = Arc::new(Turnstile { seats, line: Mutex::new(None) });
            let gate = Shut(Arc::clone(&turnstile));
            let host: Weak<Hall> = Arc::downgrade(&hall);
            let line = Line::new(Arc::new(Shut(turnstile)), host as Weak<dyn Host>);
            let listener = Arc::downgrade(&line);
            gate.watch(listener as Weak<dyn Listener>);
            line
        });
        let lines: Vec<_> = lines.collect();
        hall.lines.lock().clone_from(&lines);
        Self { hall, lines, tickets: Mutex::new(0) }
    }

    /// A job behind the first so many gates, Ready, with one entry.
    pub fn job<F>(&self, behind: usize, closure: F) -> (Job, JobHandle<()>)
    where
        F: Fn(&JobCtx) -> Result<(), &'static str> + Send + Sync + 'static,
    {
        let mut gates = Gates::new();
        for line in &self.lines[..behind] {
            gates.add(Stage::Concurrency, Arc::clone(line));
        }
        let options = Options { gates: Some(Box::new(gates)), ..Options::default() };
        let word = StateCell::new(State::Ready);
        let (job, handle) =
            JobRef::new(Many(closure), word, 0, 1, Priority::Normal, Some(Box::new(options)));
        (Job(job), JobHandle::new(handle))
    }

    /// Takes a permit of a gate, from outside.
    pub fn borrow(&self, gate: usize) -> Option<Borrowed> {
        self.lines[gate].ask().ok().map(Borrowed)
    }

    /// As a worker that took an entry: runs the job, or has it wait.
    pub fn take(&self, job: &Job) -> End {
        match self.enter(job) {
            Some(begun) => job.go_on(begun, 1),
            None => End::Nothing,
        }
    }

    /// The first half: the job waits, or its attempt is inside.
    pub fn enter(&self, job: &Job) -> Option<Begun> {
        let Job(job) = job;
        if job.state.peek().state() != State::Ready {
            return None;
        }
        let gates = policy::gates(job).expect("made with gates");
        let permits = match gates.take_grant() {
            Some(grant) => grant.spend(),
            None => match gates.try_pass(None) {
                Ok(permits) => permits,
                Err(refusal) => {
                    let ticket = gates.ticket_or(|| {
                        let mut tickets = self.tickets.lock();
                        *tickets += 1;
                        *tickets
                    });
                    if job.state.gate() {
                        refusal.line.enter(job.clone(), ticket);
                    }
                    return None;
                }
            },
        };
        match Job(job.clone()).begin() {
            Ok(begun) => {
                gates.hold(Turn { epoch: begun.epoch, second: false }, permits);
                Some(begun)
            }
            Err(_) => {
                permits.end(Verdict::Unused);
                None
            }
        }
    }

    /// As the driver that gives an attempt up, which has no other.
    pub fn rescue(&self, job: &Job, epoch: u32) -> End {
        let end = job.rescue(epoch, 1, true);
        policy::gates(&job.0).expect("made with gates").settle_all(epoch, Verdict::Late);
        end
    }

    /// The timers that were asked for are due.
    pub fn tick(&self) {
        let calls = core::mem::take(&mut *self.hall.calls.lock());
        for (line, at) in calls {
            line.tick(at);
        }
    }

    /// As the shutdown.
    pub fn close(&self) {
        self.hall.closing.begin();
        self.hall.sweep();
    }

    /// As the workers, when all else is done: runs what is queued, until nothing is.
    pub fn run_all(&self) {
        loop {
            let next = self.hall.queue.lock().pop();
            let Some(job) = next else { return };
            self.take(&Job(job));
        }
    }

    /// Whether the job has a place among those who wait.
    pub fn has_ticket(&self, job: &Job) -> bool {
        policy::gates(&job.0).is_some_and(|gates| gates.ticket() != policy::NO_TICKET)
    }

    /// Whether nobody waits.
    pub fn is_at_rest(&self) -> bool {
        self.lines.iter().all(|line| line.oldest() == policy::NO_TICKET)
    }
}

impl Drop for Gatehouse {
    fn drop(&mut self) {
        // The hall has the lines, whose gates are the hall's: no circle is left.
        let lines = core::mem::take(&mut *self.hall.lines.lock());
        drop(lines);
        let calls = core::mem::take(&mut *self.hall.calls.lock());
        drop(calls);
    }
}

impl core::fmt::Debug for Gatehouse {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Gatehouse")
    }
}

impl core::fmt::Debug for Borrowed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Borrowed")
    }
}

impl Job {
    /// As `cancel`, and leaves its line.
    pub fn give_up(&self, by_shutdown: bool) -> End {
        match self.0.state.cancel(by_shutdown) {
            Cancel::Now { ended, .. } => {
                if let Some(gates) = policy::gates(&self.0) {
                    gates.leave();
                }
                self.finish(ended);
                End::Cancelled
            }
            Cancel::Requested => End::Requested,
            Cancel::TooLate => End::Nothing,
        }
    }

    /// A second attempt beside the one with this epoch.
    pub fn begin_beside(&self, epoch: u32) -> Option<Begun> {
        let attempt = self.0.state.hedge(epoch)?;
        Some(Begun { epoch, attempt, second: true })
    }

    /// As the timer of its deadline. True: it was in time, and the job is dead.
    pub fn expire(&self) -> bool {
        let expired = self.0.state.expire().is_some();
        if expired {
            self.bury(false);
        }
        expired
    }
}

/// The request for a second attempt.
#[derive(Debug)]
pub struct Asked(Hedge);

impl Default for Asked {
    fn default() -> Self {
        Self(Hedge::new(Duration::ZERO))
    }
}

impl Asked {
    pub fn ask(&self, epoch: u32) {
        self.0.ask(epoch);
    }

    pub fn take(&self, epoch: u32) -> bool {
        self.0.take(epoch)
    }
}

/// One unique key.
#[derive(Debug)]
pub struct OneKey {
    uniques: Uniques,
    key: JobKey,
}

impl Default for OneKey {
    fn default() -> Self {
        Self { uniques: Uniques::new(), key: JobKey::from(1) }
    }
}

impl OneKey {
    /// Submits a job with the key: `None` if another one is live.
    pub fn submit(&self) -> Option<(Job, JobHandle<()>)> {
        let made = self.uniques.admit(&self.key, || super::job(true, |_| Ok(())).take_apart());
        made.ok().map(|(job, handle)| (Job(job), handle))
    }

    /// The job's end.
    pub fn end(&self, job: &Job) -> End {
        let end = job.drive(1);
        self.uniques.remove(&self.key, &job.0);
        end
    }

    pub fn is_taken(&self) -> bool {
        self.uniques.find(&self.key).is_some()
    }
}

trait TakeApart<T> {
    fn take_apart(self) -> (JobRef, JobHandle<T>);
}

impl<T> TakeApart<T> for (Job, JobHandle<T>) {
    fn take_apart(self) -> (JobRef, JobHandle<T>) {
        (self.0.0, self.1)
    }
}

/// So many retries.
struct Purse(Mutex<u32>);

impl Budget for Purse {
    fn deposit(&self) {
        *self.0.lock() += 1;
    }

    fn withdraw(&self) -> bool {
        let mut left = self.0.lock();
        let drawn = *left > 0;
        *left -= u32::from(drawn);
        drawn
    }
}

/// Policies that are replaced.
pub struct Replaced(Live);

impl Default for Replaced {
    fn default() -> Self {
        Self(Live::new(Some(Duration::from_secs(1)), RetryPolicy::never(), None))
    }
}

impl core::fmt::Debug for Replaced {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Replaced")
    }
}

impl Replaced {
    pub fn set(&self, seconds: u64, retries: u32) {
        self.0.set_attempt_timeout(Some(Duration::from_secs(seconds)));
        self.0.set_budget(Some(Arc::new(Purse(Mutex::new(retries)))));
    }

    pub fn seconds(&self) -> u64 {
        self.0.attempt_timeout().map_or(0, |timeout| timeout.as_secs())
    }

    pub fn withdraw(&self) -> bool {
        self.0.withdraw()
    }

    pub fn deposit(&self) {
        self.0.deposit(&core::cell::RefCell::new(Known::default()));
    }
}
