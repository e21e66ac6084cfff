//! The limits: no permit is lost or given twice, no waiter is forgotten, who is refused is told.
//!
//! Bounds: who waits goes through the word, the line's lock and a promise, so models with a waiter and two
//! others are explored with 2 preemptions.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread::spawn;
use std::sync::Weak;
use std::time::Duration;
use tenure::clock::ManualClock;
use tenure::limit::*;

const SEC: Duration = Duration::from_secs(1);

/// Counts what it is told.
struct Told(AtomicU32);

impl Told {
    fn new() -> (std::sync::Arc<Self>, Weak<dyn Listener>) {
        let told = std::sync::Arc::new(Self(AtomicU32::new(0)));
        let weak: Weak<dyn Listener> = std::sync::Arc::downgrade(&told) as _;
        (told, weak)
    }

    fn is_told(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Listener for Told {
    fn permit_freed(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What is done under a permit.
struct Work(UnsafeCell<u32>);
// SAFETY: only for models: loom reports an access that races.
unsafe impl Sync for Work {}
// SAFETY: as above.
unsafe impl Send for Work {}

impl Work {
    fn do_it(&self) {
        // SAFETY: loom checks the access.
        self.0.with_mut(|n| unsafe { *n += 1 });
    }
}

fn rate(clock: &ManualClock, burst: u32) -> RateLimit {
    let rate = Rate::per_second(1).unwrap().burst(burst).unwrap();
    RateLimit::with_clock(rate, clock.clone())
}

fn adaptive(clock: &ManualClock) -> AdaptiveLimit {
    let limit = AdaptiveLimit::builder().initial(4).bounds(1, 8).decrease(0.5).window(SEC);
    limit.clock(clock.clone()).build().unwrap()
}

crate::models! { "limit";
    /// Three want two permits: two get one, and the word says so.
    take_x_take [bound: 2] {
        let limit = ConcurrencyLimit::new(2);
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let limit = limit.clone();
                spawn(move || limit.try_acquire().ok())
            })
            .collect();
        let permits: Vec<_> = callers.into_iter().filter_map(|c| c.join().unwrap()).collect();
        assert_eq!((permits.len(), limit.in_use()), (2, 2));
        drop(permits);
        assert_eq!(limit.in_use(), 0);
    }

    /// What was done under a permit is seen under the next.
    return_x_take {
        let limit = ConcurrencyLimit::new(1);
        let work = Arc::new(Work(UnsafeCell::new(0)));
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let (limit, work) = (limit.clone(), work.clone());
                spawn(move || {
                    if let Ok(_permit) = limit.try_acquire() {
                        work.do_it();
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.join().unwrap();
        }
    }

    /// A permit is returned while one comes to wait: it is served by one of the two, and sees what
    /// was done.
    return_x_waiter [bound: 3] {
        let limit = ConcurrencyLimit::new(1);
        let work = Arc::new(Work(UnsafeCell::new(0)));
        let held = limit.try_acquire().unwrap();
        let holder = {
            let work = work.clone();
            spawn(move || {
                work.do_it();
                drop(held);
            })
        };
        let waiter = {
            let limit = limit.clone();
            spawn(move || {
                let permit = limit.acquire().unwrap();
                work.do_it();
                drop(permit);
            })
        };
        holder.join().unwrap();
        waiter.join().unwrap();
        assert_eq!(limit.in_use(), 0);
        assert!(limit.try_acquire().is_ok());
    }

    /// The same while the limit is changed, down and up again: nobody is forgotten.
    return_x_waiter_x_set_limit [bound: 1] {
        let limit = ConcurrencyLimit::new(1);
        let held = limit.try_acquire().unwrap();
        let holder = spawn(move || drop(held));
        let waiter = {
            let limit = limit.clone();
            spawn(move || drop(limit.acquire().unwrap()))
        };
        let changer = {
            let limit = limit.clone();
            spawn(move || {
                limit.set_limit(0);
                limit.set_limit(1);
            })
        };
        holder.join().unwrap();
        waiter.join().unwrap();
        changer.join().unwrap();
        assert_eq!((limit.in_use(), limit.limit()), (0, 1));
        assert!(limit.try_acquire().is_ok());
    }

    /// The limit is raised while one comes to wait.
    set_limit_x_waiter [bound: 3] {
        let limit = ConcurrencyLimit::new(0);
        let waiter = {
            let limit = limit.clone();
            spawn(move || drop(limit.acquire().unwrap()))
        };
        let changer = {
            let limit = limit.clone();
            spawn(move || limit.set_limit(1))
        };
        waiter.join().unwrap();
        changer.join().unwrap();
        assert_eq!(limit.in_use(), 0);
    }

    /// Two come to wait while a permit is returned: each has its turn.
    return_x_two_waiters [bound: 2] {
        let limit = ConcurrencyLimit::new(1);
        let held = limit.try_acquire().unwrap();
        let waiter = || {
            let limit = limit.clone();
            spawn(move || limit.acquire_async())
        };
        let (first, second) = (waiter(), waiter());
        let holder = spawn(move || drop(held));
        holder.join().unwrap();
        let mut waiting = [first.join().unwrap(), second.join().unwrap()];
        // One of them has it now, the other when that one returns it.
        for turn in 1..=2 {
            let served = waiting.iter_mut().find_map(|waiting| {
                if waiting.state() == tenure::promise::State::ValueMoved {
                    return None;
                }
                waiting.try_get()
            });
            assert!(matches!(served, Some(Ok(_))), "turn {turn}");
        }
        assert_eq!((limit.in_use(), limit.waiting()), (0, 0));
        assert!(limit.try_acquire().is_ok(), "no mark is left");
    }

    /// A waiter gives up while it is given a permit: the permit is not lost.
    return_x_waiter_that_gives_up [bound: 3] {
        let limit = ConcurrencyLimit::new(1);
        let held = limit.try_acquire().unwrap();
        let waiting = limit.acquire_async();
        let holder = spawn(move || drop(held));
        let waiter = spawn(move || drop(waiting));
        holder.join().unwrap();
        waiter.join().unwrap();
        assert_eq!(limit.in_use(), 0);
        assert!(limit.try_acquire().is_ok());
    }

    /// Who is refused is told, if it listened before.
    return_x_refusal [bound: 3, std_arc] {
        let limit = ConcurrencyLimit::new(1);
        let held = limit.try_acquire().unwrap();
        let holder = spawn(move || drop(held));
        let caller = {
            let limit = limit.clone();
            spawn(move || {
                let (told, weak) = Told::new();
                limit.watch(weak);
                (limit.try_acquire().is_ok(), told)
            })
        };
        holder.join().unwrap();
        let (had, told) = caller.join().unwrap();
        assert!(had || told.is_told(), "refused, and not told");
    }

    /// Also who is refused for nothing but a waiter that has given up.
    return_x_refusal_behind_a_line [bound: 3, std_arc] {
        let limit = ConcurrencyLimit::new(1);
        let (told, weak) = Told::new();
        limit.watch(weak);
        let held = limit.try_acquire().unwrap();
        drop(limit.acquire_async());
        let holder = spawn(move || drop(held));
        let caller = {
            let limit = limit.clone();
            spawn(move || limit.try_acquire().ok())
        };
        holder.join().unwrap();
        assert!(caller.join().unwrap().is_some() || told.is_told(), "refused, and not told");
    }

    /// Keys: a permit is returned while one comes to wait, and then the key is forgotten.
    keyed_return_x_waiter [bound: 3] {
        let limit = KeyedConcurrency::new(1);
        let held = limit.try_acquire(&7).unwrap();
        let holder = spawn(move || drop(held));
        let waiter = {
            let limit = limit.clone();
            spawn(move || drop(limit.acquire(&7).unwrap()))
        };
        holder.join().unwrap();
        waiter.join().unwrap();
        assert_eq!(limit.keys(), 0);
    }

    /// Keys: the limit is raised while one comes to wait.
    keyed_set_limit_x_waiter [bound: 3] {
        let limit = KeyedConcurrency::new(0);
        let waiter = {
            let limit = limit.clone();
            spawn(move || drop(limit.acquire(&7).unwrap()))
        };
        let changer = {
            let limit = limit.clone();
            spawn(move || limit.set_limit(1))
        };
        waiter.join().unwrap();
        changer.join().unwrap();
        assert_eq!((limit.keys(), limit.limit()), (0, 1));
    }

    /// Keys: a waiter gives up while it is given a permit.
    keyed_return_x_waiter_that_gives_up [bound: 3] {
        let limit = KeyedConcurrency::new(1);
        let held = limit.try_acquire(&7).unwrap();
        let waiting = limit.acquire_async(&7);
        let holder = spawn(move || drop(held));
        let waiter = spawn(move || drop(waiting));
        holder.join().unwrap();
        waiter.join().unwrap();
        assert!(limit.try_acquire(&7).is_ok());
        assert_eq!(limit.keys(), 0);
    }

    /// Three take of a burst of two: two get one, and the next is a second away.
    rate_take_x_take [bound: 2] {
        let clock = ManualClock::new();
        let limit = rate(&clock, 2);
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let limit = limit.clone();
                spawn(move || limit.try_acquire().is_ok())
            })
            .collect();
        let got = callers.into_iter().map(|caller| caller.join().unwrap());
        assert_eq!(got.filter(|got| *got).count(), 2);
        assert_eq!(limit.try_acquire().unwrap_err().retry_after, Some(SEC));
    }

    /// Time pays for one permit while two want it.
    rate_advance_x_take [bound: 3] {
        let clock = ManualClock::new();
        let limit = rate(&clock, 1);
        limit.try_acquire().unwrap();
        let mover = spawn(move || clock.advance(SEC));
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let limit = limit.clone();
                spawn(move || limit.try_acquire().is_ok())
            })
            .collect();
        mover.join().unwrap();
        let got: u32 = callers.into_iter().map(|c| u32::from(c.join().unwrap())).sum();
        assert!(got <= 1);
        assert_eq!(limit.available(), 1 - got);
    }

