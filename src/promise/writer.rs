//! `Promise`: the writing end.

use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::task::{Context, Poll};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::executor::Task;

use super::cancel::{Hook, NodeRef};
use super::core::{CorePtr, Settled};
use super::error::{EventualError, PanicPayload, SetError};
use super::state::{Last, Word};
use super::trampoline::{self, guarded};

/// The writing end: sets one result, once.
///
/// Whatever is done with it, the reader hears of it: dropping a promise that was not set breaks it.
/// A set never blocks; what the reader left behind (a callback, a stage, a waker) runs inside it, on
/// the setting thread, unless it was bound to an executor. A panic in there does not reach the
/// setter.
///
/// # Memory ordering
///
/// Everything before the set happens-before whatever the reader does with the result.
///
/// # Examples
///
/// ```
/// let (promise, eventual) = tenure::promise::promise::<u32, ()>();
/// promise.set(7)?;
/// assert_eq!(eventual.get().ok(), Some(7));
/// # Ok::<(), tenure::promise::SetError<u32>>(())
/// ```
#[must_use = "a promise that is dropped is broken"]
pub struct Promise<T, E> {
    core: CorePtr<T, E>,
    // It owns what it will hand over.
    owns: PhantomData<(T, E)>,
}

// SAFETY: a promise moves a `T` or an `E` to the reader's thread; all that both ends share is behind
// the state word.
unsafe impl<T: Send, E: Send> Send for Promise<T, E> {}
// SAFETY: through a shared reference a promise only reads its state word and its cancel node.
unsafe impl<T: Send, E: Send> Sync for Promise<T, E> {}

impl<T, E> Promise<T, E> {
    #[inline]
    pub(super) fn new(core: CorePtr<T, E>) -> Self {
        Self { core, owns: PhantomData }
    }

    #[inline]
    fn into_core(self) -> CorePtr<T, E> {
        let core = self.core;
        core::mem::forget(self);
        core
    }

    /// Sets the value, and runs what the reader left for it.
    ///
    /// # Errors
    ///
    /// [`SetError`] gives the value back when no reader is left. An `Ok` does not say that the value
    /// was read: the reader may still drop it unseen.
    #[inline]
    pub fn set(self, value: T) -> Result<(), SetError<T>> {
        let core = self.into_core();
        // SAFETY: we are the writer; the payload is ours until it is settled.
        unsafe {
            core.write_value(value);
            match core.settle_untouched(Last::Value) {
                Ok(()) => Ok(()),
                Err(seen) => Self::set_from(core, seen),
            }
        }
    }

    /// # Safety
    ///
    /// `settle_untouched` said `seen` of a core with a value in it.
    #[inline(never)]
    unsafe fn set_from(core: CorePtr<T, E>, seen: Word) -> Result<(), SetError<T>> {
        // SAFETY: the caller's promise.
        unsafe {
            match core.settle_from(seen, Last::Value) {
                Settled::Delivered => Ok(()),
                Settled::Next(work) => {
                    trampoline::run(work);
                    Ok(())
                }
                Settled::Refused => {
                    let value = core.take_value();
                    core.free();
                    Err(SetError::new(value))
                }
            }
        }
    }

    /// Sets the error [`Failed(error)`](EventualError::Failed), and runs what the reader left for it.
    ///
    /// # Errors
    ///
    /// [`SetError`] gives the error back when no reader is left.
    pub fn set_error(self, error: E) -> Result<(), SetError<E>> {
        match self.settle(Err(EventualError::Failed(error))) {
            Some(Err(EventualError::Failed(error))) => Err(SetError::new(error)),
            Some(_) | None => Ok(()),
        }
    }

    /// Sets the value or the error.
    ///
    /// # Errors
    ///
    /// [`SetError`] gives the result back when no reader is left.
    pub fn complete(self, result: Result<T, E>) -> Result<(), SetError<Result<T, E>>> {
        match result {
            Ok(value) => self.set(value).map_err(|back| SetError::new(Ok(back.into_inner()))),
            Err(error) => {
                self.set_error(error).map_err(|back| SetError::new(Err(back.into_inner())))
            }
        }
    }

