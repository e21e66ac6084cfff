//! Actors beside ractor, kameo and actix: a question and its answer, and messages one way.
//!
//! | group | what is timed |
//! |---|---|
//! | `ask/outside` | one question after another from a thread outside the pool |
//! | `ask/inside` | the same from a task inside it (actix: on the actor's own thread) |
//! | `tell/outside` | 10,000 messages from a thread outside, until all are handled; per message |
//!
//! All have two workers (actix: a thread for the actor), mailboxes of 1,024 where they have a bound (ractor has
//! none; actix' `do_send` passes by it), and a message of 16 to 24 bytes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};
use kameo::prelude::Spawn as _;

const CAPACITY: usize = 1024;
const BATCH: u64 = 10_000;

mod ours {
    use tenure::supervise::{self, Actor, ActorRef, Ctx, Handled, Reply};

    pub(crate) struct Sum(u64);

    pub(crate) enum Message {
        Add(u64),
        Get(Reply<u64>),
    }

    impl Actor for Sum {
        type Message = Message;
        fn handle(&mut self, message: Message, _: &mut Ctx<Message>) -> Handled {
            match message {
                Message::Add(n) => self.0 = self.0.wrapping_add(n),
                Message::Get(reply) => _ = reply.send(self.0),
            }
            Ok(())
        }
    }

    pub(crate) fn start() -> (tenure::Runtime, ActorRef<Message>) {
        let runtime = tenure::Runtime::builder().workers(2).build().unwrap();
        let actor = supervise::actor(Sum(0)).capacity(super::CAPACITY).spawn(&runtime).unwrap();
        (runtime, actor)
    }
}

mod with_ractor {
    use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

    pub(crate) struct Sum;

    pub(crate) enum Message {
        Add(u64),
        Get(RpcReplyPort<u64>),
    }

    impl Actor for Sum {
        type Msg = Message;
        type State = u64;
        type Arguments = ();

        async fn pre_start(&self, _: ActorRef<Message>, (): ()) -> Result<u64, ActorProcessingErr> {
            Ok(0)
        }

        async fn handle(
            &self,
            _: ActorRef<Message>,
            message: Message,
            sum: &mut u64,
        ) -> Result<(), ActorProcessingErr> {
            match message {
                Message::Add(n) => *sum = sum.wrapping_add(n),
                Message::Get(reply) => _ = reply.send(*sum),
            }
            Ok(())
        }
    }

    pub(crate) async fn ask(actor: &ActorRef<Message>) -> u64 {
        match actor.call(Message::Get, None).await {
            Ok(ractor::rpc::CallResult::Success(sum)) => sum,
            _ => panic!("no answer"),
        }
    }
}

mod with_kameo {
    use kameo::Actor;
    use kameo::message::{Context, Message};

    pub(crate) struct Sum(pub(crate) u64);

    impl Actor for Sum {
        type Args = Self;
        type Error = std::convert::Infallible;

        async fn on_start(
            sum: Self,
            _: kameo::actor::ActorRef<Self>,
        ) -> Result<Self, std::convert::Infallible> {
            Ok(sum)
        }
    }

    pub(crate) struct Add(pub(crate) u64);

    impl Message<Add> for Sum {
        type Reply = ();
        async fn handle(&mut self, Add(n): Add, _: &mut Context<Self, ()>) {
            self.0 = self.0.wrapping_add(n);
        }
    }

    pub(crate) struct Get;

    impl Message<Get> for Sum {
        type Reply = u64;
        async fn handle(&mut self, _: Get, _: &mut Context<Self, u64>) -> u64 {
            self.0
        }
    }
}

mod with_actix {
    use actix::{Actor, Context, Handler, Message};

    pub(crate) struct Sum(pub(crate) u64);

    impl Actor for Sum {
        type Context = Context<Self>;
        fn started(&mut self, ctx: &mut Context<Self>) {
            ctx.set_mailbox_capacity(super::CAPACITY);
        }
    }

    #[derive(Message)]
    #[rtype(result = "()")]
    pub(crate) struct Add(pub(crate) u64);

    impl Handler<Add> for Sum {
        type Result = ();
        fn handle(&mut self, Add(n): Add, _: &mut Context<Self>) {
            self.0 = self.0.wrapping_add(n);
        }
    }

    #[derive(Message)]
    #[rtype(result = "u64")]
    pub(crate) struct Get;

    impl Handler<Get> for Sum {
        type Result = u64;
        fn handle(&mut self, _: Get, _: &mut Context<Self>) -> u64 {
            self.0
        }
    }
}

fn tokio() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

async fn timed_async(work: impl Future<Output = ()>) -> Duration {
    let start = Instant::now();
    work.await;
    start.elapsed()
}

