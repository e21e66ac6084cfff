//! Waiting on a word: Linux futexes, private to the process, straight on the caller's word.
//!
//! No table, no allocation, no thread handle: it works in an allocator, after a fork, and while
//! thread-locals are being torn down. The kernel compares and sleeps in one step under its own
//! lock of the word's bucket, so a wake between the caller's last look and its sleep is not lost.

use core::time::Duration;

use super::super::Wait;
use super::atomic::AtomicU32;

/// Sleeps while `*word == expected`, for at most `timeout` (`None`: for as long as it takes).
///
/// Adds no ordering: re-read the word with the ordering you need.
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wait {
    // A relative time the kernel cannot hold is as good as for ever; it returns early at worst.
    let limit = timeout.and_then(|t| {
        Some(libc::timespec {
            tv_sec: libc::time_t::try_from(t.as_secs()).ok()?,
            // Below 1_000_000_000, so it fits every width that the field has.
            tv_nsec: t.subsec_nanos() as _,
        })
    });
    let limit_ptr = limit.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: the word is borrowed for the whole call, the time is null or lives in this frame, and
    // FUTEX_WAIT reads no further argument.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_futex,
            core::ptr::from_ref(word),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            limit_ptr,
        )
    } < 0;
    if !failed {
        return Wait::Woken;
    }
    // SAFETY: the C library's own slot for this thread's errno.
    match unsafe { *libc::__errno_location() } {
        libc::ETIMEDOUT => Wait::TimedOut,
        // EAGAIN, EINTR, or a time that the kernel found too large: nobody's wake was spent on us.
        _ => Wait::Changed,
    }
}

/// Wakes one thread that sleeps on this address; says how many it woke (0 or 1).
///
/// The address is never read: the word may be gone by now.
pub(crate) fn wake_one(word: *const AtomicU32) -> usize {
    wake(word, 1)
}

/// Wakes every thread that sleeps on this address; says how many.
#[allow(dead_code, reason = "the door offers the same verbs in every world")]
pub(crate) fn wake_all(word: *const AtomicU32) -> usize {
    wake(word, i32::MAX)
}

fn wake(word: *const AtomicU32, most: i32) -> usize {
    // SAFETY: FUTEX_WAKE (private) uses the address as a key only and reads nothing behind it.
    let woken = unsafe {
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, most)
    };
    usize::try_from(woken).unwrap_or(0)
}
