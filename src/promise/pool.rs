//! The pool: blocks that were cores, stages or callbacks, kept for the next.
//!
//! | where               | holds at most, a size class            | how it is reached                    |
//! |---------------------|----------------------------------------|--------------------------------------|
//! | the thread's lists  | two batches of 32 blocks               | no atomics, no lock                  |
//! | the shared overflow | 64 batches                             | a lock, once every 32 blocks at most |
//!
//! So a thread keeps at most 64 blocks a class (4, 8 and 16 KiB in the three classes), and the
//! process 2,048 a class beyond that (128, 256 and 512 KiB). What comes back beyond goes to the
//! allocator at once: nothing stays of a burst. A thread that ends hands its lists over;
//! [`trim_pool`] gives back what is kept.
//!
//! Blocks may be made on one thread and freed on another: batches travel through the overflow.
//!
//! Off in models, under Miri and with `--cfg tenure_sanitize`, so that those still see each core's
//! end; then every block comes from the allocator and goes back there. The models of the pool itself
//! switch it on ([`modelled`]).

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};
use std::alloc::{alloc, dealloc, handle_alloc_error};

use super::block::Class;
use crate::sync::cell::UnsafeCell;

#[cfg(not(tenure_loom))]
use here::{pooled, shared};
#[cfg(tenure_loom)]
use modelled::{pooled, shared};

/// Blocks a batch.
const BATCH: usize = if cfg!(tenure_loom) { 2 } else { 32 };
/// Batches a class that the overflow keeps.
const OVERFLOW: usize = if cfg!(tenure_loom) { 1 } else { 64 };
const CLASSES: usize = 3;

/// What lies in a block that nobody uses.
struct Free {
    next: UnsafeCell<*mut Free>,
}

impl Free {
    /// Makes a link of a block.
    ///
    /// # Safety
    ///
    /// The block is free, and the caller's.
    unsafe fn link(block: NonNull<u8>, next: *mut Self) -> *mut Self {
        let at = block.cast::<Self>().as_ptr();
        // SAFETY: the caller's promise; a block is larger than a link.
        unsafe {
            at.write(Self { next: UnsafeCell::new(ptr::null_mut()) });
            (*at).next.with_mut(|place| *place = next);
        }
        at
    }

    /// The link's content; the block is plain memory again.
    ///
    /// # Safety
    ///
    /// `link` made it, and it is the caller's.
    unsafe fn unlink(at: *mut Self) -> *mut Self {
        // SAFETY: the caller's promise.
        unsafe {
            let next = (*at).next.with(|place| *place);
            ptr::drop_in_place(at);
            next
        }
    }
}

/// A list of free blocks.
#[derive(Clone, Copy)]
struct Chain(*mut Free);

// SAFETY: the blocks in a chain belong to whoever has the chain.
unsafe impl Send for Chain {}

impl Chain {
    /// Gives every block to the allocator; says how many bytes that were.
    fn release(self, layout: Layout) -> usize {
        let mut bytes = 0;
        let mut at = self.0;
        while !at.is_null() {
            // SAFETY: free blocks of this class, each allocated with its layout, and ours alone.
            unsafe {
                let next = Free::unlink(at);
                dealloc(at.cast(), layout);
                at = next;
            }
            bytes += layout.size();
        }
        bytes
    }
}

/// One class's lists of one thread: one to push to and pop from, and a full one or none.
struct Lists {
    first: Cell<*mut Free>,
    /// Pushes that `first` still takes. Zero, too, while this thread keeps nothing.
    room: Cell<usize>,
    spare: Cell<*mut Free>,
}

impl Lists {
    const fn new() -> Self {
        Self {
            first: Cell::new(ptr::null_mut()),
            room: Cell::new(0),
            spare: Cell::new(ptr::null_mut()),
        }
    }

    fn take_all(&self) -> [Chain; 2] {
        [Chain(self.first.replace(ptr::null_mut())), Chain(self.spare.replace(ptr::null_mut()))]
    }
}

#[cfg(not(tenure_loom))]
std::thread_local! {
    // No destructor, so that reaching it is one address computation.
    static LISTS: [Lists; CLASSES] = const { [const { Lists::new() }; CLASSES] };
    // Made by a thread's first slow path; its destructor empties the lists.
    static KEEPER: Keeper = const { Keeper };
}
#[cfg(tenure_loom)]
crate::sync::thread_local! {
    // A model's thread-locals go all at once: these hand themselves over (see `modelled`).
    static LISTS: modelled::Lists = modelled::Lists::new();
    static KEEPER: () = ();
}

/// Hands this thread's blocks over when the thread ends.
#[cfg(not(tenure_loom))]
struct Keeper;

