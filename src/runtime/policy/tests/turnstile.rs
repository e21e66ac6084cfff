//! A gate of the tests' own, and a latch for those who hang.
#![cfg(all(test, not(any(tenure_loom, tenure_shuttle))))]

use super::*;

/// So many permits; what became of each is written down.
pub(super) struct Turnstile {
    pub(super) free: AtomicUsize,
    pub(super) inside: AtomicUsize,
    pub(super) most_inside: AtomicUsize,
    pub(super) asked: AtomicUsize,
    /// Bumped to make the permits given before stale.
    pub(super) version: AtomicUsize,
    pub(super) retry_after: Option<Duration>,
    /// What whoever asks next gets into.
    pub(super) trap: Mutex<Option<Trap>>,
    /// What whoever begins next hangs at.
    pub(super) at_begin: Mutex<Option<Latch>>,
    pub(super) listeners: Mutex<Vec<Weak<dyn Listener>>>,
    pub(super) verdicts: Mutex<HashMap<&'static str, usize>>,
}

pub(super) enum Trap {
    /// Gives the other one a permit before.
    Hang(Latch, Option<Shut>),
    Panic,
}

pub(super) struct Through(Arc<Turnstile>, usize);

/// The gate itself.
#[derive(Clone)]
pub(super) struct Shut(pub(super) Arc<Turnstile>);

impl Shut {
    pub(super) fn new(free: usize) -> Self {
        Self::within(free, None)
    }

    pub(super) fn within(free: usize, retry_after: Option<Duration>) -> Self {
        Self(Arc::new(Turnstile {
            free: AtomicUsize::new(free),
            inside: AtomicUsize::new(0),
            most_inside: AtomicUsize::new(0),
            asked: AtomicUsize::new(0),
            version: AtomicUsize::new(0),
            retry_after,
            trap: Mutex::new(None),
            at_begin: Mutex::new(None),
            listeners: Mutex::new(Vec::new()),
            verdicts: Mutex::new(HashMap::new()),
        }))
    }

    pub(super) fn gate(&self) -> Arc<dyn Gate> {
        Arc::new(self.clone())
    }

    /// Adds permits without a word: as time does.
    pub(super) fn refill(&self, permits: usize) {
        self.0.free.fetch_add(permits, SeqCst);
    }

    pub(super) fn open(&self, permits: usize) {
        self.refill(permits);
        self.0.tell();
    }

    /// Whoever asks next does not come back until the latch is open.
    pub(super) fn hang_next(&self, opens: Option<&Self>) -> Latch {
        let latch = Latch::default();
        *self.0.trap.lock().unwrap() = Some(Trap::Hang(latch.clone(), opens.cloned()));
        latch
    }

    /// Whoever begins next, with a permit that it waited for, does not come back until the latch is open.
    pub(super) fn hang_at_begin(&self) -> Latch {
        let latch = Latch::default();
        *self.0.at_begin.lock().unwrap() = Some(latch.clone());
        latch
    }

    pub(super) fn panic_next(&self) {
        *self.0.trap.lock().unwrap() = Some(Trap::Panic);
    }

    pub(super) fn close_and_void(&self) {
        self.0.free.store(0, SeqCst);
        self.0.version.fetch_add(1, SeqCst);
    }

    pub(super) fn verdicts(&self, of: &'static str) -> usize {
        self.0.verdicts.lock().unwrap().get(of).copied().unwrap_or(0)
    }

    pub(super) fn inside(&self) -> usize {
        self.0.inside.load(SeqCst)
    }

    pub(super) fn asked(&self) -> usize {
        self.0.asked.load(SeqCst)
    }
}

impl Turnstile {
    pub(super) fn tell(&self) {
        let listeners = self.listeners.lock().unwrap().clone();
        for listener in listeners.iter().filter_map(Weak::upgrade) {
            listener.permit_freed();
        }
    }
}

impl Gate for Shut {
    fn try_pass(&self) -> Result<Box<dyn Pass>, Option<Duration>> {
        self.0.asked.fetch_add(1, SeqCst);
        let trap = self.0.trap.lock().unwrap().take();
        match trap {
            None => {}
            Some(Trap::Hang(latch, opens)) => {
                if let Some(other) = opens {
                    other.open(1);
                }
                latch.pass();
            }
            Some(Trap::Panic) => panic!("meant"),
        }
        // Before the permit: one that is taken while they are made void is void.
        let version = self.0.version.load(SeqCst);
        let taken = self.0.free.fetch_update(SeqCst, SeqCst, |free| free.checked_sub(1));
        if taken.is_err() {
            return Err(self.0.retry_after);
        }
        let inside = self.0.inside.fetch_add(1, SeqCst) + 1;
        self.0.most_inside.fetch_max(inside, SeqCst);
        Ok(Box::new(Through(Arc::clone(&self.0), version)))
    }

    fn watch(&self, listener: Weak<dyn Listener>) {
        self.0.listeners.lock().unwrap().push(listener);
    }

    fn id(&self) -> GateId {
        (Arc::as_ptr(&self.0).addr(), None)
    }
}

impl Pass for Through {
    fn end(self: Box<Self>, verdict: Verdict) {
        let name = match verdict {
            Verdict::Success => "success",
            Verdict::Failure | Verdict::Late => "failure",
            Verdict::Ignored => "ignored",
            Verdict::Unused => "unused",
        };
        *self.0.verdicts.lock().unwrap().entry(name).or_default() += 1;
        self.0.inside.fetch_sub(1, SeqCst);
        // A void one comes back as nothing.
        if self.is_current() {
            self.0.free.fetch_add(1, SeqCst);
            self.0.tell();
        }
    }

    fn is_current(&self) -> bool {
        self.0.version.load(SeqCst) == self.1
    }

    fn begin(&mut self) {
        let latch = self.0.at_begin.lock().unwrap().take();
        if let Some(latch) = latch {
            latch.pass();
        }
    }
}

/// What attempts hang at.
#[derive(Clone, Default)]
pub(super) struct Latch(Arc<(Mutex<bool>, Condvar, AtomicUsize)>);

impl Latch {
    pub(super) fn pass(&self) {
        self.0.2.fetch_add(1, SeqCst);
        let mut open = self.0.0.lock().unwrap();
        while !*open {
            open = self.0.1.wait(open).unwrap();
        }
    }

    /// So many attempts have come to it: their deadlines and timers are planned.
    #[track_caller]
    pub(super) fn wait_for(&self, attempts: usize) {
        until("they come to the latch", || self.0.2.load(SeqCst) >= attempts);
    }

    pub(super) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

#[track_caller]
pub(super) fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}
