//! Dead letters through the public API: looked through, replayed, thrown away, pushed out.

mod runtime_support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use tenure::clock::{Clock, ManualClock};
use tenure::retry::{RetryPolicy, Stop};
use tenure::runtime::{
    Event, JobCtx, JobError, JobId, LetterFilter, LettersFull, Outcome, ReplayError, Runtime,
    Unkept,
};

use runtime_support::{LONG, SECOND, advance_until, at_once, until, until_event, until_stats};

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

fn counted() -> (Counted, Arc<AtomicUsize>) {
    let drops = Arc::new(AtomicUsize::new(0));
    (Counted(Arc::clone(&drops)), drops)
}

fn builder() -> tenure::runtime::Builder {
    Runtime::builder().workers(2).retry(RetryPolicy::never()).replayable(true)
}

fn runtime() -> Runtime {
    builder().build().unwrap()
}

/// A job that fails while `down`, and what it has captured.
fn failing(rt: &Runtime, down: &Arc<AtomicBool>, value: u32) -> JobId {
    let down = Arc::clone(down);
    let job = rt.submit(move |_| if down.load(SeqCst) { Err("down") } else { Ok(value) }).unwrap();
    let id = job.id();
    assert!(matches!(job.get(), Err(JobError::Dead(_))));
    id
}

fn down() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(true))
}

#[test]
fn a_replay_is_the_job_again_and_takes_the_letter_along() {
    let rt = runtime();
    let events = rt.events();
    let down = down();
    let id = failing(&rt, &down, 7);
    assert_eq!(rt.dead_letters().can_replay(id), Ok(()));
    down.store(false, SeqCst);
    let again = rt.dead_letters().replay_as::<u32>(id).unwrap();
    let again_id = again.id();
    assert_ne!(again_id, id);
    assert_eq!(again.get().unwrap(), 7);
    assert!(rt.dead_letters().is_empty());
    assert_eq!(rt.dead_letters().replay(id).unwrap_err(), ReplayError::NoSuchLetter);
    assert_eq!(rt.stats().replayed, 1);
    let Event::JobReplayed { letter, job } =
        until_event(&events, |e| matches!(e, Event::JobReplayed { .. }))
    else {
        unreachable!()
    };
    assert_eq!((letter, job), (id, again_id));
}

#[test]
fn a_replay_that_fails_leaves_a_letter_that_names_the_first() {
    let rt = runtime();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mark, drops) = counted();
    let sink = Arc::clone(&seen);
    let job = rt
        .job(move |ctx| {
            let _captured = &mark;
            sink.lock().unwrap().push((ctx.attempt(), ctx.replay_of(), ctx.token()));
            Err::<(), _>("down")
        })
        .name("doomed")
        .retry(at_once(2))
        .submit()
        .unwrap();
    let mut ids = vec![job.id()];
    assert!(job.get().is_err());
    for round in 1..=50 {
        let last = ids[round - 1];
        let again = rt.dead_letters().replay(last).unwrap();
        ids.push(again.id());
        assert!(again.get().is_err());
        let letters = rt.dead_letters().list();
        assert_eq!(letters.len(), 1, "one letter a chain");
        assert_eq!(letters[0].replay_of, Some(last));
        assert_eq!(letters[0].replays, round as u32);
        assert_eq!(letters[0].name.as_deref(), Some("doomed"));
        assert_eq!(letters[0].history.len(), 2, "its own attempts");
    }
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 102);
    assert!(seen.is_sorted_by(|a, b| a.2 < b.2), "tokens grow through all replays");
    assert_eq!(seen[3], (2, Some(ids[0]), seen[3].2));
    assert_eq!(drops.load(SeqCst), 0);
    assert!(rt.dead_letters().purge(ids[50]).is_some());
    until("the closure goes with its last letter", || drops.load(SeqCst) == 1);
}

#[test]
fn a_very_long_chain_of_replays_stays_flat() {
    let rt = Runtime::builder()
        .workers(1)
        .stack_size(256 << 10)
        .retry(RetryPolicy::never())
        .replayable(true)
        .build()
        .unwrap();
    let (mark, drops) = counted();
    let job = rt
        .submit(move |_| {
            let _captured = &mark;
            Err::<(), _>("no")
        })
        .unwrap();
    let mut id = job.id();
    assert!(job.get().is_err());
    for _ in 0..5_000 {
        let again = rt.dead_letters().replay(id).unwrap();
        id = again.id();
        assert!(again.get().is_err());
    }
    assert_eq!(drops.load(SeqCst), 0);
    assert_eq!(rt.dead_letters().take().len(), 1);
    until("dropped", || drops.load(SeqCst) == 1);
}

