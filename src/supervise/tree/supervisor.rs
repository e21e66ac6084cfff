//! The supervisor at work: an actor that does what its [plan](super::plan) says.
//!
//! Everything comes over its control lane, one thing at a time: what children report, what is due, what users
//! ask for. Each changes the plan, under the board's lock; then what the plan wants is done, without it.

use std::collections::HashMap;
use std::sync::Arc;

use super::Builder;
use super::board::Board;
use super::error::{ChildError, StartError};
use super::fault::{Cause, Fault, Level, Reaction};
use super::kinds::{Reporter, Site};
use super::plan::{Act, Closing, Key, Plan, Status, Traits};
use super::spec::{ChildSpec, Shutdown};
use super::window::Window;
use crate::clock::Timestamp;
use crate::promise::Promise;
use crate::runtime::contained;
use crate::supervise::actor::core::{Entry, Order};
use crate::supervise::actor::spawn::{NotSpawned, Settings, Wiring, spawn_supervised};
use crate::supervise::actor::{
    Actor, ActorRef, Ctx, Exit, Handled, ShutdownCause, Stopping, TimerId,
};

/// How a user hears what came of a request.
pub(super) type Answer = Promise<(), ChildError>;

/// What a supervisor is told.
pub(crate) enum Command {
    /// A child is up.
    Ready(Key, u64),
    /// A child has ended, and left so many messages.
    Exited(Key, u64, Exit, usize),
    /// A child does not come back from a call.
    Stuck(Key, u64),
    /// A child's time to stop is over.
    Overdue(Key, u64),
    /// A delay is over.
    Tick,
    Add(ChildSpec, Answer),
    Remove(Arc<str>, Answer),
    StopChild(Arc<str>, Answer),
    RestartChild(Arc<str>, Answer),
}

/// What a request waits for.
#[derive(Clone, Copy)]
enum Wanted {
    /// Up, in an incarnation after this.
    Up(u64),
    Down,
    Gone,
}

/// What a fault is about.
struct About {
    key: Key,
    child: Arc<str>,
    incarnation: u64,
    cause: Cause,
    undelivered: usize,
}

/// Told once: all children are up, or the start has failed.
pub(super) type Started = Box<dyn FnOnce(Result<(), StartError>) + Send>;

/// A supervisor that was started.
pub(super) struct Start {
    pub(super) actor: ActorRef<Command>,
    pub(super) board: Arc<Board>,
}

/// See the [file's docs](self).
pub(crate) struct Chief {
    board: Arc<Board>,
    site: Site,
    initial: Vec<ChildSpec>,
    started: Option<Started>,
    /// How it will end. The first one counts.
    exit: Option<Exit>,
    failure: Option<StartError>,
    overdue: HashMap<Key, TimerId>,
    tick: Option<(Timestamp, TimerId)>,
    requests: Vec<(Key, Wanted, Answer)>,
}

/// Starts a supervisor; its children follow, in its own turns.
pub(super) fn start(
    builder: &Builder,
    site: Site,
    wire: impl FnOnce(&ActorRef<Command>) -> Box<dyn FnOnce() + Send>,
    started: Started,
) -> Result<Start, NotSpawned> {
    let shared = site.runtime.upgrade().ok_or(NotSpawned::Closed)?;
    let settings = Settings { capacity: 1, name: Some(Arc::clone(&site.path)), names: Vec::new() };
    let (chief, board) = chief(builder, site, started);
    let factory = Box::new(move || Ok(chief));
    let actor = spawn_supervised(&shared, &settings, factory, |actor| Wiring {
        on_ready: None,
        stuck: wire(actor),
    })?;
    Ok(Start { actor, board })
}

