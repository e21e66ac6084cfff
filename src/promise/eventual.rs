//! `Eventual`: the reading end. Asking, waiting, polling, leaving.

use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll, Waker};
use core::time::Duration;

use crate::sync::Wait;
use crate::wait::Deadline;

use super::cancel::NodeRef;
use super::core::{CorePtr, Outcome};
use super::error::EventualError;
use super::patience;
use super::state::Word;
use super::trampoline::{before_blocking, guarded};

/// Where an [`Eventual`] stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Nothing is set yet.
    Initial,
    /// A value is there.
    ResultSet,
    /// An error is there.
    ExceptionSet,
    /// The result was taken.
    ValueMoved,
}

/// The reading end: one result, later. Take it with [`get`](Eventual::get) (blocks), `.await`, or a
/// callback; or build on it with [`map`](Eventual::map) and its kind.
///
/// It gives its result once. After that, [`state`](Eventual::state) says
/// [`ValueMoved`](State::ValueMoved) and every way of asking says
/// [`Taken`](EventualError::Taken).
///
/// # Cancellation and drop
///
/// Dropping an eventual asks the writer to stop ([`Promise::is_cancelled`](super::Promise::is_cancelled));
/// [`detach`](Eventual::detach) lets go without asking. A result that nobody took is dropped by
/// whoever leaves second, writer or reader, on that thread. As a future it is cancel-safe: a poll
/// that is abandoned loses nothing.
///
/// # Examples
///
/// ```
/// use tenure::promise::promise;
///
/// let (promise, eventual) = promise::<u32, ()>();
/// let doubled = eventual.map(|n| n * 2);
/// let writer = std::thread::spawn(move || promise.set(21));
/// assert_eq!(doubled.get().ok(), Some(42));
/// # writer.join().ok();
/// ```
#[must_use = "an eventual that is dropped asks for cancellation; `detach` it to let it run"]
pub struct Eventual<T, E> {
    // Or `TAKEN`.
    core: NonNull<()>,
    owns: PhantomData<(T, E)>,
}

/// What the handle holds once its core is left: an address at which no core can lie.
const TAKEN: NonNull<()> = NonNull::dangling();

// SAFETY: an eventual moves a `T` or an `E` to its own thread; all that both ends share is behind
// the state word.
unsafe impl<T: Send, E: Send> Send for Eventual<T, E> {}
// SAFETY: through a shared reference it reads its state word, and asks for cancellation, which any
// number of threads may do.
unsafe impl<T: Send, E: Send> Sync for Eventual<T, E> {}

impl<T, E> Unpin for Eventual<T, E> {}

impl<T, E> Eventual<T, E> {
    #[inline]
    pub(super) fn new(core: CorePtr<T, E>) -> Self {
        // SAFETY: a core's address is not null.
        Self { core: unsafe { NonNull::new_unchecked(core.as_ptr()) }, owns: PhantomData }
    }

    /// An eventual with this outcome.
    pub(super) fn complete(outcome: Outcome<T, E>) -> Self {
        Self::new(CorePtr::allocate_complete(outcome))
    }

    /// The core, if it was not left.
    #[inline]
    pub(super) fn core(&self) -> Option<CorePtr<T, E>> {
        (self.core != TAKEN).then(|| CorePtr::from_non_null(self.core))
    }

    /// Gives the core up: the handle says "taken" from here on.
    #[inline]
    pub(super) fn leave(&mut self) {
        self.core = TAKEN;
    }

    /// The core, to be left by the caller.
    #[inline]
    pub(super) fn into_core(mut self) -> Option<CorePtr<T, E>> {
        let core = self.core();
        self.leave();
        core
    }

    /// Takes the outcome if `word` shows one.
    #[inline(never)]
    pub(super) fn take_if_complete(
        &mut self,
        core: CorePtr<T, E>,
        word: Word,
    ) -> Option<Outcome<T, E>> {
        let last = word.last()?;
        self.leave();
        // SAFETY: the word came from an acquiring read by the reader; the handle has let go.
        Some(unsafe { core.take_and_leave(word, last) })
    }

    /// Where it stands. May be old news by the time you look, except for `ValueMoved`.
    pub fn state(&self) -> State {
        let Some(core) = self.core() else { return State::ValueMoved };
        // SAFETY: not left.
        let word = unsafe { core.state() }.peek();
        match (word.is_complete(), word.is_value()) {
            (false, _) => State::Initial,
            (true, true) => State::ResultSet,
            (true, false) => State::ExceptionSet,
        }
    }

    /// Whether a `get` would return at once.
    pub fn is_ready(&self) -> bool {
        self.state() != State::Initial
    }

