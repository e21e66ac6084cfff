//! Random steps by one thread and by two, with wakers, hooks, callbacks and values that set, drop,
//! poll, cancel and panic wherever they are called. In the end everything was dropped exactly once.
//!
//! (A local that panics as a function returns leaks what that returns: `rustc` does so. So closures
//! here drop what they own before they make what they return.)
//!
//! `TENURE_STRESS=<factor>` makes it longer. Run it under a sanitizer, too.

use std::cell::Cell;
use std::future::{Future, IntoFuture};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::Duration;

use tenure::executor::{Executor, Task};
use tenure::promise::{
    Canceller, Completions, Eventual, Promise, Shared, SharedPromise, Slot, all, all_settled, any,
    any_ok, failed, first_n, promise, ready,
};

/// Counts itself; may panic when dropped.
struct Live {
    count: Arc<AtomicIsize>,
    bomb: bool,
}

impl Drop for Live {
    fn drop(&mut self) {
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "dropped twice");
        if self.bomb && !thread::panicking() {
            std::panic::resume_unwind(Box::new(()));
        }
    }
}

type P = Promise<Live, Live>;
type Ev = Eventual<Live, Live>;

#[derive(Default)]
struct Things {
    promises: Vec<P>,
    racing: Vec<SharedPromise<Live, Live>>,
    eventuals: Vec<Ev>,
    shared: Vec<Shared<Live, Live>>,
    cancellers: Vec<Canceller>,
    tasks: Vec<Task>,
    slots: Vec<Slot<Live, Live>>,
    groups: Vec<Completions<Live, Live>>,
    wakers: Vec<Waker>,
}

