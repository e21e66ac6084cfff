//! Leases under attack: foreign code that calls back, guards in odd orders, the ends of ranges.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tenure::clock::ManualClock;
use tenure::lease::{
    AcquireError, FencingToken, LeaseHandle, LeaseRequest, LeaseState, LeaseTable, Lost, Refusal,
    RenewError,
};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

type Hook = Box<dyn FnOnce()>;

thread_local! {
    static ON_CLONE_KEY: RefCell<Option<Hook>> = const { RefCell::new(None) };
    static ON_DROP_KEY: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
    static ON_CLONE: RefCell<Option<Hook>> = const { RefCell::new(None) };
    static HANDLE: RefCell<Option<Rc<LeaseHandle<u8, Val, ManualClock>>>> =
        const { RefCell::new(None) };
}

fn run(hook: &'static std::thread::LocalKey<RefCell<Option<Hook>>>) {
    let hook = hook.try_with(|hook| hook.borrow_mut().take()).ok().flatten();
    if let Some(hook) = hook {
        hook();
    }
}

fn set(hook: &'static std::thread::LocalKey<RefCell<Option<Hook>>>, to: impl FnOnce() + 'static) {
    hook.with(|hook| *hook.borrow_mut() = Some(Box::new(to)));
}

/// A key whose clone and drop call back.
#[derive(Debug)]
struct Key(u8);

