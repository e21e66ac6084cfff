//! What lives for one execution of a model.
//!
//! Loom runs all threads of a model on one system thread and switches only at loom operations, so
//! plain cells in a `std` thread-local are never seen half changed. They are *not* seen by loom's
//! search either: whatever depends on them must touch a loom atomic as well (see `park`).

use core::any::Any;
use core::cell::{Cell, RefCell};
use core::hash::{Hash, Hasher};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

/// How the door behaves in a model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Behaviour {
    /// Timed waits fire at once (`true`) or never.
    pub(crate) timeouts_fire: bool,
    /// How many waits of an execution, the first ones, return early for no reason.
    pub(crate) early_wakes: u32,
    /// How many weak compare-and-exchanges of an execution, the first ones, fail for no reason.
    pub(crate) weak_failures: u32,
    /// Whether drops of atomics are taken as they come.
    pub(crate) unordered_drops: bool,
}

/// What the door was asked for, over all executions since the last look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) waits: u64,
    pub(crate) weak: u64,
}

/// How many words of parking the search can tell apart; the rest share.
const BUCKETS: usize = 4;

/// How many timed waits of an execution fire on the spot; later ones give the others a turn first,
/// so that a caller who waits again cannot go round for ever.
const PROMPT_TIMEOUTS: u32 = 2;

pub(super) struct Sleeper {
    pub(super) key: usize,
    pub(super) ticket: u64,
    pub(super) thread: loom::thread::Thread,
}

pub(super) struct Execution {
    /// Loom's number for it, where the door found it by itself; `None` where `begin` said so.
    number: Option<u64>,
    behaviour: Behaviour,
    early_left: Cell<u32>,
    weak_left: Cell<u32>,
    fired: Cell<u32>,
    pub(super) sleepers: RefCell<Vec<Sleeper>>,
    pub(super) ticket: Cell<u64>,
    buckets: Vec<loom::sync::atomic::AtomicUsize>,
    /// The addresses, in order of appearance: which bucket each has, and when it was last woken.
    keys: RefCell<Vec<(usize, u64)>>,
    /// Atomics for `const` contexts, made when the execution began and not yet claimed.
    stock: RefCell<BTreeMap<Make, Vec<Rc<dyn Any>>>>,
    claimed: RefCell<HashMap<u64, Late>>,
}

/// An atomic that was made in a `const` context, in this execution.
#[derive(Clone)]
struct Late {
    atomic: Rc<dyn Any>,
    /// Where the stock ran out, it came to life at its first use: whoever comes later must
    /// synchronise with that moment, or loom sees the creation itself as a race.
    born: Option<&'static loom::lazy_static::Lazy<()>>,
}

/// What kind of atomic, and its first value.
type Make = (&'static str, u64);

/// A kind of atomic that can be made late. Its name is its identity.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) make: fn(u64) -> Rc<dyn Any>,
}

/// The most atomics of each kind and first value that one execution claimed, so that the next finds
/// them in stock.
static WANTED: Mutex<BTreeMap<Make, (Kind, usize)>> = Mutex::new(BTreeMap::new());

std::thread_local! {
    static CURRENT: RefCell<Option<Rc<Execution>>> = const { RefCell::new(None) };
    static ASKED: Cell<Asked> = const { Cell::new(Asked { waits: 0, weak: 0 }) };
}

/// Starts an execution, on the model's main thread and before it spawns any other.
pub(crate) fn begin(behaviour: Behaviour) {
    let new = Execution::new(None, behaviour);
    CURRENT.with(|c| *c.borrow_mut() = Some(Rc::new(new)));
}

/// No execution is running on this system thread any more.
pub(crate) fn end() {
    CURRENT.with(|c| *c.borrow_mut() = None);
}

/// What the door was asked for since the last look, on this system thread.
pub(crate) fn take_asked() -> Asked {
    ASKED.with(Cell::take)
}

/// The execution that runs on this system thread.
///
/// `begin` says which; in a model that did not call it the door asks loom at each use.
pub(super) fn current() -> Rc<Execution> {
    let known = CURRENT.with(|c| c.borrow().clone());
    if let Some(known) = known
        && (known.number.is_none() || known.number == Some(loom_number()))
    {
        return known;
    }
    let new = Rc::new(Execution::new(Some(loom_number()), Behaviour::default()));
    CURRENT.with(|c| *c.borrow_mut() = Some(Rc::clone(&new)));
    new
}

/// Loom's own number for the running execution. It has no name for it in public, but each of its
/// thread identities hashes to (execution, thread).
fn loom_number() -> u64 {
    struct First(Option<u64>);
    impl Hasher for First {
        fn finish(&self) -> u64 {
            self.0.unwrap_or(0)
        }
        fn write(&mut self, bytes: &[u8]) {
            let mut number = [0; 8];
            let len = bytes.len().min(8);
            number[..len].copy_from_slice(&bytes[..len]);
            self.0.get_or_insert(u64::from_ne_bytes(number));
        }
    }
    let mut first = First(None);
    loom::thread::current().id().hash(&mut first);
    first.finish()
}

