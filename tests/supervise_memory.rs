//! What is left of those who come and go: nothing. Bytes are counted, of the whole process, so these run one
//! after another.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure::Runtime;
use tenure::supervise::{
    self, Actor, ActorRef, Address, ChildSpec, Ctx, Handled, Registry, Restart, Shutdown, Strategy,
    Supervisor, TryTellError,
};

struct Counting;

static BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system's allocator; the counter touches no memory of theirs.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// For a whole test, so that no other one's runtime counts.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that may be left over, of caches that have filled: far less than one for each who came and went.
const SLACK: isize = 64 * 1024;

/// Runs `batches` of what `batch` does, after some to warm up, and says by how much the memory has grown.
fn growth(batches: usize, mut batch: impl FnMut()) -> isize {
    for _ in 0..batches / 20 {
        batch();
    }
    let before = BYTES.load(Ordering::Relaxed);
    for _ in 0..batches {
        batch();
    }
    BYTES.load(Ordering::Relaxed) - before
}

struct Guest;

enum Message {
    Go,
    Watch(ActorRef<()>, std::sync::mpsc::Sender<()>),
    Gone,
}

impl Actor for Guest {
    type Message = Message;

    fn handle(&mut self, message: Message, ctx: &mut Ctx<Message>) -> Handled {
        match message {
            Message::Go => ctx.stop(),
            Message::Watch(other, done) => {
                ctx.watch(&other, |_| Message::Gone);
                let _ = done.send(());
            }
            Message::Gone => {}
        }
        Ok(())
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} does not come");
        std::thread::yield_now();
    }
}

/// Half of them go by themselves, half are removed; a batch has 20.
#[test]
fn a_hundred_thousand_children_come_to_an_address_and_go() {
    let _alone = alone();
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let tree = Supervisor::builder("inn").strategy(Strategy::Dynamic).start(&runtime).unwrap();
    let address = Address::new();
    let mut guests = 0_u64;
    let grown = growth(5_000, || {
        let names: Vec<_> = (guests..guests + 20).map(|guest| guest.to_string()).collect();
        guests += 20;
        let come = |name: &String| {
            let child = ChildSpec::actor(name.as_str(), || Guest).at(&address).capacity(1);
            // Without a limit to the stop, which would be a timer: of those that were cancelled some
            // thousands lie until the timers' thread clears up, and are not what is counted here.
            tree.add(child.restart(Restart::Temporary).shutdown(Shutdown::Infinity))
        };
        let up: Vec<_> = names.iter().map(come).collect();
        for up in up {
            up.get().unwrap();
        }
        let members = address.members();
        assert_eq!(members.len(), 20);
        let removed: Vec<_> = names.iter().step_by(2).map(|name| tree.remove(name)).collect();
        for removed in removed {
            removed.get().unwrap();
        }
        for member in members {
            match member.try_tell(Message::Go) {
                Ok(()) | Err(TryTellError::Stopped(_)) => {}
                Err(TryTellError::Full(_)) => unreachable!("nobody else writes"),
            }
        }
        // A child that has gone is off the address before its supervisor hears of it.
        until("the last one's end", || tree.snapshot().children.is_empty());
        assert!(address.members().is_empty());
        assert!(matches!(address.try_tell(Message::Go), Err(TryTellError::Stopped(_))));
    });
    assert!(guests >= 100_000);
    assert!(grown < SLACK, "{grown} bytes are left of {guests} guests");
}

#[test]
fn a_name_that_is_given_and_taken_for_ever_leaves_nothing_on_its_actor() {
    let _alone = alone();
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let registry = Registry::new();
    let host = supervise::actor(Guest).spawn(&runtime).unwrap();
    let grown = growth(50_000, || {
        registry.register("host", &host).unwrap();
        assert!(registry.unregister("host"));
    });
    assert!(grown < SLACK, "{grown} bytes are left");
    registry.register("one", &host).unwrap();
    registry.register("two", &host).unwrap();
    host.stop();
    host.watch().get().unwrap();
    assert!(registry.names().is_empty());
}

#[test]
fn actors_that_watched_one_who_lives_on_leave_nothing_behind() {
    struct Host;
    impl Actor for Host {
        type Message = ();
        fn handle(&mut self, (): (), _: &mut Ctx<()>) -> Handled {
            Ok(())
        }
    }
    let _alone = alone();
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let host = supervise::actor(Host).spawn(&runtime).unwrap();
    let grown = growth(5_000, || {
        let guest = supervise::actor(Guest).spawn(&runtime).unwrap();
        let (done, watches) = std::sync::mpsc::channel();
        assert!(guest.try_tell(Message::Watch(host.clone(), done)).is_ok());
        watches.recv().unwrap();
        guest.stop();
        guest.watch().get().unwrap();
    });
    assert!(grown < SLACK * 4, "{grown} bytes are left");
}

#[test]
fn a_thread_that_asks_in_a_loop_whether_to_stop_leaves_nothing() {
    let _alone = alone();
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let (send, tokens) = std::sync::mpsc::channel();
    let tree = Supervisor::builder("tree")
        .child(ChildSpec::thread("waits", move |token| {
            let _ = send.send(token.clone());
            token.wait();
        }))
        .start(&runtime)
        .unwrap();
    let token = tokens.recv().unwrap();
    let kept = token.stopped();
    let grown = growth(50_000, || drop(token.stopped()));
    assert!(grown < SLACK, "{grown} bytes are left");
    assert!(tree.shutdown(Duration::from_secs(60)).is_some());
    kept.get().unwrap();
}

/// It cannot be stopped for now, and whoever asked for that has given up waiting.
#[test]
fn requests_that_nobody_waits_for_any_more_leave_nothing() {
    let _alone = alone();
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let (send, gates) = std::sync::mpsc::channel();
    let tree = Supervisor::builder("tree")
        .child(ChildSpec::thread("busy", move |_| {
            let (open, gate) = std::sync::mpsc::channel::<()>();
            let _ = send.send(open);
            let _ = gate.recv();
        }))
        .start(&runtime)
        .unwrap();
    let open = gates.recv().unwrap();
    let last = tree.stop_child("busy");
    let grown = growth(20_000, || {
        drop(tree.stop_child("busy"));
        // It is through with that one when it answers this one.
        assert!(tree.remove("nobody").get().is_err());
    });
    assert!(grown < SLACK, "{grown} bytes are left");
    drop(open);
    last.get().unwrap();
}