#[cfg(not(tenure_loom))]
impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = LISTS.try_with(hand_over);
    }
}

fn hand_over(lists: &[Lists; CLASSES]) {
    for (lists, class) in lists.iter().zip(Class::POOLED) {
        // From here on every push and pop of this thread takes the slow path, and finds no keeper.
        lists.room.set(0);
        let [first, spare] = lists.take_all();
        if !spare.0.is_null() {
            put(class, spare);
        }
        first.release(class.block_layout());
    }
}

/// The overflow: for each class its full batches.
type Overflow = [Vec<Chain>; CLASSES];

#[cfg(not(tenure_loom))]
mod here {
    use super::{CLASSES, Overflow};
    use crate::lock::{Unseen, UnseenGuard};

    /// Whether blocks are kept at all.
    pub(super) const fn pooled() -> bool {
        cfg!(not(any(tenure_shuttle, tenure_sanitize, miri)))
    }

    // A lock in a `static`: taken once a batch, held for a push or a pop of a `Vec` whose room
    // was reserved; no foreign code runs under it.
    static SHARED: Unseen<Overflow> = Unseen::new([const { Vec::new() }; CLASSES]);

    pub(super) fn shared() -> UnseenGuard<'static, Overflow> {
        SHARED.lock()
    }
}

/// The pool in a model: off, unless the model asks for it; batches of two, and one batch in the
/// overflow, so that few steps get everywhere.
#[cfg(tenure_loom)]
#[doc(hidden)]
pub mod modelled {
    use core::cell::{Cell, RefCell};
    use core::ops::Deref;
    use std::sync::Arc;

    use super::{CLASSES, Class, Overflow, hand_over};
    use crate::lock::{AdaptiveMutex, ArcAdaptiveMutexGuard};

    // A model's threads are one thread of the system: what is set here is the execution's.
    std::thread_local! {
        static ON: RefCell<Option<Arc<AdaptiveMutex<Overflow>>>> = const { RefCell::new(None) };
        static USED: Cell<bool> = const { Cell::new(false) };
    }

    /// The pool is on while this lives, from a model's first line to its last.
    #[derive(Debug)]
    pub struct Pool(());

    impl Pool {
        /// Switches the pool on for this execution.
        #[expect(clippy::new_without_default, reason = "it is a switch")]
        #[must_use]
        pub fn on() -> Self {
            let overflow = Arc::new(AdaptiveMutex::new([const { Vec::new() }; CLASSES]));
            ON.set(Some(overflow));
            USED.set(false);
            Self(())
        }

        /// What the end of a thread does with its lists: to be called as a model's thread's last line.
        pub fn end_of_thread() {
            let _ = super::LISTS.try_with(|lists| hand_over(lists));
        }

        /// Whether a block came out of the overflow: it was freed by one thread and is used by another.
        #[must_use]
        pub fn travelled(&self) -> bool {
            USED.get()
        }
    }

    impl Drop for Pool {
        fn drop(&mut self) {
            super::trim_pool();
            drop(ON.take());
        }
    }

    pub(super) fn pooled() -> bool {
        ON.with_borrow(Option::is_some)
    }

    pub(super) fn shared() -> ArcAdaptiveMutexGuard<Overflow> {
        let overflow = ON.with_borrow(|on| on.as_ref().map(Arc::clone));
        // Without a pool nobody asks; a thread that ends after the model's last line finds this.
        overflow.unwrap_or_default().lock_arc()
    }

    pub(super) fn note_use() {
        USED.set(true);
    }

    pub(super) struct Lists([super::Lists; CLASSES]);

    impl Lists {
        pub(super) fn new() -> Self {
            Self([const { super::Lists::new() }; CLASSES])
        }
    }

    impl Deref for Lists {
        type Target = [super::Lists; CLASSES];
        fn deref(&self) -> &Self::Target {
            &self.0
        }
    }

    impl Drop for Lists {
        fn drop(&mut self) {
            // Unlocked: a model's thread has nothing of its own left by now.
            for (lists, class) in self.0.iter().zip(Class::POOLED) {
                for chain in lists.take_all() {
                    chain.release(class.block_layout());
                }
            }
        }
    }
}

/// Gives a full batch to the overflow, or to the allocator.
#[cold]
fn put(class: Class, batch: Chain) {
    {
        let mut shared = shared();
        if let Some(batches) = shared.get_mut(class as usize)
            && batches.len() < OVERFLOW
        {
            if batches.capacity() == 0 {
                batches.reserve_exact(OVERFLOW);
            }
            batches.push(batch);
            return;
        }
    }
    batch.release(class.block_layout());
}

