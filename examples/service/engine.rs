//! The only place that hands jobs to `tenure::runtime`.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure::retry::{Jitter, RetryBudget, RetryPolicy};
use tenure::runtime::{
    DeadLetter, Event, JobError, JobHandle, LetterFilter, ReplayError, Runtime, RuntimeHealth,
    Stats, SubmitError,
};
use tenure::supervise::Address;

use crate::Failure;
use crate::courier::{self, Courier};
use crate::delivery::{Delivery, End, Request};
use crate::desk::{Desk, Entered};
use crate::exposition::Exposition;
use crate::hosts::Hosts;
use crate::options::Serve;

/// How long attempts that run at the end of a stop may take to finish.
pub(crate) const LAST_MOMENTS: Duration = Duration::from_millis(500);

/// What is worth a word, of the times that the machine had no time for us.
const STANDSTILL: Duration = Duration::from_secs(1);

/// The runtime, and what it works on.
#[derive(Debug)]
pub(crate) struct Engine {
    runtime: Runtime,
    courier: Arc<Courier>,
    hosts: Hosts,
    books: Arc<Books>,
    exposition: Arc<Exposition>,
    retries: Arc<RetryBudget>,
    /// When the time of a delivery that does not say so itself is up.
    within: Duration,
    closing: AtomicBool,
}

/// What is written down when a delivery ends.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) desk: Desk,
    exposition: Arc<Exposition>,
}

/// What was made of a request for a delivery.
#[derive(Debug)]
pub(crate) enum Accepted {
    New(Arc<Delivery>),
    /// The same request came before.
    Known(Arc<Delivery>),
}

/// Why a delivery was not accepted, or a dead one not tried anew.
#[derive(Debug)]
pub(crate) enum Refused {
    Invalid(String),
    /// The id belongs to another delivery.
    Conflict,
    SubscriberFull,
    Full,
    Stopping,
    NoSuchLetter,
}

impl Engine {
    /// What somebody should look at is told to `alarms`.
    pub(crate) fn start(options: &Serve, alarms: &Address<Event>) -> Result<Self, Failure> {
        let retry = RetryPolicy::exponential(options.backoff)
            .max_delay(options.max_backoff)
            .jitter(Jitter::Full)
            .max_attempts(options.attempts)
            .build()?;
        // However many fail at once: retries are paid for by deliveries that arrive.
        let retries = Arc::new(
            RetryBudget::builder().ratio(options.retry_ratio).burst(options.retry_burst).build()?,
        );
        let exposition = Arc::new(Exposition::new()?);
        let books = Arc::new(Books {
            desk: Desk::new(options.keep as usize, options.per_subscriber),
            exposition: Arc::clone(&exposition),
        });
        let desk = Arc::clone(&books);
        let alarms = alarms.clone();
        let builder = Runtime::builder()
            .workers(usize::from(options.workers))
            .capacity(options.capacity as usize)
            .attempt_timeout(options.attempt_timeout)
            .retry(retry)
            .retry_budget(Arc::clone(&retries))
            .dead_letters(options.dead_letters as usize)
            .replayable(true)
            .on_letter_lost(move |letter| desk.forget(letter))
            .max_stuck_workers(usize::from(options.workers) * 4)
            .thread_name("courier")
            .on_event(move |event| {
                if is_alarming(event) {
                    // Full, or between two monitors: there is an alarm already.
                    let _ = alarms.try_tell(event.clone());
                }
            });
        // Has it measure how long jobs wait and run, too.
        #[cfg(feature = "metrics")]
        let builder = builder.metrics(tenure::runtime::Metrics::new());
        Ok(Self {
            runtime: builder.build()?,
            courier: Arc::new(Courier::new(options, exposition.attempts.clone())),
            hosts: Hosts::new(options)?,
            books,
            exposition,
            retries,
            within: options.deadline,
            closing: AtomicBool::new(false),
        })
    }

    pub(crate) fn books(&self) -> &Books {
        &self.books
    }

    pub(crate) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    pub(crate) fn exposition(&self) -> &Arc<Exposition> {
        &self.exposition
    }

