//! Memory for cores, stages and callbacks, by size class.
//!
//! A class is one, two or four cache lines, aligned to a line, and comes from the
//! [pool](super::pool); what is larger, or more strictly aligned, comes from the allocator as it is.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::dealloc;

use super::pool;

/// What every block of a class is aligned to: a line, so that no two share one; where blocks are not kept,
/// what allocators give without searching.
const ALIGN: usize = if cfg!(any(tenure_sanitize, miri)) { 16 } else { 64 };

/// Where a block came from, and so where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Class {
    /// One cache line.
    Line,
    /// Two.
    Two,
    /// Four.
    Four,
    /// The allocator, with the layout of what lies in it.
    Exact,
    /// Part of something else, which is told.
    Homed,
}

impl Class {
    /// The classes that the pool keeps, in the order of their numbers.
    pub(super) const POOLED: [Self; 3] = [Self::Line, Self::Two, Self::Four];

    /// The smallest class that holds `layout`.
    pub(crate) const fn of(layout: Layout) -> Self {
        if layout.align() > ALIGN {
            return Self::Exact;
        }
        match layout.size() {
            0..=64 => Self::Line,
            65..=128 => Self::Two,
            129..=256 => Self::Four,
            _ => Self::Exact,
        }
    }

    /// The layout of a pooled block of this class. `Exact` and `Homed` have none; not asked for it.
    pub(super) const fn block_layout(self) -> Layout {
        let size = match self {
            Self::Line => 64,
            Self::Two => 128,
            Self::Four | Self::Exact | Self::Homed => 256,
        };
        match Layout::from_size_align(size, ALIGN) {
            Ok(layout) => layout,
            // Not so: a power of two, and small.
            Err(_) => Layout::new::<u8>(),
        }
    }
}

/// A block for one `B`, not initialised.
#[inline]
pub(crate) fn allocate<B>() -> NonNull<B> {
    match const { Class::of(Layout::new::<B>()) } {
        // Not of size zero: it is too large or too aligned for a class, and what is merely too
        // aligned is at least a line, unless empty.
        Class::Exact if size_of::<B>() == 0 => NonNull::dangling(),
        Class::Exact => pool::system(Layout::new::<B>()).cast(),
        // `of` never says `Homed`.
        class @ (Class::Line | Class::Two | Class::Four | Class::Homed) => {
            pool::allocate(class).cast()
        }
    }
}

/// Gives a block back.
///
/// # Safety
///
/// The block was allocated with this class (for `Exact`: as this `B`), its content is gone, and
/// nobody touches it again.
#[inline]
pub(crate) unsafe fn free<B>(block: NonNull<B>, class: Class) {
    match class {
        Class::Exact if size_of::<B>() == 0 => {}
        // SAFETY: the caller's promise: the layout of `allocate`.
        Class::Exact => unsafe { dealloc(block.as_ptr().cast(), Layout::new::<B>()) },
        // Not ours: see `Home`.
        Class::Homed => {}
        // SAFETY: the caller's promise.
        Class::Line | Class::Two | Class::Four => unsafe { pool::free(block.cast(), class) },
    }
}
