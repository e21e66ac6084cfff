//! Several eventuals at once: all of them, the first of them.
//!
//! The members stay eventuals, each polled with a waker of its own that says which it is. So a
//! member that is not wanted any more is simply dropped: that takes its waker back and asks its
//! writer to stop, and nothing of the group stays behind with it.

use core::pin::Pin;
use core::task::{Context, Poll, Waker};
use std::collections::VecDeque;
use std::future::Future;
use std::sync::Arc;
use std::task::Wake;

use crate::executor::Task;
use crate::lock::AdaptiveMutex;

use super::core::Outcome;
use super::error::EventualError;
use super::eventual::Eventual;
use super::trampoline::guarded;
use super::writer::Promise;

/// What becomes of the members' outcomes.
trait Collect<T, E>: Send + 'static {
    type Value: Send + 'static;

    /// One member's outcome; the whole's, if that settles it.
    fn take(&mut self, number: usize, outcome: Outcome<T, E>) -> Option<Outcome<Self::Value, E>>;
}

/// A group under way. Its members' wakers own it; it owns the members; completing one after the
/// other, or letting all go, takes that apart.
struct Gather<T, E, C: Collect<T, E>> {
    shared: AdaptiveMutex<Gathered<T, E, C>>,
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
        gather.shared.lock().woken.push_back(self.number);
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
        let Some(mut work) = self.shared.lock().work.take() else { return };
        loop {
            let (number, cancel) = {
                let mut shared = self.shared.lock();
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
        shared: AdaptiveMutex::new(Gathered { woken: VecDeque::new(), work: None, cancel: false }),
    });
    let weak = Arc::downgrade(&gather);
    promise.on_cancel(move || {
        if let Some(gather) = weak.upgrade() {
            gather.shared.lock().cancel = true;
            gather.advance();
        }
    });
    let mut polled = Vec::with_capacity(members.len());
    for (number, mut member) in members.into_iter().enumerate() {
        let waker = Waker::from(Arc::new(GatherMember { gather: Arc::clone(&gather), number }));
        if let Poll::Ready(outcome) = Pin::new(&mut member).poll(&mut Context::from_waker(&waker)) {
            member = Eventual::complete(outcome);
            gather.shared.lock().woken.push_back(number);
        }
        polled.push(Some(member));
    }
    gather.shared.lock().work = Some(Working { members: polled, collect, promise });
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
