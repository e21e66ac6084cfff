//! A gate's line: the jobs that it refused, and how they go on.
//!
//! # Who lets whom through
//!
//! A job that is refused becomes Gated, is put into the line, and then the line is *pumped*: its head
//! asks again, since a permit may have come back in between. The line is pumped too when the gate says
//! that a permit may be free, when the time comes that a refusal named, and when a job that was let
//! through begins.
//!
//! ```text
//! refused: Gate (word), Enter (line)         pump: Pick, Ask, Ungate (word), push
//!          then a pump                       refused again: the head stays, and the line is left
//! giver:   Return (gate), then a pump
//! ```
//!
//! Enter and Pick are under the line's lock. If Enter comes first, the giver's pump picks the job. If
//! the giver's pump came first, its Return came before our Enter, and our own pump asks after it. A giver
//! that sees an empty line spares itself the lock:
//!
//! ```text
//! giver: Return, ReturnFence, ReadOldest          enterer: WriteOldest, EnterFence, Ask
//! ```
//!
//! The two fences have one order: either the giver sees that somebody waits, or the one who enters sees
//! the permit when it asks.
//!
//! A pump that is refused looks whether another one began since it picked (`wakes`), and asks again if so: what
//! it was told may be older than what the other one came for, which may have found nobody to pick.
//!
//! A head that asks stays in the line, marked, so that a shutdown finds it; other pumps pick the next
//! one. So somebody's listener that hangs in a gate holds up one job, not the line; and order is that
//! of the tickets, but for those that ask at the same moment.
//!
//! # Not all at once
//!
//! A job that is let through holds its permits when it is queued. At most so many as there are workers
//! are let through and have not begun: when a breaker closes with ten thousand in its line, and opens
//! again at the first of them, the others are still in the line.
//!
//! # Order
//!
//! A job gets its ticket when it is first refused, and keeps it until it begins, in whichever line it
//! waits. At every gate it stands behind those with smaller tickets. So the oldest of all is refused by
//! gates only, and two lines cannot send each other's heads round in circles.
//!
//! A pump inside a pump (a permit that goes back unused tells its gate's line) is put off to the end of
//! the outer one: so depth does not depend on how many wait.
//!
//! # A pump that does not come back
//!
//! Somebody's listener may never return. So a line counts the pumps that are under way, or put off; a timer
//! looks after them ([`PATIENCE`]), and while there are some, pumps. There is one timer a line at a time, and
//! none where nobody waits for who asks.

use core::cell::RefCell;
use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use super::gate::{Answer, Gate, Permits, Verdict};
use super::{NO_TICKET, gates};
use crate::clock::Timestamp;
use crate::limit::Listener;
use crate::lock::Mutex;
use crate::runtime::cell::{JobRef, contained};
use crate::sync::atomic::{AtomicU64, Ordering, fence};

/// What a line needs of its runtime.
pub(crate) trait Host: Send + Sync {
    /// The job is Ready: queue an entry.
    fn go_on(&self, job: JobRef);
    /// The job was let through, but is over.
    fn gone(&self, job: &JobRef);
    /// A job was put into a line: if the end has begun, nobody may come to see it.
    fn lined_up(&self);
    /// How many may be let through and not begun.
    fn most_granted(&self) -> usize;
    /// The moment after so long.
    fn moment_after(&self, delay: Duration) -> Timestamp;
    /// Has [`Line::tick`] called then.
    fn call_at(&self, line: Arc<Line>, at: Timestamp);
}

/// Who refused, and how long until it is worth while to ask again.
pub(crate) struct Refusal {
    pub(crate) line: Arc<Line>,
    pub(crate) retry_after: Option<Duration>,
}

/// See the [file's docs](self).
pub(crate) struct Line {
    me: Weak<Self>,
    gate: Arc<dyn Gate>,
    host: Weak<dyn Host>,
    /// The smallest ticket in the line; `NO_TICKET`: nobody waits. Written under the lock.
    oldest: AtomicU64,
    // No foreign code under it; references are dropped outside.
    queue: Mutex<Queue>,
}

struct Queue {
    waiting: BTreeMap<u64, Waiting>,
    /// Pumps that have begun.
    wakes: u64,
    /// Jobs that were let through and have not begun.
    granted: usize,
    /// Pumps that are under way, or put off.
    pumps: usize,
    /// When the timer is due that was asked for.
    armed: Timestamp,
    /// When somebody looks whether the pumps have come back.
    watched: Timestamp,
}

