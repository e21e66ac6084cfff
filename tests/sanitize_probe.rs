//! What `.ci/sanitize` says of its AddressSanitizer runs, checked from inside them: the sanitizer is
//! armed, and promises' cores go back to the allocator (`address`) or stay in the pool
//! (`address-pooled`). In an ordinary run only the pool is asked.

use tenure::promise::{promise, trim_pool};

/// Whether this build's cores come from the pool.
const POOLED: bool = cfg!(not(any(tenure_loom, tenure_shuttle, tenure_sanitize, miri)));

#[test]
fn the_pool_keeps_a_core_or_does_not_as_the_build_says() {
    // One thread, and nobody else's cores: each test has a thread, and thus lists, of its own.
    let _ = trim_pool();
    drop(promise::<[u64; 4], ()>());
    let kept = trim_pool();
    assert_eq!(kept > 0, POOLED, "{kept} bytes were kept");
}

#[cfg(tenure_asan)]
mod armed {
    use core::ffi::{c_int, c_void};
    use std::hint::black_box;

    use super::{POOLED, promise};

    // SAFETY: functions of AddressSanitizer's run-time library, as its header declares them.
    unsafe extern "C" {
        safe fn __asan_address_is_poisoned(at: *const c_void) -> c_int;
    }

    #[test]
    fn freed_memory_is_poisoned() {
        let freed = Box::into_raw(Box::new([7_u64; 4]));
        assert_eq!(__asan_address_is_poisoned(black_box(freed).cast()), 0);
        // SAFETY: from `into_raw`, once.
        drop(unsafe { Box::from_raw(freed) });
        assert_eq!(__asan_address_is_poisoned(black_box(freed).cast()), 1);
    }

    /// A late access to a core is reported where the pool is off, and is not where it is on: why both
    /// runs are needed.
    #[test]
    fn a_freed_core_is_poisoned_unless_the_pool_has_it() {
        let (promise, eventual) = promise::<[u64; 4], ()>();
        assert_eq!(size_of_val(&promise), size_of::<*const c_void>());
        // SAFETY: a promise is one pointer, to its core (the size says as much); it is only looked at.
        let core: *const c_void = unsafe { core::mem::transmute_copy(&promise) };
        assert_eq!(__asan_address_is_poisoned(core), 0);
        drop((promise, eventual));
        assert_eq!(__asan_address_is_poisoned(black_box(core)) == 0, POOLED);
    }
}
