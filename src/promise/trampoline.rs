//! Running what became ready, without growing the stack.
//!
//! A [`Work`] is the head of a block of memory that somebody owns alone: a completed core with a
//! callback or a stage in it, or a boxed closure. Running one may make exactly one other ready,
//! which it returns, so that a chain is a loop. Whatever becomes ready *inside* foreign code (a
//! callback that sets another promise, drops one, cancels one) runs at once to a small depth, and
//! beyond that waits in a queue of this thread until its outermost frame drains it, first in, first
//! out. A thread that is about to block drains it too: it may be waiting for what lies there.

use core::cell::Cell;
use core::ptr::NonNull;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sync::cell::UnsafeCell;

use super::error::PanicPayload;

/// How deep ready work may nest on one thread's stack before it queues.
const DEPTH: u32 = 4;

/// What to do with a piece of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// Run it.
    Run,
    /// Its executor threw it away: resolve what hangs on it with `Rejected`.
    Reject,
}

/// Runs the work (or rejects it), frees it, and returns what became ready by that.
///
/// # Safety
///
/// The caller owns the work and gives it up. The function never unwinds.
pub(crate) type RunFn = unsafe fn(NonNull<Work>, Mode) -> Option<NonNull<Work>>;

/// The head of a runnable block.
#[repr(C)]
pub(crate) struct Work {
    run: UnsafeCell<RunFn>,
    next: Cell<Option<NonNull<Work>>>,
}

impl Work {
    pub(crate) fn new(run: RunFn) -> Self {
        Self { run: UnsafeCell::new(run), next: Cell::new(None) }
    }

    /// Sets what to run. Only by whoever may write the block's slot.
    pub(crate) fn set_run(&self, run: RunFn) {
        // SAFETY: the slot's one writer: the reader before it publishes SLOT, or the sole owner.
        self.run.with_mut(|at| unsafe { at.write(run) });
    }
}

/// A work that runs nothing (in a model, where a core's work must be alive before it is set): a core whose slot is empty.
///
/// # Safety
///
/// As [`RunFn`]; never called, because a core without a slot is never handed to the trampoline.
#[cfg(any(tenure_loom, tenure_shuttle))]
pub(crate) unsafe fn run_nothing(_: NonNull<Work>, _: Mode) -> Option<NonNull<Work>> {
    None
}

/// One step: runs the work and returns what it made ready.
///
/// # Safety
///
/// The caller owns the work and gives it up.
pub(crate) unsafe fn step(work: NonNull<Work>, mode: Mode) -> Option<NonNull<Work>> {
    // SAFETY: the caller owns the block, so nobody writes it; the pointer is read out before the call
    // frees it.
    let run = unsafe { (*work.as_ptr()).run.with(|at| *at) };
    // SAFETY: ownership passes on.
    unsafe { run(work, mode) }
}

struct Frame {
    depth: Cell<u32>,
    ready: Queue,
    /// What was thrown away too deep in the stack; after what is ready.
    rejected: Queue,
}

/// Owned work, first in, first out.
struct Queue {
    first: Cell<Option<NonNull<Work>>>,
    last: Cell<Option<NonNull<Work>>>,
}

#[cfg(not(any(tenure_loom, tenure_shuttle)))]
crate::sync::thread_local! {
    static FRAME: Frame = const { Frame::new() };
}
#[cfg(any(tenure_loom, tenure_shuttle))]
crate::sync::thread_local! {
    static FRAME: Frame = Frame::new();
}

impl Queue {
    const fn new() -> Self {
        Self { first: Cell::new(None), last: Cell::new(None) }
    }

    fn push(&self, work: NonNull<Work>) {
        // SAFETY: the work is owned and not in a queue yet; its link is ours to write.
        unsafe { (*work.as_ptr()).next.set(None) };
        match self.last.replace(Some(work)) {
            // SAFETY: what is queued is owned by the queue until it is popped.
            Some(last) => unsafe { (*last.as_ptr()).next.set(Some(work)) },
            None => self.first.set(Some(work)),
        }
    }

