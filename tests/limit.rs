//! The limits through their public API. Time is a manual clock's; no test sleeps.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use tenure::clock::{Clock, ManualClock};
use tenure::limit::*;

const MS: Duration = Duration::from_millis(1);
const SEC: Duration = Duration::from_secs(1);
/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(60);

struct Count(AtomicU32);

impl Count {
    fn new() -> (Arc<Self>, Weak<dyn Listener>) {
        let count = Arc::new(Self(AtomicU32::new(0)));
        let weak: Weak<dyn Listener> = Arc::downgrade(&count) as _;
        (count, weak)
    }

    fn take(&self) -> u32 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl Listener for Count {
    fn permit_freed(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

// ---- how many at once ----

#[test]
fn permits_return_on_drop_and_those_in_line_come_first() {
    let limit = ConcurrencyLimit::new(2);
    let (a, b) = (limit.try_acquire().unwrap(), limit.try_acquire().unwrap());
    assert_eq!(limit.try_acquire().unwrap_err().retry_after, None);
    let mut first = limit.acquire_async();
    let mut second = limit.acquire_async();
    assert_eq!((limit.in_use(), limit.waiting()), (2, 2));
    drop(a);
    assert!(limit.try_acquire().is_err(), "nobody overtakes the line");
    let first = first.try_get().expect("its turn").unwrap();
    assert!(second.try_get().is_none());
    thread::spawn(move || drop(b)).join().unwrap();
    let second = second.try_get().expect("its turn").unwrap();
    assert_eq!((limit.in_use(), limit.waiting()), (2, 0));
    drop((first, second));
    assert_eq!(limit.in_use(), 0);
    assert!(limit.try_acquire().is_ok());
}

#[test]
fn a_permit_that_borrows_counts_and_stands_in_no_ones_way() {
    let limit = ConcurrencyLimit::new(2);
    let borrowed = limit.try_enter().unwrap();
    let owned = limit.try_acquire().unwrap();
    assert_eq!(limit.try_enter().unwrap_err().retry_after, None);
    let (count, listener) = Count::new();
    limit.watch(listener);
    let mut waiting = limit.acquire_async();
    drop(owned);
    assert!(limit.try_enter().is_err(), "the first in line has it");
    let first = waiting.try_get().expect("its turn").unwrap();
    let mut waiting = limit.acquire_async();
    drop(borrowed);
    let second = waiting.try_get().expect("a borrowed one serves the line, too").unwrap();
    assert_eq!((limit.in_use(), count.take()), (2, 0));
    drop((first, second));
    count.take();
    let panics = std::panic::AssertUnwindSafe(|| {
        let _entered = limit.try_enter().unwrap();
        assert_eq!(limit.in_use(), 1);
        std::panic::resume_unwind(Box::new("under the permit"));
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    assert_eq!((limit.in_use(), count.take()), (0, 1));
}

#[test]
fn a_limit_is_changed_without_losing_a_waiter() {
    let limit = ConcurrencyLimit::new(0);
    assert!(limit.try_acquire().is_err());
    let mut waiting: Vec<_> = (0..5).map(|_| limit.acquire_async()).collect();
    limit.set_limit(3);
    let mut permits: Vec<_> =
        waiting.iter_mut().filter_map(|w| w.try_get()).map(Result::unwrap).collect();
    assert_eq!(permits.len(), 3);
    limit.set_limit(1);
    permits.pop();
    permits.pop();
    assert!(waiting.iter_mut().skip(3).all(|w| w.try_get().is_none()), "one is out still");
    permits.pop();
    assert!(waiting[3].try_get().is_some());
    limit.set_limit(u32::MAX);
    assert_eq!(limit.limit(), ConcurrencyLimit::MAX);
    assert!(waiting[4].try_get().is_some());
}

#[test]
fn those_who_give_up_leave_no_hole() {
    let limit = ConcurrencyLimit::with_line(1, 3);
    let held = limit.try_acquire().unwrap();
    let (a, b, mut c) = (limit.acquire_async(), limit.acquire_async(), limit.acquire_async());
    let refused = limit.acquire_async().get();
    assert!(refused.is_err(), "the line is full");
    assert!(limit.acquire_timeout(Duration::ZERO).is_err());
    drop((a, b));
    drop(held);
    let permit = c.try_get().expect("its turn").unwrap();
    drop(permit);
    assert!(limit.try_acquire().is_ok());
    // A hundred thousand who give up do not stay in the line.
    let limit = ConcurrencyLimit::new(1);
    let held = limit.try_acquire().unwrap();
    for _ in 0..100_000 {
        drop(limit.acquire_async());
    }
    assert!(limit.waiting() < 100, "{}", limit.waiting());
    drop(held);
    assert_eq!((limit.in_use(), limit.waiting()), (0, 0));
}

#[test]
fn a_long_line_that_passes_its_permit_on_needs_no_deep_stack() {
    let limit = ConcurrencyLimit::new(1);
    let held = limit.try_acquire().unwrap();
    let served = Arc::new(AtomicU32::new(0));
    for _ in 0..50_000 {
        let served = Arc::clone(&served);
        limit.acquire_async().on_complete(move |permit| {
            served.fetch_add(1, Ordering::Relaxed);
            drop(permit);
        });
    }
    drop(held);
    assert_eq!(served.load(Ordering::Relaxed), 50_000);
    assert_eq!(limit.in_use(), 0);
}

#[test]
fn blocked_threads_are_served() {
    let limit = ConcurrencyLimit::new(1);
    let held = limit.try_acquire().unwrap();
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let permit = limit.acquire().unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "one at a time");
                inside.fetch_sub(1, Ordering::Relaxed);
                drop(permit);
                assert!(limit.acquire_timeout(LONG).is_ok());
            });
        }
        drop(held);
    });
    assert_eq!((limit.in_use(), limit.waiting()), (0, 0));
}

