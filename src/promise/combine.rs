//! `map` and its kind: each is a [stage](super::stage) and one match.
//!
//! The closure runs in the thread that completes what it hangs on, or at once, here, if that has
//! happened already. A panic in it becomes [`Panicked`](EventualError::Panicked) downstream.

use super::error::EventualError;
use super::eventual::Eventual;
use super::stage::Step;

impl<T: Send + 'static, E: Send + 'static> Eventual<T, E> {
    /// Makes another value of the value. Errors pass.
    pub fn map<U: Send + 'static>(self, f: impl FnOnce(T) -> U + Send + 'static) -> Eventual<U, E> {
        self.stage::<_, _, _, false>(move |outcome| Step::Done(outcome.map(f)))
    }

    /// Makes another error of the writer's error. Values, and every other ending, pass.
    pub fn map_err<F: Send + 'static>(
        self,
        f: impl FnOnce(E) -> F + Send + 'static,
    ) -> Eventual<T, F> {
        self.stage::<_, _, _, false>(move |outcome| {
            Step::Done(outcome.map_err(|error| error.map_failed(f)))
        })
    }

    /// Goes on, with the value, to another eventual, and ends as that does. Errors pass.
    ///
    /// A cancellation reaches whichever of the two is being waited for.
    pub fn and_then<U: Send + 'static>(
        self,
        f: impl FnOnce(T) -> Eventual<U, E> + Send + 'static,
    ) -> Eventual<U, E> {
        self.stage::<_, _, _, true>(move |outcome| match outcome {
            Ok(value) => Step::Wait(f(value)),
            Err(error) => Step::Done(Err(error)),
        })
    }

    /// Goes on, with whatever went wrong, to another eventual, and ends as that does. Values pass.
    pub fn or_else<F: Send + 'static>(
        self,
        f: impl FnOnce(EventualError<E>) -> Eventual<T, F> + Send + 'static,
    ) -> Eventual<T, F> {
        self.stage::<_, _, _, true>(move |outcome| match outcome {
            Ok(value) => Step::Done(Ok(value)),
            Err(error) => Step::Wait(f(error)),
        })
    }
}
