//! The runtime's settings.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use super::error::{ConfigError, DeadLetter};
use super::events::{Event, Subscribers};
use super::letters::{Letters, LettersFull};
#[cfg(feature = "metrics")]
use super::observe::metrics::Metrics;
use super::policy::live::{Budget, Live};
use super::runtime::Runtime;
use super::shared::Shared;
use super::{driver, worker};
use crate::clock::{AdvanceListener, Clock, MonotonicClock};
use crate::retry::{RetryBudget, RetryPolicy};

/// The most workers a runtime may have.
const MAX_WORKERS: usize = 1024;

/// What `std` gives a thread that asks for nothing.
fn usual_stack() -> usize {
    let asked = std::env::var("RUST_MIN_STACK").ok().and_then(|bytes| bytes.parse().ok());
    asked.unwrap_or(2 << 20)
}

type Hook = Arc<dyn Fn(usize) + Send + Sync>;
pub(crate) type LetterHook = Arc<dyn Fn(&Arc<DeadLetter>) + Send + Sync>;
type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// Settings, checked.
pub(crate) struct Config {
    pub(crate) workers: usize,
    pub(crate) max_spares: usize,
    pub(crate) seed: u64,
    pub(crate) capacity: Option<usize>,
    pub(crate) on_letter_lost: Option<LetterHook>,
    #[cfg(feature = "metrics")]
    pub(crate) metrics: Option<Metrics>,
    pub(crate) max_stuck_workers: usize,
    pub(crate) driver_late_after: Duration,
    pub(crate) thread_name: String,
    pub(crate) stack_size: usize,
    pub(crate) on_start: Option<Hook>,
    pub(crate) on_stop: Option<Hook>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("workers", &self.workers)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// Makes a [`Runtime`]. From [`Runtime::builder`].
///
/// | option | default |
/// |---|---|
/// | [`workers`](Self::workers) | as many as the system offers processors |
/// | [`attempt_timeout`](Self::attempt_timeout) | none: an attempt may run for ever |
/// | [`retry`](Self::retry) | [`RetryPolicy::default`] |
/// | [`retry_budget`](Self::retry_budget) | none |
/// | [`clock`](Self::clock) | [`MonotonicClock`] |
/// | [`seed`](Self::seed) | random |
/// | [`capacity`](Self::capacity) | none |
/// | [`dead_letters`](Self::dead_letters) | 1024 |
/// | [`when_letters_full`](Self::when_letters_full) | [`LettersFull::DropOldest`] |
/// | [`replayable`](Self::replayable) | false: the closures of dead jobs are dropped |
/// | [`max_stuck_workers`](Self::max_stuck_workers) | 64 |
/// | [`max_spares`](Self::max_spares) | 64 |
/// | [`driver_late_after`](Self::driver_late_after) | 10 ms |
/// | [`thread_name`](Self::thread_name) | `tenure` |
/// | [`stack_size`](Self::stack_size) | the system's |
#[derive(Clone)]
#[must_use = "call build"]
pub struct Builder {
    workers: Option<usize>,
    attempt_timeout: Option<Duration>,
    retry: RetryPolicy,
    budget: Option<Arc<dyn Budget>>,
    clock: Arc<dyn Clock>,
    seed: Option<u64>,
    capacity: Option<usize>,
    dead_letters: usize,
    letters_full: LettersFull,
    replayable: bool,
    on_letter_lost: Option<LetterHook>,
    max_stuck_workers: usize,
    max_spares: usize,
    driver_late_after: Duration,
    thread_name: String,
    stack_size: Option<usize>,
    on_start: Option<Hook>,
    on_stop: Option<Hook>,
    on_event: Option<Listener>,
    #[cfg(feature = "metrics")]
    metrics: Option<Metrics>,
}

impl Builder {
    /// The defaults.
    pub fn new() -> Self {
        Self {
            workers: None,
            attempt_timeout: None,
            retry: RetryPolicy::default(),
            budget: None,
            clock: Arc::new(MonotonicClock::new()),
            seed: None,
            capacity: None,
            dead_letters: 1024,
            letters_full: LettersFull::DropOldest,
            replayable: false,
            on_letter_lost: None,
            max_stuck_workers: 64,
            max_spares: 64,
            driver_late_after: Duration::from_millis(10),
            thread_name: "tenure".into(),
            stack_size: None,
            on_start: None,
            on_stop: None,
            on_event: None,
            #[cfg(feature = "metrics")]
            metrics: None,
        }
    }