    fn pop(&self) -> Option<NonNull<Work>> {
        let work = self.first.get()?;
        // SAFETY: queued, so owned by the queue.
        let next = unsafe { (*work.as_ptr()).next.get() };
        self.first.set(next);
        if next.is_none() {
            self.last.set(None);
        }
        Some(work)
    }
}

impl Frame {
    const fn new() -> Self {
        Self { depth: Cell::new(0), ready: Queue::new(), rejected: Queue::new() }
    }

    fn drain(&self) {
        loop {
            let (work, mode) = match self.ready.pop() {
                Some(work) => (work, Mode::Run),
                None => match self.rejected.pop() {
                    Some(work) => (work, Mode::Reject),
                    None => return,
                },
            };
            // SAFETY: popped, so owned by this frame alone.
            unsafe { run_chain(work, mode) };
        }
    }
}

/// A level of this thread's stack that may run ready work. Dropping the outermost drains the queue.
pub(crate) struct Level(());

impl Level {
    /// Enters a level; `None` when the stack is deep enough: queue instead.
    pub(crate) fn enter() -> Option<Self> {
        FRAME
            .try_with(|frame| {
                let depth = frame.depth.get();
                (depth < DEPTH).then(|| {
                    frame.depth.set(depth + 1);
                    Self(())
                })
            })
            // The thread is ending: no queue any more, so run here.
            .unwrap_or_else(|_| Some(Self(())))
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        let _ = FRAME.try_with(|frame| {
            // The level stays entered while it drains, so that what it runs nests below it.
            if frame.depth.get() == 1 {
                frame.drain();
            }
            frame.depth.set(frame.depth.get() - 1);
        });
    }
}

/// # Safety
///
/// The caller owns the work and gives it up.
unsafe fn run_chain(work: NonNull<Work>, mode: Mode) {
    // SAFETY: the caller's promise; what a step returns is owned by whoever called it.
    let mut next = unsafe { step(work, mode) };
    while let Some(work) = next {
        // SAFETY: as above.
        next = unsafe { step(work, Mode::Run) };
    }
}

/// Runs the work and everything it makes ready: at once, or when this thread's outermost frame gets
/// to it.
///
/// # Safety
///
/// The caller owns the work and gives it up. It may run on this thread only.
pub(crate) unsafe fn run(work: NonNull<Work>) {
    match Level::enter() {
        Some(level) => {
            // SAFETY: the caller's promise.
            unsafe { run_chain(work, Mode::Run) };
            drop(level);
        }
        // SAFETY: the caller's promise.
        None => unsafe { queue(work) },
    }
}

/// Rejects the work, and runs what that makes ready: at once, or when this thread's outermost frame
/// gets to it (what a task owns may be a task).
///
/// # Safety
///
/// The caller owns the work and gives it up.
pub(crate) unsafe fn reject(work: NonNull<Work>) {
    match Level::enter() {
        Some(level) => {
            // SAFETY: the caller's promise.
            unsafe { run_chain(work, Mode::Reject) };
            drop(level);
        }
        None => {
            if FRAME.try_with(|frame| frame.rejected.push(work)).is_err() {
                // The thread is ending: there is no queue. SAFETY: the caller's promise.
                unsafe { run_chain(work, Mode::Reject) };
            }
        }
    }
}

/// To be called before this thread blocks for what somebody else does: if it is deep in callbacks,
/// what it waits for may lie in its own queue, and nobody else would ever run that.
#[cold]
pub(crate) fn before_blocking() {
    let _ = FRAME.try_with(Frame::drain);
}

/// Queues the work on this thread. Only inside a level.
///
/// # Safety
///
/// The caller owns the work and gives it up.
pub(crate) unsafe fn queue(work: NonNull<Work>) {
    if FRAME.try_with(|frame| frame.ready.push(work)).is_err() {
        // The thread is ending: there is no queue. SAFETY: the caller's promise.
        unsafe { run_chain(work, Mode::Run) };
    }
}

/// Runs foreign code whose panic has nowhere to go but the hook: it must not reach whoever set a
/// promise.
#[inline]
pub(crate) fn guarded(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        super::panics::report(PanicPayload::new(payload));
    }
}
