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
//! | `about`   | nobody after construction                          | anybody                          |
//! | `about.forwards` | as `work`                                   | the sole owner                   |
//!
//! "Sole owner" is the side that saw the other's GONE bit with Acquire.

mod closure;
mod home;
mod leave;
mod node;
mod payload;

use core::alloc::Layout;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;
use core::task::Waker;

use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::cell::UnsafeCell;

use super::block::{self, Class};
use super::error::{EventualError, PanicPayload};
use super::state::{Last, StateCell};
use super::trampoline::Work;
#[cfg(any(tenure_loom, tenure_shuttle))]
use super::trampoline::run_nothing;

pub(super) use home::Home;
pub(crate) use leave::Settled;

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

/// What never changes about a core, but for one mark.
#[repr(C, align(4))]
struct About {
    class: Class,
    moves_node: bool,
    /// What lies in the slot passes the outcome on to a core of the same type, unchanged.
    forwards: UnsafeCell<bool>,
    pad: u8,
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
            (&raw mut (*header).about).write(About {
                class,
                moves_node,
                forwards: UnsafeCell::new(false),
                pad: 0,
            });
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

    /// # Safety
    ///
    /// The caller may write the slot.
    pub(crate) unsafe fn set_run(self, run: super::trampoline::RunFn) {
        // SAFETY: the caller's promise; the work alone is borrowed.
        unsafe { &(*self.0.as_ptr()).header.work }.set_run(run);
    }

    /// Says that what lies in the slot only passes the outcome on to `to`.
    ///
    /// # Safety
    ///
    /// The caller may write the slot.
    pub(crate) unsafe fn set_forwards(self, to: Self) {
        // SAFETY: the caller's promise; the mark goes with the slot.
        unsafe {
            self.set_slot_pointer(to.as_ptr());
            (*self.0.as_ptr()).header.about.forwards.with_mut(|at| *at = true);
        }
    }

    /// The core that this one will pass its outcome on to, unchanged, if its reader left just that. Then
    /// this core is the caller's alone, and the caller is that one's writer.
    ///
    /// # Safety
    ///
    /// Only by the writer, before it settles.
    pub(crate) unsafe fn forwards_to(self) -> Option<Self> {
        // SAFETY: the writer has not left. A reader that has left, with something in the slot, was seen
        // with Acquire: the core is ours alone; whoever owns a forwarding is the writer of the core
        // that it points to.
        unsafe {
            let seen = self.state().peek();
            let left = seen.reader_left() && seen.has_slot();
            (left && (*self.0.as_ptr()).header.about.forwards.with(|at| *at))
                .then(|| Self::from_ptr(self.slot_pointer()))
        }
    }
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

const _: () = {
    assert!(size_of::<Payload<(), ()>>() >= 2 * size_of::<usize>());
    #[cfg(all(not(any(tenure_loom, tenure_shuttle)), target_pointer_width = "64"))]
    assert!(size_of::<Core<u64, u64>>() == 64);
};
