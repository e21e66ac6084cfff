//! The leases on jobs' keys, to look at.

use core::fmt;

use crossbeam_channel::Receiver;

use super::keys::Leases;
use super::options::JobKey;
use crate::lease::{FencingToken, Label, LeaseEvent, LeaseInfo, Peek, Revocation};

/// The leases that running attempts hold on their jobs' keys. From
/// [`Runtime::leases`](super::Runtime::leases).
///
/// A view: keys come and go with their jobs, and the runtime alone grants, releases and removes.
#[derive(Clone, Copy)]
pub struct JobLeases<'r>(&'r Leases);

impl<'r> JobLeases<'r> {
    pub(crate) fn new(leases: &'r Leases) -> Self {
        Self(leases)
    }

    /// Every key that is in use, and who has it.
    #[must_use]
    pub fn list(&self) -> Vec<LeaseInfo<JobKey>> {
        self.0.list()
    }

    /// One key's lease. `None`: no job uses the key.
    #[must_use]
    pub fn peek(&self, key: &JobKey) -> Option<Peek<()>> {
        self.0.peek(key)
    }

    /// How many keys are in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no key is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What happens to the leases from now on; `capacity` events are held.
    #[must_use]
    pub fn subscribe(&self, capacity: usize) -> Receiver<LeaseEvent<JobKey>> {
        self.0.subscribe(capacity)
    }

    /// Ends the lease with this token, if it is still the current one: its attempt is refused where
    /// tokens are checked. The attempt runs on and the job with it.
    pub fn revoke(
        &self,
        key: &JobKey,
        observed: FencingToken,
        reason: impl Into<Label>,
    ) -> Revocation {
        self.0.revoke(key, observed, reason)
    }
}

impl fmt::Debug for JobLeases<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.list()).finish()
    }
}