    /// A permit is given back while another is taken: both are right, or it stays used.
    rate_give_back_x_take {
        let clock = ManualClock::new();
        let limit = rate(&clock, 2);
        let permit = limit.try_acquire().unwrap();
        let giver = spawn(move || permit.give_back());
        let taker = {
            let limit = limit.clone();
            spawn(move || limit.try_acquire().is_ok())
        };
        let back = giver.join().unwrap();
        assert!(taker.join().unwrap());
        assert_eq!(limit.available(), u32::from(back));
    }

    /// The rate is changed while a permit is taken: what was used up is in proportion, and the
    /// new rate is in force.
    rate_set_x_take [bound: 3] {
        let clock = ManualClock::new();
        let limit = rate(&clock, 2);
        let taker = {
            let limit = limit.clone();
            spawn(move || limit.try_acquire().is_ok())
        };
        let changer = {
            let limit = limit.clone();
            spawn(move || limit.set_rate(Rate::per(1, 2 * SEC).unwrap().burst(3).unwrap()))
        };
        assert!(taker.join().unwrap());
        changer.join().unwrap();
        let rate = limit.rate();
        assert_eq!((rate.interval(), rate.most_at_once()), (2 * SEC, 3));
        // A half is what the old interval took of the new one.
        assert!((1..=2).contains(&limit.available()));
        let _ = limit.try_acquire();
        let _ = limit.try_acquire();
        assert_eq!(limit.available(), 0);
    }

