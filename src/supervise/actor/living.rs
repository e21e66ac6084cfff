//! An actor on its workers: its turns, and its end.
//!
//! A turn is an attempt of the actor's one job. It handles what the control lane has, then messages, up to
//! [`QUANTUM`] in all; then the actor queues up again behind the others, or rests. The end is, in this
//! order, each step's foreign code contained:
//!
//! 1. the mailbox closes; senders that wait for room hear of it;
//! 2. `stopped`, if the actor had started and was not killed;
//! 3. `undelivered`, for each message that is left;
//! 4. the actor is dropped, and its timers' messages;
//! 5. the word says Stopped;
//! 6. names are given back, then the watchers hear of it, among them the supervisor.
//!
//! So whoever hears of the end, or finds the name free, finds nothing of the actor still at work.

use core::any::Any;
use core::cell::Cell;
use core::ptr::null;
use core::task::Waker;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::context::Ctx;
use super::core::{Core, Entry, Order};
use super::exit::{Down, Exit, ShutdownCause};
use super::word::Rested;
use super::{Actor, Stopping};
use crate::runtime::{BoxError, JobCtx, Turns, contained};
use crate::sync::{Arc, hint, thread};

/// Messages in one turn.
pub(super) const QUANTUM: u32 = 64;
/// How often to look for a message whose sender has its place and has not written it yet, before the worker
/// does something else.
const COMING_ROUNDS: u32 = 32;

/// Makes an actor, in its first turn.
pub(super) type Factory<A> = Box<dyn FnOnce() -> Result<A, BoxError> + Send>;
/// What is done once it has started; an error is a failed start.
pub(crate) type OnReady = Box<dyn FnOnce() -> Result<(), BoxError> + Send>;

/// How a turn came out.
enum Turn {
    /// Nothing is left to do; the word says Idle.
    Rested,
    /// There is more.
    Again,
    /// It was the last one.
    Over(Exit),
}

/// See the [file's docs](self).
pub(crate) struct Living<A: Actor> {
    core: Arc<Core<A::Message>>,
    ctx: Ctx<A::Message>,
    factory: Option<Factory<A>>,
    actor: Option<A>,
    on_ready: Option<OnReady>,
    has_waker: bool,
    started: bool,
    over: bool,
    head: u64,
    /// What was taken off the lane, the first one last.
    lane: Vec<Entry<A::Message>>,
    /// An order that the actor has put off, and how it will end.
    put_off: Option<Order>,
    undelivered: usize,
}

// --- who runs on this thread -----------------------------------------------------------------------

/// An actor that runs on this thread, and who runs below it.
struct Frame {
    actor: *const (),
    below: *const Frame,
}

crate::sync::thread_local! {
    static RUNNING: Cell<*const Frame> = no_frame();
}

fn no_frame() -> Cell<*const Frame> {
    Cell::new(null())
}

/// Takes the frame off, also when a turn unwinds.
struct Entered(*const Frame);

impl Drop for Entered {
    fn drop(&mut self) {
        let _ = RUNNING.try_with(|running| running.set(self.0));
    }
}

/// Whether this actor runs on this thread, further down: waiting for it would wait for ever.
pub(crate) fn runs_here<M>(core: &Arc<Core<M>>) -> bool {
    let wanted: *const () = (&raw const **core).cast();
    let mut at = RUNNING.try_with(Cell::get).unwrap_or(null());
    // SAFETY: a frame is on the list for as long as it is on this thread's stack.
    while let Some(frame) = unsafe { at.as_ref() } {
        if frame.actor == wanted {
            return true;
        }
        at = frame.below;
    }
    false
}

impl<A: Actor> Living<A> {
    pub(super) fn new(
        core: Arc<Core<A::Message>>,
        factory: Factory<A>,
        on_ready: Option<OnReady>,
    ) -> Self {
        Self::make(core, None, Some(factory), on_ready)
    }

    pub(crate) fn with(core: Arc<Core<A::Message>>, actor: A, on_ready: Option<OnReady>) -> Self {
        Self::make(core, Some(actor), None, on_ready)
    }

    fn make(
        core: Arc<Core<A::Message>>,
        actor: Option<A>,
        factory: Option<Factory<A>>,
        on_ready: Option<OnReady>,
    ) -> Self {
        let ctx = Ctx::new(Arc::clone(&core));
        Self {
            core,
            ctx,
            factory,
            actor,
            on_ready,
            has_waker: false,
            started: false,
            over: false,
            head: 0,
            lane: Vec::new(),
            put_off: None,
            undelivered: 0,
        }
    }

