//! Recorded histories of leases are linearizable, and the checker that says so is not easily pleased.
//!
//! `TENURE_HISTORIES=n` checks n histories instead of 200.

mod lease_support;

use std::collections::HashSet;

use lease_support::checker::is_linearizable;
use lease_support::record::history;
use lease_support::spec::{Call, Key, Op, Ret};
use stateright::semantics::{ConsistencyTester, LinearizabilityTester, SequentialSpec};

fn histories() -> u64 {
    std::env::var("TENURE_HISTORIES").ok().and_then(|n| n.parse().ok()).unwrap_or(200)
}

#[test]
fn recorded_histories_are_linearizable() {
    let first = fastrand::u64(..);
    println!("seeds from {first}");
    let (mut calls, mut refused, mut overlapping) = (0, 0, 0);
    for n in 0..histories() {
        let seed = first.wrapping_add(n);
        let history = history(seed);
        assert!(is_linearizable(&history), "seed {seed}: {}", print(&history));
        calls += history.len();
        refused += history.iter().filter(|call| call.ret == Ret::Lost).count();
        overlapping += history
            .iter()
            .filter(|a| history.iter().any(|b| a.begin < b.begin && b.begin < a.end))
            .count();
    }
    println!("{calls} calls, {refused} refused, {overlapping} overlapped by others");
    // Else the threads ran one after the other, and nothing was shown.
    assert!(overlapping * 10 > calls && refused > 0);
}

fn print(history: &[Call]) -> String {
    let mut calls = history.to_vec();
    calls.sort_by_key(|call| call.begin);
    calls.iter().map(|call| format!("\n{call:?}")).collect()
}

// ---- the checker ----

/// Calls one after the other, by one thread, at the times given.
fn sequence(calls: &[(u64, Op, Ret)]) -> Vec<Call> {
    calls
        .iter()
        .enumerate()
        .map(|(at, &(time, op, ret))| Call {
            thread: 0,
            op,
            ret,
            begin: 2 * at as u64,
            end: 2 * at as u64 + 1,
            early: time,
            late: time,
        })
        .collect()
}

fn acquired(token: u64, value: u64, version: u64) -> (Op, Ret) {
    (Op::Acquire { ttl: 10 }, Ret::Granted { token, value, version })
}

#[test]
fn the_checker_accepts_what_leases_do() {
    let (acquire, first) = acquired(1, 0, 0);
    let (again, second) = acquired(2, 0, 0);
    assert!(is_linearizable(&sequence(&[
        (0, acquire, first),
        (5, Op::Renew { token: 1, ttl: 10 }, Ret::Done),
        (15, Op::Renew { token: 1, ttl: 10 }, Ret::Lost),
        (16, again, second),
        (17, Op::Commit { token: 1, value: 7 }, Ret::Lost),
        (18, Op::Commit { token: 2, value: 8 }, Ret::Done),
        (19, Op::Peek, Ret::Seen { value: 8, version: 1, held: None, latest: 2 }),
    ])));
}