    /// One blocks for a permit while time comes: it goes on, however it looks at the clock.
    rate_advance_x_acquire [bound: 3, std_arc] {
        let clock = ManualClock::new();
        let limit = rate(&clock, 1);
        limit.try_acquire().unwrap();
        let mover = spawn(move || clock.advance(SEC));
        let waiter = {
            let limit = limit.clone();
            spawn(move || drop(limit.acquire()))
        };
        mover.join().unwrap();
        waiter.join().unwrap();
        assert_eq!(limit.available(), 0);
    }

    /// One blocks for a permit while the rate is changed so that there is one.
    rate_set_x_acquire [bound: 3, std_arc] {
        let clock = ManualClock::new();
        let limit = rate(&clock, 1);
        limit.try_acquire().unwrap();
        let changer = {
            let limit = limit.clone();
            spawn(move || limit.set_rate(Rate::per(1, Duration::ZERO).unwrap()))
        };
        let waiter = {
            let limit = limit.clone();
            spawn(move || drop(limit.acquire()))
        };
        changer.join().unwrap();
        waiter.join().unwrap();
    }

    /// A future waits for a permit while the rate is changed so that there is one.
    rate_set_x_acquire_async [bound: 2, std_arc] {
        let clock = ManualClock::new();
        let limit = rate(&clock, 1);
        limit.try_acquire().unwrap();
        let changer = {
            let limit = limit.clone();
            spawn(move || limit.set_rate(Rate::per(1, Duration::ZERO).unwrap()))
        };
        let waiter = {
            let limit = limit.clone();
            spawn(move || {
                loom::future::block_on(limit.acquire_async(|_| std::future::pending()));
            })
        };
        changer.join().unwrap();
        waiter.join().unwrap();
    }

    /// Two calls of one jam: one decrease.
    overloaded_x_overloaded [bound: 3] {
        let limit = adaptive(&ManualClock::new());
        let permits = [limit.try_acquire().unwrap(), limit.try_acquire().unwrap()];
        let calls = permits.map(|permit| spawn(move || permit.overloaded()));
        for call in calls {
            call.join().unwrap();
        }
        assert_eq!((limit.limit(), limit.in_use()), (2, 0));
    }

