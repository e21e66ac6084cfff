//! Timers: what is due next, among a million.
//!
//! | type | is for |
//! |---|---|
//! | [`Wheel`] | a single owner who keeps the time: no thread, no clock, no callbacks |
//! | [`Timers`] | everybody: a shared handle on a driver thread that runs callbacks |
//!
//! A deadline is a [`Timestamp`](crate::clock::Timestamp) and stays exact: slots of a millisecond
//! say where a timer is found, not when it is due. Anything from the past to
//! [`Timestamp::NEVER`](crate::clock::Timestamp::NEVER) is legal.
//!
//! # The life of a timer
//!
//! A timer of [`Timers`] is one allocation. Its word says where it is (its phase) and who holds its
//! memory:
//!
//! ```text
//! | phase     | meaning                            | who owns the callback | who may leave it       |
//! |-----------|------------------------------------|-----------------------|------------------------|
//! | INTAKE    | pushed; the driver has not seen it | nobody yet            | the driver, any handle |
//! | LINKED    | in the driver's wheel              | nobody yet            | the driver, any handle |
//! | TAKEN     | run, or dropped at the end         | the driver            | nobody (final)         |
//! | CANCELLED | cancelled                          | that handle           | nobody (final)         |
//!
//!            link — driver             take — driver
//!  INTAKE ─────────────────► LINKED ─────────────────► TAKEN
//!     │ cancel — handle         │ cancel — handle, who pushes it once more
//!     └───────► CANCELLED ◄─────┘
//! ```
//!
//! Two flags, HANDLE and DRIVER, are holds on the memory; whoever clears the second frees it.
//! Dropping a handle clears HANDLE in any phase and does nothing else. The driver clears DRIVER
//!
//! - **D1** after it ran or dropped the callback (TAKEN);
//! - **D2** when it finds the timer CANCELLED on the stack, first or second time;
//! - **D3** never for a CANCELLED timer that it takes out of the *wheel*: that one's canceller pushes
//!   it, or did, and D2 follows. If the driver is gone, the push is refused and the canceller clears
//!   DRIVER in its place.
//!
//! - **D4** A canceller that takes the timer off the stack before the driver sees it (`withdraw`)
//!   clears DRIVER itself.
//!
//! So as long as the wheel points to a timer its memory is held.
//!
//! # The way to the driver
//!
//! A stack of timers; its head also has three flags.
//!
//! ```text
//! | flag    | meaning                                        | set by             | cleared by |
//! |---------|------------------------------------------------|--------------------|------------|
//! | ASLEEP  | the driver sleeps, or is about to              | the driver         | the driver |
//! | CLOSING | no new timers; cancelled ones still come       | close, shutdown    | nobody     |
//! | CLOSED  | the driver is gone; nothing is taken any more  | the driver         | nobody     |
//! ```
//!
//! To sleep, the driver (S1) writes until when (`wake_at`), (S2) swaps its parking word to PARKED,
//! (S3) turns an *empty* head to ASLEEP, (S4) reads its clock, (S5) waits on the word. To insert, a
//! thread (P1) pushes, keeping ASLEEP, and only if the head had the flag (P2) compares with
//! `wake_at` and, if it is earlier, (P3) swaps the word to NOTIFIED and wakes.
//!
//! - P1 before S3: S3 fails, for the head is not empty. The driver takes the timer and starts again.
//! - S3 before P1: P1 sees ASLEEP and, through it, S1 and S2. So P2 compares with the time of this
//!   sleep (or of a later one, and then the timer was taken meanwhile), and P3 finds PARKED.
//! - A clock that is moved writes its time, then does P3. If that comes before S2, S4 sees the new
//!   time; if after, it finds PARKED.
//!
//! Whoever cancels what lies on top of the stack takes it off again (a timeout that was not needed: it
//! leaves nothing behind). Whoever cancels anything else leaves it to the driver and wakes nobody, but
//! for one in every 4,096: so cancelled timers never pile up beyond that while the driver sleeps.
//! On top means never taken: a timer is pushed a second time only after the driver has linked it.
//!
//! # Who drives
//!
//! Callbacks are foreign code and may not return. So the driver lays its state down for each, and a
//! second thread, which sleeps while nothing happens, takes it up after 20 to 40 ms: see `helm.rs`, which
//! the runtime's driver stands on, too. A process that stood still meanwhile is told from a driver that
//! is held up: the one who watches stood still as well, and starts its period again.
//!
//! To end, (E1) somebody sets CLOSING, and no new timer gets in; (E2) the driver empties its wheel and
//! the stack, dropping callbacks that nobody cancelled; (E3) it turns a head that is empty but for
//! CLOSING to CLOSED, or goes back to E2; (E4) it says that it is done.
//!
//! ```text
//! | edge                  | Release in        | Acquire in      | makes visible                    |
//! |-----------------------|-------------------|-----------------|----------------------------------|
//! | pushed → taken        | `push`            | `take`          | the timer, whole                 |
//! | INTAKE → LINKED       | `link`            | `cancel`        | that the driver has read `next`  |
//! | either hold → freed   | `release`         | `release`       | that the other side is through   |
//! | asleep → pushed       | `prepare_sleep`   | `push`          | `wake_at`, PARKED                |
//! | notified → parked     | `notify`          | `prepare_sleep` | the clock's new time, CLOSING    |
//! | CLOSING → CLOSED      | `Intake::finish`  | `push`, refused | that the driver is through (D3)  |
//! | done                  | `Shared::finish`  | `is_done`       | what the driver ran and dropped  |
//! ```
//!
//! # Measured
//!
//! On 2 cores of an AMD EPYC guest, `cargo bench --bench timer`: a million timers anywhere in the next
//! minute, per timer, in ns; the last column is a timer that is inserted and cancelled beside them. One run
//! with nothing else running; of [`Timers`], whose driver shares the cores, the medians of four.
//!
//! | | insert | cancel, shuffled | expire | insert + cancel |
//! |---|---|---|---|---|
//! | [`Wheel`] | 62 | 69 | 68 | 37 |
//! | [`Timers`], from a thread | 83 | 208 | 197, with callbacks | 21 |
//! | `hierarchical_hash_wheel_timer` | 127 | 105 | 416 | 304 |
//! | `BTreeMap` and mutex | 412 | 604 | 91 | 950 |
//! | tokio-util's `DelayQueue` | 41 | 411 | 535 | 95 |
//!
//! Lateness of 10,000 timers over a second, in µs (`cargo bench --bench timer_lateness`, 2 rounds):
//!
//! | | p50 | p99 | p99.9 | p50 beside 2 busy threads |
//! |---|---|---|---|---|
//! | [`Timers`] | 26 | 338 | 3,263 | 14 |
//! | async-io | 28 | 487 | 1,738 | 16 |
//! | tokio | 1,060 | 1,993 | 2,954 | 1,055 |
//! | map and condition variable | 70 | 674 | 2,434 | 64 |

pub(crate) mod crew;
mod driver;
pub(crate) mod helm;
mod intake;
#[cfg(any(tenure_loom, tenure_shuttle))]
#[doc(hidden)]
pub mod model;
mod node;
mod slab;
mod state;
mod timers;
mod wheel;

pub use timers::{InsertError, Shutdown, StartError, TimerGuard, TimerHandle, TimerStats, Timers};
pub use wheel::{TimerKey, Wheel};
