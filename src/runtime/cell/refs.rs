//! References to a job's cell: the counted ones, and the handle's.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use core::task::Waker;

use super::{Body, Cell, Header, Ran, contained};
use crate::lock::Unseen;
use crate::runtime::ctx::JobCtx;
use crate::runtime::error::JobError;
use crate::runtime::options::{Options, Past, Priority};
use crate::runtime::state::{Ended, State, StateCell, Waiting};
use crate::sync::atomic::{AtomicU32, Ordering, fence};
use crate::sync::cell::UnsafeCell;

/// One reference to a job.
pub(crate) struct JobRef(pub(super) NonNull<Header>);

// SAFETY: the closure and the value are `Send`; the closure is shared between threads only if it is
// `Sync` (rule 2); everything else is behind the word or a lock.
unsafe impl Send for JobRef {}
// SAFETY: as above: a shared `JobRef` gives only what the header's rules give.
unsafe impl Sync for JobRef {}

impl JobRef {
    /// A new job with two references: this one, and the handle's.
    #[inline]
    pub(crate) fn new<B: Body>(
        body: B,
        first: StateCell,
        home: usize,
        id: u64,
        priority: Priority,
        options: Option<Box<Options>>,
    ) -> (Self, Handle<B::Value>) {
        // Written where it stays: a cell that is put together elsewhere is copied, and a copy of what was
        // just written waits for it.
        let mut cell = Box::<Cell<B>>::new_uninit();
        cell.write(Cell::<B> {
            header: Header {
                state: first,
                references: AtomicU32::new(2),
                priority,
                verbs: &Cell::<B>::VERBS,
                id,
                home,
                waiter: UnsafeCell::new(None),
                #[cfg(feature = "metrics")]
                queued: crate::sync::atomic::AtomicU64::new(0),
                options,
                past: Unseen::new(None),
            },
            closure: UnsafeCell::new(ManuallyDrop::new(body)),
            result: UnsafeCell::new(None),
        });
        let at = NonNull::from(Box::leak(cell)).cast::<Header>();
        (Self(at), Handle { job: Self(at), value: PhantomData })
    }

    pub(crate) fn as_raw(&self) -> *mut Header {
        self.0.as_ptr()
    }

    /// Gives up the reference without counting it down.
    pub(crate) fn into_raw(self) -> *mut Header {
        let at = self.0.as_ptr();
        core::mem::forget(self);
        at
    }

    /// Takes a reference back.
    ///
    /// # Safety
    /// Not null, from `into_raw` (or a reference that was left for the caller), once.
    pub(crate) unsafe fn from_raw(at: *mut Header) -> Self {
        // SAFETY: not null, says the caller.
        Self(unsafe { NonNull::new_unchecked(at) })
    }

    /// Whether it is a future, whose attempts are polls.
    pub(crate) fn is_task(&self) -> bool {
        self.verbs.task
    }

    pub(crate) fn retryable(&self) -> bool {
        self.verbs.retryable
    }

    /// Whether its attempts must not meet.
    pub(crate) fn is_alone(&self) -> bool {
        self.verbs.alone
    }

    /// Runs one attempt.
    ///
    /// # Safety
    /// The caller got `Start::Run` from this job's word, for the epoch in `ctx`, and has not left.
    pub(crate) unsafe fn attempt(&self, ctx: &JobCtx) -> Ran {
        // SAFETY: the verbs are those of this cell's types; the rest is the caller's.
        unsafe { (self.verbs.attempt)(self.0, ctx) }
    }

    /// Writes why the job is dead, and publishes.
    ///
    /// # Safety
    /// The caller owns Completing.
    pub(crate) unsafe fn die(&self, error: JobError, leaving: bool) -> Ended {
        // SAFETY: the verbs are those of this cell's types; Completing is the caller's.
        unsafe { (self.verbs.write_error)(self.0, error) };
        self.state.publish(State::Dead, leaving)
    }

    /// Takes the waker that an ended job owes a wake.
    ///
    /// # Safety
    /// `ended` came from this job's word, in this thread; once, and before
    /// [`drop_rest`](Self::drop_rest).
    pub(crate) unsafe fn take_waker(&self, ended: &Ended) -> Option<Waker> {
        // SAFETY: asked only if WAITER was in the word that we ended: rule 4.
        let take = || unsafe { self.waiter.with_mut(|w| (*w).take()) };
        ended.wake.then(take).flatten()
    }

    /// Drops what an ended job's word says that nobody will use: last of all, since these drops are
    /// foreign and may never return.
    ///
    /// # Safety
    /// `ended` came from this job's word, once; by the thread that ended it, or one that it handed
    /// this to.
    pub(crate) unsafe fn drop_rest(&self, ended: Ended) {
        if ended.drop_result {
            // SAFETY: DETACHED was in it: rule 3.
            unsafe { (self.verbs.drop_result)(self.0) };
        }
        if ended.drop_closure {
            // SAFETY: no runners were in it: rule 2.
            unsafe { (self.verbs.drop_closure)(self.0) };
        }
    }