impl Clone for Key {
    fn clone(&self) -> Self {
        run(&ON_CLONE_KEY);
        Self(self.0)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        let hook = ON_DROP_KEY.try_with(|hook| hook.borrow().clone()).ok().flatten();
        if let Some(hook) = hook {
            hook();
        }
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// A value whose clone calls back, which owns memory, and which is counted.
#[derive(Debug, Default)]
struct Val {
    number: Box<u64>,
    alive: Option<Arc<AtomicI64>>,
}

impl Val {
    fn of(number: u64) -> Self {
        Self { number: Box::new(number), alive: None }
    }

    fn counted(number: u64, alive: &Arc<AtomicI64>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self { number: Box::new(number), alive: Some(alive.clone()) }
    }
}

impl Clone for Val {
    fn clone(&self) -> Self {
        run(&ON_CLONE);
        match &self.alive {
            Some(alive) => Self::counted(*self.number, alive),
            None => Self::of(*self.number),
        }
    }
}

impl Drop for Val {
    fn drop(&mut self) {
        if let Some(alive) = &self.alive {
            alive.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The key of a handle is borrowed from the handle, whatever becomes of the slots behind it.
#[test]
fn a_borrowed_key_outlives_the_move_of_its_key() {
    let clock = ManualClock::new();
    let table: LeaseTable<String, u64, _> = LeaseTable::with_clock(clock.clone());
    let handle = table.handle(&"a key on the heap".to_owned()).expect("open");
    let key = handle.key();
    for _ in 0..3 {
        let late = handle.try_acquire_owned(ms(5)).expect("free");
        clock.advance(ms(10));
        handle.try_acquire(ms(5)).expect("expired").commit().expect("held");
        drop(late);
    }
    assert_eq!(key, "a key on the heap");
}

/// A value's clone finds the very handle that is taking a lease, and takes it first.
#[test]
fn a_handle_survives_a_clone_that_takes_its_key() {
    let clock = ManualClock::new();
    let table: LeaseTable<u8, Val, _> = LeaseTable::with_clock(clock.clone());
    let handle = Rc::new(table.handle_or(&1, || Val::of(7)).expect("open"));
    let _ = handle.try_acquire_owned(ms(5)).expect("free").into_token();
    clock.advance(ms(10));
    HANDLE.with(|place| *place.borrow_mut() = Some(handle.clone()));
    let inner = clock.clone();
    set(&ON_CLONE, move || {
        let handle = HANDLE.with(|place| place.borrow_mut().take()).expect("set");
        // Takes over, and so moves the key, and lets go of the slot that the caller stands in.
        let _ = handle.try_acquire(ms(5)).expect("expired").into_token();
        inner.advance(ms(10));
        let _ = handle.try_acquire(ms(5)).expect("expired").into_token();
        inner.advance(ms(10));
    });
    let lease = handle.try_acquire(ms(5)).expect("expired again");
    assert_eq!(*lease.number, 7);
    lease.commit().expect("held");
}

/// An audit sink takes the key away while the acquisition that it hears of is not back yet.
#[test]
fn a_handle_survives_a_sink_that_moves_its_key() {
    thread_local! {
        static ONCE: Cell<bool> = const { Cell::new(false) };
        static TABLE: RefCell<Option<Rc<LeaseTable<u8, Val, ManualClock>>>> =
            const { RefCell::new(None) };
    }
    let clock = ManualClock::new();
    let table: LeaseTable<u8, Val, _> = LeaseTable::<u8, Val>::builder()
        .clock(clock.clone())
        .audit(|event| {
            if ONCE.replace(false) {
                let table = TABLE.with(|place| place.borrow_mut().take()).expect("set");
                let handle = HANDLE.with(|place| place.borrow_mut().take()).expect("set");
                let _ = table.revoke(&event.key, event.token, "by the sink");
                let _ = handle.try_acquire(ms(500)).expect("revoked").into_token();
            }
        })
        .build();
    let table = Rc::new(table);
    let handle = Rc::new(table.handle_or(&1, || Val::of(1)).expect("open"));
    // Entry 1 is current in the old slot; the fresh slot has only entry 0.
    let mut lease = handle.try_acquire(ms(50)).expect("free");
    *lease.number = 2;
    lease.commit().expect("held");
    TABLE.with(|place| *place.borrow_mut() = Some(table.clone()));
    HANDLE.with(|place| *place.borrow_mut() = Some(handle.clone()));
    ONCE.set(true);
    let owned = handle.try_acquire_owned(ms(50)).expect("free");
    assert!(!owned.is_valid());
    assert_eq!(*owned.number, 2);
    drop(owned);
    let token = table.peek(&1).expect("there").token.expect("held by the sink");
    let _ = table.release(&1, token);

    TABLE.with(|place| *place.borrow_mut() = Some(table.clone()));
    HANDLE.with(|place| *place.borrow_mut() = Some(handle.clone()));
    ONCE.set(true);
    let lease = handle.try_acquire(ms(50)).expect("free");
    assert!(!lease.is_valid());
    assert_eq!(*lease.number, 2);
}

/// Two checkpoints bring a word back to where it was. A hand-off by another guard with the same token
/// that read the value before them must not put it back.
#[test]
fn a_hand_off_does_not_undo_checkpoints() {
    let clock = ManualClock::new();
    let table: LeaseTable<Key, u64, _> = LeaseTable::with_clock(clock);
    let table = Rc::new(table);
    let mut owner = table.try_acquire(&Key(1), ms(50)).expect("free");
    let token = owner.token();
    let resumed = table.resume(&Key(1), token).expect("current");
    set(&ON_CLONE_KEY, move || {
        for _ in 0..2 {
            *owner += 1;
            owner.checkpoint().expect("held");
        }
        let _ = owner.into_token();
    });
    // Refused or done, but what was published stays published.
    let handed = resumed.transfer("somebody", ms(50));
    assert_eq!(table.peek(&Key(1)).expect("there").value, 2, "{handed:?}");
    ON_CLONE_KEY.with(|hook| hook.borrow_mut().take());
}

/// A draft made from an old version must not get around `VersionChanged` by being handed off.
#[test]
fn a_hand_off_of_an_old_version_is_refused() {
    let clock = ManualClock::new();
    let table: LeaseTable<u8, u64, _> = LeaseTable::with_clock(clock);
    let mut owner = table.try_acquire(&1, ms(50)).expect("free");
    let mut resumed = table.resume(&1, owner.token()).expect("current");
    *owner = 10;
    owner.checkpoint().expect("held");
    *resumed = 99;
    let refused = resumed.transfer("somebody", ms(50)).expect_err("made from version 0");
    assert_eq!(format!("{:?}", refused.why()), "VersionChanged");
    let commit = refused.into_guard().commit().expect_err("made from version 0");
    assert_eq!(commit.why(), Refusal::VersionChanged);
    assert!(owner.is_valid());
    owner.commit().expect("held");
    let peek = table.peek(&1).expect("there");
    assert_eq!((peek.value, peek.version, peek.state), (10, 1, LeaseState::Free));
}

/// Labels of a grant that was overtaken before it wrote them do not replace its successor's.
#[test]
fn labels_of_an_overtaken_grant_come_too_late() {
    let clock = ManualClock::new();
    let table: LeaseTable<Key, u64, _> = LeaseTable::with_clock(clock.clone());
    let table = Rc::new(table);
    drop(table.handle(&Key(1)).expect("open"));
    let (inner, inner_clock) = (table.clone(), clock.clone());
    set(&ON_CLONE_KEY, move || {
        inner_clock.advance(ms(10));
        let request = LeaseRequest::new(ms(500)).owner("second").request_id(2);
        let _ = inner.try_acquire(&Key(1), request).expect("expired").into_token();
    });
    let first = table
        .try_acquire(&Key(1), LeaseRequest::new(ms(5)).owner("first").request_id(1))
        .expect("free");
    assert!(!first.is_valid());
    assert_eq!(table.list()[0].owner.as_deref(), Some("second"));
    let again = table.try_acquire(&Key(1), LeaseRequest::new(ms(500)).request_id(2));
    assert!(again.is_ok(), "the request id of the running grant was lost: {again:?}");
}

/// A key's drop may call the table: no lock is held.
#[test]
fn a_key_drops_with_no_lock_held() {
    let clock = ManualClock::new();
    let table: LeaseTable<Key, u64, _> =
        LeaseTable::<Key, u64>::builder().clock(clock.clone()).shards(1).build();
    let table = Rc::new(table);
    let inner = Rc::downgrade(&table);
    let drops = Rc::new(Cell::new(0));
    let counted = drops.clone();
    let probe: Rc<dyn Fn()> = Rc::new(move || {
        counted.set(counted.get() + 1);
        if let Some(table) = inner.upgrade() {
            assert!(table.len() <= 1);
        }
    });
    ON_DROP_KEY.with(|hook| *hook.borrow_mut() = Some(probe));
    let labelled = || LeaseRequest::new(ms(50)).owner("one").request_id(3);
    let key = Key(1);
    table.try_acquire(&key, labelled()).expect("free").commit().expect("held");
    // Labels that linger, and are written over.
    let lingering = table.try_acquire(&key, labelled()).expect("free").into_token();
    clock.advance(ms(100));
    let handed = table
        .try_acquire(&key, labelled())
        .expect("expired")
        .transfer("two", ms(50))
        .expect("held");
    assert!(handed.token() > lingering);
    handed.accept(ms(50)).expect("in time").commit().expect("held");
    table.remove(&key).expect("free");
    table.try_acquire(&key, labelled()).expect("free").commit().expect("held");
    table.close();
    assert!(drops.get() > 3);
    ON_DROP_KEY.with(|hook| hook.borrow_mut().take());
}

/// A key that cannot be cloned for an event loses the event, not the lease.
#[test]
fn an_event_that_panics_is_missed_and_nothing_else() {
    let table: LeaseTable<Key, u64> = LeaseTable::new();
    let events = table.subscribe(16);
    drop(table.handle(&Key(1)).expect("open"));
    set(&ON_CLONE_KEY, || panic!("no clones today"));
    let lease = table.try_acquire(&Key(1), ms(50_000)).expect("free");
    assert_eq!(table.missed_events(), 1);
    set(&ON_CLONE_KEY, || panic!("no clones today"));
    drop(lease);
    assert_eq!(table.missed_events(), 2);
    assert!(events.is_empty());
    assert_eq!(table.peek(&Key(1)).expect("there").state, LeaseState::Free);
}

/// A sink whose panic panics again when it is dropped.
#[test]
fn a_sink_may_panic_with_something_that_panics() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() {
                panic!("and again");
            }
        }
    }
    let table: LeaseTable<u8, u64> =
        LeaseTable::<u8, u64>::builder().audit(|_| std::panic::panic_any(Bomb)).build();
    table.try_acquire(&1, ms(50_000)).expect("free").commit().expect("held");
    assert_eq!(table.missed_events(), 2);
}

/// A value that panics when it is dropped does not keep the rest of the table open.
#[test]
fn a_value_that_panics_does_not_stop_the_closing() {
    #[derive(Clone)]
    struct Bomb(u8, Arc<AtomicU64>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            if self.0 == 0 && !std::thread::panicking() {
                panic!("first one");
            }
        }
    }
    let drops = Arc::new(AtomicU64::new(0));
    let table: LeaseTable<u8, Bomb> = LeaseTable::<u8, Bomb>::builder().shards(8).build();
    for key in 0..100 {
        drop(table.insert(key, Bomb(key, drops.clone())).map_err(|_| ()).expect("new"));
    }
    let handle = table.find(&99).expect("there");
    let closing = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| table.close()));
    assert!(closing.is_err());
    assert!(table.is_empty());
    assert_eq!(handle.try_acquire(ms(5)).err(), Some(AcquireError::Closed));
    drop(handle);
    assert_eq!(drops.load(Ordering::Relaxed), 100);
}

