//! The verbs, one after another.

use super::word::ATTEMPT_MASK;
use super::*;

#[test]
fn the_life_of_a_job_that_fails_once() {
    let word = StateCell::new(State::Ready);
    assert_eq!(word.start(false), Start::Run { epoch: 1, attempt: 1 });
    assert!(word.is_current(1));
    assert_eq!(word.fail(1, Then::Retry), Lost::Backoff { epoch: 1 });
    assert_eq!(word.fire(0, false), Fired::Stale, "a timer of another epoch");
    assert_eq!(word.fire(1, true), Fired::Ready);
    assert_eq!(word.fire(1, false), Fired::Stale);
    assert_eq!(word.start(false), Start::Run { epoch: 2, attempt: 2 });
    assert_eq!(word.complete(1), Claim::Fenced);
    assert_eq!(word.complete(2), Claim::Claimed);
    assert_eq!(word.cancel(false), Cancel::TooLate);
    let ended = word.publish(State::Succeeded, true);
    assert_eq!(ended, Ended { wake: false, drop_result: false, drop_closure: true });
    assert_eq!(word.settled().map(Word::state), Some(State::Succeeded));
}

#[test]
fn a_rescued_attempt_keeps_the_closure_until_it_leaves() {
    let word = StateCell::new(State::Ready);
    assert_eq!(word.start(false), Start::Run { epoch: 1, attempt: 1 });
    assert!(word.heartbeat(1));
    assert_eq!(word.rescue(1, Then::Retry, false), Lost::Alive);
    assert_eq!(word.rescue(1, Then::Retry, false), Lost::Backoff { epoch: 2 });
    assert_eq!(word.rescue(1, Then::Retry, false), Lost::Fenced);
    assert!(!word.heartbeat(1));
    assert_eq!(word.fire(2, false), Fired::Ready);
    assert_eq!(word.start(false), Start::Run { epoch: 3, attempt: 2 });
    assert_eq!(word.rescue(3, Then::Die, true), Lost::Dying);
    let ended = word.publish(State::Dead, false);
    assert!(!ended.drop_closure);
    assert!(!word.exit());
    assert!(word.exit(), "the last one out drops it");
}

#[test]
fn an_attempt_cancels_only_while_it_is_the_current_one() {
    let word = StateCell::new(State::Ready);
    assert_eq!(word.start(false), Start::Run { epoch: 1, attempt: 1 });
    assert_eq!(word.rescue(1, Then::Retry, false), Lost::Backoff { epoch: 2 });
    assert_eq!(word.fail(1, Then::Cancel), Lost::Fenced);
    assert_eq!(word.fire(2, false), Fired::Ready);
    assert_eq!(word.fail(1, Then::Cancel), Lost::Fenced);
    assert_eq!(word.start(false), Start::Run { epoch: 3, attempt: 2 });
    assert_eq!(word.fail(1, Then::Cancel), Lost::Fenced);
    assert!(matches!(word.fail(3, Then::Cancel), Lost::Cancelled(_)));
}

#[test]
fn an_epoch_or_a_runner_too_many_ends_the_job() {
    let word = StateCell::with_epoch(State::Ready, u32::MAX - 1);
    assert_eq!(word.start(false), Start::UsedUp);
    let word = StateCell::new(State::Ready);
    for runner in 0..MAX_RUNNERS {
        let Start::Run { epoch, .. } = word.start(false) else { panic!("runner {runner}") };
        let Lost::Backoff { epoch } = word.rescue(epoch, Then::Retry, false) else { panic!() };
        assert_eq!(word.fire(epoch, false), Fired::Ready);
    }
    assert_eq!(word.start(false), Start::UsedUp);
}

#[test]
fn attempts_saturate_below_the_epoch() {
    let mut word = Word(State::Leased as u64 | ATTEMPT_MASK);
    word = word.attempt_ended();
    assert_eq!((word.attempts(), word.epoch()), (u16::MAX, 0));
}

#[test]
fn a_scheduled_job_lines_up_for_its_key_or_is_ready() {
    assert_eq!(StateCell::new(State::Scheduled).fire(0, false), Fired::Ready);
    let word = StateCell::new(State::Scheduled);
    assert_eq!(word.fire(0, true), Fired::InLine);
    assert_eq!(word.fire(0, true), Fired::Stale);
    assert!(word.resume());
}

#[test]
fn a_task_keeps_its_epoch_and_is_polled_once_a_wake() {
    let word = StateCell::new(State::Ready);
    assert_eq!(word.start(true), Start::Run { epoch: 1, attempt: 1 });
    assert_eq!(word.suspend(1), Parked::Suspended);
    assert!(word.wake());
    assert!(!word.wake(), "its entry is there already");
    assert_eq!(word.start(true), Start::Run { epoch: 1, attempt: 1 });
    assert!(!word.wake(), "it is being polled");
    assert_eq!(word.suspend(1), Parked::Again);
    assert_eq!(word.start(true), Start::Run { epoch: 1, attempt: 1 });
    assert_eq!(word.suspend(1), Parked::Suspended);
    assert!(matches!(word.cancel(false), Cancel::Now { from: State::Suspended, .. }));
    assert!(!word.wake());
}

