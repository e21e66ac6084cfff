//! Why an attempt failed.

use std::io;

use rustix::io::Errno;

/// Why an attempt failed. The message ends up in the file's history.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The system said no.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done, as in "cannot create temporary file".
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The source is not what it was when this attempt began.
    #[error("{0}")]
    Moved(&'static str),
    /// DST has something that may not be removed unasked.
    #[error("{0}")]
    InTheWay(&'static str),
    /// This attempt's lease is no longer current: another attempt took over, or the job is settled.
    #[error("fenced: this attempt was taken over")]
    Fenced,
    /// The run is ending.
    #[error("cancelled")]
    Cancelled,
    /// `--chaos` struck.
    #[error("chaos: made to fail")]
    Chaos,
}

/// Says what was being done when the system said no.
pub(crate) trait Doing<T> {
    /// Wraps the error with what was being done.
    fn doing(self, what: &'static str) -> Result<T, Failure>;
}

impl<T> Doing<T> for Result<T, Errno> {
    fn doing(self, doing: &'static str) -> Result<T, Failure> {
        self.map_err(|errno| Failure::Io { doing, source: errno.into() })
    }
}

impl<T> Doing<T> for io::Result<T> {
    fn doing(self, doing: &'static str) -> Result<T, Failure> {
        self.map_err(|source| Failure::Io { doing, source })
    }
}