/// A long lease that checkpoints while somebody reads moves the key each time. What it leaves behind
/// goes away at once, not at the end of the lease.
#[test]
fn checkpoints_under_readers_leave_nothing_behind() {
    let alive = Arc::new(AtomicI64::new(0));
    let table: LeaseTable<u8, Val> = LeaseTable::new();
    let handle = table.insert(1, Val::counted(0, &alive)).map_err(|_| ()).expect("new");
    let mut lease = handle.try_acquire(ms(50_000)).expect("free");
    let table = &table;
    let (ask, asked) = std::sync::mpsc::channel::<std::sync::mpsc::Sender<()>>();
    let (release, released) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let released = Rc::new(released);
            for reading in asked {
                let released = released.clone();
                // Stays in the value until the owner has published twice.
                set(&ON_CLONE, move || {
                    reading.send(()).expect("the owner waits");
                    released.recv().expect("the owner goes on");
                });
                let _ = table.peek(&1);
            }
        });
        for round in 0..64 {
            let (reading, is_reading) = std::sync::mpsc::channel();
            ask.send(reading).expect("the reader waits");
            is_reading.recv().expect("the reader reads");
            for step in 0..2 {
                lease.set(Val::counted(2 * round + step, &alive));
                lease.checkpoint().expect("held");
            }
            release.send(()).expect("the reader waits");
        }
        drop(ask);
    });
    assert!(alive.load(Ordering::Relaxed) <= 4, "{} values", alive.load(Ordering::Relaxed));
    assert_eq!(*lease.number, 127);
    lease.commit().expect("held");
}