/// The actor, and what it hangs its plan on.
pub(super) fn chief(builder: &Builder, site: Site, started: Started) -> (Chief, Arc<Board>) {
    let window = Window::new(builder.intensity.0, builder.intensity.1);
    let seed = builder.seed.unwrap_or_else(|| fastrand::u64(..));
    let plan = Plan::new(builder.strategy, builder.auto_shutdown, window, builder.backoff, seed);
    let board = Arc::new(Board::new(Arc::clone(&site.name), plan));
    let on_fault = builder.on_fault.clone().or_else(|| site.on_fault.clone());
    let chief = Chief {
        board: Arc::clone(&board),
        site: Site { on_fault, ..site },
        initial: builder.children.clone(),
        started: Some(started),
        exit: None,
        failure: None,
        overdue: HashMap::new(),
        tick: None,
        requests: Vec::new(),
    };
    (chief, board)
}

impl Actor for Chief {
    type Message = Command;

    fn started(&mut self, ctx: &mut Ctx<Command>) -> Handled {
        let specs = core::mem::take(&mut self.initial);
        self.board.with(|state| {
            for spec in specs {
                let traits = traits(&spec);
                state.list(spec, traits, true);
            }
        });
        self.follow(ctx, None, |_, _, _| {});
        Ok(())
    }

    fn handle(&mut self, command: Command, ctx: &mut Ctx<Command>) -> Handled {
        match command {
            Command::Ready(key, incarnation) => {
                self.follow(ctx, None, |plan, now, _| plan.ready(key, incarnation, now));
            }
            Command::Exited(key, incarnation, exit, undelivered) => {
                self.exited(ctx, key, incarnation, exit, undelivered);
            }
            Command::Stuck(key, incarnation) => {
                let about = self.about(key, incarnation, Cause::Stuck, 0);
                if self.board.with(|state| state.plan.stuck(key, incarnation))
                    && let Some(about) = &about
                {
                    self.tell(ctx, about, Level::Critical, Reaction::Waits);
                }
            }
            Command::Overdue(key, incarnation) => {
                self.overdue.remove(&key);
                let about = self.about(key, incarnation, Cause::Overdue, 0);
                self.follow(ctx, about, |plan, _, acts| plan.overdue(key, incarnation, acts));
            }
            Command::Tick => {
                self.tick = None;
                self.follow(ctx, None, |_, _, _| {});
            }
            Command::Add(spec, answer) => self.add(ctx, spec, answer),
            Command::Remove(name, answer) => {
                self.request(
                    ctx,
                    &name,
                    answer,
                    |_| Wanted::Gone,
                    |plan, key, acts| {
                        plan.put_down(key, true, acts);
                    },
                );
            }
            Command::StopChild(name, answer) => {
                self.request(
                    ctx,
                    &name,
                    answer,
                    |_| Wanted::Down,
                    |plan, key, acts| {
                        plan.put_down(key, false, acts);
                    },
                );
            }
            Command::RestartChild(name, answer) => {
                self.request(ctx, &name, answer, Wanted::Up, |plan, key, _| plan.renew(key));
            }
        }
        Ok(())
    }

    fn stopping(&mut self, exit: &Exit, ctx: &mut Ctx<Command>) -> Stopping {
        if self.exit.is_none() {
            self.exit = Some(exit.clone());
        }
        self.follow(ctx, None, |plan, _, _| plan.stop());
        Stopping::Later
    }
}

fn traits(spec: &ChildSpec) -> Traits {
    let common = &spec.common;
    Traits { restart: common.restart, significant: common.significant, overlaps: common.overlaps }
}

impl Chief {
    /// Changes the plan, steps it, and does what it says. `about`: what the change is about, to tell of.
    fn follow(
        &mut self,
        ctx: &mut Ctx<Command>,
        about: Option<About>,
        change: impl FnOnce(&mut Plan, Timestamp, &mut Vec<Act>),
    ) {
        let now = ctx.now();
        let mut acts = Vec::new();
        self.board.with(|state| {
            change(&mut state.plan, now, &mut acts);
            state.plan.step(now, &mut acts);
        });
        for act in acts {
            self.act(ctx, about.as_ref(), now, act);
        }
        // What it was about may hold the last of a foreign error.
        contained(move || drop(about));
        self.answer();
    }

