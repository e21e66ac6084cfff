//! `Shared`: an outcome that many read, by reference.

mod future;

use core::fmt;
use core::ptr::NonNull;
use core::task::Waker;
use core::time::Duration;

use crate::lock::AdaptiveMutex;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::sync::cell::UnsafeCell;
use crate::sync::{Arc, Wait, park};
use crate::wait::Deadline;

use super::block::{self, Class};
use super::core::Outcome;
use super::error::{EventualError, PanicPayload};
use super::eventual::{Canceller, Eventual};
use super::trampoline::{before_blocking, guarded};

pub use future::SharedFuture;

/// What a reader of a [`Shared`] gets: the outcome, by reference.
pub type OutcomeRef<'a, T, E> = Result<&'a T, &'a EventualError<E>>;

impl<T: Send + Sync + 'static, E: Send + Sync + 'static> Eventual<T, E> {
    /// Makes it one that many can read: by reference, any number of times, with any number of
    /// callbacks.
    pub fn share(self) -> Shared<T, E> {
        let inner = Arc::new(Inner {
            word: AtomicU32::new(0),
            readers: AtomicUsize::new(1),
            outcome: UnsafeCell::new(None),
            waiters: AdaptiveMutex::new(Waiters::default()),
            upstream: self.canceller(),
        });
        let sink = Arc::clone(&inner);
        self.on_complete(move |outcome| sink.complete(outcome));
        Shared { inner }
    }
}

/// An eventual that many read: see [`Eventual::share`]. Clones are the same eventual.
///
/// Callbacks run in the order in which they were registered, in the thread that completes the
/// promise; one that comes after completion runs at once, here. Once complete, reading costs one
/// load.
///
/// # Cancellation and drop
///
/// When the last clone is dropped before completion, and no callback was left, the writer is asked to
/// stop. A callback keeps the interest alive.
///
/// # Examples
///
/// ```
/// let (promise, eventual) = tenure::promise::promise::<String, ()>();
/// let shared = eventual.share();
/// let other = shared.clone();
/// let reader = std::thread::spawn(move || other.get().map_or(0, String::len));
/// promise.set("four".into()).ok();
/// assert_eq!(reader.join().ok(), Some(4));
/// assert_eq!(shared.peek().and_then(Result::ok).map(String::as_str), Some("four"));
/// ```
#[must_use = "when the last clone is dropped the writer is asked to stop"]
pub struct Shared<T, E> {
    inner: Arc<Inner<T, E>>,
}

/// The outcome is there. Never cleared.
const DONE: u32 = 1;
/// A thread sleeps on the word.
const PARKED: u32 = 1 << 1;
/// A callback was left: the work is wanted even if every clone is gone.
const WANTED: u32 = 1 << 2;

struct Inner<T, E> {
    word: AtomicU32,
    /// Clones, which are what the writer's work is for.
    readers: AtomicUsize,
    /// Written once, before DONE; read after it.
    outcome: UnsafeCell<Option<Outcome<T, E>>>,
    waiters: AdaptiveMutex<Waiters<T, E>>,
    upstream: Canceller,
}

// SAFETY: the outcome is written by the one completer before DONE (Release) and only read, by shared
// reference, after it (Acquire); the waiters are behind their lock.
unsafe impl<T: Send + Sync, E: Send + Sync> Sync for Inner<T, E> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, E: Send + Sync> Send for Inner<T, E> {}

/// The list of those who wait, in the order in which they came.
struct Waiters<T, E> {
    first: Option<NonNull<Waiter<T, E>>>,
    last: Option<NonNull<Waiter<T, E>>>,
}

impl<T, E> Default for Waiters<T, E> {
    fn default() -> Self {
        Self { first: None, last: None }
    }
}

/// One who waits. A callback's belongs to the list; a future's belongs to the future, which takes it
/// out of the list before it frees it.
#[repr(C)]
struct Waiter<T, E> {
    next: Option<NonNull<Self>>,
    previous: Option<NonNull<Self>>,
    linked: bool,
    kind: Kind<T, E>,
}

enum Kind<T, E> {
    Future(Option<Waker>),
    Callback(CallFn<T, E>),
}

/// Calls the closure behind the waiter with the outcome, and frees the whole.
type CallFn<T, E> = unsafe fn(NonNull<Waiter<T, E>>, &Outcome<T, E>);

/// A waiter with a callback behind it.
#[repr(C)]
struct WithCallback<T, E, F> {
    waiter: Waiter<T, E>,
    callback: F,
}

impl<T, E> Waiters<T, E> {
    /// # Safety
    ///
    /// The waiter is alive, and in no list.
    unsafe fn push(&mut self, waiter: NonNull<Waiter<T, E>>) {
        // SAFETY: the caller's promise; what is in the list is alive, and the lock is held.
        unsafe {
            (*waiter.as_ptr()).previous = self.last;
            (*waiter.as_ptr()).next = None;
            (*waiter.as_ptr()).linked = true;
            match self.last.replace(waiter) {
                Some(last) => (*last.as_ptr()).next = Some(waiter),
                None => self.first = Some(waiter),
            }
        }
    }