    /// The actor, which was not started. Nobody else has seen the core.
    pub(super) fn give_up(mut self) -> Option<A> {
        self.over = true;
        self.actor.take()
    }

    /// The same of one that others may have found by name, and sent something, or wait for: its end.
    pub(super) fn refuse(mut self, why: Exit) -> Option<A> {
        let actor = self.actor.take();
        self.core.seize();
        self.end(why);
        actor
    }

    /// One turn. True: it was the last one.
    pub(crate) fn turn(&mut self, shows_life: impl Fn() -> bool, waker: &Waker) -> bool {
        self.core.begin(waker, !self.has_waker);
        self.has_waker = true;
        let turn = {
            let below = RUNNING.try_with(Cell::get).unwrap_or(null());
            let frame = Frame { actor: (&raw const *self.core).cast(), below };
            let _ = RUNNING.try_with(|running| running.set(&raw const frame));
            let _entered = Entered(below);
            if cfg!(tenure_loom) {
                // In a model a panic is the model's failure, and goes on.
                Ok(self.run(&shows_life))
            } else {
                catch_unwind(AssertUnwindSafe(|| self.run(&shows_life)))
            }
        };
        match turn {
            Ok(Turn::Rested) => return false,
            Ok(Turn::Again) => {
                self.core.again();
                waker.wake_by_ref();
                return false;
            }
            Ok(Turn::Over(exit)) => self.end(exit),
            Err(payload) => self.end(Exit::panicked(payload)),
        }
        true
    }

    fn run(&mut self, shows_life: &impl Fn() -> bool) -> Turn {
        if !self.started
            && let Some(exit) = self.start()
        {
            return Turn::Over(exit);
        }
        let mut left = QUANTUM;
        let mut rounds = if hint::SPIN_CAP == 0 { 0 } else { COMING_ROUNDS };
        loop {
            if !shows_life() {
                return Turn::Over(Exit::Stuck);
            }
            if left == 0 {
                return Turn::Again;
            }
            if !self.lane.is_empty() || self.core.is_signalled() {
                match self.control() {
                    Err(exit) => return Turn::Over(exit),
                    Ok(true) => {
                        left -= 1;
                        continue;
                    }
                    Ok(false) => {}
                }
            }
            let mut message = self.core.pop(&mut self.head);
            if message.is_none() && self.put_off.is_none() && self.core.is_forsaken() {
                // Everything that was sent is visible now, if it was not before.
                message = self.core.pop(&mut self.head);
                if message.is_none() {
                    match self.obey(Order::Stop) {
                        Some(exit) => return Turn::Over(exit),
                        None => continue,
                    }
                }
            }
            if let Some(message) = message {
                left -= 1;
                if self.core.room.is_wanted() {
                    self.core.room.wake(1);
                }
                if let Some(exit) = self.handle(message) {
                    return Turn::Over(exit);
                }
                continue;
            }
            match self.core.rest(self.head) {
                Rested::Idle => return Turn::Rested,
                Rested::Flags => self.core.serve_flags(),
                Rested::Coming => {
                    hint::spin_loop();
                    if rounds == 0 {
                        return Turn::Again;
                    }
                    rounds -= 1;
                }
            }
        }
    }

    /// The first steps. An exit if there will be no others.
    fn start(&mut self) -> Option<Exit> {
        if let Some(order) = self.core.orders() {
            return Some(order.exit());
        }
        if let Some(make) = self.factory.take() {
            match make() {
                Ok(actor) => self.actor = Some(actor),
                Err(error) => return Some(Exit::failed(error)),
            }
        }
        if let Some(actor) = &mut self.actor
            && let Err(error) = actor.started(&mut self.ctx)
        {
            return Some(Exit::failed(error));
        }
        self.started = true;
        if let Some(order @ (Order::ShutDown | Order::Kill)) = self.core.orders() {
            // Nobody waits for it any more, and its successor may have its names.
            return self.obey(order);
        }
        if let Some(on_ready) = self.on_ready.take()
            && let Err(error) = on_ready()
        {
            return Some(Exit::failed(error));
        }
        self.ctx.take_end()
    }

