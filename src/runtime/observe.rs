//! What stands around an attempt for those who watch: a measurement, a span. Nothing, without the features
//! `metrics` and `tracing`.

#[cfg(feature = "metrics")]
pub(crate) mod meter;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
#[cfg(feature = "tracing")]
pub(crate) mod spans;

use super::cell::{JobRef, Ran};
use super::worker::Local;

/// An attempt that is watched. [`end`](Self::end) it.
#[must_use]
pub(super) struct Watched<'a> {
    #[cfg(feature = "metrics")]
    measured: Option<meter::Measured<'a>>,
    #[cfg(feature = "tracing")]
    span: Option<spans::Entered>,
    marker: core::marker::PhantomData<&'a ()>,
}

impl<'a> Watched<'a> {
    /// The attempt is about to go into the closure.
    #[inline]
    pub(super) fn begin(local: &'a Local, job: &'a JobRef, epoch: u32, attempt: u32) -> Self {
        let _ = (local, job, epoch, attempt);
        Self {
            #[cfg(feature = "metrics")]
            measured: meter::Measured::begin(local, job),
            #[cfg(feature = "tracing")]
            span: spans::Entered::begin(job, epoch, attempt),
            marker: core::marker::PhantomData,
        }
    }

    /// It is out again.
    #[inline]
    pub(super) fn end(self, ran: &Ran) {
        let _ = ran;
        #[cfg(feature = "tracing")]
        if let Some(span) = self.span {
            span.end(ran);
        }
        #[cfg(feature = "metrics")]
        if let Some(measured) = self.measured {
            measured.end();
        }
    }
}
