//! The core: what a writer and a reader share, and the steps by which they meet and part.
//!
//! Fields, and who may touch them:
//!
//! | field     | written by                                         | read by                          |
//! |-----------|----------------------------------------------------|----------------------------------|
//! | `work`    | the reader before it publishes SLOT + RX_GONE; the sole owner | the sole owner        |
//! | `data`    | the reader while SLOT is clear; the sole owner     | the writer after it saw SLOT     |
//! | `cancel`  | either side, once, from null (a compare-exchange); the reader while attaching | either |
//! | `payload` | the writer while there is no phase                 | the reader once there is         |
//! | `about` | nobody after construction              | anybody                          |
//!
//! "Sole owner" is the side that saw the other's GONE bit with Acquire.

mod closure;
mod home;

use core::alloc::Layout;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;
use core::task::Waker;

use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::cell::UnsafeCell;
use crate::sync::park;

use super::block::{self, Class};
use super::cancel::NodeRef;
use super::error::{EventualError, PanicPayload};
use super::state::{Last, StateCell, Word};
#[cfg(any(tenure_loom, tenure_shuttle))]
use super::trampoline::run_nothing;
use super::trampoline::{Work, guarded};

pub(super) use home::Home;

/// What a reader gets.
pub type Outcome<T, E> = Result<T, EventualError<E>>;

/// Two words: a waker's, or a callback's, or a pointer to something.
pub(crate) type Data = [MaybeUninit<usize>; 2];

#[repr(C)]
pub(crate) struct Header {
    work: Work,
    // Not beside the state word: zeroed in one wide store, a load of the word alone would stall.
    cancel: AtomicPtr<()>,
    data: UnsafeCell<Data>,
    // The same two words in ordinary builds; a model's atomics cannot lie over a cell.
    #[cfg(any(tenure_loom, tenure_shuttle))]
    pointers: [AtomicPtr<()>; 2],
    state: StateCell,
    about: About,
}

/// What never changes about a core.
#[derive(Clone, Copy)]
#[repr(C, align(4))]
struct About {
    class: Class,
    moves_node: bool,
    pad: [u8; 2],
}

/// What the phase says lies here.
#[repr(C)]
pub(crate) union Payload<T, E> {
    value: ManuallyDrop<T>,
    error: ManuallyDrop<E>,
    panic: ManuallyDrop<PanicPayload>,
    nothing: (),
}

#[repr(C)]
pub(crate) struct Core<T, E> {
    header: Header,
    payload: UnsafeCell<MaybeUninit<Payload<T, E>>>,
}

/// A core and, behind it, a closure that does not fit into its payload.
#[repr(C)]
pub(crate) struct Extended<T, E, F> {
    core: Core<T, E>,
    closure: UnsafeCell<MaybeUninit<F>>,
}

/// A pointer to a core. Copies are free; every method says what it needs of its caller.
pub(crate) struct CorePtr<T, E>(NonNull<Core<T, E>>);

impl<T, E> Clone for CorePtr<T, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, E> Copy for CorePtr<T, E> {}

/// What became of a settled core, as its writer sees it.
#[must_use]
pub(crate) enum Settled {
    /// A reader has it or will come for it. The core is not ours any more.
    Delivered,
    /// A callback or stage lies in the slot: run this.
    Next(NonNull<Work>),
    /// The reader is gone and left nothing: the payload is still in, and the core is ours alone.
    Refused,
}

impl<T, E> CorePtr<T, E> {
    /// A fresh core with both sides present.
    #[inline]
    pub(crate) fn allocate() -> Self {
        Self::allocate_as::<Core<T, E>>(StateCell::new(), false)
    }

    /// A core that is complete and has no writer.
    pub(crate) fn allocate_complete(outcome: Outcome<T, E>) -> Self {
        let last = Last::of(&outcome);
        let core = Self::allocate_as::<Core<T, E>>(StateCell::new_complete(last), false);
        // SAFETY: fresh: nobody else knows it.
        unsafe { core.write_outcome(outcome) };
        core
    }

