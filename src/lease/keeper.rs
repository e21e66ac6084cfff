//! A thread that does things at their time: looks at a key for its waiters when the holder's deadline
//! has passed, tells a guard that its lease is over, renews for a heartbeat.
//!
//! Nobody's safety rests on it. A table starts one when something has to happen at a time and no
//! caller will be there to do it; a table whose callers only try never has one.

use super::core::Core;
use super::{LeaseKey, LeaseValue};
use crate::clock::{AdvanceListener, Clock, Timestamp};
use crate::lock::Mutex;
use crate::sync::Arc;
use crate::timer::{TimerKey, Wheel};
use crate::wait::Unparker;

/// Something to do at its time, on the keeper's thread.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// The keeper, running or not.
pub(super) struct Keeper {
    inside: Mutex<Inside>,
}

struct Inside {
    jobs: Wheel<Job>,
    state: State,
}

enum State {
    Idle,
    Running {
        unparker: Unparker,
        /// The clock's listeners hold it weakly.
        #[expect(dead_code, reason = "held so that the clock can reach it")]
        listener: std::sync::Arc<Listener>,
    },
    Stopped,
}

struct Listener(Unparker);

impl AdvanceListener for Listener {
    fn clock_advanced(&self) {
        self.0.unpark();
    }
}

impl Keeper {
    pub(super) fn new() -> Self {
        Self {
            inside: Mutex::new(Inside { jobs: Wheel::new(Timestamp::ORIGIN), state: State::Idle }),
        }
    }

    /// Does `job` at `at`, or gives it back: the table is closed, or the system has no thread left.
    pub(super) fn at<K: LeaseKey, V: LeaseValue, C: Clock>(
        core: &Arc<Core<K, V, C>>,
        keeper: &Arc<Self>,
        at: Timestamp,
        job: Job,
    ) -> Result<TimerKey, Job> {
        let mut inside = keeper.inside.lock();
        if matches!(inside.state, State::Idle) {
            let Some(running) = Self::start(core, keeper) else { return Err(job) };
            inside.state = running;
        }
        if matches!(inside.state, State::Stopped) {
            return Err(job);
        }
        let earliest = inside.jobs.next_deadline();
        let key = inside.jobs.insert(at, job);
        if earliest.is_none_or(|earliest| at < earliest) {
            inside.wake();
        }
        Ok(key)
    }

    /// Forgets a job; true if it had not begun.
    pub(super) fn cancel(&self, key: TimerKey) -> bool {
        let job = self.inside.lock().jobs.cancel(key);
        // The job's own parts are dropped outside the lock.
        job.is_some()
    }

    /// Ends the thread, after the job that it is at. What was still to be done is dropped.
    pub(super) fn stop(&self) {
        let left = {
            let mut inside = self.inside.lock();
            inside.wake();
            inside.state = State::Stopped;
            core::mem::replace(&mut inside.jobs, Wheel::new(Timestamp::ORIGIN))
        };
        drop(left);
    }

    /// Models have no keeper: what it would do, their threads do.
    #[cfg(any(tenure_loom, tenure_shuttle))]
    fn start<K: LeaseKey, V: LeaseValue, C: Clock>(
        _: &Arc<Core<K, V, C>>,
        _: &Arc<Self>,
    ) -> Option<State> {
        let unparker = crate::wait::Parker::new().unparker();
        let listener = std::sync::Arc::new(Listener(unparker.clone()));
        Some(State::Running { unparker, listener })
    }

    #[cfg(not(any(tenure_loom, tenure_shuttle)))]
    fn start<K: LeaseKey, V: LeaseValue, C: Clock>(
        core: &Arc<Core<K, V, C>>,
        keeper: &Arc<Self>,
    ) -> Option<State> {
        let parker = crate::wait::Parker::new();
        let unparker = parker.unparker();
        let listener = std::sync::Arc::new(Listener(unparker.clone()));
        let weak: std::sync::Weak<dyn AdvanceListener> = {
            let listener: std::sync::Arc<dyn AdvanceListener> = listener.clone();
            std::sync::Arc::downgrade(&listener)
        };
        let (keeper, core) = (Arc::clone(keeper), Arc::clone(core));
        let thread = crate::sync::thread::Builder::new().name("tenure-lease-keeper".into());
        let clock = Arc::clone(&core);
        thread.spawn(move || keeper.run(&parker, core.ticks.clock())).ok()?;
        clock.ticks.clock().on_advance(weak);
        Some(State::Running { unparker, listener })
    }

    #[cfg(not(any(tenure_loom, tenure_shuttle)))]
    fn run(&self, parker: &crate::wait::Parker, clock: &impl Clock) {
        loop {
            let next = {
                let mut inside = self.inside.lock();
                if matches!(inside.state, State::Stopped) {
                    return;
                }
                match inside.jobs.expire(clock.now()) {
                    Some(job) => Ok(job),
                    None => Err(inside.jobs.next_deadline()),
                }
            };
            match next {
                // Foreign code may be in it, and its panic is nobody else's.
                Ok(job) => {
                    let _ = super::event::contained(job);
                }
                Err(next) => {
                    let left = next.and_then(|next| clock.real_time_until(next));
                    let deadline =
                        left.map_or(crate::wait::Deadline::NEVER, crate::wait::Deadline::after);
                    parker.park_until(deadline);
                }
            }
        }
    }
}

impl Inside {
    fn wake(&self) {
        if let State::Running { unparker, .. } = &self.state {
            unparker.unpark();
        }
    }
}