struct Waiting {
    job: JobRef,
    /// Somebody asks for it now.
    asking: bool,
}

/// Permits of a job that was let through, and has not begun.
#[must_use]
pub(crate) struct Grant {
    line: Arc<Line>,
    permits: Permits,
}

impl Grant {
    pub(crate) fn are_current(&self) -> bool {
        self.permits.are_current()
    }

    /// The job begins. Its permits ask their clocks, which may not come back either: the same as below.
    pub(crate) fn spend(self) -> Permits {
        let Self { line, mut permits } = self;
        line.owes_a_pump(1);
        permits.begin();
        line.pays_its_pump();
        permits
    }

    /// The job does not begin. Who is told of its permits may not come back, and neither then do we: so its
    /// place among those let through is free before, and somebody else looks after the line.
    pub(crate) fn give_back(self) {
        let Self { line, permits } = self;
        line.owes_a_pump(1);
        permits.end(Verdict::Unused);
        line.pays_its_pump();
    }
}

crate::sync::thread_local! {
    /// Lines that this thread is to pump when it is done with the one that it pumps.
    static PUT_OFF: PutOff = none();
}

type PutOff = RefCell<Option<Vec<Arc<Line>>>>;

fn none() -> PutOff {
    RefCell::new(None)
}

/// While it lives, this thread pumps.
struct Pumping;

/// Who pumps.
enum Begun {
    /// The caller.
    Here(Pumping),
    /// Who pumps on this thread already, later.
    PutOff,
    /// The same, and it was asked before.
    Before,
}

impl Pumping {
    fn begin(line: &Arc<Line>) -> Begun {
        let put_off = PUT_OFF.try_with(|put_off| match &mut *put_off.borrow_mut() {
            Some(lines) if lines.iter().any(|other| Arc::ptr_eq(other, line)) => Begun::Before,
            Some(lines) => {
                lines.push(Arc::clone(line));
                Begun::PutOff
            }
            // Made only where it begins: its drop ends the pumping.
            none => {
                *none = Some(Vec::new());
                Begun::Here(Self)
            }
        });
        // While the thread-locals of a thread that ends are torn down, there is no list.
        put_off.unwrap_or_else(|_| Begun::Here(Self))
    }

    fn next() -> Option<Arc<Line>> {
        PUT_OFF.try_with(|put_off| put_off.borrow_mut().as_mut()?.pop()).ok().flatten()
    }
}

impl Drop for Pumping {
    fn drop(&mut self) {
        let left = PUT_OFF.try_with(|put_off| put_off.borrow_mut().take()).ok().flatten();
        drop(left);
    }
}