#[test]
fn what_cannot_be_called_again_says_why() {
    let rt = runtime();
    let not = |id| rt.dead_letters().replay(id).unwrap_err();
    let once = rt.submit_once(|_| Err::<(), _>("no")).unwrap();
    let id = once.id();
    assert!(once.get().is_err());
    assert_eq!(not(id), ReplayError::NotKept(Unkept::OneAttempt));
    let in_turn = rt.submit_mut(|_| Err::<(), _>("no")).unwrap();
    let id = in_turn.id();
    assert!(in_turn.get().is_err());
    assert_eq!(not(id), ReplayError::NotKept(Unkept::InTurn));
    let task = rt.spawn(async { panic!("no") }).unwrap();
    let id = task.id();
    assert!(task.get().is_err());
    assert_eq!(not(id), ReplayError::NotKept(Unkept::Task));
    let unkept = rt.job(|_| Err::<(), _>("no")).replayable(false).submit().unwrap();
    let id = unkept.id();
    assert!(unkept.get().is_err());
    assert_eq!(not(id), ReplayError::NotKept(Unkept::NotAsked));
    assert_eq!(rt.dead_letters().can_replay(id), Err(not(id)));
    let id = failing(&rt, &down(), 1);
    assert_eq!(rt.dead_letters().replay_as::<u64>(id).unwrap_err(), ReplayError::OtherValue);
    assert_eq!(rt.dead_letters().len(), 5, "all of them stay");
}

#[test]
fn closures_are_dropped_where_nobody_asked_for_them() {
    let rt = Runtime::builder().workers(1).retry(RetryPolicy::never()).build().unwrap();
    let (mark, drops) = counted();
    let job = rt
        .submit(move |_| {
            let _captured = &mark;
            Err::<(), _>("no")
        })
        .unwrap();
    let id = job.id();
    assert!(job.get().is_err());
    until("dropped with its job", || drops.load(SeqCst) == 1);
    let not = rt.dead_letters().replay(id).unwrap_err();
    assert_eq!(not, ReplayError::NotKept(Unkept::NotAsked));
    let asked = rt.job(|_| Err::<(), _>("no")).replayable(true).submit().unwrap();
    let id = asked.id();
    assert!(asked.get().is_err());
    assert!(rt.dead_letters().replay(id).unwrap().get().is_err());
}

#[test]
fn letters_are_found_by_name_key_stop_age_and_predicate() {
    let clock = ManualClock::new();
    let rt = builder().clock(clock.clone()).build().unwrap();
    let die = |name: &str, key: u64, fail: bool| {
        let job = rt
            .job(move |_| if fail { Outcome::<()>::fail("no") } else { Outcome::retry("no") })
            .name(name)
            .key(key)
            .submit()
            .unwrap();
        let id = job.id();
        assert!(job.get().is_err());
        id
    };
    let first = die("a", 1, false);
    clock.advance(10 * SECOND);
    let second = die("b", 1, true);
    let third = die("b", 2, false);
    let find = |filter: &LetterFilter| -> Vec<_> {
        rt.dead_letters().find(filter).iter().map(|letter| letter.id).collect()
    };
    let any = LetterFilter::new;
    assert_eq!(find(&any()), [first, second, third]);
    assert_eq!(find(&any().name("b")), [second, third]);
    assert_eq!(find(&any().key(1)), [first, second]);
    assert_eq!(find(&any().stop(Stop::NotRetryable)), [second]);
    assert_eq!(find(&any().name("b").key(2)), [third]);
    assert_eq!(find(&any().older_than(10 * SECOND)), [first]);
    assert_eq!(find(&any().older_than(Duration::MAX)), []);
    assert_eq!(find(&any().older_than(Duration::ZERO)), [first, second, third]);
    assert_eq!(find(&any().matching(move |letter| letter.id == third)), [third]);
    assert_eq!(rt.dead_letters().get(second).unwrap().stop, Stop::NotRetryable);
    assert!(rt.dead_letters().get(first).unwrap().died < clock.now());
    let purged = rt.dead_letters().purge_all(&any().older_than(SECOND));
    assert_eq!(purged.iter().map(|letter| letter.id).collect::<Vec<_>>(), [first]);
    assert_eq!(rt.dead_letters().into_iter().count(), 2);
    assert_eq!(rt.stats().letters_purged, 1);
    assert!(rt.dead_letters().purge(first).is_none());
}

