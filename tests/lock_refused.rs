//! The locks where the system refuses the asymmetric fence: a filter forbids the call.
//!
//! A binary of its own: the filter stays for good.

#![cfg(all(target_os = "linux", target_endian = "little"))]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tenure::lock::AdaptiveMutex;

/// From here on `membarrier` fails in this thread and in those that it spawns.
fn forbid_membarrier() -> bool {
    let step = |code: u32, skip_if_false: u8, value: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skip_if_false,
        k: value,
    };
    let number = u32::try_from(libc::SYS_membarrier).expect("a small number");
    let refuse = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::EPERM).expect("a small number");
    let mut filter = [
        // The call's number is the first field of what the filter is shown.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number),
        step(libc::BPF_RET | libc::BPF_K, 0, refuse),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the filter and its program live in this frame; the kernel copies them.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
    }
}

fn membarrier_works() -> bool {
    // SAFETY: takes three integers and touches no memory of ours.
    unsafe {
        libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0
    }
}

#[test]
fn without_the_barrier_sleepers_look_for_themselves() {
    if !forbid_membarrier() {
        eprintln!("NOT RUN: this system does not let a process filter its own calls");
        return;
    }
    assert!(!membarrier_works());
    let lock = AdaptiveMutex::new((0_u64, 0_u64));
    let over = AtomicBool::new(false);
    let turns: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u64)
            .map(|id| {
                let (lock, over) = (&lock, &over);
                scope.spawn(move || {
                    assert!(!membarrier_works());
                    let mut random = fastrand::Rng::with_seed(id);
                    let mut turns = 0;
                    while !over.load(Ordering::Relaxed) {
                        let mut pair = lock.lock();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        // Some hold on for so long that the others sleep; between crowds the lock
                        // is quiet for long enough to leave contended mode.
                        if random.u32(..4_000) == 0 {
                            thread::sleep(Duration::from_micros(300));
                        }
                        pair.1 += 1;
                        drop(pair);
                        turns += 1;
                    }
                    turns
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(600));
        over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert_eq!(lock.into_inner(), (turns, turns));
    assert!(turns > 0);
}
