//! Phi accrual: how surprising a silence is, by what intervals there were before.
//!
//! `phi = −log₁₀ P(an interval is longer than this silence)`, where intervals are taken to be normal, with
//! the mean and the deviation of the last ones. So 1 is wrong once in ten times, 8 once in a hundred
//! million. The scale is the beater's own: one that beats every ten milliseconds is suspected after some
//! tens of them, one that beats every minute after minutes.
//!
//! # Numbers
//!
//! Sums of intervals and of their squares are whole numbers of 128 bits: what leaves the window takes
//! away exactly what it brought, so nothing drifts, and the variance is exact before its one rounding. The
//! tail of the normal distribution is computed as a logarithm, so it does not end at 10⁻³⁰⁸: phi
//! grows with the square of the silence, without a limit, and is a finite number for every
//! [`Duration`].

use core::f64::consts::{LN_10, PI};
use core::time::Duration;
use std::collections::VecDeque;

use super::error::ConfigError;
use crate::clock::{Timestamp, nanos_saturating};

/// The longest interval that is told apart from longer ones: 3.26 days. With it the sums fit: a window's
/// 2¹⁴ squares of 2⁹⁶, times a window's 2¹⁴.
const LONGEST: u64 = 1 << 48;
/// The largest window.
const MAX_WINDOW: usize = 1 << 14;
/// From here on the tail is computed from the outside in.
const FAR: f64 = 3.0;

/// Accrues suspicion of one that should beat: see the [room's tour](super).
///
/// Pure: it reads no clock and takes no lock. Time that goes backwards counts as standing still; an
/// interval that was long enough to be suspicious ([`PhiAccrualBuilder::threshold`]) tells of an outage,
/// not of the beater's habits, and does not enter the window.
///
/// ```
/// use std::time::Duration;
/// use tenure::clock::Timestamp;
/// use tenure::health::PhiAccrual;
///
/// # fn main() -> Result<(), tenure::health::ConfigError> {
/// let mut phi = PhiAccrual::builder()
///     .first_interval(Duration::from_millis(100))
///     .min_deviation(Duration::from_millis(10))
///     .build()?;
/// let at = |millis: u64| Timestamp::from_nanos(millis * 1_000_000);
/// for beat in 0..50 {
///     phi.beat(at(beat * 100));
/// }
/// assert!(phi.phi(at(5_000)) < 1.0, "the next one is due");
/// assert!(phi.phi(at(5_200)) > 8.0, "it is overdue by ten deviations");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct PhiAccrual {
    window: usize,
    threshold: f64,
    /// In nanoseconds.
    min_deviation: f64,
    pause: f64,
    first_interval: u64,
    intervals: VecDeque<u64>,
    sum: u128,
    squares: u128,
    last: Option<Timestamp>,
}

impl PhiAccrual {
    /// Settings to choose.
    pub fn builder() -> PhiAccrualBuilder {
        PhiAccrualBuilder {
            window: 200,
            threshold: 8.0,
            min_deviation: Duration::from_millis(100),
            acceptable_pause: Duration::ZERO,
            first_interval: Duration::from_secs(1),
        }
    }

    /// It beat, at this time.
    pub fn beat(&mut self, at: Timestamp) {
        let Some(last) = self.last else {
            // Nothing is known yet: two intervals that have the expected mean, and a wide deviation.
            let apart = self.first_interval / 4;
            self.add(self.first_interval - apart);
            self.add(self.first_interval.saturating_add(apart));
            self.last = Some(at);
            return;
        };
        if at <= last {
            return;
        }
        if self.phi(at) < self.threshold {
            self.add(nanos_saturating(at.saturating_since(last)));
        }
        self.last = Some(at);
    }

    /// An interval that was measured elsewhere, suspicious or not: for what is no series of beats, like how
    /// long something takes.
    pub fn observe(&mut self, interval: Duration) {
        self.add(nanos_saturating(interval));
    }

    fn add(&mut self, interval: u64) {
        let interval = interval.min(LONGEST);
        if self.intervals.len() >= self.window
            && let Some(oldest) = self.intervals.pop_front()
        {
            self.sum -= u128::from(oldest);
            self.squares -= u128::from(oldest) * u128::from(oldest);
        }
        self.intervals.push_back(interval);
        self.sum += u128::from(interval);
        self.squares += u128::from(interval) * u128::from(interval);
    }

