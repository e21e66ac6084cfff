//! Settings of a supervisor.

use core::fmt;
use core::time::Duration;
use std::collections::HashSet;
use std::sync::Arc;

use super::error::{ConfigError, StartError};
use super::fault::{Fault, Handler};
use super::handle::Supervisor;
use super::kinds::Site;
use super::spec::{AutoShutdown, ChildSpec, Restart, Strategy};
use super::supervisor::{self, Start};
use crate::promise::{EventualError, promise};
use crate::retry::RetryPolicy;
use crate::runtime::{Runtime, blocking};
use crate::supervise::actor::spawn::NotSpawned;

/// Makes a [`Supervisor`]. From [`Supervisor::builder`].
///
/// | option | default |
/// |---|---|
/// | [`strategy`](Self::strategy) | [`Strategy::OneForOne`] |
/// | [`intensity`](Self::intensity) | 1 restart in 5 seconds |
/// | [`backoff`](Self::backoff) | none: at once |
/// | [`auto_shutdown`](Self::auto_shutdown) | [`AutoShutdown::Never`] |
/// | [`child`](Self::child) | none |
/// | [`on_fault`](Self::on_fault) | the handler of the supervisor above, if it has one |
/// | [`seed`](Self::seed) | random |
#[derive(Clone)]
#[must_use = "call start, or make it a child"]
pub struct Builder {
    name: Arc<str>,
    pub(super) strategy: Strategy,
    pub(super) intensity: (u32, Duration),
    pub(super) backoff: Option<RetryPolicy>,
    pub(super) auto_shutdown: AutoShutdown,
    pub(super) children: Vec<ChildSpec>,
    pub(super) on_fault: Option<Handler>,
    pub(super) seed: Option<u64>,
}

impl Builder {
    /// The defaults.
    pub(super) fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            strategy: Strategy::default(),
            intensity: (1, Duration::from_secs(5)),
            backoff: None,
            auto_shutdown: AutoShutdown::default(),
            children: Vec::new(),
            on_fault: None,
            seed: None,
        }
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Who is started again when a child fails. Defaults to [`Strategy::OneForOne`].
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// How many restarts are allowed within any `period`. One more, and the supervisor gives up: it stops all
    /// children and itself, as a [shutdown](super::ShutdownCause::GaveUp). A start that fails when a child is to
    /// be started again counts as well, so that it is tried again no more often than this.
    ///
    /// The window slides: what counts is each restart that lies no more than a period back. Zero restarts
    /// means none; a period of [`Duration::MAX`] forgets nothing. Defaults to 1 in 5 seconds.
    pub fn intensity(mut self, restarts: u32, period: Duration) -> Self {
        self.intensity = (restarts, period);
        self
    }

    /// The delay before a child is started again, by the number of its failures in a row; a child that was up
    /// for as long as the intensity's period begins anew. Only the policy's delays count: how often, says the
    /// [intensity](Self::intensity). Defaults to none.
    pub fn backoff(mut self, policy: RetryPolicy) -> Self {
        self.backoff = Some(policy);
        self
    }

    /// Whether it ends when its [significant](ChildSpec::significant) children have come to their own end.
    /// Defaults to [`AutoShutdown::Never`].
    pub fn auto_shutdown(mut self, when: AutoShutdown) -> Self {
        self.auto_shutdown = when;
        self
    }

    /// One more child, started after those before it, and stopped before them.
    pub fn child(mut self, spec: impl Into<ChildSpec>) -> Self {
        self.children.push(spec.into());
        self
    }

    /// Has `handler` be told of each end of a child that nobody asked for, and what is done about it; also by
    /// the supervisors below that have no handler of their own. It runs on the supervisor's worker, which
    /// waits for it; it may call anything, and may panic.
    pub fn on_fault(mut self, handler: impl Fn(&Fault) + Send + Sync + 'static) -> Self {
        self.on_fault = Some(Handler(Arc::new(handler)));
        self
    }

    /// What the jitter of its delays is drawn from. Defaults to a random one.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Whether the settings agree, also below.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let mut names = HashSet::new();
        for child in &self.children {
            if !names.insert(&child.common.name) {
                return Err(ConfigError::Duplicate(Arc::clone(&child.common.name)));
            }
            child.check(self.auto_shutdown)?;
        }
        Ok(())
    }

    /// Starts the supervisor and its children, each when the one before it is up, and waits until all are. A
    /// child that does not start ends this: those before it are stopped, in reverse order.
    ///
    /// # Errors
    /// [`StartError`] says which child did not start, and why.
    ///
    /// # Blocking
    /// Until all children are up. On a worker a stand-in takes its place in the pool meanwhile.
    pub fn start(self, runtime: &Runtime) -> Result<Supervisor, StartError> {
        self.check()?;
        let (promise, started) = promise();
        let site = Site {
            runtime: runtime.shared().weak(),
            path: self.name(),
            name: self.name(),
            on_fault: None,
        };
        let Start { actor, board } = supervisor::start(
            &self,
            site,
            |_| Box::new(|| ()),
            Box::new(move |outcome| drop(promise.complete(outcome))),
        )
        .map_err(|why| match why {
            NotSpawned::Closed => StartError::Closed,
            NotSpawned::Full => StartError::Full,
            NotSpawned::Thread(error) => StartError::Thread(error.to_string().into()),
        })?;
        let supervisor = Supervisor::new(actor, board);
        match blocking(|| started.get()) {
            Ok(()) => Ok(supervisor),
            Err(EventualError::Failed(error)) => Err(error),
            // It was thrown away before it could say anything.
            Err(_) => Err(StartError::Closed),
        }
    }
}

impl ChildSpec {
    /// Whether it can be the child of a supervisor with this setting.
    pub(super) fn check(&self, auto: AutoShutdown) -> Result<(), ConfigError> {
        let name = || Arc::clone(&self.common.name);
        if self.common.significant && self.common.restart == Restart::Permanent {
            return Err(ConfigError::SignificantPermanent(name()));
        }
        if self.common.significant && auto == AutoShutdown::Never {
            return Err(ConfigError::SignificantForNothing(name()));
        }
        self.kind.0.check()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("strategy", &self.strategy)
            .field("intensity", &self.intensity)
            .field("children", &self.children)
            .finish_non_exhaustive()
    }
}
