//! The future state block: one result, handed over once, and who runs the callback.
//!
//! ```text
//!               set ───────────► ResultSet ────┐  taken: get, callback, stage
//!   Initial ───┤                               ├──────────────────────────────► ValueMoved
//!               set_error, drop ► ExceptionSet ┘
//! ```
//!
//! `cargo run --example state_block` prints what it checks, and fails if one of it does not hold.

use std::sync::mpsc;
use std::thread::{self, ThreadId};

use tenure::executor::{Executor, Task};
use tenure::promise::{Eventual, EventualError, Promise, State, promise};

type Failure = Box<dyn std::error::Error>;

/// What all of this is about: the result of some work, or why there is none.
type Block = (Promise<u32, String>, Eventual<u32, String>);

fn new_block() -> Block {
    promise()
}

/// An executor of our own: one thread with a queue, as a user interface has it.
#[derive(Clone)]
struct EventLoop {
    queue: mpsc::Sender<Task>,
    thread: ThreadId,
}

impl EventLoop {
    fn start() -> Self {
        let (queue, tasks) = mpsc::channel::<Task>();
        let thread = thread::spawn(move || tasks.into_iter().for_each(Task::run)).thread().id();
        Self { queue, thread }
    }
}

impl Executor for EventLoop {
    fn execute(&self, task: Task) -> Result<(), Task> {
        // A queue that is gone gives the task back: whoever waits for it hears of it.
        self.queue.send(task).map_err(|refused| refused.0)
    }
}

fn check(claim: &str, holds: bool) -> Result<(), Failure> {
    println!("{} {claim}", if holds { "ok   " } else { "FALSE" });
    if holds { Ok(()) } else { Err(claim.into()) }
}

/// Which states a block goes through.
fn states() -> Result<(), Failure> {
    let (writer, mut reader) = new_block();
    check("a new block is Initial", reader.state() == State::Initial)?;
    writer.set(7).map_err(|_| "nobody reads")?;
    check("set leads to ResultSet", reader.state() == State::ResultSet)?;
    check("the value is moved out", matches!(reader.try_get(), Some(Ok(7))))?;
    check("that leads to ValueMoved", reader.state() == State::ValueMoved)?;
    check("no second reader gets it", matches!(reader.get(), Err(EventualError::Taken)))?;

    let (writer, reader) = new_block();
    writer.set_error("disk full".into()).map_err(|_| "nobody reads")?;
    check("set_error leads to ExceptionSet", reader.state() == State::ExceptionSet)?;
    let thrown = reader.get();
    check(
        "the exception comes out of get",
        matches!(thrown, Err(EventualError::Failed(why)) if why == "disk full"),
    )?;

    let (writer, reader) = new_block();
    drop(writer);
    check("a writer that goes breaks it", matches!(reader.get(), Err(EventualError::Broken)))
}

/// Who runs a callback: inline it is whoever comes second, dispatched it is the executor.
fn callbacks() -> Result<(), Failure> {
    let here = thread::current().id();
    let (tell, told) = mpsc::channel();

    // Left first: the setting thread runs it, inside `set`.
    let (writer, reader) = new_block();
    let teller = tell.clone();
    reader.on_complete(move |result| {
        let _ = teller.send((thread::current().id(), result.ok()));
    });
    let setter = thread::spawn(move || writer.set(1).is_ok());
    let setting_thread = setter.thread().id();
    check("a callback takes the value", setter.join().is_ok_and(|taken| taken))?;
    check("inline, left before: the setter runs it", told.recv()? == (setting_thread, Some(1)))?;

    // Left second: we run it, at once.
    let (writer, reader) = new_block();
    writer.set(2).map_err(|_| "nobody reads")?;
    let teller = tell.clone();
    reader.on_complete(move |result| {
        let _ = teller.send((thread::current().id(), result.ok()));
    });
    check("inline, left after: the leaver runs it", told.try_recv()? == (here, Some(2)))?;

    // Dispatched: neither of the two; the setter only passes it on.
    let screen = EventLoop::start();
    let (writer, reader) = new_block();
    reader.on_complete_via(screen.clone(), move |result| {
        let _ = tell.send((thread::current().id(), result.ok()));
    });
    writer.set(3).map_err(|_| "nobody reads")?;
    check("dispatched: the executor's thread runs it", told.recv()? == (screen.thread, Some(3)))
}

/// Stages upon stages; an error passes by those that only want a value.
fn chain() -> Result<(), Failure> {
    let screen = EventLoop::start();
    let on_screen = screen.thread;

    let (writer, reader) = new_block();
    let label = reader
        .map(|celsius| celsius * 9 / 5 + 32)
        .via(screen.clone())
        .map(move |degrees| (degrees, thread::current().id() == on_screen))
        .unbind();
    thread::spawn(move || writer.set(100));
    check("a chain runs where each stage wants to", matches!(label.get(), Ok((212, true))))?;

    let (writer, reader) = new_block();
    let answer = reader
        .map(|n| n + 1)
        .and_then(|n| {
            let (inner, eventual) = new_block();
            thread::spawn(move || inner.set(n * 2));
            eventual
        })
        .recover(|error| if error.to_string() == "offline" { 0 } else { 1 });
    writer.set_error("offline".into()).map_err(|_| "nobody reads")?;
    check("an exception passes by to who recovers", matches!(answer.get(), Ok(0)))
}

/// What nobody wants any more is not worked on.
fn cancellation() -> Result<(), Failure> {
    let (mut writer, reader) = new_block();
    let (tell, told) = mpsc::channel();
    writer.on_cancel(move || {
        let _ = tell.send("the query is stopped here");
    });
    let page = reader.map(|rows| rows / 10);
    check("the request is heard", page.cancel())?;
    check("from the end of the chain to its head", writer.is_cancelled() && told.recv().is_ok())?;
    drop(writer);
    check("the chain ends cancelled", matches!(page.get(), Err(EventualError::Cancelled)))?;

    // A writer that did not look in time is told that nobody took it, and has its value back.
    let (writer, reader) = new_block();
    drop(reader);
    let refused = writer.set(9);
    check("a value nobody wants comes back", refused.is_err_and(|e| e.into_inner() == 9))
}

fn main() -> Result<(), Failure> {
    states()?;
    callbacks()?;
    chain()?;
    cancellation()
}
