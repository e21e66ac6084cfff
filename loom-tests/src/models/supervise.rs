//! Actors: a message, a stop, the last reference and a watch race the actor's turns. The runtime is the
//! model's: a thread takes a turn whenever the actor's waker was woken; a wake that is lost shows as a
//! deadlock.
//!
//! The end of an actor is long (its mailbox, its lane, its watchers), so that a whole life has hundreds of
//! places at which to switch: two threads are explored with two or three preemptions, three with one, and three
//! of which two wait with none. The actor with one sender, with one that waits for room, and with one that stops it
//! has a model each with more. What the bounds do not reach is what two others do to each other in the middle of
//! the actor's step, more than one switch deep: `tests/supervise_stress.rs` runs that on real threads.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use tenure::promise::EventualError;
use tenure::supervise::model::{
    Lane, Stage, come, live, stage, tell_to_stop, timed_question, token,
};
use tenure::supervise::{Actor, ActorRef, Address, Ctx, Handled, Registry, TryTellError};

/// What became of the messages.
struct Fates {
    handled: AtomicU32,
    undelivered: AtomicU32,
    /// Written when the actor is dropped.
    last_word: UnsafeCell<u32>,
}

// SAFETY: the cell is written by the actor and read when that is over, which loom checks.
unsafe impl Send for Fates {}
// SAFETY: as above.
unsafe impl Sync for Fates {}

impl Fates {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            handled: AtomicU32::new(0),
            undelivered: AtomicU32::new(0),
            last_word: UnsafeCell::new(0),
        })
    }

    fn handled(&self) -> u32 {
        self.handled.load(Ordering::Relaxed)
    }

    fn undelivered(&self) -> u32 {
        self.undelivered.load(Ordering::Relaxed)
    }
}

/// Ends by itself after so many messages. A message owns memory of the model, so that one that is lost is a
/// leak.
struct Counter {
    fates: Arc<Fates>,
    last: u32,
}

type Message = Arc<AtomicU32>;

fn message() -> Message {
    Arc::new(AtomicU32::new(7))
}

impl Actor for Counter {
    type Message = Message;

    fn handle(&mut self, message: Message, ctx: &mut Ctx<Message>) -> Handled {
        assert_eq!(message.load(Ordering::Relaxed), 7);
        let before = self.fates.handled.fetch_add(1, Ordering::Relaxed);
        if before + 1 == self.last {
            ctx.stop();
        }
        Ok(())
    }

    fn undelivered(&mut self, message: Message) {
        assert_eq!(message.load(Ordering::Relaxed), 7);
        self.fates.undelivered.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // SAFETY: once, by whoever ends the actor.
        self.fates.last_word.with_mut(|word| unsafe { *word = 1 });
    }
}

fn counter(capacity: usize, last: u32) -> (Stage<Counter>, ActorRef<Message>, Arc<Fates>) {
    let fates = Fates::new();
    let (stage, actor) = stage(Counter { fates: Arc::clone(&fates), last }, capacity);
    (stage, actor, fates)
}

/// A thread that has a reference of its own.
fn with<T: 'static>(
    actor: &ActorRef<Message>,
    f: impl FnOnce(ActorRef<Message>) -> T + 'static,
) -> thread::JoinHandle<T> {
    let actor = actor.clone();
    thread::spawn(move || f(actor))
}