    /// The outcome if it is there; `None` if it is not there yet.
    ///
    /// # Errors
    ///
    /// What the promise came to, or [`Taken`](EventualError::Taken).
    #[inline]
    pub fn try_get(&mut self) -> Option<Outcome<T, E>> {
        let Some(core) = self.core() else { return Some(Err(EventualError::Taken)) };
        // SAFETY: not left.
        let word = unsafe { core.state() }.peek();
        if word.is_value_alone() {
            self.leave();
            // SAFETY: the writer left a value and is gone: the core is ours alone.
            return Some(Ok(unsafe { core.take_value_alone() }));
        }
        if word.is_broken_alone() {
            self.leave();
            // SAFETY: the writer left nothing and is gone: the core is ours alone.
            unsafe { core.free() };
            return Some(Err(EventualError::Broken));
        }
        self.take_if_complete(core, word)
    }

    /// Waits for the outcome.
    ///
    /// # Errors
    ///
    /// What the promise came to, or [`Taken`](EventualError::Taken).
    ///
    /// # Blocking
    ///
    /// The calling thread waits until the promise is set or dropped, however long that takes. It
    /// looks for a moment, if results came that quickly of late (on this thread; 60 µs at most), and
    /// then sleeps.
    #[inline]
    pub fn get(mut self) -> Outcome<T, E> {
        match self.try_get() {
            Some(outcome) => outcome,
            None => self.wait_until(Deadline::NEVER),
        }
    }

    /// Waits for the outcome, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](EventualError::TimedOut) after `timeout`: the eventual is as it was, ask again.
    /// Else what the promise came to, or [`Taken`](EventualError::Taken).
    ///
    /// # Blocking
    ///
    /// At most `timeout`, by the system's steady clock; zero does not block, `Duration::MAX` is for
    /// ever.
    pub fn get_timeout(&mut self, timeout: Duration) -> Outcome<T, E> {
        if let Some(outcome) = self.try_get() {
            return outcome;
        }
        if timeout.is_zero() {
            return Err(EventualError::TimedOut);
        }
        self.wait_until(Deadline::after(timeout))
    }

    /// Waits for the outcome until `deadline`.
    ///
    /// # Errors
    ///
    /// As [`get_timeout`](Eventual::get_timeout).
    ///
    /// # Blocking
    ///
    /// Until `deadline` at most; one that has passed does not block, [`Deadline::NEVER`] is for
    /// ever.
    pub fn get_deadline(&mut self, deadline: Deadline) -> Outcome<T, E> {
        match self.try_get() {
            Some(outcome) => outcome,
            None => self.wait_until(deadline),
        }
    }

    #[cold]
    fn wait_until(&mut self, deadline: Deadline) -> Outcome<T, E> {
        let Some(core) = self.core() else { return Err(EventualError::Taken) };
        before_blocking();
        // SAFETY: not left during the wait.
        let state = unsafe { core.state() };
        // While we look there is nobody to wake, which is what makes it cheap for the writer.
        if patience::look(deadline.remaining(), || state.peek().is_complete())
            && let Some(outcome) = self.take_if_complete(core, state.peek())
        {
            return outcome;
        }
        let word = state.park();
        if let Some(outcome) = self.take_if_complete(core, word) {
            return outcome;
        }
        loop {
            let word = state.peek();
            if let Some(outcome) = self.take_if_complete(core, word) {
                return outcome;
            }
            let left = deadline.remaining();
            #[cfg(test)]
            patience::probe::sleeps();
            if left.is_some_and(|left| left.is_zero()) || state.sleep(word, left) == Wait::TimedOut
            {
                return self.give_up(core);
            }
        }
    }

    /// The time is up: nobody shall wake us, unless the result came first.
    fn give_up(&mut self, core: CorePtr<T, E>) -> Outcome<T, E> {
        // SAFETY: not left.
        let word = unsafe { core.state() }.unpark();
        self.take_if_complete(core, word).unwrap_or(Err(EventualError::TimedOut))
    }

    /// Asks the writer to stop; says whether the request came before the result.
    ///
    /// It is a request: the writer may set a result all the same, and the eventual stays usable. A
    /// promise that is dropped after it reads as [`Cancelled`](EventualError::Cancelled). The
    /// writer's hook, if it left one, runs inside this call.
    pub fn cancel(&self) -> bool {
        let Some(core) = self.core() else { return false };
        // SAFETY: not left.
        let state = unsafe { core.state() };
        if state.peek().is_complete() || state.request_cancel().is_complete() {
            return false;
        }
        // After the request: whoever put a node in and did not see the request, put it in before.
        // SAFETY: not left.
        if let Some(node) = unsafe { core.node_if_any() } {
            node.cancel();
        }
        true
    }

    /// A handle that asks for cancellation, apart from the eventual: it keeps working after a
    /// callback or a stage was hung on that.
    pub fn canceller(&self) -> Canceller {
        let Some(core) = self.core() else { return Canceller(NodeRef::new()) };
        // SAFETY: not left.
        Canceller(unsafe { core.node() })
    }

    /// Lets go without asking for cancellation. The result, when it comes, is dropped by the writer,
    /// whose set gives the value back.
    pub fn detach(self) {
        if let Some(core) = self.into_core() {
            // SAFETY: the handle gave the core up.
            unsafe { abandon(core, false) };
        }
    }
}