/// The end of the range of tokens leaks nothing and breaks nothing.
#[test]
fn a_floor_at_the_end_of_the_range_leaks_no_values() {
    let alive = Arc::new(AtomicI64::new(0));
    let clock = ManualClock::new();
    // Two grants before the tokens are used up.
    let last = FencingToken::from_bytes((u64::MAX - (1 << 23)).to_be_bytes()).expect("not zero");
    let builder = LeaseTable::<u8, Val>::builder().clock(clock.clone());
    let table: LeaseTable<u8, Val, _> = builder.floor(last).epoch_limit(1).build();
    drop(table.insert(1, Val::counted(0, &alive)).map_err(|_| ()).expect("new"));
    for _ in 0..3 {
        let late = table.try_acquire(&1, ms(5));
        clock.advance(ms(10));
        let _ = table.peek(&1);
        drop(late);
    }
    drop(table);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
}

/// Late guards of every kind, each told so, none of which touches what came after it.
#[test]
fn every_kind_of_late_guard_is_told() {
    let clock = ManualClock::new();
    let table: LeaseTable<u8, Val, _> = LeaseTable::with_clock(clock.clone());
    let mut expired = table.try_acquire(&1, ms(5)).expect("free");
    *expired.number = 1;
    clock.advance(ms(10));
    let mut revoked = table.try_acquire(&1, ms(50)).expect("expired");
    *revoked.number = 2;
    let _ = table.revoke(&1, revoked.token(), "test");
    let mut released = table.try_acquire(&1, ms(50)).expect("revoked");
    *released.number = 3;
    let _ = table.release(&1, released.token());
    let mut handed = table.try_acquire(&1, ms(50)).expect("released");
    *handed.number = 4;
    let handed = handed.transfer("nobody", ms(5)).expect("held");
    clock.advance(ms(10));
    let mut removed = table.try_acquire(&1, ms(50)).expect("not accepted");
    *removed.number = 5;
    let _ = table.revoke(&1, removed.token(), "test");
    table.remove(&1).expect("revoked");
    let mut now = table.try_acquire(&1, ms(50)).expect("made anew");
    *now.number = 6;
    for late in [expired, revoked, released, removed] {
        let token = late.token();
        assert!(token < now.token());
        let number = *late.number;
        let refused = late.commit().expect_err("late");
        assert!(matches!(refused.why(), Refusal::Lost(_)), "{:?}", refused.why());
        assert_eq!(refused.into_draft().map(|draft| *draft.number), Some(number));
    }
    let refused = handed.accept(ms(5)).expect_err("late");
    assert!(matches!(refused.why(), RenewError::Lost(Lost::Superseded { .. } | Lost::Expired)));
    now.commit().expect("held");
    assert_eq!(*table.peek(&1).expect("there").value.number, 6);
}