    /// A core at the head of a block for `B`.
    #[inline]
    fn allocate_as<B>(state: StateCell, moves_node: bool) -> Self {
        let at = block::allocate::<B>().cast::<Core<T, E>>();
        let class = const { Class::of(Layout::new::<B>()) };
        // SAFETY: fresh memory that is large enough: `B` is `Core<T, E>` or begins with one.
        unsafe { Self::begin(at, state, class, moves_node) };
        Self(at)
    }

    /// Brings a core to life.
    ///
    /// # Safety
    ///
    /// `at` is memory for a core that nobody uses.
    #[inline(always)]
    unsafe fn begin(at: NonNull<Core<T, E>>, state: StateCell, class: Class, moves_node: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            let header = &raw mut (*at.as_ptr()).header;
            // In ordinary builds the work, the slot and the payload are plain memory, each written
            // before it is read. A model's cells have to come to life.
            #[cfg(any(tenure_loom, tenure_shuttle))]
            {
                (&raw mut (*header).work).write(Work::new(run_nothing));
                (&raw mut (*header).data).write(UnsafeCell::new([MaybeUninit::uninit(); 2]));
                (&raw mut (*header).pointers)
                    .write(core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())));
                (&raw mut (*at.as_ptr()).payload).write(UnsafeCell::new(MaybeUninit::uninit()));
            }
            (&raw mut (*header).cancel).write(AtomicPtr::new(core::ptr::null_mut()));
            (&raw mut (*header).state).write(state);
            (&raw mut (*header).about).write(About { class, moves_node, pad: [0; 2] });
        }
    }

    #[inline]
    pub(crate) fn work(self) -> NonNull<Work> {
        // The work is the core's first field.
        self.0.cast()
    }

    /// # Safety
    ///
    /// The work is the head of a `Core<T, E>`.
    #[inline]
    pub(crate) unsafe fn from_work(work: NonNull<Work>) -> Self {
        Self(work.cast())
    }

    pub(crate) fn as_ptr(self) -> *mut () {
        self.0.as_ptr().cast()
    }

    /// # Safety
    ///
    /// `at` came from `as_ptr` of a core of this type.
    pub(crate) unsafe fn from_ptr(at: *mut ()) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { NonNull::new_unchecked(at.cast()) })
    }

    pub(crate) const fn from_non_null(at: NonNull<()>) -> Self {
        Self(at.cast())
    }

    /// The state word.
    ///
    /// # Safety
    ///
    /// The caller has not left the core, or owns it. The reference must not outlive that.
    #[inline]
    pub(crate) unsafe fn state<'a>(self) -> &'a StateCell {
        // SAFETY: the caller's promise; the reference covers the word alone.
        unsafe { &(*self.0.as_ptr()).header.state }
    }

    /// The pointer to the cancel node.
    ///
    /// # Safety
    ///
    /// As `state`.
    #[inline]
    pub(crate) unsafe fn cancel<'a>(self) -> &'a AtomicPtr<()> {
        // SAFETY: as in `state`.
        unsafe { &(*self.0.as_ptr()).header.cancel }
    }

    /// # Safety
    ///
    /// As `state`.
    #[inline]
    unsafe fn pointer<'a>(self, index: usize) -> &'a AtomicPtr<()> {
        #[cfg(any(tenure_loom, tenure_shuttle))]
        // SAFETY: as in `state`.
        return unsafe { &(*self.0.as_ptr()).header.pointers[index] };
        #[cfg(not(any(tenure_loom, tenure_shuttle)))]
        // SAFETY: as in `state`; the words have a pointer's size and alignment. Where both sides may
        // look at once (a waker that is replaced while its writer reads it) both use these atomics;
        // a callback's plain bytes are only written where no waker ever was.
        unsafe {
            let at = (&raw mut (*self.0.as_ptr()).header.data).cast::<*mut ()>();
            &*at.add(index).cast::<AtomicPtr<()>>()
        }
    }

    /// The slot's first word as a pointer.
    ///
    /// # Safety
    ///
    /// The caller may read the slot (see the table), and a pointer lies in it.
    pub(crate) unsafe fn slot_pointer(self) -> *mut () {
        // ORDERING: Relaxed: ordered by the SLOT bit of the state word.
        // SAFETY: the caller's promise.
        unsafe { self.pointer(0) }.load(Ordering::Relaxed)
    }

    /// # Safety
    ///
    /// The caller may write the slot.
    pub(crate) unsafe fn set_slot_pointer(self, to: *mut ()) {
        // ORDERING: Relaxed: as in `slot_pointer`. An atomic store, because a writer may be reading
        // the words of a waker that was here; its exchange will fail.
        // SAFETY: the caller's promise.
        unsafe { self.pointer(0) }.store(to, Ordering::Relaxed);
    }

    /// The slot's two words, for plain bytes.
    ///
    /// # Safety
    ///
    /// The caller may read or write the slot, and no waker was ever in it.
    pub(crate) unsafe fn with_slot_bytes<R>(self, f: impl FnOnce(*mut Data) -> R) -> R {
        // SAFETY: the caller's promise; only the cell is borrowed.
        unsafe { &(*self.0.as_ptr()).header.data }.with_mut(f)
    }

    /// Writes a waker's words.
    ///
    /// # Safety
    ///
    /// Only by the reader while SLOT is clear. The slot owns the waker from then on.
    pub(crate) unsafe fn write_waker(self, waker: Waker) {
        let waker = ManuallyDrop::new(waker);
        let table = core::ptr::from_ref(waker.vtable()).cast_mut().cast();
        // ORDERING: Relaxed: published by the SLOT bit; a writer that reads while they change finds
        // out by its exchange.
        // SAFETY: the caller's promise.
        unsafe {
            self.pointer(0).store(waker.data().cast_mut(), Ordering::Relaxed);
            self.pointer(1).store(table, Ordering::Relaxed);
        }
    }

    /// A bitwise copy of the waker (R5).
    ///
    /// # Safety
    ///
    /// SLOT was seen with Acquire, or the caller is the reader, whose words they are.
    pub(crate) unsafe fn copy_waker(self) -> CopiedWaker {
        // ORDERING: Relaxed: as in `write_waker`.
        // SAFETY: the caller's promise.
        unsafe {
            CopiedWaker {
                data: self.pointer(0).load(Ordering::Relaxed),
                table: self.pointer(1).load(Ordering::Relaxed),
            }
        }
    }

    // ---- the payload -------------------------------------------------------------------------

    #[inline]
    unsafe fn with_payload<R>(self, f: impl FnOnce(*mut Payload<T, E>) -> R) -> R {
        // SAFETY: the caller's promise; only the cell is borrowed.
        unsafe { &(*self.0.as_ptr()).payload }.with_mut(|at| f(at.cast()))
    }

    /// # Safety
    ///
    /// Only by the writer before a phase is set, or by the sole owner of an empty payload.
    #[inline]
    pub(crate) unsafe fn write_value(self, value: T) {
        // SAFETY: the caller's promise.
        unsafe { self.with_payload(|at| at.write(Payload { value: ManuallyDrop::new(value) })) };
    }

    /// # Safety
    ///
    /// As `write_value`. Settle with `Last::of(&outcome)`, taken before.
    #[inline(always)]
    pub(crate) unsafe fn write_outcome(self, outcome: Outcome<T, E>) {
        let payload = match outcome {
            Ok(value) => Payload { value: ManuallyDrop::new(value) },
            Err(EventualError::Failed(error)) => Payload { error: ManuallyDrop::new(error) },
            Err(EventualError::Panicked(panic)) => Payload { panic: ManuallyDrop::new(panic) },
            Err(
                EventualError::Broken
                | EventualError::Cancelled
                | EventualError::TimedOut
                | EventualError::Rejected
                | EventualError::Taken,
            ) => return,
        };
        // SAFETY: the caller's promise.
        unsafe { self.with_payload(|at| at.write(payload)) };
    }

    /// Moves the outcome out, and does `then` when the payload has been read. (Not the other way
    /// round, and not in two calls: the value stays in registers like this.)
    ///
    /// # Safety
    ///
    /// The payload is full as `last` says and the caller's to take: the reader that saw the phase
    /// with Acquire, the sole owner, or the writer that was refused. Once. `then` does not unwind.
    #[inline(always)]
    pub(crate) unsafe fn take_outcome(self, last: Last, then: impl FnOnce()) -> Outcome<T, E> {
        // SAFETY: the caller's promise: `last` says which variant was written.
        unsafe {
            match last {
                Last::Value => {
                    let value = self.with_payload(|at| ManuallyDrop::take(&mut (*at).value));
                    then();
                    Ok(value)
                }
                Last::Failed => {
                    let error = self.with_payload(|at| ManuallyDrop::take(&mut (*at).error));
                    then();
                    Err(EventualError::Failed(error))
                }
                Last::Panicked => {
                    let panic = self.with_payload(|at| ManuallyDrop::take(&mut (*at).panic));
                    then();
                    Err(EventualError::Panicked(panic))
                }
                Last::Broken => {
                    then();
                    Err(EventualError::Broken)
                }
                Last::Cancelled => {
                    then();
                    Err(EventualError::Cancelled)
                }
                Last::Rejected => {
                    then();
                    Err(EventualError::Rejected)
                }
                Last::TimedOut => {
                    then();
                    Err(EventualError::TimedOut)
                }
                Last::Taken => {
                    then();
                    Err(EventualError::Taken)
                }
            }
        }
    }

    /// Moves the value out.
    ///
    /// # Safety
    ///
    /// As `take_outcome`, of a `Last::Value`.
    #[inline(always)]
    pub(crate) unsafe fn take_value(self) -> T {
        // SAFETY: the caller's promise.
        unsafe { self.with_payload(|at| ManuallyDrop::take(&mut (*at).value)) }
    }

    /// Moves the value out, and frees the core.
    ///
    /// # Safety
    ///
    /// As `take_outcome`, of a `Last::Value`, by the sole owner, who gives the core up.
    #[inline(always)]
    pub(crate) unsafe fn take_value_alone(self) -> T {
        // SAFETY: the caller's promise.
        unsafe {
            let value = self.take_value();
            self.free();
            value
        }
    }

    /// Moves the outcome out of a core that is complete and the caller's alone, and frees it.
    ///
    /// # Safety
    ///
    /// The caller is the sole owner and gives the core up; the slot is empty.
    #[inline(always)]
    pub(crate) unsafe fn take_alone(self) -> Outcome<T, E> {
        // SAFETY: sole owner.
        unsafe {
            // Always complete: only complete cores run.
            let last = self.state().peek().last().unwrap_or(Last::Broken);
            self.take_outcome(last, || self.free())
        }
    }

    /// # Safety
    ///
    /// The caller may write the slot.
    pub(crate) unsafe fn set_run(self, run: super::trampoline::RunFn) {
        // SAFETY: the caller's promise; the work alone is borrowed.
        unsafe { &(*self.0.as_ptr()).header.work }.set_run(run);
    }

    /// Gives a fresh core its node, with the count that the pointer carries.
    ///
    /// # Safety
    ///
    /// Nobody else knows the core yet.
    pub(crate) unsafe fn give_node(self, node: *mut ()) {
        // ORDERING: Relaxed: published with the core itself.
        // SAFETY: the caller's promise.
        unsafe { self.cancel() }.store(node, Ordering::Relaxed);
    }

    // ---- leaving -----------------------------------------------------------------------------

    /// Frees the core. The payload and the slot are not dropped.
    ///
    /// # Safety
    ///
    /// The caller is the sole owner, and gives it up.
    #[inline]
    pub(crate) unsafe fn free(self) {
        // SAFETY: sole owner.
        unsafe {
            // ORDERING: Relaxed: sole owner.
            let node = self.cancel().load(Ordering::Relaxed);
            let class = (*self.0.as_ptr()).header.about.class;
            if class == Class::Homed {
                return Home::<T, E>::vacate(self, node);
            }
            // Nearly always what it would be by itself: then the compiler knows the list.
            #[cfg(any(tenure_loom, tenure_shuttle))]
            core::ptr::drop_in_place(self.0.as_ptr());
            let natural = const { Class::of(Layout::new::<Core<T, E>>()) };
            block::free(self.0, if class == natural { natural } else { class });
            if !node.is_null() {
                drop_node(node);
            }
        }
    }

    /// The reader's end: takes the outcome of a complete core and leaves.
    ///
    /// # Safety
    ///
    /// Only by the reader, which saw `word` with a phase, by Acquire; it does not touch the core
    /// again.
    #[inline]
    pub(crate) unsafe fn take_and_leave(self, word: Word, last: Last) -> Outcome<T, E> {
        // SAFETY: the phase was seen with Acquire: the payload is ours. We leave when it has been
        // read; whoever leaves second frees (R1).
        unsafe {
            self.take_outcome(last, || {
                if word.writer_left() || self.state().reader_leaves().writer_left() {
                    self.free();
                }
            })
        }
    }

    /// The writer's end: publishes what lies in the payload and leaves.
    ///
    /// # Safety
    ///
    /// Only by the writer, once; the payload is full as `last` says. Unless the answer is `Next` or
    /// `Refused`, which make the caller the sole owner, it does not touch the core again.
    #[inline(always)]
    pub(crate) unsafe fn settle(self, last: Last) -> Settled {
        // SAFETY: what the caller promises is passed on.
        unsafe {
            match self.settle_untouched(last) {
                Ok(()) => Settled::Delivered,
                Err(seen) => self.settle_from(seen, last),
            }
        }
    }

    /// `settle` where the reader has done nothing yet; else what the word says.
    ///
    /// # Safety
    ///
    /// As `settle`; after an error go on with `settle_from`.
    #[inline(always)]
    pub(crate) unsafe fn settle_untouched(self, last: Last) -> Result<(), Word> {
        // SAFETY: the writer has not left.
        let state = unsafe { self.state() };
        let seen = state.peek();
        if seen.is_untouched() { state.complete_and_leave(seen, last) } else { Err(seen) }
    }

    /// # Safety
    ///
    /// As `settle`; `seen` was read with Acquire.
    #[inline]
    pub(crate) unsafe fn settle_from(self, seen: Word, last: Last) -> Settled {
        // SAFETY: what the caller promises is passed on.
        unsafe {
            if seen.reader_left() && !seen.has_hook() {
                return self.settle_alone(seen, last);
            }
            self.settle_past(seen, last)
        }
    }

    /// # Safety
    ///
    /// As `settle`; `seen` was read with Acquire.
    #[inline(never)]
    unsafe fn settle_past(self, mut seen: Word, last: Last) -> Settled {
        if seen.has_hook() {
            // SAFETY: the caller's promise, passed on.
            return unsafe { self.settle_with_hook(last) };
        }
        // SAFETY: the writer has not left.
        let state = unsafe { self.state() };
        let futex = core::ptr::from_ref(state.futex());
        loop {
            if seen.reader_left() {
                // SAFETY: as said.
                return unsafe { self.settle_alone(seen, last) };
            }
            if seen.waker_was_replaced() {
                // SAFETY: as above.
                return unsafe { self.settle_in_two_steps(last) };
            }
            // A copy counts only if the exchange succeeds: then nothing moved in between, and the
            // waker is ours.
            // SAFETY: SLOT was seen with Acquire.
            let waker = if seen.has_slot() { unsafe { self.copy_waker() } } else { NO_WAKER };
            match state.complete_and_leave(seen, last) {
                // From here on the core may be gone (R6).
                Ok(()) => {
                    wake(waker, seen, futex);
                    return Settled::Delivered;
                }
                Err(now) => seen = now,
            }
        }
    }

    /// # Safety
    ///
    /// `seen` was read with Acquire and says that the reader left.
    #[inline]
    unsafe fn settle_alone(self, seen: Word, last: Last) -> Settled {
        if !seen.has_slot() {
            return Settled::Refused;
        }
        // SAFETY: sole owner (R2).
        unsafe { self.state() }.settle_alone(last);
        Settled::Next(self.work())
    }

    /// # Safety
    ///
    /// As `settle`.
    #[cold]
    unsafe fn settle_in_two_steps(self, last: Last) -> Settled {
        // SAFETY: the writer has not left.
        let state = unsafe { self.state() };
        let before = state.complete(last);
        if before.reader_left() {
            // SAFETY: an RMW that acquired.
            return unsafe { self.settle_alone(before, last) };
        }
        // SAFETY: SLOT in the word that our RMW replaced: the waker is ours to take, and the reader
        // leaves it alone since it will see the phase.
        let waker = if before.has_slot() { unsafe { self.copy_waker() } } else { NO_WAKER };
        let futex = core::ptr::from_ref(state.futex());
        if state.writer_leaves().reader_left() {
            // SAFETY: second to leave.
            unsafe { self.free() };
        }
        wake(waker, before, futex);
        Settled::Delivered
    }

    /// # Safety
    ///
    /// As `settle`.
    #[cold]
    unsafe fn settle_with_hook(self, last: Last) -> Settled {
        // SAFETY: the writer has not left, so the node is kept by the core; HOOK was set by us.
        // ORDERING: Relaxed: the writer itself saw the pointer before it announced the hook.
        let node = unsafe { NodeRef::clone_raw(self.cancel().load(Ordering::Relaxed)) };
        // The hook is taken back before the result shows: whoever sees the result may hang another
        // writer's hook into the same node.
        let hook = node.as_ref().and_then(NodeRef::retire);
        if let Some(node) = &node {
            node.forget_waker();
        }
        // SAFETY: passed on. A HOOK in the word does not stand in the way of two additions.
        let settled = unsafe { self.settle_in_two_steps(last) };
        guarded(|| drop(hook));
        settled
    }

    // ---- cancellation ------------------------------------------------------------------------

    /// The cancel node; made if there is none yet.
    ///
    /// # Safety
    ///
    /// The caller has not left.
    pub(crate) unsafe fn node(self) -> NodeRef {
        // SAFETY: the caller has not left; the core's count keeps the node.
        unsafe {
            let cell = self.cancel();
            // ORDERING: Acquire pairs with the Release of whoever put the node there, below.
            let at = cell.load(Ordering::Acquire);
            if let Some(node) = NodeRef::clone_raw(at) {
                return node;
            }
            let node = NodeRef::new();
            match self.put_node(node.clone()) {
                Ok(()) => node,
                Err(other) => other,
            }
        }
    }

    /// Puts a node in, if there is none; else gives the one that is there.
    ///
    /// # Safety
    ///
    /// The caller has not left.
    pub(crate) unsafe fn put_node(self, node: NodeRef) -> Result<(), NodeRef> {
        let at = node.into_raw();
        // ORDERING: Release publishes the node to the other side's Acquire (here and in `node`).
        // Acquire on failure: the other side was first.
        // SAFETY: the caller has not left; a raw pointer carries the count that was put into it.
        unsafe {
            match self.cancel().compare_exchange(
                core::ptr::null_mut(),
                at,
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(_) => Ok(()),
                Err(there) => {
                    drop(NodeRef::from_raw(at));
                    match NodeRef::clone_raw(there) {
                        Some(node) => Err(node),
                        // Not null, or the exchange had not failed.
                        None => Ok(()),
                    }
                }
            }
        }
    }

    /// The node for a stage that is about to be hung on this core: shared, or moved on where nobody
    /// behind the reader needs it.
    ///
    /// # Safety
    ///
    /// Only by the reader, which has not left.
    pub(crate) unsafe fn node_for_stage(self) -> *mut () {
        // SAFETY: not left; `moves_node` never changes.
        unsafe {
            if (*self.0.as_ptr()).header.about.moves_node {
                // The writer is a stage that never looks for the node.
                // ORDERING: Relaxed: no other thread touches the pointer; `attach` publishes it.
                let at = self.cancel().load(Ordering::Relaxed);
                if !at.is_null() {
                    self.cancel().store(core::ptr::null_mut(), Ordering::Relaxed);
                    return at;
                }
            }
            self.node().into_raw()
        }
    }

    /// Whether there is a node, and it was cancelled.
    ///
    /// # Safety
    ///
    /// The caller has not left.
    #[inline]
    pub(crate) unsafe fn node_is_cancelled(self) -> bool {
        // ORDERING: Acquire pairs with the Release in `put_node`.
        // SAFETY: the caller has not left, so the core's count keeps the node.
        unsafe {
            let at = self.cancel().load(Ordering::Acquire);
            !at.is_null() && NodeRef::peek_raw(at)
        }
    }

    /// The node if there is one.
    ///
    /// # Safety
    ///
    /// The caller has not left.
    #[inline]
    pub(crate) unsafe fn node_if_any(self) -> Option<NodeRef> {
        // ORDERING: Acquire pairs with the Release in `put_node`.
        // SAFETY: the caller has not left.
        unsafe { NodeRef::clone_raw(self.cancel().load(Ordering::Acquire)) }
    }
}

