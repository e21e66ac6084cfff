//! The helm: which thread drives, and how another one takes over when it does not come back.
//!
//! The driver's state belongs to whoever has the token. The driver keeps it while it works and while
//! it sleeps, and puts it down for each call of foreign code. A second thread, the *sentinel*, watches
//! it lie there; if it lies too long, the sentinel takes it and drives on. The one that was held up
//! finds that out when its call returns: it becomes the sentinel, or ends if there is one.
//!
//! ```text
//! | token | meaning                                  | who has the state | who may leave it     |
//! |-------|------------------------------------------|-------------------|----------------------|
//! | HELD  | the driver works, or sleeps, or is gone  | the driver        | the driver           |
//! | OUT   | the driver is in foreign code            | nobody            | the driver, sentinel |
//!
//!          put_down — driver
//!       ◄───────────────────────┐
//!  OUT                          HELD
//!   │  take_back — driver       ▲
//!   └───────────────────────────┘
//!      take_over — sentinel: the driver's take_back fails
//! ```
//!
//! The word counts how often the token was put down or taken up, so that each is told from all
//! others: a token that lies there again, for another call, is not the one that was seen before.
//!
//! # The sentinel sleeps, too
//!
//! While the driver makes calls, the sentinel looks at the word once a [`PERIOD`], and takes over when
//! it lay OUT, unchanged, from one look to the next: after one period at the earliest, after two at the
//! latest. When it was HELD all that time, the sentinel goes to rest. So an
//! idle driver does not wake: `tests/runtime_cost.rs` counts no context switch.
//!
//! ```text
//! | post     | meaning                                                 | left by          |
//! |----------|---------------------------------------------------------|------------------|
//! | VACANT   | there is no sentinel; the driver starts one when needed | driver, returned |
//! | WATCHING | the sentinel looks once a period                        | sentinel, end    |
//! | RESTING  | it sleeps until a while after the driver's next plan    | both, end        |
//! | GONE     | it shall end                                            | nobody (final)   |
//!
//! driver: PutDown, OutFence, ReadPost           sentinel: WriteResting, RestFence, ReadToken
//! ```
//!
//! The two fences have one order. If OutFence comes first, ReadToken sees that the token was put down,
//! and the sentinel goes on watching. If RestFence comes first, ReadPost sees RESTING, and the driver
//! calls it, unless its rest is over by now anyway: so a timer that was planned for costs no call.
//!
//! A thread that comes back looks whether the post is VACANT after it was counted out; a driver that
//! made it VACANT counts after that (and the fence): a thread too many is not kept off, and the last
//! one that may watch does not go.
//!
//! ```text
//! | edge                 | Release in | Acquire in               | makes visible                   |
//! |----------------------|------------|--------------------------|---------------------------------|
//! | HELD → OUT → HELD    | `put_down` | `take_over`, `take_back` | the driver's state              |
//! | WATCHING → RESTING   | RestFence  | OutFence                 | until when it rests             |
//! | the last one is gone | `leave`    | `leave`                  | what all did in foreign code    |
//! ```

use core::time::Duration;

use crate::clock::Timestamp;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::{Wait, park};

/// How long a call may take before the sentinel takes over, at the least; at most twice that.
pub(crate) const PERIOD: Duration = Duration::from_millis(20);
/// Threads that may be held up in foreign code at a time. The one after these is waited for.
pub(crate) const MOST_HELD_UP: u32 = 16;

const KIND: u64 = 0b1;
const HELD: u64 = 0;
const OUT: u64 = 1;
/// One more time that the token was put down or taken up. 63 bits: never used up.
const ONE: u64 = 2;

const VACANT: u32 = 0;
const WATCHING: u32 = 1;
const RESTING: u32 = 2;
const GONE: u32 = 3;

/// What the token says, and for the how-manieth time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Seen {
    pub(crate) fn is_out(self) -> bool {
        self.0 & KIND == OUT
    }
}

/// The token lies there; only [`Helm::take_back`] is for its owner.
#[derive(Debug)]
#[must_use]
pub(crate) struct PutDown(u64);

/// What the driver has to do before it calls foreign code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Call {
    /// Nothing: somebody watches, or will in time.
    Nobody,
    /// Wake the sentinel: [`Helm::call`].
    Sentinel,
    /// There is none: start one, if [`Helm::fill`] says so.
    Another,
}

