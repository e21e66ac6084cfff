//! What a caller asks for.

use core::time::Duration;
use std::borrow::Cow;

/// A name or a reason, for people: it appears in errors, listings and events, and decides nothing.
pub type Label = Cow<'static, str>;

/// A wish to hold a key: how long, and optionally who and why.
///
/// A plain [`Duration`] is a request without labels.
///
/// ```
/// use std::time::Duration;
/// use tenure::lease::{LeaseRequest, LeaseTable};
///
/// let table: LeaseTable<&str, u64> = LeaseTable::new();
/// let request = LeaseRequest::new(Duration::from_secs(5)).owner("worker 3").reason("nightly run");
/// let lease = table.try_acquire(&"account", request)?;
/// assert_eq!(table.list()[0].owner.as_deref(), Some("worker 3"));
/// # drop(lease);
/// # Ok::<(), tenure::lease::AcquireError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    pub(super) ttl: Duration,
    pub(super) note: Option<Box<Note>>,
}

/// The labels of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) owner: Option<Label>,
    pub(super) reason: Option<Label>,
    pub(super) request_id: Option<u128>,
}

impl LeaseRequest {
    /// A lease of `ttl` from the moment it is granted, at a resolution of a millisecond, rounded up.
    ///
    /// Leases of more than a second may be longer by up to the lag of the
    /// [coarse clock](crate::clock::Clock::coarse_lag) (20 ms on Linux); none is shorter. A ttl of
    /// zero is legal and, on a whole millisecond, over at once.
    #[must_use]
    pub const fn new(ttl: Duration) -> Self {
        Self { ttl, note: None }
    }

    /// Who asks. A label: two owners of the same name are two owners. Defaults to none.
    #[must_use]
    pub fn owner(mut self, owner: impl Into<Label>) -> Self {
        self.note().owner = Some(owner.into());
        self
    }

    /// Why. Defaults to none.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<Label>) -> Self {
        self.note().reason = Some(reason.into());
        self
    }

    /// Makes the request repeatable: while the grant it led to is current, asking again with the
    /// same id gives that same grant, with its token and its deadline, instead of `Held`. Choose
    /// ids at random. Defaults to none.
    #[must_use]
    pub fn request_id(mut self, id: u128) -> Self {
        self.note().request_id = Some(id);
        self
    }

    fn note(&mut self) -> &mut Note {
        self.note.get_or_insert_default()
    }
}

impl From<Duration> for LeaseRequest {
    fn from(ttl: Duration) -> Self {
        Self::new(ttl)
    }
}
