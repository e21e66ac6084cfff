//! How long a silence may be: by a deadline, or by what is usual.

use core::time::Duration;

use super::error::ConfigError;
use super::phi::PhiAccrual;
use crate::clock::Timestamp;

/// When one that does not beat is suspected, and when it is given up.
#[derive(Clone, Debug)]
pub struct Detector(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Deadline { suspect_after: Duration, dead_after: Duration },
    Phi { phi: Box<PhiAccrual>, suspect_at: f64, dead_at: f64 },
}

/// What a detector says of a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opinion {
    Fine,
    Suspicious,
    Lost,
}

impl Detector {
    /// By fixed silences: the same for everybody, and easy to explain. `Duration::MAX` for `dead_after`:
    /// it is suspected at most, never given up.
    ///
    /// # Errors
    /// [`ConfigError`] if `suspect_after` is zero or `dead_after` is shorter.
    pub fn deadline(suspect_after: Duration, dead_after: Duration) -> Result<Self, ConfigError> {
        if suspect_after.is_zero() {
            return Err(ConfigError::SuspectAfter);
        }
        if dead_after < suspect_after {
            return Err(ConfigError::DeadAfter { suspect_after, dead_after });
        }
        Ok(Self(Kind::Deadline { suspect_after, dead_after }))
    }

    /// By what is usual for the one that beats: suspected from the phi's own
    /// [`threshold`](super::PhiAccrualBuilder::threshold) on, given up from `dead_at` on.
    ///
    /// Intervals are seen by whoever checks, so none is seen that is shorter than the time between two
    /// checks.
    ///
    /// # Errors
    /// [`ConfigError`] if `dead_at` is below the threshold, or not finite.
    pub fn phi(phi: PhiAccrual, dead_at: f64) -> Result<Self, ConfigError> {
        let suspect_at = phi.threshold();
        if !(dead_at >= suspect_at && dead_at.is_finite()) {
            return Err(ConfigError::DeadAt { suspect_at, dead_at });
        }
        Ok(Self(Kind::Phi { phi: Box::new(phi), suspect_at, dead_at }))
    }

    /// It beat at this time.
    pub(crate) fn hear(&mut self, at: Timestamp) {
        match &mut self.0 {
            Kind::Deadline { .. } => {}
            Kind::Phi { phi, .. } => phi.beat(at),
        }
    }

    /// What it says of a silence, and the phi that it says so by; `None` for a deadline.
    pub(crate) fn judge(&self, silence: Duration) -> (Opinion, Option<f64>) {
        let opinion = |is_lost, is_suspicious| match (is_lost, is_suspicious) {
            (true, _) => Opinion::Lost,
            (false, true) => Opinion::Suspicious,
            (false, false) => Opinion::Fine,
        };
        match &self.0 {
            Kind::Deadline { suspect_after, dead_after } => {
                (opinion(silence >= *dead_after, silence >= *suspect_after), None)
            }
            Kind::Phi { phi, suspect_at, dead_at } => {
                let phi = phi.phi_after(silence);
                (opinion(phi >= *dead_at, phi >= *suspect_at), Some(phi))
            }
        }
    }
}

#[cfg(all(test, not(tenure_loom)))]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_inclusive_and_may_be_for_ever() {
        let second = Duration::from_secs(1);
        let detector = Detector::deadline(second, Duration::MAX).unwrap();
        assert_eq!(detector.judge(second - Duration::from_nanos(1)).0, Opinion::Fine);
        assert_eq!(detector.judge(second).0, Opinion::Suspicious);
        assert_eq!(detector.judge(Duration::from_nanos(u64::MAX)).0, Opinion::Suspicious);
        let detector = Detector::deadline(second, second).unwrap();
        assert_eq!(detector.judge(second).0, Opinion::Lost);
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let second = Duration::from_secs(1);
        assert_eq!(
            Detector::deadline(Duration::ZERO, second).unwrap_err(),
            ConfigError::SuspectAfter
        );
        assert!(matches!(
            Detector::deadline(2 * second, second),
            Err(ConfigError::DeadAfter { .. })
        ));
        let phi = || PhiAccrual::builder().build().unwrap();
        for dead_at in [7.9, f64::NAN, f64::INFINITY, -1.0] {
            assert!(matches!(Detector::phi(phi(), dead_at), Err(ConfigError::DeadAt { .. })));
        }
        assert!(Detector::phi(phi(), 8.0).is_ok());
    }
}
