//! Why a call was refused. Each says what is true now and hands back what it was given.

use core::fmt;
use core::time::Duration;

use super::{FencingToken, Label};

/// A lease was not granted; nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// Somebody holds the key.
    #[error("held under token {token}, free in {retry_after:?} at the latest")]
    Held {
        /// When asking again can succeed, if the holder neither renews nor releases: at least a
        /// millisecond from now.
        retry_after: Duration,
        /// The holder's token.
        token: FencingToken,
        /// The holder's label, if it gave one.
        owner: Option<Label>,
    },
    /// The lease would end beyond the range of deadlines (8.7 years after the table was made).
    #[error("the lease would be too long: at most {max:?}")]
    TtlOutOfRange {
        /// The longest that can be asked for now.
        max: Duration,
    },
    /// The key is not in the table: it was removed, or never made.
    #[error("no such key")]
    NoSuchKey,
    /// The table was closed or dropped.
    #[error("the lease table is closed")]
    Closed,
    /// The session in which the lease was to be taken is over.
    #[error("the session is over")]
    SessionEnded,
    /// There is no greater token than those that the key had, or those that the table was told to start
    /// above: the key can never be granted again.
    #[error("the tokens are used up")]
    TokensUsedUp,
    /// The key had to move to fresh memory for one who waited, and the clone of its value panicked on
    /// the thread that granted it. Nothing changed.
    #[error("cloning the value panicked")]
    ValuePanicked,
}

/// A lease is not, or no longer, held: it never will be again under this token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// Its deadline has passed; so far nobody took over.
    #[error("the lease expired")]
    Expired,
    /// It was ended by `revoke`.
    #[error("the lease was revoked")]
    Revoked,
    /// A later grant was made on the key, perhaps after the key was removed and made again.
    #[error("superseded by the grant with token {by}")]
    Superseded {
        /// The latest grant that this call saw.
        by: FencingToken,
    },
    /// It was released by its token, elsewhere.
    #[error("the lease was released by its token")]
    Released,
    /// It was handed off by its token, elsewhere, and is not accepted yet.
    #[error("the lease was handed off")]
    HandedOff,
    /// Its session ended.
    #[error("the session of the lease ended")]
    SessionEnded,
    /// Its key was removed (and perhaps made again, with no grant yet), or the table closed.
    #[error("the key was removed")]
    Removed,
}

/// A lease was not renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// The lease is lost; acquire anew.
    #[error("not renewed: {0}")]
    Lost(#[from] Lost),
    /// It would end beyond the range of deadlines. It is held as before.
    #[error("the lease would be too long: at most {max:?}")]
    TtlOutOfRange {
        /// The longest that can be asked for now.
        max: Duration,
    },
    /// The lease belongs to a session, which alone renews it. It is held as before.
    #[error("the session of the lease renews it")]
    InSession,
    /// Not handed off: a guard with the same token published since this one read the value. It is
    /// held as before.
    #[error("the value changed under the same token")]
    VersionChanged,
    /// Not handed off: there is no greater token left for the other side. It is held as before.
    #[error("the tokens are used up")]
    TokensUsedUp,
}

/// Why a value was not published. The key's value is what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The lease is lost.
    #[error("{0}")]
    Lost(#[from] Lost),
    /// A guard with the same token published since this one read the value. The lease is still held.
    #[error("the value changed under the same token")]
    VersionChanged,
}

/// A commit was refused: the key's value is what it was, the draft is in here.
pub struct CommitError<V> {
    pub(super) draft: Option<V>,
    pub(super) why: Refusal,
}

impl<V> CommitError<V> {
    /// Why.
    #[must_use]
    pub const fn why(&self) -> Refusal {
        self.why
    }

    /// The draft that was not published; `None` if the guard was never written to.
    #[must_use]
    pub fn into_draft(self) -> Option<V> {
        self.draft
    }

    /// The draft, to look at.
    #[must_use]
    pub const fn draft(&self) -> Option<&V> {
        self.draft.as_ref()
    }
}

impl<V> fmt::Debug for CommitError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommitError").field("why", &self.why).finish_non_exhaustive()
    }
}

impl<V> fmt::Display for CommitError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "commit refused: {}", self.why)
    }
}

impl<V> std::error::Error for CommitError<V> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.why)
    }
}

/// A lease was not handed off; the guard is in here, as it was.
pub struct TransferError<G> {
    pub(super) guard: G,
    pub(super) why: RenewError,
}

impl<G> TransferError<G> {
    /// Why.
    #[must_use]
    pub const fn why(&self) -> RenewError {
        self.why
    }

    /// The guard, with its draft.
    #[must_use]
    pub fn into_guard(self) -> G {
        self.guard
    }
}

impl<G> fmt::Debug for TransferError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransferError").field("why", &self.why).finish_non_exhaustive()
    }
}

impl<G> fmt::Display for TransferError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not handed off: {}", self.why)
    }
}

impl<G> std::error::Error for TransferError<G> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.why)
    }
}

/// A handed-off lease was not accepted.
pub struct AcceptError<V> {
    pub(super) draft: Option<V>,
    pub(super) why: RenewError,
}

impl<V> AcceptError<V> {
    /// Why: the deadline for accepting had passed, the lease was revoked, or the ttl is out of range.
    #[must_use]
    pub const fn why(&self) -> RenewError {
        self.why
    }

    /// The draft that came with the hand-off, if there was one.
    #[must_use]
    pub fn into_draft(self) -> Option<V> {
        self.draft
    }
}

impl<V> fmt::Debug for AcceptError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcceptError").field("why", &self.why).finish_non_exhaustive()
    }
}

impl<V> fmt::Display for AcceptError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not accepted: {}", self.why)
    }
}

impl<V> std::error::Error for AcceptError<V> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.why)
    }
}

/// What became of a release. Releasing twice is harmless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Release {
    /// The key is free now.
    Released,
    /// This token had been released before, and nobody took the key since.
    AlreadyReleased,
    /// The token was lost before; the key is not this caller's to release.
    Lost(Lost),
}

/// What became of a revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum Revocation {
    /// The grant with that token is over.
    Revoked,
    /// That token is not current, so nothing was done.
    Stale {
        /// The token of whoever holds the key now, if anybody does.
        current: Option<FencingToken>,
    },
    /// The key is not in the table.
    NoSuchKey,
}

/// A key was not removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RemoveError {
    /// Somebody holds it.
    #[error("held under token {token}, free in {retry_after:?} at the latest")]
    Held {
        /// As in [`AcquireError::Held`].
        retry_after: Duration,
        /// The holder's token.
        token: FencingToken,
    },
    /// The key is not in the table.
    #[error("no such key")]
    NoSuchKey,
}

/// A key was not made; the key and the value are in here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InsertError<K, V> {
    /// The key is in the table already.
    #[error("the key exists")]
    Exists(K, V),
    /// The table was closed.
    #[error("the lease table is closed")]
    Closed(K, V),
    /// As [`AcquireError::TokensUsedUp`].
    #[error("the tokens are used up")]
    TokensUsedUp(K, V),
}

/// A token gave no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// The grant with that token is over.
    #[error("not resumed: {0}")]
    Lost(#[from] Lost),
    /// That token was never granted on this key.
    #[error("no such grant")]
    NoSuchGrant,
    /// The key is not in the table.
    #[error("no such key")]
    NoSuchKey,
}