#[test]
fn attempts_that_must_not_meet_wait_for_the_late_one() {
    let word = StateCell::new(State::Ready);
    assert_eq!(word.start(false), Start::Run { epoch: 1, attempt: 1 });
    assert_eq!(word.rescue(1, Then::Retry, false), Lost::Backoff { epoch: 2 });
    assert_eq!(word.fire_alone(1, false), Fired::Stale);
    assert_eq!(word.fire_alone(2, false), Fired::Marked);
    assert!(matches!(word.start(false), Start::Stale(_)));
    assert_eq!(word.exit_alone(), Left::Ready);
    assert_eq!(word.start(false), Start::Run { epoch: 3, attempt: 2 });
    // The late one leaves before the time has come.
    assert_eq!(word.rescue(3, Then::Retry, false), Lost::Backoff { epoch: 4 });
    assert_eq!(word.exit_alone(), Left::Nothing);
    assert_eq!(word.fire_alone(4, true), Fired::Ready);
    assert_eq!(word.start(false), Start::Run { epoch: 5, attempt: 3 });
    // Cancelled while it waits for the late one, which then has the closure to drop.
    assert_eq!(word.rescue(5, Then::Retry, false), Lost::Backoff { epoch: 6 });
    assert_eq!(word.fire_alone(6, false), Fired::Marked);
    let Cancel::Now { ended, .. } = word.cancel(false) else { panic!() };
    assert!(!ended.drop_closure);
    assert_eq!(word.exit_alone(), Left::Closure);
}

#[test]
fn debug_prints_names() {
    let word = StateCell::new(State::Suspended);
    assert!(matches!(word.cancel(true), Cancel::Now { from: State::Suspended, .. }));
    assert_eq!(
        format!("{word:?}"),
        "Cancelled epoch 0 attempts 0 runners 0 CANCEL_REQUESTED BY_SHUTDOWN"
    );
}

#[test]
fn a_gated_job_goes_on_is_cancelled_or_runs_out_of_time() {
    let word = StateCell::new(State::Ready);
    assert!(!word.ungate());
    assert!(word.gate());
    assert!(!word.gate(), "it is there already");
    assert!(!word.resume(), "that is for those in line for a key");
    assert!(matches!(word.start(false), Start::Stale(_)));
    assert!(word.ungate());
    assert!(word.gate());
    assert!(word.peek().state().has_its_key());
    assert!(matches!(word.cancel(false), Cancel::Now { from: State::Gated, .. }));
    assert!(!word.ungate());

    let word = StateCell::new(State::Ready);
    assert!(word.gate());
    assert_eq!(word.expire(), Some(State::Gated));
    assert_eq!(word.expire(), None);
    assert!(word.publish(State::Dead, false).drop_closure);
}

#[test]
fn an_attempt_that_runs_does_not_expire() {
    let word = StateCell::new(State::Ready);
    assert_eq!(word.start(false), Start::Run { epoch: 1, attempt: 1 });
    assert_eq!(word.expire(), None);
    assert_eq!(word.fail(1, Then::Retry), Lost::Backoff { epoch: 1 });
    assert_eq!(word.expire(), Some(State::Backoff));
    assert_eq!(word.fire(1, false), Fired::Stale);
    assert_eq!(word.cancel(false), Cancel::TooLate);
}

/// A job with two attempts inside that share an epoch.
fn hedged() -> StateCell {
    let word = StateCell::new(State::Ready);
    assert_eq!(word.hedge(1), None, "nobody has begun");
    assert_eq!(word.start(false), Start::Run { epoch: 1, attempt: 1 });
    assert_eq!(word.hedge(2), None, "of another epoch");
    assert_eq!(word.hedge(1), Some(1));
    assert_eq!(word.hedge(1), None, "two are enough");
    assert!(word.is_current(1));
    word
}

#[test]
fn of_two_attempts_the_first_to_have_a_value_wins() {
    let word = hedged();
    assert_eq!(word.complete(1), Claim::Claimed);
    assert_eq!(word.complete(1), Claim::Fenced);
    assert!(!word.is_current(1));
    assert!(!word.publish(State::Succeeded, true).drop_closure, "the loser is inside");
    assert!(word.exit());
}

#[test]
fn of_two_attempts_the_first_to_fail_leaves_it_to_the_other() {
    let word = hedged();
    assert_eq!(word.fail(1, Then::Retry), Lost::Outlived);
    assert!(word.is_current(1));
    assert_eq!(word.fail(1, Then::Retry), Lost::Backoff { epoch: 1 });
    assert_eq!(word.peek().attempts(), 1, "both were one");
    let word = hedged();
    assert_eq!(word.fail(1, Then::Die), Lost::Outlived);
    assert_eq!(word.complete(1), Claim::Claimed);
    // What no attempt can mend does not wait for the other.
    let word = hedged();
    assert_eq!(word.fail(1, Then::Fail), Lost::Dying);
    assert_eq!(word.complete(1), Claim::Fenced);
    let word = hedged();
    assert!(matches!(word.fail(1, Then::Cancel), Lost::Cancelled(_)));
}

#[test]
fn two_attempts_are_cancelled_and_rescued_together() {
    let word = hedged();
    assert_eq!(word.cancel(false), Cancel::Requested);
    assert_eq!(word.fail(1, Then::Retry), Lost::Outlived);
    assert!(matches!(word.fail(1, Then::Retry), Lost::Cancelled(_)));
    let word = hedged();
    assert!(word.heartbeat(1));
    assert_eq!(word.rescue(1, Then::Retry, false), Lost::Alive);
    assert_eq!(word.rescue(1, Then::Retry, false), Lost::Backoff { epoch: 2 });
    assert_eq!(word.fail(1, Then::Retry), Lost::Fenced);
    assert_eq!(word.peek().runners(), 2);
}
