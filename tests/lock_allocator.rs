//! The lock inside the allocator: its slow paths must not allocate, or they would come back to
//! themselves.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tenure::lock::AdaptiveMutex;

/// Allocations since the start, counted under the lock.
struct Counting {
    count: AdaptiveMutex<u64>,
    /// The same, counted without it.
    check: AtomicU64,
}

impl Counting {
    fn enter(&self) {
        let mut count = self.count.lock();
        *count += 1;
        // Long enough for others to spin, and now and then to sleep.
        if count.is_multiple_of(64) {
            (0..2_000).for_each(|_| std::hint::spin_loop());
        }
        self.check.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.enter();
        // SAFETY: the caller's layout, as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        self.enter();
        // SAFETY: what `alloc` gave out, with its layout.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting { count: AdaptiveMutex::new(0), check: AtomicU64::new(0) };

#[test]
fn an_allocator_can_lock_it_from_many_threads() {
    let before = ALLOCATOR.check.load(Ordering::Relaxed);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for size in 1..2_000 {
                    std::hint::black_box(vec![0_u8; size % 300 + 1]);
                }
            });
        }
    });
    let count = *ALLOCATOR.count.lock();
    assert!(count >= before + 8 * 2 * 1_999);
    assert!(ALLOCATOR.check.load(Ordering::Relaxed) >= count);
}