    /// Drops the closure after the last late attempt has left.
    ///
    /// # Safety
    /// `StateCell::exit` told the caller to.
    pub(crate) unsafe fn drop_closure(&self) {
        // SAFETY: rule 2.
        unsafe { (self.verbs.drop_closure)(self.0) };
    }

    /// It is about to be queued.
    #[cfg(feature = "metrics")]
    pub(crate) fn set_queued(&self, at: crate::clock::Timestamp) {
        // ORDERING: Relaxed: ordered by the queue; for information.
        self.queued.store(at.as_nanos(), Ordering::Relaxed);
    }

    /// When it was queued, if that is measured and was not read yet.
    #[cfg(feature = "metrics")]
    #[inline]
    pub(crate) fn take_queued(&self) -> Option<crate::clock::Timestamp> {
        // ORDERING: Relaxed, both: as in `set_queued`.
        let at = self.queued.load(Ordering::Relaxed);
        if at == 0 {
            return None;
        }
        // ORDERING: Relaxed: as above.
        self.queued.store(0, Ordering::Relaxed);
        Some(crate::clock::Timestamp::from_nanos(at))
    }

    /// Looks at, or changes, what the job has been through. No foreign code inside `f`.
    pub(crate) fn past<R>(&self, f: impl FnOnce(&mut Past) -> R) -> R {
        let mut past = self.past.lock();
        f(past.get_or_insert_default())
    }
}

impl Clone for JobRef {
    fn clone(&self) -> Self {
        // ORDERING: Relaxed: a reference is made from one that is alive.
        let before = self.references.fetch_add(1, Ordering::Relaxed);
        // A count that wraps would free too early. It takes 2³¹ leaked references to come here.
        if before > u32::MAX / 2 {
            std::process::abort();
        }
        Self(self.0)
    }
}

impl core::ops::Deref for JobRef {
    type Target = Header;

    fn deref(&self) -> &Header {
        // SAFETY: a reference is held, so the cell is alive; the header is only ever shared.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for JobRef {
    fn drop(&mut self) {
        // ORDERING: Release: what we did with the cell happens before it is freed, by whoever sees
        // the count at zero; pairs with the fence below.
        if self.references.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // ORDERING: Acquire: the other end of the line above.
        fence(Ordering::Acquire);
        // SAFETY: that was the last reference.
        unsafe { (self.verbs.free)(self.0) };
    }
}

impl fmt::Debug for JobRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobRef").field("id", &self.id).field("state", &self.state).finish()
    }
}

/// The reading side of the slot. Exactly one a job.
pub(crate) struct Handle<T> {
    job: JobRef,
    value: PhantomData<fn() -> T>,
}

impl<T> Handle<T> {
    pub(crate) fn job(&self) -> &JobRef {
        &self.job
    }

    /// Leaves a waker. `true`: it will be woken; `false`: the job is over.
    pub(crate) fn register(&mut self, waker: Waker) -> bool {
        // SAFETY: WAITER is clear and only this handle sets it (`&mut`): rule 4.
        let old = unsafe { self.job.waiter.with_mut(|w| (*w).replace(waker)) };
        debug_assert!(old.is_none());
        match self.job.state.register() {
            Waiting::Registered => true,
            Waiting::Final(_) => {
                // SAFETY: whoever ended the job saw no WAITER: the waker is still ours (rule 4).
                let waker = unsafe { self.job.waiter.with_mut(|w| (*w).take()) };
                drop(waker);
                false
            }
        }
    }

    /// Takes the waker back. `true`: it is out; `false`: the job is over, and has it.
    pub(crate) fn retract(&mut self) -> bool {
        match self.job.state.retract() {
            Waiting::Registered => {
                // SAFETY: the word was not final when WAITER went off: rule 4.
                let waker = unsafe { self.job.waiter.with_mut(|w| (*w).take()) };
                drop(waker);
                true
            }
            Waiting::Final(_) => false,
        }
    }

    /// The result, if the job is over. `None` inside: it was taken before.
    pub(crate) fn take(&mut self) -> Option<Option<Result<T, JobError>>> {
        let word = self.job.state.settled()?;
        Some(match word.state() {
            State::Cancelled if word.by_shutdown() => Some(Err(JobError::Shutdown)),
            State::Cancelled => Some(Err(JobError::Cancelled)),
            _ => {
                let mut result = None::<Result<T, JobError>>;
                // SAFETY: final by an Acquire load, we are the handle, `result` is of the cell's type.
                unsafe {
                    (self.job.verbs.take_result)(self.job.0, NonNull::from(&mut result).cast());
                };
                result
            }
        })
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        match self.job.state.detach() {
            Waiting::Registered => {
                // SAFETY: WAITER is off, the word was not final: rule 4.
                let waker = unsafe { self.job.waiter.with_mut(|w| (*w).take()) };
                contained(move || drop(waker));
            }
            Waiting::Final(State::Cancelled) => {}
            Waiting::Final(_) => {
                // SAFETY: final, and the ender saw no DETACHED: rule 3. Empty if it was taken.
                unsafe { (self.job.verbs.drop_result)(self.job.0) };
            }
        }
    }
}
