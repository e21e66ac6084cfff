//! Random calls from several threads on one key, recorded.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use tenure::clock::{Clock, ManualClock, Timestamp};
use tenure::lease::*;

use super::spec::{Call, Op, Ret, Time};

type Table = LeaseTable<u8, u64, Pausing>;
type Owned = OwnedLease<u8, u64, Pausing>;

/// A clock at which threads are often preempted: before they read it, and between reading it and acting
/// on it. So calls overlap, and act on a time that has passed.
#[derive(Clone, Debug)]
struct Pausing(ManualClock);

impl Clock for Pausing {
    fn now(&self) -> Timestamp {
        pause();
        let now = self.0.now();
        pause();
        now
    }

    fn real_time_until(&self, _: Timestamp) -> Option<Duration> {
        None
    }
}

fn pause() {
    for _ in 0..fastrand::u8(0..3) {
        std::thread::yield_now();
    }
}

struct Recorder<'t> {
    table: &'t Table,
    clock: &'t ManualClock,
    order: &'t AtomicU64,
    /// Tokens that somebody had.
    known: &'t Mutex<Vec<FencingToken>>,
    thread: usize,
    rng: fastrand::Rng,
    lease: Option<Owned>,
    calls: Vec<Call>,
}

fn number(token: FencingToken) -> u64 {
    u64::from_be_bytes(token.to_bytes())
}

fn now(clock: &ManualClock) -> Time {
    clock.now().as_nanos() / 1_000_000
}

impl Recorder<'_> {
    fn call<R>(&mut self, op: Op, run: impl FnOnce(&Table) -> (Ret, R)) -> R {
        pause();
        let begin = self.order.fetch_add(1, Ordering::SeqCst);
        let early = now(self.clock);
        let (ret, result) = run(self.table);
        let late = now(self.clock);
        let end = self.order.fetch_add(1, Ordering::SeqCst);
        self.calls.push(Call { thread: self.thread, op, ret, begin, end, early, late });
        result
    }

    fn some_token(&mut self) -> Option<FencingToken> {
        let known = self.known.lock().unwrap();
        self.rng.choice(known.iter().copied())
    }

    fn step(&mut self) {
        let ttl = self.rng.u64(1..5);
        let long = Duration::from_millis(ttl);
        match (self.lease.take(), self.rng.u8(0..10)) {
            (None, 0..6) => {
                let lease =
                    self.call(Op::Acquire { ttl }, |table| match table.try_acquire(&0, long) {
                        Ok(lease) => {
                            let token = number(lease.token());
                            let (value, version) = (*lease, lease.version());
                            (Ret::Granted { token, value, version }, Some(lease))
                        }
                        Err(AcquireError::Held { token, .. }) => {
                            (Ret::Held { by: number(token) }, None)
                        }
                        Err(other) => panic!("{other:?}"),
                    });
                if let Some(lease) = &lease {
                    self.known.lock().unwrap().push(lease.token());
                }
                self.lease = lease;
            }
            (lease, 6) => {
                self.lease = lease;
                self.call(Op::Peek, |table| {
                    let peek = table.peek(&0).unwrap();
                    let held = peek.token.filter(|_| peek.state != LeaseState::Free).map(number);
                    let latest = peek.token.map_or(0, number);
                    (Ret::Seen { value: peek.value, version: peek.version, held, latest }, ())
                });
            }
            (None, 7..) => {
                let Some(token) = self.some_token() else { return };
                if self.rng.bool() {
                    self.call(Op::Release { token: number(token) }, |table| {
                        (released(table.release(&0, token)), ())
                    });
                } else {
                    self.call(Op::Revoke { token: number(token) }, |table| {
                        let ret = match table.revoke(&0, token, "test") {
                            Revocation::Revoked => Ret::Done,
                            Revocation::Stale { .. } => Ret::Lost,
                            Revocation::NoSuchKey => panic!("the key is there"),
                        };
                        (ret, ())
                    });
                }
            }
            (Some(mut lease), choice) => {
                let token = number(lease.token());
                let value = self.rng.u64(..);
                self.lease = match choice {
                    0 => {
                        let op = Op::Renew { token, ttl };
                        Some(self.call(op, |_| match lease.renew(long) {
                            Ok(()) => (Ret::Done, lease),
                            Err(RenewError::Lost(_)) => (Ret::Lost, lease),
                            Err(other) => panic!("{other:?}"),
                        }))
                    }
                    1 => Some(self.call(Op::Valid { token }, |_| {
                        (if lease.is_valid() { Ret::Done } else { Ret::Lost }, lease)
                    })),
                    2 | 3 => Some(self.call(Op::Checkpoint { token, value }, |_| {
                        lease.set(value);
                        let ret = match lease.checkpoint() {
                            Ok(()) => Ret::Done,
                            Err(Refusal::Lost(_)) => Ret::Lost,
                            Err(other) => panic!("{other:?}"),
                        };
                        lease.revert();
                        (ret, lease)
                    })),
                    4 | 5 => self.call(Op::Commit { token, value }, |_| {
                        lease.set(value);
                        match lease.commit() {
                            Ok(()) => (Ret::Done, None),
                            Err(_) => (Ret::Lost, None),
                        }
                    }),
                    7 => {
                        self.call(Op::Release { token }, |_| (released(lease.release()), ()));
                        None
                    }
                    8 => self.hand_over(lease, ttl),
                    // Goes on without its guard.
                    _ => {
                        lease.into_token();
                        None
                    }
                };
            }
        }
    }

    fn hand_over(&mut self, lease: Owned, ttl: Time) -> Option<Owned> {
        let token = number(lease.token());
        let long = Duration::from_millis(ttl);
        let handoff = self.call(Op::Transfer { token, within: ttl }, |_| {
            match lease.transfer("heir", long) {
                Ok(handoff) => (Ret::Offered { token: number(handoff.token()) }, Ok(handoff)),
                Err(late) => (Ret::Lost, Err(late.into_guard())),
            }
        });
        let handoff = match handoff {
            Ok(handoff) => handoff,
            Err(lease) => return Some(lease),
        };
        self.known.lock().unwrap().push(handoff.token());
        let token = number(handoff.token());
        self.call(Op::Accept { token, ttl }, |_| match handoff.accept(long) {
            Ok(lease) => (Ret::Done, Some(lease)),
            Err(_) => (Ret::Lost, None),
        })
    }

    /// What a guard does when it is dropped is a call like any other.
    fn finish(&mut self) {
        if let Some(lease) = self.lease.take() {
            let token = number(lease.token());
            self.call(Op::Release { token }, |_| (released(lease.release()), ()));
        }
    }
}

