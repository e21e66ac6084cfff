//! The curve and the jitter: whole nanoseconds in, whole nanoseconds out.

/// How a delay grows with the number of failed attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Curve {
    /// Always the base.
    Fixed,
    /// The base times the number of failed attempts.
    Linear,
    /// The base, doubled so many times for each attempt: the factors 2, 4, 8, …
    Doubling(u32),
    /// The base times this factor for each attempt.
    Factor(Factor),
}

impl Curve {
    /// `base` grown `steps` times, at most `cap`.
    #[inline]
    pub(super) fn at(self, base: u64, steps: u32, cap: u64) -> u64 {
        let grown = match self {
            Self::Fixed => base,
            Self::Linear => base.saturating_mul(u64::from(steps).saturating_add(1)),
            Self::Doubling(bits) => shifted(base, bits.saturating_mul(steps)),
            Self::Factor(factor) => factor.grow(base, steps),
        };
        grown.min(cap)
    }
}

/// `base · 2^bits`, saturating.
#[inline]
fn shifted(base: u64, bits: u32) -> u64 {
    // A shift that loses no bit needs as many leading zeros; zero has 64, and is not shifted by them.
    if bits <= base.leading_zeros() {
        base.wrapping_shl(bits)
    } else if base == 0 {
        0
    } else {
        u64::MAX
    }
}

/// A growth factor of at least one, in steps of 2⁻²⁰.
///
/// That grain keeps the curve monotone: from one nanosecond to the longest delay, the smallest
/// factor above one takes fewer than 2²⁶ steps, and the 62-bit arithmetic below errs by less than
/// 2⁻³⁴ of the value over that many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Factor(u64);

impl Factor {
    const FRACTION: u32 = 20;
    /// The largest factor a policy may have.
    pub(super) const MAX: f64 = 1000.0;

    /// `None` unless `1.0 <= factor <= MAX`.
    pub(super) fn new(factor: f64) -> Option<Self> {
        if !(1.0..=Self::MAX).contains(&factor) {
            return None;
        }
        // In range by the line above: at most 1000 · 2²⁰.
        Some(Self((factor * f64::from(1u32 << Self::FRACTION)).round() as u64))
    }

    /// The simplest curve that grows like this.
    pub(super) fn curve(self) -> Curve {
        let one = 1u64 << Self::FRACTION;
        if self.0 == one {
            Curve::Fixed
        } else if self.0.is_power_of_two() {
            Curve::Doubling(self.0.trailing_zeros() - Self::FRACTION)
        } else {
            Curve::Factor(self)
        }
    }

    /// `base · factor^steps`, saturating: by squaring, so no loop runs `steps` times.
    #[inline(never)]
    fn grow(self, base: u64, steps: u32) -> u64 {
        let mut result = Float::new(base);
        let mut power = Float::new(self.0).scaled_down(Self::FRACTION);
        let mut left = steps;
        while left > 0 {
            if left & 1 == 1 {
                result = result.times(power);
            }
            power = power.times(power);
            left >>= 1;
        }
        result.floor()
    }
}

/// `mantissa · 2^exponent` with the mantissa's top bit (bit 63) set, or zero.
#[derive(Clone, Copy)]
struct Float {
    mantissa: u64,
    exponent: i32,
}

impl Float {
    /// Beyond this exponent everything is "too long"; kept small so that squaring cannot overflow.
    const TOO_LARGE: i32 = 1 << 20;

    fn new(value: u64) -> Self {
        if value == 0 {
            return Self { mantissa: 0, exponent: 0 };
        }
        let shift = value.leading_zeros();
        Self { mantissa: value << shift, exponent: -(shift as i32) }
    }

    fn scaled_down(self, bits: u32) -> Self {
        Self { exponent: self.exponent - bits as i32, ..self }
    }

    fn times(self, other: Self) -> Self {
        let product = u128::from(self.mantissa) * u128::from(other.mantissa);
        if product == 0 {
            return Self { mantissa: 0, exponent: 0 };
        }
        let shift = product.leading_zeros();
        let mantissa = ((product << shift) >> 64) as u64;
        let exponent = self.exponent + other.exponent + 64 - shift as i32;
        Self { mantissa, exponent: exponent.min(Self::TOO_LARGE) }
    }

    fn floor(self) -> u64 {
        match self.exponent {
            _ if self.mantissa == 0 => 0,
            0 => self.mantissa,
            1.. => u64::MAX,
            down => self.mantissa.checked_shr(down.unsigned_abs()).unwrap_or(0),
        }
    }
}

/// How a delay is spread, so that callers who failed together do not come back together.
///
/// `d` is the delay after the cap. No jitter ever leaves the cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Jitter {
    /// `d` itself. For tests, and for callers who are alone.
    None,
    /// Anything from zero to `d`. Spreads the most; the mean is `d / 2`.
    #[default]
    Full,
    /// Anything from `d / 2` to `d`: never a retry at once.
    Equal,
    /// Anything from the base to three times the delay before, at most the cap. Grows by chance
    /// rather than by count: the curve and its factor play no part.
    Decorrelated,
}