#[derive(Clone)]
struct World {
    things: Arc<Mutex<Things>>,
    count: Arc<AtomicIsize>,
    rng: Arc<Mutex<fastrand::Rng>>,
}

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Swallows a panic, and one of its payload.
fn quietly(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
    }
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            things: Arc::default(),
            count: Arc::default(),
            rng: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))),
        }
    }

    fn roll(&self, n: usize) -> usize {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).usize(..n)
    }

    fn live(&self) -> Live {
        self.count.fetch_add(1, Ordering::Relaxed);
        Live { count: Arc::clone(&self.count), bomb: self.roll(8) == 0 }
    }

    /// For a closure to own: a panic in its drop would be `rustc`'s leak in every combinator.
    fn calm(&self) -> Live {
        self.count.fetch_add(1, Ordering::Relaxed);
        Live { count: Arc::clone(&self.count), bomb: false }
    }

    /// Takes one of a kind out of the world.
    fn take<T>(&self, of: impl FnOnce(&mut Things) -> &mut Vec<T>) -> Option<T> {
        let number = self.roll(1 << 16);
        let mut things = self.things.lock().unwrap_or_else(PoisonError::into_inner);
        let all = of(&mut things);
        (!all.is_empty()).then(|| all.swap_remove(number % all.len()))
    }

    fn put<T>(&self, of: impl FnOnce(&mut Things) -> &mut Vec<T>, thing: T) {
        of(&mut self.things.lock().unwrap_or_else(PoisonError::into_inner)).push(thing);
    }

    /// What foreign code does: nothing, a step, a panic.
    fn foreign(&self) {
        if self.roll(3) == 0 && DEPTH.get() < 5 {
            DEPTH.set(DEPTH.get() + 1);
            self.step();
            DEPTH.set(DEPTH.get() - 1);
        }
        if self.roll(8) == 0 && !thread::panicking() {
            std::panic::resume_unwind(Box::new(self.live()));
        }
    }

    fn waker(&self) -> Waker {
        let waker = Arc::new(Torture { world: self.clone(), _live: self.calm() });
        // SAFETY: the table below keeps the counts of the `Arc`.
        unsafe { Waker::from_raw(RawWaker::new(Arc::into_raw(waker).cast(), &TABLE)) }
    }

    fn step(&self) {
        quietly(|| self.one_step());
    }

    fn some_eventual(&self) -> Ev {
        match self.take(|t| &mut t.eventuals) {
            Some(eventual) if self.roll(8) > 0 => eventual,
            _ if self.roll(2) == 0 => ready(self.live()),
            _ => failed(self.live()),
        }
    }

    #[allow(clippy::too_many_lines, reason = "one arm for each thing that can be done")]
    fn one_step(&self) {
        let world = self.clone();
        match self.roll(34) {
            0..=3 => {
                let (promise, eventual) = promise();
                self.put(|t| &mut t.promises, promise);
                self.put(|t| &mut t.eventuals, eventual);
            }
            4 => {
                let mut slot = self.take(|t| &mut t.slots).unwrap_or_default();
                let (promise, eventual) = slot.pair();
                self.put(|t| &mut t.promises, promise);
                self.put(|t| &mut t.eventuals, eventual);
                if self.roll(4) > 0 {
                    self.put(|t| &mut t.slots, slot);
                }
            }
            5 | 6 => {
                let value = self.live();
                if let Some(promise) = self.take(|t| &mut t.promises) {
                    let _ = promise.set(value);
                }
            }
            7 => {
                let value = self.live();
                if let Some(promise) = self.take(|t| &mut t.promises) {
                    let _ = promise.set_error(value);
                }
            }
            8 => drop(self.take(|t| &mut t.promises)),
            9 => {
                if let Some(promise) = self.take(|t| &mut t.promises) {
                    let _ = promise.complete_with(move || {
                        world.foreign();
                        Ok(world.live())
                    });
                }
            }
            10 => {
                if let Some(mut promise) = self.take(|t| &mut t.promises) {
                    let live = self.calm();
                    promise.on_cancel(move || {
                        let _live = live;
                        world.foreign();
                    });
                    self.put(|t| &mut t.promises, promise);
                }
            }
            11 => {
                if let Some(mut promise) = self.take(|t| &mut t.promises) {
                    let waker = self.waker();
                    let _ = promise.poll_cancelled(&mut Context::from_waker(&waker));
                    self.put(|t| &mut t.promises, promise);
                }
            }
            12..=14 => {
                if let Some(mut eventual) = self.take(|t| &mut t.eventuals) {
                    let waker = match self.take(|t| &mut t.wakers) {
                        Some(waker) if self.roll(2) == 0 => waker,
                        _ => self.waker(),
                    };
                    let polled = Pin::new(&mut eventual).poll(&mut Context::from_waker(&waker));
                    self.put(|t| &mut t.eventuals, eventual);
                    self.put(|t| &mut t.wakers, waker);
                    drop(polled);
                }
            }
            15 => {
                if let Some(mut eventual) = self.take(|t| &mut t.eventuals) {
                    let got = if self.roll(2) == 0 {
                        eventual.try_get()
                    } else {
                        Some(eventual.get_timeout(Duration::from_nanos(1)))
                    };
                    self.put(|t| &mut t.eventuals, eventual);
                    drop(got);
                }
            }
            16 => {
                let live = self.calm();
                self.some_eventual().on_complete(move |outcome| {
                    let _live = live;
                    world.foreign();
                    drop(outcome);
                });
            }
            17 => {
                let live = (self.calm(), [0_u8; 100]);
                let mapped = self.some_eventual().map(move |value| {
                    drop(live);
                    world.foreign();
                    value
                });
                self.put(|t| &mut t.eventuals, mapped);
            }
            18 | 19 => {
                let inner = self.some_eventual();
                let chained = self.some_eventual().and_then(move |value| {
                    drop(value);
                    world.foreign();
                    inner
                });
                self.put(|t| &mut t.eventuals, chained);
            }
            20 => {
                let inner = self.some_eventual();
                let next = self
                    .some_eventual()
                    .or_else(move |error| {
                        drop(error);
                        inner
                    })
                    .ensure(move || {
                        world.foreign();
                    });
                self.put(|t| &mut t.eventuals, next);
            }
            21 => {
                if let Some(eventual) = self.take(|t| &mut t.eventuals) {
                    self.put(|t| &mut t.cancellers, eventual.canceller());
                    eventual.cancel();
                    self.put(|t| &mut t.eventuals, eventual);
                }
            }
            22 => {
                if let Some(canceller) = self.take(|t| &mut t.cancellers) {
                    canceller.cancel();
                }
            }
            23 => drop(self.take(|t| &mut t.eventuals)),
            24 => {
                if let Some(eventual) = self.take(|t| &mut t.eventuals) {
                    eventual.detach();
                }
            }
            25 => {
                let members: Vec<Ev> = (0..self.roll(4)).map(|_| self.some_eventual()).collect();
                let group = match self.roll(6) {
                    0 => all(members)
                        .map(|mut all| {
                            let last = all.pop();
                            drop(all);
                            last
                        })
                        .and_then(|last| match last {
                            Some(last) => ready(last),
                            None => Eventual::never_set(),
                        }),
                    1 => any(members),
                    2 => any_ok(members),
                    3 => first_n(2, members).map(|mut two| {
                        let one = two.swap_remove(0).1;
                        drop(two);
                        one
                    }),
                    4 => {
                        let live = self.calm();
                        all_settled(members).map(|settled| {
                            drop(settled);
                            live
                        })
                    }
                    _ => self.some_eventual().zip(self.some_eventual()).map(|(one, other)| {
                        drop(one);
                        other
                    }),
                };
                self.put(|t| &mut t.eventuals, group);
            }
            26 => {
                let live = self.calm();
                let bound = self.some_eventual().via(self.clone()).map(move |value| {
                    drop(live);
                    world.foreign();
                    value
                });
                let boxed: Box<dyn Executor + Send> = Box::new(self.clone());
                if self.roll(2) == 0 {
                    self.put(|t| &mut t.eventuals, bound.unbind());
                } else {
                    bound.unbind().on_complete_via(boxed, drop);
                }
            }
            27 => {
                if let Some(task) = self.take(|t| &mut t.tasks) {
                    if self.roll(3) > 0 { task.run() } else { drop(task) }
                }
            }
            28 => {
                let shared = self.some_eventual().share();
                self.put(|t| &mut t.shared, shared);
            }
            29 => {
                if let Some(shared) = self.take(|t| &mut t.shared) {
                    let live = self.calm();
                    shared.on_complete(move |_| {
                        let _live = live;
                        world.foreign();
                    });
                    let waker = self.waker();
                    let mut future = shared.future();
                    let _ = Pin::new(&mut future).poll(&mut Context::from_waker(&waker));
                    if self.roll(4) == 0 {
                        std::mem::drop(future);
                    } else {
                        let other = self.waker();
                        let _ = Pin::new(&mut future).poll(&mut Context::from_waker(&other));
                        drop(future);
                    }
                    for _ in 0..self.roll(3) {
                        self.put(|t| &mut t.shared, shared.clone());
                    }
                }
            }
            30 => {
                if let Some(promise) = self.take(|t| &mut t.promises) {
                    let racing = SharedPromise::from(promise);
                    self.put(|t| &mut t.racing, racing.clone());
                    self.put(|t| &mut t.racing, racing);
                }
            }
            31 => {
                let value = self.live();
                if let Some(racing) = self.take(|t| &mut t.racing)
                    && self.roll(3) > 0
                {
                    let _ = racing.try_set(value);
                }
            }
            32 => {
                let timer = |_: Duration, task: Task| {
                    self.put(|t| &mut t.tasks, task);
                    self.live()
                };
                let limit = Duration::from_secs(self.roll(2) as u64);
                let limited = self.some_eventual().within(limit, &timer);
                self.put(|t| &mut t.eventuals, limited);
            }
            _ => {
                let mut group = self.take(|t| &mut t.groups).unwrap_or_default();
                group.push(self.some_eventual());
                let waker = self.waker();
                let next = match self.roll(3) {
                    0 => group.try_next(),
                    1 => match group.poll_next(&mut Context::from_waker(&waker)) {
                        std::task::Poll::Ready(next) => next,
                        std::task::Poll::Pending => None,
                    },
                    _ => None,
                };
                if self.roll(3) > 0 {
                    self.put(|t| &mut t.groups, group);
                }
                drop(next);
            }
        }
    }

    /// Drops all there is, and what that leaves, until nothing is left.
    fn end(&self) {
        loop {
            let things =
                std::mem::take(&mut *self.things.lock().unwrap_or_else(PoisonError::into_inner));
            let mut any = false;
            fn each<T>(things: Vec<T>, any: &mut bool) {
                for thing in things {
                    *any = true;
                    quietly(|| drop(thing));
                }
            }
            each(things.eventuals, &mut any);
            each(things.shared, &mut any);
            each(things.groups, &mut any);
            each(things.promises, &mut any);
            each(things.racing, &mut any);
            each(things.tasks, &mut any);
            each(things.cancellers, &mut any);
            each(things.slots, &mut any);
            each(things.wakers, &mut any);
            if !any {
                return;
            }
        }
    }
}

