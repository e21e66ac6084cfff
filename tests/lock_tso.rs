//! The mutex on a machine with store buffers.
//!
//! Loom knows no fence that one thread executes for all others, so the models there put a full
//! fence on both sides and cannot tell that one of them is only the compiler's. Here is a machine
//! that can. It runs the lock's own source, which is compiled once more below with this file's
//! atomics, barriers and sleeps in place of the crate's: what is explored is what ships.
//!
//! - A store goes to the thread's own buffer (first in, first out), which drains at any moment, or
//!   never until something makes it: a read-modify-write or a system call of the thread itself, or
//!   somebody's heavy barrier. The light barrier is nothing at all. A load looks into the thread's own
//!   buffer first.
//! - A sleep compares and sleeps in one step; a wake wakes the one who sleeps longest.
//!
//! All schedules with up to so many interventions (a switch away from a thread that could go on, or
//! a store that drains by itself) are explored.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use lock_api::RawMutex;

/// What is wrong with the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The heavy barrier is left out.
    NoBarrier,
    /// It drains the caller's own buffer alone.
    BarrierForMyself,
    /// A read-modify-write leaves the buffer as it is.
    LooseChange,
    /// A sleep does not compare.
    NoCompare,
    /// A wake wakes nobody.
    NoWake,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    Ready,
    /// On the word at this address.
    Asleep(usize),
    Done,
}

/// One store that has not reached memory.
struct Store {
    to: *const core::sync::atomic::AtomicU32,
    value: u32,
}

/// One execution.
struct World {
    fault: Fault,
    /// Whose turn it is; all others wait.
    turn: usize,
    threads: Vec<Thread>,
    buffers: Vec<std::collections::VecDeque<Store>>,
    /// Who sleeps, the longest first.
    sleepers: Vec<usize>,
    /// How many interventions are left.
    left: usize,
    /// What was chosen out of how many, so far and (beyond `at`) to be chosen again.
    path: Vec<(usize, usize)>,
    at: usize,
    verdict: Option<Verdict>,
}

// SAFETY: the pointers lead to the words of the lock that the execution shares; they are followed by
// one thread at a time, while the lock is alive.
unsafe impl Send for World {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing is wrong in any of so many executions.
    Sound(usize),
    TwoOwners,
    /// Everybody sleeps.
    LostWake,
    Leftover,
}

struct Machine {
    world: Mutex<World>,
    turns: Condvar,
}

thread_local! {
    /// The machine that this thread runs on, and its number there.
    static HERE: RefCell<Option<(Arc<Machine>, usize)>> = const { RefCell::new(None) };
}

/// What a thread unwinds with when the execution is over for another reason.
struct Over;

enum Choice {
    GoOn,
    Switch(usize),
    Drain(usize),
}

impl World {
    /// One of `of` choices, by the path or the first one.
    fn choose(&mut self, of: usize) -> usize {
        if of == 1 {
            return 0;
        }
        if self.at == self.path.len() {
            self.path.push((0, of));
        }
        let (chosen, total) = self.path[self.at];
        assert_eq!(total, of, "the same execution, once more");
        self.at += 1;
        chosen
    }

    fn load(&self, me: usize, from: *const core::sync::atomic::AtomicU32) -> u32 {
        let own = self.buffers[me].iter().rev().find(|store| store.to == from);
        // SAFETY: the word is alive: whoever asks borrows it.
        own.map_or_else(
            || unsafe { &*from }.load(core::sync::atomic::Ordering::SeqCst),
            |store| store.value,
        )
    }

    fn drain_one(&mut self, whose: usize) {
        if let Some(store) = self.buffers[whose].pop_front() {
            // SAFETY: the lock outlives the execution's threads.
            unsafe { &*store.to }.store(store.value, core::sync::atomic::Ordering::SeqCst);
        }
    }

    fn drain(&mut self, whose: usize) {
        while !self.buffers[whose].is_empty() {
            self.drain_one(whose);
        }
    }

    fn others_ready(&self, me: usize) -> Vec<usize> {
        (0..self.threads.len()).filter(|t| *t != me && self.threads[*t] == Thread::Ready).collect()
    }
}

impl Machine {
    /// Runs `step` as one step of the calling thread, after whatever comes in between.
    fn step<R>(step: impl FnOnce(&mut World, usize) -> R) -> R {
        let (machine, me) = HERE.with_borrow(|here| here.clone().expect("on a machine"));
        let mut world = machine.world.lock().unwrap();
        while world.left > 0 && world.verdict.is_none() {
            let mut choices = vec![Choice::GoOn];
            choices.extend(world.others_ready(me).into_iter().map(Choice::Switch));
            let full = (0..world.buffers.len()).filter(|t| !world.buffers[*t].is_empty());
            choices.extend(full.map(Choice::Drain));
            let chosen = world.choose(choices.len());
            match choices[chosen] {
                Choice::GoOn => break,
                Choice::Switch(to) => {
                    world.left -= 1;
                    world = machine.switch(world, me, to);
                    break;
                }
                Choice::Drain(whose) => {
                    world.left -= 1;
                    world.drain_one(whose);
                }
            }
        }
        if world.verdict.is_some() {
            drop(world);
            std::panic::resume_unwind(Box::new(Over));
        }
        step(&mut world, me)
    }

