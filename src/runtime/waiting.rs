//! Waiting inside a job: who runs the others meanwhile, and when nobody can.
//!
//! A worker that waits for another job first runs that job itself, if it has not begun: so a parent
//! and its children need one thread, as deep as half of its stack goes; below that, the chain goes on
//! on the stack of another. If the job is elsewhere (running, waiting for a retry or for its key), the
//! worker blocks; so that the pool does not run out of workers, a *stand-in*
//! joins it, up to a bound. A stand-in is a worker like any other, and leaves when it is not needed any
//! more. The same for [`blocking`](super::blocking) sections.
//!
//! Other jobs are never run on top of a waiting one: one of them could wait for what is below it on
//! the stack.
//!
//! | word | counts | read by |
//! |---|---|---|
//! | blocked | levels (one on top of the other, on one worker) that wait or are in a blocking section | stand-ins, when they are idle |
//! | waiting | of those, the ones that wait for jobs | who is about to be the last one |
//! | `Member::held` | the same for one worker, and whether it is in the sums: not once it is retired | that worker, the driver |

use std::sync::Arc;

use super::cell::JobRef;
use super::error::JobError;
use super::members::{Levels, Member};
use super::shared::Shared;
use super::state::State;
use super::worker::{self, Local};
use crate::sync::atomic::{AtomicUsize, Ordering, fence};

/// A sum that may be below zero for a moment.
fn at_least_none(sum: usize) -> usize {
    if sum > usize::MAX / 2 { 0 } else { sum }
}

/// How many workers are held up. See the [file's docs](self).
#[derive(Debug)]
pub(crate) struct HeldUp {
    blocked: AtomicUsize,
    waiting: AtomicUsize,
}

impl HeldUp {
    pub(crate) fn new() -> Self {
        Self { blocked: AtomicUsize::new(0), waiting: AtomicUsize::new(0) }
    }

    pub(crate) fn blocked(&self) -> usize {
        // ORDERING: Relaxed: a number to size the pool by; who is wrong by one corrects it at the next
        // look.
        at_least_none(self.blocked.load(Ordering::Relaxed))
    }

    /// A worker is retired with so much on its stack. The sums may be below zero for a moment, while it
    /// is about to add to them.
    pub(crate) fn leaves(&self, levels: Levels) {
        // ORDERING: Relaxed: see `blocked`.
        self.blocked.fetch_sub(levels.held, Ordering::Relaxed);
        self.waiting.fetch_sub(levels.waits, Ordering::Relaxed);
    }

    /// It turns out to be back.
    pub(crate) fn returns(&self, levels: Levels) {
        // ORDERING: Relaxed: see `blocked`.
        self.blocked.fetch_add(levels.held, Ordering::Relaxed);
        self.waiting.fetch_add(levels.waits, Ordering::Relaxed);
    }

    /// One more. How many are held up now, and how many wait for jobs with this one (0: it does not).
    pub(crate) fn one_more(&self, waits: bool) -> (usize, usize) {
        // ORDERING: Relaxed: see `blocked`.
        let blocked = self.blocked.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let waiting = if waits {
            // ORDERING: Relaxed: of those who come together, the last one in the counter's own order
            // sees all others.
            self.waiting.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
        } else {
            0
        };
        // ORDERING: SeqCst fence: pairs with the one in `Members::step_down`: a stand-in that leaves
        // sees that we block, or we see that it is gone.
        fence(Ordering::SeqCst);
        (at_least_none(blocked), at_least_none(waiting))
    }

    /// One less. How many are held up now.
    pub(crate) fn one_less(&self, waits: bool) -> usize {
        if waits {
            // ORDERING: Relaxed: see `one_more`.
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        // ORDERING: Relaxed: see `blocked`. That a stand-in which goes to sleep sees it is the business
        // of the fences of `Sleepers`.
        at_least_none(self.blocked.fetch_sub(1, Ordering::Relaxed).wrapping_sub(1))
    }
}

/// While it lives, its worker counts as held up.
pub(super) struct Held<'a> {
    shared: &'a Shared,
    member: &'a Member,
    waits: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.member.let_go(self.waits) {
            return;
        }
        let blocked = self.shared.held_up.one_less(self.waits);
        let needed = self.shared.config.workers.saturating_add(blocked);
        if self.shared.members.is_surplus(needed) {
            // A stand-in that sleeps would not find out.
            self.shared.sleepers.notify_all();
        }
    }
}

impl Local {
    /// This worker is about to block. `awaited`: in what state the job is that it waits for, if it
    /// is that.
    ///
    /// Brings a stand-in if the pool would be a worker short.
    fn hold(&self, awaited: Option<State>) -> Result<Held<'_>, JobError> {
        let shared: &Arc<Shared> = &self.shared;
        let waits = awaited.is_some();
        let counts = self.member.hold(waits);
        let held = Held { shared, member: &self.member, waits };
        if !counts {
            // Somebody has its place already.
            return Ok(held);
        }
        let (blocked, waiting) = shared.held_up.one_more(waits);
        let awake = shared.members.active().saturating_sub(blocked);
        if awake >= shared.config.workers || shared.closing.has_begun() {
            return Ok(held);
        }
        let spares = shared.members.active().saturating_sub(shared.config.workers);
        if spares < shared.config.max_spares && worker::spawn(shared).is_ok() {
            return Ok(held);
        }
        // No stand-in. If every worker waits for a job, and ours needs one of them, nobody will come.
        let needs_a_worker = !matches!(awaited, None | Some(State::Leased | State::Completing));
        if needs_a_worker && waiting >= shared.members.active() {
            return Err(JobError::WouldDeadlock);
        }
        Ok(held)
    }

    fn needed(&self) -> usize {
        self.shared.config.workers.saturating_add(self.shared.held_up.blocked())
    }

    /// Takes this worker out of the pool if it is one too many.
    pub(super) fn steps_down(&self) -> bool {
        self.shared.members.step_down(&self.member, || self.needed())
    }

    /// Whether there seems to be one too many: for the look between announcing a sleep and sleeping.
    pub(super) fn is_surplus(&self) -> bool {
        self.shared.members.is_surplus(self.needed())
    }
}

/// Runs `wait`, which blocks until `job` gets on. `limited`: for some time only, so it is never refused.
pub(super) fn while_waiting(
    job: &JobRef,
    limited: bool,
    wait: impl FnOnce(),
) -> Result<(), JobError> {
    worker::with_local(|local| {
        let held = match local {
            // It waits in line behind an attempt that would wait for it.
            Some(local) if !limited && local.is_in_the_way_of(job) => {
                return Err(JobError::WouldDeadlock);
            }
            Some(local) => Some(local.hold(Some(job.state.peek().state()))),
            None => None,
        };
        match held {
            Some(Err(refused)) if !limited => Err(refused),
            _held => {
                wait();
                Ok(())
            }
        }
    })
}

/// Marks a section of a job that blocks (on a file, a socket, a lock): meanwhile a stand-in may run
/// other jobs, so that slow input does not hold up the pool.
///
/// Outside a job it just runs `section`.
///
/// ```
/// use tenure::runtime::{Runtime, blocking};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().workers(1).build()?;
/// let job = runtime.submit(|_| blocking(|| std::fs::read("Cargo.toml")))?;
/// assert!(!job.get()?.is_empty());
/// # Ok(())
/// # }
/// ```
///
/// # Panics
/// As `section` does.
pub fn blocking<R>(section: impl FnOnce() -> R) -> R {
    worker::with_local(|local| {
        // Never refused: it waits for no job.
        let _held = local.map(|local| local.hold(None));
        section()
    })
}
