//! Waiting for a shared outcome asynchronously: a waiter that its future owns.

use core::fmt;
use core::future::Future;
use core::marker::PhantomData;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll};
use std::future::IntoFuture;

use super::super::block::{self, Class};
use super::super::trampoline::guarded;
use super::{Kind, OutcomeRef, Shared, Waiter};

impl<'a, T, E> IntoFuture for &'a Shared<T, E> {
    type Output = OutcomeRef<'a, T, E>;
    type IntoFuture = SharedFuture<'a, T, E>;

    fn into_future(self) -> SharedFuture<'a, T, E> {
        SharedFuture { shared: self, waiter: None, owns: PhantomData }
    }
}

/// Waits for a [`Shared`], asynchronously. Cancel-safe: dropping it takes its waker back.
#[must_use = "futures do nothing unless polled"]
pub struct SharedFuture<'a, T, E> {
    shared: &'a Shared<T, E>,
    /// Ours, in the list while it is linked.
    waiter: Option<NonNull<Waiter<T, E>>>,
    owns: PhantomData<Waiter<T, E>>,
}

// SAFETY: the waiter is touched under the list's lock, and its waker is `Send`.
unsafe impl<T: Send + Sync, E: Send + Sync> Send for SharedFuture<'_, T, E> {}
// SAFETY: a shared reference to the future gives nothing.
unsafe impl<T: Send + Sync, E: Send + Sync> Sync for SharedFuture<'_, T, E> {}

impl<T, E> Unpin for SharedFuture<'_, T, E> {}

impl<T, E> SharedFuture<'_, T, E> {
    /// Takes the waiter out of the list and frees it.
    fn leave(&mut self) {
        let Some(waiter) = self.waiter.take() else { return };
        let mut waiters = self.shared.inner.waiters.lock();
        // SAFETY: ours; the lock is held, so the completer is not at it.
        let waker = unsafe {
            if (*waiter.as_ptr()).linked {
                waiters.unlink(waiter);
            }
            match &mut (*waiter.as_ptr()).kind {
                Kind::Future(waker) => waker.take(),
                Kind::Callback(_) => None,
            }
        };
        drop(waiters);
        guarded(|| drop(waker));
        // SAFETY: out of the list, and empty.
        unsafe {
            block::free(waiter, const { Class::of(core::alloc::Layout::new::<Waiter<T, E>>()) });
        }
    }
}

impl<'a, T, E> Future for SharedFuture<'a, T, E> {
    type Output = OutcomeRef<'a, T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = self.shared;
        if let Some(outcome) = shared.peek() {
            self.leave();
            return Poll::Ready(outcome);
        }
        // Foreign, so before the lock.
        let waker = cx.waker().clone();
        let waiter = *self.waiter.get_or_insert_with(|| {
            let waiter = block::allocate::<Waiter<T, E>>();
            let kind = Kind::Future(None);
            // SAFETY: fresh memory for a waiter.
            unsafe { waiter.write(Waiter { next: None, previous: None, linked: false, kind }) };
            waiter
        });
        let mut waiters = shared.inner.waiters.lock();
        if let Some(outcome) = shared.peek() {
            drop(waiters);
            guarded(|| drop(waker));
            self.leave();
            return Poll::Ready(outcome);
        }
        // SAFETY: ours; the lock is held, and DONE is clear: the completer has yet to come.
        let old = unsafe {
            if !(*waiter.as_ptr()).linked {
                waiters.push(waiter);
            }
            match &mut (*waiter.as_ptr()).kind {
                Kind::Future(place) => place.replace(waker),
                Kind::Callback(_) => None,
            }
        };
        drop(waiters);
        guarded(|| drop(old));
        Poll::Pending
    }
}

impl<T, E> Drop for SharedFuture<'_, T, E> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<T, E> fmt::Debug for SharedFuture<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedFuture").finish_non_exhaustive()
    }
}