    /// How suspicious it is to have heard nothing until `now`. Zero before the first beat; never
    /// negative, never NaN; grows while nothing is heard.
    #[must_use]
    pub fn phi(&self, now: Timestamp) -> f64 {
        let Some(last) = self.last else { return 0.0 };
        self.phi_after(now.saturating_since(last))
    }

    /// The same by how long the silence is. Zero before the first interval.
    #[must_use]
    pub fn phi_after(&self, silence: Duration) -> f64 {
        if self.intervals.is_empty() {
            return 0.0;
        }
        let silence = nanos_saturating(silence) as f64;
        log_tail((silence - self.mean_nanos() - self.pause) / self.deviation_nanos())
    }

    /// Whether phi is at or above the [`threshold`](PhiAccrualBuilder::threshold).
    #[must_use]
    pub fn is_suspicious(&self, now: Timestamp) -> bool {
        self.phi(now) >= self.threshold
    }

    /// One that finds nothing suspicious.
    pub(crate) fn unsuspecting() -> Self {
        Self {
            window: 2,
            threshold: f64::MAX,
            min_deviation: f64::MAX,
            pause: f64::MAX,
            first_interval: 1,
            intervals: VecDeque::new(),
            sum: 0,
            squares: 0,
            last: None,
        }
    }

    pub(crate) fn threshold(&self) -> f64 {
        self.threshold
    }

    /// When it beat last.
    #[must_use]
    pub fn last_beat(&self) -> Option<Timestamp> {
        self.last
    }

    /// The mean of the intervals in the window; zero before the first beat.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.mean_nanos() as u64)
    }

    /// Their standard deviation, or the least one that is used.
    #[must_use]
    pub fn deviation(&self) -> Duration {
        Duration::from_nanos(self.deviation_nanos() as u64)
    }

    fn mean_nanos(&self) -> f64 {
        match self.intervals.len() {
            0 => 0.0,
            count => self.sum as f64 / count as f64,
        }
    }

    fn deviation_nanos(&self) -> f64 {
        let count = self.intervals.len() as u128;
        if count == 0 {
            return self.min_deviation;
        }
        // n² · variance: whole, and not negative (Cauchy and Schwarz).
        let spread = count * self.squares - self.sum * self.sum;
        ((spread as f64).sqrt() / count as f64).max(self.min_deviation)
    }
}

/// −log₁₀ of the chance that a normal variable is more than `y` deviations above its mean.
fn log_tail(y: f64) -> f64 {
    // ln of the density at y.
    let density = -0.5 * y * y - 0.5 * (2.0 * PI).ln();
    let ln = if y > FAR {
        // Laplace's continued fraction, from a depth at which it has converged: 1 ÷ (y + 1 ÷ (y + 2 ÷ …)).
        let ratio = (1..=64).rev().fold(y, |below, k| y + f64::from(k) / below);
        density - ratio.ln()
    } else if y > -FAR {
        // ½ − the density times y + y³/3 + y⁵/(3·5) + …
        let mut term = y;
        let mut sum = y;
        for k in 1..64 {
            term *= y * y / f64::from(2 * k + 1);
            sum += term;
        }
        (0.5 - density.exp() * sum).ln()
    } else {
        // All but a far tail on the other side.
        let ratio = (1..=64).rev().fold(-y, |below, k| -y + f64::from(k) / below);
        (-(density - ratio.ln()).exp()).ln_1p()
    };
    // Where y² has no place, neither has a larger phi.
    (-ln / LN_10).clamp(0.0, f64::MAX)
}

/// Settings of a [`PhiAccrual`]. From [`PhiAccrual::builder`].
///
/// | option | default |
/// |---|---|
/// | [`window`](Self::window) | 200 intervals |
/// | [`threshold`](Self::threshold) | 8 |
/// | [`min_deviation`](Self::min_deviation) | 100 ms |
/// | [`acceptable_pause`](Self::acceptable_pause) | zero |
/// | [`first_interval`](Self::first_interval) | 1 s |
#[derive(Clone, Copy, Debug)]
#[must_use = "call build"]
pub struct PhiAccrualBuilder {
    window: usize,
    threshold: f64,
    min_deviation: Duration,
    acceptable_pause: Duration,
    first_interval: Duration,
}