/// Durations at both ends.
#[test]
fn durations_at_the_ends_of_the_range() {
    let clock = ManualClock::new();
    let table: LeaseTable<u8, u64, _> = LeaseTable::with_clock(clock.clone());
    let longest = table.longest_ttl();
    for ttl in [Duration::MAX, longest + ms(2), Duration::from_secs(u64::MAX)] {
        assert!(matches!(table.try_acquire(&1, ttl), Err(AcquireError::TtlOutOfRange { .. })));
    }
    let lease = table.try_acquire(&1, longest).expect("in range");
    assert!(matches!(lease.renew(Duration::MAX), Err(RenewError::TtlOutOfRange { .. })));
    lease.renew(Duration::ZERO).expect("never shortens");
    assert!(lease.is_valid() && lease.remaining() >= longest);
    let refused = lease.transfer("x", Duration::MAX).expect_err("out of range");
    drop(refused);
    for ttl in [Duration::ZERO, Duration::from_nanos(1)] {
        clock.advance(ms(2));
        let lease = table.try_acquire(&1, ttl).expect("free");
        clock.advance(ms(1));
        assert!(!lease.is_valid());
        assert_eq!(lease.remaining(), Duration::ZERO);
    }
}

/// Two sessions want one key at once. The one that comes too late takes nothing from the other.
#[test]
fn a_session_that_comes_too_late_leaves_the_other_its_lease() {
    let clock = ManualClock::new();
    let table: LeaseTable<Key, u64, _> = LeaseTable::with_clock(clock.clone());
    let handle = table.handle(&Key(1)).expect("open");
    let first = Rc::new(table.session(ms(500)).expect("in range"));
    let second = table.session(ms(500)).expect("in range");
    let won = Rc::new(RefCell::new(None));
    let (inner, place) = (first.clone(), won.clone());
    let own = handle.clone();
    set(&ON_CLONE_KEY, move || {
        *place.borrow_mut() = Some(inner.try_acquire(&own).expect("free"));
    });
    let refused = second.try_acquire(&handle).expect_err("the other one was first");
    assert!(matches!(refused, AcquireError::Held { .. }), "{refused:?}");
    let lease = won.borrow_mut().take().expect("taken");
    assert!(lease.is_valid());
    clock.advance(ms(400));
    first.renew(ms(500)).expect("open");
    clock.advance(ms(400));
    assert!(lease.is_valid());
    lease.commit().expect("held");
}

