//! The handle of a job: its result, and the way to cancel it.

use core::fmt;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use core::time::Duration;
use std::sync::Arc;
use std::task::Wake;

use super::cell::{Handle, JobRef, contained};
use super::error::JobError;
use super::options::JobId;
use super::state::{Cancel, State};
use super::{waiting, worker};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Wait, park};
use crate::timer::crew;

/// A job's result to come. Wait for it with [`get`](Self::get), or `.await` it anywhere.
///
/// # Cancellation and drop
///
/// Dropping the handle lets the job go on; its result is dropped where it comes up. To end the job,
/// [`cancel`](Self::cancel) it.
///
/// ```
/// use std::time::Duration;
/// use tenure::runtime::{JobError, Runtime};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().workers(1).build()?;
/// let mut later = runtime.job(|_| Ok::<_, String>(1)).delay(Duration::from_secs(3600)).submit()?;
/// assert!(later.get_timeout(Duration::from_millis(1)).is_none());
/// assert!(later.cancel());
/// assert!(matches!(later.get(), Err(JobError::Cancelled)));
///
/// let job = runtime.submit(|_| Ok::<_, String>(2))?;
/// let task = runtime.spawn(async move { job.await })?; // Or in any other executor.
/// assert_eq!(task.get()??, 2);
/// # Ok(())
/// # }
/// ```
#[must_use = "drop it explicitly to let the job go on unobserved"]
pub struct JobHandle<T> {
    handle: Handle<T>,
    /// Our waker is in the job.
    waiting: bool,
}

impl<T> JobHandle<T> {
    pub(crate) fn new(handle: Handle<T>) -> Self {
        Self { handle, waiting: false }
    }

    /// The handle itself, with no waker left in the job.
    pub(super) fn into_handle(mut self) -> Handle<T> {
        self.fetch_back();
        self.handle
    }

    pub(super) fn job_ref(&self) -> JobRef {
        self.handle.job().clone()
    }

    /// Which job.
    #[must_use]
    pub fn id(&self) -> JobId {
        JobId(self.handle.job().id)
    }

    /// Whether the job is over.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.job().state.settled().is_some()
    }

    /// Asks that the job end. One that waits ends at once and never runs. One that runs can see the
    /// request ([`JobCtx::is_cancelled`](super::JobCtx::is_cancelled)); if it comes back with a value
    /// all the same, the job has succeeded, else it is cancelled and not tried again.
    ///
    /// True if the request came before the job's end was decided.
    pub fn cancel(&self) -> bool {
        cancel(self.handle.job())
    }

    /// The result, if the job is over. It is given once: after that there is [`JobError::Taken`].
    pub fn try_get(&mut self) -> Option<Result<T, JobError>> {
        Some(self.handle.take()?.unwrap_or(Err(JobError::Taken)))
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// [`JobError`] says why there is no value.
    ///
    /// # Blocking
    /// Until the job is over. Inside a job of the same runtime, a job that has not begun yet is run right
    /// here, as long as half of this worker's stack is free; for one that has, or if not, a stand-in
    /// takes this worker's place in the pool meanwhile. If there can be none, and all workers wait like
    /// this, or the job waits in line for the key of the one that waits for it, or this is the thread
    /// that runs the runtime's timers (during a shutdown), the answer is [`JobError::WouldDeadlock`].
    pub fn get(mut self) -> Result<T, JobError> {
        loop {
            if let Some(result) = self.get_within(None) {
                return result;
            }
        }
    }

    /// Waits for the result, for `timeout` of real time at most. `None`: not yet; ask again.
    ///
    /// # Blocking
    /// As [`get`](Self::get). A job that is run right here is run to the end of its attempt.
    pub fn get_timeout(&mut self, timeout: Duration) -> Option<Result<T, JobError>> {
        self.get_within(Some(timeout))
    }

    fn get_within(&mut self, timeout: Option<Duration>) -> Option<Result<T, JobError>> {
        if let Some(result) = self.try_get() {
            return Some(result);
        }
        // On a worker: what has not begun runs here, or it might wait for us.
        worker::with_local(|local| {
            // A job of another runtime is that one's to run: its accounts, its keys, its timers.
            let job = self.handle.job();
            if let Some(local) = local
                && local.shared.address() == job.home
                && job.state.peek().state() == State::Ready
                && local.has_stack()
                // One that is out of the pool begins nothing more: somebody has its place.
                && !local.member.is_replaced()
            {
                local.run(job.clone());
            }
        });
        if let Some(result) = self.try_get() {
            return Some(result);
        }
        // Deep in callbacks, what the job waits for may lie in this thread's own queue.
        crate::promise::trampoline::before_blocking();
        let alarm = Alarm::of_this_thread();
        if !self.leave(alarm.clone().into()) {
            return self.try_get();
        }
        if timeout.is_none() && crew::is_aboard_at(self.handle.job().home) {
            // Who waits here is who would have to run its timers, and rescue it.
            self.fetch_back();
            return Some(self.try_get().unwrap_or(Err(JobError::WouldDeadlock)));
        }
        let waited = waiting::while_waiting(self.handle.job(), timeout.is_some(), || {
            alarm.wait(timeout, || self.is_finished());
        });
        self.fetch_back();
        match (self.try_get(), waited) {
            (Some(result), _) => Some(result),
            (None, Ok(())) => None,
            (None, Err(refused)) => Some(Err(refused)),
        }
    }

    /// Leaves a waker; an older one goes. False: the job is over.
    fn leave(&mut self, waker: Waker) -> bool {
        if !self.fetch_back() {
            return false;
        }
        self.waiting = self.handle.register(waker);
        self.waiting
    }

    /// Takes a waker back that may be in the job. False: the job is over.
    fn fetch_back(&mut self) -> bool {
        !core::mem::take(&mut self.waiting) || self.handle.retract()
    }
}