    /// How many workers run jobs: 1 to 1024. Beside them there are the driver, which sleeps unless a
    /// deadline is due, and, once it had something to do, a thread to take over from it. Defaults to
    /// the number of processors that the system offers.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// How long an attempt may run without a heartbeat before its worker counts as stuck: the job
    /// is tried again, the worker is replaced, the late attempt is fenced. Longer than zero;
    /// `Duration::MAX` is for ever. Defaults to none: an attempt may run for ever.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.attempt_timeout = Some(timeout);
        self
    }

    /// When and how often failed jobs are tried again. Defaults to [`RetryPolicy::default`].
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Bounds the retries of all jobs together: each retry is drawn from it, each job that succeeds pays
    /// in. A retry that it does not have is not made: the job is dead, and its letter says
    /// [`Stop::Budget`](crate::retry::Stop::Budget). Share it, in an `Arc`, with others who retry
    /// against the same thing. Defaults to none.
    pub fn retry_budget<C: Clock>(mut self, budget: impl Into<Arc<RetryBudget<C>>>) -> Self {
        self.budget = Some(budget.into());
        self
    }

    /// What tells the time of delays, timeouts and the shutdown. Defaults to [`MonotonicClock`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Makes the jitter of retries repeatable: the same seed gives job `n` the same delays. Defaults
    /// to a random one.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// How many jobs may be waiting or running at a time; further ones come back as
    /// [`SubmitError::Full`](super::SubmitError::Full). At least 1. A cancelled job counts until its
    /// queue entry has been met. Defaults to no limit.
    pub fn capacity(mut self, jobs: usize) -> Self {
        self.capacity = Some(jobs);
        self
    }

    /// How many dead letters are kept; beyond it see [`when_letters_full`](Self::when_letters_full).
    /// 0 keeps none. Defaults to 1024.
    pub fn dead_letters(mut self, letters: usize) -> Self {
        self.dead_letters = letters;
        self
    }

    /// Which dead letter goes when there are too many; it is counted
    /// ([`Stats::letters_lost`](super::Stats::letters_lost)). Defaults to [`LettersFull::DropOldest`].
    pub fn when_letters_full(mut self, policy: LettersFull) -> Self {
        self.letters_full = policy;
        self
    }

    /// Called with every dead letter that there is no room for, on the thread on which a job has died (a
    /// worker, or the driver), with no lock held: to write it down elsewhere. Keep it short. May panic.
    /// Its job cannot be replayed any more. Defaults to nothing.
    pub fn on_letter_lost(
        mut self,
        hook: impl Fn(&Arc<DeadLetter>) + Send + Sync + 'static,
    ) -> Self {
        self.on_letter_lost = Some(Arc::new(hook));
        self
    }

    /// Whether the closures of jobs that die are kept with their letters, so that they can be replayed.
    /// What they have captured then lives as long as the letter: see [`DeadLetters`](super::DeadLetters)
    /// for what follows from that. One job may differ ([`Job::replayable`](super::Job::replayable)).
    /// Defaults to false.
    pub fn replayable(mut self, replayable: bool) -> Self {
        self.replayable = replayable;
        self
    }

    /// How many stuck workers may have a replacement running. Each is a thread that nobody can kill.
    /// Workers that get stuck beyond it are missed, and go on when they come back. Defaults to 64.
    pub fn max_stuck_workers(mut self, workers: usize) -> Self {
        self.max_stuck_workers = workers;
        self
    }

    /// How many stand-ins may run while workers wait for other jobs or are in
    /// [`blocking`](super::blocking) sections. Beyond it the pool runs with fewer, and a wait that
    /// nobody could end is refused ([`JobError::WouldDeadlock`](super::JobError::WouldDeadlock)).
    /// Defaults to 64.
    pub fn max_spares(mut self, workers: usize) -> Self {
        self.max_spares = workers;
        self
    }

