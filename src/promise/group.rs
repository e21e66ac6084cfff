//! Several eventuals at once: in completion order, all of them, the first of them.
//!
//! The members stay eventuals, each polled with a waker of its own that says which it is. So a
//! member that is not wanted any more is simply dropped: that takes its waker back and asks its
//! writer to stop, and nothing of the group stays behind with it.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

use crate::executor::Task;

use super::core::Outcome;
use super::error::EventualError;
use super::eventual::Eventual;
use super::trampoline::{before_blocking, guarded};
use super::writer::Promise;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// ---- draining in completion order ------------------------------------------------------------

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
    members: Vec<Option<Eventual<T, E>>>,
    left: usize,
    ready: Arc<Ready>,
}

/// Which members were woken, and whom to tell.
#[derive(Default)]
struct Ready {
    woken: Mutex<Woken>,
    came: Condvar,
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
            let mut woken = locked(&self.woken);
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
        Self { members: Vec::new(), left: 0, ready: Arc::default() }
    }

    /// Adds one; gives its number, counted from zero.
    pub fn push(&mut self, mut eventual: Eventual<T, E>) -> usize {
        let number = self.members.len();
        let member = Waker::from(Arc::new(Member { ready: Arc::clone(&self.ready), number }));
        if let Poll::Ready(outcome) =
            Pin::new(&mut eventual).poll(&mut Context::from_waker(&member))
        {
            eventual = Eventual::complete(outcome);
            self.ready.note(number);
        }
        self.members.push(Some(eventual));
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
        let member = self.members.get_mut(number)?;
        let outcome = member.as_mut()?.try_get()?;
        *member = None;
        self.left -= 1;
        Some((number, outcome))
    }

    /// The next that is complete already; `None` if none is, or none is left.
    pub fn try_next(&mut self) -> Option<(usize, Outcome<T, E>)> {
        loop {
            let number = locked(&self.ready.woken).queue.pop_front()?;
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
                let mut woken = locked(&self.ready.woken);
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
            let is_empty = locked(&self.ready.woken).queue.is_empty();
            if is_empty {
                before_blocking();
            }
            let number = {
                let mut woken = locked(&self.ready.woken);
                loop {
                    match woken.queue.pop_front() {
                        Some(number) => break number,
                        None => {
                            woken =
                                self.ready.came.wait(woken).unwrap_or_else(PoisonError::into_inner);
                        }
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

// ---- one eventual of many --------------------------------------------------------------------

/// What becomes of the members' outcomes.
trait Collect<T, E>: Send + 'static {
    type Value: Send + 'static;

    /// One member's outcome; the whole's, if that settles it.
    fn take(&mut self, number: usize, outcome: Outcome<T, E>) -> Option<Outcome<Self::Value, E>>;
}

/// A group under way. Its members' wakers own it; it owns the members; completing one after the
/// other, or letting all go, takes that apart.
struct Gather<T, E, C: Collect<T, E>> {
    shared: Mutex<Gathered<T, E, C>>,
}

struct Gathered<T, E, C: Collect<T, E>> {
    woken: VecDeque<usize>,
    /// Away while somebody works on it, and gone for good once the whole is settled.
    work: Option<Working<T, E, C>>,
    cancel: bool,
}

struct Working<T, E, C: Collect<T, E>> {
    members: Vec<Option<Eventual<T, E>>>,
    collect: C,
    promise: Promise<C::Value, E>,
}

struct GatherMember<T, E, C: Collect<T, E>> {
    gather: Arc<Gather<T, E, C>>,
    number: usize,
}

impl<T, E, C> Wake for GatherMember<T, E, C>
where
    T: Send + 'static,
    E: Send + 'static,
    C: Collect<T, E>,
{
    fn wake(self: Arc<Self>) {
        let gather = Arc::clone(&self.gather);
        locked(&gather.shared).woken.push_back(self.number);
        // Through the trampoline: groups of groups complete without growing the stack.
        Task::new(move || gather.advance()).run();
    }
}

impl<T, E, C> Gather<T, E, C>
where
    T: Send + 'static,
    E: Send + 'static,
    C: Collect<T, E>,
{
    /// Works on what was woken, unless somebody else is at it: they will see it.
    fn advance(&self) {
        let Some(mut work) = locked(&self.shared).work.take() else { return };
        loop {
            let (number, cancel) = {
                let mut shared = locked(&self.shared);
                let cancel = core::mem::take(&mut shared.cancel);
                let number = shared.woken.pop_front();
                if number.is_none() && !cancel {
                    shared.work = Some(work);
                    return;
                }
                (number, cancel)
            };
            // From here on no lock is held: members' hooks and values are foreign.
            if cancel {
                for member in work.members.iter().flatten() {
                    member.cancel();
                }
            }
            let member = number.and_then(|number| work.members.get_mut(number));
            let outcome = member.and_then(|member| {
                let outcome = member.as_mut()?.try_get()?;
                *member = None;
                Some(outcome)
            });
            if let (Some(number), Some(outcome)) = (number, outcome)
                && let Some(whole) = work.collect.take(number, outcome)
            {
                let Working { members, collect, promise } = work;
                // The losers first: whoever sees the whole sees them let go.
                guarded(|| drop(members));
                guarded(|| drop(collect));
                guarded(|| drop(promise.settle(whole)));
                return;
            }
        }
    }
}

fn gather<T, E, C>(members: Vec<Eventual<T, E>>, collect: C) -> Eventual<C::Value, E>
where
    T: Send + 'static,
    E: Send + 'static,
    C: Collect<T, E>,
{
    let (mut promise, whole) = super::promise();
    let gather = Arc::new(Gather {
        shared: Mutex::new(Gathered { woken: VecDeque::new(), work: None, cancel: false }),
    });
    let weak = Arc::downgrade(&gather);
    promise.on_cancel(move || {
        if let Some(gather) = weak.upgrade() {
            locked(&gather.shared).cancel = true;
            gather.advance();
        }
    });
    let mut polled = Vec::with_capacity(members.len());
    for (number, mut member) in members.into_iter().enumerate() {
        let waker = Waker::from(Arc::new(GatherMember { gather: Arc::clone(&gather), number }));
        if let Poll::Ready(outcome) = Pin::new(&mut member).poll(&mut Context::from_waker(&waker)) {
            member = Eventual::complete(outcome);
            locked(&gather.shared).woken.push_back(number);
        }
        polled.push(Some(member));
    }
    locked(&gather.shared).work = Some(Working { members: polled, collect, promise });
    gather.advance();
    whole
}

struct All<T> {
    values: Vec<Option<T>>,
    left: usize,
}

impl<T: Send + 'static, E: Send + 'static> Collect<T, E> for All<T> {
    type Value = Vec<T>;

    fn take(&mut self, number: usize, outcome: Outcome<T, E>) -> Option<Outcome<Vec<T>, E>> {
        match outcome {
            Ok(value) => {
                *self.values.get_mut(number)? = Some(value);
                self.left -= 1;
                (self.left == 0)
                    .then(|| Ok(core::mem::take(&mut self.values).into_iter().flatten().collect()))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

struct AllSettled<T, E> {
    outcomes: Vec<Option<Outcome<T, E>>>,
    left: usize,
}

impl<T: Send + 'static, E: Send + 'static> Collect<T, E> for AllSettled<T, E> {
    type Value = Vec<Outcome<T, E>>;

    fn take(
        &mut self,
        number: usize,
        outcome: Outcome<T, E>,
    ) -> Option<Outcome<Vec<Outcome<T, E>>, E>> {
        *self.outcomes.get_mut(number)? = Some(outcome);
        self.left -= 1;
        (self.left == 0)
            .then(|| Ok(core::mem::take(&mut self.outcomes).into_iter().flatten().collect()))
    }
}

struct Any;

impl<T: Send + 'static, E: Send + 'static> Collect<T, E> for Any {
    type Value = T;

    fn take(&mut self, _number: usize, outcome: Outcome<T, E>) -> Option<Outcome<T, E>> {
        Some(outcome)
    }
}

struct FirstN<T> {
    values: Vec<(usize, T)>,
    wanted: usize,
    left: usize,
}

impl<T: Send + 'static, E: Send + 'static> Collect<T, E> for FirstN<T> {
    type Value = Vec<(usize, T)>;

    fn take(
        &mut self,
        number: usize,
        outcome: Outcome<T, E>,
    ) -> Option<Outcome<Vec<(usize, T)>, E>> {
        self.left -= 1;
        match outcome {
            Ok(value) => {
                self.values.push((number, value));
                (self.values.len() == self.wanted).then(|| Ok(core::mem::take(&mut self.values)))
            }
            Err(error) if self.values.len() + self.left < self.wanted => Some(Err(error)),
            Err(error) => {
                guarded(|| drop(error));
                None
            }
        }
    }
}

/// The values of all, in the order given; or what goes wrong first, as soon as it does. Then the
/// others are dropped, which asks their writers to stop. A cancellation reaches all. All of none is
/// ready.
///
/// ```
/// use tenure::promise::{all, ready};
///
/// let both = all([ready::<_, ()>(1), ready(2)]);
/// assert_eq!(both.get().ok(), Some(vec![1, 2]));
/// ```
pub fn all<T, E>(members: impl IntoIterator<Item = Eventual<T, E>>) -> Eventual<Vec<T>, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let members: Vec<_> = members.into_iter().collect();
    if members.is_empty() {
        return super::ready(Vec::new());
    }
    let left = members.len();
    gather(members, All { values: core::iter::repeat_with(|| None).take(left).collect(), left })
}

/// The outcomes of all, in the order given, whatever they are. A cancellation reaches all. All of
/// none is ready.
pub fn all_settled<T, E>(
    members: impl IntoIterator<Item = Eventual<T, E>>,
) -> Eventual<Vec<Outcome<T, E>>, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let members: Vec<_> = members.into_iter().collect();
    if members.is_empty() {
        return super::ready(Vec::new());
    }
    let left = members.len();
    let outcomes = core::iter::repeat_with(|| None).take(left).collect();
    gather(members, AllSettled { outcomes, left })
}

/// The outcome of whichever completes first, value or not. The others are dropped, which asks their
/// writers to stop. Any of none is [`Broken`](EventualError::Broken).
pub fn any<T, E>(members: impl IntoIterator<Item = Eventual<T, E>>) -> Eventual<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let members: Vec<_> = members.into_iter().collect();
    if members.is_empty() {
        return Eventual::complete(Err(EventualError::Broken));
    }
    gather(members, Any)
}

/// The first value; if there is none in the end, what went wrong last. The others are dropped, which
/// asks their writers to stop. Any of none is [`Broken`](EventualError::Broken).
pub fn any_ok<T, E>(members: impl IntoIterator<Item = Eventual<T, E>>) -> Eventual<T, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    first_n(1, members).transform(|outcome| match outcome?.pop() {
        Some((_, value)) => Ok(value),
        // Not so: one was asked for.
        None => Err(EventualError::Broken),
    })
}

/// The first `n` values, in the order in which they came, each with its member's number. When too
/// few are left to come: what went wrong last. The others are then dropped, which asks their writers
/// to stop. More than there are members is [`Broken`](EventualError::Broken) at once.
pub fn first_n<T, E>(
    n: usize,
    members: impl IntoIterator<Item = Eventual<T, E>>,
) -> Eventual<Vec<(usize, T)>, E>
where
    T: Send + 'static,
    E: Send + 'static,
{
    let members: Vec<_> = members.into_iter().collect();
    if n == 0 {
        return super::ready(Vec::new());
    }
    let left = members.len();
    if left < n {
        return Eventual::complete(Err(EventualError::Broken));
    }
    gather(members, FirstN { values: Vec::with_capacity(n), wanted: n, left })
}