/// However many stand in line and let go at once, there is no deep recursion.
#[test]
fn a_long_line_of_waiters_is_no_deep_recursion() {
    const LINE: u64 = 6_000;
    let table: LeaseTable<u8, u64> = LeaseTable::new();
    let handle = table.handle(&1).expect("open");
    let holder = handle.try_acquire_owned(ms(60_000)).expect("free");
    let served = Arc::new(AtomicU64::new(0));
    for waiter in 0..LINE {
        let acquiring = handle.acquire_async(ms(60_000));
        match waiter % 3 {
            // Served, and released inside the callback.
            0 => {
                let served = served.clone();
                acquiring.on_complete(move |lease| {
                    drop(lease);
                    served.fetch_add(1, Ordering::Relaxed);
                });
            }
            1 => drop(acquiring),
            _ => acquiring.detach(),
        }
    }
    drop(holder);
    assert_eq!(served.load(Ordering::Relaxed), LINE.div_ceil(3));
    assert_eq!(table.peek(&1).expect("there").state, LeaseState::Free);
}

/// Who waits when the table goes is told so.
#[test]
fn waiters_of_a_dropped_table_are_refused() {
    let table: LeaseTable<u8, u64> = LeaseTable::new();
    let handle = table.handle(&1).expect("open");
    let other = handle.clone();
    let holder = handle.try_acquire_owned(ms(60_000)).expect("free");
    let waiting = handle.acquire_async(ms(60_000));
    let blocked =
        std::thread::spawn(move || other.acquire_timeout(ms(60_000), Duration::MAX).err());
    let third = handle.acquire_async(ms(60_000));
    drop(table);
    assert_eq!(blocked.join().expect("no panic"), Some(AcquireError::Closed));
    for waiting in [waiting, third] {
        assert!(waiting.get().is_err());
    }
    assert!(!holder.is_valid());
}

/// A value that cannot be cloned when the key moves costs the waiter its lease, and nobody else.
#[test]
fn a_waiter_whose_grant_panics_is_told_and_the_next_one_served() {
    let clock = ManualClock::new();
    let table: LeaseTable<u8, Val, _> = LeaseTable::with_clock(clock);
    let handle = table.handle(&1).expect("open");
    let holder = handle.try_acquire_owned(ms(500)).expect("free");
    let first = handle.acquire_async(ms(500));
    let second = handle.acquire_async(ms(500));
    set(&ON_CLONE, || panic!("no clones today"));
    // Not clean, so the grant has to move the key.
    let _ = table.revoke(&1, holder.token(), "test");
    assert!(first.get().is_err());
    let lease = second.get().expect("served");
    assert!(lease.is_valid());
    lease.commit().expect("held");
    drop(holder);
}

/// A key's drop may call the table: also those of waiters, sessions and watchers.
#[test]
fn keys_of_waiters_drop_with_no_lock_held() {
    let clock = ManualClock::new();
    let table: LeaseTable<Key, u64, _> =
        LeaseTable::<Key, u64>::builder().clock(clock.clone()).shards(1).build();
    let table = Rc::new(table);
    let inner = Rc::downgrade(&table);
    let probe: Rc<dyn Fn()> = Rc::new(move || {
        if let Some(table) = inner.upgrade() {
            assert!(table.len() <= 2);
        }
    });
    ON_DROP_KEY.with(|hook| *hook.borrow_mut() = Some(probe));
    let handle = table.handle(&Key(1)).expect("open");
    let holder = handle.try_acquire_owned(LeaseRequest::new(ms(50)).owner("one")).expect("free");
    let lost = holder.lost();
    let line: Vec<_> = (0..40).map(|_| handle.acquire_async(ms(50))).collect();
    drop(line);
    let waiting = handle.acquire_async(ms(50));
    holder.commit().expect("held");
    let lease = waiting.get().expect("served");
    drop((lease, lost));
    let session = table.session(ms(50)).expect("in range");
    let kept = session.try_acquire(&handle).expect("free");
    let waiting = handle.acquire_async(ms(50));
    session.close();
    drop(kept);
    drop(waiting.get());
    table.remove(&Key(1)).expect("free");
    table.close();
    ON_DROP_KEY.with(|hook| hook.borrow_mut().take());
}
