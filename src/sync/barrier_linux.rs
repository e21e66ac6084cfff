//! An asymmetric fence: the rare side pays for the frequent one.
//!
//! [`light`] stops the compiler only. [`heavy`] makes every running thread of the process pass a
//! full memory barrier before it returns (`membarrier`, private expedited: the kernel interrupts
//! exactly the processors that run this process).
//!
//! The kernel wants to be told beforehand. Told while the process has one thread, that is free;
//! told later, it waits for a grace period (13–19 ms measured). So the linker is asked to run the
//! registration before `main`; where that did not happen, the first user registers on its own time
//! and everybody else is told "not now" meanwhile. A registration survives `fork`.

use super::atomic::{AtomicU32, Ordering, compiler_fence};

/// The frequent side: program order is kept by the compiler, and that is all.
#[inline(always)]
pub(crate) fn light() {
    // ORDERING: SeqCst for the compiler alone: a store before stays before a load after; the other
    // side's `heavy` does the rest.
    compiler_fence(Ordering::SeqCst);
}

/// Nobody has asked the kernel yet.
const UNASKED: u32 = 0;
/// One thread is asking.
const ASKING: u32 = 1;
/// The kernel knows this process.
const REGISTERED: u32 = 2;
/// The kernel has no such fence, or a filter forbids it.
const REFUSED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(UNASKED);

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes three integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

fn register() -> bool {
    let known = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    // ORDERING: Relaxed: the state guards no memory; a stale reading costs one refused syscall.
    STATE.store(if known { REGISTERED } else { REFUSED }, Ordering::Relaxed);
    known
}

/// The rare side: when this returns true, every thread of the process has passed a full barrier
/// since the call began. False: it did not happen, now or ever.
#[cold]
pub(crate) fn heavy() -> bool {
    // ORDERING: Relaxed: see `register`.
    match STATE.load(Ordering::Relaxed) {
        REGISTERED => membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED),
        UNASKED
            // ORDERING: Relaxed: elects one asker and publishes nothing else.
            if STATE
                .compare_exchange(UNASKED, ASKING, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok() =>
        {
            register() && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
        }
        // Somebody is asking, or the kernel has said no.
        _ => false,
    }
}

/// Runs before `main`, while there is one thread and the registration is free.
extern "C" fn register_early() {
    register();
}

// SAFETY: the section holds pointers to functions of this signature (the loader passes arguments
// that the C convention lets us ignore); the function makes one system call and one atomic store,
// and needs nothing that is set up later.
#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER_EARLY: extern "C" fn() = register_early;