/// See [`JobHandle::cancel`].
pub(super) fn cancel(job: &JobRef) -> bool {
    match job.state.cancel(false) {
        Cancel::Requested => true,
        Cancel::TooLate => false,
        Cancel::Now { from, ended } => {
            // SAFETY: `ended` is from this job's word, in this thread, used once.
            let waker = unsafe { job.take_waker(&ended) };
            tell_home(job, from);
            if let Some(waker) = waker {
                contained(move || waker.wake());
            }
            // SAFETY: as above.
            unsafe { job.drop_rest(ended) };
            true
        }
    }
}

/// For a job that somebody counts on: its key is free, its timer can go, its end is counted. All
/// others are counted when a worker meets their queue entry.
fn tell_home(job: &JobRef, from: State) {
    let home = job.options.as_ref().and_then(|o| o.home.upgrade());
    let home = match from {
        State::Scheduled | State::Backoff => home.or_else(|| job.past(|past| past.home.upgrade())),
        _ => home,
    };
    if let Some(home) = home {
        home.cancelled_by_handle(job, from);
    }
}

impl<T> Future for JobHandle<T> {
    type Output = Result<T, JobError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Some(result) = this.try_get() {
            return Poll::Ready(result);
        }
        // Cloned before anything moves: the clone is foreign code.
        let waker = cx.waker().clone();
        if this.leave(waker) {
            return Poll::Pending;
        }
        match this.try_get() {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }
}

// The handle holds no `T`, and pins nothing.
impl<T> Unpin for JobHandle<T> {}

impl<T> fmt::Debug for JobHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle").field("job", self.handle.job()).finish()
    }
}

/// A waker that wakes a thread.
pub(super) struct Alarm {
    rung: AtomicU32,
}

crate::sync::thread_local! {
    static ALARM: Arc<Alarm> = Arc::new(Alarm { rung: AtomicU32::new(0) });
}

impl Alarm {
    pub(super) fn of_this_thread() -> Arc<Self> {
        // While the thread-locals of a thread that ends are torn down: one of its own.
        ALARM.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(Self { rung: AtomicU32::new(0) }))
    }

    /// Sleeps until `done`, or for `timeout` in all. A ring that was meant for an earlier wait of
    /// this thread costs one look.
    pub(super) fn wait(&self, timeout: Option<Duration>, done: impl Fn() -> bool) {
        let until = timeout.and_then(|t| std::time::Instant::now().checked_add(t));
        loop {
            // ORDERING: Relaxed: `done` looks at the job's own word with the ordering it needs.
            self.rung.store(0, Ordering::Relaxed);
            // ORDERING: SeqCst fence: pairs with the one in `wake_by_ref`: either we see the end, or
            // the ender's ring comes after our reset.
            crate::sync::atomic::fence(Ordering::SeqCst);
            if done() {
                return;
            }
            let left = match until {
                None => None,
                Some(until) => {
                    let left = until.saturating_duration_since(std::time::Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    Some(left)
                }
            };
            match park::wait(&self.rung, 0, left) {
                Wait::Woken | Wait::Changed | Wait::TimedOut => {}
            }
        }
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // ORDERING: SeqCst fence: pairs with the one in `wait`.
        crate::sync::atomic::fence(Ordering::SeqCst);
        // ORDERING: Relaxed: see `wait`.
        self.rung.store(1, Ordering::Relaxed);
        park::wake_one(&raw const self.rung);
    }
}