#[test]
fn a_filter_may_use_the_letters_itself() {
    let rt = runtime();
    let ids: Vec<_> = (0..4).map(|i| failing(&rt, &down(), i)).collect();
    let (inner, first) = (rt.clone(), ids[0]);
    let filter = LetterFilter::new().matching(move |letter| {
        inner.dead_letters().purge(first);
        letter.id != inner.dead_letters().list()[0].id
    });
    let purged = rt.dead_letters().purge_all(&filter);
    assert_eq!(purged.len(), 2, "one was purged inside, one is the oldest");
    assert_eq!(rt.dead_letters().list()[0].id, ids[1]);
}

#[test]
fn many_are_replayed_at_once_and_those_that_cannot_are_named() {
    let rt = runtime();
    let down = down();
    let ids: Vec<_> = (0..20).map(|i| failing(&rt, &down, i)).collect();
    let once = rt.submit_once(|_| Err::<(), _>("no")).unwrap();
    let once_id = once.id();
    assert!(once.get().is_err());
    down.store(false, SeqCst);
    let replays = rt.dead_letters().replay_all(&LetterFilter::new());
    assert_eq!(replays.replayed.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ids);
    assert_eq!(replays.refused, [(once_id, ReplayError::NotKept(Unkept::OneAttempt))]);
    for (_, handle) in replays.replayed {
        handle.get().unwrap();
    }
    assert_eq!(rt.dead_letters().len(), 1);
}

#[test]
fn a_replay_that_finds_no_room_leaves_the_letter_where_it_is() {
    let rt = builder().workers(1).capacity(1).build().unwrap();
    let down = down();
    let first = failing(&rt, &down, 1);
    until("its place is free", || {
        let (go, wait) = mpsc::channel::<()>();
        let Ok(blocker) = rt.submit_once(move |_| wait.recv()) else { return false };
        let second = rt.dead_letters().replay(first).unwrap_err();
        assert_eq!(second, ReplayError::Full);
        assert_eq!(rt.dead_letters().list()[0].id, first, "in its old place");
        go.send(()).unwrap();
        blocker.get().unwrap();
        true
    });
    down.store(false, SeqCst);
    until("replayed when there is room", || match rt.dead_letters().replay_as::<u32>(first) {
        Ok(handle) => handle.get().unwrap() == 1,
        Err(why) => {
            assert_eq!(why, ReplayError::Full);
            false
        }
    });
    // A replay that finds no letter, and one that may not be had, give their places back.
    for _ in 0..3 {
        assert_eq!(rt.dead_letters().replay(first).unwrap_err(), ReplayError::NoSuchLetter);
    }
    until("one place is left", || rt.submit(|_| Ok::<_, String>(())).is_ok());
}

#[test]
fn the_oldest_goes_or_the_newest_stays_out_and_the_hook_gets_it() {
    for policy in [LettersFull::DropOldest, LettersFull::RejectNewest] {
        let (send, lost) = mpsc::channel();
        let (mark, drops) = counted();
        let mark = Arc::new(mark);
        let rt = builder()
            .dead_letters(2)
            .when_letters_full(policy)
            .on_letter_lost(move |letter| {
                send.send(letter.id).unwrap();
                panic!("goes no further");
            })
            .build()
            .unwrap();
        let ids: Vec<_> = (0..4)
            .map(|_| {
                let captured = Counted(Arc::clone(&mark.0));
                let job = rt
                    .submit(move |_| {
                        let _captured = &captured;
                        Err::<(), _>("no")
                    })
                    .unwrap();
                let id = job.id();
                assert!(job.get().is_err());
                id
            })
            .collect();
        let (kept, gone) = match policy {
            LettersFull::DropOldest => (&ids[2..], &ids[..2]),
            _ => (&ids[..2], &ids[2..]),
        };
        let letters: Vec<_> = rt.dead_letters().into_iter().map(|letter| letter.id).collect();
        assert_eq!(letters, kept);
        assert_eq!(rt.stats().letters_lost, 2);
        let mut told = [lost.recv_timeout(LONG).unwrap(), lost.recv_timeout(LONG).unwrap()];
        told.sort();
        assert_eq!(told, gone);
        until("closures go with their letters", || drops.load(SeqCst) == 2);
        assert_eq!(rt.dead_letters().replay(gone[0]).unwrap_err(), ReplayError::NoSuchLetter);
    }
}

