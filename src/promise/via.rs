//! `Via`: an eventual with an executor that every closure behind it runs on.

use crate::executor::Executor;

use super::core::Outcome;
use super::error::EventualError;
use super::eventual::Eventual;
use super::stage::Step;

impl<T, E> Eventual<T, E> {
    /// Binds everything that is built on it to `executor`, also when the outcome is there already.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tenure::executor::{Executor, Inline};
    ///
    /// let pool: Arc<dyn Executor + Send + Sync> = Arc::new(Inline);
    /// let (promise, eventual) = tenure::promise::promise::<u32, ()>();
    /// let text = eventual.via(pool).map(|n| n + 1).map(|n| n.to_string()).unbind();
    /// promise.set(1)?;
    /// assert_eq!(text.get().ok().as_deref(), Some("2"));
    /// # Ok::<(), tenure::promise::SetError<u32>>(())
    /// ```
    pub fn via<X: Executor>(self, executor: X) -> Via<T, E, X> {
        Via { eventual: self, executor }
    }
}

/// An [`Eventual`] whose callbacks and stages run on an executor: see [`Eventual::via`].
///
/// If the executor does not run a stage, the eventual behind it ends as
/// [`Rejected`](EventualError::Rejected).
#[must_use = "an eventual that is dropped asks for cancellation"]
#[derive(Debug)]
pub struct Via<T, E, X> {
    eventual: Eventual<T, E>,
    executor: X,
}

impl<T, E, X> Via<T, E, X> {
    /// The eventual; what is built on it from here on runs where it completes.
    pub fn unbind(self) -> Eventual<T, E> {
        self.eventual
    }
}

impl<T, E, X> Via<T, E, X>
where
    T: Send + 'static,
    E: Send + 'static,
    X: Executor + Clone + Send + 'static,
{
    pub(super) fn stage<U, F, G, const WAITS: bool>(self, f: G) -> Via<U, F, X>
    where
        U: Send + 'static,
        F: Send + 'static,
        G: FnOnce(Outcome<T, E>) -> Step<U, F> + Send + 'static,
    {
        let Self { eventual, executor } = self;
        let eventual = eventual.stage_via::<_, _, _, _, WAITS>(executor.clone(), f);
        Via { eventual, executor }
    }

    /// [`Eventual::map`], on the executor.
    pub fn map<U: Send + 'static>(self, f: impl FnOnce(T) -> U + Send + 'static) -> Via<U, E, X> {
        self.stage::<_, _, _, false>(move |outcome| Step::Done(outcome.map(f)))
    }

    /// [`Eventual::map_err`], on the executor.
    pub fn map_err<F: Send + 'static>(
        self,
        f: impl FnOnce(E) -> F + Send + 'static,
    ) -> Via<T, F, X> {
        self.stage::<_, _, _, false>(move |outcome| {
            Step::Done(outcome.map_err(|error| error.map_failed(f)))
        })
    }

    /// [`Eventual::and_then`], on the executor.
    pub fn and_then<U: Send + 'static>(
        self,
        f: impl FnOnce(T) -> Eventual<U, E> + Send + 'static,
    ) -> Via<U, E, X> {
        self.stage::<_, _, _, true>(move |outcome| match outcome {
            Ok(value) => Step::Wait(f(value)),
            Err(error) => Step::Done(Err(error)),
        })
    }

    /// [`Eventual::or_else`], on the executor.
    pub fn or_else<F: Send + 'static>(
        self,
        f: impl FnOnce(EventualError<E>) -> Eventual<T, F> + Send + 'static,
    ) -> Via<T, F, X> {
        self.stage::<_, _, _, true>(move |outcome| match outcome {
            Ok(value) => Step::Done(Ok(value)),
            Err(error) => Step::Wait(f(error)),
        })
    }

    /// [`Eventual::recover`], on the executor.
    pub fn recover(self, f: impl FnOnce(EventualError<E>) -> T + Send + 'static) -> Self {
        self.stage::<_, _, _, false>(move |outcome| Step::Done(Ok(outcome.unwrap_or_else(f))))
    }

    /// [`Eventual::then`], on the executor.
    pub fn then<U: Send + 'static, F: Send + 'static>(
        self,
        f: impl FnOnce(Outcome<T, E>) -> Eventual<U, F> + Send + 'static,
    ) -> Via<U, F, X> {
        self.stage::<_, _, _, true>(move |outcome| Step::Wait(f(outcome)))
    }

    /// [`Eventual::transform`], on the executor.
    pub fn transform<U: Send + 'static, F: Send + 'static>(
        self,
        f: impl FnOnce(Outcome<T, E>) -> Outcome<U, F> + Send + 'static,
    ) -> Via<U, F, X> {
        self.stage::<_, _, _, false>(move |outcome| Step::Done(f(outcome)))
    }

    /// [`Eventual::inspect`], on the executor.
    pub fn inspect(self, f: impl FnOnce(&Outcome<T, E>) + Send + 'static) -> Self {
        self.stage::<_, _, _, false>(move |outcome| {
            f(&outcome);
            Step::Done(outcome)
        })
    }

    /// [`Eventual::ensure`], on the executor.
    pub fn ensure(self, f: impl FnOnce() + Send + 'static) -> Self {
        self.inspect(move |_| f())
    }

    /// [`Eventual::on_complete`], on the executor.
    pub fn on_complete(self, callback: impl FnOnce(Outcome<T, E>) + Send + 'static) {
        self.eventual.on_complete_via(self.executor, callback);
    }
}