fn released(release: Release) -> Ret {
    match release {
        Release::Released => Ret::Done,
        Release::AlreadyReleased => Ret::Already,
        Release::Lost(_) => Ret::Lost,
    }
}

/// A history of at most 64 calls. The seed decides what is called; the system decides when.
pub(crate) fn history(seed: u64) -> Vec<Call> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let threads = rng.usize(2..=8);
    // Two calls a step at most, one to finish, and the last look.
    let steps = (60 / threads).saturating_sub(1) / 2;
    let clock = ManualClock::new();
    let limit = [1, 3, u64::MAX][rng.usize(0..3)];
    let table: Table =
        LeaseTable::<u8, u64>::builder().clock(Pausing(clock.clone())).epoch_limit(limit).build();
    table.handle(&0).unwrap();
    let (order, known) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let mut calls = Vec::new();
    let start = Barrier::new(threads + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let mut recorder = Recorder {
                    table: &table,
                    clock: &clock,
                    order: &order,
                    known: &known,
                    thread,
                    rng: rng.fork(),
                    lease: None,
                    calls: Vec::new(),
                };
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    for _ in 0..steps {
                        recorder.step();
                    }
                    recorder.finish();
                    recorder.calls
                })
            })
            .collect();
        start.wait();
        for _ in 0..rng.usize(2..12) {
            clock.advance(Duration::from_millis(1));
            std::thread::yield_now();
        }
        for worker in workers {
            calls.extend(worker.join().unwrap());
        }
    });
    clock.advance(Duration::from_millis(rng.u64(0..6)));
    // What is left, for all to have added up to.
    let mut last = Recorder {
        table: &table,
        clock: &clock,
        order: &order,
        known: &known,
        thread: threads,
        rng,
        lease: None,
        calls: Vec::new(),
    };
    last.call(Op::Peek, |table| {
        let peek = table.peek(&0).unwrap();
        let held = peek.token.filter(|_| peek.state != LeaseState::Free).map(number);
        let latest = peek.token.map_or(0, number);
        (Ret::Seen { value: peek.value, version: peek.version, held, latest }, ())
    });
    calls.extend(last.calls);
    calls
}
