//! A million timers: insert them, cancel them, let them expire; per timer.
//!
//! Deadlines lie anywhere in the next minute. Cancels come in another order than the inserts.
//! Expiry moves the time on by a millisecond at a time, as a driver does.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hierarchical_hash_wheel_timer::IdOnlyTimerEntry;
use hierarchical_hash_wheel_timer::wheels::Skip;
use hierarchical_hash_wheel_timer::wheels::cancellable::QuadWheelWithOverflow;
use tenure::clock::{ManualClock, Timestamp};
use tenure::timer::{TimerHandle, TimerKey, Timers, Wheel};
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Key;

const COUNT: usize = 1_000_000;
const HORIZON: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(1);

/// What is measured of each.
trait Queue {
    type Key;
    const NAME: &'static str;
    fn new() -> Self;
    fn insert(&mut self, after: Duration, value: u64) -> Self::Key;
    fn cancel(&mut self, key: Self::Key);
    /// Moves the time on to the horizon, tick by tick; how many timers came out.
    fn expire(&mut self) -> usize;
}

impl Queue for Wheel<u64> {
    type Key = TimerKey;
    const NAME: &'static str = "tenure Wheel";

    fn new() -> Self {
        Wheel::new(Timestamp::ORIGIN)
    }

    fn insert(&mut self, after: Duration, value: u64) -> TimerKey {
        self.insert(Timestamp::ORIGIN.saturating_add(after), value)
    }

    fn cancel(&mut self, key: TimerKey) {
        black_box(Wheel::cancel(self, key));
    }

    fn expire(&mut self) -> usize {
        let (mut now, mut count) = (Timestamp::ORIGIN, 0);
        while now <= Timestamp::ORIGIN.saturating_add(HORIZON) {
            now = now.saturating_add(TICK);
            while let Some(value) = Wheel::expire(self, now) {
                black_box(value);
                count += 1;
            }
        }
        count
    }
}

/// The shared timers, with the driver asleep, as a thread finds them. What the driver has to do for
/// an insert (link it) it does when it wakes: `expire` has that, too.
struct Shared {
    timers: Timers<ManualClock>,
    clock: ManualClock,
}

impl Queue for Shared {
    type Key = TimerHandle;
    const NAME: &'static str = "tenure Timers";

    fn new() -> Self {
        let clock = ManualClock::new();
        Self { timers: Timers::start(clock.clone()).unwrap(), clock }
    }

    fn insert(&mut self, after: Duration, value: u64) -> TimerHandle {
        let callback = move || {
            black_box(value);
        };
        self.timers.insert(Timestamp::ORIGIN.saturating_add(after), callback).unwrap()
    }

    fn cancel(&mut self, key: TimerHandle) {
        black_box(key.cancel());
    }

    fn expire(&mut self) -> usize {
        let (sender, receiver) = std::sync::mpsc::channel();
        let last = Timestamp::ORIGIN.saturating_add(HORIZON + TICK);
        let _last = self.timers.insert(last, move || sender.send(()).unwrap()).unwrap();
        self.clock.advance_to(last);
        receiver.recv().unwrap();
        self.timers.stats().fired as usize - 1
    }
}

impl Queue for DelayQueue<u64> {
    type Key = Key;
    const NAME: &'static str = "tokio-util DelayQueue";

    fn new() -> Self {
        DelayQueue::new()
    }

    fn insert(&mut self, after: Duration, value: u64) -> Key {
        DelayQueue::insert(self, value, after)
    }

    fn cancel(&mut self, key: Key) {
        black_box(self.remove(&key));
    }

    fn expire(&mut self) -> usize {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let mut count = 0;
        // Its own executor, which turns the clock's wheel between two polls.
        runtime().block_on(async {
            for _ in 0..=HORIZON.as_millis() {
                tokio::time::advance(TICK).await;
                while let std::task::Poll::Ready(Some(expired)) = self.poll_expired(&mut context) {
                    black_box(expired.into_inner());
                    count += 1;
                }
            }
        });
        count
    }
}

impl Queue for QuadWheelWithOverflow<IdOnlyTimerEntry<u64>> {
    type Key = u64;
    const NAME: &'static str = "hierarchical_hash_wheel_timer";

    fn new() -> Self {
        Self::new()
    }

    fn insert(&mut self, after: Duration, value: u64) -> u64 {
        self.insert(IdOnlyTimerEntry::new(value, after.max(TICK))).unwrap();
        value
    }