#[test]
fn a_permit_outlives_its_limit_and_waiters_hear_of_its_end() {
    let limit = ConcurrencyLimit::new(0);
    let waiting = limit.acquire_async();
    drop(limit);
    assert!(waiting.get().is_err());
    let limit = ConcurrencyLimit::new(1);
    let permit = limit.try_acquire().unwrap();
    drop(limit);
    drop(permit);
}

#[test]
fn listeners_hear_of_returned_permits_that_nobody_took() {
    let limit = ConcurrencyLimit::new(1);
    let (count, weak) = Count::new();
    limit.watch(weak);
    let permit = limit.try_acquire().unwrap();
    drop(permit);
    assert_eq!(count.take(), 1);
    let permit = limit.try_acquire().unwrap();
    let waiting = limit.acquire_async();
    drop(permit);
    assert_eq!(count.take(), 0, "it went to the line");
    drop(waiting);
    assert!(count.take() >= 1);
    limit.set_limit(5);
    assert!(count.take() >= 1);
    limit.set_limit(0);
    assert_eq!(count.take(), 0);
}

#[test]
fn keys_do_not_disturb_each_other_and_take_no_memory_when_idle() {
    let limit = KeyedConcurrency::new(1);
    let a = limit.try_acquire(&"a").unwrap();
    let b = limit.try_acquire(&"b").unwrap();
    assert!(limit.try_acquire(&"a").is_err());
    assert_eq!((limit.keys(), limit.in_use(&"a"), limit.in_use(&"c")), (2, 1, 0));
    let (mut first, second) = (limit.acquire_async(&"a"), limit.acquire_async(&"a"));
    drop(second);
    drop(a);
    drop(first.try_get().expect("its turn").unwrap());
    assert_eq!(limit.keys(), 1);
    let mut waiting = limit.acquire_async(&"b");
    let mut queued: Vec<_> = (0..3).map(|_| limit.acquire_async(&"b")).collect();
    limit.set_limit(3);
    assert!(waiting.try_get().is_some_and(|permit| permit.is_ok()));
    let granted = queued.iter_mut().filter(|w| w.is_ready()).count();
    assert!(granted >= 1, "raised to 3, one of them returned at once");
    drop((b, waiting, queued));
    assert_eq!(limit.keys(), 0);
    limit.set_limit(0);
    assert!(limit.try_acquire(&"a").is_err());
    assert!(limit.acquire_timeout(&"a", Duration::ZERO).is_err());
    limit.set_limit(1);
    assert_eq!(limit.keys(), 0, "nobody waits any more");
    assert!(limit.acquire(&"a").is_ok());
}

