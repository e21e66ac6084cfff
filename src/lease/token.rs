//! The identity of a grant.

use core::fmt;
use core::num::NonZeroU64;

/// The last number that a slot's epochs can be counted from. Beyond it a key has no token left.
pub(super) const LAST_BASE: u64 = u64::MAX - super::word::EPOCH_MAX;

/// The number of a grant: greater than that of every earlier grant on its key.
///
/// A token is the *identity* of a lease: whoever shows the greatest token on a key is its owner, and
/// a resource that remembers the greatest token it has seen (a [`FenceGate`](super::FenceGate), a
/// column of a database) refuses everybody who is late. It stays with the lease when the lease is
/// renewed or checkpointed, and grows with each acquisition, takeover and transfer, also after the
/// key was removed and made again.
///
/// Tokens of different keys have nothing to do with each other. There are 2⁶⁴ of them; a key that
/// comes to the end (by a [floor](super::LeaseTableBuilder::floor) set there) is granted no more:
/// [`AcquireError::TokensUsedUp`](super::AcquireError::TokensUsedUp).
///
/// ```
/// use tenure::lease::FencingToken;
///
/// let token = FencingToken::from_bytes([0, 0, 0, 0, 0, 0, 0, 7]).ok_or("zero is no token")?;
/// assert_eq!(token.to_string(), "7");
/// assert_eq!(FencingToken::from_bytes(token.to_bytes()), Some(token));
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    #[inline]
    pub(super) const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) => Some(Self(number)),
            None => None,
        }
    }

    /// The token of `epoch` in a slot that starts at `base`, which is no greater than [`LAST_BASE`], so
    /// that the sum is in range. Epoch 0 is no grant's, so it is not zero; one stands for it anyway.
    #[inline]
    pub(crate) const fn of(base: u64, epoch: u64) -> Self {
        match NonZeroU64::new(base.wrapping_add(epoch)) {
            Some(number) => Self(number),
            None => Self(NonZeroU64::MIN),
        }
    }

    #[inline]
    pub(super) const fn number(self) -> u64 {
        self.0.get()
    }

    /// Eight bytes, most significant first: they sort as tokens do.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }

    /// The token that [`to_bytes`](Self::to_bytes) gave these bytes for; `None` for zero.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        Self::new(u64::from_be_bytes(bytes))
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencingToken({})", self.0)
    }
}