    /// What Prometheus reads.
    pub(crate) fn render_metrics(&self) -> String {
        self.exposition.render(self)
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn publish_metrics(&self) -> Result<(), tenure::runtime::PublishError> {
        self.runtime.publish_metrics()
    }

    /// How many retries all deliveries together could make now.
    pub(crate) fn retries_left(&self) -> u32 {
        self.retries.balance()
    }

    pub(crate) fn health(&self) -> RuntimeHealth {
        self.runtime.health()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.runtime.stats()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        // Relaxed: who reads it too early is refused by the runtime, or is in time.
        self.closing.load(Ordering::Relaxed)
    }

    /// Takes a delivery in.
    pub(crate) fn accept(&self, request: Request) -> Result<Accepted, Refused> {
        if self.is_stopping() {
            return Err(Refused::Stopping);
        }
        let delivery = Arc::new(Delivery::new(request).map_err(Refused::Invalid)?);
        match self.books.desk.enter(&delivery) {
            Entered::New => {}
            Entered::Known(known) => return Ok(Accepted::Known(known)),
            Entered::Conflict => return Err(Refused::Conflict),
            Entered::TooMany => return Err(Refused::SubscriberFull),
        }
        match self.hand_in(&delivery) {
            Ok(job) => {
                self.books.await_end(&delivery, job);
                Ok(Accepted::New(delivery))
            }
            Err(refused) => {
                self.books.desk.withdraw(&delivery);
                Err(refused)
            }
        }
    }

    fn hand_in(&self, delivery: &Arc<Delivery>) -> Result<JobHandle<()>, Refused> {
        let breaker = self.hosts.breaker(&delivery.host).map_err(|_| Refused::Stopping)?;
        let courier = Arc::clone(&self.courier);
        let carried = Arc::clone(delivery);
        self.runtime
            .job(move |ctx| courier.attempt(ctx, &carried))
            .name(delivery.id.as_str())
            .key(delivery.subscriber.as_str())
            .deadline(delivery.within.unwrap_or(self.within))
            .breaker(&breaker)
            .judged_by(courier::of_the_host)
            .submit()
            .map_err(|refused| match refused {
                SubmitError::Full(_) => Refused::Full,
                _ => Refused::Stopping,
            })
    }

    /// The letters of the deliveries that were given up, the oldest first.
    pub(crate) fn dead(&self) -> Vec<Arc<DeadLetter>> {
        self.runtime.dead_letters().list()
    }

    /// The letter of a delivery; the jobs are called by the deliveries' ids.
    fn letter(&self, id: &str) -> Option<Arc<DeadLetter>> {
        self.runtime.dead_letters().find(&LetterFilter::new().name(id)).pop()
    }

    /// Tries a dead delivery anew.
    pub(crate) fn replay(&self, id: &str) -> Result<Arc<Delivery>, Refused> {
        if self.is_stopping() {
            return Err(Refused::Stopping);
        }
        let letter = self.letter(id).ok_or(Refused::NoSuchLetter)?;
        let delivery = self.books.desk.find(id).ok_or(Refused::NoSuchLetter)?;
        // Of several who ask at once, one has the letter.
        let job = self.runtime.dead_letters().replay(letter.id).map_err(|why| match why {
            ReplayError::Full => Refused::Full,
            ReplayError::Closed => Refused::Stopping,
            _ => Refused::NoSuchLetter,
        })?;
        self.books.desk.take_up_again(&delivery);
        self.books.await_end(&delivery, job);
        Ok(delivery)
    }

    /// Throws a dead delivery away. False: there is none of that id.
    pub(crate) fn purge(&self, id: &str) -> bool {
        let letter = self.letter(id).and_then(|l| self.runtime.dead_letters().purge(l.id));
        letter.is_some_and(|letter| {
            self.books.forget(&letter);
            true
        })
    }

    /// Throws all dead deliveries away. How many there were.
    pub(crate) fn purge_all(&self) -> usize {
        let letters = self.runtime.dead_letters().purge_all(&LetterFilter::new());
        letters.iter().for_each(|letter| self.books.forget(letter));
        letters.len()
    }

    /// Takes nothing more in, goes on for `grace` at most, and gives up what is left.
    pub(crate) fn stop(&self, grace: Duration) -> StopReport {
        let began = Instant::now();
        self.closing.store(true, Ordering::Relaxed);
        let before = self.stats();
        let _ = self.runtime.drain(grace);
        let left = self.books.desk.in_hand();
        let report = self.runtime.shutdown(LAST_MOMENTS);
        let after = self.stats();
        let lost = left.into_iter().filter(|d| d.ended() == Some(End::Undelivered));
        StopReport {
            took: began.elapsed(),
            delivered: after.succeeded - before.succeeded,
            dead: after.dead - before.dead,
            undelivered: lost.map(|delivery| delivery.id.clone()).collect(),
            abandoned: report.abandoned.len(),
        }
    }
}

impl Books {
    fn await_end(self: &Arc<Self>, delivery: &Arc<Delivery>, job: JobHandle<()>) {
        let (books, delivery) = (Arc::clone(self), Arc::clone(delivery));
        // On the worker that ends it (or the driver, or here): a lock or two, nothing that waits.
        job.on_complete(move |result| books.settle(&delivery, result));
    }

    fn settle(&self, delivery: &Delivery, result: Result<(), JobError>) {
        match result {
            Ok(()) => self.end(delivery, End::Delivered, None),
            Err(JobError::Dead(letter)) => self.end(delivery, End::Dead, Some(letter.to_string())),
            Err(other) => self.end(delivery, End::Undelivered, Some(other.to_string())),
        }
    }

    fn end(&self, delivery: &Delivery, end: End, why: Option<String>) {
        self.exposition.deliveries.record(delivery.end(end, why));
        self.desk.end(delivery, end);
    }

    /// A letter is gone, and with it its delivery.
    fn forget(&self, letter: &DeadLetter) {
        if let Some(id) = &letter.name {
            self.desk.forget(id);
        }
    }
}

/// What somebody may have to look at.
fn is_alarming(event: &Event) -> bool {
    match event {
        Event::WorkerStuck { replacement, .. } => replacement.is_none(),
        Event::ForeignPanic { .. } => true,
        Event::DriverLate { lag } => *lag >= STANDSTILL,
        _ => false,
    }
}

/// How a stop went.
#[derive(Debug)]
pub(crate) struct StopReport {
    took: Duration,
    delivered: u64,
    dead: u64,
    /// Accepted and not delivered: whoever sent them has to send them again.
    pub(crate) undelivered: Vec<String>,
    abandoned: usize,
}

impl StopReport {
    /// Whether nothing that was accepted is lost.
    pub(crate) fn is_clean(&self) -> bool {
        self.undelivered.is_empty()
    }
}

impl fmt::Display for StopReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "stopped in {:.1?}: {} delivered meanwhile, {} given up, {} not delivered, {} attempts abandoned",
            self.took,
            self.delivered,
            self.dead,
            self.undelivered.len(),
            self.abandoned,
        )?;
        for id in &self.undelivered {
            write!(f, "\nnot delivered: {id}")?;
        }
        Ok(())
    }
}