#[test]
fn with_no_room_for_letters_none_is_kept() {
    let rt = builder().dead_letters(0).build().unwrap();
    let (mark, drops) = counted();
    let job = rt
        .submit(move |_| {
            let _captured = &mark;
            Err::<(), _>("no")
        })
        .unwrap();
    let id = job.id();
    assert!(job.get().is_err());
    assert!(rt.dead_letters().get(id).is_none());
    until("dropped", || drops.load(SeqCst) == 1);
    assert_eq!(rt.stats().letters_lost, 1);
}

#[test]
fn the_closure_outlives_a_purge_while_an_attempt_is_inside() {
    let (rt, clock) = runtime_support::timed(1, 1);
    let (mark, drops) = counted();
    let (go, wait) = mpsc::channel::<()>();
    let (inside, entered) = mpsc::channel();
    let wait = Mutex::new(wait);
    let job = rt
        .job(move |ctx| {
            let _captured = &mark;
            if ctx.replay_of().is_none() {
                inside.send(()).unwrap();
                wait.lock().unwrap().recv().unwrap();
            }
            Ok::<_, String>(())
        })
        .replayable(true)
        .submit()
        .unwrap();
    let id = job.id();
    entered.recv_timeout(LONG).unwrap();
    advance_until(&clock, SECOND, "given up", || job.is_finished());
    assert!(matches!(job.get(), Err(JobError::Dead(_))));
    // The late attempt is inside the same closure that the replay runs.
    rt.dead_letters().replay(id).unwrap().get().unwrap();
    until_stats(&rt, |stats| stats.succeeded == 1);
    assert_eq!(drops.load(SeqCst), 0, "the late attempt has it");
    go.send(()).unwrap();
    until("the last one out drops it", || drops.load(SeqCst) == 1);
}

#[test]
fn a_shutdown_keeps_the_letters_and_drops_their_closures() {
    let rt = runtime();
    let (mark, drops) = counted();
    let job = rt
        .submit(move |_| {
            let _captured = &mark;
            Err::<(), _>("no")
        })
        .unwrap();
    let id = job.id();
    assert!(job.get().is_err());
    let report = rt.shutdown(LONG);
    assert!(report.abandoned.is_empty());
    until("dropped at the end", || drops.load(SeqCst) == 1);
    assert_eq!(rt.dead_letters().len(), 1);
    let why = rt.dead_letters().replay(id).unwrap_err();
    assert_eq!(why, ReplayError::NotKept(Unkept::Ended));
    assert!(rt.dead_letters().purge(id).is_some());
}

#[test]
fn a_kept_closure_that_holds_its_runtime_goes_with_a_shutdown() {
    let rt = runtime();
    let (mark, drops) = counted();
    let inner = rt.clone();
    let job = rt
        .submit(move |_| {
            let _captured = (&mark, &inner);
            Err::<(), _>("no")
        })
        .unwrap();
    assert!(job.get().is_err());
    let _ = rt.shutdown(LONG);
    drop(rt);
    until("nothing holds it any more", || drops.load(SeqCst) == 1);
}

#[test]
fn foreign_drops_that_panic_hurt_nobody() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in the drop");
        }
    }
    let rt = builder().dead_letters(1).build().unwrap();
    for _ in 0..3 {
        let bomb = Bomb;
        let job = rt
            .submit(move |_| {
                let _captured = &bomb;
                Err::<(), _>("no")
            })
            .unwrap();
        let id = job.id();
        assert!(job.get().is_err());
        assert!(rt.dead_letters().replay(id).unwrap().get().is_err());
    }
    let last = rt.dead_letters().list()[0].id;
    assert!(rt.dead_letters().purge(last).is_some());
    // A value that nobody asked for, too.
    let down = down();
    let flag = Arc::clone(&down);
    let job = rt.submit(move |_| if flag.load(SeqCst) { Err("down") } else { Ok(Bomb) }).unwrap();
    let id = job.id();
    assert!(job.get().is_err());
    down.store(false, SeqCst);
    rt.dead_letters().replay(id).unwrap().get().unwrap();
    assert_eq!(rt.submit(|_| Ok::<_, String>(1)).unwrap().get().unwrap(), 1);
}

