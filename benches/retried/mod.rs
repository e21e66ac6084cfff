//! Jobs that are watched, tried again when they fail, and answer: ours, and what peers have for each of
//! these, all with two workers.
//!
//! | who | tries again by | limit of an attempt | answers by |
//! |---|---|---|---|
//! | tenure | its retry policy | its attempt timeout, which also replaces the worker | its handle |
//! | tokio | a loop | `tokio::time::timeout` | its task's handle |
//! | apalis, in memory | its retry layer | its timeout layer | a one-shot channel (this backend has no results) |
//! | ractor, a factory | its retriable message | `tokio::time::timeout` | a one-shot channel in the message |
//! | kameo, two actors in turn | a loop in the handler | `tokio::time::timeout` | its reply |
//!
//! All try five times, at once, for 5 s each. A job of the peers is a plain message; ours is a closure.

#![allow(dead_code, reason = "each bench uses its own part")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::retry::RetryPolicy;
use tenure::runtime::{JobHandle, Runtime};

use crate::pools::WORKERS;

const TRIES: u32 = 5;
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("failed")]
pub(crate) struct Failed;

/// Attempt number `number` of a job whose first attempts are to fail.
fn attempt(n: u64, number: u32, failures: u32) -> Result<u64, Failed> {
    if number <= failures { Err(Failed) } else { Ok(n) }
}

/// The loop, by hand.
async fn tried(n: u64, failures: u32) -> Result<u64, Failed> {
    let mut number = 1;
    loop {
        match tokio::time::timeout(LIMIT, async { attempt(n, number, failures) }).await {
            Ok(Ok(value)) => return Ok(value),
            _ if number == TRIES => return Err(Failed),
            _ => number += 1,
        }
    }
}

/// Who takes such jobs.
pub(crate) trait Retrying {
    type Handle;
    /// Hands in a job that comes to `n` after so many failed attempts.
    fn submit(&self, n: u64, failures: u32) -> Self::Handle;
    fn get(handle: Self::Handle) -> u64;
}

pub(crate) struct Tenure(pub(crate) Runtime);

impl Tenure {
    pub(crate) fn new() -> Self {
        let policy = RetryPolicy::immediate().max_attempts(TRIES).build().expect("a policy");
        let builder = Runtime::builder().workers(WORKERS).attempt_timeout(LIMIT).retry(policy);
        Self(builder.build().expect("threads"))
    }
}

impl Retrying for Tenure {
    type Handle = JobHandle<u64>;
    fn submit(&self, n: u64, failures: u32) -> JobHandle<u64> {
        match self.0.submit(move |ctx| attempt(n, ctx.attempt(), failures)) {
            Ok(handle) => handle,
            Err(_) => unreachable!("open, and without limit"),
        }
    }
    fn get(handle: JobHandle<u64>) -> u64 {
        handle.get().expect("a value")
    }
}

fn tokio() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(WORKERS).enable_time().build().expect("threads")
}

pub(crate) struct Tokio(pub(crate) tokio::runtime::Runtime);

impl Tokio {
    pub(crate) fn new() -> Self {
        Self(tokio())
    }
}

impl Retrying for Tokio {
    type Handle = tokio::task::JoinHandle<Result<u64, Failed>>;
    fn submit(&self, n: u64, failures: u32) -> Self::Handle {
        self.0.spawn(tried(n, failures))
    }
    fn get(handle: Self::Handle) -> u64 {
        futures::executor::block_on(handle).expect("no panic").expect("a value")
    }
}

/// The worker reads the channel that its memory backend reads. Handed in past the backend's own sink,
/// which panics when it is used while the worker looks at it, but with the id that the sink gives.
pub(crate) struct Apalis {
    pub(crate) runtime: tokio::runtime::Runtime,
    tasks: futures::channel::mpsc::UnboundedSender<apalis::prelude::Task<Ask>>,
}