/// A few spellings that keep the steps above short.
trait Spelled {
    fn never_set() -> Self;
}
impl Spelled for Ev {
    fn never_set() -> Self {
        promise().1
    }
}
trait Pair {
    fn future(&self) -> tenure::promise::SharedFuture<'_, Live, Live>;
}
impl Pair for Shared<Live, Live> {
    fn future(&self) -> tenure::promise::SharedFuture<'_, Live, Live> {
        self.into_future()
    }
}

/// Keeps, runs, refuses, drops a task, or panics.
impl Executor for World {
    fn execute(&self, task: Task) -> Result<(), Task> {
        match self.roll(6) {
            0 => return Err(task),
            1 => drop(task),
            2 => task.run(),
            3 => std::panic::resume_unwind(Box::new(())),
            _ => self.put(|t| &mut t.tasks, task),
        }
        Ok(())
    }
}

struct Torture {
    world: World,
    _live: Live,
}

static TABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: the waker that is cloned keeps it alive.
        let torture = unsafe { &*data.cast::<Torture>() };
        torture.world.foreign();
        // SAFETY: as above; one count more for the clone.
        unsafe { Arc::increment_strong_count(data.cast::<Torture>()) };
        RawWaker::new(data, &TABLE)
    },
    |data| {
        // SAFETY: the waker's own count, given up here.
        let torture = unsafe { Arc::from_raw(data.cast::<Torture>()) };
        torture.world.foreign();
    },
    |data| {
        // SAFETY: the waker keeps it alive.
        unsafe { &*data.cast::<Torture>() }.world.foreign();
    },
    |data| {
        // SAFETY: the waker's own count, given up here.
        let torture = unsafe { Arc::from_raw(data.cast::<Torture>()) };
        torture.world.foreign();
    },
);

fn factor() -> u64 {
    std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1)
}

fn check(seed: u64, threads: u64, steps: usize) {
    let world = World::new(seed);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..steps).for_each(|_| world.step()));
        }
    });
    world.end();
    assert_eq!(world.count.load(Ordering::Relaxed), 0, "seed {seed}: leaked");
}

#[test]
fn one_thread() {
    (0..400 * factor()).for_each(|seed| check(seed, 1, 150));
}

#[test]
fn two_threads() {
    (0..150 * factor()).for_each(|seed| check(seed, 2, 300));
}
