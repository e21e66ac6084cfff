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
//! end; then every block comes from the allocator and goes back there.

use core::alloc::Layout;
use core::cell::Cell;
use core::ptr::{self, NonNull};
use std::alloc::{alloc, dealloc, handle_alloc_error};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::block::Class;

/// Blocks a batch.
const BATCH: usize = 32;
/// Batches a class that the overflow keeps.
const OVERFLOW: usize = 64;
const CLASSES: usize = 3;

/// Whether blocks are kept at all.
const POOLED: bool = cfg!(not(any(tenure_loom, tenure_shuttle, tenure_sanitize, miri)));

/// What lies in a block that nobody uses.
struct Free {
    next: *mut Free,
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
                let next = (*at).next;
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

std::thread_local! {
    // No destructor, so that reaching it is one address computation.
    static LISTS: [Lists; CLASSES] = const { [const { Lists::new() }; CLASSES] };
    // Made by a thread's first slow path; its destructor empties the lists.
    static KEEPER: Keeper = const { Keeper };
}

/// Hands this thread's blocks over when the thread ends.
struct Keeper;

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = LISTS.try_with(|lists| {
            for (lists, class) in lists.iter().zip(Class::POOLED) {
                // From here on every push and pop of this thread takes the slow path, and finds no
                // keeper.
                lists.room.set(0);
                let [first, spare] = lists.take_all();
                if !spare.0.is_null() {
                    put(class, spare);
                }
                first.release(class.block_layout());
            }
        });
    }
}

// A `std` lock in a `static`: taken once a batch, held for a push or a pop of a `Vec` whose room was
// reserved; no foreign code runs under it.
static SHARED: Mutex<[Vec<Chain>; CLASSES]> = Mutex::new([const { Vec::new() }; CLASSES]);

fn shared() -> MutexGuard<'static, [Vec<Chain>; CLASSES]> {
    SHARED.lock().unwrap_or_else(PoisonError::into_inner)
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
    shared().get_mut(class as usize)?.pop()
}

/// A block of this class.
#[inline]
pub(super) fn allocate(class: Class) -> NonNull<u8> {
    if POOLED {
        let found = LISTS.try_with(|lists| {
            let lists = lists.get(class as usize)?;
            let block = NonNull::new(lists.first.get())?;
            // SAFETY: a free block of ours: its first word is the link.
            lists.first.set(unsafe { block.as_ref().next });
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
    if POOLED && KEEPER.try_with(|_| ()).is_ok() {
        let found = LISTS.try_with(|lists| {
            let lists = lists.get(class as usize)?;
            // A full list of our own, or somebody's.
            let mut full = lists.spare.replace(ptr::null_mut());
            if full.is_null() {
                full = get(class)?.0;
            }
            let block = NonNull::new(full)?;
            // SAFETY: as in `allocate`.
            lists.first.set(unsafe { block.as_ref().next });
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
    if POOLED {
        let kept = LISTS.try_with(|lists| {
            let Some(lists) = lists.get(class as usize) else { return false };
            let room = lists.room.get();
            if room == 0 {
                return false;
            }
            // SAFETY: the caller's promise: the block is ours, and larger than a link.
            unsafe { block.cast::<Free>().write(Free { next: lists.first.get() }) };
            lists.first.set(block.as_ptr().cast());
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
    if POOLED && KEEPER.try_with(|_| ()).is_ok() {
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
            unsafe { block.cast::<Free>().write(Free { next: ptr::null_mut() }) };
            lists.first.set(block.as_ptr().cast());
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
    if !POOLED {
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