#[test]
fn errors_whose_drops_panic_are_dropped_each_by_itself() {
    #[derive(Debug)]
    struct Bomb(Arc<AtomicUsize>);
    impl std::fmt::Display for Bomb {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a bomb")
        }
    }
    impl std::error::Error for Bomb {}
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            panic!("in the drop");
        }
    }
    let retry = RetryPolicy::immediate().max_attempts(3).build().unwrap();
    let rt = Runtime::builder().workers(1).retry(retry).dead_letters(1).build().unwrap();
    let drops = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let drops = Arc::clone(&drops);
        let job = rt.submit(move |_| Err::<(), _>(Bomb(Arc::clone(&drops)))).unwrap();
        assert!(job.get().is_err());
    }
    until("the first letter is gone", || drops.load(SeqCst) == 3);
    // Of one that succeeds in the end they go with the job.
    let counts = Arc::clone(&drops);
    let job = rt.submit(
        move |ctx: &JobCtx| {
            if ctx.attempt() < 3 { Err(Bomb(Arc::clone(&counts))) } else { Ok(()) }
        },
    );
    job.unwrap().get().unwrap();
    until("the job is gone", || drops.load(SeqCst) == 5);
    let _ = rt.shutdown(LONG);
    drop(rt);
    until("the last letter is gone", || drops.load(SeqCst) == 8);
}

#[test]
fn a_key_and_a_cancellation_hold_for_replays() {
    let rt = runtime();
    let (go, wait) = mpsc::channel::<()>();
    let (mark, drops) = counted();
    let job = rt
        .job(move |_| {
            let _captured = &mark;
            Err::<(), _>("no")
        })
        .key("k")
        .submit()
        .unwrap();
    let id = job.id();
    assert!(job.get().is_err());
    let owner = rt.job_once(move |_| wait.recv()).key("k").submit().unwrap();
    let again = rt.dead_letters().replay(id).unwrap();
    assert!(again.cancel(), "it waits for its key");
    assert!(matches!(again.get(), Err(JobError::Cancelled)));
    until("a cancelled replay leaves nothing", || drops.load(SeqCst) == 1);
    assert!(rt.dead_letters().is_empty());
    go.send(()).unwrap();
    owner.get().unwrap();
}

#[test]
fn replays_purges_and_takes_of_one_letter_have_one_winner() {
    let rt = builder().workers(2).dead_letters(10_000).build().unwrap();
    let (mark, drops) = counted();
    let mark = Arc::new(mark);
    const LETTERS: usize = 300;
    let ids: Vec<_> = (0..LETTERS)
        .map(|_| {
            let captured = Counted(Arc::clone(&mark.0));
            let job = rt
                .submit(move |ctx| {
                    let _captured = &captured;
                    if ctx.replay_of().is_some() { Ok(()) } else { Err("no") }
                })
                .unwrap();
            let id = job.id();
            assert!(job.get().is_err());
            id
        })
        .collect();
    let start = Barrier::new(4);
    let won = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|who| {
                let (rt, ids, start) = (&rt, &ids, &start);
                scope.spawn(move || {
                    start.wait();
                    let mut won = 0;
                    for (i, id) in ids.iter().enumerate() {
                        let letters = rt.dead_letters();
                        won += match (who + i) % 4 {
                            0 => usize::from(letters.purge(*id).is_some()),
                            3 if i == LETTERS / 2 => letters.take().len(),
                            _ => match letters.replay(*id) {
                                Ok(handle) => {
                                    handle.get().unwrap();
                                    1
                                }
                                Err(why) => {
                                    assert_eq!(why, ReplayError::NoSuchLetter);
                                    0
                                }
                            },
                        };
                    }
                    won
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(won, LETTERS, "each letter once");
    until("each closure is dropped once", || drops.load(SeqCst) == LETTERS);
}

#[test]
fn replays_that_race_a_shutdown_end_or_are_refused() {
    for _ in 0..20 {
        let rt = runtime();
        let ids: Vec<_> = (0..20).map(|i| failing(&rt, &down(), i)).collect();
        let inner = rt.clone();
        let replayer = std::thread::spawn(move || {
            let mut refused = 0;
            for id in ids {
                match inner.dead_letters().replay(id) {
                    Ok(handle) => {
                        let end = handle.get().unwrap_err();
                        assert!(matches!(end, JobError::Dead(_) | JobError::Shutdown), "{end}");
                    }
                    Err(ReplayError::Closed | ReplayError::NotKept(Unkept::Ended)) => {
                        refused += 1;
                        assert!(inner.dead_letters().get(id).is_some(), "it stays");
                    }
                    Err(other) => panic!("{other}"),
                }
            }
            refused
        });
        let _ = rt.shutdown(LONG);
        replayer.join().unwrap();
    }
}
