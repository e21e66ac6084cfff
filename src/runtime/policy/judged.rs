//! What an attempt's error says about whoever it called: the job's own word on that.

use core::error::Error;
use core::fmt;
use std::sync::Arc;

use super::gate::Verdict;
use crate::breaker;
use crate::runtime::BoxError;
use crate::runtime::cell::contained;

type Judging = dyn Fn(&(dyn Error + Send + Sync + 'static)) -> breaker::Verdict + Send + Sync;

/// Says what an error comes to. Its drop is contained where the job's options are.
#[derive(Clone)]
pub(crate) struct Judge(Arc<Judging>);

impl Judge {
    pub(crate) fn new(
        judge: impl Fn(&(dyn Error + Send + Sync + 'static)) -> breaker::Verdict + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(judge))
    }

    /// Foreign code. One that panics has said nothing: then an error is a failure.
    pub(crate) fn ask(&self, error: &BoxError) -> Verdict {
        let mut said = breaker::Verdict::Failure;
        contained(|| said = (self.0)(&**error));
        match said {
            breaker::Verdict::Success => Verdict::Success,
            breaker::Verdict::Failure => Verdict::Failure,
            breaker::Verdict::Ignore => Verdict::Ignored,
        }
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Judge")
    }
}