/// The reader leaves without the result.
///
/// # Safety
///
/// Only by the reader, which gives the core up.
#[inline(never)]
unsafe fn abandon<T, E>(core: CorePtr<T, E>, cancel: bool) {
    // SAFETY: not left until `abandon` succeeds.
    let state = unsafe { core.state() };
    let mut seen = state.peek();
    loop {
        if let Some(last) = seen.last() {
            // SAFETY: a phase, seen with Acquire.
            let outcome = unsafe { core.take_and_leave(seen, last) };
            return guarded(|| drop(outcome));
        }
        // What to do once we have left has to be in hand before.
        // SAFETY: not left; the waker's words are the reader's own while there is no phase.
        let (node, waker) = unsafe {
            (
                if cancel { core.node_if_any() } else { None },
                seen.has_slot().then(|| core.copy_waker()),
            )
        };
        match state.abandon(seen, cancel) {
            Ok(()) => {
                if let Some(node) = node {
                    node.cancel();
                }
                if let Some(waker) = waker {
                    // SAFETY: no phase at the exchange, which took SLOT away: the waker stayed ours.
                    let waker = unsafe { waker.own() };
                    guarded(|| drop(waker));
                }
                return;
            }
            Err(now) => seen = now,
        }
    }
}

impl<T, E> Drop for Eventual<T, E> {
    #[inline]
    fn drop(&mut self) {
        let Some(core) = self.core() else { return };
        // SAFETY: the handle goes away.
        unsafe {
            let state = core.state();
            let seen = state.peek();
            // Often: nobody has done anything yet, so nobody is to be told.
            if seen.is_untouched() && !core.has_node() && state.abandon(seen, true).is_ok() {
                return;
            }
            abandon(core, true);
        }
    }
}

impl<T, E> Future for Eventual<T, E> {
    type Output = Outcome<T, E>;

    /// After it was ready once, it is ready with [`Taken`](EventualError::Taken).
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(core) = self.core() else { return Poll::Ready(Err(EventualError::Taken)) };
        // SAFETY: not left.
        let state = unsafe { core.state() };
        let word = state.peek();
        if word.is_value_alone() {
            self.leave();
            // SAFETY: the writer left a value and is gone: the core is ours alone.
            return Poll::Ready(Ok(unsafe { core.take_value_alone() }));
        }
        if word.is_complete() {
            return self.take_if_complete(core, word).map_or(Poll::Pending, Poll::Ready);
        }
        if word.has_slot() {
            return self.poll_again(core, cx.waker());
        }
        // Foreign: if it panics, all is as it was.
        let waker = cx.waker().clone();
        // SAFETY: SLOT is clear, and only the reader sets it.
        unsafe { core.write_waker(waker) };
        let word = state.install();
        if word.is_complete() {
            return self.poll_lost(core, word);
        }
        Poll::Pending
    }
}

impl<T, E> Eventual<T, E> {
    /// A poll with a waker in the slot.
    fn poll_again(&mut self, core: CorePtr<T, E>, waker: &Waker) -> Poll<Outcome<T, E>> {
        // SAFETY: not left.
        let state = unsafe { core.state() };
        // SAFETY: the reader's own words.
        let old = unsafe { core.copy_waker() };
        if old.is_same_as(waker) {
            return Poll::Pending;
        }
        // Foreign, and before anything moves: if it panics, all is as it was.
        let waker = waker.clone();
        let before = state.retract();
        if let Some(outcome) = self.take_if_complete(core, before) {
            // The old waker is the writer's.
            guarded(|| drop(waker));
            return Poll::Ready(outcome);
        }
        // SAFETY: SLOT is clear again.
        unsafe { core.write_waker(waker) };
        let word = state.install_again(before);
        // SAFETY: no phase was there when SLOT was taken away: the old waker stayed the reader's.
        let old = unsafe { old.own() };
        let polled = if word.is_complete() { self.poll_lost(core, word) } else { Poll::Pending };
        guarded(|| drop(old));
        polled
    }

    /// The result came before the waker was in: it is ours still.
    #[cold]
    fn poll_lost(&mut self, core: CorePtr<T, E>, word: Word) -> Poll<Outcome<T, E>> {
        // SAFETY: not left; the writer did not see SLOT. The words are read once, and then the core
        // is left.
        let waker = unsafe { core.copy_waker().own() };
        let outcome = self.take_if_complete(core, word);
        guarded(|| drop(waker));
        outcome.map_or(Poll::Pending, Poll::Ready)
    }
}

#[cfg(feature = "futures")]
impl<T, E> futures_core::FusedFuture for Eventual<T, E> {
    /// Whether the result was taken.
    fn is_terminated(&self) -> bool {
        self.core().is_none()
    }
}

/// Asks the writer of an [`Eventual`] to stop: see [`Eventual::canceller`].
#[derive(Clone, Debug)]
pub struct Canceller(NodeRef);

impl Canceller {
    /// Asks. Any number of times, from any thread; without effect once the result is set. The
    /// writer's hook, if it left one, runs inside this call.
    pub fn cancel(&self) {
        self.0.cancel();
    }
}

impl<T, E> fmt::Debug for Eventual<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Eventual").field(&self.state()).finish()
    }
}
