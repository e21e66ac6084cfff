//! How an unlock learns that somebody sleeps.

mod sealed {
    #[allow(unnameable_types, reason = "sealed: no other crate may name it")]
    pub trait Sealed {}
}

/// How an unlock learns that somebody sleeps: [`AsymmetricUnlock`] or [`SymmetricUnlock`].
///
/// Both are right on every system; they differ in who pays. [`PlatformUnlock`] is the better one.
pub trait Unlock: sealed::Sealed + Send + Sync + core::fmt::Debug + 'static {
    #[doc(hidden)]
    const ASYMMETRIC: bool;
}

/// The unlocker stores plainly, and the first sleeper makes every processor pass a barrier
/// (Linux `membarrier`). Half the price of a lock that nobody waits for.
///
/// Where the system has no such barrier, or a filter forbids it, a sleeper looks again every
/// millisecond instead.
#[derive(Debug)]
pub enum AsymmetricUnlock {}

/// The unlocker uses a locked instruction each time, and a sleeper needs no barrier.
#[derive(Debug)]
pub enum SymmetricUnlock {}

impl sealed::Sealed for AsymmetricUnlock {}
impl sealed::Sealed for SymmetricUnlock {}

impl Unlock for AsymmetricUnlock {
    const ASYMMETRIC: bool = true;
}

impl Unlock for SymmetricUnlock {
    const ASYMMETRIC: bool = false;
}

/// What this system does best.
#[cfg(target_os = "linux")]
pub type PlatformUnlock = AsymmetricUnlock;
/// What this system does best.
#[cfg(not(target_os = "linux"))]
pub type PlatformUnlock = SymmetricUnlock;
