//! The hierarchical wheel: constant-time insert and cancel, exact deadlines.

use core::cmp::Reverse;
use core::fmt;
use std::collections::BinaryHeap;

use super::slab::Slab;
use crate::clock::Timestamp;

/// Nanoseconds in a tick, as a power of two: 2²⁰ ns, a little more than a millisecond.
const TICK_BITS: u32 = 20;
/// Each level has 64 slots.
const LEVEL_BITS: u32 = 6;
const SLOTS: usize = 1 << LEVEL_BITS;
/// Six levels reach 2³⁶ ticks (2.3 years). Two more reach [`Timestamp::NEVER`], so that the
/// farthest deadline is moved like any other and nothing ever walks a list of "too far".
const LEVELS: usize = 8;
/// A slot this small is searched in place when its earliest timer was cancelled.
const SMALL: usize = 32;
/// A drained slot keeps its buffer up to this many records (6 KiB), for the next timers.
const KEPT: usize = 256;

/// A single owner's timers: insert, cancel, and take what is due, in order of the exact deadlines.
///
/// ```
/// use std::time::Duration;
/// use tenure::clock::Timestamp;
/// use tenure::timer::Wheel;
///
/// let start = Timestamp::ORIGIN;
/// let at = |ms| start.saturating_add(Duration::from_millis(ms));
/// let mut wheel = Wheel::new(start);
/// wheel.insert(at(30), "late");
/// wheel.insert(at(10), "early");
/// let key = wheel.insert(at(20), "never mind");
/// assert_eq!(wheel.cancel(key), Some("never mind"));
/// assert_eq!(wheel.next_deadline(), Some(at(10)));
/// assert_eq!(wheel.expire(at(15)), Some("early"));
/// assert_eq!(wheel.expire(at(15)), None);
/// assert_eq!(wheel.expire(at(99)), Some("late"));
/// ```
///
/// # Cost
///
/// | call | time |
/// |---|---|
/// | [`insert`](Self::insert) | constant: one push onto a slot's array |
/// | [`cancel`](Self::cancel) | constant: the value leaves; its record is swept up later, a few at each cancel |
/// | [`next_deadline`](Self::next_deadline) | constant; amortised logarithmic after the earliest timer of a slot was cancelled |
/// | [`expire`](Self::expire) | amortised: each timer moves down at most 7 levels, and is sorted once among those of its tick |
///
/// Nothing takes time in proportion to how far the clock moved: occupied slots are found by bit
/// masks.
///
/// # Order
///
/// By deadline, and in order of insertion where deadlines are equal.
pub struct Wheel<T> {
    slab: Slab<T>,
    /// No record in `levels` has this tick or an earlier one.
    position: u64,
    /// Which levels have an occupied slot.
    occupied_levels: u8,
    /// Which slots of each level are occupied.
    occupied: [u64; LEVELS],
    levels: Box<[Slot]>,
    /// Records whose tick is `position` or earlier, latest first: the slot that was opened last.
    run: Vec<Record>,
    /// Records that came too late for `run`, and those of slots that had to be searched.
    heap: BinaryHeap<Reverse<Record>>,
    /// Records (wherever) whose timer was cancelled.
    stale: usize,
    /// Where the sweep for stale records goes on.
    sweep: Sweep,
    /// Empty; lent out while a slot is moved.
    spare: Vec<Record>,
}

/// Names a timer in its [`Wheel`]. Once the timer is gone, the key never names another.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimerKey {
    index: u32,
    serial: u64,
}

impl fmt::Debug for TimerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerKey({}@{})", self.serial, self.index)
    }
}

/// Where a timer stands in the order, and which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Record {
    deadline: u64,
    serial: u64,
    index: u32,
}

impl Record {
    fn tick(&self) -> u64 {
        self.deadline >> TICK_BITS
    }
}

#[derive(Debug)]
struct Slot {
    records: Vec<Record>,
    /// The earliest of `records`, and perhaps of some that were swept up already.
    first: Record,
}

const NONE: Record = Record { deadline: u64::MAX, serial: u64::MAX, index: u32::MAX };

#[derive(Clone, Copy, Debug, Default)]
struct Sweep {
    slot: usize,
    record: usize,
}

