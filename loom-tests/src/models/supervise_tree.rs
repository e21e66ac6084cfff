//! A supervisor races its child: the child's end, its successor's start, and the stop of all.
//!
//! Three threads, one preemption, and no early wakes or failed exchanges: those are of the actor's word, which has
//! models of its own with more.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use tenure::supervise::model::{Puppet, Strings, live, supervisor};

/// What became of the child's incarnations.
struct Child {
    alive: AtomicU32,
    started: AtomicU32,
    /// The incarnation that a model's thread ends by itself gets its strings here.
    first: std::sync::Mutex<Option<Strings>>,
    /// Ends when it is told to.
    others: std::sync::Mutex<Option<Strings>>,
    /// 0: the first one lives; 1: somebody ends it.
    claimed: AtomicU32,
}

impl Child {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            alive: AtomicU32::new(0),
            started: AtomicU32::new(0),
            first: std::sync::Mutex::new(None),
            others: std::sync::Mutex::new(None),
            claimed: AtomicU32::new(0),
        })
    }

    /// Whoever is first ends the first incarnation: itself, or the stop.
    fn end_first(&self, fails: bool) {
        let strings = self.first.lock().unwrap().clone();
        if let Some(strings) = strings
            && self.claimed.swap(1, Ordering::Relaxed) == 0
        {
            self.alive.fetch_sub(1, Ordering::Relaxed);
            strings.end(fails);
        }
    }
}

struct Hand(Arc<Child>);

impl Puppet for Hand {
    fn start(&self, n: u64, strings: Strings) {
        assert_eq!(self.0.alive.fetch_add(1, Ordering::Relaxed), 0, "two incarnations at once");
        self.0.started.fetch_add(1, Ordering::Relaxed);
        strings.ready();
        let slot = if n == 1 { &self.0.first } else { &self.0.others };
        *slot.lock().unwrap() = Some(strings);
    }

    fn stop(&self, n: u64) {
        if n == 1 {
            return self.0.end_first(false);
        }
        let strings = self.0.others.lock().unwrap().take();
        if let Some(strings) = strings {
            self.0.alive.fetch_sub(1, Ordering::Relaxed);
            strings.end(false);
        }
    }
}

models! { "supervise";
    /// The child fails while the supervisor is told to stop: it is started again or not, but never twice at
    /// once, and nothing is up at the end.
    restart_x_stop [bound: 1, once, std_arc] {
        let child = Child::new();
        let (stage, chief) = supervisor(Hand(Arc::clone(&child)));
        let living = thread::spawn(move || live(stage));
        let stopper = thread::spawn(move || chief.stop());
        let its = Arc::clone(&child);
        let failing = thread::spawn(move || its.end_first(true));
        for thread in [living, stopper, failing] {
            thread.join().unwrap();
        }
        assert_eq!(child.alive.load(Ordering::Relaxed), 0, "a child outlives its supervisor");
        assert!((0..=2).contains(&child.started.load(Ordering::Relaxed)));
    }
    /// The same when nobody holds the supervisor any more.
    restart_x_last_drop [bound: 1, once, std_arc] {
        let child = Child::new();
        let (stage, chief) = supervisor(Hand(Arc::clone(&child)));
        let living = thread::spawn(move || live(stage));
        let stopper = thread::spawn(move || drop(chief));
        let its = Arc::clone(&child);
        let failing = thread::spawn(move || its.end_first(true));
        for thread in [living, stopper, failing] {
            thread.join().unwrap();
        }
        assert_eq!(child.alive.load(Ordering::Relaxed), 0, "a child outlives its supervisor");
    }
}