    /// `now`: when the plan was made, which snapshots show already; times count from there.
    fn act(&mut self, ctx: &mut Ctx<Command>, about: Option<&About>, now: Timestamp, act: Act) {
        match act {
            Act::Start { key, incarnation } => self.start(ctx, key, incarnation),
            Act::Stop { key, incarnation } => self.stop(ctx, key, incarnation, now),
            Act::Wake { at } => {
                if self.tick.is_some_and(|(earlier, _)| earlier <= at) {
                    return;
                }
                if let Some((_, timer)) = self.tick.take() {
                    ctx.cancel_timer(timer);
                }
                self.tick = Some((at, ctx.send_at(at, Command::Tick)));
            }
            Act::Gone { key } => {
                let listed = self.board.with(|state| state.unlist(key));
                contained(move || drop(listed));
            }
            Act::Ready => {
                if let Some(started) = self.started.take() {
                    contained(move || started(Ok(())));
                }
            }
            Act::Over => self.over(ctx),
            Act::Restarts { scope, delay } => {
                self.told(ctx, about, Level::Warning, Reaction::Restarts { scope, delay });
            }
            Act::Ended { removed } => {
                let abnormal =
                    about.is_some_and(|a| matches!(&a.cause, Cause::Ended(e) if e.is_abnormal()));
                let level = if abnormal { Level::Error } else { Level::Info };
                let reaction = if removed { Reaction::Removed } else { Reaction::StaysDown };
                self.told(ctx, about, level, reaction);
            }
            Act::NotAdded => {
                self.told(ctx, about, Level::Error, Reaction::Removed);
                if let Some(About { key, cause: Cause::NotStarted(exit), .. }) = about {
                    self.refuse(*key, || ChildError::NotStarted(exit.clone()));
                }
            }
            Act::Abandoned => self.told(ctx, about, Level::Critical, Reaction::Abandons),
            Act::Closes(why) => self.closes(ctx, about, why),
        }
    }

    fn closes(&mut self, ctx: &mut Ctx<Command>, about: Option<&About>, why: Closing) {
        let (level, reaction, exit) = match why {
            Closing::GaveUp => {
                (Level::Critical, Reaction::GivesUp, Exit::Shutdown(ShutdownCause::GaveUp))
            }
            Closing::AutoShutdown => {
                let exit = Exit::Shutdown(ShutdownCause::AutoShutdown);
                (Level::Info, Reaction::AutoShutdown, exit)
            }
            Closing::StartFailed => {
                let child = about.map_or_else(|| Arc::from("?"), |about| Arc::clone(&about.child));
                let exit = match about.map(|about| &about.cause) {
                    Some(Cause::NotStarted(exit) | Cause::Ended(exit)) => exit.clone(),
                    _ => Exit::Normal,
                };
                let error = StartError::Child { child, exit };
                self.failure = Some(error.clone());
                (Level::Error, Reaction::StartFails, Exit::failed(error))
            }
        };
        self.exit.get_or_insert(exit);
        self.told(ctx, about, level, reaction);
    }

    // --- children -------------------------------------------------------------------------------

    fn start(&mut self, ctx: &mut Ctx<Command>, key: Key, incarnation: u64) {
        let found = self.board.with(|state| {
            let listed = state.listed.get_mut(&key)?;
            let common = &listed.spec.common;
            Some((listed.spec.kind.clone(), Arc::clone(&common.name), listed.run.take()))
        });
        let Some((kind, name, former)) = found else { return };
        if let Some(left_behind) = former {
            left_behind.step_aside();
            contained(move || drop(left_behind));
        }
        let site = Site {
            runtime: self.site.runtime.clone(),
            path: format!("{}/{name}", self.site.path).into(),
            name,
            on_fault: self.site.on_fault.clone(),
        };
        let reporter = Reporter { supervisor: ctx.core().clone(), key, incarnation };
        match kind.0.start(site, reporter) {
            Ok(run) => {
                self.board.with(|state| {
                    if let Some(listed) = state.listed.get_mut(&key) {
                        listed.run = Some(run);
                    }
                });
            }
            Err(exit) => {
                if matches!(exit, Exit::Shutdown(ShutdownCause::Runtime)) {
                    // Nothing will ever start again.
                    self.exit.get_or_insert(exit.clone());
                    self.board.with(|state| state.plan.stop());
                }
                // In its turn, like any other end: so a start that fails at once is no loop in here.
                ctx.core().control(Entry::Own(Command::Exited(key, incarnation, exit, 0)));
            }
        }
    }