#[test]
fn a_key_whose_last_waiter_gave_up_is_forgotten() {
    let limit = KeyedConcurrency::new(1);
    for round in 0..1000_u32 {
        let key = round % 10;
        let held = limit.try_acquire(&key).unwrap();
        for _ in 0..50 {
            drop(limit.acquire_async(&key));
        }
        drop(held);
    }
    assert_eq!(limit.keys(), 0);
}

// ---- how many in a time ----

fn rate(clock: &ManualClock, per_second: u32, burst: u32) -> RateLimit {
    let rate = Rate::per_second(per_second).unwrap().burst(burst).unwrap();
    RateLimit::with_clock(rate, clock.clone())
}

fn taken(limit: &RateLimit) -> usize {
    (0..10_000).take_while(|_| limit.try_acquire().is_ok()).count()
}

/// A fault of peers: a budget that never refills, or refills beyond its burst after a jump of the clock.
#[test]
fn a_rate_refills_with_time_and_no_further_than_its_burst() {
    let clock = ManualClock::new();
    let limit = rate(&clock, 10, 3);
    assert_eq!((limit.available(), taken(&limit)), (3, 3));
    assert_eq!(limit.try_acquire().unwrap_err().retry_after, Some(100 * MS));
    clock.advance(99 * MS);
    assert_eq!(limit.check().unwrap_err().retry_after, Some(MS));
    clock.advance(MS);
    assert_eq!((limit.check(), taken(&limit)), (Ok(()), 1));
    for jump in [SEC, Duration::from_secs(1 << 33), Duration::from_secs(1 << 33)] {
        clock.advance(jump);
        assert_eq!(taken(&limit), 3);
    }
}

#[test]
fn many_at_once_or_none() {
    let clock = ManualClock::new();
    let limit = rate(&clock, 10, 5);
    assert_eq!(limit.try_acquire_many(6).unwrap_err().retry_after, None, "more than the burst");
    let permit = limit.try_acquire_many(3).unwrap();
    assert_eq!(limit.try_acquire_many(3).unwrap_err().retry_after, Some(100 * MS));
    assert!(permit.give_back());
    assert_eq!(limit.available(), 5);
    let early = limit.try_acquire_many(5).unwrap();
    clock.advance(500 * MS);
    let _late = limit.try_acquire().unwrap();
    assert!(!early.give_back(), "time has paid for it by now");
    assert_eq!(limit.available(), 4);
    assert!(limit.try_acquire_many(0).is_ok());
}

#[test]
fn rates_out_of_range_and_at_the_ends_of_time() {
    assert_eq!(Rate::per_second(0), Err(ConfigError::Rate));
    assert_eq!(Rate::per_second(1).unwrap().burst(0), Err(ConfigError::Burst));
    let clock = ManualClock::new();
    let never = RateLimit::with_clock(Rate::per(1, Duration::MAX).unwrap(), clock.clone());
    assert_eq!(taken(&never), 1);
    assert_eq!(never.try_acquire().unwrap_err().retry_after, None);
    let always = RateLimit::with_clock(Rate::per(1, Duration::ZERO).unwrap(), clock.clone());
    assert_eq!(taken(&always), 10_000);
    always.set_rate(Rate::per_second(1).unwrap());
    assert_eq!(taken(&always), 1);
    always.set_rate(Rate::per(1, Duration::ZERO).unwrap());
    assert_eq!(taken(&always), 10_000);
    never.set_rate(Rate::per_second(1000).unwrap());
    clock.advance(MS);
    assert_eq!(taken(&never), 1, "what was used up is in proportion");
}

#[test]
fn a_changed_rate_keeps_what_was_used_up() {
    let clock = ManualClock::new();
    let limit = rate(&clock, 1000, 100);
    assert_eq!(taken(&limit), 100);
    // Slower: no fresh burst.
    limit.set_rate(Rate::per_second(1).unwrap().burst(100).unwrap());
    assert_eq!(taken(&limit), 0);
    clock.advance(SEC);
    assert_eq!(taken(&limit), 1);
    limit.set_rate(Rate::per_second(1000).unwrap().burst(100).unwrap());
    clock.advance(50 * MS);
    assert_eq!(taken(&limit), 50);
}

