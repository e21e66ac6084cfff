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

/// Bytes a key, beside key and value, of a table with `keys` keys that were never taken.
fn each(keys: u64) -> f64 {
    let before = BYTES.load(Ordering::Relaxed);
    let table: LeaseTable<u64, u64> = LeaseTable::<u64, u64>::builder().shards(32).build();
    for key in 0..keys {
        drop(table.handle(&key).expect("open"));
    }
    (BYTES.load(Ordering::Relaxed) - before) as f64 / keys as f64 - 16.0
}

/// A slot is 48 bytes beside key and value (the value's second place included); the index adds 10 bytes
/// when its tables are full and 21 when they have just doubled. So it is the mean over a doubling that
/// says what a key costs.
#[test]
fn an_idle_key_is_small() {
    let (mut sum, mut most) = (0.0, 0.0_f64);
    const STEPS: i32 = 8;
    for step in 0..STEPS {
        let keys = 57_344.0 * 2_f64.powf((f64::from(step) + 0.5) / f64::from(STEPS));
        let beside = each(keys as u64);
        println!("{keys:.0} keys: {beside:.1} bytes each beside key and value");
        sum += beside;
        most = most.max(beside);
    }
    let mean = sum / f64::from(STEPS);
    println!("{:.1} with 100,000 keys; {mean:.1} in the mean, {most:.1} at most", each(100_000));
    assert!(mean <= 64.0 && most <= 70.0);
}