    fn stop(&mut self, ctx: &mut Ctx<Command>, key: Key, incarnation: u64, now: Timestamp) {
        let found = self.board.with(|state| {
            let listed = state.listed.get(&key)?;
            Some((listed.run.clone()?, listed.spec.common.shutdown))
        });
        let Some((run, shutdown)) = found else { return };
        run.stop(if shutdown == Shutdown::Brutal { Order::Kill } else { Order::ShutDown });
        if let Some(limit) = shutdown.limit() {
            let due = now.saturating_add(limit);
            let timer = ctx.send_at(due, Command::Overdue(key, incarnation));
            self.overdue.insert(key, timer);
        }
    }

    fn exited(
        &mut self,
        ctx: &mut Ctx<Command>,
        key: Key,
        incarnation: u64,
        exit: Exit,
        undelivered: usize,
    ) {
        // Rendered without the lock: it may be a foreign error.
        let mut said = String::new();
        contained(|| said = exit.to_string());
        let said: Arc<str> = said.into();
        let current = self.board.with(|state| {
            let child = state.plan.child(key).filter(|child| child.incarnation == incarnation)?;
            let was_starting = child.status == Status::Starting;
            let listed = state.listed.get_mut(&key)?;
            listed.last_exit = Some(said);
            Some((was_starting, listed.run.take()))
        });
        let abnormal = exit.is_abnormal();
        let about = match current {
            Some((was_starting, run)) => {
                contained(move || drop(run));
                if let Some(timer) = self.overdue.remove(&key) {
                    ctx.cancel_timer(timer);
                }
                let cause = if was_starting { Cause::NotStarted(exit) } else { Cause::Ended(exit) };
                self.about(key, incarnation, cause, undelivered)
            }
            None => {
                contained(move || drop(exit));
                None
            }
        };
        self.follow(ctx, about, |plan, now, acts| {
            plan.exited(key, incarnation, abnormal, now, acts);
        });
    }

    // --- telling ----------------------------------------------------------------------------------

    fn about(&self, key: Key, incarnation: u64, cause: Cause, undelivered: usize) -> Option<About> {
        let child = self.board.with(|state| {
            state.listed.get(&key).map(|listed| Arc::clone(&listed.spec.common.name))
        })?;
        Some(About { key, child, incarnation, cause, undelivered })
    }

    fn told(&self, ctx: &Ctx<Command>, about: Option<&About>, level: Level, reaction: Reaction) {
        if let Some(about) = about {
            self.tell(ctx, about, level, reaction);
        }
    }

    fn tell(&self, ctx: &Ctx<Command>, about: &About, level: Level, reaction: Reaction) {
        let Some(handler) = &self.site.on_fault else { return };
        let fault = Fault {
            level,
            supervisor: Arc::clone(&self.site.path),
            child: Arc::clone(&about.child),
            incarnation: about.incarnation,
            cause: about.cause.clone(),
            reaction,
            undelivered: about.undelivered,
            at: ctx.now(),
        };
        handler.tell(&fault);
        contained(move || drop(fault));
    }

    // --- requests ---------------------------------------------------------------------------------