    /// Runs `f`, here and now, and sets what it returns; a panic in it becomes
    /// [`Panicked`](EventualError::Panicked) for the reader and goes no further.
    ///
    /// # Errors
    ///
    /// [`SetError`] gives the result back when no reader is left. A panic that nobody is left to
    /// receive goes to the [panic hook](super::set_panic_hook).
    pub fn complete_with(
        self,
        f: impl FnOnce() -> Result<T, E>,
    ) -> Result<(), SetError<Result<T, E>>> {
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(result) => self.complete(result),
            Err(payload) => {
                let payload = PanicPayload::new(payload);
                if let Some(Err(EventualError::Panicked(payload))) =
                    self.settle(Err(EventualError::Panicked(payload)))
                {
                    super::panics::report(payload);
                }
                Ok(())
            }
        }
    }

    /// Answers a cancellation: the reader gets [`Cancelled`](EventualError::Cancelled), whether it
    /// asked or not.
    pub fn set_cancelled(self) {
        let _ = self.settle(Err(EventualError::Cancelled));
    }

    /// Settles with any outcome; gives it back if no reader is left.
    pub(crate) fn settle(
        self,
        outcome: Result<T, EventualError<E>>,
    ) -> Option<Result<T, EventualError<E>>> {
        let core = self.into_core();
        // SAFETY: we are the writer, and settle once.
        let (next, back) = unsafe { settle(core, outcome) };
        if let Some(work) = next {
            // SAFETY: settling made it ours.
            unsafe { trampoline::run(work) };
        }
        back
    }

    /// Whether a reader asked for cancellation, or left without a word.
    ///
    /// It is a request: the result that is set first counts. Everything the reader did before it
    /// asked happens-before a `true`.
    pub fn is_cancelled(&self) -> bool {
        // SAFETY: the writer has not left.
        unsafe { self.core.state().peek().cancel_requested() || self.core.node_is_cancelled() }
    }

    /// Has `hook` run once, as soon as a reader asks for cancellation: on the thread that asks, or at
    /// once, here, if one has. A later hook takes the place of an earlier one.
    ///
    /// The hook is dropped, unrun, when the promise is set or dropped first. While a set races a
    /// cancellation both can come true: the hook may have run although the set returned `Ok`, and
    /// [`cancel`](super::Eventual::cancel) may have said `true` although the hook was let go. A panic
    /// in it goes to the [panic hook](super::set_panic_hook).
    pub fn on_cancel(&mut self, hook: impl FnOnce() + Send + 'static) {
        // SAFETY: the writer has not left.
        let node = unsafe { self.core.node() };
        match node.set_hook(Hook::Run(Task::new(hook))) {
            Err(hook) => return hook.fire(),
            Ok(old) => guarded(|| drop(old)),
        }
        self.announce(&node);
    }

    /// From here on whoever asks for cancellation looks into the node; if somebody has, tells it.
    pub(super) fn announce(&mut self, node: &NodeRef) {
        // SAFETY: the writer has not left.
        let state = unsafe { self.core.state() };
        let mut seen = state.peek();
        if !seen.has_hook() {
            seen = state.announce_hook();
        }
        if seen.cancel_requested() {
            // The request came before our announcement: whoever asked may not have seen the node.
            node.cancel();
        }
    }

    /// The cancel node, announced.
    pub(super) fn cancel_node(&mut self) -> NodeRef {
        // SAFETY: the writer has not left.
        let node = unsafe { self.core.node() };
        self.announce(&node);
        node
    }

    /// Ready once a reader asked for cancellation, or left. Until then the last waker polled with is
    /// woken by that. It stands beside [`on_cancel`](Promise::on_cancel): both work at once.
    pub fn poll_cancelled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_cancelled() {
            return Poll::Ready(());
        }
        // SAFETY: the writer has not left.
        let node = unsafe { self.core.node() };
        if node.register(cx.waker()) {
            return Poll::Ready(());
        }
        self.announce(&node);
        if self.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Waits, asynchronously, until a reader asks for cancellation, or leaves. Cancel-safe: the
    /// promise is only borrowed.
    pub fn cancelled(&mut self) -> impl Future<Output = ()> + Send + '_
    where
        T: Send,
        E: Send,
    {
        core::future::poll_fn(|cx| self.poll_cancelled(cx))
    }
}

/// Settles `core`; gives what is to be run next, and the outcome if nobody could receive it.
///
/// # Safety
///
/// The caller is the core's writer, has not left, and leaves by this.
#[allow(clippy::type_complexity, reason = "two things that may each be absent")]
pub(super) unsafe fn settle<T, E>(
    core: CorePtr<T, E>,
    outcome: Result<T, EventualError<E>>,
) -> (Option<core::ptr::NonNull<trampoline::Work>>, Option<Result<T, EventualError<E>>>) {
    let last = Last::of(&outcome);
    // SAFETY: the caller is the writer, and nothing is set yet.
    unsafe {
        core.write_outcome(outcome);
        match core.settle(last) {
            Settled::Delivered => (None, None),
            Settled::Next(work) => (Some(work), None),
            Settled::Refused => (None, Some(take_back(core, last))),
        }
    }
}

/// # Safety
///
/// `settle` said `Refused`.
#[cold]
unsafe fn take_back<T, E>(core: CorePtr<T, E>, last: Last) -> Result<T, EventualError<E>> {
    // SAFETY: refused: sole owner, and the payload is as we wrote it.
    unsafe { core.take_outcome(last, || core.free()) }
}

impl<T, E> Drop for Promise<T, E> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a promise that was settled was forgotten: we are the writer still. A broken promise
        // has no payload.
        unsafe {
            let state = self.core.state();
            let seen = state.peek();
            // Nearly always: nobody asked for anything yet.
            if seen.is_untouched()
                && !self.core.has_node()
                && state.complete_and_leave(seen, Last::Broken).is_ok()
            {
                return;
            }
        }
        self.give_up();
    }
}

impl<T, E> Promise<T, E> {
    /// What a drop does.
    #[inline(never)]
    fn give_up(&mut self) {
        let why = if self.is_cancelled() { Last::Cancelled } else { Last::Broken };
        // SAFETY: a promise that was settled was forgotten: we are the writer still, and neither
        // ending has a payload.
        unsafe {
            match self.core.settle(why) {
                Settled::Delivered => {}
                Settled::Next(work) => trampoline::run(work),
                Settled::Refused => self.core.free(),
            }
        }
    }
}

impl<T, E> fmt::Debug for Promise<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Promise").field("is_cancelled", &self.is_cancelled()).finish()
    }
}
