//! Terminal callbacks: `on_complete` and `on_complete_via`.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use crate::executor::Executor;

use super::core::{CorePtr, Outcome};
use super::error::EventualError;
use super::eventual::Eventual;
use super::hang::{Bound, Hang, hand_over, queue_ready, store, stored, take_stored};
use super::trampoline::{Level, Mode, RunFn, Work, guarded};

impl<T: Send + 'static, E: Send + 'static> Eventual<T, E> {
    /// Leaves a callback: it runs once, with the outcome, in the thread that completes the promise;
    /// or at once, here, if that has happened already.
    ///
    /// The callback delays whoever runs it: for anything long use
    /// [`on_complete_via`](Eventual::on_complete_via). A panic in it goes to the
    /// [panic hook](super::set_panic_hook). Callbacks that complete further promises do not grow the
    /// stack: beyond a small depth they run when the thread's outermost callback has returned.
    /// Leaving a callback does not ask for cancellation.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// let (promise, eventual) = tenure::promise::promise::<u32, ()>();
    /// let (send, receive) = mpsc::channel();
    /// eventual.on_complete(move |outcome| drop(send.send(outcome.ok())));
    /// promise.set(3)?;
    /// assert_eq!(receive.recv(), Ok(Some(3)));
    /// # Ok::<(), tenure::promise::SetError<u32>>(())
    /// ```
    pub fn on_complete(self, callback: impl FnOnce(Outcome<T, E>) + Send + 'static) {
        if let Err((Callback(callback), outcome)) = self.hang(Callback(callback)) {
            match Level::enter() {
                Some(_level) => guarded(|| callback(outcome)),
                None => queue_ready(outcome, Callback(callback)),
            }
        }
    }

    /// Leaves a callback that runs on `executor`, also if the outcome is there already.
    ///
    /// Whoever completes the promise only hands the callback over. If the executor refuses it, drops
    /// it or panics, it runs with [`Rejected`](EventualError::Rejected) where that happened, and the
    /// outcome itself is dropped.
    pub fn on_complete_via<X: Executor + Send + 'static>(
        self,
        executor: X,
        callback: impl FnOnce(Outcome<T, E>) + Send + 'static,
    ) {
        let bound = Bound { executor: MaybeUninit::new(executor), rest: callback };
        if let Err((BoundCallback(bound), outcome)) = self.hang(BoundCallback(bound)) {
            let core = CorePtr::allocate_complete(outcome);
            // SAFETY: the core is ours alone; its work is handed over once.
            unsafe {
                BoundCallback(bound).hang(core, true);
                super::trampoline::run(core.work());
            }
        }
    }
}

struct Callback<F>(F);

impl<T, E, F: FnOnce(Outcome<T, E>)> Hang<T, E> for Callback<F> {
    unsafe fn hang(self, core: CorePtr<T, E>, plain: bool) {
        // SAFETY: the caller may write the slot, and the run function that goes with it.
        unsafe {
            let run: RunFn = if store(core, plain, self.0) {
                run_callback::<T, E, F, true>
            } else {
                run_callback::<T, E, F, false>
            };
            core.set_run(run);
        }
    }

    unsafe fn unhang(core: CorePtr<T, E>, plain: bool) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { take_stored(core, in_slot::<F>(plain)) })
    }
}

struct BoundCallback<X, F>(Bound<X, F>);

impl<T, E, X: Executor, F: FnOnce(Outcome<T, E>)> Hang<T, E> for BoundCallback<X, F> {
    unsafe fn hang(self, core: CorePtr<T, E>, plain: bool) {
        // SAFETY: as for `Callback`.
        unsafe {
            let run: RunFn = if store(core, plain, self.0) {
                dispatch_callback::<T, E, X, F, true>
            } else {
                dispatch_callback::<T, E, X, F, false>
            };
            core.set_run(run);
        }
    }

    unsafe fn unhang(core: CorePtr<T, E>, plain: bool) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { take_stored(core, in_slot::<Bound<X, F>>(plain)) })
    }
}

const fn in_slot<S>(plain: bool) -> bool {
    super::hang::fits::<S>() && plain
}

/// Calls a callback with the outcome of the core it lay in.
///
/// # Safety
///
/// [`RunFn`]; `F` was stored in a `Core<T, E>`, in the slot if `IN_SLOT`.
unsafe fn run_callback<T, E, F: FnOnce(Outcome<T, E>), const IN_SLOT: bool>(
    work: NonNull<Work>,
    mode: Mode,
) -> Option<NonNull<Work>> {
    guarded(|| {
        // SAFETY: the caller owns a complete core.
        let (callback, outcome) = unsafe {
            let core = CorePtr::<T, E>::from_work(work);
            let callback: F = take_stored(core, IN_SLOT);
            (callback, core.take_alone())
        };
        call(callback, outcome, mode);
    });
    None
}

#[inline(always)]
fn call<T, E, F: FnOnce(Outcome<T, E>)>(callback: F, outcome: Outcome<T, E>, mode: Mode) {
    match mode {
        Mode::Run => callback(outcome),
        Mode::Reject => {
            guarded(|| drop(outcome));
            callback(Err(EventualError::Rejected));
        }
    }
}

/// Hands a callback to its executor.
///
/// # Safety
///
/// [`RunFn`]; a `Bound<X, F>` was stored in a `Core<T, E>`, in the slot if `IN_SLOT`.
unsafe fn dispatch_callback<T, E, X, F, const IN_SLOT: bool>(
    work: NonNull<Work>,
    mode: Mode,
) -> Option<NonNull<Work>>
where
    X: Executor,
    F: FnOnce(Outcome<T, E>),
{
    let next: RunFn = run_bound_callback::<T, E, X, F, IN_SLOT>;
    // SAFETY: the caller owns a complete core; the executor is moved out once, here.
    let executor = unsafe {
        let core = CorePtr::<T, E>::from_work(work);
        core.set_run(next);
        (*stored::<T, E, Bound<X, F>>(core, IN_SLOT)).executor.assume_init_read()
    };
    match mode {
        Mode::Run => {
            hand_over(executor, work);
            None
        }
        Mode::Reject => {
            guarded(|| drop(executor));
            // SAFETY: still ours.
            unsafe { next(work, mode) }
        }
    }
}

/// Calls a callback whose executor was moved out.
///
/// # Safety
///
/// As `dispatch_callback`, after it.
unsafe fn run_bound_callback<T, E, X, F: FnOnce(Outcome<T, E>), const IN_SLOT: bool>(
    work: NonNull<Work>,
    mode: Mode,
) -> Option<NonNull<Work>> {
    guarded(|| {
        // SAFETY: the caller owns a complete core.
        let (bound, outcome) = unsafe {
            let core = CorePtr::<T, E>::from_work(work);
            let bound: Bound<X, F> = take_stored(core, IN_SLOT);
            (bound, core.take_alone())
        };
        call(bound.rest, outcome, mode);
    });
    None
}
