//! Leases: who owns this key, until when, and what happens to the one who is late?
//!
//! A lease is a lock that expires. Its owner works on a private *draft* of the key's value; the draft
//! becomes the value only by a commit, and a commit counts only while the lease is held. Each grant
//! has a [`FencingToken`], greater than all before it, so that everybody can tell a late owner from the
//! current one.
//!
//! # What holds, with and without a fence
//!
//! - **The value in the table** needs no fence. A commit compares the token, the deadline and the
//!   clock in one step: a late owner's commit is refused, and its draft comes back in the error.
//! - **A resource in this process that checks tokens**, a [`FencedCell`], is as safe: a late owner
//!   neither writes nor overlaps one who does.
//! - **A resource outside that checks tokens** (a store that compares the token with each write) keeps
//!   late owners out, once somebody later has written. That is what tokens are for.
//! - **A resource that checks nothing** can be written by a late owner, in spite of every lease in the
//!   world: the owner looks, is fine, is paused (by the scheduler, a debugger, a slow disk), and writes
//!   when it is no longer the owner. [`Lease::check`] and a [`FenceGate`] before the resource make the
//!   gap between look and write small, and order writers of this process; they can not close the gap
//!   for a write that is already on its way.
//!
//! # Example: the late worker
//!
//! ```
//! use std::time::Duration;
//! use tenure::clock::ManualClock;
//! use tenure::lease::{LeaseRequest, LeaseTable, Lost, Refusal};
//!
//! let ms = Duration::from_millis;
//! let clock = ManualClock::new();
//! let table: LeaseTable<&str, String, _> = LeaseTable::with_clock(clock.clone());
//! let request = || LeaseRequest::new(ms(500)).owner("worker");
//!
//! // A worker that takes 300 ms of its 500 ms commits.
//! let mut quick = table.try_acquire(&"report", request())?;
//! clock.advance(ms(300));
//! quick.push_str("first");
//! quick.commit()?;
//!
//! // One that takes 600 ms is refused; what its successor wrote stands. That the successor has the
//! // same name makes no difference: the token decides.
//! let mut slow = table.try_acquire(&"report", request())?;
//! slow.push_str(", slow");
//! clock.advance(ms(600));
//! let mut successor = table.try_acquire(&"report", request())?;
//! successor.push_str(", second");
//! let by = successor.token();
//! successor.commit()?;
//!
//! let refused = slow.commit().unwrap_err();
//! assert_eq!(refused.why(), Refusal::Lost(Lost::Superseded { by }));
//! assert_eq!(refused.into_draft().as_deref(), Some("first, slow"));
//! assert_eq!(table.peek(&"report").ok_or("gone")?.value, "first, second");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Moving a task from A to B
//!
//! A worker that has to stop hands its task, half-done work included, to another. There is no moment
//! with two owners and none in which the task can be forgotten:
//!
//! 1. A calls [`transfer`](Lease::transfer). In one step A's token is fenced and B's exists. A draft
//!    that was not published goes along.
//! 2. B calls [`accept`](Handoff::accept) before the hand-off's own deadline, and is the owner under
//!    the new token.
//! 3. If B does not (it crashed, it was never told), the key is free after that deadline, with its last
//!    published value. If the [`Handoff`] is dropped, at once.
//!
//! What A left at outside resources can come late all the same; B's first write with its token fences
//! it off.
//!
//! ```
//! use std::time::Duration;
//! use tenure::lease::LeaseTable;
//!
//! let table: LeaseTable<&str, Vec<u32>> = LeaseTable::new();
//! let mut a = table.try_acquire(&"task", Duration::from_secs(5))?;
//! a.push(1);
//! a.checkpoint()?; // safe, whatever happens next
//! a.push(2);       // only in the draft
//! let (old, handoff) = (a.token(), a.transfer("worker b", Duration::from_secs(1))?);
//!
//! let b = std::thread::spawn(move || handoff.accept(Duration::from_secs(5)));
//! let mut b = b.join().map_err(|_| "b panicked")??;
//! assert!(b.token() > old);
//! b.push(3);
//! b.commit()?;
//! assert_eq!(table.peek(&"task").ok_or("gone")?.value, [1, 2, 3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Waiting, sessions, heartbeats
//!
//! - [`acquire`](LeaseHandle::acquire), [`acquire_timeout`](LeaseHandle::acquire_timeout) and
//!   [`acquire_async`](LeaseHandle::acquire_async) stand in line: whoever ends a term grants the key to
//!   the first of them. They burn no processor.
//! - A [`Session`] is one deadline for many leases: renewing it is one exchange, however many.
//! - A [`Heartbeat`] renews on a thread of its own, while the holder makes progress, and no longer than
//!   a ceiling.
//! - [`lost`](Lease::lost) is an eventual that completes when the lease is over.
//!
//! A table has a thread, the *keeper*, from the first call that needs somebody to look at a deadline:
//! one that waits for a held key, or `lost`. Safety does not rest on it: a late owner is refused by
//! its own call, whether or not anybody noticed before.
//!
//! # What each call promises
//!
//! - **Order.** Every grant on a key (acquisition, takeover, hand-off) has a greater token than every
//!   earlier one, also after the key was removed and made again.
//! - **Exclusive publication.** A commit takes effect only if no greater token was granted before it.
//! - **Time.** Commit and renewal are refused if the clock, read inside the call, is at or past the
//!   deadline. The owner may act while now < deadline; others may take over when now > deadline. At
//!   the deadline itself, one tick, it is nobody's.
//! - **Helping.** A call that reports a lease expired, lost or free has first made it so.
//! - **No resurrection.** A renewal after the deadline fails, even if nobody took over.
//! - **Monotone deadline.** A renewal never shortens.
//! - **Release** needs the token, may be repeated, and says what happened.
//! - **Sticky loss.** A guard that said lost never says valid again.
//! - **Revert.** The draft is private; until it is committed nobody sees it, and discarding it costs
//!   nothing. Audit hooks run when everything is settled.
//! - **Identity.** The token is the identity. Names are labels.
//!
//! # Units and clocks
//!
//! Deadlines are whole milliseconds since the table was made, rounded up. A lease of more than a
//! second may be longer by up to the lag of the coarse clock (20 ms on Linux); none is shorter. All
//! comparisons give the answer of the precise clock, but read it only near the deadline.
//!
//! A hypervisor can hold up the processor that ticks, so that the coarse clock lags more than it says.
//! That makes nobody believe in a lease that another may have: holders and contenders are sent to the
//! precise clock by the same coarse one, which never goes back, and what decides in the end is an
//! exchange of the word. It makes contenders wait longer, and a lease of more than a second end earlier
//! by what the lag exceeds its bound.
//!
//! Within one process everybody reads the same clock, so a pause of the whole process (a suspended
//! machine, a debugger, `SIGSTOP`) makes nobody late who was not: owner and contenders stand still
//! together. On Linux the monotonic clock does not count the time of a suspended machine, but it does
//! count a debugger's pause: leases expire during it, and the owner finds out at its next call. Only
//! outside resources see the pause from outside; they need the token.
//!
//! # The word
//!
//! The whole state of a key is one 64-bit word: `epoch (23) | state (2) | index (1) | tick (38)`. A
//! grant adds one to the epoch; token = the slot's base + epoch. `index` names the one of the slot's
//! two entries that holds the current value; it is the low bit of the value's version.
//!
//! | state   | meaning                                   | tick            | who may leave it |
//! |---------|-------------------------------------------|-----------------|------------------|
//! | Free    | nobody holds the key; epoch 0: nobody ever did, since it was made | how the last term ended; 0: *clean*, by its only guard | acquire, remove |
//! | Held    | the grant of this epoch holds it          | the deadline    | its guard while now < tick; anybody when now > tick; revoke |
//! | Pending | handed off to the grant of this epoch     | accept before   | as Held          |
//! | Gone    | final: ask the index                      | –               | nobody           |
//!
//! ```text
//!            acquire: epoch + 1               transfer: epoch + 1
//!   ┌─────┐ ───────────────────► ┌────────┐ ─────────────────────► ┌─────────┐
//!   │Free │                      │  Held  │                        │ Pending │
//!   └─────┘ ◄─────────────────── └────────┘ ◄───────────────────── └─────────┘
//!      │     release, commit,     │   ▲ │         accept              │
//!      │     expiry, revoke       │   └─┘ renew, checkpoint           │ release, expiry,
//!      │                          │                                   ▼ revoke → Free
//!      │ acquire when not clean or the last epoch │ publish elsewhere
//!      ▼          remove                          ▼
//!   ┌──────────────────────────────────────────────┐
//!   │ Gone: under the shard's lock, with its       │
//!   │ successor in the index, or with none         │
//!   └──────────────────────────────────────────────┘
//! ```
//!
//! Every transition is one compare-and-exchange of the whole word; a failed one looks at the word *and
//! the clock* again. No serial arithmetic: ticks and epochs never wrap. A deadline beyond the range
//! (8.7 years) is an error; at the last epoch the key moves to a fresh slot, whose base is the last
//! token; a key whose tokens would pass 2⁶⁴ is granted no more, which is an error too.
//!
//! # The value: why there are two entries, and why a slot is left behind
//!
//! The guard of the running term owns the *spare* entry. It writes its draft there and names it
//! current in the same exchange that keeps or releases the lease. So an acquisition, a commit and a
//! release are two exchanges of the word, and one read-modify-write of the pins to see that no reader
//! is still at the spare entry: nothing is allocated, nothing is locked.
//!
//! A late guard may still write to its spare, and read its current entry, at any later time. So a term
//! that ended in any other way than by its own guard leaves the word *not clean*, and the next grant is
//! made in a fresh slot, with a copy of the value. Takeovers are rare; they cost an allocation and a
//! short lock of the key's shard, and in return the common path needs no reference counts at all.
//! Moving also serves when the epochs are used up, when a reader is still at the spare entry (it may be
//! cloning for as long as it likes: nobody waits for it), and when two guards share a token.
//!
//! Two words, (epoch, deadline) and a value pointer, would not do: a renewal between a contender's read
//! of the deadline and its exchange of the epoch gets a *valid* lease stolen. What would do, and what
//! the exchanges of an acquisition and a commit cost (medians of five interleaved runs of 20,000,000 on
//! two cores of an AMD EPYC guest, one thread, no clock, no value):
//!
//! | layout | exchanges | ns |
//! |---|---|---|
//! | 64 bits, without a value | two | 11.6 |
//! | **64 bits, an index bit, two entries with pins** | two, and one read-modify-write of the pins | 15.4 |
//! | 128 bits (`cmpxchg16b`) that name a value in an arena | two, on a word read in halves | 20.8 |
//! | the same, on a word read whole | two, and a third to read | 26.7 |
//! | 64 bits and a *committing* bit around a pointer | three, and while a committer is preempted its key stands still | – |
//!
//! So every platform has the same layout and no fallback is needed: 64-bit exchanges are lock-free
//! wherever the crate builds, readers are never blocked, and the model checker sees the real word (it
//! has no 128-bit atomics, so a model of that one would be of a stand-in).
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | publish → read | `swap_if` of a commit | `load` in `pin` | the entry that the word names |
//! | release → acquire | `swap_if` of the release | `swap_if` of the grant | the last owner's use of both entries, and its plain data elsewhere |
//! | read → write | `Pinned::drop` | `Slot::spare` | that the reader is done |
//! | displace → look again | `Slot::spare` | `fetch_add` in `pin` | that the entry is no longer current |
//! | use → end of the memory | `SlotRef::drop` | the fence of the last owner | everything about the slot |
//! | wait → release | `touch`, after the annex's flag was set | `swap_if` of the release | that somebody waits |
//!
//! Invariants: **I1** `Gone` is never left. **I2** The current entry is never written. **I3** A term
//! starts in place only from a clean word. **I4** A word goes `Gone` only with its shard locked, and by
//! the time the lock is released the index names the successor or nothing. **I5** In one slot no word
//! is seen twice but for pairs of checkpoints, which a pin of the current entry tells apart. **I6** The
//! index is the low bit of the current value's version; the slot's one `version` is that, or one more.
//! **I7** Epoch 0 is no grant's, and base + epoch never passes 2⁶⁴ - 1.
//!
//! # Measured
//!
#![doc = include_str!("measured.md")]