impl<T> Wheel<T> {
    /// An empty wheel. Deadlines before `start` are legal, and due at once.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self {
            slab: Slab::new(),
            position: start.as_nanos() >> TICK_BITS,
            occupied_levels: 0,
            occupied: [0; LEVELS],
            levels: (0..LEVELS * SLOTS)
                .map(|_| Slot { records: Vec::new(), first: NONE })
                .collect(),
            run: Vec::new(),
            heap: BinaryHeap::new(),
            stale: 0,
            sweep: Sweep::default(),
            spare: Vec::new(),
        }
    }

    /// How many timers there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a timer. At [`Timestamp::NEVER`] it stays until it is cancelled or drained.
    ///
    /// # Panics
    ///
    /// With 2³² − 1 timers in the wheel, as a `Vec` does that outgrows its index.
    pub fn insert(&mut self, deadline: Timestamp, value: T) -> TimerKey {
        let (index, serial) = self.slab.insert(value);
        self.place(Record { deadline: deadline.as_nanos(), serial, index });
        TimerKey { index, serial }
    }

    /// Takes a timer out before it is due. `None` if it was taken or cancelled already.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let value = self.slab.remove(key.index, key.serial)?;
        self.stale += 1;
        if self.stale > SMALL + self.slab.len() {
            self.sweep_some();
        }
        Some(value)
    }

    /// Whether the timer is still in the wheel.
    #[must_use]
    pub fn contains(&self, key: TimerKey) -> bool {
        self.slab.contains(key.index, key.serial)
    }

    /// The value of a timer that is still in the wheel.
    pub fn get_mut(&mut self, key: TimerKey) -> Option<&mut T> {
        self.slab.get_mut(key.index, key.serial)
    }

    /// The earliest deadline, exactly. `None` when nothing will ever be due.
    ///
    /// Each slot remembers its earliest record, so this is a look at three places. Only when that
    /// record's timer was cancelled is the slot searched: in place if it is small, else by making
    /// it a heap, which happens to a record once at most.
    #[must_use]
    pub fn next_deadline(&mut self) -> Option<Timestamp> {
        loop {
            let near = self.near().map(|record| record.deadline);
            let Some(at) = self.earliest_slot() else {
                return near.map(Timestamp::from_nanos).filter(|at| !at.is_never());
            };
            if let Some(near) = near
                && near < self.slot_start(at)
            {
                return Some(Timestamp::from_nanos(near));
            }
            let first = self.levels[at].first;
            if self.slab.contains(first.index, first.serial) {
                let next = near.map_or(first.deadline, |near| near.min(first.deadline));
                return (next != u64::MAX).then(|| Timestamp::from_nanos(next));
            }
            self.search(at);
        }
    }

    /// Takes the next timer that is due at `now`: call it until it returns `None`.
    pub fn expire(&mut self, now: Timestamp) -> Option<T> {
        self.expire_entry(now).map(|(_, value)| value)
    }

    /// Like [`expire`](Self::expire), with the deadline that the timer had.
    pub fn expire_entry(&mut self, now: Timestamp) -> Option<(Timestamp, T)> {
        // What is due never is never due.
        let now = now.as_nanos().min(u64::MAX - 1);
        loop {
            let near = self.near();
            if let Some(at) = self.earliest_slot() {
                let start = self.slot_start(at);
                if start <= now && near.is_none_or(|record| start <= record.deadline) {
                    self.open(at);
                    continue;
                }
            }
            let Some(record) = near.filter(|record| record.deadline <= now) else {
                // Every slot that starts by now is open, so the position may follow the time.
                self.position = self.position.max(now >> TICK_BITS);
                return None;
            };
            self.pop_near(record);
            if let Some(value) = self.slab.remove(record.index, record.serial) {
                return Some((Timestamp::from_nanos(record.deadline), value));
            }
        }
    }

    /// Takes all timers out, due or not, in no particular order.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        for at in 0..self.levels.len() {
            self.levels[at] = Slot { records: Vec::new(), first: NONE };
        }
        self.occupied = [0; LEVELS];
        self.occupied_levels = 0;
        self.run = Vec::new();
        self.heap = BinaryHeap::new();
        self.stale = 0;
        self.sweep = Sweep::default();
        self.slab.drain()
    }

    fn place(&mut self, record: Record) {
        let tick = record.tick();
        if tick <= self.position {
            self.heap.push(Reverse(record));
            return;
        }
        // The highest group of six bits in which the tick differs from the position.
        let level =
            ((u64::BITS - 1 - (tick ^ self.position).leading_zeros()) / LEVEL_BITS) as usize;
        let slot = (tick >> (level as u32 * LEVEL_BITS)) as usize % SLOTS;
        self.occupied_levels |= 1 << level;
        self.occupied[level] |= 1 << slot;
        let slot = &mut self.levels[level * SLOTS + slot];
        slot.records.push(record);
        slot.first = slot.first.min(record);
    }

    /// The occupied slot with the earliest ticks: on the lowest occupied level, as every level
    /// shares with the position all that is above it; and there the lowest, as none is behind it.
    fn earliest_slot(&self) -> Option<usize> {
        (self.occupied_levels != 0).then(|| {
            let level = self.occupied_levels.trailing_zeros() as usize;
            level * SLOTS + self.occupied[level].trailing_zeros() as usize
        })
    }

    /// The earliest moment that falls into a slot.
    fn slot_start(&self, at: usize) -> u64 {
        let (level, slot) = ((at / SLOTS) as u32, (at % SLOTS) as u64);
        let low = level * LEVEL_BITS;
        let above = self.position >> (low + LEVEL_BITS) << (low + LEVEL_BITS);
        (above | slot << low) << TICK_BITS
    }

    fn vacate(&mut self, at: usize) -> Vec<Record> {
        let (level, slot) = (at / SLOTS, at % SLOTS);
        self.occupied[level] &= !(1 << slot);
        if self.occupied[level] == 0 {
            self.occupied_levels &= !(1 << level);
        }
        self.levels[at].first = NONE;
        core::mem::replace(&mut self.levels[at].records, core::mem::take(&mut self.spare))
    }

    /// Keeps an emptied buffer for the next slot that is moved, unless it is large.
    fn give_back(&mut self, mut records: Vec<Record>) {
        if records.capacity() <= KEPT {
            records.clear();
            self.spare = records;
        }
    }

    /// Moves the position to the earliest slot, and its records to where they belong from there.
    fn open(&mut self, at: usize) {
        self.position = self.slot_start(at) >> TICK_BITS;
        let mut records = self.vacate(at);
        if at < SLOTS && self.run.is_empty() {
            // One tick: sort it, latest first. Looked up all at once, the values' cache misses overlap;
            // one by one, on the way out, each would be waited for.
            let (slab, before) = (&self.slab, records.len());
            records.retain(|record| slab.contains(record.index, record.serial));
            self.stale -= before - records.len();
            records.sort_unstable_by_key(|record| Reverse(*record));
            let old = core::mem::replace(&mut self.run, records);
            self.give_back(old);
        } else {
            for &record in &records {
                self.place(record);
            }
            self.give_back(records);
        }
    }

    /// Finds the earliest live record of a slot whose first was cancelled.
    fn search(&mut self, at: usize) {
        let slab = &self.slab;
        let slot = &mut self.levels[at];
        let before = slot.records.len();
        slot.records.retain(|record| slab.contains(record.index, record.serial));
        self.stale -= before - slot.records.len();
        if slot.records.is_empty() || slot.records.len() > SMALL {
            let records = self.vacate(at);
            self.heap.extend(records.iter().copied().map(Reverse));
            self.give_back(records);
        } else {
            slot.first = slot.records.iter().copied().min().unwrap_or(NONE);
        }
    }

    /// The earliest live record outside the levels.
    fn near(&mut self) -> Option<Record> {
        loop {
            let record = match (self.run.last(), self.heap.peek()) {
                (Some(run), Some(Reverse(heap))) => *run.min(heap),
                (Some(record), None) | (None, Some(Reverse(record))) => *record,
                (None, None) => return None,
            };
            if self.slab.contains(record.index, record.serial) {
                return Some(record);
            }
            self.pop_near(record);
            self.stale -= 1;
        }
    }

    /// Takes away the record that `near` saw.
    fn pop_near(&mut self, record: Record) {
        if self.run.last() == Some(&record) {
            self.run.pop();
        } else {
            self.heap.pop();
        }
    }

    /// Drops a few stale records: enough at each cancel that they never outnumber the live ones by
    /// much, few enough that no cancel takes long.
    fn sweep_some(&mut self) {
        const STEPS: usize = 4;
        for _ in 0..STEPS {
            let Some(slot) = self.levels.get_mut(self.sweep.slot) else {
                self.sweep_near();
                self.sweep = Sweep::default();
                return;
            };
            match slot.records.get(self.sweep.record) {
                Some(record) if self.slab.contains(record.index, record.serial) => {
                    self.sweep.record += 1;
                }
                Some(_) => {
                    slot.records.swap_remove(self.sweep.record);
                    self.stale -= 1;
                    if slot.records.is_empty() {
                        let records = self.vacate(self.sweep.slot);
                        self.give_back(records);
                    }
                }
                None => {
                    self.sweep = Sweep { slot: self.next_occupied(self.sweep.slot + 1), record: 0 }
                }
            }
        }
    }

    /// The first occupied slot from `from` on; past the last level if there is none.
    fn next_occupied(&self, from: usize) -> usize {
        let (mut level, mut mask) = (from / SLOTS, u64::MAX << (from % SLOTS));
        while level < LEVELS {
            let here = self.occupied[level] & mask;
            if here != 0 {
                return level * SLOTS + here.trailing_zeros() as usize;
            }
            (level, mask) = (level + 1, u64::MAX);
        }
        LEVELS * SLOTS
    }

    /// Drops the stale records outside the levels, if they are many.
    fn sweep_near(&mut self) {
        let slab = &self.slab;
        let before = self.run.len() + self.heap.len();
        self.run.retain(|record| slab.contains(record.index, record.serial));
        self.heap.retain(|Reverse(record)| slab.contains(record.index, record.serial));
        self.stale -= before - self.run.len() - self.heap.len();
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("len", &self.len())
            .field("position", &Timestamp::from_nanos(self.position << TICK_BITS))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<T> Wheel<T> {
        fn records(&self) -> usize {
            self.run.len()
                + self.heap.len()
                + self.levels.iter().map(|slot| slot.records.len()).sum::<usize>()
        }

        fn check(&self) {
            assert_eq!(self.records(), self.len() + self.stale);
            for (at, slot) in self.levels.iter().enumerate() {
                let occupied = self.occupied[at / SLOTS] >> (at % SLOTS) & 1 == 1;
                assert_eq!(occupied, !slot.records.is_empty());
                assert!(slot.records.iter().all(|record| slot.first <= *record));
            }
            for level in 0..LEVELS {
                let occupied = self.occupied_levels >> level & 1 == 1;
                assert_eq!(occupied, self.occupied[level] != 0);
            }
        }
    }

    #[test]
    fn cancelled_timers_leave_no_pile_of_records() {
        let mut wheel = Wheel::new(Timestamp::ORIGIN);
        let mut rng = fastrand::Rng::with_seed(3);
        let resident: Vec<_> =
            (0..1000).map(|n| wheel.insert(Timestamp::from_nanos(rng.u64(..)), n)).collect();
        let mut most = 0;
        for n in 0..200_000 {
            let at = Timestamp::from_nanos(rng.u64(..) >> rng.u32(0..64));
            let key = wheel.insert(at, n);
            if n % 7 == 0 {
                let _ = wheel.next_deadline();
            }
            assert_eq!(wheel.cancel(key), Some(n));
            most = most.max(wheel.records());
        }
        wheel.check();
        assert!(most < 3 * resident.len(), "{most} records for {} timers", resident.len());
        for key in resident {
            assert!(wheel.cancel(key).is_some());
        }
        assert!(wheel.is_empty());
        wheel.check();
    }

    #[test]
    fn buffers_of_a_great_burst_are_given_back() {
        let mut wheel = Wheel::new(Timestamp::ORIGIN);
        for n in 0..100_000u64 {
            wheel.insert(Timestamp::from_nanos(n << 16), n);
        }
        for n in 0..100_000 {
            assert_eq!(wheel.expire(Timestamp::from_nanos(u64::MAX)), Some(n));
        }
        wheel.check();
        let kept: usize = wheel.levels.iter().map(|slot| slot.records.capacity()).sum();
        assert!(kept <= KEPT * LEVELS * SLOTS);
        assert!(wheel.levels.iter().all(|slot| slot.records.capacity() <= KEPT));
    }

    #[test]
    fn a_jump_of_centuries_opens_only_occupied_slots() {
        let mut wheel = Wheel::new(Timestamp::ORIGIN);
        let far = Timestamp::from_nanos(u64::MAX - 1);
        wheel.insert(far, "far");
        wheel.insert(Timestamp::NEVER, "never");
        assert_eq!(wheel.next_deadline(), Some(far));
        assert_eq!(wheel.expire(Timestamp::from_nanos(u64::MAX - 2)), None);
        wheel.check();
        assert_eq!(wheel.expire(Timestamp::NEVER), Some("far"));
        assert_eq!(wheel.next_deadline(), None);
        assert_eq!(wheel.expire(Timestamp::NEVER), None);
        assert_eq!(wheel.drain().collect::<Vec<_>>(), ["never"]);
        wheel.check();
    }
}
