//! A lock, and the barrier behind it, in the child of a `fork`.
//!
//! A binary of its own: the parent forks while it has contended locks and several threads.

#![cfg(unix)]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tenure::lock::AdaptiveMutex;

/// Contends for a lock until somebody has slept on it, many times over.
fn contend() {
    let lock = Arc::new(AdaptiveMutex::new(0_u32));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                for _ in 0..2_000 {
                    let mut value = lock.lock();
                    *value += 1;
                    if value.is_multiple_of(100) {
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(*lock.lock(), 8_000);
}

#[test]
fn locks_work_in_a_forked_child_and_in_its_parent() {
    static HELD: AdaptiveMutex<u32> = AdaptiveMutex::new(7);
    contend();
    let guard = HELD.lock();
    // SAFETY: the child calls `_exit` and nothing that another thread's lock could block: no other
    // thread runs now, and allocation in the child is what a C library with its own fork handling
    // allows.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork");
    if child == 0 {
        // The guard was copied along: the child owns its copy of the lock.
        drop(guard);
        let fine = std::panic::catch_unwind(|| {
            contend();
            assert_eq!(*HELD.lock(), 7);
        });
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(i32::from(fine.is_err())) };
    }
    drop(guard);
    contend();
    assert_eq!(*HELD.lock(), 7);
    let give_up = Instant::now() + Duration::from_secs(60);
    loop {
        let mut status = 0;
        // SAFETY: a place for the answer that lives in this frame.
        let waited = unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) };
        if waited == child {
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status}");
            return;
        }
        if Instant::now() > give_up {
            // SAFETY: our own child, which has not been waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            panic!("the child hangs");
        }
        thread::yield_now();
    }
}