mod annex;
mod core;
mod error;
mod event;
mod fence;
mod guard;
mod handle;
mod handoff;
mod heartbeat;
mod index;
mod keeper;
mod request;
mod session;
mod slot;
mod table;
mod term;
mod ticks;
mod token;
mod waiting;
mod watch;
mod word;

pub use error::{
    AcceptError, AcquireError, CommitError, InsertError, Lost, Refusal, Release, RemoveError,
    RenewError, ResumeError, Revocation, TransferError,
};
pub use event::{LeaseEvent, LeaseEventKind};
pub use fence::{FenceGate, Fenced, FencedCell, FencedCellError, Permit};
pub use guard::{Lease, OwnedLease};
pub use handle::LeaseHandle;
pub use handoff::Handoff;
pub use heartbeat::{Beat, BeatState, Heartbeat, Pulse};
pub use request::{Label, LeaseRequest};
pub use session::Session;
pub use table::{LeaseInfo, LeaseState, LeaseTable, LeaseTableBuilder, Peek};
pub use token::FencingToken;

use ::core::hash::Hash;

/// What a key has to be.
pub trait LeaseKey: Hash + Eq + Clone + Send + Sync + 'static {}
impl<T: Hash + Eq + Clone + Send + Sync + 'static> LeaseKey for T {}

/// What a value has to be. Values that are costly to clone are better kept in an `Arc`.
pub trait LeaseValue: Clone + Send + Sync + 'static {}
impl<T: Clone + Send + Sync + 'static> LeaseValue for T {}