    fn add(&mut self, ctx: &mut Ctx<Command>, spec: ChildSpec, answer: Answer) {
        let refused = if self.exit.is_some() {
            Some(ChildError::Stopping)
        } else if self.key_of(&spec.common.name).is_some() {
            Some(ChildError::Duplicate(Arc::clone(&spec.common.name)))
        } else {
            spec.check(self.board.with(|state| state.plan.auto_shutdown()))
                .err()
                .map(ChildError::Config)
        };
        if let Some(refused) = refused {
            contained(move || drop(spec));
            let _ = answer.set_error(refused);
            return;
        }
        let traits = traits(&spec);
        let key = self.board.with(|state| state.list(spec, traits, false));
        self.requests.push((key, Wanted::Up(0), answer));
        self.follow(ctx, None, |_, _, _| {});
    }

    fn key_of(&self, name: &str) -> Option<Key> {
        self.board.with(|state| state.names.get(name).copied())
    }

    fn request(
        &mut self,
        ctx: &mut Ctx<Command>,
        name: &Arc<str>,
        answer: Answer,
        wanted: impl FnOnce(u64) -> Wanted,
        change: impl FnOnce(&mut Plan, Key, &mut Vec<Act>),
    ) {
        if self.exit.is_some() {
            let _ = answer.set_error(ChildError::Stopping);
            return;
        }
        let Some(key) = self.key_of(name) else {
            let _ = answer.set_error(ChildError::Unknown(Arc::clone(name)));
            return;
        };
        let incarnation =
            self.board.with(|state| state.plan.child(key).map_or(0, |child| child.incarnation));
        self.requests.push((key, wanted(incarnation), answer));
        self.follow(ctx, None, |plan, _, acts| change(plan, key, acts));
    }

    /// Answers the requests that have come true, or cannot any more.
    fn answer(&mut self) {
        if self.requests.is_empty() {
            return;
        }
        let requests = core::mem::take(&mut self.requests);
        let stopping = self.exit.is_some();
        for (key, wanted, answer) in requests {
            let child = self.board.with(|state| {
                let child = state.plan.child(key)?;
                Some((child.status, child.incarnation, child.wanted))
            });
            let outcome = match (child, wanted) {
                (Some((Status::Up, now, _)), Wanted::Up(before)) if now > before => Some(Ok(())),
                (_, Wanted::Up(_)) if stopping => Some(Err(ChildError::Stopping)),
                (Some((Status::Down, _, false)), Wanted::Down) => Some(Ok(())),
                (Some((Status::Down, _, false)), Wanted::Up(_)) => Some(Err(ChildError::Down)),
                (None, Wanted::Gone | Wanted::Down) => Some(Ok(())),
                (None, Wanted::Up(_)) => Some(Err(ChildError::Down)),
                (Some(_), _) => None,
            };
            match outcome {
                // A callback of whoever waits runs in here, on the supervisor's worker.
                Some(outcome) => drop(answer.complete(outcome)),
                // Nobody waits any more.
                None if answer.is_cancelled() => drop(answer),
                None => self.requests.push((key, wanted, answer)),
            }
        }
    }

    fn refuse(&mut self, key: Key, why: impl Fn() -> ChildError) {
        let (refused, kept) =
            core::mem::take(&mut self.requests).into_iter().partition(|(its, ..)| *its == key);
        self.requests = kept;
        let refused: Vec<(Key, Wanted, Answer)> = refused;
        for (_, _, answer) in refused {
            let _ = answer.set_error(why());
        }
    }

    fn over(&mut self, ctx: &mut Ctx<Command>) {
        for (_, _, answer) in core::mem::take(&mut self.requests) {
            let _ = answer.set_error(ChildError::Stopping);
        }
        if let Some(started) = self.started.take() {
            let error = self.failure.take().unwrap_or(StartError::Stopped);
            contained(move || started(Err(error)));
        }
        ctx.end_with(self.exit.clone().unwrap_or(Exit::Normal));
    }
}

/// It ends in order, or was thrown away: then its children are told to stop, all at once.
impl Drop for Chief {
    fn drop(&mut self) {
        let runs: Vec<_> = self.board.with(|state| {
            state.over = true;
            state.listed.values_mut().filter_map(|listed| listed.run.take()).collect()
        });
        for run in &runs {
            run.stop(Order::ShutDown);
        }
        contained(move || drop(runs));
    }
}
