//! `map` and its kind: each is a [stage](super::stage) and one match.
//!
//! The closure runs in the thread that completes what it hangs on, or at once, here, if that has
//! happened already. A panic in it becomes [`Panicked`](EventualError::Panicked) downstream.

use super::core::Outcome;
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
    ///
    /// A loop may be written as a recursion: when the inner eventual is itself an `and_then` (or
    /// [`then`](Self::then), or [`or_else`](Self::or_else)) that goes on to the next step, a step that
    /// is over leaves nothing behind, and neither memory nor stack grows. That holds where the
    /// recursion is the last thing: a `map` behind each step has to be kept until the end, as a frame
    /// would be.
    ///
    /// ```
    /// use tenure::promise::{Eventual, ready};
    ///
    /// fn count_down(from: u32) -> Eventual<&'static str, ()> {
    ///     match from {
    ///         0 => ready("done"),
    ///         n => ready(n - 1).and_then(count_down),
    ///     }
    /// }
    /// assert_eq!(count_down(1000).get().ok(), Some("done"));
    /// ```
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

    /// Makes a value of whatever went wrong. Values pass.
    pub fn recover(self, f: impl FnOnce(EventualError<E>) -> T + Send + 'static) -> Self {
        self.stage::<_, _, _, false>(move |outcome| Step::Done(Ok(outcome.unwrap_or_else(f))))
    }

    /// Goes on, with the outcome whatever it is, to another eventual, and ends as that does.
    pub fn then<U: Send + 'static, F: Send + 'static>(
        self,
        f: impl FnOnce(Outcome<T, E>) -> Eventual<U, F> + Send + 'static,
    ) -> Eventual<U, F> {
        self.stage::<_, _, _, true>(move |outcome| Step::Wait(f(outcome)))
    }

    /// Makes another outcome of the outcome.
    pub fn transform<U: Send + 'static, F: Send + 'static>(
        self,
        f: impl FnOnce(Outcome<T, E>) -> Outcome<U, F> + Send + 'static,
    ) -> Eventual<U, F> {
        self.stage::<_, _, _, false>(move |outcome| Step::Done(f(outcome)))
    }

    /// Looks at the outcome as it passes.
    pub fn inspect(self, f: impl FnOnce(&Outcome<T, E>) + Send + 'static) -> Self {
        self.stage::<_, _, _, false>(move |outcome| {
            f(&outcome);
            Step::Done(outcome)
        })
    }

    /// Runs `f` at the end, whatever the outcome (as `finally` does elsewhere), and passes that on.
    /// If the stage never runs, because its executor threw it away, `f` is dropped unrun.
    pub fn ensure(self, f: impl FnOnce() + Send + 'static) -> Self {
        self.inspect(move |_| f())
    }

    /// The value of both, when both have one; what goes wrong first, as soon as it does. The other
    /// is then dropped, and so is asked to stop. A cancellation reaches both.
    pub fn zip<U: Send + 'static>(self, other: Eventual<U, E>) -> Eventual<(T, U), E> {
        use super::all;
        let members = [self.map(Either::Left), other.map(Either::Right)];
        all(members).transform(|outcome| {
            let mut both = (None, None);
            for either in outcome? {
                match either {
                    Either::Left(left) => both.0 = Some(left),
                    Either::Right(right) => both.1 = Some(right),
                }
            }
            match both {
                (Some(left), Some(right)) => Ok((left, right)),
                // Not so: `all` had one of each.
                _ => Err(EventualError::Broken),
            }
        })
    }
}

enum Either<T, U> {
    Left(T),
    Right(U),
}

impl<T: Send + 'static, E: Send + 'static> Eventual<Eventual<T, E>, E> {
    /// Ends as the inner eventual does.
    pub fn flatten(self) -> Eventual<T, E> {
        self.and_then(|inner| inner)
    }
}