/// What a layer that tries again can clone.
#[derive(Clone)]
struct Ask {
    n: u64,
    failures: u32,
    answer: Arc<Mutex<Option<oneshot::Sender<u64>>>>,
}

impl Apalis {
    pub(crate) fn new() -> Self {
        use apalis::layers::retry::RetryPolicy;
        use apalis::prelude::{
            Attempt, MemorySink, MemoryStorage, MemoryStorageError, ParallelizeExt, WorkerBuilder,
            WorkerBuilderExt,
        };
        use futures::{SinkExt, StreamExt};

        async fn run(ask: Ask, number: Attempt) -> Result<(), Failed> {
            let value = attempt(ask.n, number.current() as u32, ask.failures)?;
            if let Some(answer) = ask.answer.lock().expect("no panic").take() {
                let _ = answer.send(value);
            }
            Ok(())
        }

        let runtime = tokio();
        let (tasks, receiver) = futures::channel::mpsc::unbounded();
        let sink = tasks.clone().sink_map_err(MemoryStorageError::from);
        let sink = MemorySink::new(Arc::new(futures::lock::Mutex::new(Box::new(sink))));
        let worker = WorkerBuilder::new("bench")
            .backend(MemoryStorage::new_with(sink, receiver.boxed()))
            .parallelize(tokio::spawn)
            .retry(RetryPolicy::retries(TRIES as usize - 1))
            .timeout(LIMIT)
            .build(run);
        runtime.spawn(worker.run());
        Self { runtime, tasks }
    }
}

impl Retrying for Apalis {
    type Handle = oneshot::Receiver<u64>;
    fn submit(&self, n: u64, failures: u32) -> Self::Handle {
        use apalis::prelude::{RandomId, TaskBuilder, TaskId};

        let (answer, handle) = oneshot::channel();
        let ask = Ask { n, failures, answer: Arc::new(Mutex::new(Some(answer))) };
        let id = TaskId::from_string(RandomId::default());
        let task = TaskBuilder::new(ask).task_id(id).build();
        self.tasks.unbounded_send(task).expect("open");
        handle
    }
    fn get(handle: Self::Handle) -> u64 {
        handle.recv().expect("a value")
    }
}

mod with_ractor {
    use ractor::factory::queues::DefaultQueue;
    use ractor::factory::routing::QueuerRouting;
    use ractor::factory::{Factory, FactoryMessage, Job, RetriableMessage, Worker, WorkerBuilder};
    use ractor::{ActorProcessingErr, ActorRef};

    /// A job, and how often it was tried.
    pub(crate) struct Ask {
        pub(crate) n: u64,
        pub(crate) failures: u32,
        pub(crate) tried: u32,
        pub(crate) answer: Option<oneshot::Sender<u64>>,
    }

    pub(crate) type Message = RetriableMessage<u64, Ask>;
    pub(crate) type Pool =
        Factory<u64, Message, (), Hand, QueuerRouting<u64, Message>, DefaultQueue<u64, Message>>;

    pub(crate) struct Hand;

    impl Worker for Hand {
        type Key = u64;
        type Message = Message;
        type State = ();
        type Arguments = ();

        async fn pre_start(
            &self,
            _: usize,
            _: &ActorRef<FactoryMessage<u64, Message>>,
            (): (),
        ) -> Result<(), ActorProcessingErr> {
            Ok(())
        }

        async fn handle(
            &self,
            _: usize,
            _: &ActorRef<FactoryMessage<u64, Message>>,
            Job { key, mut msg, .. }: Job<u64, Message>,
            _: &mut (),
        ) -> Result<u64, ActorProcessingErr> {
            let Some(ask) = &mut msg.message else { return Ok(key) };
            ask.tried += 1;
            let call = async { super::attempt(ask.n, ask.tried, ask.failures) };
            // One that is not completed is handed in again by its drop.
            if let Ok(Ok(value)) = tokio::time::timeout(super::LIMIT, call).await {
                if let Some(answer) = ask.answer.take() {
                    let _ = answer.send(value);
                }
                msg.completed();
            }
            Ok(key)
        }
    }

