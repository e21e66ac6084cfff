//! Timers on the runtime's clock that run callbacks: for what stands on the runtime.
//!
//! The driver's own wheel holds jobs only. Who needs more gets [`Timers`], started at the first use, with a
//! thread of their own that sleeps until the next deadline.

use std::sync::Arc;

use crate::clock::Clock;
use crate::lock::{Unseen, UnseenGuard};
use crate::timer::{StartError, Timers};

/// Timers on a clock of whatever kind.
pub(crate) type Clockwork = Timers<Arc<dyn Clock>>;

/// The timers, once somebody wants some.
#[derive(Debug, Default)]
pub(crate) struct Wound(Unseen<Option<Arc<Clockwork>>>);

impl Wound {
    /// The timers; started if need be.
    pub(crate) fn timers(&self, clock: &Arc<dyn Clock>) -> Result<Arc<Clockwork>, StartError> {
        if let Some(timers) = &*self.slot() {
            return Ok(Arc::clone(timers));
        }
        // With no lock held: it asks the clock, which may be foreign, to tell it of its jumps. Of two who
        // come at once one's thread ends again.
        let mine = Arc::new(Timers::start(Arc::clone(clock))?);
        let timers = Arc::clone(self.slot().get_or_insert_with(|| Arc::clone(&mine)));
        Ok(timers)
    }

    fn slot(&self) -> UnseenGuard<'_, Option<Arc<Clockwork>>> {
        self.0.lock()
    }
}