    fn cancel(&mut self, key: u64) {
        self.cancel(&key).unwrap();
    }

    fn expire(&mut self) -> usize {
        let mut count = 0;
        for _ in 0..=HORIZON.as_millis() {
            if matches!(self.can_skip(), Skip::Empty) {
                break;
            }
            for entry in self.tick() {
                black_box(entry.id);
                count += 1;
            }
        }
        count
    }
}

/// What one writes first: a sorted map under a lock.
struct Map(Mutex<BTreeMap<(Duration, u64), u64>>);

impl Queue for Map {
    type Key = (Duration, u64);
    const NAME: &'static str = "BTreeMap + Mutex";

    fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    fn insert(&mut self, after: Duration, value: u64) -> (Duration, u64) {
        self.0.lock().unwrap().insert((after, value), value);
        (after, value)
    }

    fn cancel(&mut self, key: (Duration, u64)) {
        black_box(self.0.lock().unwrap().remove(&key));
    }

    fn expire(&mut self) -> usize {
        let (mut now, mut count) = (Duration::ZERO, 0);
        while now <= HORIZON {
            now += TICK;
            let mut map = self.0.lock().unwrap();
            while let Some(entry) = map.first_entry().filter(|entry| entry.key().0 <= now) {
                black_box(entry.remove());
                count += 1;
            }
        }
        count
    }
}

fn delays() -> Vec<Duration> {
    let mut rng = fastrand::Rng::with_seed(7);
    let horizon = HORIZON.as_nanos() as u64;
    (0..COUNT).map(|_| Duration::from_nanos(rng.u64(1_000_000..horizon))).collect()
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Insert,
    Cancel,
    Expire,
}

/// One million of one thing: the time of that part alone.
fn million<Q: Queue>(delays: &[Duration], part: Part) -> Duration {
    let mut queue = Q::new();
    let begin = Instant::now();
    let mut keys: Vec<_> =
        delays.iter().zip(0..).map(|(&after, value)| queue.insert(after, value)).collect();
    let inserting = begin.elapsed();
    match part {
        Part::Insert => inserting,
        Part::Cancel => {
            fastrand::Rng::with_seed(9).shuffle(&mut keys);
            let begin = Instant::now();
            for key in keys {
                queue.cancel(key);
            }
            begin.elapsed()
        }
        Part::Expire => {
            drop(keys);
            let begin = Instant::now();
            let count = queue.expire();
            let expiring = begin.elapsed();
            assert_eq!(count, COUNT);
            expiring
        }
    }
}

/// A timer that is inserted and cancelled again beside a million others.
fn pair<Q: Queue>(queue: &mut Q, delays: &[Duration], iters: u64) -> Duration {
    let begin = Instant::now();
    for (&after, value) in delays.iter().cycle().zip(COUNT as u64..COUNT as u64 + iters) {
        let key = queue.insert(after, value);
        queue.cancel(key);
    }
    begin.elapsed()
}

fn bench<Q: Queue>(c: &mut Criterion, delays: &[Duration]) {
    for part in [Part::Insert, Part::Cancel, Part::Expire] {
        let mut group = c.benchmark_group(format!("timer/{part:?} a million"));
        group.throughput(Throughput::Elements(COUNT as u64)).sample_size(10);
        group.bench_function(BenchmarkId::from_parameter(Q::NAME), |b| {
            b.iter_custom(|iters| (0..iters).map(|_| million::<Q>(delays, part)).sum());
        });
        group.finish();
    }
    let mut queue = Q::new();
    for (&after, value) in delays.iter().zip(0..) {
        // The handle goes; the timer stays.
        drop(queue.insert(after, value));
    }
    let mut group = c.benchmark_group("timer/insert and cancel beside a million");
    group.bench_function(BenchmarkId::from_parameter(Q::NAME), |b| {
        b.iter_custom(|iters| pair(&mut queue, delays, iters));
    });
    group.finish();
}

/// The runtime of the one that needs one, with a clock that is moved by hand.
fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let builder =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        builder.unwrap()
    })
}

fn all(c: &mut Criterion) {
    let delays = delays();
    let _entered = runtime().enter();
    bench::<Wheel<u64>>(c, &delays);
    bench::<Shared>(c, &delays);
    bench::<QuadWheelWithOverflow<IdOnlyTimerEntry<u64>>>(c, &delays);
    bench::<Map>(c, &delays);
    bench::<DelayQueue<u64>>(c, &delays);
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(2));
    targets = all
}
criterion_main!(benches);