#[cold]
fn get(class: Class) -> Option<Chain> {
    let batch = shared().get_mut(class as usize)?.pop();
    #[cfg(tenure_loom)]
    if batch.is_some() {
        modelled::note_use();
    }
    batch
}

/// A block of this class.
#[inline]
pub(super) fn allocate(class: Class) -> NonNull<u8> {
    if pooled() {
        let found = LISTS.try_with(|lists| {
            let lists = lists.get(class as usize)?;
            let block = NonNull::new(lists.first.get())?;
            // SAFETY: a free block of ours.
            lists.first.set(unsafe { Free::unlink(block.as_ptr()) });
            lists.room.set(lists.room.get() + 1);
            Some(block)
        });
        if let Ok(Some(block)) = found {
            return block.cast();
        }
    }
    allocate_slow(class)
}

#[cold]
#[inline(never)]
fn allocate_slow(class: Class) -> NonNull<u8> {
    if pooled() && KEEPER.try_with(|_| ()).is_ok() {
        let found = LISTS.try_with(|lists| {
            let lists = lists.get(class as usize)?;
            // A full list of our own, or somebody's.
            let mut full = lists.spare.replace(ptr::null_mut());
            if full.is_null() {
                full = get(class)?.0;
            }
            let block = NonNull::new(full)?;
            // SAFETY: as in `allocate`.
            lists.first.set(unsafe { Free::unlink(block.as_ptr()) });
            lists.room.set(1);
            Some(block)
        });
        if let Ok(Some(block)) = found {
            return block.cast();
        }
    }
    system(class.block_layout())
}

/// # Safety
///
/// A block from `allocate(class)`, whose content is gone and which nobody touches again.
#[inline]
pub(super) unsafe fn free(block: NonNull<u8>, class: Class) {
    if pooled() {
        let kept = LISTS.try_with(|lists| {
            let Some(lists) = lists.get(class as usize) else { return false };
            let room = lists.room.get();
            if room == 0 {
                return false;
            }
            // SAFETY: the caller's promise: the block is ours.
            lists.first.set(unsafe { Free::link(block, lists.first.get()) });
            lists.room.set(room - 1);
            true
        });
        if let Ok(true) = kept {
            return;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { free_slow(block, class) };
}

/// # Safety
///
/// As `free`.
#[cold]
#[inline(never)]
unsafe fn free_slow(block: NonNull<u8>, class: Class) {
    if pooled() && KEEPER.try_with(|_| ()).is_ok() {
        let kept = LISTS.try_with(|lists| {
            let Some(lists) = lists.get(class as usize) else { return false };
            let full = lists.first.get();
            if !full.is_null() {
                let older = lists.spare.replace(full);
                if !older.is_null() {
                    put(class, Chain(older));
                }
            }
            // SAFETY: as in `free`.
            lists.first.set(unsafe { Free::link(block, ptr::null_mut()) });
            lists.room.set(BATCH - 1);
            true
        });
        if let Ok(true) = kept {
            return;
        }
    }
    // SAFETY: allocated with this layout.
    unsafe { dealloc(block.as_ptr(), class.block_layout()) };
}

/// Straight from the allocator. The size is not zero.
pub(super) fn system(layout: Layout) -> NonNull<u8> {
    // SAFETY: no caller asks for nothing.
    match NonNull::new(unsafe { alloc(layout) }) {
        Some(block) => block,
        None => handle_alloc_error(layout),
    }
}

/// Gives back to the allocator what the pool keeps: the shared overflow and this thread's lists.
/// Says how many bytes that were.
///
/// The pool is bounded without it: at most 28 KiB a thread and 896 KiB for the process. Other
/// threads keep their lists, until they end or trim themselves.
///
/// ```
/// let (promise, eventual) = tenure::promise::promise::<u32, ()>();
/// drop((promise, eventual));
/// tenure::promise::trim_pool();
/// assert_eq!(tenure::promise::trim_pool(), 0);
/// ```
pub fn trim_pool() -> usize {
    if !pooled() {
        return 0;
    }
    let mut bytes = 0;
    for class in Class::POOLED {
        let layout = class.block_layout();
        let _ = LISTS.try_with(|lists| {
            if let Some(lists) = lists.get(class as usize) {
                let keeps = KEEPER.try_with(|_| ()).is_ok();
                for chain in lists.take_all() {
                    bytes += chain.release(layout);
                }
                lists.room.set(if keeps { BATCH } else { 0 });
            }
        });
        let batches = shared().get_mut(class as usize).map(core::mem::take);
        for batch in batches.unwrap_or_default() {
            bytes += batch.release(layout);
        }
    }
    bytes
}