    pub(crate) struct Hands;

    impl WorkerBuilder<Hand, ()> for Hands {
        fn build(&mut self, _: usize) -> (Hand, ()) {
            (Hand, ())
        }
    }
}

pub(crate) struct Ractor {
    pub(crate) runtime: tokio::runtime::Runtime,
    factory: ractor::ActorRef<ractor::factory::FactoryMessage<u64, with_ractor::Message>>,
}

impl Ractor {
    pub(crate) fn new() -> Self {
        let runtime = tokio();
        let arguments = ractor::factory::FactoryArguments::builder()
            .worker_builder(Box::new(with_ractor::Hands))
            .num_initial_workers(WORKERS)
            .router(Default::default())
            .queue(Default::default())
            .build();
        let factory = with_ractor::Pool::default();
        let spawned = runtime.block_on(ractor::Actor::spawn(None, factory, arguments));
        Self { runtime, factory: spawned.expect("a factory").0 }
    }
}

impl Retrying for Ractor {
    type Handle = oneshot::Receiver<u64>;
    fn submit(&self, n: u64, failures: u32) -> Self::Handle {
        use ractor::factory::{Job, MessageRetryStrategy};

        let (answer, handle) = oneshot::channel();
        let ask = with_ractor::Ask { n, failures, tried: 0, answer: Some(answer) };
        let strategy = MessageRetryStrategy::Count(TRIES as usize - 1);
        self.factory.submit_retriable_job(Job::new(n, ask), strategy).expect("open");
        handle
    }
    fn get(handle: Self::Handle) -> u64 {
        handle.recv().expect("a value")
    }
}

mod with_kameo {
    use kameo::actor::ActorRef;
    use kameo::message::{Context, Message};

    pub(crate) struct Hand;

    impl kameo::Actor for Hand {
        type Args = Self;
        type Error = std::convert::Infallible;

        async fn on_start(hand: Self, _: ActorRef<Self>) -> Result<Self, Self::Error> {
            Ok(hand)
        }
    }

    pub(crate) struct Ask {
        pub(crate) n: u64,
        pub(crate) failures: u32,
    }

    impl Message<Ask> for Hand {
        type Reply = Result<u64, super::Failed>;
        async fn handle(&mut self, ask: Ask, _: &mut Context<Self, Self::Reply>) -> Self::Reply {
            super::tried(ask.n, ask.failures).await
        }
    }
}

pub(crate) struct Kameo {
    pub(crate) runtime: tokio::runtime::Runtime,
    hands: [kameo::actor::ActorRef<with_kameo::Hand>; WORKERS],
    next: AtomicUsize,
}

impl Kameo {
    pub(crate) fn new() -> Self {
        use kameo::actor::Spawn;

        let runtime = tokio();
        let hands = runtime.block_on(async {
            let mailbox = || kameo::mailbox::unbounded();
            std::array::from_fn(|_| {
                with_kameo::Hand::spawn_with_mailbox(with_kameo::Hand, mailbox())
            })
        });
        Self { runtime, hands, next: AtomicUsize::new(0) }
    }
}

impl Retrying for Kameo {
    type Handle = kameo::request::PendingReply<with_kameo::Ask, Result<u64, Failed>>;
    fn submit(&self, n: u64, failures: u32) -> Self::Handle {
        let hand = &self.hands[self.next.fetch_add(1, Ordering::Relaxed) % WORKERS];
        let ask = with_kameo::Ask { n, failures };
        hand.ask(ask).try_enqueue().unwrap_or_else(|_| unreachable!("open, and without limit"))
    }
    fn get(handle: Self::Handle) -> u64 {
        futures::executor::block_on(handle).expect("a value")
    }
}