    fn handle(&mut self, message: A::Message) -> Option<Exit> {
        let Some(actor) = &mut self.actor else { return Some(Exit::Normal) };
        match actor.handle(message, &mut self.ctx) {
            Ok(()) => self.ctx.take_end(),
            Err(error) => Some(Exit::failed(error)),
        }
    }

    /// Looks at the orders, and handles one entry of the lane. True if there was one.
    fn control(&mut self) -> Result<bool, Exit> {
        if let Some(order) = self.core.orders()
            && self.put_off != Some(order)
            && let Some(exit) = self.obey(order)
        {
            return Err(exit);
        }
        if self.lane.is_empty() {
            self.core.take_lane(&mut self.lane);
        }
        let handled = match self.lane.pop() {
            None => return Ok(false),
            Some(Entry::Own(message)) => self.handle(message),
            Some(Entry::Fired(timer)) => match self.ctx.fired(timer) {
                None => None,
                Some(message) => {
                    let exit = self.handle(message);
                    self.ctx.rearm(timer);
                    exit
                }
            },
        };
        handled.map_or(Ok(true), Err)
    }

    /// The actor is told to end. `None`: it puts that off.
    fn obey(&mut self, order: Order) -> Option<Exit> {
        let exit = order.exit();
        let Some(actor) = &mut self.actor else { return Some(exit) };
        if order == Order::Kill {
            return Some(exit);
        }
        match actor.stopping(&exit, &mut self.ctx) {
            Stopping::Now => Some(exit),
            Stopping::Later => {
                self.put_off = Some(order);
                self.ctx.take_end()
            }
        }
    }

    // --- the end ----------------------------------------------------------------------------------

    /// Runs foreign code of the end. A panic makes an exit abnormal that was not.
    fn contain(exit: &mut Exit, f: impl FnOnce()) {
        let keep = |exit: &mut Exit, payload: Box<dyn Any + Send>| {
            if exit.is_abnormal() {
                contained(move || drop(payload));
            } else {
                *exit = Exit::panicked(payload);
            }
        };
        if cfg!(tenure_loom) {
            return f();
        }
        if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
            keep(exit, payload);
        }
    }

    /// See the [file's docs](self). Once.
    fn end(&mut self, mut exit: Exit) {
        self.over = true;
        let position = self.core.close().position();
        if self.started
            && !matches!(exit, Exit::Killed)
            && let Some(actor) = &mut self.actor
        {
            let why = exit.clone();
            Self::contain(&mut exit, || actor.stopped(&why));
        }
        self.return_messages(position, &mut exit);
        let (actor, factory, on_ready) =
            (self.actor.take(), self.factory.take(), self.on_ready.take());
        Self::contain(&mut exit, move || drop(actor));
        Self::contain(&mut exit, move || drop((factory, on_ready)));
        drop(self.ctx.drop_timers());
        self.core.end();
        let down = Down {
            id: self.core.id,
            name: self.core.name.clone(),
            exit,
            undelivered: self.undelivered,
        };
        self.core.watchers.tell(&down);
        // Errors and payloads are foreign, and this may be the last of them.
        contained(move || drop(down));
    }

    fn return_messages(&mut self, position: u64, exit: &mut Exit) {
        // What came over the lane was before what is in the mailbox.
        loop {
            match self.lane.pop() {
                Some(Entry::Own(message)) => self.undelivered(message, exit),
                Some(Entry::Fired(_)) => {}
                None => {
                    self.core.take_lane(&mut self.lane);
                    if self.lane.is_empty() {
                        break;
                    }
                }
            }
        }
        while self.head != position {
            match self.core.pop(&mut self.head) {
                Some(message) => self.undelivered(message, exit),
                // Its sender has the place, and is about to write it.
                None => thread::yield_now(),
            }
        }
    }

    fn undelivered(&mut self, message: A::Message, exit: &mut Exit) {
        self.undelivered += 1;
        match &mut self.actor {
            Some(actor) => Self::contain(exit, || actor.undelivered(message)),
            None => Self::contain(exit, move || drop(message)),
        }
    }
}

impl<A: Actor> Turns for Living<A> {
    fn turn(&mut self, job: &JobCtx, waker: &Waker) -> bool {
        Self::turn(self, || job.show_life(), waker)
    }
}

/// The job is thrown away: the runtime shuts down, or took it for stuck.
impl<A: Actor> Drop for Living<A> {
    fn drop(&mut self) {
        if !self.over {
            self.core.seize();
            self.end(Exit::Shutdown(ShutdownCause::Runtime));
        }
    }
}