    /// The last two calls of a round of two end at once: the limit rises by one, and the next
    /// round begins.
    success_x_success [bound: 2] {
        let clock = ManualClock::new();
        let limit = adaptive(&clock);
        limit.try_acquire().unwrap().overloaded();
        assert_eq!(limit.limit(), 2);
        let permits = [limit.try_acquire().unwrap(), limit.try_acquire().unwrap()];
        let calls = permits.map(|permit| spawn(move || permit.success()));
        for call in calls {
            call.join().unwrap();
        }
        assert_eq!((limit.limit(), limit.in_use()), (3, 0));
        let round: Vec<_> = (0..3).map(|_| limit.try_acquire().unwrap()).collect();
        for (done, permit) in round.into_iter().enumerate() {
            assert_eq!(limit.limit(), 3, "after {done} of three");
            permit.success();
        }
        assert_eq!(limit.limit(), 4);
        // A decrease begins the round anew.
        let mut round: Vec<_> = (0..3).map(|_| limit.try_acquire().unwrap()).collect();
        round.pop().unwrap().success();
        clock.advance(2 * SEC);
        limit.observe(10 * SEC);
        assert_eq!(limit.limit(), 2);
        round.pop().unwrap().success_with(Duration::ZERO);
        assert_eq!(limit.limit(), 2);
        limit.set_target(10 * SEC);
        limit.observe(10 * SEC);
        limit.observe(10 * SEC);
        assert_eq!(limit.limit(), 3);
    }

    /// The bounds move while the limit falls: it ends within them.
    set_bounds_x_overloaded [bound: 3] {
        let limit = adaptive(&ManualClock::new());
        let permit = limit.try_acquire().unwrap();
        let call = spawn(move || permit.overloaded());
        let changer = {
            let limit = limit.clone();
            spawn(move || limit.set_bounds(4, 6).unwrap())
        };
        call.join().unwrap();
        changer.join().unwrap();
        assert_eq!(limit.limit(), 4);
        limit.set_bounds(1, 3).unwrap();
        assert_eq!(limit.limit(), 3);
        // However well it goes.
        let _crowd = [(); 3].map(|()| limit.try_acquire().unwrap());
        for _ in 0..4 {
            limit.observe(Duration::ZERO);
        }
        assert_eq!(limit.limit(), 3);
    }

    /// Two want the last place of a queue, one that is left meanwhile: never more than there are,
    /// and who is refused is told.
    shed_x_leave [bound: 2, std_arc] {
        let clock = ManualClock::new();
        let shedder = LoadShedder::builder().max_depth(1).clock(clock).build().unwrap();
        let place = shedder.try_acquire(Importance::High).unwrap();
        let (told, weak) = Told::new();
        shedder.watch(weak);
        let leaver = spawn(move || drop(place));
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let shedder = shedder.clone();
                spawn(move || shedder.try_acquire(Importance::High).ok())
            })
            .collect();
        leaver.join().unwrap();
        let places: Vec<_> = callers.into_iter().filter_map(|c| c.join().unwrap()).collect();
        assert!(places.len() <= 1);
        assert!(told.is_told());
        assert_eq!(shedder.depth() as usize, places.len());
        drop(places);
        assert_eq!(shedder.depth(), 0);
    }

    /// Two waits are told at once: the shorter one judges the interval.
    shed_start_x_start [bound: 3] {
        let clock = ManualClock::new();
        let builder = LoadShedder::builder().interval(SEC).target(Duration::from_millis(5));
        let shedder = builder.clock(clock.clone()).build().unwrap();
        let long = shedder.try_acquire(Importance::High).unwrap();
        clock.advance(Duration::from_millis(10));
        let short = shedder.try_acquire(Importance::High).unwrap();
        clock.advance(Duration::from_millis(4));
        let starts = [long, short].map(|place| spawn(move || place.start()));
        let waits = starts.map(|start| start.join().unwrap().as_millis());
        assert_eq!(waits, [14, 4]);
        clock.advance(SEC);
        assert_eq!(shedder.level(), 0);
        let place = shedder.try_acquire(Importance::High).unwrap();
        clock.advance(Duration::from_millis(10));
        place.start();
        clock.advance(SEC);
        assert_eq!(shedder.level(), 1);
        // The level lets every second one in; both settings are in force at once.
        let first = shedder.try_acquire(Importance::High).unwrap();
        let low: Vec<_> = (0..4).map(|_| shedder.try_acquire(Importance::Low).is_ok()).collect();
        assert_eq!(low, [true, false, true, false]);
        shedder.set_max_depth(1).unwrap();
        assert!(shedder.try_acquire(Importance::High).is_err());
        drop(first);
        shedder.set_target(SEC);
        let place = shedder.try_acquire(Importance::High).unwrap();
        clock.advance(Duration::from_millis(10));
        place.start();
        clock.advance(SEC);
        assert_eq!(shedder.level(), 0);
    }
}
