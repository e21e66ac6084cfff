//! A job's result as an [`Eventual`], or pushed to a callback.
//!
//! The slot of the result stays the job's own: its word says more (epochs, attempts, runners) than a
//! promise's, and whoever ends a job need not know what waits for it. What hangs on the result is one
//! more block, left in the job as its waker.

use std::sync::Arc;
use std::task::{Wake, Waker};

use super::cell::Handle;
use super::error::JobError;
use super::handle::{self, JobHandle};
use crate::lock::Unseen;
use crate::promise::{self, Eventual};

/// What a job's end is to run.
struct After<T, F> {
    // Taken twice in its life, and no foreign code under it.
    rest: Unseen<Option<(Handle<T>, F)>>,
}

impl<T, F: FnOnce(Result<T, JobError>)> After<T, F> {
    fn run(&self) {
        let rest = self.rest.lock().take();
        if let Some((mut handle, f)) = rest {
            // Woken, or told so: the job is over.
            let result = handle.take().flatten().unwrap_or(Err(JobError::Taken));
            // Foreign code, with no lock held; who wakes us contains its panics.
            f(result);
        }
    }
}

impl<T: Send, F: FnOnce(Result<T, JobError>) + Send> Wake for After<T, F> {
    fn wake(self: Arc<Self>) {
        self.run();
    }
}

/// Has `f` run by whoever ends the job. Gives both back if it is over.
pub(super) fn after<T, F>(mut handle: Handle<T>, f: F) -> Result<(), (Handle<T>, F)>
where
    T: Send + 'static,
    F: FnOnce(Result<T, JobError>) + Send + 'static,
{
    let after = Arc::new(After { rest: Unseen::new(None) });
    // Held while the waker goes in, so that an end in between finds what it is to run.
    let mut rest = after.rest.lock();
    if handle.register(Waker::from(Arc::clone(&after))) {
        *rest = Some((handle, f));
        Ok(())
    } else {
        Err((handle, f))
    }
}

impl<T: Send + 'static> JobHandle<T> {
    /// Has `f` run with the result: by the thread that ends the job, or here and now if it is over.
    /// One allocation. A panic in it is an event, and goes no further.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::mpsc;
    /// let runtime = tenure::Runtime::builder().workers(1).build()?;
    /// let (send, told) = mpsc::channel();
    /// runtime.submit(|_| Ok::<_, String>(7))?.on_complete(move |result| {
    ///     let _ = send.send(result.ok());
    /// });
    /// assert_eq!(told.recv()?, Some(7));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Blocking
    /// What `f` does holds up the worker that ends the job.
    pub fn on_complete(self, f: impl FnOnce(Result<T, JobError>) + Send + 'static) {
        if let Err((mut handle, f)) = after(self.into_handle(), f) {
            let result = handle.take().flatten().unwrap_or(Err(JobError::Taken));
            super::cell::contained(move || f(result));
        }
    }

    /// The result as an [`Eventual`]: to be mapped, combined, shared, passed on. A job that was cancelled
    /// is [`Cancelled`](crate::promise::EventualError::Cancelled), one without a value for another reason is
    /// [`Failed`](crate::promise::EventualError::Failed).
    ///
    /// Two allocations beside the job's: the eventual's core (pooled) and what connects the two.
    ///
    /// # Cancellation and drop
    /// Cancelling the eventual cancels the job. So does dropping it, other than a handle: see
    /// [`Eventual::detach`].
    ///
    /// # Blocking
    /// Inside a job, [`JobHandle::get`] is better than [`Eventual::get`]: that one knows nothing of the
    /// pool, and needs to be in a [`blocking`](super::blocking) section.
    pub fn into_eventual(self) -> Eventual<T, JobError> {
        let (mut promise, eventual) = promise::promise();
        let job = self.job_ref();
        promise.on_cancel(move || {
            handle::cancel(&job);
        });
        self.on_complete(move |result| match result {
            Err(JobError::Cancelled) => promise.set_cancelled(),
            result => {
                // Nobody left to hear of it: the value is dropped here.
                let _ = promise.complete(result);
            }
        });
        eventual
    }

    /// An eventual of what `f` makes of the value. As
    /// [`into_eventual`](Self::into_eventual)`().map(f)`.
    pub fn map<U, F>(self, f: F) -> Eventual<U, JobError>
    where
        U: Send + 'static,
        F: FnOnce(T) -> U + Send + 'static,
    {
        self.into_eventual().map(f)
    }
}

impl<T: Send + 'static> From<JobHandle<T>> for Eventual<T, JobError> {
    fn from(handle: JobHandle<T>) -> Self {
        handle.into_eventual()
    }
}
