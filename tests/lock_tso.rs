//! The asymmetric fence, in a model that has store buffers.
//!
//! Loom knows no fence that one thread executes for all others, so the models there put a full
//! fence on both sides and cannot see a missing barrier. Here is a machine that can: each thread has
//! a FIFO store buffer, which drains whenever it likes; a read-modify-write drains its own; the
//! barrier drains the others', one by one. All interleavings are explored. The steps bear the names
//! that the proof in `tenure::lock` uses.
//!
//! The machine knows two words, HELD/FREE and the queue; the kernel's compare-and-sleep is one step.

use std::collections::{HashSet, VecDeque};

const CONTENDED: u8 = 1;
const ONE: u8 = 2;
const SLEEPERS: u8 = 0b1110;
/// Contended mode is left after three quiet unlocks here.
const QUIET: u8 = 0b1100_0000;
const ONE_QUIET: u8 = 0b0100_0000;

const WORD: usize = 0;
const QUEUE: usize = 1;

/// What is wrong with the lock that is explored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// A2 is left out.
    NoBarrier,
    /// A2 comes before A1.
    BarrierBeforeCount,
    /// R3 in contended mode is a plain load.
    PlainLookWhenContended,
    /// R3 in idle mode is left out.
    NoSecondLook,
    /// The owner leaves contended mode without looking for sleepers.
    LeavesOverSleepers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Take,
    /// Under the lock; R1 is next.
    Inside,
    /// R2 is next; the queue was idle (true) or not.
    Free(bool),
    /// R3 is next.
    Look(bool),
    /// The read-modify-write look that follows a plain one which saw something.
    LookAgain,
    /// A sleeper was counted: wake one.
    Wake,
    /// One was woken: take it off the count.
    Correct,
    /// A1 is next.
    Count,
    /// A2 is next, for the thread of this number.
    Barrier(u8),
    /// A3 is next.
    Contend,
    /// A4 is next.
    Sleep,
    Asleep,
    Withdraw,
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    at: At,
    rounds: u8,
    buffer: VecDeque<(usize, u8)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Machine {
    memory: [u8; 2],
    threads: Vec<Thread>,
}

impl Machine {
    fn new(threads: usize, rounds: u8) -> Self {
        let thread = Thread { at: At::Take, rounds, buffer: VecDeque::new() };
        Self { memory: [0, 0], threads: vec![thread; threads] }
    }

    /// A load: the newest value in the thread's own buffer, or memory.
    fn load(&self, me: usize, what: usize) -> u8 {
        let own = self.threads[me].buffer.iter().rev().find(|(at, _)| *at == what);
        own.map_or(self.memory[what], |(_, value)| *value)
    }

    fn drain_one(&mut self, whose: usize) -> bool {
        match self.threads[whose].buffer.pop_front() {
            Some((at, value)) => {
                self.memory[at] = value;
                true
            }
            None => false,
        }
    }

    fn drain(&mut self, whose: usize) {
        while self.drain_one(whose) {}
    }

    /// A read-modify-write: drains the thread's own buffer first.
    fn change(&mut self, me: usize, what: usize, change: impl FnOnce(u8) -> u8) -> u8 {
        self.drain(me);
        let before = self.memory[what];
        self.memory[what] = change(before);
        before
    }

