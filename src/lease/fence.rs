//! Fences: what keeps a late owner from a resource that the lease table does not own.

use core::fmt;
use core::marker::PhantomData;
use core::time::Duration;

use super::FencingToken;
use crate::lock::AdaptiveMutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// A token was too old: somebody with a greater one was here before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[error("token {token} is fenced off: {seen} was seen")]
pub struct Fenced {
    /// The token that was refused.
    pub token: FencingToken,
    /// The greatest token seen so far.
    pub seen: FencingToken,
}

/// A proof that a lease was held a moment ago. Made by [`Lease::check`](super::Lease::check).
///
/// It borrows the lease, so nothing can be written with it after the lease was committed, handed
/// off or dropped:
///
/// ```compile_fail,E0505
/// use std::time::Duration;
/// use tenure::lease::{FenceGate, LeaseTable};
///
/// let table: LeaseTable<&str, ()> = LeaseTable::new();
/// let gate = FenceGate::new();
/// let lease = table.try_acquire(&"disk", Duration::from_secs(1)).unwrap();
/// let permit = lease.check().unwrap();
/// lease.commit().unwrap();
/// gate.write(&permit, || {}).unwrap(); // the lease was moved
/// ```
#[derive(Debug)]
pub struct Permit<'l> {
    token: FencingToken,
    lease: PhantomData<&'l ()>,
}

impl Permit<'_> {
    #[inline]
    pub(crate) const fn new(token: FencingToken) -> Self {
        Self { token, lease: PhantomData }
    }

    /// The lease's token.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.token
    }
}

/// The gate before a resource that remembers no tokens itself: lets a token through if no greater one
/// was let through before.
///
/// The gate keeps late owners out; it does not hold the newer owner back while an admitted write is
/// under way. A resource of this process whose writes must not overlap belongs in a [`FencedCell`];
/// one outside should take the token with each write and compare it there.
///
/// ```
/// use std::time::Duration;
/// use tenure::lease::{FenceGate, LeaseTable};
///
/// let table: LeaseTable<&str, ()> = LeaseTable::new();
/// let disk = FenceGate::new();
/// let late = table.try_acquire(&"disk", Duration::from_secs(9))?;
/// table.revoke(&"disk", late.token(), "maintenance");
/// let now = table.try_acquire(&"disk", Duration::from_secs(9))?;
///
/// disk.write(&now.check()?, || { /* … */ })?;
/// assert!(late.check().is_err());
/// assert!(disk.admit(late.token()).is_err()); // a late one that did not check
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FenceGate {
    /// The greatest token admitted; zero before the first.
    seen: AtomicU64,
}

impl FenceGate {
    /// A gate that has seen nobody.
    #[must_use]
    pub fn new() -> Self {
        Self { seen: AtomicU64::new(0) }
    }

    /// A gate for a resource that remembers `token` from before.
    #[must_use]
    pub fn starting_at(token: FencingToken) -> Self {
        Self { seen: AtomicU64::new(token.number()) }
    }

    /// Lets `token` through, unless a greater one was let through before.
    ///
    /// # Errors
    ///
    /// [`Fenced`]: the caller is late, and must not write.
    ///
    /// # Memory ordering
    ///
    /// What was done before an admission is visible after each later one.
    pub fn admit(&self, token: FencingToken) -> Result<(), Fenced> {
        // ORDERING: AcqRel: admissions are ordered, and each publishes to the next (pairs with
        // itself).
        let seen = self.seen.fetch_max(token.number(), Ordering::AcqRel);
        match FencingToken::new(seen) {
            Some(seen) if seen > token => Err(Fenced { token, seen }),
            _ => Ok(()),
        }
    }

    /// Runs `write` on this thread if the permit's token is let through.
    ///
    /// # Errors
    ///
    /// [`Fenced`]: `write` did not run.
    pub fn write<R>(&self, permit: &Permit<'_>, write: impl FnOnce() -> R) -> Result<R, Fenced> {
        self.admit(permit.token())?;
        Ok(write())
    }

    /// The greatest token let through so far.
    #[must_use]
    pub fn seen(&self) -> Option<FencingToken> {
        // ORDERING: Acquire: pairs with `admit`, whose writes before it are then visible.
        FencingToken::new(self.seen.load(Ordering::Acquire))
    }
}

impl Default for FenceGate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FenceGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceGate").field("seen", &self.seen()).finish()
    }
}

/// A fenced write did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum FencedCellError {
    /// The caller is late.
    #[error(transparent)]
    Fenced(#[from] Fenced),
    /// An earlier write panicked half way. [`FencedCell::recover`] makes the value good again.
    #[error("an earlier write panicked and left the value half written")]
    Poisoned,
    /// Others were at the value until the [time](FencedCell::try_write_for) was up.
    #[error("others were at the value until the time was up")]
    Busy,
}

