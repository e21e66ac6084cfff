//! Promise × eventual: every pair of operations that can race, one model a pair.
//!
//! [`CELLS`] names the model of each cell: what the writer may do × what the reader may do.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::thread;
use tenure::promise::{Eventual, EventualError, Outcome, Promise, promise};

/// What is handed over: loom watches each access, and drops are counted.
#[derive(Debug)]
pub struct Value {
    cell: UnsafeCell<u32>,
    drops: Arc<AtomicUsize>,
}

impl Value {
    fn read(&self) -> u32 {
        // SAFETY: whoever has the value has it alone; loom checks.
        self.cell.with(|at| unsafe { *at })
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: as in `read`.
        self.cell.with_mut(|at| unsafe { *at = 0 });
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// A waker that loom watches: its own cell is read at each wake, and it counts its references.
struct Watch {
    cell: UnsafeCell<u32>,
    wakes: AtomicUsize,
}

// SAFETY: loom checks the cell.
unsafe impl Sync for Watch {}
// SAFETY: as above.
unsafe impl Send for Watch {}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        // SAFETY: only written before it was shared; loom checks that.
        self.cell.with(|at| assert_eq!(unsafe { *at }, 7));
        self.wakes.fetch_add(1, Ordering::Relaxed);
    }
}

fn watch() -> (Arc<Watch>, Waker) {
    let watch = Arc::new(Watch { cell: UnsafeCell::new(0), wakes: AtomicUsize::new(0) });
    // SAFETY: not shared yet.
    watch.cell.with_mut(|at| unsafe { *at = 7 });
    (Arc::clone(&watch), Waker::from(watch))
}

type W = Promise<Value, Value>;
type R = Eventual<Value, Value>;

/// One script a side; how many values there were, and what has to hold at the end.
fn race(writer: fn(W, Value), reader: fn(R)) {
    let drops = Arc::new(AtomicUsize::new(0));
    let value = Value { cell: UnsafeCell::new(0), drops: Arc::clone(&drops) };
    let (p, e) = promise();
    let writer = thread::spawn(move || {
        // SAFETY: the writer's alone so far.
        value.cell.with_mut(|at| unsafe { *at = 42 });
        writer(p, value);
    });
    let reader = thread::spawn(move || reader(e));
    writer.join().unwrap();
    reader.join().unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 1, "the value is dropped once");
}

fn good(outcome: Outcome<Value, Value>) {
    match outcome {
        Ok(value) | Err(EventualError::Failed(value)) => assert_eq!(value.read(), 42),
        Err(EventualError::Broken | EventualError::Cancelled) => {}
        Err(EventualError::Panicked(payload)) => panic!("{payload}"),
        Err(EventualError::TimedOut | EventualError::Rejected | EventualError::Taken) => {
            panic!("an outcome that nobody set")
        }
    }
}

// ---- the writer's scripts -------------------------------------------------------------------

fn set(p: W, value: Value) {
    if let Err(back) = p.set(value) {
        assert_eq!(back.into_inner().read(), 42);
    }
}

fn set_error(p: W, value: Value) {
    if let Err(back) = p.set_error(value) {
        assert_eq!(back.into_inner().read(), 42);
    }
}

fn drop_writer(p: W, _value: Value) {
    drop(p);
}

fn hook_and_set(mut p: W, value: Value) {
    let (_watched, waker) = watch();
    p.on_cancel(move || waker.wake());
    set(p, value);
}

fn hook_and_drop(mut p: W, _value: Value) {
    let (_watched, waker) = watch();
    p.on_cancel(move || waker.wake());
    drop(p);
}

// ---- the reader's scripts -------------------------------------------------------------------

fn poll(e: &mut R, waker: &Waker) -> Poll<Outcome<Value, Value>> {
    Pin::new(e).poll(&mut Context::from_waker(waker))
}

/// Polls once; if pending, a wake must come before the outcome can be had.
fn poll_once(mut e: R) {
    let (watched, waker) = watch();
    match poll(&mut e, &waker) {
        Poll::Ready(outcome) => good(outcome),
        Poll::Pending => good(e.get()),
    }
    drop(waker);
    let _ = watched.wakes.load(Ordering::Relaxed);
}

/// Polls with two wakers.
fn poll_again(mut e: R) {
    for _ in 0..2 {
        let (_watched, waker) = watch();
        if let Poll::Ready(outcome) = poll(&mut e, &waker) {
            return good(outcome);
        }
    }
    if let Some(outcome) = e.try_get() {
        good(outcome);
    }
}

