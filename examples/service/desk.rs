//! Which deliveries there are: those in hand, the latest that have ended, and the dead ones.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::delivery::{Delivery, End};

/// Every list in it is bounded: by the runtime's capacity, by `keep`, by `letters`.
#[derive(Debug)]
pub(crate) struct Desk {
    keep: usize,
    per_subscriber: u32,
    lists: Mutex<Lists>,
}

#[derive(Debug, Default)]
struct Lists {
    all: HashMap<String, Arc<Delivery>>,
    /// Delivered or given up by a stop, the oldest first.
    ended: VecDeque<String>,
    /// Dead ones whose letter went before their end was heard of.
    orphans: HashSet<String>,
    /// How many each subscriber has in hand.
    in_hand: HashMap<String, u32>,
}

/// What was made of a new delivery.
#[derive(Debug)]
pub(crate) enum Entered {
    New,
    /// It was here before.
    Known(Arc<Delivery>),
    /// Another one has its id.
    Conflict,
    /// Its subscriber has enough in hand.
    TooMany,
}

impl Desk {
    pub(crate) fn new(keep: usize, per_subscriber: u32) -> Self {
        Self { keep, per_subscriber, lists: Mutex::default() }
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a delivery that is about to be handed to the runtime.
    pub(crate) fn enter(&self, delivery: &Arc<Delivery>) -> Entered {
        let mut lists = self.lists();
        if let Some(known) = lists.all.get(&delivery.id) {
            return if known.is_same(delivery) {
                Entered::Known(Arc::clone(known))
            } else {
                Entered::Conflict
            };
        }
        if lists.in_hand.get(&delivery.subscriber).is_some_and(|n| *n >= self.per_subscriber) {
            return Entered::TooMany;
        }
        lists.take_in_hand(delivery);
        lists.all.insert(delivery.id.clone(), Arc::clone(delivery));
        Entered::New
    }

    /// The runtime did not take it.
    pub(crate) fn withdraw(&self, delivery: &Delivery) {
        let mut lists = self.lists();
        lists.put_down(delivery);
        lists.all.remove(&delivery.id);
    }

    /// A dead one is to be tried anew: it is in hand again.
    pub(crate) fn take_up_again(&self, delivery: &Arc<Delivery>) {
        delivery.reopen();
        let mut lists = self.lists();
        lists.take_in_hand(delivery);
        lists.all.insert(delivery.id.clone(), Arc::clone(delivery));
    }

    /// A delivery has ended. The dead ones stay until their letter goes: [`forget`](Self::forget).
    pub(crate) fn end(&self, delivery: &Delivery, end: End) {
        let mut lists = self.lists();
        lists.put_down(delivery);
        if end == End::Dead {
            if lists.orphans.remove(&delivery.id) {
                lists.all.remove(&delivery.id);
            }
            return;
        }
        lists.ended.push_back(delivery.id.clone());
        while lists.ended.len() > self.keep {
            if let Some(oldest) = lists.ended.pop_front() {
                lists.all.remove(&oldest);
            }
        }
    }

    /// A dead one's letter is gone.
    pub(crate) fn forget(&self, id: &str) {
        let mut lists = self.lists();
        match lists.all.get(id).map(|delivery| delivery.ended()) {
            Some(Some(End::Dead)) => {
                lists.all.remove(id);
            }
            Some(None) => {
                lists.orphans.insert(id.to_owned());
            }
            Some(Some(End::Delivered | End::Undelivered)) | None => {}
        }
    }

    pub(crate) fn find(&self, id: &str) -> Option<Arc<Delivery>> {
        self.lists().all.get(id).cloned()
    }

    /// How many have not ended.
    pub(crate) fn count_in_hand(&self) -> u64 {
        self.lists().in_hand.values().map(|count| u64::from(*count)).sum()
    }

    /// Those that have not ended.
    pub(crate) fn in_hand(&self) -> Vec<Arc<Delivery>> {
        let lists = self.lists();
        lists.all.values().filter(|delivery| delivery.ended().is_none()).cloned().collect()
    }
}

impl Lists {
    fn take_in_hand(&mut self, delivery: &Delivery) {
        *self.in_hand.entry(delivery.subscriber.clone()).or_default() += 1;
    }

    fn put_down(&mut self, delivery: &Delivery) {
        if let Some(count) = self.in_hand.get_mut(&delivery.subscriber) {
            *count -= 1;
            if *count == 0 {
                self.in_hand.remove(&delivery.subscriber);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::Request;

    fn delivery(id: &str, n: u32) -> Arc<Delivery> {
        let request = Request {
            url: "http://host/".into(),
            subscriber: "s".into(),
            body: n.into(),
            id: Some(id.into()),
            within_ms: None,
        };
        Arc::new(Delivery::new(request).unwrap())
    }

    fn end(desk: &Desk, delivery: &Delivery, end: End) {
        delivery.end(end, None);
        desk.end(delivery, end);
    }

    #[test]
    fn an_id_is_one_delivery() {
        let desk = Desk::new(10, 10);
        assert!(matches!(desk.enter(&delivery("a", 1)), Entered::New));
        assert!(matches!(desk.enter(&delivery("a", 1)), Entered::Known(_)));
        assert!(matches!(desk.enter(&delivery("a", 2)), Entered::Conflict));
    }

    #[test]
    fn a_subscriber_has_so_many_in_hand_and_no_more() {
        let desk = Desk::new(10, 2);
        let first = delivery("a", 1);
        assert!(matches!(desk.enter(&first), Entered::New));
        assert!(matches!(desk.enter(&delivery("b", 1)), Entered::New));
        assert!(matches!(desk.enter(&delivery("c", 1)), Entered::TooMany));
        end(&desk, &first, End::Delivered);
        assert!(matches!(desk.enter(&delivery("c", 1)), Entered::New));
    }

    #[test]
    fn the_oldest_that_ended_are_forgotten_and_the_dead_are_not() {
        let desk = Desk::new(2, 10);
        let dead = delivery("dead", 0);
        let _ = desk.enter(&dead);
        end(&desk, &dead, End::Dead);
        for id in ["a", "b", "c"] {
            let delivery = delivery(id, 0);
            let _ = desk.enter(&delivery);
            end(&desk, &delivery, End::Delivered);
        }
        let there = ["dead", "a", "b", "c"].map(|id| desk.find(id).is_some());
        assert_eq!(there, [true, false, true, true]);
        desk.forget("b");
        desk.forget("dead");
        assert!(desk.find("b").is_some() && desk.find("dead").is_none());
        assert!(desk.in_hand().is_empty() && desk.lists().in_hand.is_empty());

        // Its letter may go before its end is heard of.
        let dead = delivery("dead", 0);
        let _ = desk.enter(&dead);
        desk.forget("dead");
        assert!(desk.find("dead").is_some());
        end(&desk, &dead, End::Dead);
        assert!(desk.find("dead").is_none() && desk.lists().orphans.is_empty());
    }
}