fn ask(c: &mut Criterion, inside: bool) {
    let mut group: BenchmarkGroup<'_, WallTime> =
        c.benchmark_group(if inside { "ask/inside" } else { "ask/outside" });
    for (name, limit) in [("tenure", Duration::MAX), ("tenure, 5 s limit", Duration::from_secs(5))]
    {
        let (runtime, actor) = ours::start();
        group.bench_function(name, |b| {
            b.iter_custom(|rounds| {
                if inside {
                    let actor = actor.clone();
                    let task = runtime.spawn(timed_async(async move {
                        for _ in 0..rounds {
                            black_box(actor.ask(limit, ours::Message::Get).await.unwrap());
                        }
                    }));
                    task.unwrap().get().unwrap()
                } else {
                    timed(|| {
                        for _ in 0..rounds {
                            black_box(actor.ask(limit, ours::Message::Get).get().unwrap());
                        }
                    })
                }
            });
        });
    }
    let runtime = tokio();
    let (actor, _) = runtime.block_on(ractor::Actor::spawn(None, with_ractor::Sum, ())).unwrap();
    group.bench_function("ractor", |b| {
        b.iter_custom(|rounds| {
            let actor = actor.clone();
            let work = timed_async(async move {
                for _ in 0..rounds {
                    black_box(with_ractor::ask(&actor).await);
                }
            });
            if inside {
                runtime.block_on(async { tokio::spawn(work).await.unwrap() })
            } else {
                runtime.block_on(work)
            }
        });
    });
    drop(runtime);
    let runtime = tokio();
    let actor = runtime.block_on(async {
        with_kameo::Sum::spawn_with_mailbox(with_kameo::Sum(0), kameo::mailbox::bounded(CAPACITY))
    });
    group.bench_function("kameo", |b| {
        b.iter_custom(|rounds| {
            let actor = actor.clone();
            let work = timed_async(async move {
                for _ in 0..rounds {
                    black_box(actor.ask(with_kameo::Get).await.unwrap());
                }
            });
            if inside {
                runtime.block_on(async { tokio::spawn(work).await.unwrap() })
            } else {
                runtime.block_on(work)
            }
        });
    });
    drop(runtime);
    let system = actix::System::new();
    let arbiter = system.block_on(async { actix::Arbiter::new() });
    let actor = system.block_on(async {
        if inside {
            actix::Actor::start(with_actix::Sum(0))
        } else {
            actix::Actor::start_in_arbiter(&arbiter.handle(), |_| with_actix::Sum(0))
        }
    });
    group.bench_function("actix", |b| {
        b.iter_custom(|rounds| {
            system.block_on(timed_async(async {
                for _ in 0..rounds {
                    black_box(actor.send(with_actix::Get).await.unwrap());
                }
            }))
        });
    });
    arbiter.stop();
    group.finish();
}

fn tell(c: &mut Criterion) {
    let mut group: BenchmarkGroup<'_, WallTime> = c.benchmark_group("tell/outside");
    group.throughput(Throughput::Elements(BATCH));
    let (runtime, actor) = ours::start();
    group.bench_function("tenure", |b| {
        b.iter(|| {
            for n in 0..BATCH {
                actor.tell(ours::Message::Add(n)).unwrap_or_else(|_| panic!("stopped"));
            }
            // The one question behind them; with one rhythm for all: as soon as it is answered.
            loop {
                if let Ok(sum) = actor.ask(Duration::MAX, ours::Message::Get).get() {
                    break black_box(sum);
                }
            }
        });
    });
    drop((runtime, actor));
    let runtime = tokio();
    let (actor, _) = runtime.block_on(ractor::Actor::spawn(None, with_ractor::Sum, ())).unwrap();
    group.bench_function("ractor", |b| {
        b.iter(|| {
            runtime.block_on(async {
                for n in 0..BATCH {
                    actor.cast(with_ractor::Message::Add(n)).unwrap();
                }
                black_box(with_ractor::ask(&actor).await)
            })
        });
    });
    drop(runtime);
    let runtime = tokio();
    let actor = runtime.block_on(async {
        with_kameo::Sum::spawn_with_mailbox(with_kameo::Sum(0), kameo::mailbox::bounded(CAPACITY))
    });
    group.bench_function("kameo", |b| {
        b.iter(|| {
            runtime.block_on(async {
                for n in 0..BATCH {
                    actor.tell(with_kameo::Add(n)).await.unwrap();
                }
                black_box(actor.ask(with_kameo::Get).await.unwrap())
            })
        });
    });
    drop(runtime);
    let system = actix::System::new();
    let arbiter = system.block_on(async { actix::Arbiter::new() });
    let actor = system.block_on(async {
        actix::Actor::start_in_arbiter(&arbiter.handle(), |_| with_actix::Sum(0))
    });
    group.bench_function("actix", |b| {
        b.iter(|| {
            system.block_on(async {
                for n in 0..BATCH {
                    actor.do_send(with_actix::Add(n));
                }
                black_box(actor.send(with_actix::Get).await.unwrap())
            })
        });
    });
    arbiter.stop();
    group.finish();
}

fn all(c: &mut Criterion) {
    ask(c, false);
    ask(c, true);
    tell(c);
}

criterion_group!(benches, all);
criterion_main!(benches);