fn poll_thrice(mut e: R) {
    for _ in 0..3 {
        let (_watched, waker) = watch();
        if let Poll::Ready(outcome) = poll(&mut e, &waker) {
            return good(outcome);
        }
    }
}

fn get(e: R) {
    good(e.get());
}

fn get_timeout(mut e: R) {
    match e.get_timeout(Duration::MAX / 2) {
        Err(EventualError::TimedOut) => {
            if let Some(outcome) = e.try_get() {
                good(outcome);
            }
        }
        outcome => good(outcome),
    }
}

fn try_get(mut e: R) {
    if let Some(outcome) = e.try_get() {
        good(outcome);
    }
}

fn drop_reader(e: R) {
    drop(e);
}

fn poll_and_drop(mut e: R) {
    let (watched, waker) = watch();
    if let Poll::Ready(outcome) = poll(&mut e, &waker) {
        good(outcome);
    }
    drop(e);
    drop(waker);
    drop(watched);
}

fn detach(e: R) {
    e.detach();
}

fn cancel(e: R) {
    e.cancel();
    good(e.get());
}

fn cancel_and_drop(e: R) {
    e.cancel();
}

fn install_callback(e: R) {
    e.on_complete(good);
}

fn poll_and_install(mut e: R) {
    let (_watched, waker) = watch();
    match poll(&mut e, &waker) {
        Poll::Ready(outcome) => good(outcome),
        Poll::Pending => e.on_complete(good),
    }
}

fn install_bound_callback(e: R) {
    e.on_complete_via(tenure::executor::Inline, good);
}

fn map_and_get(e: R) {
    good(e.map(|value| value).get());
}

fn map_and_drop(e: R) {
    drop(e.map(|value| value));
}

fn map_and_cancel(e: R) {
    let e = e.map(|value| value);
    e.cancel();
    e.on_complete(good);
}

fn canceller_of_a_callback(e: R) {
    let canceller = e.canceller();
    e.on_complete(good);
    canceller.cancel();
}

/// The core is used again at once, and slept on: a late wake of the first round may reach the second.
fn get_and_sleep_again(e: R) {
    good(e.get());
    let (p, e) = promise::<u32, ()>();
    let writer = thread::spawn(move || p.set(5));
    assert_eq!(e.get().ok(), Some(5));
    writer.join().unwrap().unwrap();
}

fn wait_for_cancellation_and_set(mut p: W, value: Value) {
    let (_watched, waker) = watch();
    let _ = p.poll_cancelled(&mut Context::from_waker(&waker));
    set(p, value);
}

fn wait_for_cancellation_and_drop(mut p: W, _value: Value) {
    loom::future::block_on(p.cancelled());
    assert!(p.is_cancelled());
}

fn inner_of_a_chain(e: R) {
    let (p, outer) = promise::<(), Value>();
    let e = outer.and_then(move |()| e);
    p.set(()).unwrap();
    drop(e);
}

/// What a reader may do, a column a model.
pub const READER: [&str; 12] = [
    "poll",
    "poll again with another waker",
    "get",
    "get with a time limit (never passes, passes)",
    "try_get",
    "drop",
    "cancel",
    "install an inline callback",
    "install an executor's callback",
    "install a stage",
    "register a callback on a shared outcome",
    "unregister a future from a shared outcome",
];

/// The matrix: a row a writer, a cell for each of [`READER`], each with the names of its models. In the
/// last two columns the names are those of `promise_many`.
pub const CELLS: [(&str, [&[&str]; 12]); 3] = [
    (
        "set",
        [
            &["set_x_poll"],
            &["set_x_poll_again", "set_x_poll_thrice"],
            &["set_x_get"],
            &["set_x_get_timeout", "set_x_get_timeout_fires"],
            &["set_x_try_get"],
            &["set_x_drop_reader", "set_x_poll_and_drop", "set_x_detach"],
            &["set_x_cancel", "set_x_cancel_and_drop", "set_x_cancel_a_callback"],
            &["set_x_install_callback", "set_x_poll_and_install"],
            &["set_x_install_bound_callback"],
            &["set_x_map_and_get", "set_x_map_and_drop", "set_x_map_and_cancel"],
            &["set_x_share_register", "set_x_share_register_and_leave"],
            &["set_x_share_unregister"],
        ],
    ),
    (
        "set_error",
        [
            &["set_error_x_poll"],
            &["set_error_x_poll_again"],
            &["set_error_x_get"],
            &["set_error_x_get_timeout", "set_error_x_get_timeout_fires"],
            &["set_error_x_try_get"],
            &["set_error_x_drop_reader", "set_error_x_poll_and_drop"],
            &["set_error_x_cancel"],
            &["set_error_x_install_callback"],
            &["set_error_x_install_bound_callback"],
            &["set_error_x_map", "set_error_x_map_and_drop"],
            &["set_error_x_share_register"],
            &["set_error_x_share_unregister"],
        ],
    ),
    (
        "drop the promise",
        [
            &["drop_x_poll"],
            &["drop_x_poll_again"],
            &["drop_x_get"],
            &["drop_x_get_timeout", "drop_x_get_timeout_fires"],
            &["drop_x_try_get"],
            &["drop_x_drop_reader", "drop_x_poll_and_drop"],
            &["drop_x_cancel"],
            &["drop_x_install_callback"],
            &["drop_x_install_bound_callback"],
            &["drop_x_map", "drop_x_map_and_drop"],
            &["drop_x_share_register"],
            &["drop_x_share_unregister"],
        ],
    ),
];

