//! Memory for cores, stages and callbacks, by size class.
//!
//! A class is one, two or four cache lines, aligned to a line; what is larger, or more strictly
//! aligned, comes from the allocator as it is.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::alloc::{alloc, dealloc, handle_alloc_error};

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
}

impl Class {
    /// The smallest class that holds `layout`.
    pub(crate) const fn of(layout: Layout) -> Self {
        if layout.align() > 64 {
            return Self::Exact;
        }
        match layout.size() {
            0..=64 => Self::Line,
            65..=128 => Self::Two,
            129..=256 => Self::Four,
            _ => Self::Exact,
        }
    }

    /// The layout of a block of this class that holds `exact`.
    const fn layout(self, exact: Layout) -> Layout {
        let size = match self {
            Self::Line => 64,
            Self::Two => 128,
            Self::Four => 256,
            Self::Exact => return exact,
        };
        match Layout::from_size_align(size, 64) {
            Ok(layout) => layout,
            Err(_) => exact,
        }
    }
}

/// A block for one `B`, not initialised.
#[inline]
pub(crate) fn allocate<B>() -> NonNull<B> {
    let layout = const { Class::of(Layout::new::<B>()).layout(Layout::new::<B>()) };
    if layout.size() == 0 {
        return NonNull::dangling();
    }
    // SAFETY: the size is not zero.
    match NonNull::new(unsafe { alloc(layout) }) {
        Some(block) => block.cast(),
        None => handle_alloc_error(layout),
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
    let layout = class.layout(Layout::new::<B>());
    if layout.size() != 0 {
        // SAFETY: the caller's promise: the same layout as in `allocate`.
        unsafe { dealloc(block.as_ptr().cast(), layout) };
    }
}