/// A value that takes only writes with a current token: the greatest it has seen, or a greater one.
///
/// Writes run one at a time, under the cell's own lock, after the token was admitted; so a late
/// owner neither writes nor overlaps one who does.
///
/// # Blocking
///
/// Calls wait for a write or a read that is under way. A closure must not call its own cell: it
/// would wait for itself.
///
/// ```
/// use tenure::lease::{FencedCell, FencingToken};
///
/// let token = |n: u64| FencingToken::from_bytes(n.to_be_bytes()).expect("not zero");
/// let cell = FencedCell::new(String::new());
/// cell.write(token(2), |text| text.push_str("new"))?;
/// assert!(cell.write(token(1), |text| text.push_str("late")).is_err());
/// assert_eq!(cell.read(|text| text.clone())?, "new");
/// # Ok::<(), tenure::lease::FencedCellError>(())
/// ```
#[derive(Debug)]
pub struct FencedCell<T> {
    inside: AdaptiveMutex<Fencing<T>>,
}

#[derive(Debug)]
struct Fencing<T> {
    seen: u64,
    torn: bool,
    value: T,
}

impl<T> FencedCell<T> {
    /// A cell that has seen nobody.
    pub fn new(value: T) -> Self {
        Self { inside: AdaptiveMutex::new(Fencing { seen: 0, torn: false, value }) }
    }

    /// Runs `write` on this thread, under the cell's lock, if no greater token was here before. A
    /// [`Permit`] gives its token by [`Permit::token`].
    ///
    /// # Errors
    ///
    /// [`FencedCellError::Fenced`] and [`FencedCellError::Poisoned`]: `write` did not run.
    ///
    /// # Panics
    ///
    /// With `write`; the cell is poisoned then, as the value may be half written.
    pub fn write<R>(
        &self,
        token: FencingToken,
        write: impl FnOnce(&mut T) -> R,
    ) -> Result<R, FencedCellError> {
        self.inside.lock().write(token, write)
    }

    /// As [`write`](Self::write), for one who would rather not wait longer than `timeout` for the
    /// cell. Zero does not wait. The timeout is of real time, whatever clock the leases are on.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write), and [`FencedCellError::Busy`]: the time was up. Whether the token is
    /// late was not looked at, and it is not remembered.
    ///
    /// # Panics
    ///
    /// As [`write`](Self::write).
    ///
    /// # Blocking
    ///
    /// At most `timeout`, and for as long as `write` takes.
    pub fn try_write_for<R>(
        &self,
        timeout: Duration,
        token: FencingToken,
        write: impl FnOnce(&mut T) -> R,
    ) -> Result<R, FencedCellError> {
        let inside = if timeout.is_zero() {
            self.inside.try_lock()
        } else {
            self.inside.try_lock_for(timeout)
        };
        inside.ok_or(FencedCellError::Busy)?.write(token, write)
    }

    /// Runs `read` on this thread, under the cell's lock.
    ///
    /// # Errors
    ///
    /// [`FencedCellError::Poisoned`].
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> Result<R, FencedCellError> {
        let inside = self.inside.lock();
        if inside.torn { Err(FencedCellError::Poisoned) } else { Ok(read(&inside.value)) }
    }

    /// Replaces a value that may be half written. Gives it back.
    ///
    /// # Errors
    ///
    /// [`Fenced`]: the caller is late.
    pub fn recover(&self, token: FencingToken, value: T) -> Result<T, Fenced> {
        let mut inside = self.inside.lock();
        inside.admit(token)?;
        inside.torn = false;
        Ok(core::mem::replace(&mut inside.value, value))
    }

    /// The greatest token seen so far.
    #[must_use]
    pub fn seen(&self) -> Option<FencingToken> {
        FencingToken::new(self.inside.lock().seen)
    }
}

impl<T> Fencing<T> {
    fn write<R>(
        &mut self,
        token: FencingToken,
        write: impl FnOnce(&mut T) -> R,
    ) -> Result<R, FencedCellError> {
        self.admit(token)?;
        if self.torn {
            return Err(FencedCellError::Poisoned);
        }
        self.torn = true;
        let done = write(&mut self.value);
        self.torn = false;
        Ok(done)
    }

    fn admit(&mut self, token: FencingToken) -> Result<(), Fenced> {
        match FencingToken::new(self.seen) {
            Some(seen) if seen > token => Err(Fenced { token, seen }),
            _ => {
                self.seen = token.number();
                Ok(())
            }
        }
    }
}
