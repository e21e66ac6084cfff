//! A queue of sleepers in the model.
//!
//! **One step.** A futex compares the word and queues the thread in one step. Here too: the look at
//! the word, the push and the park have no point between them at which loom could switch.
//!
//! **Both orders.** Whether a wake finds a sleeper depends on the queue, which loom cannot see. So
//! each push and each wake also touch a loom atomic of that address (its bucket), `Relaxed`: the
//! search then tries "wake, then push" as well as "push, then wake", also where the word itself
//! would not tell the two apart. The push's touch is fused to the look at the word by not
//! exploring switches between the two.
//!
//! **An old value.** The kernel's compare is a load: it may see a value that another thread has
//! replaced, while that store is on its way. What it cannot miss is a store whose maker has woken
//! the address since. So the compare here is a load, too, and takes the newest value only where a
//! wake came between.
//!
//! **An edge too many.** Loom's `unpark` makes all that the waker did visible to the woken thread; a
//! futex gives no such edge. A fault in the ordering of the load after a wait would hide behind
//! it. Hence the early wakes of a model's second pass: a wait that returns early has no edge.

use core::panic::Location;
use core::time::Duration;

use super::super::{Wait, site};
use super::atomic::{AtomicU32, Ordering};
use super::execution::{self, Sleeper};

/// Sleeps while `*word == expected`. A timeout fires at once or never, as the model asks.
#[track_caller]
pub(crate) fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wait {
    let execution = execution::current();
    let recheck = !site::drop_recheck(Location::caller());
    if execution.wakes_early() {
        return Wait::Changed;
    }
    let key = core::ptr::from_ref(word).addr();
    let seen = word.compared(|| execution.woken(key));
    if recheck && seen != expected {
        return Wait::Changed;
    }
    if timeout.is_some()
        && let Some(others_first) = execution.times_out()
    {
        if others_first {
            loom::thread::yield_now();
        }
        return Wait::TimedOut;
    }
    loom::stop_exploring();
    // ORDERING: Relaxed: only for the search; no edge.
    execution.bucket(key).fetch_add(1, Ordering::Relaxed);
    loom::explore();
    let ticket = execution.ticket.replace(execution.ticket.get() + 1);
    let thread = loom::thread::current();
    execution.sleepers.borrow_mut().push(Sleeper { key, ticket, thread });
    loom::thread::park();
    // Woken by someone who found the entry, or early: then the entry is still there.
    let mut sleepers = execution.sleepers.borrow_mut();
    let before = sleepers.len();
    sleepers.retain(|sleeper| sleeper.ticket != ticket);
    if sleepers.len() == before { Wait::Woken } else { Wait::Changed }
}

/// Wakes one sleeper on this address; says how many it woke (0 or 1).
#[track_caller]
pub(crate) fn wake_one(word: *const AtomicU32) -> usize {
    wake(Location::caller(), word.addr(), 1)
}

/// Wakes every sleeper on this address; says how many.
#[allow(dead_code, reason = "the door offers the same verbs in every world")]
#[track_caller]
pub(crate) fn wake_all(word: *const AtomicU32) -> usize {
    wake(Location::caller(), word.addr(), usize::MAX)
}

fn wake(caller: &'static Location<'static>, key: usize, most: usize) -> usize {
    if site::drop_wake(caller) {
        return 0;
    }
    let execution = execution::current();
    // The word itself may be gone: touch the bucket, so that loom explores the gap between the
    // release and the wake.
    // ORDERING: Relaxed: only for the search; no edge.
    execution.bucket(key).fetch_add(1, Ordering::Relaxed);
    execution.wakes(key);
    let mut woken = Vec::new();
    {
        let mut sleepers = execution.sleepers.borrow_mut();
        while woken.len() < most {
            let Some(at) = sleepers.iter().position(|sleeper| sleeper.key == key) else {
                break;
            };
            woken.push(sleepers.remove(at).thread);
        }
    }
    for thread in &woken {
        thread.unpark();
    }
    woken.len()
}