    /// Gives the turn to `to` and waits for it to come back.
    fn switch<'a>(
        &'a self,
        mut world: std::sync::MutexGuard<'a, World>,
        me: usize,
        to: usize,
    ) -> std::sync::MutexGuard<'a, World> {
        world.turn = to;
        self.turns.notify_all();
        self.turns.wait_while(world, |w| w.turn != me && w.verdict.is_none()).unwrap()
    }

    /// The calling thread cannot go on: somebody else's turn, if anybody can.
    fn yield_turn(&self, world: &mut World, me: usize) {
        let ready = world.others_ready(me);
        if ready.is_empty() {
            if world.threads.iter().any(|t| matches!(t, Thread::Asleep(_))) {
                world.verdict = Some(Verdict::LostWake);
            }
        } else {
            world.turn = ready[world.choose(ready.len())];
        }
        self.turns.notify_all();
    }

    fn judge(verdict: Verdict) {
        Self::step(|world, _| world.verdict = Some(verdict));
        Self::step(|_, _| ()); // unwinds
    }
}

/// The crate's door, for this machine.
mod sync {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Wait {
        Woken,
        Changed,
        TimedOut,
    }

    pub(crate) mod atomic {
        use crate::{Fault, HERE, Machine, Store};
        use core::sync::atomic::Ordering::SeqCst;

        pub(crate) use core::sync::atomic::Ordering;

        #[repr(transparent)]
        pub(crate) struct AtomicU32(core::sync::atomic::AtomicU32);

        impl AtomicU32 {
            pub(crate) const fn const_new(value: u32) -> Self {
                Self(core::sync::atomic::AtomicU32::new(value))
            }

            pub(crate) fn in_memory(&self) -> u32 {
                self.0.load(SeqCst)
            }

            pub(crate) fn load(&self, _: Ordering) -> u32 {
                if HERE.with_borrow(Option::is_none) {
                    return self.in_memory(); // a look from outside, after the end
                }
                Machine::step(|world, me| world.load(me, &raw const self.0))
            }

            pub(crate) fn store(&self, value: u32, _: Ordering) {
                Machine::step(|world, me| {
                    world.buffers[me].push_back(Store { to: &raw const self.0, value });
                });
            }

            fn change(&self, change: impl FnOnce(u32) -> Option<u32>) -> Result<u32, u32> {
                Machine::step(|world, me| {
                    if world.fault != Fault::LooseChange {
                        world.drain(me);
                    }
                    let before = world.load(me, &raw const self.0);
                    match change(before) {
                        Some(after) => {
                            self.0.store(after, SeqCst);
                            Ok(before)
                        }
                        None => Err(before),
                    }
                })
            }

            pub(crate) fn compare_exchange(
                &self,
                expected: u32,
                new: u32,
                _: Ordering,
                _: Ordering,
            ) -> Result<u32, u32> {
                self.change(|now| (now == expected).then_some(new))
            }

            pub(crate) fn fetch_or(&self, bits: u32, _: Ordering) -> u32 {
                self.change(|now| Some(now | bits)).unwrap_or(0)
            }

            pub(crate) fn fetch_and(&self, bits: u32, _: Ordering) -> u32 {
                self.change(|now| Some(now & bits)).unwrap_or(0)
            }
        }
    }

    pub(crate) mod barrier {
        use crate::{Fault, Machine};

        pub(crate) fn light() {}

        /// The other processors pass their barriers one after the other, with steps between.
        pub(crate) fn heavy() -> bool {
            let all = Machine::step(|world, me| {
                if world.fault != Fault::NoBarrier {
                    world.drain(me);
                }
                match world.fault {
                    Fault::NoBarrier | Fault::BarrierForMyself => 0,
                    _ => world.threads.len(),
                }
            });
            for whose in 0..all {
                Machine::step(|world, _| world.drain(whose));
            }
            true
        }
    }

    pub(crate) mod park {
        use super::Wait;
        use super::atomic::AtomicU32;
        use crate::{Fault, HERE, Machine, Over, Thread};
        use core::time::Duration;

