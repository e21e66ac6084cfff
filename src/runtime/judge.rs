//! What the driver does about an attempt that is out of time, or that the end does not wait for.
//!
//! What may call foreign code is done without the driver's token; what the job and the pool need comes
//! first.

use core::time::Duration;
use std::sync::Arc;

use super::cell::JobRef;
use super::error::{AttemptError, AttemptRecord};
use super::events::Event;
use super::members::Member;
use super::options::JobId;
use super::policy::Verdict;
use super::seat::Sitting;
use super::shared::Shared;
use super::state::{Lost, State, Then};
use super::sweep::Swept;
use super::worker;
use crate::clock::{Timestamp, nanos_saturating};
use crate::lease::FencingToken;

/// What the driver knows about a sitting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) sitting: Sitting,
    /// Until when it is left alone.
    pub(super) until: Timestamp,
    pub(super) graces: u32,
    /// It was over, by its word, but its worker had not stood up.
    pub(super) over: bool,
}

/// Which seat: by worker, whose number is never used again, and by the seat's place.
pub(super) type Place = (usize, usize);

/// An attempt whose lease is out of time.
pub(super) struct Case {
    pub(super) member: Arc<Member>,
    pub(super) place: Place,
    pub(super) note: Note,
    pub(super) job: JobRef,
    pub(super) deadline: Timestamp,
    pub(super) timeout: Duration,
    pub(super) now: Timestamp,
}

impl Case {
    /// What is known of the seat after that.
    pub(super) fn judge(self, shared: &Arc<Shared>) -> (Place, Note) {
        let Self { member, place, mut note, job, deadline, timeout, now } = self;
        judge(shared, &member, place, &mut note, job, (deadline, timeout, now));
        (place, note)
    }
}

/// A lease is out of time.
fn judge(
    shared: &Arc<Shared>,
    member: &Arc<Member>,
    place: Place,
    note: &mut Note,
    job: JobRef,
    (deadline, timeout, now): (Timestamp, Duration, Timestamp),
) {
    let epoch = note.sitting.epoch();
    let word = job.state.peek();
    let attempt = u32::from(word.attempts()) + 1;
    let began =
        Timestamp::from_nanos(deadline.as_nanos().saturating_sub(nanos_saturating(timeout)));
    let draws = word.would_be_rescued(epoch);
    let decision = shared.decide(&job, attempt, began, (true, draws), None);
    let then = if decision.is_ok() { Then::Retry } else { Then::Die };
    let lost = job.state.rescue(epoch, then, false);
    match lost {
        Lost::Alive => {
            note.until = now.saturating_add(timeout);
            return;
        }
        Lost::Fenced if !note.over => {
            // Its word has moved on, so its worker is on its way out of here: in the drop of a value
            // or a waker at worst, which is foreign code, too. One more period.
            note.over = true;
            note.until = now.saturating_add(timeout);
            return;
        }
        Lost::Fenced | Lost::Backoff { .. } | Lost::Dying | Lost::Cancelled(_) => {}
        Lost::Outlived => unreachable!("a rescue takes both"),
    }
    note.until = Timestamp::NEVER;
    // From here on, what matters first: the pool has a worker, the key is free, the job goes on. The
    // calls of foreign code are the last of each.
    let replaced = replace(shared, member, place, note.sitting);
    let failed = (!matches!(lost, Lost::Fenced)).then(|| {
        let cause = AttemptError::TimedOut { after: timeout };
        let serial = job.options.as_ref().and_then(|o| o.serial.as_ref());
        if let Some(serial) = serial {
            shared.keys.revoke(serial);
        }
        let token =
            serial.map_or_else(|| FencingToken::of(0, u64::from(epoch)), |serial| serial.token());
        let record = AttemptRecord { number: attempt, token, started: began, ended: now, cause };
        shared.note_failure(&job, record, None)
    });
    let id = JobId(job.id);
    let lost_epoch = epoch;
    let verdict = if matches!(lost, Lost::Cancelled(_)) { Verdict::Ignored } else { Verdict::Late };
    match (lost, decision) {
        (Lost::Backoff { epoch }, Ok(delay)) => {
            shared.note_retry(&job, delay, None);
            shared.arm(job.clone(), epoch, shared.after(delay));
            shared.settle_lost(&job, lost_epoch, verdict);
            if let Some(failed) = failed {
                shared.tell_failure(failed);
            }
            shared.tell_retry(id, attempt + 1, delay);
        }
        (Lost::Dying, Err(stop)) => {
            let (dead, ended) = shared.die(&job, stop, false, None);
            shared.finish(&job, ended, false);
            shared.settle_lost(&job, lost_epoch, verdict);
            if let Some(failed) = failed {
                shared.tell_failure(failed);
            }
            shared.tell_dead(dead);
        }
        (Lost::Cancelled(ended), _) => {
            shared.cancelled(&job, ended, None);
            shared.settle_lost(&job, lost_epoch, verdict);
            if let Some(failed) = failed {
                shared.tell_failure(failed);
            }
        }
        // Of two attempts with one epoch, the one that lost.
        (Lost::Fenced, _) => shared.settle_lost(&job, lost_epoch, verdict),
        (Lost::Dying | Lost::Backoff { .. } | Lost::Alive | Lost::Outlived, _) => {
            unreachable!("`rescue` does what it was told to")
        }
    }
    let Some(replacement) = replaced else { return };
    shared.subscribers.tell(|| Event::WorkerStuck {
        worker: member.index,
        job: id,
        attempt,
        replacement,
    });
}

