//! What an idle key costs: everything that the table allocates for it, beside the key and one value.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure::lease::LeaseTable;

struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator; the counter touches no memory of theirs.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn an_idle_key_is_small() {
    const KEYS: u64 = 100_000;
    let before = BYTES.load(Ordering::Relaxed);
    let table: LeaseTable<u64, u64> = LeaseTable::new();
    for key in 0..KEYS {
        drop(table.handle(&key).expect("open"));
    }
    let each = (BYTES.load(Ordering::Relaxed) - before) as f64 / KEYS as f64;
    let beside = each - 16.0;
    println!("{each:.1} bytes a key, {beside:.1} beside key and value");
    // The slot is 88 bytes with key, value and the value's second place; the index adds its share.
    assert!(beside <= 96.0);
}
