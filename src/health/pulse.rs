//! What a beater and its judge share: when it beat last, and whether it may go on.
//!
//! A beat is one store, and a look at the standing. A judge that finds a silence too long *condemns* first,
//! then looks again whether there was a beat meanwhile, and only then is it final.
//!
//! ```text
//! beater: WriteBeat, BeatFence, ReadStanding          judge: WriteCondemned, JudgeFence, ReadBeat
//! ```
//!
//! The two fences have one order. If BeatFence comes first, ReadBeat sees the beat, and the judge takes it
//! back. If JudgeFence comes first, ReadStanding sees CONDEMNED, and who of the two moves it next decides.
//! So a beat that was answered with yes is never followed by a death that did not count it.
//!
//! BeatFence is the light side of an asymmetric fence, which on Linux is no instruction of the beater's;
//! JudgeFence is the heavy one, once a death. Where the system has none, a beat that comes at the very moment
//! of the verdict may be answered with yes for the last time.
//!
//! ```text
//!            condemn — judge                 confirm — judge
//!  IN ──────────────────────► CONDEMNED ───────────────────────► OUT
//!   ▲   plead — beater            │
//!   └───── spare — judge ─────────┘
//! ```
//!
//! | standing | meaning | who may leave it |
//! |---|---|---|
//! | IN | it is expected to beat | judge |
//! | CONDEMNED | silent for too long; the judge looks once more | both |
//! | OUT | given up | nobody (final) |
//!
//! No ordering hands anything over: all that is shared is the two words.

use crate::clock::Timestamp;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::barrier;

const IN: u32 = 0;
const CONDEMNED: u32 = 1;
const OUT: u32 = 2;

/// See the [file's docs](self).
#[derive(Debug)]
pub(crate) struct Pulse {
    last: AtomicU64,
    standing: AtomicU32,
}

impl Pulse {
    /// It begins with a beat.
    pub(crate) fn new(at: Timestamp) -> Self {
        Self { last: AtomicU64::new(at.as_nanos()), standing: AtomicU32::new(IN) }
    }

    /// Beater: a sign of life. False: it was given up.
    #[inline]
    pub(crate) fn beat(&self, at: Timestamp) -> bool {
        // ORDERING: Relaxed: WriteBeat, ordered by the fence.
        self.last.store(at.as_nanos(), Ordering::Relaxed);
        // BeatFence: the light side; `confirm` has the heavy one.
        barrier::light();
        // ORDERING: Relaxed: ReadStanding, ordered by the fence.
        self.standing.load(Ordering::Relaxed) == IN || self.plead()
    }

    /// Beater, who has beaten and is not IN. True: it is again.
    #[cold]
    fn plead(&self) -> bool {
        // ORDERING: Relaxed: only who moves it matters.
        match self.standing.compare_exchange(CONDEMNED, IN, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(seen) => seen == IN,
        }
    }

    /// When it beat last.
    pub(crate) fn last(&self) -> Timestamp {
        // ORDERING: Relaxed: old news are looked at again in `condemn`.
        Timestamp::from_nanos(self.last.load(Ordering::Relaxed))
    }

    /// Whether it was given up.
    pub(crate) fn is_out(&self) -> bool {
        // ORDERING: Relaxed: OUT is final, and hands nothing over.
        self.standing.load(Ordering::Relaxed) == OUT
    }

    /// Judge, one at a time: it has been silent since `last` for too long. True: it is out.
    pub(crate) fn condemn(&self, last: Timestamp) -> bool {
        // ORDERING: Relaxed: WriteCondemned, ordered by the fence. It is IN: others only move it there.
        self.standing.store(CONDEMNED, Ordering::Relaxed);
        // JudgeFence: the heavy side of the light one in `beat`. Where it does not happen, see above.
        let _ = barrier::heavy();
        // ORDERING: Relaxed: ReadBeat, ordered by the fence.
        let next = if self.last.load(Ordering::Relaxed) == last.as_nanos() { OUT } else { IN };
        // ORDERING: Relaxed: only who moves it matters.
        self.standing
            .compare_exchange(CONDEMNED, next, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok_and(|_| next == OUT)
    }
}
