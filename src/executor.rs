//! Where work runs: the choice that a callback's author makes, apart from what the callback does.
//!
//! An [`Executor`] takes a [`Task`] and runs it somewhere, some time. It may refuse, by giving the
//! task back; it may lose it, by dropping it, or by panicking. In each case whatever hangs on the
//! task is resolved with [`Rejected`](crate::promise::EventualError::Rejected), so nobody waits for
//! ever.

use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

use crate::promise::block::{self, Class};
use crate::promise::trampoline::{self, Mode, Work, guarded};

/// A place to run tasks.
///
/// # Examples
///
/// A thread for each task:
///
/// ```
/// use tenure::executor::{Executor, Task};
///
/// struct Threads;
///
/// impl Executor for Threads {
///     fn execute(&self, task: Task) -> Result<(), Task> {
///         std::thread::spawn(|| task.run());
///         Ok(())
///     }
/// }
/// ```
pub trait Executor {
    /// Runs the task, here or elsewhere, now or later.
    ///
    /// Called by whoever completes a promise: it should only pass the task on.
    ///
    /// # Errors
    ///
    /// Gives the task back if it will not run it.
    fn execute(&self, task: Task) -> Result<(), Task>;
}

/// Runs every task at once, in the thread that hands it over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Inline;

impl Executor for Inline {
    fn execute(&self, task: Task) -> Result<(), Task> {
        task.run();
        Ok(())
    }
}

/// A thread for each task. One that the system will not start rejects its task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ThreadPerTask;

#[cfg(not(any(tenure_loom, tenure_shuttle)))]
impl Executor for ThreadPerTask {
    fn execute(&self, task: Task) -> Result<(), Task> {
        // A failure drops the closure, and with it the task, which rejects it.
        let _ = std::thread::Builder::new().name("tenure-task".into()).spawn(|| task.run());
        Ok(())
    }
}

/// The tasks run on the runtime's worker threads. One that is shutting down drops them, which rejects
/// them.
#[cfg(feature = "tokio")]
impl Executor for tokio::runtime::Handle {
    fn execute(&self, task: Task) -> Result<(), Task> {
        drop(self.spawn(async move { task.run() }));
        Ok(())
    }
}

/// The tasks run on the pool's threads.
#[cfg(feature = "rayon")]
impl Executor for rayon_core::ThreadPool {
    fn execute(&self, task: Task) -> Result<(), Task> {
        self.spawn(|| task.run());
        Ok(())
    }
}

/// Rayon's global pool.
#[cfg(feature = "rayon")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RayonGlobal;

#[cfg(feature = "rayon")]
impl Executor for RayonGlobal {
    fn execute(&self, task: Task) -> Result<(), Task> {
        rayon_core::spawn(|| task.run());
        Ok(())
    }
}

impl<X: Executor + ?Sized> Executor for &X {
    fn execute(&self, task: Task) -> Result<(), Task> {
        (**self).execute(task)
    }
}

impl<X: Executor + ?Sized> Executor for Box<X> {
    fn execute(&self, task: Task) -> Result<(), Task> {
        (**self).execute(task)
    }
}

impl<X: Executor + ?Sized> Executor for Arc<X> {
    fn execute(&self, task: Task) -> Result<(), Task> {
        (**self).execute(task)
    }
}

/// One piece of work, to be run once, on any thread. Eight bytes.
///
/// Dropping it instead of running it rejects it: what hangs on it is resolved with
/// [`Rejected`](crate::promise::EventualError::Rejected), on the dropping thread; deep in callbacks,
/// by the time the outermost one returns or the thread blocks for a result.
#[must_use = "a task that is dropped is rejected, not run"]
pub struct Task {
    work: NonNull<Work>,
}

// SAFETY: a task owns its work, and every constructor asks that all of it can be sent.
unsafe impl Send for Task {}
// SAFETY: a shared reference to a task gives nothing away.
unsafe impl Sync for Task {}

#[repr(C)]
struct Boxed<F> {
    work: Work,
    f: F,
}

impl Task {
    /// A task that runs `f`. A panic in it goes to the
    /// [panic hook](crate::promise::set_panic_hook); if the task is dropped, `f` is.
    pub fn new<F: FnOnce() + Send + 'static>(f: F) -> Self {
        let at = block::allocate::<Boxed<F>>();
        // SAFETY: fresh memory for a `Boxed<F>`.
        unsafe { at.write(Boxed { work: Work::new(run_boxed::<F>), f }) };
        Self { work: at.cast() }
    }

    /// # Safety
    ///
    /// The caller owns the work, gives it up, and all of it can be sent to another thread.
    pub(crate) unsafe fn from_work(work: NonNull<Work>) -> Self {
        Self { work }
    }

    /// Runs it, on this thread, with everything that it makes ready. Never panics.
    ///
    /// Inside another task or callback that runs deep in the stack already, it only queues: it will
    /// have run by the time the outermost one returns, or the thread blocks for a result.
    pub fn run(self) {
        let work = self.work;
        core::mem::forget(self);
        // SAFETY: the task owned it.
        unsafe { trampoline::run(work) };
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // SAFETY: the task owns it, and goes away.
        unsafe { trampoline::reject(self.work) };
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

/// # Safety
///
/// As [`RunFn`](trampoline::RunFn); the work heads a `Boxed<F>`.
unsafe fn run_boxed<F: FnOnce()>(work: NonNull<Work>, mode: Mode) -> Option<NonNull<Work>> {
    let at = work.cast::<Boxed<F>>();
    // SAFETY: the caller owns the block; its closure is moved out before it is freed.
    let f = unsafe {
        let f = (&raw const (*at.as_ptr()).f).read();
        #[cfg(any(tenure_loom, tenure_shuttle))]
        core::ptr::drop_in_place(&raw mut (*at.as_ptr()).work);
        block::free(at, const { Class::of(core::alloc::Layout::new::<Boxed<F>>()) });
        f
    };
    guarded(|| match mode {
        Mode::Run => f(),
        Mode::Reject => drop(f),
    });
    None
}