/// Takes a stuck worker out and puts another one in its place, whose number it says, if there is one.
/// `None`: it was out already, or is back.
fn replace(
    shared: &Arc<Shared>,
    member: &Arc<Member>,
    place: Place,
    sitting: Sitting,
) -> Option<Option<usize>> {
    if member.is_stuck() {
        return None;
    }
    let room = shared.members.stuck() < shared.config.max_stuck_workers;
    // Before it is retired: from then on it may come back, and puts itself back.
    shared.held_up.leaves(member.take_out());
    if !shared.members.retire(member, room) {
        shared.held_up.returns(member.put_back());
        return None;
    }
    if shared.members.keep(member, || member.sits(place.1, sitting)) {
        shared.held_up.returns(member.put_back());
        return None;
    }
    shared.counters.replaced_workers.share(1);
    if !room || shared.closing.has_begun() {
        return Some(None);
    }
    let replacement = worker::spawn(shared).ok();
    if replacement.is_none() {
        // Told at once, and not by what this deed comes to: it may be held up in somebody's listener.
        shared.owe_a_worker();
    }
    Some(replacement)
}

/// The end: an attempt is no longer waited for. Calls no foreign code, so it is done, and counted, with
/// the token held; [`Evicted::end`] is the rest.
pub(super) fn evict(shared: &Shared, job: &JobRef, epoch: u32) -> Evicted {
    // Not Leased, if the attempt that sits here is a late one: then it ends like others.
    let swept = shared.note_swept(job);
    match job.state.rescue(epoch, Then::Die, true) {
        Lost::Cancelled(ended) => {
            let swept = shared.note_ended(job, State::Leased, ended);
            Evicted { swept, rescued: true, epoch }
        }
        Lost::Fenced | Lost::Alive | Lost::Outlived | Lost::Backoff { .. } | Lost::Dying => {
            Evicted { swept, rescued: false, epoch }
        }
    }
}

/// An attempt that is no longer waited for, and nobody was told of it.
#[must_use]
pub(super) struct Evicted {
    swept: Swept,
    epoch: u32,
    /// Its job ended by that.
    pub(super) rescued: bool,
}

impl Evicted {
    pub(super) fn end(self, shared: &Shared, job: &JobRef) {
        if let Some(serial) = job.options.as_ref().and_then(|o| o.serial.as_ref()) {
            shared.keys.revoke(serial);
        }
        shared.end_swept(job, self.swept);
        shared.settle_lost(job, self.epoch, Verdict::Ignored);
    }
}
