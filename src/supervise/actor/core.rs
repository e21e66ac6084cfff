//! What an actor and its references share.

use core::fmt;
use core::task::Waker;
use std::sync::Arc as StdArc;

use crossbeam_utils::CachePadded;

use super::mailbox::{Refusal, Ring};
use super::room::Room;
use super::watch::Watchers;
use super::word::{Phase, Rested, Signalled, Word, WordCell};
use super::{ActorId, Exit, ShutdownCause};
use crate::runtime::Clockwork;
use crate::runtime::intake::Intake;
use crate::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::sync::cell::UnsafeCell;

/// Something on the control lane.
pub(crate) enum Entry<M> {
    /// A message from within: of a watch, a pipe, a supervisor's child.
    Own(M),
    /// The actor's timer of this number is due.
    Fired(u64),
}

const STOP: u32 = 1;
const SHUT_DOWN: u32 = 2;
const KILL: u32 = 4;

/// What an actor was told to do with itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// End, as by its own wish.
    Stop,
    /// End, because its supervisor says so.
    ShutDown,
    /// End, without `stopped`.
    Kill,
}

impl Order {
    pub(super) fn exit(self) -> Exit {
        match self {
            Self::Stop => Exit::Normal,
            Self::ShutDown => Exit::Shutdown(ShutdownCause::Supervisor),
            Self::Kill => Exit::Killed,
        }
    }
}

/// See the [file's docs](self).
pub(crate) struct Core<M> {
    word: CachePadded<WordCell>,
    mailbox: Ring<M>,
    /// How far the actor has come: written by the actor only.
    head: CachePadded<AtomicU64>,
    lane: Intake<Entry<M>>,
    orders: AtomicU32,
    /// References that could send something.
    references: AtomicUsize,
    /// Written once, in the first turn, before the word says Idle for the first time.
    waker: UnsafeCell<Option<Waker>>,
    pub(super) room: Room,
    pub(super) watchers: Watchers,
    pub(super) id: ActorId,
    pub(super) name: Option<StdArc<str>>,
    /// `None` in a model.
    pub(super) timers: Option<StdArc<Clockwork>>,
}

// SAFETY: the waker's cell is written in the first turn and read only by whoever moves the word out of
// Idle, which comes after (edge `rest` → `claim`, `signal`); everything else is `Sync` where messages can
// be sent.
unsafe impl<M: Send> Sync for Core<M> {}
// SAFETY: messages move between threads, and are `Send`.
unsafe impl<M: Send> Send for Core<M> {}

impl<M> Core<M> {
    /// With one reference, which the caller makes.
    pub(crate) fn new(
        capacity: usize,
        id: ActorId,
        name: Option<StdArc<str>>,
        timers: Option<StdArc<Clockwork>>,
    ) -> Self {
        Self {
            word: CachePadded::new(WordCell::new()),
            mailbox: Ring::new(capacity),
            head: CachePadded::new(AtomicU64::new(0)),
            lane: Intake::new(),
            orders: AtomicU32::new(0),
            references: AtomicUsize::new(1),
            waker: UnsafeCell::new(None),
            room: Room::new(),
            watchers: Watchers::new(),
            id,
            name,
            timers,
        }
    }

    pub(super) fn capacity(&self) -> usize {
        self.mailbox.capacity()
    }

    pub(super) fn phase(&self) -> Phase {
        self.word.peek().phase()
    }

    pub(super) fn is_over(&self) -> bool {
        self.word.is_over()
    }

    /// How many messages lie in the mailbox, about.
    pub(super) fn waiting(&self) -> usize {
        // ORDERING: Relaxed: a number for the eye.
        let head = self.head.load(Ordering::Relaxed);
        let count = self.word.peek().position().wrapping_sub(head) / super::word::ONE;
        // Read at two moments: the head may have passed by.
        usize::try_from(count).unwrap_or(usize::MAX).min(self.capacity())
    }

    // --- senders --------------------------------------------------------------------------------

    #[inline]
    pub(super) fn push(&self, message: M) -> Result<(), (Refusal, M)> {
        if self.mailbox.push(&self.word, message)? {
            self.wake();
        }
        Ok(())
    }

    /// The caller has moved the word out of Idle.
    fn wake(&self) {
        // SAFETY: Idle was seen with Acquire, so the waker was written before, and is not written again.
        self.waker.with(|waker| {
            // SAFETY: as above.
            if let Some(waker) = unsafe { &*waker } {
                waker.wake_by_ref();
            }
        });
    }

    /// The caller is in the list of those who wait for room. False: the actor takes no more messages.
    pub(super) fn announce_waiter(&self) -> bool {
        self.word.announce_waiter().is_open()
    }

