//! A dead job's closure, kept to be called again.
//!
//! A letter keeps a closure by being *inside* it: it holds one of the places that attempts hold, and
//! gives it up like an attempt that ends late. So the word's own rule says who drops the closure: whoever
//! is the last one to leave. An attempt that dies hands its place on; a rescue, whose attempt is still
//! inside, takes another one.
//!
//! ```text
//! Completing, the attempt inside ── keep ──► the letter inside ── publish ──► Dead, the letter inside
//!                                                                                │ replay: so are its attempts
//!                                                                                │ purge, the replay's end
//!                                                                                ▼
//!                                                                            nobody inside: dropped
//! ```
//!
//! A replay is a job of its own, whose closure ([`Again`]) calls the kept one. When it dies, its letter
//! keeps the first closure again, not the replay: replays of replays do not grow.
//!
//! | edge | Release in | Acquire in | makes visible |
//! |---|---|---|---|
//! | the last [`Lien`] → the closure dropped | `exit` | `exit`, `publish` | what attempts and replays did inside |

use core::any::TypeId;
use core::marker::PhantomData;
use core::ptr::NonNull;

use super::{Body, Cell, Header, JobRef, contained};
use crate::runtime::ctx::JobCtx;
use crate::runtime::error::Unkept;
use crate::runtime::outcome::Outcome;
use crate::sync::Arc;

/// What becomes of a closure when its job is dead.
pub(crate) enum Keep {
    /// It is called by shared reference only, so a letter may keep it.
    Own(Calls),
    /// It calls one that is kept: its letter keeps that one. For the job with this body, while its
    /// closure is alive.
    Lent(unsafe fn(NonNull<Header>) -> Arc<Lien>),
    /// It is dropped.
    Not(Unkept),
}

/// How a kept closure is called. The first two: in place of an attempt's own body.
#[derive(Clone, Copy)]
pub(crate) struct Calls {
    /// The last argument points to a place for an `Option<Outcome<T>>`, which holds `None`.
    seen: unsafe fn(NonNull<Header>, &JobCtx, NonNull<()>),
    /// Drops the value.
    unseen: unsafe fn(NonNull<Header>, &JobCtx) -> Outcome<()>,
    value: fn() -> TypeId,
}

impl Calls {
    /// For a body that is called by shared reference.
    pub(super) const fn of<B: Body>() -> Self {
        Self { seen: seen::<B>, unseen: unseen::<B>, value: TypeId::of::<B::Value> }
    }
}

/// # Safety
/// `at` is a `Cell<B>` whose closure a lien of the caller's keeps; `B` is called by shared reference;
/// `to` as in [`Calls`].
unsafe fn seen<B: Body>(at: NonNull<Header>, ctx: &JobCtx, to: NonNull<()>) {
    // SAFETY: the lien is inside (rule 2), which is all that `call` needs of a body like this.
    let outcome = unsafe { B::call(closure::<B>(at), ctx) };
    // SAFETY: the place holds `None`, says the caller, so nothing is overwritten.
    unsafe { to.cast::<Option<Outcome<B::Value>>>().as_ptr().write(outcome) };
}

/// # Safety
/// As [`seen`], but for the place.
unsafe fn unseen<B: Body>(at: NonNull<Header>, ctx: &JobCtx) -> Outcome<()> {
    // SAFETY: as in `seen`.
    match unsafe { B::call(closure::<B>(at), ctx) } {
        Some(Outcome::Done(value)) => {
            // The drop of a value that nobody asked for is no failure of the job.
            contained(move || drop(value));
            Outcome::Done(())
        }
        Some(Outcome::Retry(cause)) => Outcome::Retry(cause),
        Some(Outcome::RetryAfter(cause, delay)) => Outcome::RetryAfter(cause, delay),
        Some(Outcome::Fail(cause)) => Outcome::Fail(cause),
        Some(Outcome::Snooze(delay)) => Outcome::Snooze(delay),
        Some(Outcome::Cancel) | None => Outcome::Cancel,
    }
}