    /// The machine after thread `me`'s next step; `None` if it has none.
    fn step(&self, me: usize, fault: Fault) -> Option<Self> {
        let mut next = self.clone();
        let at = match self.threads[me].at {
            At::Take => {
                let was_free = next.change(me, WORD, |_| 1) == 0;
                match fault {
                    _ if was_free => At::Inside,
                    Fault::BarrierBeforeCount => At::Barrier(0),
                    _ => At::Count,
                }
            }
            At::Inside => {
                let queue = next.load(me, QUEUE);
                let quiet = queue & QUIET == QUIET
                    && (queue & SLEEPERS == 0 || fault == Fault::LeavesOverSleepers);
                if quiet {
                    let now = next.change(me, QUEUE, |now| if now == queue { 0 } else { now });
                    At::Free(now == queue)
                } else {
                    At::Free(queue == 0)
                }
            }
            At::Free(idle) => {
                next.threads[me].buffer.push_back((WORD, 0));
                At::Look(idle)
            }
            At::Look(true) => {
                let idle = fault == Fault::NoSecondLook || next.load(me, QUEUE) == 0;
                if idle { next.leave(me) } else { At::LookAgain }
            }
            At::Look(false) if fault == Fault::PlainLookWhenContended => {
                if next.load(me, QUEUE) & SLEEPERS == 0 { next.leave(me) } else { At::Wake }
            }
            At::Look(false) => {
                let queue = next.change(me, QUEUE, |queue| queue.wrapping_add(ONE_QUIET));
                if queue & SLEEPERS == 0 { next.leave(me) } else { At::Wake }
            }
            At::LookAgain => {
                let queue = next.change(me, QUEUE, |queue| queue);
                if queue & SLEEPERS == 0 { next.leave(me) } else { At::Wake }
            }
            At::Wake => {
                // A system call: the buffer is empty by the time the kernel looks.
                next.drain(me);
                match next.threads.iter().position(|thread| thread.at == At::Asleep) {
                    Some(sleeper) => {
                        next.threads[sleeper].at = At::Take;
                        At::Correct
                    }
                    None => next.leave(me),
                }
            }
            At::Correct => {
                next.change(me, QUEUE, |queue| queue.wrapping_sub(ONE));
                next.leave(me)
            }
            At::Count => {
                let before = next.change(me, QUEUE, |queue| (queue & !QUIET) + ONE);
                match fault {
                    _ if before & CONTENDED != 0 => At::Sleep,
                    Fault::NoBarrier | Fault::BarrierBeforeCount => At::Contend,
                    _ => At::Barrier(0),
                }
            }
            At::Barrier(whose) if usize::from(whose) < next.threads.len() => {
                next.drain(usize::from(whose));
                At::Barrier(whose + 1)
            }
            At::Barrier(_) => match fault {
                Fault::BarrierBeforeCount => At::Count,
                _ => At::Contend,
            },
            At::Contend => {
                next.change(me, QUEUE, |queue| queue | CONTENDED);
                At::Sleep
            }
            At::Sleep => {
                next.drain(me);
                if next.memory[WORD] == 1 { At::Asleep } else { At::Withdraw }
            }
            At::Withdraw => {
                next.change(me, QUEUE, |queue| queue.wrapping_sub(ONE));
                At::Take
            }
            At::Asleep | At::Done => return None,
        };
        next.threads[me].at = at;
        Some(next)
    }

    /// One round is over.
    fn leave(&mut self, me: usize) -> At {
        self.threads[me].rounds -= 1;
        if self.threads[me].rounds == 0 { At::Done } else { At::Take }
    }

    fn all_next(&self, fault: Fault) -> Vec<Self> {
        let mut all = Vec::new();
        for me in 0..self.threads.len() {
            all.extend(self.step(me, fault));
            let mut drained = self.clone();
            if drained.drain_one(me) {
                all.push(drained);
            }
        }
        all
    }

    fn is_over(&self) -> bool {
        self.threads.iter().all(|thread| thread.at == At::Done && thread.buffer.is_empty())
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing is wrong in any of so many states.
    Sound(usize),
    TwoOwners,
    LostWake,
    Leftover,
}

/// Explores everything that `threads` threads of `rounds` rounds can do.
fn explore(threads: usize, rounds: u8, fault: Fault) -> Verdict {
    let start = Machine::new(threads, rounds);
    let mut seen = HashSet::from([start.clone()]);
    let mut open = vec![start];
    while let Some(machine) = open.pop() {
        let inside = |t: &&Thread| matches!(t.at, At::Inside | At::Free(_));
        if machine.threads.iter().filter(inside).count() > 1 {
            return Verdict::TwoOwners;
        }
        let next = machine.all_next(fault);
        if next.is_empty() {
            if !machine.is_over() {
                return Verdict::LostWake;
            }
            if machine.memory[WORD] != 0 || machine.memory[QUEUE] & SLEEPERS != 0 {
                return Verdict::Leftover;
            }
        }
        for machine in next {
            if seen.insert(machine.clone()) {
                open.push(machine);
            }
        }
    }
    Verdict::Sound(seen.len())
}

#[test]
fn no_wake_is_lost_on_a_machine_with_store_buffers() {
    for (threads, rounds) in [(2, 1), (2, 3), (2, 6), (3, 1), (3, 2)] {
        let verdict = explore(threads, rounds, Fault::None);
        println!("{threads} threads, {rounds} rounds: {verdict:?}");
        assert!(matches!(verdict, Verdict::Sound(states) if states > 100), "{verdict:?}");
    }
}

/// What proves that the test above can fail: each planted fault is found.
#[test]
fn every_planted_fault_is_found() {
    for fault in [
        Fault::NoBarrier,
        Fault::BarrierBeforeCount,
        Fault::PlainLookWhenContended,
        Fault::NoSecondLook,
        Fault::LeavesOverSleepers,
    ] {
        let found = [(2, 1), (2, 3), (2, 6), (3, 1), (3, 2), (3, 4)]
            .into_iter()
            .map(|shape| (shape, explore(shape.0, shape.1, fault)))
            .find(|(_, verdict)| !matches!(verdict, Verdict::Sound(_)));
        println!("{fault:?}: {found:?}");
        assert!(found.is_some(), "not found: {fault:?}");
    }
}