    /// From when on it is worth an [event](Event::DriverLate) that the driver woke up too late. It is always late
    /// by a little ([figures](crate::timer#measured)); in what is longer, the machine had no time for this
    /// process, and attempts may have been given more time than they were promised. Whether it is told changes nothing of that: leases are extended by any lag. Zero tells of each,
    /// [`Duration::MAX`] of none. Defaults to 10 ms.
    pub fn driver_late_after(mut self, lag: Duration) -> Self {
        self.driver_late_after = lag;
        self
    }

    /// What threads are called: this, a dash and a number. A NUL in it ends it. Defaults to `tenure`.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        // A name with a NUL inside would panic in the thread builder.
        if let Some(nul) = self.thread_name.find('\0') {
            self.thread_name.truncate(nul);
        }
        self
    }

    /// Bytes of stack for each worker. Half of it is how deep jobs that wait for jobs are run on top of
    /// each other. Defaults to what `RUST_MIN_STACK` says, or 2 MiB.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Called on each worker's thread before its first job, with its number. May panic: that is an
    /// event and nothing else. Defaults to nothing.
    pub fn on_start(mut self, hook: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.on_start = Some(Arc::new(hook));
        self
    }

    /// Called on each worker's thread after its last job, with its number. May panic. Defaults to
    /// nothing.
    pub fn on_stop(mut self, hook: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.on_stop = Some(Arc::new(hook));
        self
    }

    /// Called with every event, on the thread where it happens: a worker, the driver, or a caller.
    /// Keep it short: it holds up that thread. May panic. For anything longer subscribe with
    /// [`Runtime::events`]. Defaults to nothing.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Arc::new(listener));
        self
    }

    /// Measures how long attempts take and jobs wait, and says how what
    /// [`Runtime::publish_metrics`] publishes is labelled. Costs each attempt a reading or two of the clock:
    /// see the [figures](super#measured). Defaults to none: then counters and gauges are published, and
    /// nothing is measured.
    #[cfg(feature = "metrics")]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Starts the threads.
    ///
    /// # Errors
    /// A setting out of its range, or a thread that the system refused; no thread is left then.
    pub fn build(self) -> Result<Runtime, ConfigError> {
        let workers = match self.workers {
            Some(workers) => workers,
            None => std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS),
        };
        if workers == 0 || workers > MAX_WORKERS {
            return Err(ConfigError::Workers { got: workers, max: MAX_WORKERS });
        }
        if self.attempt_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(ConfigError::AttemptTimeout);
        }
        if self.capacity == Some(0) {
            return Err(ConfigError::Capacity);
        }
        let config = Config {
            workers,
            max_spares: self.max_spares,
            seed: self.seed.unwrap_or_else(|| fastrand::u64(..)),
            capacity: self.capacity,
            on_letter_lost: self.on_letter_lost,
            #[cfg(feature = "metrics")]
            metrics: self.metrics,
            max_stuck_workers: self.max_stuck_workers,
            driver_late_after: self.driver_late_after,
            thread_name: self.thread_name,
            stack_size: self.stack_size.unwrap_or_else(usual_stack),
            on_start: self.on_start,
            on_stop: self.on_stop,
        };
        let letters = Letters::new(self.dead_letters, self.letters_full, self.replayable);
        let live = Live::new(self.attempt_timeout, self.retry, self.budget);
        let subscribers = Subscribers::new(self.on_event);
        let shared = Shared::new(config, live, self.clock, subscribers, letters);
        let weak = Arc::downgrade(&shared);
        let listener: std::sync::Weak<dyn AdvanceListener> = weak;
        shared.clock.on_advance(listener);
        driver::spawn(&shared).map_err(ConfigError::Thread)?;
        // From here on dropping it ends the threads that have started.
        let runtime = Runtime::new(shared);
        for _ in 0..workers {
            worker::spawn(runtime.shared()).map_err(ConfigError::Thread)?;
        }
        Ok(runtime)
    }
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("workers", &self.workers)
            .field("attempt_timeout", &self.attempt_timeout)
            .field("retry", &self.retry)
            .field("clock", &self.clock)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
