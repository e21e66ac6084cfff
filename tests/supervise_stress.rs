//! Actors and supervisors on real threads, with everything at once: each message is handled once, given back
//! once, or refused; each watcher hears once; a tree that is shaken stands still at the end.
//!
//! A few seconds; `TENURE_STRESS=<factor>` makes it longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::runtime::Runtime;
use tenure::supervise::{
    self, Actor, Address, ChildSpec, Ctx, Exit, Handled, Registry, Reply, Restart, Shutdown,
    Strategy, Supervisor, TellError, TryTellError,
};

fn rounds(base: u64) -> u64 {
    let factor = std::env::var("TENURE_STRESS").ok().and_then(|factor| factor.parse().ok());
    base * factor.unwrap_or(1).max(1)
}

#[derive(Default)]
struct Tally {
    handled: AtomicU64,
    undelivered: AtomicU64,
    dropped: AtomicU64,
}

/// Counted when it is dropped, wherever that is.
struct Token(Arc<Tally>);

impl Drop for Token {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

struct Sink {
    tally: Arc<Tally>,
    fails_after: u64,
}

impl Actor for Sink {
    type Message = Token;

    fn handle(&mut self, token: Token, ctx: &mut Ctx<Token>) -> Handled {
        self.tally.handled.fetch_add(1, Ordering::Relaxed);
        drop(token);
        self.fails_after = self.fails_after.wrapping_sub(1);
        match self.fails_after {
            0 => Err("worn out".into()),
            1_000_000 => {
                ctx.stop();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn undelivered(&mut self, token: Token) {
        self.tally.undelivered.fetch_add(1, Ordering::Relaxed);
        drop(token);
    }
}

#[test]
fn every_message_is_handled_given_back_or_refused() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    for round in 0..rounds(150) {
        let tally = Arc::new(Tally::default());
        let sink = Sink { tally: Arc::clone(&tally), fails_after: 150 + round % 100 };
        let actor = supervise::actor(sink).capacity(1 << (round % 6)).spawn(&runtime).unwrap();
        let watch = actor.watch();
        let senders: Vec<_> = (0..4)
            .map(|sender| {
                let (actor, tally) = (actor.clone(), Arc::clone(&tally));
                std::thread::spawn(move || {
                    let mut sent = 0_u64;
                    for n in 0..80 {
                        let token = Token(Arc::clone(&tally));
                        sent += u64::from(match (sender + n) % 3 {
                            0 => match actor.try_tell(token) {
                                Ok(()) => true,
                                Err(TryTellError::Full(token) | TryTellError::Stopped(token)) => {
                                    drop(token);
                                    false
                                }
                            },
                            1 => match actor.tell_timeout(token, Duration::from_micros(50)) {
                                Ok(()) => true,
                                Err(TellError::TimedOut(token) | TellError::Stopped(token)) => {
                                    drop(token);
                                    false
                                }
                                Err(other) => panic!("{other:?}"),
                            },
                            _ => actor.tell(token).is_ok(),
                        });
                    }
                    sent
                })
            })
            .collect();
        match round % 3 {
            0 => actor.stop(),
            1 => actor.kill(),
            _ => {}
        }
        drop(actor);
        let sent: u64 = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
        let down = watch.get().unwrap();
        let handled = tally.handled.load(Ordering::Relaxed);
        let undelivered = tally.undelivered.load(Ordering::Relaxed);
        assert_eq!(handled + undelivered, sent, "round {round}: {down:?}");
        assert_eq!(down.undelivered as u64, undelivered);
        assert_eq!(tally.dropped.load(Ordering::Relaxed), 4 * 80);
    }
}

#[test]
fn questions_from_many_threads_are_each_answered_once() {
    struct Echo;
    impl Actor for Echo {
        type Message = (u64, Reply<u64>);
        fn handle(&mut self, (n, reply): Self::Message, _: &mut Ctx<Self::Message>) -> Handled {
            if n.is_multiple_of(7) {
                drop(reply);
            } else {
                let _ = reply.send(n);
            }
            Ok(())
        }
    }
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let actor = supervise::actor(Echo).capacity(64).spawn(&runtime).unwrap();
    let each = rounds(3000);
    let askers: Vec<_> = (0..4)
        .map(|asker| {
            let actor = actor.clone();
            std::thread::spawn(move || {
                for n in 0..each {
                    let n = asker * each + n;
                    let limit =
                        if n.is_multiple_of(2) { Duration::MAX } else { Duration::from_secs(60) };
                    match actor.ask(limit, |reply| (n, reply)).get() {
                        Ok(answer) => assert!(answer == n && !n.is_multiple_of(7)),
                        Err(error) => assert!(n.is_multiple_of(7), "{n}: {error}"),
                    }
                }
            })
        })
        .collect();
    for asker in askers {
        asker.join().unwrap();
    }
}

#[test]
fn a_tree_that_is_shaken_stands_still_at_the_end() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let tally = Arc::new(Tally::default());
    let registry = Registry::new();
    for strategy in
        [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne, Strategy::Dynamic]
    {
        let alive = Arc::new(AtomicU64::new(0));
        struct Counted(Sink, Arc<AtomicU64>);
        impl Actor for Counted {
            type Message = Token;
            fn started(&mut self, _: &mut Ctx<Token>) -> Handled {
                assert_eq!(self.1.fetch_add(1, Ordering::SeqCst), 0, "two incarnations at once");
                Ok(())
            }
            fn handle(&mut self, token: Token, ctx: &mut Ctx<Token>) -> Handled {
                self.0.handle(token, ctx)
            }
            fn stopped(&mut self, _: &Exit) {
                assert_eq!(self.1.fetch_sub(1, Ordering::SeqCst), 1);
            }
            fn undelivered(&mut self, token: Token) {
                self.0.undelivered(token);
            }
        }
        let mut builder =
            Supervisor::builder("shaken").strategy(strategy).intensity(u32::MAX, Duration::MAX);
        let address = Address::new();
        let mut each = Vec::new();
        for n in 0..4 {
            let here = Arc::new(AtomicU64::new(0));
            each.push(Arc::clone(&here));
            let tally = Arc::clone(&tally);
            let make = move || {
                Counted(Sink { tally: Arc::clone(&tally), fails_after: 20 + n }, Arc::clone(&here))
            };
            let spec = ChildSpec::actor(format!("child {n}"), make)
                .at(&address)
                .capacity(8)
                .register(&registry, format!("{strategy} {n}"))
                .shutdown(Shutdown::Infinity)
                .restart(if n == 3 { Restart::Transient } else { Restart::Permanent });
            builder = builder.child(spec);
        }
        let tree = builder.start(&runtime).unwrap();
        let shakers: Vec<_> = (0..3)
            .map(|shaker| {
                let (address, tree) = (address.clone(), tree.clone());
                let (tally, alive) = (Arc::clone(&tally), Arc::clone(&alive));
                std::thread::spawn(move || {
                    for n in 0..rounds(1500) {
                        if address.try_tell(Token(Arc::clone(&tally))).is_ok() {
                            alive.fetch_add(1, Ordering::Relaxed);
                        }
                        if n % 97 == shaker {
                            drop(tree.restart_child(&format!("child {}", n % 4)));
                        }
                        if n % 50 == 0 {
                            drop(tree.snapshot().to_string());
                        }
                    }
                })
            })
            .collect();
        for shaker in shakers {
            shaker.join().unwrap();
        }
        let down = tree.shutdown(Duration::from_secs(60)).expect("it stops");
        assert!(matches!(down.exit, Exit::Normal), "{down:?}");
        assert!(each.iter().all(|here| here.load(Ordering::SeqCst) == 0), "somebody is left");
        assert!(tree.snapshot().abandoned().is_empty());
        assert!(registry.names().is_empty());
        assert!(address.members().is_empty());
        assert!(alive.load(Ordering::Relaxed) > 0);
    }
    let (handled, undelivered) =
        (tally.handled.load(Ordering::Relaxed), tally.undelivered.load(Ordering::Relaxed));
    assert!(handled + undelivered <= tally.dropped.load(Ordering::Relaxed));
}
