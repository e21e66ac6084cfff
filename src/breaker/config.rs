//! What a breaker is told to do.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use super::CircuitBreaker;
use super::core::Core;
use super::error::ConfigError;
use super::event::{BreakerEvent, Sink};
use crate::clock::{AnyClock, Clock};
use crate::retry::{Jitter, RetryPolicy};

/// Which calls a closed breaker looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Window {
    /// The last so many: 1 to 65,536.
    Count(u32),
    /// Those of the last so long: in buckets of a power of two of nanoseconds, 8 to 16 of them, so that it
    /// reaches back at most an eighth further than it says.
    Time(Duration),
}

/// The options of a breaker, checked. Replace those of a running one by
/// [`CircuitBreaker::reconfigure`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    pub(super) window: Window,
    pub(super) failure_ppm: u32,
    pub(super) slow_ppm: u32,
    /// `None`: nothing is slow.
    pub(super) slow_after: Option<Duration>,
    pub(super) min_calls: u32,
    pub(super) probes: u32,
    pub(super) open: RetryPolicy,
    pub(super) probe_timeout: Duration,
}

impl Settings {
    /// Which calls count.
    #[must_use]
    pub const fn window(&self) -> Window {
        self.window
    }

    /// Of how many probes in a row the breaker wants to see a success.
    #[must_use]
    pub const fn probes(&self) -> u32 {
        self.probes
    }

    /// From when on a call is slow, if any is.
    #[must_use]
    pub const fn slow_after(&self) -> Option<Duration> {
        self.slow_after
    }

    /// The part of calls whose failing opens the breaker.
    #[must_use]
    pub fn failure_rate(&self) -> f64 {
        f64::from(self.failure_ppm) / 1e6
    }

    /// How many calls the window has to hold before it is judged.
    #[must_use]
    pub const fn min_calls(&self) -> u32 {
        self.min_calls
    }
}

/// The options of a [`CircuitBreaker`], with its table of defaults there.
#[must_use]
pub struct BreakerBuilder {
    name: Option<Arc<str>>,
    window: Window,
    failure_rate: f64,
    slow: Option<(Duration, f64)>,
    min_calls: Option<u32>,
    probes: u32,
    probe_timeout: Duration,
    open_for: Duration,
    growth: Option<(f64, Duration)>,
    jitter: Jitter,
    stripes: Option<usize>,
    clock: AnyClock,
    sink: Option<Sink>,
}

impl BreakerBuilder {
    pub(super) fn new() -> Self {
        Self {
            name: None,
            window: Window::Count(100),
            failure_rate: 0.5,
            slow: None,
            min_calls: None,
            probes: 3,
            probe_timeout: Duration::from_secs(60),
            open_for: Duration::from_secs(5),
            growth: None,
            jitter: Jitter::None,
            stripes: None,
            clock: AnyClock::default(),
            sink: None,
        }
    }

    /// What it is called in snapshots and when it is printed. Defaults to no name.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Which calls count. Defaults to [`Window::Count`] of 100.
    ///
    /// "Five failures in a row" is a window of 5 with a [`failure_rate`](Self::failure_rate) of 1.
    pub fn window(mut self, window: Window) -> Self {
        self.window = window;
        self
    }

    /// The part of the window's calls whose failing opens the breaker: above 0, up to 1, in steps of a
    /// millionth. Judged whenever a call fails or is slow; a success never opens it. Defaults to 0.5.
    pub fn failure_rate(mut self, rate: f64) -> Self {
        self.failure_rate = rate;
        self
    }

    /// A call that takes `after` or longer is slow, also if it succeeds; `rate` of them open the breaker, as
    /// with failures. A slow probe is a failed one. Defaults to none: then no call is timed.
    ///
    /// Where `after` is at least 50 times what the coarse clock may lag (1 s on Linux), calls are timed by
    /// that one, to within 2 % of it.
    pub fn slow_calls(mut self, after: Duration, rate: f64) -> Self {
        self.slow = Some((after, rate));
        self
    }

    /// How many calls the window has to hold before it is judged: at least 1, at most the length of a
    /// window by count. Defaults to 20, or to that length if it is less.
    pub fn min_calls(mut self, calls: u32) -> Self {
        self.min_calls = Some(calls);
        self
    }

    /// How many probes a half-open breaker lets through, and wants to see succeed: 1 to 65,535. Not one
    /// more is under way or done at any time, however many ask. Defaults to 3.
    pub fn probes(mut self, probes: u32) -> Self {
        self.probes = probes;
        self
    }

    /// After this long without a decision a half-open breaker opens again: its probes do not come back.
    /// [`Duration::MAX`]: never. Defaults to 60 s.
    pub fn probe_timeout(mut self, timeout: Duration) -> Self {
        self.probe_timeout = timeout;
        self
    }

