//! Tokens, until the lease room has its own.

/// A number that grows with each lease of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(core::num::NonZeroU64);

impl FencingToken {
    pub(crate) fn new(number: u64) -> Self {
        Self(core::num::NonZeroU64::new(number).unwrap_or(core::num::NonZeroU64::MIN))
    }
    /// The number.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}