impl Execution {
    fn new(number: Option<u64>, behaviour: Behaviour) -> Self {
        let wanted = WANTED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let stock = wanted
            .into_iter()
            .map(|((name, first), (kind, count))| {
                ((name, first), (0..count).map(|_| (kind.make)(first)).collect())
            })
            .collect();
        Self {
            number,
            behaviour,
            early_left: Cell::new(behaviour.early_wakes),
            weak_left: Cell::new(behaviour.weak_failures),
            fired: Cell::new(0),
            sleepers: RefCell::new(Vec::new()),
            ticket: Cell::new(0),
            buckets: (0..BUCKETS).map(|_| loom::sync::atomic::AtomicUsize::new(0)).collect(),
            keys: RefCell::new(Vec::new()),
            stock: RefCell::new(stock),
            claimed: RefCell::new(HashMap::new()),
        }
    }

    /// The loom atomic behind a word that was made in a `const` context, and whether this is its first
    /// use in this execution.
    pub(super) fn late(&self, id: u64, kind: Kind, first: u64) -> (Rc<dyn Any>, bool) {
        let known = self.claimed.borrow().get(&id).cloned();
        let fresh = known.is_none();
        let late = known.unwrap_or_else(|| {
            let ready = self.stock.borrow_mut().get_mut(&(kind.name, first)).and_then(Vec::pop);
            let late = match ready {
                Some(atomic) => Late { atomic, born: None },
                None => {
                    WANTED
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .entry((kind.name, first))
                        .or_insert((kind, 0))
                        .1 += 1;
                    // Leaked: loom's lazies are statics. One for each word that the first execution
                    // finds out of stock.
                    let born = Box::leak(Box::new(loom::lazy_static::Lazy {
                        init: || (),
                        _p: core::marker::PhantomData,
                    }));
                    Late { atomic: (kind.make)(first), born: Some(born) }
                }
            };
            self.claimed.borrow_mut().insert(id, late.clone());
            late
        });
        if let Some(born) = late.born {
            born.get();
        }
        (late.atomic, fresh)
    }

    fn key(&self, address: usize) -> usize {
        let mut keys = self.keys.borrow_mut();
        keys.iter().position(|(known, _)| *known == address).unwrap_or_else(|| {
            keys.push((address, 0));
            keys.len() - 1
        })
    }

    /// The loom atomic that stands for the queue of one address: whoever pushes to the queue or
    /// looks for sleepers touches it, so that the search tries both orders.
    pub(super) fn bucket(&self, address: usize) -> &loom::sync::atomic::AtomicUsize {
        &self.buckets[self.key(address) % BUCKETS]
    }

    /// When somebody last looked for sleepers on this address.
    pub(super) fn woken(&self, address: usize) -> u64 {
        let key = self.key(address);
        self.keys.borrow()[key].1
    }

    /// Somebody looks for sleepers on this address now.
    pub(super) fn wakes(&self, address: usize) {
        let key = self.key(address);
        self.keys.borrow_mut()[key].1 = super::history::tick();
    }

    /// Whether this wait returns early for no reason.
    pub(super) fn wakes_early(&self) -> bool {
        ASKED.with(|a| a.set(Asked { waits: a.get().waits + 1, ..a.get() }));
        take_one(&self.early_left)
    }

    /// Whether a timed wait is over at once; and if so, whether the others get a turn first.
    pub(super) fn times_out(&self) -> Option<bool> {
        if !self.behaviour.timeouts_fire {
            return None;
        }
        self.fired.set(self.fired.get() + 1);
        Some(self.fired.get() > PROMPT_TIMEOUTS)
    }
}

/// Says that an atomic lives, so that loom reports one which is still there when its execution ends.
/// Only in executions that [`begin`] started: others may have no end that the door knows of.
pub(super) struct Alive(Option<loom::alloc::Track<()>>);

impl Alive {
    #[track_caller]
    pub(super) fn new() -> Self {
        let begun = CURRENT.with(|c| c.borrow().as_ref().is_some_and(|e| e.number.is_none()));
        Self(begun.then(|| loom::alloc::Track::new(())))
    }

    /// A word that was made in a `const` context: it may be a static's.
    pub(super) const fn unknown() -> Self {
        Self(None)
    }

    /// Whether the atomic can be looked at in its drop: not while an execution comes down, of which
    /// loom may have lost hold already.
    pub(super) fn is_sound(&self) -> bool {
        self.0.is_some()
            && !std::thread::panicking()
            && CURRENT.with(|c| c.borrow().as_ref().is_some_and(|e| !e.behaviour.unordered_drops))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        let Some(track) = self.0.take() else { return };
        if CURRENT.with(|c| c.borrow().is_none()) {
            core::mem::forget(track);
        } else if std::thread::panicking() {
            // A panic that the model catches, or the end of a failed execution.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(track)));
        }
    }
}

/// Whether this weak compare-and-exchange fails for no reason.
pub(super) fn fails_weakly() -> bool {
    ASKED.with(|a| a.set(Asked { weak: a.get().weak + 1, ..a.get() }));
    CURRENT
        .with(|c| c.borrow().as_ref().is_some_and(|e| e.number.is_none() && take_one(&e.weak_left)))
}

fn take_one(left: &Cell<u32>) -> bool {
    match left.get() {
        0 => false,
        n => {
            left.set(n - 1);
            true
        }
    }
}

/// A new identity for a word that was made in a `const` context; it moves with the word.
pub(super) fn identity(id: &AtomicU64) -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    match id.load(Ordering::Relaxed) {
        0 => {
            let new = NEXT.fetch_add(1, Ordering::Relaxed);
            // Words in statics are shared by tests on several system threads.
            match id.compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => new,
                Err(earlier) => earlier,
            }
        }
        known => known,
    }
}