impl Jitter {
    #[inline]
    pub(super) fn apply(
        self,
        delay: u64,
        base: u64,
        cap: u64,
        previous: u64,
        rng: &mut fastrand::Rng,
    ) -> u64 {
        match self {
            Self::None => delay,
            Self::Full => between(0, delay, rng),
            Self::Equal => between(delay / 2, delay, rng),
            Self::Decorrelated => {
                let low = base.min(cap);
                between(low, previous.saturating_mul(3).clamp(low, cap), rng)
            }
        }
    }
}

/// Some number from `low` to `high`, both included.
///
/// Multiply and shift, without rejection: no value's chance is off by more than 2⁻⁶⁴, which no
/// spreading of retries can notice, and the time it takes is always the same.
#[inline]
fn between(low: u64, high: u64, rng: &mut fastrand::Rng) -> u64 {
    let span = u128::from(high - low) + 1;
    // Below `span`, so the sum is at most `high`.
    low + ((u128::from(rng.u64(..)) * span) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn doubling_saturates_instead_of_losing_bits() {
        assert_eq!(shifted(1, 63), 1 << 63);
        assert_eq!(shifted(1, 64), u64::MAX);
        assert_eq!(shifted(3, 63), u64::MAX);
        assert_eq!(shifted(0, u32::MAX), 0);
        assert_eq!(shifted(u64::MAX, 0), u64::MAX);
    }

    #[test]
    fn a_factor_is_refused_outside_its_range() {
        for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0, 0.999, 1000.1] {
            assert_eq!(Factor::new(bad), None, "{bad}");
        }
        assert_eq!(Factor::new(1.0).map(Factor::curve), Some(Curve::Fixed));
        assert_eq!(Factor::new(8.0).map(Factor::curve), Some(Curve::Doubling(3)));
    }

    #[test]
    fn whole_factors_are_exact() {
        let three = Factor::new(3.0).unwrap();
        let mut expected = 7u64;
        for steps in 0..38 {
            assert_eq!(three.grow(7, steps), expected);
            expected = expected.saturating_mul(3);
        }
    }

    proptest! {
        #[test]
        fn a_factor_grows_as_floating_point_would(
            base in 1u64..1 << 40, factor in 1.0f64..16.0, steps in 0u32..64,
        ) {
            let rounded = Factor::new(factor).unwrap();
            let exact = (rounded.0 as f64 / f64::from(1u32 << Factor::FRACTION)).powi(steps as i32) * base as f64;
            let grown = rounded.grow(base, steps);
            if exact >= u64::MAX as f64 {
                prop_assert!(grown as f64 >= u64::MAX as f64 * 0.999_999);
            } else {
                let error = (grown as f64 - exact).abs();
                prop_assert!(error <= 1.0 + exact * 1e-9, "{grown} is not {exact}");
            }
        }

        #[test]
        fn every_curve_is_monotone_and_capped(
            base in any::<u64>(), cap in any::<u64>(), grain in 0u64..=999 << 20, steps in any::<u32>(),
        ) {
            let factor = Factor((1 << 20) + grain);
            for curve in [Curve::Fixed, Curve::Linear, Curve::Doubling(1), Curve::Factor(factor), factor.curve()] {
                let here = curve.at(base, steps, cap);
                prop_assert!(here <= cap);
                prop_assert!(curve.at(base, steps.saturating_add(1), cap) >= here, "{curve:?}");
                prop_assert_eq!(curve.at(base, 0, u64::MAX), base);
            }
        }

        #[test]
        fn the_smallest_factor_is_monotone_too(base in 1u64..1 << 50, steps in 0u32..1 << 27) {
            let factor = Factor((1 << 20) + 1);
            prop_assert!(factor.grow(base, steps + 1) >= factor.grow(base, steps));
        }

        #[test]
        fn jitter_stays_inside_its_promise(
            delay in any::<u64>(), base in any::<u64>(), cap in any::<u64>(),
            previous in any::<u64>(), seed in any::<u64>(),
        ) {
            let delay = delay.min(cap);
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut of = |jitter: Jitter| jitter.apply(delay, base, cap, previous, &mut rng);
            prop_assert_eq!(of(Jitter::None), delay);
            prop_assert!(of(Jitter::Full) <= delay);
            let equal = of(Jitter::Equal);
            prop_assert!(delay / 2 <= equal && equal <= delay);
            let decorrelated = of(Jitter::Decorrelated);
            prop_assert!(base.min(cap) <= decorrelated && decorrelated <= cap);
            prop_assert!(decorrelated <= previous.saturating_mul(3).max(base));
        }
    }

    #[test]
    fn jitter_reaches_both_ends_and_all_between() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut seen = [0u32; 5];
        for _ in 0..5_000 {
            seen[between(0, 4, &mut rng) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (900..1100).contains(&n)), "{seen:?}");
        assert_eq!(between(9, 9, &mut rng), 9);
        between(0, u64::MAX, &mut rng);
    }
}
