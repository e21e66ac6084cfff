use std::collections::HashMap;

use super::*;

/// Children that do what chance says, and a check that the plan never asks for what cannot be.
struct World {
    plan: Plan,
    alive: HashMap<Key, u64>,
    told: HashMap<Key, u64>,
    now: Timestamp,
    over: bool,
    random: fastrand::Rng,
}

impl World {
    fn new(strategy: Strategy, seed: u64) -> Self {
        let window = Window::new(seed as u32 % 40, Duration::from_secs(5));
        let plan = Plan::new(strategy, AutoShutdown::Never, window, None, seed);
        Self {
            plan,
            alive: HashMap::new(),
            told: HashMap::new(),
            now: Timestamp::ORIGIN,
            over: false,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    fn follow(&mut self, change: impl FnOnce(&mut Plan, Timestamp, &mut Vec<Act>)) {
        let mut acts = Vec::new();
        change(&mut self.plan, self.now, &mut acts);
        self.plan.step(self.now, &mut acts);
        for act in acts {
            match act {
                Act::Start { key, incarnation } => {
                    assert!(!self.over, "a start after the end");
                    let before = self.alive.insert(key, incarnation);
                    assert_eq!(before, None, "two incarnations of {key} at once");
                }
                Act::Stop { key, incarnation } => {
                    assert_eq!(self.alive.get(&key), Some(&incarnation), "a stop of nobody");
                    let before = self.told.insert(key, incarnation);
                    assert_ne!(before, Some(incarnation), "told twice");
                }
                Act::Gone { key } => {
                    assert!(!self.alive.contains_key(&key), "{key} goes while it runs");
                }
                Act::Over => {
                    assert!(!core::mem::replace(&mut self.over, true), "over twice");
                }
                _ => {}
            }
        }
    }

    fn end(&mut self, key: Key, abnormal: bool) {
        if let Some(incarnation) = self.alive.remove(&key) {
            self.follow(|plan, now, acts| plan.exited(key, incarnation, abnormal, now, acts));
        }
    }

    /// Something happens.
    fn turn(&mut self) {
        let keys: Vec<_> = self.plan.children().iter().map(|child| child.key).collect();
        let Some(key) = self.random.choice(&keys).copied() else {
            return self.add();
        };
        let incarnation = self.alive.get(&key).copied().unwrap_or(0);
        match self.random.u32(..100) {
            0..40 => self.follow(|plan, now, _| plan.ready(key, incarnation, now)),
            40..60 => self.end(key, true),
            60..70 => self.end(key, false),
            70..75 => self.follow(|plan, _, acts| plan.overdue(key, incarnation, acts)),
            75..80 => self.follow(|plan, _, _| plan.renew(key)),
            80..83 => self.follow(|plan, _, acts| plan.put_down(key, false, acts)),
            83..86 => self.follow(|plan, _, acts| plan.put_down(key, true, acts)),
            86..92 => self.add(),
            // An old notice.
            92..95 => {
                let now = incarnation.saturating_sub(1);
                self.follow(|plan, at, acts| plan.exited(key, now, true, at, acts));
            }
            _ => {
                self.now = self.now.saturating_add(Duration::from_secs(self.random.u64(..4)));
                self.follow(|_, _, _| {});
            }
        }
    }

    fn add(&mut self) {
        if self.plan.children().len() >= 8 {
            return;
        }
        let restart = *self
            .random
            .choice(&[Restart::Permanent, Restart::Transient, Restart::Temporary])
            .unwrap_or(&Restart::Permanent);
        let traits = Traits { restart, significant: false, overlaps: false };
        self.follow(|plan, _, _| {
            plan.add(traits, false);
        });
    }
}

#[test]
fn whatever_happens_no_two_incarnations_overlap_and_all_ends() {
    for seed in 0..400 {
        let all =
            [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne, Strategy::Dynamic];
        let mut world = World::new(all[seed as usize % 4], seed);
        for _ in 0..300 {
            world.turn();
        }
        world.follow(|plan, _, _| plan.stop());
        // Each that is told to stop ends; those that are not yet wait for their turn.
        for _ in 0..100 {
            let told: Vec<_> = world
                .alive
                .iter()
                .filter(|(key, incarnation)| world.told.get(key) == Some(incarnation))
                .map(|(key, _)| *key)
                .collect();
            for key in told {
                world.end(key, false);
            }
        }
        assert!(world.over, "seed {seed}: {:?}", world.plan);
        assert!(world.alive.is_empty(), "seed {seed}: {:?}", world.alive);
    }
}

#[test]
fn the_end_goes_in_reverse_order_one_by_one_but_for_dynamic_children() {
    for strategy in [Strategy::OneForOne, Strategy::Dynamic] {
        let mut world = World::new(strategy, 9);
        let traits = Traits { restart: Restart::Permanent, significant: false, overlaps: false };
        for _ in 0..3 {
            world.follow(|plan, _, _| {
                plan.add(traits, true);
            });
        }
        for key in 0..3 {
            world.follow(|plan, now, _| plan.ready(key, 1, now));
        }
        let mut acts = Vec::new();
        world.plan.stop();
        world.plan.step(world.now, &mut acts);
        let stop = |key| Act::Stop { key, incarnation: 1 };
        match strategy {
            Strategy::Dynamic => assert_eq!(acts, [stop(2), stop(1), stop(0)]),
            _ => assert_eq!(acts, [stop(2)]),
        }
    }
}
