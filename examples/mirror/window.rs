//! The jobs in hand: so many at a time, however large the tree is.
//!
//! The walk stops when the window is full, and goes on when half of it is free again: it is woken
//! once per half window, not once per file.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure::runtime::JobHandle;

use crate::job::{Done, Job};

/// Which job in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Ticket(u64);

/// The jobs in hand.
#[derive(Debug)]
pub(crate) struct Window {
    limit: usize,
    inside: Mutex<Inside>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    jobs: HashMap<Ticket, InHand>,
    next: u64,
    /// How few jobs somebody waits for.
    awaited: Option<usize>,
    closed: bool,
}

#[derive(Debug)]
struct InHand {
    job: Arc<Job>,
    /// The job's result to come, unless somebody is just looking at it.
    handle: Option<JobHandle<Done>>,
    /// The job was over while somebody was looking.
    rung: bool,
}

impl Window {
    /// Room for `limit` jobs.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), inside: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes `job` in; waits for room first. `None`: [`close`](Self::close) was called.
    ///
    /// Only one thread may wait, here or in [`wait_empty`](Self::wait_empty).
    pub(crate) fn admit(&self, job: &Arc<Job>) -> Option<Ticket> {
        let mut inside = self.lock();
        if inside.jobs.len() >= self.limit {
            inside = self.wait(inside, self.limit / 2, None);
        }
        if inside.closed {
            return None;
        }
        let ticket = Ticket(inside.next);
        inside.next += 1;
        inside.jobs.insert(ticket, InHand { job: job.clone(), handle: None, rung: false });
        Some(ticket)
    }

    /// The job in hand.
    pub(crate) fn job(&self, ticket: Ticket) -> Option<Arc<Job>> {
        self.lock().jobs.get(&ticket).map(|in_hand| in_hand.job.clone())
    }

    /// Keeps the handle until [`ring`](Self::ring) asks for it. It comes back if that has happened.
    pub(crate) fn keep(&self, ticket: Ticket, handle: JobHandle<Done>) -> Option<JobHandle<Done>> {
        let mut inside = self.lock();
        let Some(in_hand) = inside.jobs.get_mut(&ticket) else { return Some(handle) };
        if std::mem::take(&mut in_hand.rung) {
            return Some(handle);
        }
        in_hand.handle = Some(handle);
        None
    }

    /// The job is over: hands out its handle, now or when [`keep`](Self::keep) brings it.
    pub(crate) fn ring(&self, ticket: Ticket) -> Option<JobHandle<Done>> {
        let mut inside = self.lock();
        let in_hand = inside.jobs.get_mut(&ticket)?;
        let handle = in_hand.handle.take();
        in_hand.rung = handle.is_none();
        handle
    }

    /// The job is settled.
    pub(crate) fn leave(&self, ticket: Ticket) {
        let mut inside = self.lock();
        inside.jobs.remove(&ticket);
        if inside.awaited.is_some_and(|few| inside.jobs.len() <= few) {
            inside.awaited = None;
            drop(inside);
            self.changed.notify_one();
        }
    }

    /// Takes nothing in any more, and wakes who waits.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// Waits until all jobs are settled, or the window is closed.
    pub(crate) fn wait_empty(&self) {
        let inside = self.lock();
        if !inside.jobs.is_empty() {
            drop(self.wait(inside, 0, None));
        }
    }

    /// Waits for as long as `patience` until all jobs are settled, closed or not; returns the rest.
    pub(crate) fn drain(&self, patience: Duration) -> Vec<Arc<Job>> {
        let mut inside = self.lock();
        inside.closed = false;
        if !inside.jobs.is_empty() {
            inside = self.wait(inside, 0, Instant::now().checked_add(patience));
        }
        inside.closed = true;
        inside.jobs.values().map(|in_hand| in_hand.job.clone()).collect()
    }

    fn wait<'a>(
        &self,
        mut inside: MutexGuard<'a, Inside>,
        few: usize,
        until: Option<Instant>,
    ) -> MutexGuard<'a, Inside> {
        while inside.jobs.len() > few && !inside.closed {
            inside.awaited = Some(few);
            let left = until.map_or(Duration::from_secs(3600), |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                break;
            }
            inside =
                self.changed.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        inside.awaited = None;
        inside
    }
}