models! { "supervise";
    /// A message comes while the actor finds nothing and goes to rest.
    tell_x_rest [bound: 3, std_arc] {
        let (stage, actor, fates) = counter(2, 1);
        let living = thread::spawn(move || live(stage));
        let sender = with(&actor, |actor| assert!(actor.try_tell(message()).is_ok()));
        sender.join().unwrap();
        living.join().unwrap();
        assert_eq!((fates.handled(), fates.undelivered()), (1, 0));
        assert_eq!(actor.waiting(), 0, "who looks afterwards sees how far it came");
    }
    /// Two senders, of whom one may find the place of the other claimed and not written yet.
    tell_x_tell_x_rest [bound: 1, once, std_arc] {
        let (stage, actor, fates) = counter(2, 2);
        let living = thread::spawn(move || live(stage));
        let senders = [(); 2].map(|()| {
            with(&actor, |actor| assert!(actor.try_tell(message()).is_ok()))
        });
        for sender in senders {
            sender.join().unwrap();
        }
        living.join().unwrap();
        assert_eq!(fates.handled(), 2);
    }
    /// The ring's second lap: what was moved out is seen before its slot is written again.
    tell_again_x_pop [bound: 2, std_arc] {
        let (stage, actor, fates) = counter(1, 2);
        let living = thread::spawn(move || live(stage));
        let sender = with(&actor, |actor| {
            assert!(actor.try_tell(message()).is_ok());
            match actor.try_tell(message()) {
                Ok(()) => 2,
                Err(TryTellError::Full(_)) => {
                    actor.stop();
                    1
                }
                Err(TryTellError::Stopped(_)) => unreachable!("it has not had two"),
            }
        });
        let sent = sender.join().unwrap();
        living.join().unwrap();
        assert_eq!(fates.handled() + fates.undelivered(), sent);
    }
    /// A sender waits for room while the actor makes some, and rests.
    wait_for_room_x_rest [bound: 2, std_arc] {
        let (stage, actor, fates) = counter(1, 2);
        assert!(actor.try_tell(message()).is_ok());
        let living = thread::spawn(move || live(stage));
        let sender = with(&actor, |actor| assert!(actor.tell(message()).is_ok()));
        sender.join().unwrap();
        living.join().unwrap();
        assert_eq!(fates.handled(), 2);
    }
    /// A sender waits for room while the actor is told to stop.
    wait_for_room_x_stop [bound: 0, std_arc] {
        let (stage, actor, fates) = counter(1, 9);
        assert!(actor.try_tell(message()).is_ok());
        let living = thread::spawn(move || live(stage));
        let sender = with(&actor, |actor| u32::from(actor.tell(message()).is_ok()));
        let stopper = with(&actor, |actor| actor.stop());
        let sent = 1 + sender.join().unwrap();
        stopper.join().unwrap();
        living.join().unwrap();
        assert_eq!(fates.handled() + fates.undelivered(), sent);
    }
    /// A message comes while the actor is told to stop: it is handled, given back, or refused; never lost.
    tell_x_stop [bound: 1, std_arc] {
        let (stage, actor, fates) = counter(2, 9);
        let living = thread::spawn(move || live(stage));
        let sender = with(&actor, |actor| u32::from(actor.try_tell(message()).is_ok()));
        let stopper = with(&actor, |actor| actor.stop());
        let sent = sender.join().unwrap();
        stopper.join().unwrap();
        living.join().unwrap();
        assert_eq!(fates.handled() + fates.undelivered(), sent);
    }
    /// What the one who stops it did before is seen by the actor.
    stop_x_turn [bound: 2, std_arc] {
        struct Reads(Arc<UnsafeCell<u32>>);
        // SAFETY: written before the order, read after it, which loom checks.
        unsafe impl Send for Reads {}
        impl Actor for Reads {
            type Message = ();
            fn handle(&mut self, (): (), _: &mut Ctx<()>) -> Handled {
                Ok(())
            }
        }
        impl Drop for Reads {
            fn drop(&mut self) {
                // SAFETY: as above.
                assert_eq!(self.0.with(|word| unsafe { *word }), 5);
            }
        }
        let word = Arc::new(UnsafeCell::new(0));
        let (stage, actor) = stage(Reads(Arc::clone(&word)), 1);
        let living = thread::spawn(move || live(stage));
        let stopper = thread::spawn(move || {
            // SAFETY: before the order.
            word.with_mut(|word| unsafe { *word = 5 });
            actor.stop();
        });
        stopper.join().unwrap();
        living.join().unwrap();
    }
    /// A message through one reference, while the other one is dropped: all is handled before the end.
    tell_x_last_drop [bound: 1, std_arc] {
        let (stage, actor, fates) = counter(2, 9);
        let living = thread::spawn(move || live(stage));
        let sender = with(&actor, |actor| assert!(actor.try_tell(message()).is_ok()));
        let other = thread::spawn(move || drop(actor));
        sender.join().unwrap();
        other.join().unwrap();
        living.join().unwrap();
        assert_eq!((fates.handled(), fates.undelivered()), (1, 0));
    }
    /// The actor's job is thrown away while a message comes.
    tell_x_thrown_away [bound: 3, std_arc] {
        let (stage, actor, fates) = counter(1, 9);
        let living = thread::spawn(move || drop(stage));
        let sender = with(&actor, |actor| u32::from(actor.try_tell(message()).is_ok()));
        let sent = sender.join().unwrap();
        living.join().unwrap();
        assert_eq!((fates.handled(), fates.undelivered()), (0, sent));
    }
    /// An entry of the control lane comes while the actor rests.
    control_x_rest [bound: 2, std_arc] {
        let (stage, actor, fates) = counter(1, 1);
        let lane = Lane::of(&actor);
        let living = thread::spawn(move || live(stage));
        let sender = thread::spawn(move || lane.own(message()));
        sender.join().unwrap();
        living.join().unwrap();
        assert_eq!(fates.handled(), 1);
        drop(actor);
    }
    /// It comes while the actor ends: it is handled, given back, or dropped by one of the two; not left there.
    control_x_end [bound: 3, std_arc] {
        let (stage, actor, fates) = counter(1, 9);
        let lane = Lane::of(&actor);
        actor.stop();
        let living = thread::spawn(move || live(stage));
        let entry = message();
        let kept = Arc::clone(&entry);
        let sender = thread::spawn(move || lane.own(entry));
        sender.join().unwrap();
        living.join().unwrap();
        assert!(fates.handled() == 0 && fates.undelivered() <= 1);
        assert_eq!(Arc::strong_count(&kept), 1, "it is still on the lane");
        drop(actor);
    }
    /// An entry that was signalled before the mailbox closed is handled or given back, not dropped.
    control_x_close [bound: 2, std_arc] {
        struct Leaves {
            came: Arc<AtomicU32>,
            saw: Arc<AtomicU32>,
            fate: Arc<AtomicU32>,
        }
        impl Actor for Leaves {
            type Message = bool;
            fn handle(&mut self, control: bool, ctx: &mut Ctx<bool>) -> Handled {
                if control {
                    self.fate.fetch_add(1, Ordering::Relaxed);
                } else {
                    self.saw.store(self.came.load(Ordering::Relaxed), Ordering::Relaxed);
                    ctx.stop();
                }
                Ok(())
            }
            fn undelivered(&mut self, _: bool) {
                self.fate.fetch_add(1, Ordering::Relaxed);
            }
        }
        let [came, saw, fate] = [(); 3].map(|()| Arc::new(AtomicU32::new(0)));
        let leaves =
            Leaves { came: Arc::clone(&came), saw: Arc::clone(&saw), fate: Arc::clone(&fate) };
        let (stage, actor) = stage(leaves, 1);
        assert!(actor.try_tell(false).is_ok());
        let lane = Lane::of(&actor);
        let living = thread::spawn(move || live(stage));
        let sender = thread::spawn(move || {
            lane.own(true);
            came.store(1, Ordering::Relaxed);
        });
        sender.join().unwrap();
        living.join().unwrap();
        assert!(fate.load(Ordering::Relaxed) >= saw.load(Ordering::Relaxed));
    }
    /// Two actors are made at once: they are two.
    make_x_make {
        let makers = [(); 2].map(|()| {
            thread::spawn(|| {
                let (stage, actor, _fates) = counter(1, 9);
                let id = actor.id();
                drop((stage, actor));
                id
            })
        });
        let [one, other] = makers.map(|maker| maker.join().unwrap());
        assert_ne!(one, other);
    }
    /// Two callers at one address have turns of their own.
    turn_x_turn [std_arc] {
        let address = Address::new();
        let (stages, actors): (Vec<_>, Vec<_>) = (0..2)
            .map(|_| {
                let (stage, actor, _fates) = counter(1, 9);
                come(&address, &actor);
                (stage, actor)
            })
            .unzip();
        let callers = [(); 2].map(|()| {
            let address = address.clone();
            thread::spawn(move || address.current().unwrap().id())
        });
        let [one, other] = callers.map(|caller| caller.join().unwrap());
        assert_ne!(one, other);
        drop((address, actors, stages));
    }
    /// What the actor did is seen by whoever sees that it is over.
    over_x_end [bound: 3, std_arc] {
        let (stage, actor, fates) = counter(1, 9);
        actor.stop();
        let living = thread::spawn(move || live(stage));
        let looker = thread::spawn(move || {
            if actor.is_over() {
                // SAFETY: it is over, so nobody writes.
                assert_eq!(fates.last_word.with(|word| unsafe { *word }), 1);
            }
        });
        looker.join().unwrap();
        living.join().unwrap();
    }
    /// Watchers come while the actor ends: each hears of it, once.
    watch_x_end [bound: 1, std_arc] {
        let (stage, actor, fates) = counter(1, 9);
        actor.stop();
        let living = thread::spawn(move || live(stage));
        let watchers = [(); 2].map(|()| {
            let fates = Arc::clone(&fates);
            with(&actor, move |actor| {
                assert!(actor.watch().get().is_ok());
                // SAFETY: it has ended, so nobody writes.
                assert_eq!(fates.last_word.with(|word| unsafe { *word }), 1);
            })
        });
        for watcher in watchers {
            watcher.join().unwrap();
        }
        living.join().unwrap();
    }
    /// An actor gets a name while it ends: nobody finds it afterwards, and the name is free.
    register_x_end_x_lookup [bound: 1, std_arc] {
        let (stage, actor, _fates) = counter(1, 9);
        let registry = Registry::new();
        let living = thread::spawn(move || live(stage));
        let (names, looks) = (registry.clone(), registry.clone());
        let namer = with(&actor, move |actor| {
            let _ = names.register("it", &actor);
            actor.stop();
        });
        let looker = thread::spawn(move || {
            if let Some(found) = looks.lookup::<Message>("it") {
                drop(found.try_tell(message()));
            }
        });
        namer.join().unwrap();
        looker.join().unwrap();
        living.join().unwrap();
        assert!(actor.is_over());
        assert!(registry.lookup::<Message>("it").is_none());
        let (next_stage, next, _fates) = counter(1, 9);
        assert!(registry.register("it", &next).is_ok());
        assert!(registry.unregister("it"));
        drop((next_stage, next));
    }
    /// The answer and the time limit of a question: one of them counts.
    answer_x_limit {
        let (reply, limit, answer) = timed_question();
        let answerer = thread::spawn(move || reply.send(3).is_ok());
        let clock = thread::spawn(move || limit.is_up());
        let in_time = answerer.join().unwrap();
        clock.join().unwrap();
        match answer.get() {
            Ok(answer) => assert!(in_time && answer == 3),
            Err(error) => assert!(!in_time && matches!(error, EventualError::TimedOut)),
        }
    }
    /// A thread waits, another asks for the notice, while they are told to stop.
    token_x_wait [bound: 2, std_arc] {
        let token = token();
        let did = Arc::new(UnsafeCell::new(0));
        struct Before(Arc<UnsafeCell<u32>>);
        // SAFETY: written before the word, read after it, which loom checks.
        unsafe impl Send for Before {}
        let (waits, asks, wrote) = (token.clone(), token.clone(), Before(Arc::clone(&did)));
        let read = Before(did);
        let waiter = thread::spawn(move || {
            let read = read;
            waits.wait();
            // SAFETY: as above.
            assert_eq!(read.0.with(|word| unsafe { *word }), 1);
        });
        let asker = thread::spawn(move || assert!(asks.stopped().get().is_ok()));
        let teller = thread::spawn(move || {
            let wrote = wrote;
            // SAFETY: as above.
            wrote.0.with_mut(|word| unsafe { *word = 1 });
            tell_to_stop(&token);
        });
        for thread in [waiter, asker, teller] {
            thread.join().unwrap();
        }
    }
}