        pub(crate) fn wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) -> Wait {
            assert!(limit.is_none(), "this machine has no time");
            let key = core::ptr::from_ref(word).addr();
            let asleep = Machine::step(|world, me| {
                world.drain(me);
                if word.in_memory() != expected && world.fault != Fault::NoCompare {
                    return false;
                }
                world.threads[me] = Thread::Asleep(key);
                world.sleepers.push(me);
                true
            });
            if !asleep {
                return Wait::Changed;
            }
            let (machine, me) = HERE.with_borrow(|here| here.clone().expect("on a machine"));
            let mut world = machine.world.lock().unwrap();
            machine.yield_turn(&mut world, me);
            let world =
                machine.turns.wait_while(world, |w| w.turn != me && w.verdict.is_none()).unwrap();
            if world.verdict.is_some() {
                drop(world);
                std::panic::resume_unwind(Box::new(Over));
            }
            Wait::Woken
        }

        pub(crate) fn wake_one(word: *const AtomicU32) -> usize {
            Machine::step(|world, me| {
                world.drain(me);
                let first = (world.sleepers.iter())
                    .position(|t| world.threads[*t] == Thread::Asleep(word.addr()));
                let Some(first) = first.filter(|_| world.fault != Fault::NoWake) else {
                    return 0;
                };
                let thread = world.sleepers.remove(first);
                world.threads[thread] = Thread::Ready;
                1
            })
        }
    }
}

/// The room below the lock, for a machine without time, on which spinning proves nothing.
mod wait {
    use core::time::Duration;
    use std::time::Instant;

    pub(crate) const IN_A_MODEL: bool = true;

    #[derive(Clone, Copy)]
    pub(crate) struct Deadline;

    impl Deadline {
        pub(crate) const NEVER: Self = Self;
        pub(crate) fn after(_: Duration) -> Self {
            Self
        }
        pub(crate) fn at(_: Instant) -> Self {
            Self
        }
        pub(crate) fn remaining(self) -> Option<Duration> {
            None
        }
        pub(crate) fn has_passed(self) -> bool {
            false
        }
    }

    #[derive(Clone, Copy, Debug)]
    pub(crate) enum SpinPolicy {
        Auto,
    }

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Budget;

    impl Budget {
        pub(crate) const MAX: u32 = 15;
        pub(crate) const fn of(_: SpinPolicy) -> Self {
            Self
        }
        pub(crate) const fn from_number(_: u32) -> Self {
            Self
        }
        pub(crate) const fn number(self) -> u32 {
            0
        }
        pub(crate) fn for_newcomer(self) -> Spin {
            Spin
        }
        pub(crate) fn for_woken(self) -> Spin {
            Spin
        }
        pub(crate) fn for_starving(self) -> Spin {
            Spin
        }
    }

    pub(crate) struct Spin;

    impl Spin {
        pub(crate) fn round(&mut self) -> bool {
            false
        }
    }

    /// Patience is over at once, so that each second sleep is that of a starving waiter.
    #[derive(Clone, Copy)]
    pub(crate) struct Stopwatch;

    impl Stopwatch {
        pub(crate) fn start() -> Self {
            Self
        }
        pub(crate) fn elapsed(self) -> Duration {
            Duration::MAX
        }
    }
}

/// The lock's own source.
#[allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    reason = "what this machine does not use of it"
)]
#[path = "../src/lock"]
mod lock {
    mod raw;
    mod state;
    mod unlock;

    /// No counters here.
    #[cfg(feature = "lock-contention")]
    mod contention {
        pub(crate) struct Counters;
        impl Counters {
            pub(crate) const fn new() -> Self {
                Self
            }
            pub(crate) fn record(&self, _: Trip, _: core::time::Duration) {}
            pub(crate) fn read(&self) -> Contention {
                Contention
            }
        }
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Trip {
            pub(crate) sleeps: u64,
            pub(crate) handed: bool,
            pub(crate) won: bool,
        }
        pub(crate) struct Contention;
    }
    #[cfg(feature = "lock-contention")]
    pub(crate) use contention::Contention;

    pub(crate) use raw::RawAdaptiveMutex;
    pub(crate) use unlock::{AsymmetricUnlock, SymmetricUnlock, Unlock};
}

use lock::{AsymmetricUnlock, RawAdaptiveMutex, SymmetricUnlock, Unlock};