/// Pairs beside the matrix, with their models.
pub const BESIDE: [(&str, &[&str]); 6] = [
    ("try_set × try_set", &["try_set_x_try_set", "try_set_x_try_set_x_is_claimed"]),
    ("try_drop × try_drop", &["try_drop_x_try_drop"]),
    (
        "recycle × late waker",
        &[
            "pool_recycle_x_late_wake",
            "pool_recycle_x_late_waker",
            "recycle_x_late_wake",
            "set_x_get_and_sleep_again",
        ],
    ),
    ("made here, freed there", &["pool_free_here_x_allocate_there"]),
    (
        "hook × {cancel, drop}",
        &["hook_and_set_x_cancel", "hook_and_set_x_drop_reader", "hook_x_cancel"],
    ),
    (
        "tail call × {get, drop, cancel, stage}",
        &[
            "forwarding_x_get",
            "forwarding_x_drop",
            "forwarding_x_cancel",
            "forwarding_x_map",
            "forwarding_x_inner_canceller",
        ],
    ),
];

#[cfg(test)]
mod matrix {
    /// No cell is empty, and every name is a model's.
    #[test]
    fn every_cell_has_its_model() {
        let all = crate::models::all();
        let cells = super::CELLS.iter().flat_map(|(_, cells)| cells.iter());
        for cell in cells.chain(super::BESIDE.iter().map(|(_, names)| names)) {
            assert!(!cell.is_empty());
            for name in *cell {
                let model = all.iter().find(|m| m.name == *name && m.room.starts_with("promise"));
                assert!(model.is_some(), "no model of this name: {name}");
            }
        }
    }
}