#[test]
fn the_checker_rejects_planted_violations() {
    let (acquire, first) = acquired(1, 0, 0);
    let (again, second) = acquired(2, 0, 0);
    let stale_commit = [
        (0, acquire, first),
        (11, again, second),
        (12, Op::Commit { token: 1, value: 7 }, Ret::Done),
    ];
    let token_reused =
        [(0, acquire, first), (1, Op::Release { token: 1 }, Ret::Done), (2, acquire, first)];
    let token_reused_after_expiry = [(0, acquire, first), (11, acquire, first)];
    let renewed_after_expiry =
        [(0, acquire, first), (10, Op::Renew { token: 1, ttl: 10 }, Ret::Done)];
    let revived = [
        (0, acquire, first),
        (10, Op::Valid { token: 1 }, Ret::Lost),
        (10, Op::Valid { token: 1 }, Ret::Done),
    ];
    let two_owners = [(0, acquire, first), (5, again, second)];
    let taken_at_the_deadline = [(0, acquire, first), (10, again, second)];
    let draft_seen = [
        (0, acquire, first),
        (1, Op::Commit { token: 1, value: 7 }, Ret::Done),
        (2, Op::Peek, Ret::Seen { value: 8, version: 1, held: None, latest: 1 }),
    ];
    let reverted = [
        (0, acquire, first),
        (1, Op::Checkpoint { token: 1, value: 7 }, Ret::Done),
        (2, Op::Peek, Ret::Seen { value: 0, version: 0, held: Some(1), latest: 1 }),
    ];
    let version_skipped = [
        (0, acquire, first),
        (1, Op::Checkpoint { token: 1, value: 7 }, Ret::Done),
        (2, Op::Peek, Ret::Seen { value: 7, version: 2, held: Some(1), latest: 1 }),
    ];
    let refused_for_nothing =
        [(0, acquire, first), (1, Op::Commit { token: 1, value: 7 }, Ret::Lost)];
    let shortened = [
        (0, acquire, first),
        (1, Op::Renew { token: 1, ttl: 1 }, Ret::Done),
        (5, Op::Valid { token: 1 }, Ret::Lost),
    ];
    let accepted_late = [
        (0, acquire, first),
        (1, Op::Transfer { token: 1, within: 5 }, Ret::Offered { token: 2 }),
        (6, Op::Accept { token: 2, ttl: 10 }, Ret::Done),
    ];
    let giver_commits = [
        (0, acquire, first),
        (1, Op::Transfer { token: 1, within: 5 }, Ret::Offered { token: 2 }),
        (2, Op::Commit { token: 1, value: 7 }, Ret::Done),
    ];
    let blind_revocation = [
        (0, acquire, first),
        (1, Op::Release { token: 1 }, Ret::Done),
        (2, again, second),
        (3, Op::Revoke { token: 1 }, Ret::Done),
    ];
    type Step = (u64, Op, Ret);
    let planted: [(&str, &[Step]); 15] = [
        ("stale commit", &stale_commit),
        ("token reused", &token_reused),
        ("token reused after expiry", &token_reused_after_expiry),
        ("renewed after expiry", &renewed_after_expiry),
        ("revived", &revived),
        ("two owners", &two_owners),
        ("taken at the deadline", &taken_at_the_deadline),
        ("draft seen", &draft_seen),
        ("reverted", &reverted),
        ("version skipped", &version_skipped),
        ("refused for nothing", &refused_for_nothing),
        ("shortened", &shortened),
        ("accepted late", &accepted_late),
        ("giver commits", &giver_commits),
        ("blind revocation", &blind_revocation),
    ];
    for (name, calls) in planted {
        assert!(!is_linearizable(&sequence(calls)), "{name} went unseen");
        assert!(is_linearizable(&sequence(&calls[..calls.len() - 1])), "{name} was legal before");
    }
}

#[test]
fn the_checker_uses_the_order_of_begins_and_ends() {
    let (acquire, first) = acquired(1, 0, 0);
    let seen = Ret::Seen { value: 0, version: 0, held: None, latest: 0 };
    let mut calls = sequence(&[(0, acquire, first), (0, Op::Peek, seen)]);
    assert!(!is_linearizable(&calls), "a look after the grant does not see the time before it");
    calls[1].begin = 0;
    assert!(is_linearizable(&calls), "one that began with it may");
}

/// Changes one answer; `None` if this call has only one.
fn falsify(call: &Call, rng: &mut fastrand::Rng) -> Option<Ret> {
    Some(match (call.op, call.ret) {
        (Op::Acquire { .. }, Ret::Granted { token, value, version }) => {
            Ret::Granted { token: token + 1 - 2 * rng.u64(0..2), value, version }
        }
        (Op::Acquire { .. } | Op::Peek | Op::Transfer { .. }, _) => return None,
        (_, Ret::Done) => Ret::Lost,
        (_, Ret::Lost) => Ret::Done,
        _ => return None,
    })
}

