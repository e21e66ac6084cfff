//! Timers through their public API.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tenure::clock::Timestamp;
use tenure::timer::{TimerKey, Wheel};

fn ns(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

#[derive(Clone, Debug)]
enum Op {
    /// Insert so many nanoseconds after (or, if negative, before) the time.
    Insert(i128),
    InsertNever,
    /// Cancel one of the keys ever given out.
    Cancel(prop::sample::Index),
    /// Cancel the earliest timer.
    CancelFirst,
    /// Move the time on and take what is due.
    Advance(u64),
    /// Move the time to just where the earliest timer is due.
    AdvanceToFirst,
    Drain,
}

/// Spans of every size, from nanoseconds to centuries.
fn span() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0u32..64).prop_map(|(bits, shift)| bits >> shift)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        10 => span().prop_map(|span| Op::Insert(span.into())),
        6 => (0u64..50_000_000).prop_map(|span| Op::Insert(span.into())),
        1 => (0u64..50_000_000).prop_map(|span| Op::Insert(-i128::from(span))),
        1 => Just(Op::InsertNever),
        4 => any::<prop::sample::Index>().prop_map(Op::Cancel),
        3 => Just(Op::CancelFirst),
        2 => span().prop_map(Op::Advance),
        4 => (0u64..100_000_000).prop_map(Op::Advance),
        2 => Just(Op::AdvanceToFirst),
        1 => Just(Op::Drain),
    ]
}

/// The wheel beside a sorted map: same answers, whatever happens.
struct Pair {
    now: u64,
    wheel: Wheel<u64>,
    model: BTreeMap<(u64, u64), ()>,
    /// Every key ever given out, with its place in the model.
    keys: Vec<(TimerKey, (u64, u64))>,
}

impl Pair {
    fn insert(&mut self, deadline: u64) {
        let id = self.keys.len() as u64;
        let key = self.wheel.insert(ns(deadline), id);
        self.model.insert((deadline, id), ());
        self.keys.push((key, (deadline, id)));
    }

    fn cancel(&mut self, (key, place): (TimerKey, (u64, u64))) {
        let expected = self.model.remove(&place).map(|()| place.1);
        assert_eq!(self.wheel.contains(key), expected.is_some());
        assert_eq!(self.wheel.cancel(key), expected);
        assert_eq!(self.wheel.cancel(key), None);
    }

    fn first(&self) -> Option<(u64, u64)> {
        self.model.first_key_value().map(|(place, ())| *place)
    }

    fn advance_to(&mut self, now: u64) {
        self.now = now.max(self.now).min(u64::MAX - 1);
        while let Some((deadline, id)) = self.first().filter(|(at, _)| *at <= self.now) {
            assert_eq!(self.wheel.expire_entry(ns(self.now)), Some((ns(deadline), id)));
            self.model.remove(&(deadline, id));
        }
        assert_eq!(self.wheel.expire(ns(self.now)), None);
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Insert(span) => {
                let at = (i128::from(self.now) + span).clamp(0, u64::MAX.into());
                self.insert(at as u64);
            }
            Op::InsertNever => self.insert(u64::MAX),
            Op::Cancel(index) if !self.keys.is_empty() => self.cancel(*index.get(&self.keys)),
            Op::Cancel(_) => {}
            Op::CancelFirst => {
                if let Some((_, id)) = self.first() {
                    self.cancel(self.keys[id as usize]);
                }
            }
            Op::Advance(span) => self.advance_to(self.now.saturating_add(span)),
            Op::AdvanceToFirst => {
                if let Some((at, _)) = self.first() {
                    self.advance_to(at);
                }
            }
            Op::Drain => {
                let mut drained: Vec<_> = self.wheel.drain().collect();
                drained.sort_unstable();
                let mut expected: Vec<_> = self.model.keys().map(|(_, id)| *id).collect();
                expected.sort_unstable();
                assert_eq!(drained, expected);
                self.model.clear();
            }
        }
    }

    fn run(ops: Vec<Op>, start: u64, look: usize) {
        let mut pair = Self {
            now: start,
            wheel: Wheel::new(ns(start)),
            model: BTreeMap::new(),
            keys: Vec::new(),
        };
        for (n, op) in ops.into_iter().enumerate() {
            pair.apply(op);
            assert_eq!(pair.wheel.len(), pair.model.len());
            if n % look == 0 {
                let first = pair.first().map(|(at, _)| ns(at)).filter(|at| !at.is_never());
                assert_eq!(pair.wheel.next_deadline(), first);
            }
        }
        pair.advance_to(u64::MAX);
        assert!(pair.model.keys().all(|(at, _)| *at == u64::MAX));
        assert_eq!(pair.wheel.next_deadline(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_wheel_is_a_sorted_map(
        ops in vec(op(), 1..200), start in span(), look in 1usize..20,
    ) {
        Pair::run(ops, start, look);
    }

    /// Enough timers in one slot that it is searched as a heap.
    #[test]
    fn a_crowded_slot_is_a_sorted_map(
        deadlines in vec(10_000_000_000u64..10_300_000_000, 60..400),
        ops in vec(op(), 1..100), firsts in 0usize..60,
    ) {
        let crowd = deadlines.into_iter().map(|at| Op::Insert(at.into()));
        let cancels = std::iter::repeat_n(Op::CancelFirst, firsts);
        Pair::run(crowd.chain(cancels).chain(ops).collect(), 0, 1);
    }
}

#[test]
fn equal_deadlines_come_out_in_the_order_of_their_insertion() {
    let mut wheel = Wheel::new(ns(0));
    let at = ns(77_000_000);
    for n in 0..500 {
        wheel.insert(at, n);
    }
    assert_eq!(wheel.expire(ns(76_999_999)), None);
    // The slot of this deadline is open by now: these come too late for it, and after it.
    for n in 500..520 {
        wheel.insert(at, n);
    }
    let out: Vec<_> = std::iter::from_fn(|| wheel.expire(at)).collect();
    assert_eq!(out, (0..520).collect::<Vec<_>>());
}

#[test]
fn a_wheel_may_be_asked_about_the_past() {
    let mut wheel = Wheel::new(ns(1_000_000_000));
    wheel.insert(ns(5), "long ago");
    assert_eq!(wheel.next_deadline(), Some(ns(5)));
    assert_eq!(wheel.expire(ns(4)), None);
    assert_eq!(wheel.expire(ns(2_000_000_000)), Some("long ago"));
    wheel.insert(ns(6), "later");
    assert_eq!(wheel.expire(ns(5)), None);
    assert_eq!(wheel.expire(ns(6)), Some("later"));
}

#[test]
fn a_key_never_names_another_timer() {
    let mut wheel = Wheel::new(ns(0));
    let first = wheel.insert(ns(10), 1);
    assert_eq!(wheel.expire(ns(10)), Some(1));
    let second = wheel.insert(ns(20), 2);
    assert_eq!(wheel.cancel(first), None);
    assert_eq!(wheel.get_mut(first), None);
    assert_eq!(wheel.get_mut(second), Some(&mut 2));
    assert_eq!(wheel.drain().count(), 1);
    let third = wheel.insert(ns(30), 3);
    assert_eq!((wheel.cancel(second), wheel.cancel(third)), (None, Some(3)));
}