#[test]
fn blocked_threads_go_on_when_time_does_or_the_rate_is_changed() {
    let clock = ManualClock::new();
    let limit = rate(&clock, 1, 1);
    limit.try_acquire().unwrap();
    assert!(limit.acquire_timeout(Duration::ZERO).is_err());
    let passed = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                limit.acquire();
                passed.fetch_add(1, Ordering::Relaxed);
            });
        }
        // However the threads come: each second lets one through, whenever it looks.
        let mut seconds = 0;
        while passed.load(Ordering::Relaxed) < 2 {
            clock.advance(SEC);
            seconds += 1;
            thread::yield_now();
        }
        assert!(seconds >= 2);
        limit.set_rate(Rate::per(1, Duration::ZERO).unwrap());
    });
    assert_eq!(passed.load(Ordering::Relaxed), 3);
}

#[test]
fn an_async_wait_sleeps_as_it_is_told_and_looks_again_after_a_change() {
    let clock = ManualClock::new();
    let limit = rate(&clock, 1, 1);
    limit.try_acquire().unwrap();
    let mut asked = Vec::new();
    {
        let mut wait = pin!(limit.acquire_async(|time| {
            asked.push(time);
            clock.advance((time / 2).max(Duration::from_nanos(1)));
            std::future::ready(())
        }));
        // Sleeps that end too early are repeated.
        assert!(poll(wait.as_mut()).is_ready());
    }
    assert!(asked.len() > 2 && asked[0] == SEC && asked[1] == SEC / 2, "{asked:?}");
    let mut wait = pin!(limit.acquire_async(|_| std::future::pending()));
    assert!(poll(wait.as_mut()).is_pending());
    limit.set_rate(Rate::per(1, Duration::ZERO).unwrap());
    assert!(poll(wait.as_mut()).is_ready());
}

#[test]
fn a_rate_for_each_key_in_bounded_memory() {
    let clock = ManualClock::new();
    let per = Rate::per_second(1).unwrap().burst(2).unwrap();
    let limit = KeyedRateLimit::with_max_keys(per, 100, clock.clone()).unwrap();
    for key in 0..100 {
        limit.try_acquire(&key).unwrap();
        limit.try_acquire(&key).unwrap();
        assert_eq!(limit.try_acquire(&key).unwrap_err().retry_after, Some(SEC));
        clock.advance(MS);
    }
    // The first is idle again after 2 s, 100 ms of which have passed.
    let refused = limit.try_acquire(&100).unwrap_err();
    assert_eq!(refused.retry_after, Some(1900 * MS));
    clock.advance(1900 * MS);
    limit.try_acquire(&100).unwrap();
    assert!(limit.try_acquire(&101).is_err());
    assert_eq!(limit.keys(), 100);
    clock.advance(10 * SEC);
    for key in 1000..100_000 {
        limit.try_acquire(&key).unwrap();
        clock.advance(50 * MS);
        assert!(limit.keys() <= 100);
    }
    assert!(limit.try_acquire_many(&7, 3).is_err());
    limit.set_rate(Rate::per_second(10).unwrap().burst(5).unwrap());
    assert!(limit.try_acquire_many(&7, 5).is_ok());
    assert_eq!(
        KeyedRateLimit::<u8>::with_max_keys(per, 0, clock.clone()).map(drop).unwrap_err(),
        ConfigError::MaxKeys
    );
}

#[test]
fn a_changed_rate_keeps_what_each_key_has_used_up() {
    let clock = ManualClock::new();
    let limit =
        KeyedRateLimit::with_max_keys(Rate::per_second(10).unwrap(), 10, clock.clone()).unwrap();
    limit.try_acquire(&"a").unwrap();
    limit.set_rate(Rate::per_second(1).unwrap());
    clock.advance(500 * MS);
    assert_eq!(limit.try_acquire(&"a").unwrap_err().retry_after, Some(500 * MS));
    limit.try_acquire(&"b").unwrap();
    clock.advance(500 * MS);
    limit.try_acquire(&"a").unwrap();
}

// ---- how many at once, by itself ----

fn adaptive(clock: &ManualClock) -> AdaptiveBuilder {
    AdaptiveLimit::builder()
        .initial(10)
        .bounds(2, 20)
        .target(50 * MS)
        .window(100 * MS)
        .decrease(0.5)
        .clock(clock.clone())
}