    /// # Safety
    ///
    /// The waiter is in this list.
    unsafe fn unlink(&mut self, waiter: NonNull<Waiter<T, E>>) {
        // SAFETY: what is in the list is alive, and the lock is held.
        unsafe {
            let (previous, next) = ((*waiter.as_ptr()).previous, (*waiter.as_ptr()).next);
            match previous {
                Some(previous) => (*previous.as_ptr()).next = next,
                None => self.first = next,
            }
            match next {
                Some(next) => (*next.as_ptr()).previous = previous,
                None => self.last = previous,
            }
            (*waiter.as_ptr()).linked = false;
        }
    }
}

/// What the completer does for one waiter, once the lock is free.
enum Call<T, E> {
    Wake(Waker),
    Callback(NonNull<Waiter<T, E>>, CallFn<T, E>),
}

/// Waiters taken out under one hold of the lock.
const BATCH: usize = 4;

impl<T, E> Inner<T, E> {
    #[inline]
    fn outcome(&self) -> Option<&Outcome<T, E>> {
        // ORDERING: Acquire pairs with the Release in `complete`: the outcome is visible.
        if self.word.load(Ordering::Acquire) & DONE == 0 {
            return None;
        }
        // SAFETY: DONE was seen: nobody writes the outcome any more.
        self.outcome.with(|at| unsafe { (*at).as_ref() })
    }

    fn complete(&self, outcome: Outcome<T, E>) {
        // SAFETY: the one completer, before DONE: nobody reads.
        self.outcome.with_mut(|at| unsafe { *at = Some(outcome) });
        // ORDERING: Release publishes the outcome to every reader's Acquire.
        if self.word.fetch_or(DONE, Ordering::Release) & PARKED != 0 {
            let _ = park::wake_all(&raw const self.word);
        }
        let Some(outcome) = self.outcome() else { return };
        // Who registers from here on sees DONE under the lock, and does not.
        loop {
            let mut batch: [Option<Call<T, E>>; BATCH] = [const { None }; BATCH];
            let mut waiters = self.waiters.lock();
            for place in &mut batch {
                let Some(first) = waiters.first else { break };
                // SAFETY: in the list, so alive; the lock is held.
                unsafe {
                    waiters.unlink(first);
                    *place = match &mut (*first.as_ptr()).kind {
                        Kind::Future(waker) => waker.take().map(Call::Wake),
                        Kind::Callback(call) => Some(Call::Callback(first, *call)),
                    };
                }
            }
            let more = waiters.first.is_some();
            drop(waiters);
            // In the order in which they came, with no lock held.
            for call in batch.into_iter().flatten() {
                guarded(|| match call {
                    Call::Wake(waker) => waker.wake(),
                    // SAFETY: taken out of the list, so ours alone; called once.
                    Call::Callback(waiter, call) => unsafe { call(waiter, outcome) },
                });
            }
            if !more {
                return;
            }
        }
    }
}

impl<T, E> Drop for Inner<T, E> {
    fn drop(&mut self) {
        // Callbacks of a completion that never came. There are none: whoever completes holds us, and
        // a promise cannot be lost without completing.
        debug_assert!(self.waiters.get_mut().first.is_none());
    }
}

