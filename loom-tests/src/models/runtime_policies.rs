//! Gates and their lines, second attempts, deadlines, unique keys, policies that are replaced.
//!
//! At the end of a model of a gate the threads are joined and what is queued is run: then every job is
//! over, nobody waits, and every permit is back.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use tenure::runtime::JobHandle;
use tenure::runtime::model::{
    Asked, Door, End, Gatehouse, Job, OneKey, Places, Replaced, Seats, job,
};

/// Permits that are refused by a load, which may be out of date, as gates do.
struct Free(AtomicU32);

impl Seats for Free {
    fn take(&self) -> bool {
        let mut free = self.0.load(Ordering::Relaxed);
        while free > 0 {
            match self.0.compare_exchange(free, free - 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => free = now,
            }
        }
        false
    }

    fn put(&self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Counts its runs.
fn counted(house: &Gatehouse, behind: usize, runs: &Arc<AtomicU32>) -> (Job, JobHandle<()>) {
    let runs = Arc::clone(runs);
    house.job(behind, move |_| {
        runs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    })
}

/// What attempts do inside the closure.
struct Inside(UnsafeCell<u32>);
// SAFETY: only for models: loom reports an access that races.
unsafe impl Sync for Inside {}
// SAFETY: as above.
unsafe impl Send for Inside {}

struct Scene {
    house: Arc<Gatehouse>,
    runs: Arc<AtomicU32>,
    free: Vec<std::sync::Arc<Free>>,
    permits: u32,
}

impl Scene {
    /// One gate.
    fn new(permits: u32, most_granted: usize) -> Self {
        Self::with_gates(1, permits, most_granted)
    }

    /// Several, each with so many permits.
    fn with_gates(gates: usize, permits: u32, most_granted: usize) -> Self {
        let free = || std::sync::Arc::new(Free(AtomicU32::new(permits)));
        let free: Vec<_> = (0..gates).map(|_| free()).collect();
        let seats =
            free.iter().map(|free| std::sync::Arc::clone(free) as std::sync::Arc<dyn Seats>);
        let house = Arc::new(Gatehouse::new(seats, most_granted));
        Self { house, runs: Arc::new(AtomicU32::new(0)), free, permits }
    }

    /// A job behind all gates.
    fn job(&self) -> (Job, JobHandle<()>) {
        counted(&self.house, self.free.len(), &self.runs)
    }

    /// One that waits in a line, because all permits of the first gate are out.
    fn waiting(&self) -> (Job, JobHandle<()>) {
        self.waiting_behind(self.free.len())
    }

    /// The same for one that stands behind the first so many gates.
    fn waiting_behind(&self, gates: usize) -> (Job, JobHandle<()>) {
        let (job, handle) = counted(&self.house, gates, &self.runs);
        assert_eq!(self.house.take(&job), End::Nothing);
        (job, handle)
    }

    fn spawn<R: 'static>(
        &self,
        f: impl FnOnce(&Gatehouse) -> R + 'static,
    ) -> thread::JoinHandle<R> {
        let house = Arc::clone(&self.house);
        thread::spawn(move || f(&house))
    }

    /// Everybody is done: so many jobs have run.
    fn over(&self, jobs: &[&Job], runs: u32) {
        self.house.run_all();
        for job in jobs {
            assert!(job.is_over(), "forgotten at the gate");
        }
        assert!(self.house.is_at_rest(), "somebody waits");
        for free in &self.free {
            let free = free.0.load(Ordering::Relaxed);
            assert_eq!(free, self.permits, "a permit is missing, or one too many");
        }
        assert_eq!(self.runs.load(Ordering::Relaxed), runs);
    }
}

models! { "runtime_policies";
    /// A job is refused and lines up while the permit comes back.
    enter_x_return [bound: 4] {
        let scene = Scene::new(1, 1);
        let out = scene.house.borrow(0).expect("the only one");
        let (job, _handle) = scene.job();
        let taken = job.clone();
        let worker = scene.spawn(move |house| house.take(&taken));
        let giver = thread::spawn(move || out.give_back());
        worker.join().unwrap();
        giver.join().unwrap();
        scene.over(&[&job], 1);
    }
    /// The same, while somebody cancels it: no entry is left, and no permit is lost.
    enter_x_return_x_cancel [bound: 2] {
        let scene = Scene::new(1, 1);
        let out = scene.house.borrow(0).expect("the only one");
        let (job, _handle) = scene.job();
        let (taken, other) = (job.clone(), job.clone());
        let worker = scene.spawn(move |house| house.take(&taken));
        let giver = thread::spawn(move || out.give_back());
        let canceller = thread::spawn(move || other.give_up(false));
        worker.join().unwrap();
        giver.join().unwrap();
        let cancelled = canceller.join().unwrap() == End::Cancelled;
        scene.over(&[&job], u32::from(!cancelled));
    }
    /// A permit comes back for a job that is being cancelled in the line.
    return_x_cancel [bound: 4] {
        let scene = Scene::new(1, 1);
        let out = scene.house.borrow(0).expect("the only one");
        let (job, _handle) = scene.waiting();
        let other = job.clone();
        let giver = thread::spawn(move || out.give_back());
        let canceller = thread::spawn(move || other.give_up(false));
        giver.join().unwrap();
        let cancelled = canceller.join().unwrap() == End::Cancelled;
        scene.over(&[&job], u32::from(!cancelled));
    }
    /// The end comes while a job lines up.
    enter_x_shutdown [bound: 4] {
        let scene = Scene::new(0, 1);
        let (job, _handle) = scene.job();
        let taken = job.clone();
        let worker = scene.spawn(move |house| house.take(&taken));
        let closer = scene.spawn(Gatehouse::close);
        worker.join().unwrap();
        closer.join().unwrap();
        if !job.is_over() {
            // Its entry was in the worker's hand, and Ready: the worker has put it nowhere.
            panic!("nobody swept it");
        }
        scene.over(&[&job], 0);
    }
    /// The end comes while a permit lets a job go on.
    return_x_shutdown [bound: 3] {
        let scene = Scene::new(1, 1);
        let out = scene.house.borrow(0).expect("the only one");
        let (job, _handle) = scene.waiting();
        let giver = thread::spawn(move || out.give_back());
        let closer = scene.spawn(Gatehouse::close);
        giver.join().unwrap();
        closer.join().unwrap();
        assert!(job.is_over(), "nobody swept it");
        scene.over(&[&job], 0);
    }
    /// Two permits come back for two who wait: both go on, though the pumps meet.
    return_x_return [bound: 2] {
        let scene = Scene::new(2, 2);
        let outs = [(); 2].map(|()| scene.house.borrow(0).expect("there are two"));
        let [(one, _one), (other, _other)] = [(); 2].map(|()| scene.waiting());
        let givers = outs.map(|out| thread::spawn(move || out.give_back()));
        for giver in givers {
            giver.join().unwrap();
        }
        scene.over(&[&one, &other], 2);
    }
    /// A timer of the line and a permit that comes back: the job goes on, once.
    tick_x_return [bound: 3] {
        let scene = Scene::new(1, 1);
        let out = scene.house.borrow(0).expect("the only one");
        let (job, _handle) = scene.waiting();
        let driver = scene.spawn(Gatehouse::tick);
        let giver = thread::spawn(move || out.give_back());
        driver.join().unwrap();
        giver.join().unwrap();
        scene.over(&[&job], 1);
    }
    /// One that was let through begins while a second permit comes back: the second in line, for whom
    /// there was no room, goes on.
    begin_x_return [bound: 2] {
        let scene = Scene::new(2, 1);
        let [one, other] = [(); 2].map(|()| scene.house.borrow(0).expect("there are two"));
        let [(first, _first), (second, _second)] = [(); 2].map(|()| scene.waiting());
        one.give_back();
        let worker = scene.spawn(Gatehouse::run_all);
        let giver = thread::spawn(move || other.give_back());
        worker.join().unwrap();
        giver.join().unwrap();
        scene.over(&[&first, &second], 2);
        // The next time they are refused they are the last to come.
        assert!(!scene.house.has_ticket(&first) && !scene.house.has_ticket(&second));
    }
    /// Two gates, and a permit of each comes back. Whoever leaves the first line for the second gives the first
    /// one's permit back inside that pump; the two lines pump each other.
    line_to_line_x_return [bound: 3] {
        let scene = Scene::with_gates(2, 1, 1);
        let outs = [0, 1].map(|gate| scene.house.borrow(gate).expect("the only one"));
        let (job, _handle) = scene.waiting();
        let givers = outs.map(|out| thread::spawn(move || out.give_back()));
        for giver in givers {
            giver.join().unwrap();
        }
        scene.over(&[&job], 1);
    }
    /// The same with another one behind, who stands at the first gate only: nobody is forgotten in either
    /// line, and the pumps come to an end.
    line_to_line_x_return_with_two [bound: 2] {
        let scene = Scene::with_gates(2, 1, 2);
        let outs = [0, 1].map(|gate| scene.house.borrow(gate).expect("the only one"));
        let (both, _both) = scene.waiting();
        let (one, _one) = scene.waiting_behind(1);
        let givers = outs.map(|out| thread::spawn(move || out.give_back()));
        for giver in givers {
            giver.join().unwrap();
        }
        scene.over(&[&both, &one], 2);
    }
    /// Two who leave the first line for the second while that one's permit comes back.
    two_leave_a_line_x_return [bound: 2] {
        let scene = Scene::with_gates(2, 1, 1);
        let [first, second] = [0, 1].map(|gate| scene.house.borrow(gate).expect("the only one"));
        let [(one, _one), (other, _other)] = [(); 2].map(|()| scene.waiting());
        let givers = [first, second].map(|out| thread::spawn(move || out.give_back()));
        for giver in givers {
            giver.join().unwrap();
        }
        scene.over(&[&one, &other], 2);
    }
    /// A job leaves one line for the other while somebody cancels it.
    line_to_line_x_cancel [bound: 3] {
        let scene = Scene::with_gates(2, 1, 1);
        let [first, second] = [0, 1].map(|gate| scene.house.borrow(gate).expect("the only one"));
        let (job, _handle) = scene.waiting();
        let other = job.clone();
        let giver = thread::spawn(move || first.give_back());
        let canceller = thread::spawn(move || other.give_up(false));
        giver.join().unwrap();
        assert_eq!(canceller.join().unwrap(), End::Cancelled);
        second.give_back();
        scene.over(&[&job], 0);
    }
    /// The same while the end comes.
    line_to_line_x_shutdown [bound: 2] {
        let scene = Scene::with_gates(2, 1, 1);
        let [first, second] = [0, 1].map(|gate| scene.house.borrow(gate).expect("the only one"));
        let (job, _handle) = scene.waiting();
        let giver = thread::spawn(move || first.give_back());
        let closer = scene.spawn(Gatehouse::close);
        giver.join().unwrap();
        closer.join().unwrap();
        assert!(job.is_over(), "nobody swept it");
        second.give_back();
        scene.over(&[&job], 0);
    }
    /// An attempt ends while it is given up: its permit goes back once.
    settle_x_rescue [bound: 4] {
        let scene = Scene::new(1, 1);
        let (job, _handle) = scene.job();
        let begun = scene.house.enter(&job).expect("there is a permit");
        let (worker, driver) = (job.clone(), job.clone());
        let worker = thread::spawn(move || worker.go_on(begun, 1));
        let driver = scene.spawn(move |house| house.rescue(&driver, 1));
        let ends = [worker.join().unwrap(), driver.join().unwrap()];
        assert_eq!(ends.iter().filter(|end| **end != End::Nothing).count(), 1, "{ends:?}");
        scene.over(&[&job], 1);
    }
    /// Two workers have an entry of one job, and one permit.
    enter_x_enter [bound: 3] {
        let scene = Scene::new(1, 1);
        let (job, _handle) = scene.job();
        let workers = [job.clone(), job.clone()]
            .map(|job| scene.spawn(move |house| house.take(&job)));
        for worker in workers {
            worker.join().unwrap();
        }
        scene.over(&[&job], 1);
    }
    /// Two attempts with one epoch end: one wins, the closure goes once.
    finish_x_finish_hedged [bound: 4] {
        let (job, mut handle) = job(true, |ctx| Ok::<_, &str>(ctx.is_hedge()));
        let first = job.begin().expect("Ready");
        let second = job.begin_beside(first.epoch).expect("it runs");
        let threads = [first, second].map(|begun| {
            let job = job.clone();
            thread::spawn(move || job.go_on(begun, 1))
        });
        let ends = threads.map(|thread| thread.join().unwrap());
        assert_eq!(ends.iter().filter(|end| **end == End::Succeeded).count(), 1, "{ends:?}");
        let won = handle.try_get().expect("over").expect("a value");
        assert_eq!(ends[usize::from(won)], End::Succeeded);
    }
    /// A second attempt begins while the first one ends and somebody cancels.
    hedge_x_finish_x_cancel [bound: 3] {
        let (job, mut handle) = job(true, |ctx| if ctx.is_hedge() { Ok(1) } else { Err("no") });
        let first = job.begin().expect("Ready");
        let (one, other, canceller) = (job.clone(), job.clone(), job.clone());
        let one = thread::spawn(move || one.go_on(first, 1));
        let other = thread::spawn(move || {
            other.begin_beside(1).map_or(End::Nothing, |begun| other.go_on(begun, 1))
        });
        let canceller = thread::spawn(move || canceller.cancel(false));
        let ends = [one.join().unwrap(), other.join().unwrap()];
        canceller.join().unwrap();
        let over = |end: &&End| matches!(end, End::Succeeded | End::Dead | End::Cancelled);
        assert_eq!(ends.iter().filter(over).count(), 1, "{ends:?}");
        let result = handle.try_get().expect("over");
        assert_eq!(result.is_ok(), ends[1] == End::Succeeded);
    }
    /// A second attempt begins beside a retry: it sees what the attempt before did inside.
    hedge_x_retry [bound: 3] {
        let done = Arc::new(Inside(UnsafeCell::new(0)));
        let (job, mut handle) = job(true, move |ctx| {
            if ctx.attempt() < 2 {
                // SAFETY: loom checks the access.
                done.0.with_mut(|n| unsafe { *n = 1 });
                return Err("no");
            }
            // SAFETY: as above.
            assert_eq!(done.0.with(|n| unsafe { *n }), 1);
            Ok(())
        });
        let (one, other) = (job.clone(), job.clone());
        let one = thread::spawn(move || one.drive(2));
        let other = thread::spawn(move || {
            other.begin_beside(2).map_or(End::Nothing, |begun| other.go_on(begun, 2))
        });
        let ends = [one.join().unwrap(), other.join().unwrap()];
        assert_eq!(ends.iter().filter(|end| **end == End::Succeeded).count(), 1, "{ends:?}");
        assert!(handle.try_get().expect("over").is_ok());
    }
    /// Both attempts are given up while the second one ends.
    finish_x_rescue_hedged [bound: 3] {
        let (job, mut handle) = job(true, |_| Ok::<_, &str>(()));
        let first = job.begin().expect("Ready");
        let second = job.begin_beside(first.epoch).expect("it runs");
        let (late, other, driver) = (job.clone(), job.clone(), job.clone());
        let other = thread::spawn(move || other.go_on(second, 1));
        let driver = thread::spawn(move || driver.rescue(1, 1, true));
        let ends = [other.join().unwrap(), driver.join().unwrap()];
        assert_eq!(ends.iter().filter(|end| **end != End::Nothing).count(), 1, "{ends:?}");
        assert!(handle.try_get().is_some());
        assert_eq!(late.go_on(first, 1), End::Nothing);
    }
    /// A second attempt is asked for, once for one epoch.
    ask_x_take {
        let asked = Arc::new(Asked::default());
        asked.ask(1);
        let takers = [(); 2].map(|()| {
            let asked = Arc::clone(&asked);
            thread::spawn(move || asked.take(1))
        });
        let taken = takers.map(|taker| taker.join().unwrap());
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
        assert!(!asked.take(0));
    }
    /// The entry for a second attempt finds that it was asked for.
    ask_x_push_x_take {
        let shared = Arc::new((Asked::default(), Door::<()>::default()));
        let (driver, worker) = (Arc::clone(&shared), Arc::clone(&shared));
        let driver = thread::spawn(move || {
            driver.0.ask(1);
            driver.1.push((), 1);
        });
        let worker = thread::spawn(move || !worker.1.sweep().is_empty() && worker.0.take(1));
        driver.join().unwrap();
        let taken = worker.join().unwrap();
        assert_eq!(!shared.1.sweep().is_empty() && shared.0.take(1), !taken);
    }
    /// The deadline comes while an attempt begins.
    expire_x_start {
        let (job, mut handle) = job(true, |_| Ok::<_, &str>(()));
        let (worker, driver) = (job.clone(), job.clone());
        let worker = thread::spawn(move || worker.drive(1));
        let driver = thread::spawn(move || driver.expire());
        let ran = worker.join().unwrap() == End::Succeeded;
        assert_eq!(driver.join().unwrap(), !ran);
        assert_eq!(handle.try_get().expect("over").is_ok(), ran);
    }
    /// The deadline comes while an attempt fails, and the job would be tried again.
    expire_x_fail [bound: 4] {
        let (job, mut handle) = job(true, |ctx| if ctx.attempt() < 2 { Err("no") } else { Ok(()) });
        let (worker, driver) = (job.clone(), job.clone());
        let worker = thread::spawn(move || worker.drive(2));
        let driver = thread::spawn(move || driver.expire());
        let ran = worker.join().unwrap() == End::Succeeded;
        assert_eq!(driver.join().unwrap(), !ran);
        assert_eq!(handle.try_get().expect("over").is_ok(), ran);
    }
    /// The deadline comes while somebody cancels, and the handle goes.
    expire_x_cancel_x_drop [bound: 3] {
        let (job, handle) = job(false, |_| Ok::<_, &str>(()));
        let (canceller, driver) = (job.clone(), job.clone());
        let canceller = thread::spawn(move || canceller.cancel(false) == End::Cancelled);
        let driver = thread::spawn(move || driver.expire());
        let dropper = thread::spawn(move || drop(handle));
        assert!(canceller.join().unwrap() != driver.join().unwrap());
        dropper.join().unwrap();
    }
    /// A job with a unique key ends while another one comes.
    unique_x_end [bound: 4] {
        let key = Arc::new(OneKey::default());
        let (job, _handle) = key.submit().expect("free");
        let (ender, comer) = (Arc::clone(&key), Arc::clone(&key));
        let first = job.clone();
        let ender = thread::spawn(move || ender.end(&first));
        let comer = thread::spawn(move || comer.submit());
        assert_eq!(ender.join().unwrap(), End::Succeeded);
        let second = comer.join().unwrap();
        assert_eq!(key.is_taken(), second.is_some(), "the key of a live job was taken off");
        if let Some((job, _handle)) = second {
            key.end(&job);
        }
        assert!(!key.is_taken());
    }
    /// Two jobs with one unique key come at once.
    unique_x_unique {
        let key = Arc::new(OneKey::default());
        let comers = [(); 2].map(|()| {
            let key = Arc::clone(&key);
            thread::spawn(move || key.submit())
        });
        let taken = comers.map(|comer| comer.join().unwrap());
        assert_eq!(taken.iter().flatten().count(), 1);
        for (job, _handle) in taken.iter().flatten() {
            key.end(job);
        }
    }
    /// Policies are replaced while they are asked.
    replace_x_ask {
        let policies = Arc::new(Replaced::default());
        let (owner, asker) = (Arc::clone(&policies), Arc::clone(&policies));
        let owner = thread::spawn(move || owner.set(2, 1));
        let asker = thread::spawn(move || {
            asker.deposit();
            (asker.seconds(), asker.withdraw())
        });
        owner.join().unwrap();
        let (seconds, drawn) = asker.join().unwrap();
        assert!((1..=2).contains(&seconds) && drawn);
        assert_eq!(policies.seconds(), 2);
        policies.deposit();
        assert!(policies.withdraw());
        // One to begin with, and two deposits at most.
        assert!((0..3).any(|_| !policies.withdraw()), "there is a budget");
    }
    /// The limit is raised while somebody begins to wait for a place.
    resize_x_take {
        let places = Arc::new(Places::new(1));
        assert!(places.take());
        let (owner, waiter) = (Arc::clone(&places), Arc::clone(&places));
        let owner = thread::spawn(move || assert!(owner.resize(2)));
        let waiter = thread::spawn(move || assert!(waiter.take_when_there_is_one(|| false)));
        owner.join().unwrap();
        waiter.join().unwrap();
        assert!(!places.take());
    }
}