    /// How long it stays open. [`Duration::ZERO`]: the next call is a probe; [`Duration::MAX`]: until it
    /// is [reset](CircuitBreaker::reset). Defaults to 5 s.
    pub fn open_for(mut self, time: Duration) -> Self {
        self.open_for = time;
        self
    }

    /// Each opening without a close in between is `factor` times as long as the one before, up to
    /// `most`. Defaults to no growth.
    pub fn open_growth(mut self, factor: f64, most: Duration) -> Self {
        self.growth = Some((factor, most));
        self
    }

    /// Scatters the time of an opening, so that many breakers do not probe at once. Defaults to
    /// [`Jitter::None`].
    pub fn open_jitter(mut self, jitter: Jitter) -> Self {
        self.jitter = jitter;
        self
    }

    /// How many counters the successes are divided among, rounded up to a power of two, 64 at most: as
    /// many as threads that call at once. 256 bytes each. Defaults to the number of processors, 8 at most.
    pub fn stripes(mut self, stripes: usize) -> Self {
        self.stripes = Some(stripes.clamp(1, 64));
        self
    }

    /// The clock. Defaults to the system's.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = AnyClock::new(clock);
        self
    }

    /// Runs `listener` for each change of state: after the fact, on the thread that brought it about, with
    /// no lock held, when those who [`watch`](CircuitBreaker::watch) have been told. It may call the breaker.
    /// A panic in it goes no further and is counted. It must not block: somebody's call waits for it. Defaults
    /// to none.
    pub fn on_event(mut self, listener: impl Fn(&BreakerEvent) + Send + Sync + 'static) -> Self {
        self.sink = Some(Box::new(listener));
        self
    }

    /// Checks the options, for [`CircuitBreaker::reconfigure`]. Name, stripes, clock and listener are no
    /// part of them.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] names the first option that is out of its range.
    pub fn settings(&self) -> Result<Settings, ConfigError> {
        let rate = |rate: f64, error: fn(f64) -> ConfigError| {
            // Not 0 after rounding, and no NaN.
            let ppm = (rate * 1e6).round();
            if rate > 0.0 && rate <= 1.0 { Ok((ppm as u32).max(1)) } else { Err(error(rate)) }
        };
        let longest = match self.window {
            Window::Count(calls) if calls == 0 || calls > 1 << 16 => {
                return Err(ConfigError::Window(calls));
            }
            Window::Count(calls) => calls,
            Window::Time(_) => u32::MAX,
        };
        let min_calls = self.min_calls.unwrap_or(longest.min(20));
        if min_calls == 0 || min_calls > longest {
            return Err(ConfigError::MinCalls(min_calls));
        }
        if self.probes == 0 || self.probes > u32::from(u16::MAX) {
            return Err(ConfigError::Probes(self.probes));
        }
        let open = match self.growth {
            None => RetryPolicy::fixed(self.open_for).max_delay(self.open_for),
            Some((factor, most)) => {
                if most < self.open_for {
                    return Err(ConfigError::OpenMost { most, open_for: self.open_for });
                }
                RetryPolicy::exponential(self.open_for).factor(factor).max_delay(most)
            }
        };
        let open = open
            .jitter(self.jitter)
            .build()
            .map_err(|_| ConfigError::OpenGrowth(self.growth.map_or(1.0, |(factor, _)| factor)))?;
        Ok(Settings {
            window: self.window,
            failure_ppm: rate(self.failure_rate, ConfigError::FailureRate)?,
            slow_ppm: self.slow.map_or(Ok(0), |(_, part)| rate(part, ConfigError::SlowRate))?,
            slow_after: self.slow.map(|(after, _)| after),
            min_calls,
            probes: self.probes,
            open,
            probe_timeout: self.probe_timeout,
        })
    }

    /// The breaker, closed.
    ///
    /// # Errors
    ///
    /// As [`settings`](Self::settings).
    pub fn build(self) -> Result<CircuitBreaker, ConfigError> {
        let settings = self.settings()?;
        let stripes = self.stripes.unwrap_or_else(default_stripes);
        Ok(CircuitBreaker::of(Core::new(settings, stripes, self.name, self.clock, self.sink)))
    }
}

fn default_stripes() -> usize {
    if cfg!(any(tenure_loom, tenure_shuttle)) {
        return 1;
    }
    std::thread::available_parallelism().map_or(4, core::num::NonZero::get).min(8)
}

impl fmt::Debug for BreakerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BreakerBuilder")
            .field("name", &self.name)
            .field("settings", &self.settings())
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