/// # Safety
///
/// `node` carries a count, which is given up.
#[cold]
#[inline(never)]
unsafe fn drop_node(node: *mut ()) {
    // SAFETY: the caller's promise.
    drop(unsafe { NodeRef::from_raw(node) });
}

/// A waker's two words, not owned until somebody says so.
#[derive(Clone, Copy)]
pub(crate) struct CopiedWaker {
    data: *mut (),
    table: *mut (),
}

impl CopiedWaker {
    /// # Safety
    ///
    /// The words are a waker's, whole, and the slot does not own it any more.
    pub(crate) unsafe fn own(self) -> Waker {
        // SAFETY: the caller's promise: what `write_waker` took apart.
        unsafe { Waker::new(self.data, &*self.table.cast()) }
    }

    pub(crate) fn is_same_as(self, waker: &Waker) -> bool {
        let table = core::ptr::from_ref(waker.vtable());
        self.data.cast_const() == waker.data() && self.table.cast_const() == table.cast()
    }
}

const NO_WAKER: CopiedWaker =
    CopiedWaker { data: core::ptr::null_mut(), table: core::ptr::null_mut() };

/// Wakes whom the word named. The core may be gone: locals and an address only (R6).
#[inline]
fn wake(waker: CopiedWaker, seen: Word, futex: *const crate::sync::atomic::AtomicU32) {
    if seen.has_sleeper() {
        let _ = park::wake_one(futex);
    }
    if seen.has_slot() {
        // SAFETY: the words were copied, and the caller's RMW made the waker ours.
        let waker = unsafe { waker.own() };
        guarded(|| waker.wake());
    }
}

impl Last {
    #[inline(always)]
    pub(crate) fn of<T, E>(outcome: &Outcome<T, E>) -> Self {
        match outcome {
            Ok(_) => Self::Value,
            Err(EventualError::Failed(_)) => Self::Failed,
            Err(EventualError::Broken) => Self::Broken,
            Err(EventualError::Cancelled) => Self::Cancelled,
            Err(EventualError::TimedOut) => Self::TimedOut,
            Err(EventualError::Rejected) => Self::Rejected,
            Err(EventualError::Panicked(_)) => Self::Panicked,
            Err(EventualError::Taken) => Self::Taken,
        }
    }
}

const _: () = {
    assert!(size_of::<Payload<(), ()>>() >= 2 * size_of::<usize>());
    #[cfg(all(not(any(tenure_loom, tenure_shuttle)), target_pointer_width = "64"))]
    assert!(size_of::<Core<u64, u64>>() == 64);
};