/// See the [file's docs](self).
#[derive(Debug)]
pub(crate) struct Helm {
    token: AtomicU64,
    post: AtomicU32,
    /// Until when the sentinel rests by itself, in real time.
    rest_until: AtomicU64,
    /// When the driver means to wake up.
    plan: AtomicU64,
    /// Threads that drive, or are held up in foreign code, or are about to drive.
    aboard: AtomicU32,
    /// By how much the sentinel woke too late, in nanoseconds; see [`Helm::take_lag`].
    lag: AtomicU64,
}

impl Helm {
    /// The token is held by whoever starts to drive.
    pub(crate) fn new() -> Self {
        Self {
            token: AtomicU64::new(HELD),
            post: AtomicU32::new(VACANT),
            rest_until: AtomicU64::new(0),
            plan: AtomicU64::new(u64::MAX),
            aboard: AtomicU32::new(1),
            lag: AtomicU64::new(0),
        }
    }

    // --- the driver -----------------------------------------------------------------------------

    /// Driver only: lays the token down, to call foreign code.
    pub(crate) fn put_down(&self) -> PutDown {
        // ORDERING: Relaxed: while it is held, its holder alone writes it.
        let out = (self.token.load(Ordering::Relaxed) & !KIND).wrapping_add(ONE) | OUT;
        // ORDERING: Release: the driver's state; pairs with the Acquire in `take_over` and
        // `take_back`.
        self.token.store(out, Ordering::Release);
        PutDown(out)
    }

    /// Driver only, after `put_down`: whom to call first. `now` in real time, which the sentinel rests
    /// by: the driver's clock may have been moved.
    pub(crate) fn calls_for(&self, now: impl FnOnce() -> Timestamp) -> Call {
        // ORDERING: SeqCst fence: OutFence, pairs with RestFence in `rest`, and with the fence in
        // `leave`.
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed: ordered by the fences. If RestFence comes first, all that is before it is
        // visible here, until when included; if not, the sentinel sees the token, and does not rest.
        match self.post.load(Ordering::Relaxed) {
            WATCHING | GONE => Call::Nobody,
            VACANT => Call::Another,
            // ORDERING: Relaxed: as above.
            _ if self.rest_until.load(Ordering::Relaxed) <= now().as_nanos() => Call::Nobody,
            _ => Call::Sentinel,
        }
    }

    /// Driver only: ends the sentinel's rest.
    #[cold]
    pub(crate) fn call(&self) {
        if self.turn(RESTING, WATCHING) {
            park::wake_one(&raw const self.post);
        }
    }

    /// Takes the token back. False: somebody else drives.
    #[must_use]
    pub(crate) fn take_back(&self, out: PutDown) -> bool {
        self.take(out.0)
    }

