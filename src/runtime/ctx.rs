//! What a running attempt knows about itself.

use core::fmt;
use core::ptr::NonNull;

use super::cell::Header;
use super::error::Fenced;
use super::options::{JobId, JobKey};
use super::policy::Turn;
use crate::clock::Timestamp;
use crate::lease::{FencingToken, Permit};

/// Handed to the closure: which attempt it is, and whether it still counts.
///
/// An attempt that has lost its lease (it ran out of time) may go on running, a thread cannot be
/// killed; but what it returns is dropped. Before each write that others can see, ask
/// [`check`](Self::check), or hand [`token`](Self::token) to the resource.
///
/// ```
/// use std::time::Duration;
/// use tenure::Runtime;
/// use tenure::lease::FencedCell;
/// use tenure::runtime::BoxError;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().workers(1).attempt_timeout(Duration::from_secs(5)).build()?;
/// let total = std::sync::Arc::new(FencedCell::new(0));
/// let to = std::sync::Arc::clone(&total);
/// let job = runtime.job(move |ctx| -> Result<u64, BoxError> {
///     let mut sum = 0;
///     for n in 0..1_000 {
///         sum += n;
///         ctx.heartbeat()?; // Each one gives it another five seconds.
///     }
///     // Refused if another attempt has begun by now: that one's sum counts.
///     to.write(ctx.token(), |total| *total = sum)?;
///     Ok(sum)
/// });
/// assert_eq!(job.key("total").submit()?.get()?, 499_500);
/// # Ok(())
/// # }
/// ```
pub struct JobCtx {
    job: NonNull<Header>,
    pub(super) epoch: u32,
    attempt: u32,
    second: bool,
    token: FencingToken,
}

// SAFETY: it reads the header only (rules 1, 5 and 6 of the cell), which any thread may.
unsafe impl Send for JobCtx {}
// SAFETY: as above.
unsafe impl Sync for JobCtx {}

impl JobCtx {
    /// For the thread that runs this attempt.
    ///
    /// # Safety
    /// The job outlives the context.
    pub(crate) unsafe fn new(
        job: NonNull<Header>,
        turn: Turn,
        attempt: u32,
        token: FencingToken,
    ) -> Self {
        Self { job, epoch: turn.epoch, attempt, second: turn.second, token }
    }

    pub(super) fn turn(&self) -> Turn {
        Turn { epoch: self.epoch, second: self.second }
    }

    pub(super) fn job(&self) -> NonNull<Header> {
        self.job
    }

    fn header(&self) -> &Header {
        // SAFETY: `new` asks that the job outlive us.
        unsafe { self.job.as_ref() }
    }

    /// The job.
    #[must_use]
    pub fn id(&self) -> JobId {
        JobId(self.header().id)
    }

    /// The job's name, if it was given one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.header().options.as_ref()?.name.as_deref()
    }

    /// The job's key, if it has one.
    #[must_use]
    pub fn key(&self) -> Option<&JobKey> {
        Some(&self.header().options.as_ref()?.serial.as_ref()?.key)
    }

    /// The dead job that this one is a replay of: see
    /// [`DeadLetters::replay`](super::DeadLetters::replay).
    #[must_use]
    pub fn replay_of(&self) -> Option<JobId> {
        Some(self.header().options.as_ref()?.origin?.letter)
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether this attempt was started beside another one of the same number, because that one takes
    /// long: see [`Job::hedge_after`](super::Job::hedge_after).
    #[must_use]
    pub fn is_hedge(&self) -> bool {
        self.second
    }

    /// When the job's time is up, if it has a [deadline](super::Job::deadline): no further attempt begins
    /// from then on. This one may go on.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        self.header().options.as_ref()?.deadline
    }

    /// This attempt's token. Of two attempts of one job, or of two jobs with one key, the later one
    /// has the greater token; a resource that refuses tokens smaller than the greatest it has seen
    /// is safe from late writes. Tokens of jobs with different keys, or without, do not compare.
    #[must_use]
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// Shows that the attempt is alive: it may run for another attempt timeout. Call it at least
    /// once in each such period; a silent attempt is noticed one to two periods after its last
    /// heartbeat. Costs one load or one exchange, and reads no clock.
    ///
    /// # Errors
    /// [`Fenced`] if the attempt has lost its lease: stop, nothing that it does counts any more.
    pub fn heartbeat(&self) -> Result<(), Fenced> {
        if self.header().state.heartbeat(self.epoch) { Ok(()) } else { Err(self.fenced()) }
    }

    /// The same, by a look at the word where it has been called since the driver looked: as if it had been
    /// called a moment earlier. False: the lease is lost.
    pub(crate) fn show_life(&self) -> bool {
        self.header().state.seems_alive(self.epoch) || self.heartbeat().is_ok()
    }

    /// Whether the attempt should stop: somebody cancelled the job, or the lease is lost.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        let word = self.header().state.peek();
        word.cancel_requested() || !self.header().state.is_current(self.epoch)
    }

    /// Whether this is the job's current attempt. It may stop being so right after the answer; see
    /// [`check`](Self::check).
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.header().state.is_current(self.epoch)
    }

    /// A proof that the attempt was current when asked, to stand next to each write.
    ///
    /// The proof cannot stop time. A [`FenceGate`](crate::lease::FenceGate) takes it and refuses a late
    /// one; a [`FencedCell`](crate::lease::FencedCell) or a resource outside has to check the
    /// [`token`](Permit::token).
    ///
    /// # Errors
    /// [`Fenced`] if the attempt has lost its lease.
    pub fn check(&self) -> Result<Permit<'_>, Fenced> {
        if self.is_current() { Ok(Permit::new(self.token)) } else { Err(self.fenced()) }
    }

    fn fenced(&self) -> Fenced {
        Fenced { attempt: self.attempt }
    }
}

impl fmt::Debug for JobCtx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobCtx")
            .field("id", &self.id())
            .field("attempt", &self.attempt)
            .field("token", &self.token)
            .finish()
    }
}