/// # Safety
///
/// `waiter` heads a `WithCallback<T, E, F>` of the caller's.
unsafe fn call_and_free<T, E, F>(waiter: NonNull<Waiter<T, E>>, outcome: &Outcome<T, E>)
where
    F: FnOnce(OutcomeRef<'_, T, E>),
{
    let whole = waiter.cast::<WithCallback<T, E, F>>();
    // SAFETY: the caller's promise; the callback is moved out before its block is freed.
    let callback = unsafe {
        let callback = (&raw const (*whole.as_ptr()).callback).read();
        block::free(
            whole,
            const { Class::of(core::alloc::Layout::new::<WithCallback<T, E, F>>()) },
        );
        callback
    };
    callback(outcome.as_ref());
}

impl<T, E> Shared<T, E> {
    /// The outcome, if it is there.
    #[inline]
    pub fn peek(&self) -> Option<OutcomeRef<'_, T, E>> {
        self.inner.outcome().map(Result::as_ref)
    }

    /// Whether the outcome is there.
    pub fn is_ready(&self) -> bool {
        self.peek().is_some()
    }

    /// Waits for the outcome.
    ///
    /// # Errors
    ///
    /// What the promise came to.
    ///
    /// # Blocking
    ///
    /// The calling thread sleeps until the promise is set or dropped.
    pub fn get(&self) -> OutcomeRef<'_, T, E> {
        loop {
            if let Some(outcome) = self.wait_until(Deadline::NEVER) {
                return outcome;
            }
        }
    }

    /// Waits for the outcome, for at most `timeout`; `None` if that passed.
    pub fn get_timeout(&self, timeout: Duration) -> Option<OutcomeRef<'_, T, E>> {
        self.peek().or_else(|| self.wait_until(Deadline::after(timeout)))
    }

    /// Waits for the outcome until `deadline`; `None` if that passed.
    pub fn get_deadline(&self, deadline: Deadline) -> Option<OutcomeRef<'_, T, E>> {
        self.wait_until(deadline)
    }

    fn wait_until(&self, deadline: Deadline) -> Option<OutcomeRef<'_, T, E>> {
        loop {
            if let Some(outcome) = self.peek() {
                return Some(outcome);
            }
            let left = deadline.remaining();
            if left.is_some_and(|left| left.is_zero()) {
                return None;
            }
            before_blocking();
            // ORDERING: Relaxed: only a mark; DONE is read with Acquire in `peek`.
            let before = self.inner.word.fetch_or(PARKED, Ordering::Relaxed);
            if before & DONE == 0
                && park::wait(&self.inner.word, before | PARKED, left) == Wait::TimedOut
            {
                return self.peek();
            }
        }
    }

    /// Leaves a callback: it runs once, with the outcome by reference; in the thread that completes
    /// the promise, after those that were left before it, or at once, here, if it is complete. A
    /// panic in it goes to the [panic hook](super::set_panic_hook).
    pub fn on_complete<F>(&self, callback: F)
    where
        F: FnOnce(OutcomeRef<'_, T, E>) + Send + 'static,
    {
        if let Some(outcome) = self.inner.outcome() {
            return guarded(|| callback(outcome.as_ref()));
        }
        let whole = block::allocate::<WithCallback<T, E, F>>();
        let kind = Kind::Callback(call_and_free::<T, E, F>);
        // SAFETY: fresh memory for the whole.
        unsafe {
            whole.write(WithCallback {
                waiter: Waiter { next: None, previous: None, linked: false, kind },
                callback,
            });
        }
        let waiter = whole.cast::<Waiter<T, E>>();
        let mut waiters = self.inner.waiters.lock();
        if self.inner.outcome().is_none() {
            // SAFETY: alive, and in no list. DONE is clear and the lock is held: the completer has
            // yet to come for the list.
            unsafe { waiters.push(waiter) };
            // ORDERING: Relaxed, both: set under the lock only; looked at by the last clone, after the
            // count that every clone gives up with Release.
            if self.inner.word.load(Ordering::Relaxed) & WANTED == 0 {
                self.inner.word.fetch_or(WANTED, Ordering::Relaxed);
            }
            return;
        }
        drop(waiters);
        if let Some(outcome) = self.inner.outcome() {
            // SAFETY: never shared, so ours alone.
            guarded(|| unsafe { call_and_free::<T, E, F>(waiter, outcome) });
        }
    }

    /// An eventual of what `f` makes of the outcome, by reference. A panic in `f` becomes
    /// [`Panicked`](EventualError::Panicked) there.
    pub fn then<U, F, G>(&self, f: G) -> Eventual<U, F>
    where
        U: Send + 'static,
        F: Send + 'static,
        G: FnOnce(OutcomeRef<'_, T, E>) -> Outcome<U, F> + Send + 'static,
    {
        let (promise, eventual) = super::promise();
        self.on_complete(move |outcome| {
            let made = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(outcome)));
            let made = made
                .unwrap_or_else(|payload| Err(EventualError::Panicked(PanicPayload::new(payload))));
            drop(promise.settle(made));
        });
        eventual
    }

    /// Asks the writer to stop, for everybody.
    pub fn cancel(&self) {
        self.inner.upstream.cancel();
    }
}

impl<T, E> Clone for Shared<T, E> {
    fn clone(&self) -> Self {
        // The `Arc`'s own count, which is never less, aborts long before this one could wrap around.
        // ORDERING: Relaxed: a new clone is made from one that is counted.
        self.inner.readers.fetch_add(1, Ordering::Relaxed);
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T, E> Drop for Shared<T, E> {
    fn drop(&mut self) {
        // ORDERING: Release: what this reader did comes before the request to the writer, and its mark
        // that the work is wanted before the look at it. Acquire: the last reader's end of both.
        if self.inner.readers.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        // ORDERING: Relaxed: see above for WANTED; a DONE that comes now makes the request harmless.
        if self.inner.word.load(Ordering::Relaxed) & (WANTED | DONE) == 0 {
            self.inner.upstream.cancel();
        }
    }
}

impl<T, E> fmt::Debug for Shared<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("is_ready", &self.is_ready()).finish_non_exhaustive()
    }
}