impl Line {
    pub(crate) fn new(gate: Arc<dyn Gate>, host: Weak<dyn Host>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            gate,
            host,
            oldest: AtomicU64::new(NO_TICKET),
            queue: Mutex::new(Queue {
                waiting: BTreeMap::new(),
                wakes: 0,
                granted: 0,
                pumps: 0,
                armed: Timestamp::NEVER,
                watched: Timestamp::NEVER,
            }),
        })
    }

    /// Asks the gate.
    pub(crate) fn ask(&self) -> Answer {
        let mut answer = Err(Some(AFTER_A_PANIC));
        // Foreign code: listeners, clocks.
        contained(|| answer = self.gate.try_pass());
        answer
    }

    /// The smallest ticket here. May be out of date: who goes in front of somebody by that came at the
    /// same moment; who stands behind nobody is seen by its own pump.
    pub(crate) fn oldest(&self) -> u64 {
        // ORDERING: Relaxed: see above.
        self.oldest.load(Ordering::Relaxed)
    }

    /// Takes one out. Dropped by the caller: it may be the last reference.
    fn take(&self, queue: &mut Queue, ticket: u64) -> Option<JobRef> {
        let waiting = queue.waiting.remove(&ticket)?;
        self.note_oldest(queue);
        Some(waiting.job)
    }

    fn note_oldest(&self, queue: &Queue) {
        let oldest = queue.waiting.first_key_value().map_or(NO_TICKET, |(ticket, _)| *ticket);
        // ORDERING: Relaxed: see `oldest`.
        self.oldest.store(oldest, Ordering::Relaxed);
    }

    /// A job that is Gated waits here, in the place that its ticket gives it.
    pub(crate) fn enter(self: &Arc<Self>, job: JobRef, ticket: u64) {
        let mut queue = self.queue.lock();
        let before = queue.waiting.insert(ticket, Waiting { job: job.clone(), asking: false });
        self.note_oldest(&queue);
        drop(queue);
        // ORDERING: SeqCst fence: EnterFence, pairs with ReturnFence in `permit_freed`.
        fence(Ordering::SeqCst);
        debug_assert!(before.is_none(), "a ticket is one job's");
        drop(before);
        // Over before it was here: whoever ended it may have looked before.
        if job.state.peek().state().is_final() {
            drop(self.withdraw(ticket));
        }
        drop(job);
        self.pump();
        if let Some(host) = self.host.upgrade() {
            host.lined_up();
        }
    }

    /// Takes the one with this ticket out, if it is here.
    pub(crate) fn withdraw(&self, ticket: u64) -> Option<JobRef> {
        self.take(&mut self.queue.lock(), ticket)
    }

    /// All who wait, out of it.
    pub(crate) fn drain(&self) -> Vec<JobRef> {
        let mut queue = self.queue.lock();
        let all = core::mem::take(&mut queue.waiting);
        self.note_oldest(&queue);
        drop(queue);
        all.into_values().map(|waiting| waiting.job).collect()
    }

    /// This thread has done what was owed before.
    fn pays_its_pump(self: &Arc<Self>) {
        self.queue.lock().pumps -= 1;
        if self.oldest() != NO_TICKET {
            self.pump();
        }
    }

    /// This thread is to pump, and calls foreign code before. So many that were let through have begun, or never
    /// will.
    fn owes_a_pump(self: &Arc<Self>, used: usize) {
        let mut queue = self.queue.lock();
        queue.granted -= used;
        queue.pumps += 1;
        let is_missed = !queue.waiting.is_empty() && queue.watched.is_never();
        drop(queue);
        if is_missed && let Some(host) = self.host.upgrade() {
            self.have_watched(&*host);
        }
    }

    /// The time has come for which a call was asked.
    pub(crate) fn tick(self: &Arc<Self>, at: Timestamp) {
        let mut queue = self.queue.lock();
        let mut due = false;
        if queue.watched == at {
            queue.watched = Timestamp::NEVER;
            due = queue.pumps > 0;
        }
        // Another one: an earlier one was asked for later, and has seen to it.
        if queue.armed == at {
            queue.armed = Timestamp::NEVER;
            due = true;
        }
        drop(queue);
        if due {
            self.pump();
        }
    }

    /// Lets those go on who may. Calls foreign code.
    pub(crate) fn pump(self: &Arc<Self>) {
        match Pumping::begin(self) {
            Begun::Here(_pumping) => {
                self.turn(false);
                while let Some(line) = Pumping::next() {
                    line.turn(true);
                }
            }
            Begun::PutOff => self.owes_a_pump(0),
            Begun::Before => {}
        }
    }

    /// One pump. `counted`: since it was put off.
    fn turn(self: &Arc<Self>, counted: bool) {
        let host = self.host.upgrade();
        let mut queue = self.queue.lock();
        queue.pumps += usize::from(!counted);
        queue.wakes = queue.wakes.wrapping_add(1);
        let call = loop {
            let Some(host) = &host else { break None };
            if queue.granted >= host.most_granted() {
                break None;
            }
            let wakes = queue.wakes;
            let is_missed = queue.waiting.len() > 1 && queue.watched.is_never();
            let head = queue.waiting.iter_mut().find(|(_, waiting)| !waiting.asking);
            let Some((&ticket, waiting)) = head else { break None };
            waiting.asking = true;
            let job = waiting.job.clone();
            drop(queue);
            if is_missed {
                self.have_watched(&**host);
            }
            let Some(gates) = gates(&job) else { unreachable!("a job in a line has gates") };
            match gates.try_pass(Some(self)) {
                Ok(permits) => {
                    queue = self.queue.lock();
                    if queue.granted >= host.most_granted() {
                        // Others were let through meanwhile. When one of them begins, the line is pumped.
                        Self::stays(&mut queue, ticket);
                        drop(queue);
                        permits.end(Verdict::Unused);
                        drop(job);
                        queue = self.queue.lock();
                        break None;
                    }
                    queue.granted += 1;
                    let waited = self.take(&mut queue, ticket);
                    drop(queue);
                    let grant = Grant { line: Arc::clone(self), permits };
                    // Swept or withdrawn meanwhile: it is over.
                    if waited.is_none() {
                        grant.give_back();
                        drop(job);
                    } else {
                        gates.grant(grant);
                        if job.state.ungate() {
                            host.go_on(job);
                        } else {
                            // Whoever ended it may have looked for the grant before it was there.
                            gates.leave();
                            host.gone(&job);
                            drop(job);
                        }
                    }
                    drop(waited);
                    queue = self.queue.lock();
                }
                Err(Refusal { line, retry_after }) if Arc::ptr_eq(&line, self) => {
                    drop(job);
                    // A gate that says "at once" is asked again later all the same.
                    let again = retry_after.map(|delay| host.moment_after(delay.max(LEAST_DELAY)));
                    queue = self.queue.lock();
                    Self::stays(&mut queue, ticket);
                    if queue.wakes == wakes {
                        break again.filter(|again| {
                            let is_first = *again < queue.armed && !queue.waiting.is_empty();
                            if is_first {
                                queue.armed = *again;
                            }
                            is_first
                        });
                    }
                }
                Err(Refusal { line, .. }) => {
                    drop(job);
                    queue = self.queue.lock();
                    let waited = self.take(&mut queue, ticket);
                    drop(queue);
                    if let Some(waited) = waited {
                        line.enter(waited, ticket);
                    }
                    queue = self.queue.lock();
                }
            }
        };
        queue.pumps -= 1;
        drop(queue);
        if let (Some(at), Some(host)) = (call, host) {
            host.call_at(Arc::clone(self), at);
        }
    }

    /// It has asked, and is the head as before.
    fn stays(queue: &mut Queue, ticket: u64) {
        if let Some(waiting) = queue.waiting.get_mut(&ticket) {
            waiting.asking = false;
        }
    }

    /// Has somebody look whether the pumps have come back.
    #[cold]
    fn have_watched(self: &Arc<Self>, host: &dyn Host) {
        let at = host.moment_after(PATIENCE);
        if at.is_never() {
            return;
        }
        let mut queue = self.queue.lock();
        let is_first = queue.watched.is_never();
        if is_first {
            queue.watched = at;
        }
        drop(queue);
        if is_first {
            host.call_at(Arc::clone(self), at);
        }
    }
}