/// A round of calls that all take `time`.
fn round(limit: &AdaptiveLimit, clock: &ManualClock, time: Duration) {
    let permits: Vec<_> = (0..limit.limit()).map(|_| limit.try_acquire().unwrap()).collect();
    clock.advance(time);
    for permit in permits {
        permit.success();
    }
}

#[test]
fn it_rises_by_one_a_round_and_falls_by_a_factor_once_a_window() {
    let clock = ManualClock::new();
    let limit = adaptive(&clock).build().unwrap();
    for expected in [11, 12, 13] {
        round(&limit, &clock, 10 * MS);
        assert_eq!(limit.limit(), expected);
    }
    // Thirteen calls tell of one jam.
    round(&limit, &clock, 60 * MS);
    assert_eq!(limit.limit(), 6);
    round(&limit, &clock, 60 * MS);
    assert_eq!(limit.limit(), 6, "within the window");
    // Those that began before the decrease are the same jam, however late they end.
    clock.advance(SEC);
    let old: Vec<_> = (0..6).map(|_| limit.try_acquire().unwrap()).collect();
    clock.advance(SEC);
    let mut old = old.into_iter();
    old.next().unwrap().overloaded();
    assert_eq!(limit.limit(), 3);
    clock.advance(SEC);
    old.for_each(AdaptivePermit::overloaded);
    assert_eq!(limit.limit(), 3);
}

#[test]
fn it_stays_within_its_bounds_which_can_be_changed() {
    let clock = ManualClock::new();
    let limit = adaptive(&clock).build().unwrap();
    for _ in 0..30 {
        round(&limit, &clock, MS);
    }
    assert_eq!(limit.limit(), 20);
    for _ in 0..10 {
        clock.advance(SEC);
        limit.observe(SEC);
    }
    assert_eq!(limit.limit(), 2);
    limit.set_bounds(5, 8).unwrap();
    assert_eq!(limit.limit(), 5);
    for _ in 0..10 {
        round(&limit, &clock, MS);
    }
    assert_eq!(limit.limit(), 8);
    assert_eq!(limit.set_bounds(0, 8), Err(ConfigError::Bounds { least: 0, most: 8 }));
    assert_eq!(limit.set_bounds(9, 8), Err(ConfigError::Bounds { least: 9, most: 8 }));
    limit.set_target(Duration::ZERO);
    clock.advance(SEC);
    round(&limit, &clock, MS);
    assert_eq!(limit.limit(), 5);
    assert!(adaptive(&clock).decrease(1.0).build().is_err());
    assert!(adaptive(&clock).decrease(f64::NAN).build().is_err());
}

#[test]
fn a_limit_that_is_not_used_does_not_rise() {
    let clock = ManualClock::new();
    let limit = adaptive(&clock).build().unwrap();
    for _ in 0..100 {
        limit.try_acquire().unwrap().success();
    }
    assert_eq!(limit.limit(), 10);
    // Dropped and ignored ones say nothing.
    for _ in 0..100 {
        let permit = limit.try_acquire().unwrap();
        clock.advance(SEC);
        permit.ignore();
        drop(limit.try_acquire().unwrap());
    }
    assert_eq!((limit.limit(), limit.in_use()), (10, 0));
}

#[test]
fn a_rise_serves_those_in_line() {
    let clock = ManualClock::new();
    let limit = adaptive(&clock).initial(2).build().unwrap();
    let (a, b) = (limit.try_acquire().unwrap(), limit.acquire().unwrap());
    let mut waiting = limit.acquire_async();
    assert!(limit.acquire_timeout(Duration::ZERO).is_err());
    a.success();
    let first = waiting.try_get().expect("its turn").unwrap();
    let mut waiting = limit.acquire_async();
    // The second good call of a round of two: the limit is 3.
    b.success();
    let second = waiting.try_get().expect("its turn").unwrap();
    assert_eq!(limit.limit(), 3);
    assert!(limit.try_acquire().is_ok());
    drop((first, second));
}

// ---- what would wait too long ----

fn shedder(clock: &ManualClock) -> LoadShedder {
    LoadShedder::builder()
        .target(5 * MS)
        .interval(100 * MS)
        .max_depth(8)
        .clock(clock.clone())
        .build()
        .unwrap()
}

