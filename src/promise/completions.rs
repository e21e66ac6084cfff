//! `Completions`: eventuals, drained in the order in which they complete.
//!
//! The members stay eventuals, each polled with a waker of its own that says which it is. So a member
//! that is not wanted any more is simply dropped: that takes its waker back and asks its writer to
//! stop, and nothing stays behind.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::task::Wake;

use crate::lock::{AdaptiveCondvar, AdaptiveMutex};

use super::core::Outcome;
use super::eventual::Eventual;
use super::trampoline::{before_blocking, guarded};

/// Eventuals, drained in the order in which they complete.
///
/// Take the next with [`next`](Completions::next) (blocks), [`try_next`](Completions::try_next), or
/// [`poll_next`](Completions::poll_next); with the `futures` feature it is a `Stream`. Each comes with
/// the number that [`push`](Completions::push) gave it. Dropping the whole drops the members, which
/// asks their writers to stop.
///
/// # Examples
///
/// ```
/// use tenure::promise::{Completions, promise};
///
/// let (p0, e0) = promise::<_, ()>();
/// let (p1, e1) = promise::<_, ()>();
/// let mut completions: Completions<_, _> = [e0, e1].into_iter().collect();
/// p1.set("second")?;
/// p0.set("first")?;
/// let order: Vec<_> = completions.by_ref().map(|(n, outcome)| (n, outcome.ok())).collect();
/// assert_eq!(order, [(1, Some("second")), (0, Some("first"))]);
/// # Ok::<(), tenure::promise::SetError<&str>>(())
/// ```
pub struct Completions<T, E> {
    /// Those from number `first` on; taken ones at the front are gone, so that a long stream of pushes
    /// and takes keeps only what lies between the oldest and the newest that are left.
    members: VecDeque<Option<Eventual<T, E>>>,
    first: usize,
    left: usize,
    ready: Arc<Ready>,
}

/// Which members were woken, and whom to tell.
#[derive(Default)]
struct Ready {
    woken: AdaptiveMutex<Woken>,
    came: AdaptiveCondvar,
}

#[derive(Default)]
struct Woken {
    queue: VecDeque<usize>,
    reader: Option<Waker>,
}

struct Member {
    ready: Arc<Ready>,
    number: usize,
}

impl Wake for Member {
    fn wake(self: Arc<Self>) {
        self.ready.note(self.number);
    }
}

impl Ready {
    fn note(&self, number: usize) {
        let reader = {
            let mut woken = self.woken.lock();
            woken.queue.push_back(number);
            woken.reader.take()
        };
        self.came.notify_one();
        if let Some(reader) = reader {
            guarded(|| reader.wake());
        }
    }
}

impl<T, E> Completions<T, E> {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self { members: VecDeque::new(), first: 0, left: 0, ready: Arc::default() }
    }

    /// Adds one; gives its number, counted from zero.
    pub fn push(&mut self, mut eventual: Eventual<T, E>) -> usize {
        let number = self.first + self.members.len();
        let member = Waker::from(Arc::new(Member { ready: Arc::clone(&self.ready), number }));
        if let Poll::Ready(outcome) =
            Pin::new(&mut eventual).poll(&mut Context::from_waker(&member))
        {
            eventual = Eventual::complete(outcome);
            self.ready.note(number);
        }
        self.members.push_back(Some(eventual));
        self.left += 1;
        number
    }

    /// How many have not been taken yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.left
    }

    /// Whether all have been taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    fn take(&mut self, number: usize) -> Option<(usize, Outcome<T, E>)> {
        // Below `first`: taken long ago.
        let member = self.members.get_mut(number.checked_sub(self.first)?)?;
        let outcome = member.as_mut()?.try_get()?;
        *member = None;
        self.left -= 1;
        while let Some(None) = self.members.front() {
            self.members.pop_front();
            self.first += 1;
        }
        Some((number, outcome))
    }

    /// The next that is complete already; `None` if none is, or none is left.
    pub fn try_next(&mut self) -> Option<(usize, Outcome<T, E>)> {
        loop {
            let number = self.ready.woken.lock().queue.pop_front()?;
            if let Some(next) = self.take(number) {
                return Some(next);
            }
        }
    }

    /// The next to complete, asynchronously; `None` when none is left.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, Outcome<T, E>)>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        // Cloned outside the lock: wakers are foreign.
        let mut waker = Some(cx.waker().clone());
        loop {
            let (number, old) = {
                let mut woken = self.ready.woken.lock();
                match woken.queue.pop_front() {
                    Some(number) => (Some(number), None),
                    None => (None, core::mem::replace(&mut woken.reader, waker.take())),
                }
            };
            guarded(|| drop(old));
            let Some(number) = number else { return Poll::Pending };
            if let Some(next) = self.take(number) {
                // Foreign: a panic in it must not lose what was taken.
                guarded(|| drop(waker));
                return Poll::Ready(Some(next));
            }
        }
    }
}

impl<T, E> Iterator for Completions<T, E> {
    type Item = (usize, Outcome<T, E>);

    /// The next to complete; `None` when none is left. Blocks until then.
    fn next(&mut self) -> Option<Self::Item> {
        while self.left > 0 {
            let is_empty = self.ready.woken.lock().queue.is_empty();
            if is_empty {
                before_blocking();
            }
            let number = {
                let mut woken = self.ready.woken.lock();
                loop {
                    match woken.queue.pop_front() {
                        Some(number) => break number,
                        None => self.ready.came.wait(&mut woken),
                    }
                }
            };
            if let Some(next) = self.take(number) {
                return Some(next);
            }
        }
        None
    }
}

impl<T, E> Default for Completions<T, E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, E> FromIterator<Eventual<T, E>> for Completions<T, E> {
    fn from_iter<I: IntoIterator<Item = Eventual<T, E>>>(eventuals: I) -> Self {
        let mut completions = Self::new();
        completions.extend(eventuals);
        completions
    }
}

impl<T, E> Extend<Eventual<T, E>> for Completions<T, E> {
    fn extend<I: IntoIterator<Item = Eventual<T, E>>>(&mut self, eventuals: I) {
        for eventual in eventuals {
            self.push(eventual);
        }
    }
}

impl<T, E> core::fmt::Debug for Completions<T, E> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Completions").field("left", &self.left).finish_non_exhaustive()
    }
}

#[cfg(feature = "futures")]
impl<T, E> futures_core::Stream for Completions<T, E> {
    type Item = (usize, Outcome<T, E>);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Completions::poll_next(&mut self, cx)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}
