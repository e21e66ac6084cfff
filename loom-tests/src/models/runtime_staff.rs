//! The workers' list: who is counted, who steps down, who stands in, what lies in a slot.
//!
//! A worker is a member of the list without its thread. The list is kept to the end by the model, so
//! that its `std` `Arc`s, which loom does not see, order nothing.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use tenure::runtime::model::{Door, End, Hand, Job, Snapshot, Staff, job};

/// A pool of so many workers, of which `hands` are there.
fn staff(workers: usize, hands: usize) -> (Arc<Staff>, Vec<Hand>) {
    let staff = Arc::new(Staff::new(workers));
    let hands = (0..hands).map(|_| staff.hire()).collect();
    (staff, hands)
}

fn spawn<R: 'static>(
    staff: &Arc<Staff>,
    hand: Option<&Hand>,
    f: impl FnOnce(&Staff, &Hand) -> R + 'static,
) -> thread::JoinHandle<R> {
    let (staff, hand) = (Arc::clone(staff), hand.cloned());
    thread::spawn(move || {
        let hand = hand.unwrap_or_else(|| staff.hire());
        f(&staff, &hand)
    })
}

/// A job whose closure owns what the submitter wrote; whoever runs it reads that.
fn written() -> Job {
    let cell = UnsafeCell::new(0_u32);
    // SAFETY: ours alone.
    cell.with_mut(|c| unsafe { *c = 7 });
    let read = Reads(cell);
    let (job, handle) = job(true, move |_| {
        read.see();
        Ok(())
    });
    drop(handle);
    job
}

struct Reads(UnsafeCell<u32>);

// SAFETY: loom checks the order of its accesses.
unsafe impl Sync for Reads {}
// SAFETY: as above.
unsafe impl Send for Reads {}

impl Reads {
    fn see(&self) {
        // SAFETY: loom checks that the write came before.
        assert_eq!(self.0.with(|c| unsafe { *c }), 7);
    }
}