#[test]
fn the_less_important_leave_room_for_the_more_important() {
    let clock = ManualClock::new();
    let shedder = shedder(&clock);
    let count = |importance| {
        let places: Vec<_> = (0..20).filter_map(|_| shedder.try_acquire(importance).ok()).collect();
        places
    };
    let low = count(Importance::Low);
    let normal = count(Importance::Normal);
    let high = count(Importance::High);
    assert_eq!((low.len(), normal.len(), high.len()), (4, 2, 2));
    assert_eq!(shedder.try_acquire(Importance::High).unwrap_err().retry_after, None);
    let (told, weak) = Count::new();
    shedder.watch(weak);
    drop(high);
    assert_eq!((shedder.depth(), told.take()), (6, 2));
    shedder.set_max_depth(6).unwrap();
    assert!(shedder.try_acquire(Importance::High).is_err());
    assert_eq!(shedder.set_max_depth(0), Err(ConfigError::MaxDepth));
    drop((low, normal));
    assert_eq!(shedder.depth(), 0);
}

#[test]
fn a_standing_queue_sheds_more_and_more_and_a_burst_does_not() {
    let clock = ManualClock::new();
    let shedder = shedder(&clock);
    shedder.set_max_depth(1000).unwrap();
    // In each interval eight wait for `wait`, but one of them for `best`.
    let interval = |wait: Duration, best: Duration| {
        let begin = clock.now();
        let mut places: Vec<_> =
            (0..8).map(|_| shedder.try_acquire(Importance::High).unwrap()).collect();
        clock.advance(best);
        places.remove(3).start();
        clock.advance(wait - best);
        for place in places {
            assert_eq!(place.start(), wait);
        }
        clock.advance_to(begin.saturating_add(100 * MS));
    };
    interval(20 * MS, MS);
    assert_eq!(shedder.level(), 0, "one was quick: a burst");
    for level in 1..=4 {
        interval(11 * MS, 11 * MS);
        assert_eq!(shedder.level(), level);
    }
    let _standing = shedder.try_acquire(Importance::High).unwrap();
    let admitted = |importance| (0..64).filter(|_| shedder.try_acquire(importance).is_ok()).count();
    assert_eq!(admitted(Importance::Low), 4, "one in 16");
    assert_eq!(admitted(Importance::Normal), 16, "one in 4");
    assert_eq!(admitted(Importance::High), 64);
    // Idle intervals halve it; an empty queue lets in whoever comes.
    clock.advance(300 * MS);
    assert!(shedder.level() <= 1);
    clock.advance(10 * SEC);
    assert_eq!(shedder.level(), 0);
    assert_eq!(admitted(Importance::Low), 64);
}

#[test]
fn an_empty_queue_lets_in_at_any_level() {
    let clock = ManualClock::new();
    let shedder = shedder(&clock);
    for _ in 0..20 {
        let place = shedder.try_acquire(Importance::Low).unwrap();
        clock.advance(100 * MS);
        assert_eq!(place.start(), 100 * MS);
    }
    assert!(shedder.level() > 10);
    assert!(shedder.try_acquire(Importance::Low).is_ok());
    let extreme = LoadShedder::builder()
        .interval(Duration::ZERO)
        .target(Duration::MAX)
        .clock(clock.clone())
        .build()
        .unwrap();
    let place = extreme.try_acquire(Importance::Low).unwrap();
    clock.advance(Duration::MAX);
    assert!(place.start() > Duration::from_secs(1 << 33));
    assert_eq!(extreme.level(), 0);
    assert!(clock.now().as_nanos() > 0);
}

#[test]
fn handles_cross_threads() {
    fn shared<T: Clone + Send + Sync + std::fmt::Debug + 'static>() {}
    fn sent<T: Send + Sync + std::fmt::Debug + 'static>() {}
    shared::<ConcurrencyLimit>();
    shared::<KeyedConcurrency<String>>();
    shared::<RateLimit>();
    shared::<KeyedRateLimit<String>>();
    shared::<AdaptiveLimit>();
    shared::<LoadShedder>();
    sent::<Permit>();
    sent::<KeyedPermit<String>>();
    sent::<RatePermit>();
    sent::<AdaptivePermit>();
    sent::<Place>();
}