/// # Safety
/// `at` is a `Cell<B>`, alive.
unsafe fn closure<B: Body>(at: NonNull<Header>) -> *mut B {
    // SAFETY: alive, says the caller; only the address is taken. `ManuallyDrop` is transparent.
    unsafe { (*at.cast::<Cell<B>>().as_ptr()).closure.with(|c| c.cast_mut()) }.cast::<B>()
}

/// One place inside the closure of a dead job. Shared by the letter and the replays; the last one gives
/// it up.
pub(crate) struct Lien {
    job: JobRef,
    calls: Calls,
}

impl Lien {
    /// Whether the closure's values are `T`s.
    pub(crate) fn makes<T: 'static>(&self) -> bool {
        (self.calls.value)() == TypeId::of::<T>()
    }
}

impl Drop for Lien {
    fn drop(&mut self) {
        if self.job.state.exit() {
            // SAFETY: the word says so. Contained in there.
            unsafe { self.job.drop_closure() };
        }
    }
}

impl JobRef {
    /// Keeps the closure of a job that is about to be dead. `leaving`: the caller is its attempt, done
    /// with the closure; comes back as false if its place was handed on.
    ///
    /// The caller owns Completing.
    pub(crate) fn keep(&self, leaving: bool) -> (Result<Arc<Lien>, Unkept>, bool) {
        match self.verbs.keep {
            Keep::Not(why) => (Err(why), leaving),
            // SAFETY: the verb is of this cell's body, which is alive: the job is not final yet.
            Keep::Lent(lien) => (Ok(unsafe { lien(self.0) }), leaving),
            Keep::Own(calls) => {
                if leaving || self.state.enter() {
                    (Ok(Arc::new(Lien { job: self.clone(), calls })), false)
                } else {
                    (Err(Unkept::LateAttempts), leaving)
                }
            }
        }
    }
}

/// The closure of a dead job, called again.
pub(crate) struct Again<T> {
    lien: Arc<Lien>,
    value: PhantomData<fn() -> T>,
}

impl<T: 'static> Again<T> {
    /// # Safety
    /// The closure [`makes`](Lien::makes) `T`s.
    pub(crate) unsafe fn new(lien: Arc<Lien>) -> Self {
        debug_assert!(lien.makes::<T>());
        Self { lien, value: PhantomData }
    }
}

impl<T: Send + 'static> Body for Again<T> {
    type Value = T;
    const RETRYABLE: bool = true;
    const KEEP: Keep = Keep::Lent(|at| {
        // SAFETY: a cell of this body, with its closure alive, says `Lent`; it never changes.
        Arc::clone(unsafe { &(*closure::<Self>(at)).lien })
    });

    unsafe fn call(this: *mut Self, ctx: &JobCtx) -> Option<Outcome<T>> {
        // SAFETY: the caller is inside (rule 2); shared only.
        let lien = unsafe { &(*this).lien };
        let mut outcome = None::<Outcome<T>>;
        // SAFETY: the lien keeps the closure, and its values are `T`s, says `new`.
        unsafe { (lien.calls.seen)(lien.job.0, ctx, NonNull::from(&mut outcome).cast()) };
        outcome
    }
}

/// The same for whoever does not know what it makes.
pub(crate) struct AgainUnseen(pub(crate) Arc<Lien>);

impl Body for AgainUnseen {
    type Value = ();
    const RETRYABLE: bool = true;
    const KEEP: Keep = Keep::Lent(|at| {
        // SAFETY: as above.
        Arc::clone(unsafe { &(*closure::<Self>(at)).0 })
    });

    unsafe fn call(this: *mut Self, ctx: &JobCtx) -> Option<Outcome<()>> {
        // SAFETY: as above.
        let lien = unsafe { &(*this).0 };
        // SAFETY: as above.
        Some(unsafe { (lien.calls.unseen)(lien.job.0, ctx) })
    }
}
