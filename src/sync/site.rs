//! Call sites of the door's operations, recorded and weakened one at a time.
//!
//! A normal run of the models records each site (file, line, column), its ordering and how often it
//! was reached. A weakening run names one site and one change, and expects a model to fail.

use core::panic::Location;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, OnceLock, PoisonError};

/// What kind of operation a site is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// A load.
    Load,
    /// A store.
    Store,
    /// A read-modify-write that always writes.
    Rmw,
    /// A compare-and-exchange: its success ordering.
    Compare,
    /// A compare-and-exchange: its failure ordering.
    CompareFailed,
    /// A fence.
    Fence,
    /// A wait on a word (its last look before sleeping).
    Recheck,
    /// A wake by address.
    Wake,
}

/// One operation in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// Path as the compiler names it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
    /// Which operation.
    pub op: Op,
    /// Its ordering in the source; `None` where there is none.
    pub order: Option<&'static str>,
}

/// One change to one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// Path, line and column of the site.
    pub at: (String, u32, u32),
    /// Which operation there.
    pub op: Op,
    /// What becomes of it.
    pub change: Change,
}

/// What a weakening run does to its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Use this ordering instead.
    Order(Ordering),
    /// Leave the operation out: a fence, a wake, a re-check, or the write of an RMW or a store.
    Drop,
}

/// A site as it is looked up at each operation: no allocation.
type Key = (&'static str, u32, u32, Op, Option<&'static str>);

static RECORDING: AtomicBool = AtomicBool::new(false);
static SITES: Mutex<Option<HashMap<Key, u64>>> = Mutex::new(None);
static MUTATION: OnceLock<Mutation> = OnceLock::new();
static MUTATED: AtomicU64 = AtomicU64::new(0);

/// Starts (or stops) recording sites, in this process.
pub fn record(on: bool) {
    RECORDING.store(on, Ordering::SeqCst);
}

/// What was recorded so far: each site with how often it was reached. Empties the record.
pub fn take_sites() -> BTreeMap<Site, u64> {
    let sites = SITES.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default();
    sites
        .into_iter()
        .map(|((file, line, column, op, order), count)| {
            (Site { file: file.to_owned(), line, column, op, order }, count)
        })
        .collect()
}

/// Applies one change for the rest of this process. False if one is in force already.
pub fn mutate(mutation: Mutation) -> bool {
    MUTATION.set(mutation).is_ok()
}

/// How often the change in force was applied.
pub fn mutated() -> u64 {
    MUTATED.load(Ordering::Relaxed)
}

fn name(order: Ordering) -> &'static str {
    match order {
        Ordering::Relaxed => "Relaxed",
        Ordering::Acquire => "Acquire",
        Ordering::Release => "Release",
        Ordering::AcqRel => "AcqRel",
        Ordering::SeqCst => "SeqCst",
        _ => "unknown",
    }
}

/// Records the site, and says what is to become of it: one look-up for both, so that what was
/// recorded is what can be changed.
fn touch(at: &'static Location<'static>, op: Op, order: Option<Ordering>) -> Option<Change> {
    if RECORDING.load(Ordering::Relaxed) {
        let key = (at.file(), at.line(), at.column(), op, order.map(name));
        let mut sites = SITES.lock().unwrap_or_else(PoisonError::into_inner);
        *sites.get_or_insert_default().entry(key).or_insert(0) += 1;
    }
    let mutation = MUTATION.get()?;
    let (file, line, column) = &mutation.at;
    let here =
        mutation.op == op && *line == at.line() && *column == at.column() && file == at.file();
    here.then(|| {
        MUTATED.fetch_add(1, Ordering::Relaxed);
        mutation.change
    })
}

pub(crate) fn order(at: &'static Location<'static>, op: Op, order: Ordering) -> Ordering {
    match touch(at, op, Some(order)) {
        Some(Change::Order(weaker)) => weaker,
        Some(Change::Drop) | None => order,
    }
}

/// The ordering to use, and whether the write is left out.
pub(crate) fn write(at: &'static Location<'static>, op: Op, order: Ordering) -> (Ordering, bool) {
    match touch(at, op, Some(order)) {
        Some(Change::Order(weaker)) => (weaker, false),
        Some(Change::Drop) => (order, true),
        None => (order, false),
    }
}

/// The orderings to use, and whether a success leaves the write out.
pub(crate) fn compare(
    at: &'static Location<'static>,
    success: Ordering,
    failure: Ordering,
) -> (Ordering, Ordering, bool) {
    let (success, dropped) = write(at, Op::Compare, success);
    (success, order(at, Op::CompareFailed, failure), dropped)
}

/// The fence to use; `None` if it is left out.
pub(crate) fn fence(at: &'static Location<'static>, order: Ordering) -> Option<Ordering> {
    match touch(at, Op::Fence, Some(order)) {
        Some(Change::Order(weaker)) => Some(weaker),
        Some(Change::Drop) => None,
        None => Some(order),
    }
}

pub(crate) fn drop_wake(at: &'static Location<'static>) -> bool {
    touch(at, Op::Wake, None) == Some(Change::Drop)
}

pub(crate) fn drop_recheck(at: &'static Location<'static>) -> bool {
    touch(at, Op::Recheck, None) == Some(Change::Drop)
}

/// What a read-modify-write's ordering means for its read alone.
pub(crate) fn load_part(order: Ordering) -> Ordering {
    match order {
        Ordering::Acquire | Ordering::AcqRel => Ordering::Acquire,
        Ordering::SeqCst => Ordering::SeqCst,
        _ => Ordering::Relaxed,
    }
}