macro_rules! matrix {
    ($( $(#[doc = $doc:literal])+ $name:ident: $writer:ident x $reader:ident $([$($setting:tt)*])?; )*) => {
        models! { "promise"; $( $(#[doc = $doc])+ $name $([$($setting)*])? { race($writer, $reader) } )* }
    };
}

matrix! {
    /// The value or the waker, never neither.
    set_x_poll: set x poll_once;
    /// A waker that is replaced under the writer's eyes.
    set_x_poll_again: set x poll_again;
    /// The sticky bit: three wakers, the third in the words of the first.
    set_x_poll_thrice: set x poll_thrice [bound: 4];
    /// A sleeper is woken.
    set_x_get: set x get;
    /// A sleeper that never times out.
    set_x_get_timeout: set x get_timeout;
    /// A time limit that passes as the value comes.
    set_x_get_timeout_fires: set x get_timeout [fires];
    /// A look.
    set_x_try_get: set x try_get;
    /// The value goes to exactly one of them, or back.
    set_x_drop_reader: set x drop_reader;
    /// With a waker in the slot.
    set_x_poll_and_drop: set x poll_and_drop;
    /// Without asking for cancellation.
    set_x_detach: set x detach;
    /// A request while the value comes.
    set_x_cancel: set x cancel;
    /// And the reader leaves.
    set_x_cancel_and_drop: set x cancel_and_drop;
    /// The callback runs once, in one of the two.
    set_x_install_callback: set x install_callback;
    /// A callback in the place of a waker.
    set_x_poll_and_install: set x poll_and_install;
    /// A callback and its executor.
    set_x_install_bound_callback: set x install_bound_callback;
    /// A stage.
    set_x_map_and_get: set x map_and_get;
    /// A stage whose reader leaves.
    set_x_map_and_drop: set x map_and_drop;
    /// A stage whose reader cancels.
    set_x_map_and_cancel: set x map_and_cancel;

    /// A request by way of the node, with a callback in the slot.
    set_x_cancel_a_callback: set x canceller_of_a_callback [bound: 3];
    /// A wake that comes late, to a core that is in use again.
    set_x_get_and_sleep_again: set x get_and_sleep_again [bound: 3];
    /// The writer waits for a request that may not come.
    poll_cancelled_x_cancel: wait_for_cancellation_and_set x cancel [bound: 2];
    /// Nor when the reader leaves.
    poll_cancelled_x_drop_reader: wait_for_cancellation_and_set x drop_reader [bound: 2];
    /// A request always wakes the writer that waits for it.
    cancelled_x_cancel: wait_for_cancellation_and_drop x cancel [bound: 2];
    /// So does leaving.
    cancelled_x_drop_reader: wait_for_cancellation_and_drop x drop_reader [bound: 2];
    /// Through a stage.
    cancelled_x_map_and_drop: wait_for_cancellation_and_drop x map_and_drop [bound: 2];
    /// Through a stage that waits for it.
    cancelled_x_inner_of_a_chain: wait_for_cancellation_and_drop x inner_of_a_chain [bound: 2];
    /// The inner eventual of a chain is let go while its result comes.
    set_x_inner_of_a_chain: set x inner_of_a_chain [bound: 3];

    /// As with a value.
    set_error_x_poll: set_error x poll_once;
    /// As with a value.
    set_error_x_poll_again: set_error x poll_again;
    /// As with a value.
    set_error_x_get: set_error x get;
    /// As with a value.
    set_error_x_get_timeout: set_error x get_timeout;
    /// As with a value.
    set_error_x_get_timeout_fires: set_error x get_timeout [fires];
    /// As with a value.
    set_error_x_try_get: set_error x try_get;
    /// As with a value.
    set_error_x_drop_reader: set_error x drop_reader;
    /// As with a value.
    set_error_x_cancel: set_error x cancel;
    /// As with a value.
    set_error_x_install_callback: set_error x install_callback;
    /// As with a value.
    set_error_x_install_bound_callback: set_error x install_bound_callback;
    /// As with a value.
    set_error_x_map: set_error x map_and_get;

    /// With a waker in the slot.
    set_error_x_poll_and_drop: set_error x poll_and_drop;
    /// A stage whose reader leaves.
    set_error_x_map_and_drop: set_error x map_and_drop;

    /// Broken is told like any other ending.
    drop_x_poll: drop_writer x poll_once;
    /// Broken while the waker is replaced.
    drop_x_poll_again: drop_writer x poll_again;
    /// Broken to a sleeper.
    drop_x_get: drop_writer x get;
    /// Broken to a sleeper with a limit.
    drop_x_get_timeout: drop_writer x get_timeout;
    /// Broken as the limit passes.
    drop_x_get_timeout_fires: drop_writer x get_timeout [fires];
    /// A look.
    drop_x_try_get: drop_writer x try_get;
    /// Both leave.
    drop_x_drop_reader: drop_writer x drop_reader;
    /// Both leave, a waker in the slot.
    drop_x_poll_and_drop: drop_writer x poll_and_drop;
    /// Broken or cancelled, by which came first.
    drop_x_cancel: drop_writer x cancel;
    /// The callback hears of it.
    drop_x_install_callback: drop_writer x install_callback;
    /// On its executor, too.
    drop_x_install_bound_callback: drop_writer x install_bound_callback;
    /// The stage passes it on.
    drop_x_map: drop_writer x map_and_get;
    /// A stage whose reader leaves.
    drop_x_map_and_drop: drop_writer x map_and_drop;

    /// The hook runs or is let go, once.
    hook_and_set_x_cancel: hook_and_set x cancel [bound: 2];
    /// Also when the reader leaves.
    hook_and_set_x_drop_reader: hook_and_set x drop_reader [bound: 2];
    /// With a waker in the slot.
    hook_and_set_x_poll_and_drop: hook_and_set x poll_and_drop [bound: 2];
    /// The hook does not stand in a callback's way.
    hook_and_set_x_install_callback: hook_and_set x install_callback [bound: 2];
    /// Nor in a sleeper's.
    hook_and_set_x_get: hook_and_set x get [bound: 2];
    /// Through a stage's node.
    hook_and_set_x_map_and_drop: hook_and_set x map_and_drop [bound: 2];
    /// Through a stage's node, while the result comes.
    hook_and_set_x_map_and_cancel: hook_and_set x map_and_cancel [bound: 2];
    /// The hook of a promise that is dropped.
    hook_and_drop_x_cancel: hook_and_drop x cancel [bound: 2];
    /// Both leave.
    hook_and_drop_x_drop_reader: hook_and_drop x drop_reader [bound: 2];
}