models! { "runtime_staff";
    /// A job in its owner's slot is taken by the owner or by another, as it was written.
    put_x_take_x_take {
        let (staff, hands) = staff(2, 1);
        let owner = spawn(&staff, Some(&hands[0]), |_, hand| {
            assert!(hand.put(written()).is_none());
            let second = hand.put(written());
            let runs = second.into_iter().chain(hand.take());
            runs.map(|job| job.drive(1)).count()
        });
        let thief = spawn(&staff, Some(&hands[0]), |_, hand| {
            hand.take().into_iter().map(|job| job.drive(1)).count()
        });
        assert_eq!(owner.join().unwrap() + thief.join().unwrap(), 2);
    }
    /// A worker that joins and leaves a job in its slot is not missed by one that goes to sleep.
    join_x_sleep [bound: 3, std_arc] {
        let (staff, _none) = staff(2, 0);
        let sleeper = Arc::clone(&staff);
        let sleeper = thread::spawn(move || {
            let mut snapshot = Snapshot::default();
            sleeper.pool.begin_search();
            let job = loop {
                sleeper.refresh(&mut snapshot);
                if let Some(job) = snapshot.take() {
                    break job;
                }
                sleeper.pool.sleep(|| {
                    sleeper.refresh(&mut snapshot);
                    snapshot.has_work()
                });
            };
            sleeper.pool.end_search(|| false);
            job.drive(1);
        });
        let joiner = spawn(&staff, None, |staff, hand| {
            assert!(hand.put(written()).is_none());
            staff.pool.notify();
        });
        joiner.join().unwrap();
        sleeper.join().unwrap();
        assert!(staff.pool.is_clear());
    }
    /// A worker leaves while another looks at the list: what it has is seen there, or is elsewhere by
    /// then, and the list without it is seen at the next look.
    part_x_refresh [bound: 3, std_arc] {
        let (staff, hands) = staff(2, 2);
        let leaver = spawn(&staff, Some(&hands[0]), |staff, hand| {
            assert!(staff.part(hand));
        });
        let looker = Arc::clone(&staff);
        let looker = thread::spawn(move || {
            let mut snapshot = Snapshot::default();
            looker.refresh(&mut snapshot);
            snapshot.has_work();
            snapshot
        });
        leaver.join().unwrap();
        let mut snapshot = looker.join().unwrap();
        staff.refresh(&mut snapshot);
        assert!(hands[0].put(written()).is_none());
        assert!(!snapshot.has_work(), "one who left is looked at no more");
        assert_eq!(hands[0].take().map(|job| job.drive(1)), Some(End::Succeeded));
    }
    /// Two workers join at once: two numbers, two members.
    join_x_join [bound: 3, std_arc] {
        let (staff, _none) = staff(2, 0);
        let a = spawn(&staff, None, |_, hand| hand.index());
        let b = spawn(&staff, None, |_, hand| hand.index());
        assert_ne!(a.join().unwrap(), b.join().unwrap());
        assert_eq!(staff.active(), 2);
    }
    /// A worker leaves while the end is awaited: who sees nobody left sees all that was done.
    part_x_close [std_arc] {
        let (staff, hands) = staff(1, 1);
        let done = std::sync::Arc::new(Reads(UnsafeCell::new(0)));
        let seen = done.clone();
        let worker = spawn(&staff, Some(&hands[0]), move |staff, hand| {
            // SAFETY: nobody reads while we are counted; loom checks that.
            done.0.with_mut(|c| unsafe { *c = 7 });
            assert!(staff.part(hand));
        });
        let closer = Arc::clone(&staff);
        let closer = thread::spawn(move || {
            if closer.active() == 0 {
                seen.see();
            }
        });
        worker.join().unwrap();
        closer.join().unwrap();
        assert_eq!(staff.active(), 0);
    }
    /// The last worker leaves, in a shutdown, while the driver goes to sleep.
    part_x_driver [std_arc] {
        let (staff, hands) = staff(1, 1);
        let door = Arc::new(Door::<u32>::default());
        let (theirs, list) = (Arc::clone(&door), Arc::clone(&staff));
        let worker = spawn(&staff, Some(&hands[0]), move |staff, hand| {
            assert!(staff.part(hand));
            door.ring();
        });
        let driver = thread::spawn(move || {
            loop {
                drop(theirs.take());
                if list.active() == 0 {
                    return;
                }
                theirs.sleep(u64::MAX, || false);
            }
        });
        worker.join().unwrap();
        driver.join().unwrap();
    }
    /// The same for one that steps down.
    step_down_x_close [std_arc] {
        let (staff, hands) = staff(0, 1);
        let done = std::sync::Arc::new(Reads(UnsafeCell::new(0)));
        let seen = done.clone();
        let worker = spawn(&staff, Some(&hands[0]), move |staff, hand| {
            // SAFETY: nobody reads while we are counted; loom checks that.
            done.0.with_mut(|c| unsafe { *c = 7 });
            assert!(staff.step_down(hand));
            assert!(!staff.part(hand), "it is counted out");
        });
        let closer = Arc::clone(&staff);
        let closer = thread::spawn(move || {
            if closer.active() == 0 {
                seen.see();
            }
        });
        worker.join().unwrap();
        closer.join().unwrap();
        assert_eq!(staff.active(), 0);
    }
    /// A worker leaves while it is called stuck: it is counted out once.
    part_x_retire [std_arc] {
        let (staff, hands) = staff(1, 1);
        let worker = spawn(&staff, Some(&hands[0]), |staff, hand| staff.part(hand));
        let driver = spawn(&staff, Some(&hands[0]), |staff, hand| staff.retire(hand, true));
        assert!(worker.join().unwrap() != driver.join().unwrap());
        assert_eq!(staff.active(), 0);
    }
    /// A stuck worker whose place nobody took comes back while it is called stuck.
    come_back_x_retire [std_arc] {
        let (staff, hands) = staff(1, 1);
        let driver = spawn(&staff, Some(&hands[0]), |staff, hand| {
            assert!(staff.retire(hand, false));
        });
        let worker = spawn(&staff, Some(&hands[0]), |staff, hand| {
            assert!(staff.come_back(hand), "nobody took its place");
        });
        driver.join().unwrap();
        worker.join().unwrap();
        assert!(staff.come_back(&hands[0]));
        assert_eq!(staff.active(), 1);
        assert!(staff.retire(&hands[0], true));
        assert!(!staff.come_back(&hands[0]), "another is in its place");
        assert_eq!(staff.active(), 0);
    }
    /// A worker that came back just before it was called stuck goes to sleep: it is told, and leaves.
    retire_x_sleep [bound: 3, std_arc] {
        let (staff, hands) = staff(1, 1);
        let worker = spawn(&staff, Some(&hands[0]), |staff, hand| {
            staff.pool.begin_search();
            while !hand.is_stuck() {
                staff.pool.sleep(|| hand.is_stuck());
            }
            staff.pool.end_search(|| false);
            assert!(!staff.part(hand), "it is counted out");
        });
        let driver = spawn(&staff, Some(&hands[0]), |staff, hand| {
            assert!(staff.retire(hand, true));
            staff.pool.notify_all();
        });
        worker.join().unwrap();
        driver.join().unwrap();
        assert_eq!(staff.active(), 0);
    }
    /// A worker that waits for the shutdown inside a job is called stuck: it is counted out once.
    exempt_x_retire [std_arc] {
        let (staff, hands) = staff(1, 1);
        let worker = spawn(&staff, Some(&hands[0]), |staff, hand| staff.exempt(hand));
        let driver = spawn(&staff, Some(&hands[0]), |staff, hand| staff.retire(hand, true));
        worker.join().unwrap();
        driver.join().unwrap();
        assert_eq!(staff.active(), 0);
    }
    /// A stand-in leaves while a worker blocks that counts on it: it stays, or another is brought.
    step_down_x_hold [std_arc] {
        let (staff, hands) = staff(1, 2);
        let worker = spawn(&staff, Some(&hands[0]), |staff, _| staff.hold(false).short);
        let stand_in = spawn(&staff, Some(&hands[1]), |staff, hand| staff.step_down(hand));
        let (short, gone) = (worker.join().unwrap(), stand_in.join().unwrap());
        assert!(short || !gone, "the pool is a worker short, and nobody knows");
        assert_eq!(staff.active(), if gone { 1 } else { 2 });
    }
    /// Two stand-ins, of which one is too many, look at the same time: one leaves.
    step_down_x_step_down [std_arc] {
        let (staff, hands) = staff(1, 2);
        let leaves = |hand| spawn(&staff, Some(hand), |staff: &Staff, hand: &Hand| staff.step_down(hand));
        let (a, b) = (leaves(&hands[0]), leaves(&hands[1]));
        assert!(a.join().unwrap() != b.join().unwrap());
        assert_eq!(staff.active(), 1);
    }
    /// A surplus worker steps down while the driver calls it stuck: it is counted out once.
    step_down_x_retire [std_arc] {
        let (staff, hands) = staff(0, 2);
        let worker = spawn(&staff, Some(&hands[0]), |staff, hand| staff.step_down(hand));
        let driver = spawn(&staff, Some(&hands[0]), |staff, hand| staff.retire(hand, true));
        assert!(worker.join().unwrap() != driver.join().unwrap());
        assert_eq!(staff.active(), 1);
    }
    /// All workers come to wait for jobs at once, and none can stand in: one of them finds out.
    hold_x_hold [std_arc] {
        let (staff, hands) = staff(2, 2);
        let waits = |hand| spawn(&staff, Some(hand), |staff: &Staff, _: &Hand| staff.hold(true));
        let (a, b) = (waits(&hands[0]), waits(&hands[1]));
        let (a, b) = (a.join().unwrap(), b.join().unwrap());
        assert!(a.stuck != b.stuck, "the last one sees both");
        assert!(a.short && b.short);
        staff.let_go(true);
        assert!(staff.hold(true).stuck);
        staff.let_go(true);
        staff.let_go(true);
        assert!(!staff.hold(true).stuck);
    }
    /// A worker goes on while the stand-in goes to sleep: the stand-in is told, and leaves.
    let_go_x_sleep [bound: 3, std_arc] {
        let (staff, hands) = staff(1, 2);
        assert!(!staff.hold(false).short);
        let worker = spawn(&staff, Some(&hands[0]), |staff, _| staff.let_go(false));
        let stand_in = spawn(&staff, Some(&hands[1]), |staff, hand| {
            staff.pool.begin_search();
            while !staff.step_down(hand) {
                staff.pool.sleep(|| staff.is_surplus());
            }
            staff.pool.end_search(|| false);
        });
        worker.join().unwrap();
        stand_in.join().unwrap();
        assert_eq!(staff.active(), 1);
    }
    /// An attempt inside an attempt begins, with an earlier deadline, while the driver goes to sleep.
    sit_nested_x_driver [bound: 3, std_arc] {
        let (staff, hands) = staff(1, 1);
        let door = Arc::new(Door::<u32>::default());
        let (theirs, mine) = (Arc::clone(&door), hands[0].clone());
        let driver = thread::spawn(move || {
            loop {
                drop(theirs.take());
                if mine.earliest() == Some(10) {
                    return;
                }
                theirs.sleep(u64::MAX, || mine.earliest().is_some());
            }
        });
        let inner = written();
        let sitter = spawn(&staff, Some(&hands[0]), move |_, hand| {
            let seat = hand.sit_nested(&inner, 1, 10);
            door.ring_for(10);
            (seat, inner)
        });
        driver.join().unwrap();
        // It sat all the time, so that the driver had to see it.
        let (seat, inner) = sitter.join().unwrap();
        inner.drive(1);
        seat.stand(inner);
    }
    /// A worker that has counted leaves while somebody sums: nothing is missed or doubled.
    part_x_sum [bound: 3, std_arc] {
        let (staff, hands) = staff(1, 1);
        staff.submit();
        staff.end(Some(&hands[0]));
        staff.submit();
        staff.end(None);
        let leaver = spawn(&staff, Some(&hands[0]), |staff, hand| staff.part(hand));
        let reader = Arc::clone(&staff);
        let reader = thread::spawn(move || reader.sums());
        assert!(leaver.join().unwrap());
        assert_eq!(reader.join().unwrap(), (2, 2));
        assert_eq!(staff.sums(), (2, 2));
    }
    /// Jobs come and end while somebody asks whether there are any left: who has counted an end has
    /// counted its beginning.
    end_x_sum [bound: 2, std_arc] {
        let (staff, hands) = staff(2, 1);
        let first = staff.submit();
        let busy = spawn(&staff, Some(&hands[0]), move |staff, hand| {
            let second = staff.submit();
            assert_ne!(first, second);
            staff.end(Some(hand));
        });
        let other = Arc::clone(&staff);
        let other = thread::spawn(move || {
            other.submit();
            other.end(None);
        });
        let reader = Arc::clone(&staff);
        let reader = thread::spawn(move || reader.sums());
        busy.join().unwrap();
        other.join().unwrap();
        let (ended, submitted) = reader.join().unwrap();
        assert!(ended < submitted, "the first one has not ended");
        assert_eq!(staff.sums(), (2, 3));
    }
}
