//! Waiting for a key, in order.
//!
//! A waiter leaves a promise in the key's queue. Whoever ends a term sees the flag of the annex and
//! *grants the key to the first waiter itself*: the promise is kept with a running lease. So a waiter
//! that sleeps is woken once, as owner, and a waiter that is a task needs no thread. When the holder
//! does not end its term, the keeper looks at the deadline.
//!
//! No wake is lost: the waiter raises the flag, then touches the word by a read-modify-write. A release
//! that comes before the touch is seen by the waiter, which then serves the queue itself; one that
//! comes after synchronises with it and sees the flag.
//!
//! [`try_acquire`](super::LeaseHandle::try_acquire) does not stand in line: it may take a key between
//! its release and the grant to the first waiter. Of two terms that end at the same moment the second
//! waiter may be granted the earlier one.

use core::time::Duration;

use super::core::Core;
use super::error::AcquireError;
use super::event::contained;
use super::guard::OwnedLease;
use super::index::Closed;
use super::keeper::Keeper;
use super::request::LeaseRequest;
use super::slot::SlotRef;
use super::term::Term;
use super::word::State;
use super::{LeaseKey, LeaseValue};
use crate::clock::{Clock, Timestamp};
use crate::promise::{Eventual, EventualError, Promise, failed, promise, ready};
use crate::sync::Arc;
use crate::timer::TimerKey;

/// A place in the queue.
pub(super) struct Waiter<K: LeaseKey, V: LeaseValue, C: Clock> {
    /// Unlike that of any other waiter for the key.
    ticket: u64,
    request: LeaseRequest,
    promise: Promise<OwnedLease<K, V, C>, AcquireError>,
    /// When the place is given up, and the keeper's job for that.
    until: Timestamp,
    timer: Option<TimerKey>,
}

impl<K: LeaseKey, V: LeaseValue, C: Clock> Waiter<K, V, C> {
    /// Tells the waiter that there will be no lease.
    pub(super) fn refuse(self, why: AcquireError) {
        let _ = self.promise.set_error(why);
    }
}

/// What an asynchronous acquisition comes to.
pub(super) type Acquiring<K, V, C> = Eventual<OwnedLease<K, V, C>, AcquireError>;

type CoreRef<K, V, C> = Arc<Core<K, V, C>>;

/// Takes the key of `slot`, or stands in line for it; until `timeout` has passed on the table's
/// clock, if there is one.
pub(super) fn acquire_in_turn<K: LeaseKey, V: LeaseValue, C: Clock>(
    slot: &SlotRef<K, V, C>,
    request: LeaseRequest,
    timeout: Option<Duration>,
) -> Acquiring<K, V, C> {
    let core = &slot.core;
    let asked = core.ticks.clock().now();
    if !slot.is_annexed() || !is_awaited(core, &slot.key) {
        let mut moved = None;
        match core.acquire(slot, request.clone(), &mut moved) {
            Ok(granted) => {
                let slot = moved.unwrap_or_else(|| slot.clone());
                let term = Term::of(&slot, granted);
                return ready(OwnedLease::new(slot, term));
            }
            Err(AcquireError::Held { .. }) if timeout != Some(Duration::ZERO) => {}
            Err(refused) => return failed(refused),
        }
    }
    if let Err(refused) = core.deadline(request.ttl) {
        return failed(refused);
    }
    let until = timeout.map_or(Timestamp::NEVER, |timeout| asked.saturating_add(timeout));
    let (promise, eventual) = promise();
    let mut left = Some(Waiter { ticket: 0, request, promise, until, timer: None });
    let queued = core.index.annexed(&slot.key, |_, annex| {
        let given_up = annex.forget_cancelled(|waiter| waiter.promise.is_cancelled());
        let ticket = annex.next_ticket;
        annex.next_ticket += 1;
        if let Some(waiter) = left.take() {
            annex.queue.push_back(Waiter { ticket, ..waiter });
        }
        (ticket, given_up)
    });
    let ticket = match queued {
        Ok(Some((ticket, given_up))) => {
            for timer in given_up.iter().filter_map(|waiter| waiter.timer) {
                core.keeper.cancel(timer);
            }
            ticket
        }
        Ok(None) => return failed(AcquireError::NoSuchKey),
        Err(Closed) => return failed(AcquireError::Closed),
    };
    give_up_at(core, &slot.key, ticket, until);
    serve(core, &slot.key);
    eventual
}

fn is_awaited<K: LeaseKey, V: LeaseValue, C: Clock>(core: &CoreRef<K, V, C>, key: &K) -> bool {
    matches!(core.index.annexed(key, |_, annex| !annex.queue.is_empty()), Ok(Some(true)))
}

/// The waiter with `ticket` waits no longer than until `at`.
fn give_up_at<K: LeaseKey, V: LeaseValue, C: Clock>(
    core: &CoreRef<K, V, C>,
    key: &K,
    ticket: u64,
    at: Timestamp,
) {
    if at.is_never() {
        return;
    }
    let (later, own) = (Arc::clone(core), key.clone());
    let job = Box::new(move || give_up(&later, &own, ticket));
    match Keeper::at(core, &core.keeper, at, job) {
        Ok(timer) => {
            let still = core.index.annexed(key, |_, annex| {
                let waiter = annex.queue.iter_mut().find(|waiter| waiter.ticket == ticket)?;
                waiter.timer = Some(timer);
                Some(())
            });
            if !matches!(still, Ok(Some(Some(())))) {
                core.keeper.cancel(timer);
            }
        }
        // No thread to wait with: the time is up now.
        Err(job) => job(),
    }
}