#[test]
fn most_falsified_histories_are_rejected() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut falsified, mut rejected, mut stale, mut stale_rejected) = (0, 0, 0, 0);
    for n in 0..150 {
        let mut history = history(seed.wrapping_add(n));
        let at = rng.usize(0..history.len());
        let call = history[at];
        let Some(ret) = falsify(&call, &mut rng) else { continue };
        history[at].ret = ret;
        let refused = !is_linearizable(&history);
        falsified += 1;
        rejected += u64::from(refused);
        if matches!((call.op, call.ret), (Op::Commit { .. } | Op::Checkpoint { .. }, Ret::Lost)) {
            stale += 1;
            stale_rejected += u64::from(refused);
        }
    }
    println!(
        "{rejected} of {falsified} rejected, of refused commits said accepted {stale_rejected} of {stale}"
    );
    // The rest is legal: a call near a deadline may go either way.
    assert!(rejected * 4 >= falsified * 3);
}

// ---- another checker ----

/// The model for `stateright`: every state that the key may be in.
#[derive(Clone, Debug, PartialEq)]
struct Reference(Vec<Key>);

impl SequentialSpec for Reference {
    /// With the clock before and after.
    type Op = (Op, u64, u64);
    type Ret = Ret;

    fn invoke(&mut self, _: &Self::Op) -> Ret {
        unreachable!("every recorded call has its answer")
    }

    fn is_valid_step(&mut self, (op, early, late): &Self::Op, ret: &Ret) -> bool {
        let call =
            Call { thread: 0, op: *op, ret: *ret, begin: 0, end: 0, early: *early, late: *late };
        let after: HashSet<_> = self.0.iter().flat_map(|key| key.after(&call)).collect();
        self.0 = after.into_iter().collect();
        !self.0.is_empty()
    }
}

fn by_stateright(history: &[Call]) -> bool {
    let mut events: Vec<_> = history
        .iter()
        .flat_map(|call| [(call.begin, call, true), (call.end, call, false)])
        .collect();
    events.sort_by_key(|(order, _, _)| *order);
    let mut tester = LinearizabilityTester::new(Reference(vec![Key::new()]));
    for (_, call, begins) in events {
        let step = if begins {
            tester.on_invoke(call.thread, (call.op, call.early, call.late)).map(|_| ())
        } else {
            tester.on_return(call.thread, call.ret).map(|_| ())
        };
        step.expect("a thread's calls do not overlap");
    }
    tester.is_consistent()
}

#[test]
fn both_checkers_agree() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut accepted, mut rejected) = (0, 0);
    for n in 0..60 {
        // Their search remembers nothing of what it tried: what is refuted has to be short. A history's
        // beginning, up to a moment when nothing is under way, is a history.
        let history = beginning(history(seed.wrapping_add(n)), 9);
        assert!(is_linearizable(&history) && by_stateright(&history), "{}", print(&history));
        accepted += 1;
        for at in 0..history.len() {
            let mut history = history.clone();
            if let Some(ret) = falsify(&history[at], &mut rng) {
                history[at].ret = ret;
                let ours = is_linearizable(&history);
                assert_eq!(ours, by_stateright(&history), "{}", print(&history));
                accepted += u64::from(ours);
                rejected += u64::from(!ours);
            }
        }
    }
    println!("both accepted {accepted} and rejected {rejected}");
    assert!(accepted > 0 && rejected > 0);
}

/// The calls that begin among the first `most`, and those that they overlap with in turn.
fn beginning(mut history: Vec<Call>, most: usize) -> Vec<Call> {
    history.sort_by_key(|call| call.begin);
    let mut quiet = 0;
    let mut latest = 0;
    for (at, call) in history.iter().enumerate() {
        if call.begin > latest && at <= most {
            quiet = at;
        }
        latest = latest.max(call.end);
    }
    history.truncate(quiet);
    history
}
