//! The leased worker: who comes back too late finds that it is nobody any more.
//!
//! A lease lasts 500 ms. A worker that needs 300 ms commits; one that needs 600 ms is a zombie when it
//! comes back: its commit is refused, whatever it is called, and its successor's value stands. What
//! the table does not own (a disk, a service) refuses it at a gate, by its token.
//!
//! `cargo run --example leased_worker` prints what it checks, and fails if one of it does not hold. No
//! time passes in it: the leases are on a clock that is moved by hand.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tenure::clock::ManualClock;
use tenure::lease::{
    AcquireError, FenceGate, FencingToken, LeaseEventKind, LeaseRequest, LeaseTable, Lost, Refusal,
};

type Failure = Box<dyn std::error::Error>;
type Accounts = Arc<LeaseTable<&'static str, u64, ManualClock>>;

const LEASE: Duration = Duration::from_millis(500);

fn check(claim: &str, holds: bool) -> Result<(), Failure> {
    println!("{} {claim}", if holds { "ok   " } else { "FALSE" });
    if holds { Ok(()) } else { Err(claim.into()) }
}

/// A worker with a name and a thread of its own. It takes the lease, works until it is told that its
/// work is done, and commits.
struct Worker {
    token: FencingToken,
    finish: mpsc::Sender<u64>,
    thread: JoinHandle<Result<(), Refusal>>,
}

impl Worker {
    fn start(accounts: &Accounts, name: &'static str) -> Result<Self, Failure> {
        let (acquired, token) = mpsc::channel();
        let (finish, finished) = mpsc::channel();
        let accounts = Arc::clone(accounts);
        let thread = thread::spawn(move || {
            let lease = accounts.try_acquire(&"balance", LeaseRequest::new(LEASE).owner(name));
            let mut lease = match lease {
                Ok(lease) => lease,
                Err(refused) => {
                    let _ = acquired.send(Err(refused));
                    return Ok(());
                }
            };
            let _ = acquired.send(Ok(lease.token()));
            // The draft is this worker's own: nobody sees it before it is committed.
            *lease = finished.recv().unwrap_or_default();
            lease.commit().map_err(|refused| refused.why())
        });
        Ok(Self { token: token.recv()??, finish, thread })
    }

    /// Its work is done: what became of the commit.
    fn finish(self, value: u64) -> Result<Result<(), Refusal>, Failure> {
        self.finish.send(value)?;
        self.thread.join().map_err(|_| "the worker panicked".into())
    }
}

fn main() -> Result<(), Failure> {
    let clock = ManualClock::new();
    let accounts: Accounts = Arc::new(LeaseTable::with_clock(clock.clone()));
    let audit = accounts.subscribe(64);
    let balance = || accounts.peek(&"balance").map(|peek| peek.value);

    println!("-- 300 ms of a 500 ms lease");
    let worker = Worker::start(&accounts, "worker 1")?;
    clock.advance(Duration::from_millis(300));
    check("nothing is seen before the commit", balance() == Some(0))?;
    let second = accounts.try_acquire(&"balance", LEASE);
    check(
        "nobody else has it meanwhile",
        matches!(second, Err(AcquireError::Held { token, .. }) if token == worker.token),
    )?;
    check("it commits", worker.finish(100)? == Ok(()))?;
    check("its value stands", balance() == Some(100))?;

    println!("-- 600 ms of a 500 ms lease, and nobody took over");
    let zombie = Worker::start(&accounts, "worker 1")?;
    clock.advance(Duration::from_millis(600));
    check("it is refused", zombie.finish(666)? == Err(Refusal::Lost(Lost::Expired)))?;
    check("what it did never happened", balance() == Some(100))?;

    println!("-- 600 ms of a 500 ms lease, and a successor");
    let zombie = Worker::start(&accounts, "worker 1")?;
    clock.advance(Duration::from_millis(600));
    let successor = Worker::start(&accounts, "worker 2")?;
    check("the successor's token is greater", successor.token > zombie.token)?;
    let by = successor.token;
    check("the zombie is refused", zombie.finish(666)? == Err(Lost::Superseded { by }.into()))?;
    check("the successor commits", successor.finish(200)? == Ok(()))?;
    check("the successor's value stands", balance() == Some(200))?;

    println!("-- a successor of the same name");
    let zombie = Worker::start(&accounts, "worker 1")?;
    clock.advance(Duration::from_millis(600));
    let namesake = Worker::start(&accounts, "worker 1")?;
    let by = namesake.token;
    check("a name is no identity", zombie.finish(666)? == Err(Lost::Superseded { by }.into()))?;
    check("the namesake commits", namesake.finish(300)? == Ok(()))?;
    check("its value stands", balance() == Some(300))?;

    println!("-- a disk, which no table owns");
    let disk = FenceGate::new();
    let mut written = Vec::new();
    let late = accounts.try_acquire(&"disk", LEASE)?;
    disk.write(&late.check()?, || written.push("by the first"))?;
    let late_token = late.token();
    clock.advance(Duration::from_millis(600));
    check("the late one can ask", matches!(late.check(), Err(Lost::Expired)))?;
    let now = accounts.try_acquire(&"disk", LEASE)?;
    disk.write(&now.check()?, || written.push("by the second"))?;
    let refused = disk.admit(late_token);
    check(
        "one that does not ask is kept out",
        refused.is_err_and(|fenced| fenced.seen == now.token()),
    )?;
    check("the disk has two writes", written == ["by the first", "by the second"])?;

    let refusals =
        audit.try_iter().filter(|event| event.kind == LeaseEventKind::CommitRefused).count();
    check("the audit trail has the three refusals", refusals == 3)
}