    /// Driver only: when it means to wake up.
    pub(crate) fn plan(&self, at: Timestamp) {
        // ORDERING: Relaxed: a hint. A sentinel that rests by an old one is called.
        self.plan.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// Driver only: how much later than it meant to the sentinel woke since the last time. It watches
    /// while the driver is awake: so that is how long the machine stood still meanwhile.
    pub(crate) fn take_lag(&self) -> Duration {
        // ORDERING: Relaxed: a number; a lag that comes in later is taken later.
        if self.lag.load(Ordering::Relaxed) == 0 {
            return Duration::ZERO;
        }
        // ORDERING: Relaxed: as above.
        Duration::from_nanos(self.lag.swap(0, Ordering::Relaxed))
    }

    /// Driver only: nothing is left to drive. The token stays with it, so nobody gets it after this.
    pub(crate) fn end(&self) {
        // ORDERING: Relaxed: the sentinel only ends.
        self.post.swap(GONE, Ordering::Relaxed);
        park::wake_all(&raw const self.post);
    }

    // --- the sentinel ---------------------------------------------------------------------------

    /// What the token says now.
    pub(crate) fn look(&self) -> Seen {
        // ORDERING: Relaxed: `take_over` acquires.
        Seen(self.token.load(Ordering::Relaxed))
    }

    /// Sentinel only: takes the token that lay there for too long. True: the caller drives, counted
    /// aboard, and the post is vacant. False, and whether the caller has to
    /// do what the last one does: see [`Helm::leave`].
    pub(crate) fn take_over(&self, seen: Seen) -> Result<(), bool> {
        // Before it is taken: else the driver could come back, leave, and be the last.
        // ORDERING: Relaxed: only the leaving is ordered.
        self.aboard.fetch_add(1, Ordering::Relaxed);
        if !self.take(seen.0) {
            return Err(self.leave());
        }
        // ORDERING: Relaxed: the caller was the sentinel, and holds the token, so nobody else turns a
        // post that it is on. Its own fences are in `calls_for`.
        self.post.store(VACANT, Ordering::Relaxed);
        Ok(())
    }

    /// Sentinel only: waits for one period. False: for less.
    pub(crate) fn watch(&self) -> bool {
        matches!(park::wait(&self.post, WATCHING, Some(PERIOD)), Wait::TimedOut)
    }

    /// Sentinel only: whether it shall end.
    pub(crate) fn is_over(&self) -> bool {
        // ORDERING: Relaxed: nothing is handed over.
        self.post.load(Ordering::Relaxed) == GONE
    }

    /// Sentinel only: it overslept by this.
    pub(crate) fn add_lag(&self, lag: Duration) {
        let lag = crate::clock::nanos_saturating(lag);
        // ORDERING: Relaxed: see `take_lag`.
        self.lag.fetch_add(lag, Ordering::Relaxed);
    }

    /// When the driver means to wake up.
    pub(crate) fn planned(&self) -> Timestamp {
        // ORDERING: Relaxed: see `plan`.
        Timestamp::from_nanos(self.plan.load(Ordering::Relaxed))
    }

    /// Sentinel only: it means to rest, at most until `until` in real time, for it has `seen` nothing to
    /// watch.
    /// False: there is something by now.
    #[must_use]
    pub(crate) fn rest(&self, seen: Seen, until: Timestamp) -> bool {
        // ORDERING: Relaxed: before RestFence.
        self.rest_until.store(until.as_nanos(), Ordering::Relaxed);
        // ORDERING: Relaxed: before RestFence. It fails where all is over.
        let resting =
            self.post.compare_exchange(WATCHING, RESTING, Ordering::Relaxed, Ordering::Relaxed);
        // ORDERING: SeqCst fence: RestFence, pairs with OutFence in `calls_for`.
        fence(Ordering::SeqCst);
        if resting.is_ok() && self.look() == seen {
            return true;
        }
        self.turn(RESTING, WATCHING);
        false
    }

    /// Sentinel only, after `rest`: sleeps until called, or for at most `most`. Watching after that.
    pub(crate) fn sleep(&self, most: Option<Duration>) {
        let _ = park::wait(&self.post, RESTING, most);
        self.wake();
    }

    /// Sentinel only: its rest is over.
    pub(crate) fn wake(&self) {
        self.turn(RESTING, WATCHING);
    }

    // --- whoever comes and goes -----------------------------------------------------------------

    /// A thread that was aboard goes: true if it was the last one, and nobody will drive any more.
    #[must_use]
    pub(crate) fn leave(&self) -> bool {
        // ORDERING: AcqRel: Release, this one is through with its foreign code; Acquire, in the last
        // one, so are all others.
        let last = self.aboard.fetch_sub(1, Ordering::AcqRel) == 1;
        // ORDERING: SeqCst fence: pairs with the one in `calls_for`: a driver that finds the post
        // VACANT sees us gone, or we see it VACANT in `fill`.
        fence(Ordering::SeqCst);
        last
    }

    /// Whether a new thread may be started to watch: fewer than the most are held up.
    pub(crate) fn has_room(&self) -> bool {
        // ORDERING: Relaxed: ordered by the fences in `calls_for` and `leave`.
        self.aboard.load(Ordering::Relaxed) <= MOST_HELD_UP
    }

    /// How many threads are held up, about.
    pub(crate) fn held_up(&self) -> u32 {
        // ORDERING: Relaxed: a number of about now.
        self.aboard.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Takes the vacant post, for the caller or for a thread that it starts.
    #[must_use]
    pub(crate) fn fill(&self) -> bool {
        self.turn(VACANT, WATCHING)
    }

    /// The thread for the post did not start.
    pub(crate) fn vacate(&self) {
        self.turn(WATCHING, VACANT);
    }

    /// So many more are held up.
    #[cfg(any(tenure_loom, tenure_shuttle))]
    pub(crate) fn crowd(&self, more: u32) {
        // ORDERING: Relaxed: before the model's threads.
        self.aboard.fetch_add(more, Ordering::Relaxed);
    }

    // --------------------------------------------------------------------------------------------

    fn take(&self, out: u64) -> bool {
        let held = (out & !KIND).wrapping_add(ONE) | HELD;
        // ORDERING: Acquire: the state; pairs with the Release in `put_down`. Relaxed where it fails:
        // nothing is taken.
        self.token.compare_exchange(out, held, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn turn(&self, from: u32, to: u32) -> bool {
        // ORDERING: Relaxed: only who is on the post; what has to be seen is fenced or acquired.
        self.post.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}