/// The shortest time until a gate is asked again.
const LEAST_DELAY: Duration = Duration::from_nanos(1000);
/// The same after it panicked.
const AFTER_A_PANIC: Duration = Duration::from_millis(10);
/// After so long, a pump that has not come back is not waited for.
const PATIENCE: Duration = Duration::from_secs(1);

impl Listener for Line {
    fn permit_freed(&self) {
        // ORDERING: SeqCst fence: ReturnFence, pairs with EnterFence in `enter`.
        fence(Ordering::SeqCst);
        if self.oldest() == NO_TICKET {
            // Who is about to enter asks by itself.
            return;
        }
        if let Some(me) = self.me.upgrade() {
            me.pump();
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("waiting", &self.queue.lock().waiting.len()).finish()
    }
}

#[cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]
mod tests {
    use super::*;
    use crate::runtime::policy::Pass;
    use crate::runtime::policy::gate::GateId;
    use crate::runtime::shared::Shared;

    struct Shut;

    impl Gate for Shut {
        fn try_pass(&self) -> Result<Box<dyn Pass>, Option<Duration>> {
            Err(None)
        }

        fn watch(&self, _: Weak<dyn Listener>) {}

        fn id(&self) -> GateId {
            (0, None)
        }
    }

    #[test]
    fn pumps_inside_a_pump_are_put_off_and_none_is_lost() {
        let line = |_| Line::new(Arc::new(Shut), Weak::<Shared>::new());
        let [outer, a, b] = [0, 1, 2].map(line);
        let Begun::Here(pumping) = Pumping::begin(&outer) else { panic!("nobody pumps here") };
        assert!(matches!(Pumping::begin(&a), Begun::PutOff));
        assert!(matches!(Pumping::begin(&b), Begun::PutOff));
        assert!(matches!(Pumping::begin(&a), Begun::Before));
        let put_off: Vec<_> = core::iter::from_fn(Pumping::next).collect();
        assert_eq!(put_off.len(), 2);
        assert!(put_off.iter().any(|line| Arc::ptr_eq(line, &a)));
        assert!(put_off.iter().any(|line| Arc::ptr_eq(line, &b)));
        drop(pumping);
        assert!(matches!(Pumping::begin(&a), Begun::Here(_)), "when it is done another may begin");
    }
}