/// One execution along `path`: `threads` threads lock and unlock `rounds` times each.
fn execute<U: Unlock>(
    threads: usize,
    rounds: usize,
    interventions: usize,
    fault: Fault,
    path: Vec<(usize, usize)>,
) -> (Option<Verdict>, Vec<(usize, usize)>) {
    let world = World {
        fault,
        turn: 0,
        threads: vec![Thread::Ready; threads],
        buffers: (0..threads).map(|_| Default::default()).collect(),
        sleepers: Vec::new(),
        left: interventions,
        path,
        at: 0,
        verdict: None,
    };
    let machine = Arc::new(Machine { world: Mutex::new(world), turns: Condvar::new() });
    let lock = RawAdaptiveMutex::<U>::new();
    let inside = core::sync::atomic::AtomicUsize::new(0);
    let body = |me: usize| {
        HERE.set(Some((Arc::clone(&machine), me)));
        let world = machine.world.lock().unwrap();
        drop(machine.turns.wait_while(world, |w| w.turn != me && w.verdict.is_none()).unwrap());
        let over = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..rounds {
                let guard = lock.lock();
                let before = inside.fetch_add(1, core::sync::atomic::Ordering::SeqCst);
                if before != 0 {
                    Machine::judge(Verdict::TwoOwners);
                }
                Machine::step(|_, _| ()); // time for others to come in
                inside.fetch_sub(1, core::sync::atomic::Ordering::SeqCst);
                // SAFETY: the guard of this acquisition.
                unsafe { lock.unlock(guard) };
            }
        }));
        match over {
            Ok(()) => {
                let mut world = machine.world.lock().unwrap();
                world.threads[me] = Thread::Done;
                machine.yield_turn(&mut world, me);
            }
            Err(over) if over.is::<Over>() => {}
            Err(panic) => std::panic::resume_unwind(panic),
        }
    };
    thread::scope(|scope| {
        for me in 0..threads {
            let body = &body;
            scope.spawn(move || body(me));
        }
    });
    let mut world = machine.world.lock().unwrap();
    (0..threads).for_each(|thread| world.drain(thread));
    if world.verdict.is_none() {
        let words = format!("{lock:?}");
        let at_rest = "held: false, queue: Queue { contended: ";
        if !words.contains(at_rest) || !words.contains("starving: false, promised: false") {
            world.verdict = Some(Verdict::Leftover);
        }
    }
    (world.verdict, std::mem::take(&mut world.path))
}

/// Explores every schedule with at most so many interventions.
fn explore<U: Unlock>(
    threads: usize,
    rounds: usize,
    interventions: usize,
    fault: Fault,
) -> Verdict {
    let (mut executions, mut path) = (0, Vec::new());
    loop {
        let (verdict, walked) = execute::<U>(threads, rounds, interventions, fault, path);
        executions += 1;
        if let Some(verdict) = verdict {
            return verdict;
        }
        path = walked;
        // The last choice that has an alternative left.
        while path.last().is_some_and(|(chosen, of)| chosen + 1 == *of) {
            path.pop();
        }
        match path.last_mut() {
            Some((chosen, _)) => *chosen += 1,
            None => return Verdict::Sound(executions),
        }
    }
}

/// Threads, rounds, interventions.
const SHAPES: [(usize, usize, usize); 4] = [(2, 1, 4), (2, 2, 3), (3, 1, 2), (3, 2, 1)];

/// No wake is lost, no two threads are inside, nothing is left behind.
fn sound<U: Unlock>() {
    for (threads, rounds, interventions) in SHAPES {
        let begin = std::time::Instant::now();
        let verdict = explore::<U>(threads, rounds, interventions, Fault::None);
        println!(
            "{threads} threads, {rounds} rounds, {interventions} interventions: {verdict:?} in {:?}",
            begin.elapsed()
        );
        assert!(matches!(verdict, Verdict::Sound(executions) if executions > 50), "{verdict:?}");
    }
}

/// What proves that `sound` can fail: without the barrier, and on other faulty machines, it does.
fn every_planted_fault_is_found() {
    for (fault, expected) in [
        (Fault::NoBarrier, Verdict::LostWake),
        (Fault::BarrierForMyself, Verdict::LostWake),
        (Fault::LooseChange, Verdict::LostWake),
        (Fault::NoCompare, Verdict::LostWake),
        (Fault::NoWake, Verdict::LostWake),
    ] {
        let found = SHAPES
            .into_iter()
            .map(|shape| (shape, explore::<AsymmetricUnlock>(shape.0, shape.1, shape.2, fault)))
            .find(|(_, verdict)| !matches!(verdict, Verdict::Sound(_)));
        println!("{fault:?}: {found:?}");
        assert_eq!(found.map(|(_, verdict)| verdict), Some(expected), "{fault:?}");
    }
}

/// Not a libtest binary, so that the unit tests in the lock's source are not compiled along.
fn main() {
    // One thread runs at a time: on one processor the turns change faster.
    #[cfg(target_os = "linux")]
    // SAFETY: a set that lives in this frame, of its own size; processor 0 to 1023 fit.
    unsafe {
        let here = usize::try_from(libc::sched_getcpu()).unwrap_or(0);
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(here, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
    let tests: [(&str, fn()); 3] = [
        ("no_wake_is_lost_with_the_asymmetric_unlock", sound::<AsymmetricUnlock>),
        ("no_wake_is_lost_with_the_symmetric_unlock", sound::<SymmetricUnlock>),
        ("every_planted_fault_is_found", every_planted_fault_is_found),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
}
