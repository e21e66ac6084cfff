//! What happens in the runtime, told to whoever wants to know.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TrySendError};

use super::cell::contained;
use super::error::{AttemptError, DeadLetter};
use super::options::JobId;
use crate::lock::Unseen;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Something that happened. Successes are counted in [`Stats`](super::Stats), not told.
///
/// Told to the listener of [`Builder::on_event`](super::Builder::on_event), on the thread where it happens,
/// and to subscriptions:
///
/// ```
/// use tenure::retry::RetryPolicy;
/// use tenure::runtime::{Event, Runtime};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().workers(1).retry(RetryPolicy::never()).build()?;
/// let events = runtime.events();
/// let job = runtime.submit(|_| Err::<(), _>("no"))?;
/// assert!(job.get().is_err());
/// runtime.shutdown(std::time::Duration::from_secs(5));
/// // They end with the runtime.
/// assert!(events.into_iter().any(|event| matches!(event, Event::JobDead(_))));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// An attempt came to nothing.
    AttemptFailed {
        /// The job.
        job: JobId,
        /// Which attempt, from 1.
        attempt: u32,
        /// What it ran into.
        cause: AttemptError,
    },
    /// The job will be tried again.
    RetryScheduled {
        /// The job.
        job: JobId,
        /// The attempt to come, from 1.
        attempt: u32,
        /// When, from now.
        delay: Duration,
    },
    /// No further attempt will be made.
    JobDead(Arc<DeadLetter>),
    /// A dead letter's job was handed in again, as a new job.
    JobReplayed {
        /// The job that died.
        letter: JobId,
        /// The new one.
        job: JobId,
    },
    /// The job was cancelled.
    JobCancelled {
        /// The job.
        job: JobId,
        /// Whether by a shutdown.
        by_shutdown: bool,
    },
    /// A worker does not come back from an attempt that is out of time; it was taken out of the pool.
    WorkerStuck {
        /// The worker's number.
        worker: usize,
        /// What it is stuck in.
        job: JobId,
        /// Which attempt, from 1.
        attempt: u32,
        /// The number of the worker that took its place; `None` if there are too many stuck ones
        /// already, or the system gave no thread.
        replacement: Option<usize>,
    },
    /// A stuck worker came back. Its thread ends.
    WorkerReturned {
        /// The worker's number.
        worker: usize,
    },
    /// An attempt that had lost its lease came to an end. What it returned is dropped.
    LateAttempt {
        /// The job.
        job: JobId,
        /// Which attempt, from 1.
        attempt: u32,
    },
    /// The driver woke up too late, by [`Builder::driver_late_after`](super::Builder::driver_late_after) or
    /// more, and extended the leases that it should have looked at.
    DriverLate {
        /// How late, at most.
        lag: Duration,
    },
    /// Foreign code panicked where nobody waits for it: a hook, a waker, the drop of a value or of
    /// a closure. (Not that of an error in a history, which may be anywhere by then; it goes no further either.)
    ForeignPanic {
        /// Where.
        place: &'static str,
    },
    /// The runtime takes no more jobs.
    ShutdownBegan,
}

/// A subscription. Dropping it ends it.
#[derive(Debug)]
pub struct Events {
    receiver: Receiver<Event>,
    lost: Arc<AtomicU64>,
}

impl Events {
    /// The next event, if one has come.
    #[must_use]
    pub fn try_next(&self) -> Option<Event> {
        self.receiver.try_recv().ok()
    }

    /// The next event. `None`: the runtime is gone and all was read, or the time is up.
    ///
    /// # Blocking
    /// Up to `timeout` of real time.
    #[must_use]
    pub fn next_timeout(&self, timeout: Duration) -> Option<Event> {
        self.receiver.recv_timeout(timeout).ok()
    }

    /// How many events did not fit and were dropped.
    #[must_use]
    pub fn lost(&self) -> u64 {
        // ORDERING: Relaxed: a count.
        self.lost.load(Ordering::Relaxed)
    }
}

/// Blocks for each event; ends with the runtime.
impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.receiver.recv().ok()
    }
}

struct Subscriber {
    sender: Sender<Event>,
    lost: Arc<AtomicU64>,
}

impl Subscriber {
    /// False: nobody reads any more. `all`: what was lost by all subscriptions.
    fn hear(&self, event: &Event, all: &AtomicU64) -> bool {
        match self.sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                // ORDERING: Relaxed: a count.
                self.lost.fetch_add(1, Ordering::Relaxed);
                // ORDERING: Relaxed: a count.
                all.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// Who wants to know.
pub(crate) struct Subscribers {
    /// Whether there is anybody; looked at before an event is made.
    any: AtomicBool,
    listener: Option<Listener>,
    // On the way of faults only. `None` after the end.
    list: Unseen<Option<Vec<Subscriber>>>,
    /// Events that did not fit, by all subscriptions.
    lost: AtomicU64,
}

impl Subscribers {
    pub(crate) fn new(listener: Option<Listener>) -> Self {
        Self {
            any: AtomicBool::new(listener.is_some()),
            listener,
            list: Unseen::new(Some(Vec::new())),
            lost: AtomicU64::new(0),
        }
    }

    pub(crate) fn subscribe(&self, capacity: usize) -> Events {
        let (sender, receiver) = crossbeam_channel::bounded(capacity.max(1));
        let lost = Arc::new(AtomicU64::new(0));
        let mut list = self.list.lock();
        // After the end the sender goes at once, and with it the subscription.
        if let Some(list) = &mut *list {
            list.push(Subscriber { sender, lost: Arc::clone(&lost) });
            // ORDERING: Relaxed: an event that races the subscription may miss it.
            self.any.store(true, Ordering::Relaxed);
        }
        drop(list);
        Events { receiver, lost }
    }

    /// How many events did not fit, by all subscriptions so far.
    pub(crate) fn lost(&self) -> u64 {
        // ORDERING: Relaxed: a count.
        self.lost.load(Ordering::Relaxed)
    }

    /// Tells everybody, on this thread. Never blocks, except in the user's own listener.
    #[inline]
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        // ORDERING: Relaxed: see `subscribe`.
        let any = self.any.load(Ordering::Relaxed);
        #[cfg(feature = "tracing")]
        let any = any || super::observe::spans::heard();
        if any {
            self.tell_slow(&event());
        }
    }

    #[cold]
    fn tell_slow(&self, event: &Event) {
        let mut lock = self.list.lock();
        let list = lock.as_mut();
        let left = list.map_or(0, |list| {
            list.retain(|subscriber| subscriber.hear(event, &self.lost));
            list.len()
        });
        if left == 0 && self.listener.is_none() {
            // ORDERING: Relaxed: under the lock, so it is not one that `subscribe` sets now.
            self.any.store(false, Ordering::Relaxed);
        }
        drop(lock);
        #[cfg(feature = "tracing")]
        super::observe::spans::tell(event);
        if let Some(listener) = &self.listener {
            // Foreign code, no lock held. A listener that panics is not told of its own panic.
            contained(|| listener(event));
        }
    }

    /// No more events: what was sent can still be read, then subscriptions end, and later ones are
    /// over at once.
    pub(crate) fn close(&self) {
        let closed = self.list.lock().take();
        drop(closed);
    }
}

impl fmt::Debug for Subscribers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscribers").finish_non_exhaustive()
    }
}