fn give_up<K: LeaseKey, V: LeaseValue, C: Clock>(core: &CoreRef<K, V, C>, key: &K, ticket: u64) {
    // A key that has just come free is still theirs.
    serve(core, key);
    let left = core.index.annexed(key, |slot, annex| {
        let at = annex.queue.iter().position(|waiter| waiter.ticket == ticket)?;
        Some((annex.queue.remove(at)?, slot.clone()))
    });
    if let Ok(Some(Some((waiter, slot)))) = left {
        waiter.refuse(core.held(&slot, slot.word.load()));
    }
}

/// Grants the key to its first waiter, if it is free; sees to it that somebody looks again when it
/// may be. Called after each end of a term, and by each new waiter.
pub(super) fn serve<K: LeaseKey, V: LeaseValue, C: Clock>(core: &CoreRef<K, V, C>, key: &K) {
    loop {
        // Gone keys have no waiters: whoever removed them refused them all.
        let Ok(slot) = core.follow(key) else { return };
        let word = slot.word.touch();
        match word.state() {
            State::Gone => {}
            State::Held | State::Pending => {
                if core.may_take_over(&slot, word) {
                    // Serves too, if it was this call that ended it.
                    let _ = core.end_late(&slot, word);
                    continue;
                }
                return look_again(core, &slot, core.deadline_of(&slot, word));
            }
            State::Free => {
                let first = core.index.annexed(key, |_, annex| annex.queue.pop_front());
                let Ok(Some(Some(waiter))) = first else { return };
                if waiter.promise.is_cancelled() {
                    waiter.promise.set_cancelled();
                    continue;
                }
                grant_to(&slot, waiter);
            }
        }
    }
}

/// Grants the key to `waiter`, or puts it back in front.
fn grant_to<K: LeaseKey, V: LeaseValue, C: Clock>(
    slot: &SlotRef<K, V, C>,
    waiter: Waiter<K, V, C>,
) {
    let core = &slot.core;
    let timer = waiter.timer;
    // Foreign code (a value's clone, when the key moves), on the thread of somebody else: its panic is
    // the waiter's.
    let mut moved = None;
    let granted = contained(|| core.acquire(slot, waiter.request.clone(), &mut moved));
    match granted.unwrap_or(Err(AcquireError::ValuePanicked)) {
        // Its time was up while it was out of line, and the keeper did not find it there.
        Err(held @ AcquireError::Held { .. }) if core.ticks.clock().now() >= waiter.until => {
            waiter.refuse(held);
        }
        Ok(granted) => {
            if let Some(timer) = timer {
                core.keeper.cancel(timer);
            }
            let slot = moved.unwrap_or_else(|| slot.clone());
            let term = Term::of(&slot, granted);
            // Foreign code: the waiter's callbacks may run here. The word is settled, no lock is
            // held. If nobody is there any more the lease comes back and is dropped, which serves
            // the next.
            let _ = waiter.promise.set(OwnedLease::new(slot, term));
        }
        Err(AcquireError::Held { .. }) => {
            let mut left = Some(waiter);
            let back = core.index.annexed(&slot.key, |_, annex| {
                if let Some(waiter) = left.take() {
                    annex.queue.push_front(waiter);
                }
            });
            if let Some(waiter) = left {
                waiter.refuse(match back {
                    Err(Closed) => AcquireError::Closed,
                    Ok(_) => AcquireError::NoSuchKey,
                });
            }
        }
        Err(why) => waiter.refuse(why),
    }
}

/// Has the keeper look at the key when `until` has passed, if anybody waits.
fn look_again<K: LeaseKey, V: LeaseValue, C: Clock>(
    core: &CoreRef<K, V, C>,
    slot: &SlotRef<K, V, C>,
    until: u64,
) {
    let wanted = core.index.annexed(&slot.key, |_, annex| {
        let wanted = !annex.queue.is_empty() && annex.watched_until.is_none_or(|at| until < at);
        if wanted {
            annex.watched_until = Some(until);
        }
        wanted
    });
    if !matches!(wanted, Ok(Some(true))) {
        return;
    }
    let (later, key) = (Arc::clone(core), slot.key.clone());
    let job = Box::new(move || {
        let _ = later.index.annexed(&key, |_, annex| {
            annex.watched_until.take_if(|at| *at == until);
        });
        serve(&later, &key);
    });
    // Others may take over when now > until: a tick later.
    let at = core.ticks.look_at(until.saturating_add(1));
    if Keeper::at(core, &core.keeper, at, job).is_err() {
        // The table is closed, or there is no thread to wait with: nobody would wake them.
        let queue = core.index.annexed(&slot.key, |_, annex| core::mem::take(&mut annex.queue));
        if let Ok(Some(queue)) = queue {
            let why = core.held(slot, slot.word.load());
            for waiter in queue {
                waiter.refuse(why.clone());
            }
        }
    }
}

/// The lease, or why there is none, for one who waited.
pub(super) fn outcome<T>(
    outcome: Result<T, EventualError<AcquireError>>,
) -> Result<T, AcquireError> {
    outcome.map_err(|why| match why {
        EventualError::Failed(why) => why,
        // The promise was dropped unset: by a table that was closed meanwhile.
        EventualError::Broken
        | EventualError::Cancelled
        | EventualError::TimedOut
        | EventualError::Rejected
        | EventualError::Panicked(_)
        | EventualError::Taken => AcquireError::Closed,
    })
}