impl PhiAccrualBuilder {
    /// How many of the last intervals count: 2 to 16,384, eight bytes each. Defaults to 200.
    pub fn window(mut self, intervals: usize) -> Self {
        self.window = intervals;
        self
    }

    /// From which phi on it is suspicious: above 0, finite. Defaults to 8.
    pub fn threshold(mut self, phi: f64) -> Self {
        self.threshold = phi;
        self
    }

    /// The least deviation that is used, so that one who is very regular is not suspected after a hair's
    /// breadth; longer than zero. Defaults to 100 ms.
    pub fn min_deviation(mut self, deviation: Duration) -> Self {
        self.min_deviation = deviation;
        self
    }

    /// A silence that is added to the mean before anything is suspicious: collections, a slow disk.
    /// `Duration::MAX`: nothing ever is. Defaults to zero.
    pub fn acceptable_pause(mut self, pause: Duration) -> Self {
        self.acceptable_pause = pause;
        self
    }

    /// What interval to expect while none is known: longer than zero. Defaults to 1 s.
    pub fn first_interval(mut self, interval: Duration) -> Self {
        self.first_interval = interval;
        self
    }

    /// Checks the options.
    ///
    /// # Errors
    /// [`ConfigError`] names the first option that is out of its range.
    pub fn build(self) -> Result<PhiAccrual, ConfigError> {
        if !(2..=MAX_WINDOW).contains(&self.window) {
            return Err(ConfigError::Window { got: self.window, max: MAX_WINDOW });
        }
        if !(self.threshold > 0.0 && self.threshold.is_finite()) {
            return Err(ConfigError::Threshold(self.threshold));
        }
        if self.min_deviation.is_zero() {
            return Err(ConfigError::MinDeviation);
        }
        if self.first_interval.is_zero() {
            return Err(ConfigError::FirstInterval);
        }
        Ok(PhiAccrual {
            window: self.window,
            threshold: self.threshold,
            min_deviation: nanos_saturating(self.min_deviation) as f64,
            pause: nanos_saturating(self.acceptable_pause) as f64,
            first_interval: nanos_saturating(self.first_interval),
            intervals: VecDeque::new(),
            sum: 0,
            squares: 0,
            last: None,
        })
    }
}

#[cfg(all(test, not(tenure_loom)))]
mod tests {
    use super::*;

    /// Chances that a table of the normal distribution gives.
    #[test]
    fn the_tail_is_that_of_the_table() {
        for (y, tail) in [
            (0.0_f64, 0.5_f64),
            (1.0, 0.158_655_253_931_457),
            (-1.0, 0.841_344_746_068_543),
            (2.0, 0.022_750_131_948_179),
            (3.0, 1.349_898_031_630_095e-3),
            (-3.0, 0.998_650_101_968_37),
            (4.0, 3.167_124_183_311_992e-5),
            (6.0, 9.865_876_450_376_98e-10),
            (10.0, 7.619_853_024_160_47e-24),
            (20.0, 2.753_624_118_606_23e-89),
            (37.0, 5.725_571_222_524_84e-300),
        ] {
            let phi = log_tail(y);
            assert!(
                (phi + tail.log10()).abs() <= 1e-9 * (1.0 + phi),
                "{y}: {phi} {}",
                tail.log10()
            );
        }
    }

    #[test]
    fn the_tail_grows_and_stays_finite() {
        let mut last = 0.0;
        for step in -4_000..4_000 {
            let phi = log_tail(f64::from(step) * 0.01);
            assert!(phi >= last, "at {step}");
            last = phi;
        }
        assert_eq!(log_tail(-1e300), 0.0);
        assert_eq!(log_tail(1e300), f64::MAX);
        assert_eq!(log_tail(f64::MAX), f64::MAX);
    }

    #[test]
    fn sums_fit_and_come_back_to_nothing() {
        let mut phi = PhiAccrual::builder().window(MAX_WINDOW).build().unwrap();
        for _ in 0..2 * MAX_WINDOW {
            phi.add(u64::MAX);
        }
        assert_eq!(phi.mean(), Duration::from_nanos(LONGEST));
        assert_eq!(phi.deviation(), Duration::from_millis(100));
        for _ in 0..MAX_WINDOW {
            phi.add(3);
        }
        assert_eq!((phi.sum, phi.squares), (3 * MAX_WINDOW as u128, 9 * MAX_WINDOW as u128));
    }
}