    fn signal(&self) -> bool {
        match self.word.signal() {
            Signalled::Wake => self.wake(),
            Signalled::Seen => {}
            Signalled::Over => return false,
        }
        true
    }

    /// Puts an entry on the control lane. If the actor is over, the entry is dropped.
    pub(crate) fn control(&self, entry: Entry<M>) {
        self.lane.push(entry);
        if !self.signal() {
            // The actor's own last look may have come before our push.
            self.sweep_lane();
        }
    }

    pub(crate) fn order(&self, order: Order) {
        let bit = match order {
            Order::Stop => STOP,
            Order::ShutDown => SHUT_DOWN,
            Order::Kill => KILL,
        };
        // ORDERING: Release: pairs with the Acquire in `orders`: what came before the order.
        self.orders.fetch_or(bit, Ordering::Release);
        let _ = self.signal();
    }

    pub(super) fn one_more_reference(&self) {
        // ORDERING: Relaxed: made from one that is there, or by the actor, which reads the count itself.
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn one_reference_less(&self) {
        // ORDERING: Release: pairs with the Acquire in `is_forsaken`: what was sent through this one.
        if self.references.fetch_sub(1, Ordering::Release) == 1 {
            let _ = self.signal();
        }
    }

    // --- the actor, in its turn -----------------------------------------------------------------

    /// The turn begins. The first one leaves the waker.
    pub(super) fn begin(&self, waker: &Waker, first: bool) {
        if first {
            // Cloned out of the cell: ours, so it does not panic.
            let waker = waker.clone();
            // SAFETY: the first turn: the word has never been Idle, so nobody reads the cell.
            self.waker.with_mut(|at| unsafe { *at = Some(waker) });
        }
        self.word.begin();
    }

    #[inline]
    pub(super) fn pop(&self, head: &mut u64) -> Option<M> {
        let message = self.mailbox.pop(*head)?;
        *head = head.wrapping_add(super::word::ONE);
        // ORDERING: Relaxed: for the eye.
        self.head.store(*head, Ordering::Relaxed);
        Some(message)
    }

    /// Whether the lane or an order wants to be looked at. May be late by as much as a signal takes.
    #[inline]
    pub(super) fn is_signalled(&self) -> bool {
        // ORDERING: Relaxed: a hint between two steps of the word, which order it.
        !self.lane.is_empty() || self.orders.load(Ordering::Relaxed) != 0
    }

    pub(super) fn orders(&self) -> Option<Order> {
        // ORDERING: Acquire: pairs with the Release in `order`.
        match self.orders.load(Ordering::Acquire) {
            0 => None,
            bits if bits & KILL != 0 => Some(Order::Kill),
            bits if bits & SHUT_DOWN != 0 => Some(Order::ShutDown),
            _ => Some(Order::Stop),
        }
    }

    /// Whether nobody is left who could send anything. If so, all that was sent is visible.
    #[inline]
    pub(super) fn is_forsaken(&self) -> bool {
        // ORDERING: Acquire: pairs with the Release in `one_reference_less`.
        self.references.load(Ordering::Acquire) == 0
    }

    /// What lies on the lane, the first one last.
    pub(super) fn take_lane(&self, into: &mut Vec<Entry<M>>) {
        if !self.lane.is_empty() {
            into.extend(self.lane.take());
        }
    }

    pub(super) fn rest(&self, head: u64) -> Rested {
        self.word.rest(head)
    }

    /// Looks at what the flags stand for: wakes senders if some wait.
    pub(super) fn serve_flags(&self) {
        if self.word.take_flags().has_waiters() {
            self.room.wake(self.capacity());
        }
    }

    pub(super) fn again(&self) {
        self.word.again();
    }

    pub(super) fn seize(&self) {
        self.word.seize();
    }

    /// No more messages. Those who wait for room hear of it.
    pub(super) fn close(&self) -> Word {
        let word = self.word.close();
        self.room.wake(usize::MAX);
        word
    }

    pub(super) fn end(&self) {
        self.word.end();
        self.sweep_lane();
    }

    /// Drops what is left on the lane of an actor that is over.
    fn sweep_lane(&self) {
        // Ordered by `end`, or the caller's own push: what one of the two sees is not left there.
        if self.lane.is_empty() {
            return;
        }
        for entry in self.lane.take() {
            crate::runtime::contained(move || drop(entry));
        }
    }
}

impl<M> fmt::Debug for Core<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("id", &self.id)
            .field("word", &*self.word)
            .finish_non_exhaustive()
    }
}
