//! Beats and judges, registrations and drops; the judge's sleep.
//!
//! Bounds: two threads explore without one, three at three preemptions; with a whole registry two, or one
//! (`judge_x_register`: 56,000 executions at two found nothing more).

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread::spawn;
use std::convert::Infallible;
use std::time::Duration;
use tenure::clock::ManualClock;
use tenure::health::model::{Pulse, judge_of};
use tenure::health::{Change, Detector, Health, Status};
use tenure::promise::{Eventual, promise};

/// As a judge who finds that it has been silent since `last`.
fn judge(pulse: &Arc<Pulse>) -> loom::thread::JoinHandle<bool> {
    let pulse = Arc::clone(pulse);
    spawn(move || pulse.condemn(0))
}

fn beater(pulse: &Arc<Pulse>, at: u64) -> loom::thread::JoinHandle<bool> {
    let pulse = Arc::clone(pulse);
    spawn(move || pulse.beat(at))
}

/// A registry whose clock is moved by hand, and how many were told to have died and left.
fn registry() -> (ManualClock, Health, Arc<AtomicU32>, Arc<AtomicU32>) {
    let clock = ManualClock::new();
    let (died, left) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (deaths, lefts) = (Arc::clone(&died), Arc::clone(&left));
    let health = Health::builder()
        .clock(clock.clone())
        .on_change(move |event| {
            match event.change {
                Change::Died { .. } => deaths.fetch_add(1, Ordering::Relaxed),
                Change::Left => lefts.fetch_add(1, Ordering::Relaxed),
                _ => 0,
            };
        })
        .build();
    (clock, health, died, left)
}

/// A registry, and the first death in it, to come.
fn mortal() -> (ManualClock, Health, Eventual<(), Infallible>) {
    let clock = ManualClock::new();
    let (promise, death) = promise();
    let promise = std::sync::Mutex::new(Some(promise));
    let health = Health::builder()
        .clock(clock.clone())
        .on_change(move |event| {
            if matches!(event.change, Change::Died { .. })
                && let Some(promise) = promise.lock().unwrap().take()
            {
                assert!(promise.set(()).is_ok());
            }
        })
        .build();
    (clock, health, death)
}

fn detector() -> Detector {
    let second = Duration::from_secs(1);
    Detector::deadline(second, second).unwrap()
}

crate::models! { "health";
    /// A beat that is answered with yes is not followed by a death that did not count it.
    beat_x_condemn {
        let pulse = Arc::new(Pulse::new(0));
        let (beat, out) = (beater(&pulse, 1), judge(&pulse));
        let (accepted, out) = (beat.join().unwrap(), out.join().unwrap());
        assert_ne!(accepted, out, "one of the two has it");
        assert_eq!(pulse.is_out(), out);
        assert_eq!(pulse.beat(2), !out, "final, or as if nothing had been");
        assert!(out || pulse.condemn(2), "it can still be given up");
        assert!(pulse.is_out());
    }
    /// The same with two beaters that share it: if any is told yes, it lives.
    beat_x_beat_x_condemn [bound: 3] {
        let pulse = Arc::new(Pulse::new(0));
        let (one, two, out) = (beater(&pulse, 1), beater(&pulse, 2), judge(&pulse));
        let accepted = [one.join().unwrap(), two.join().unwrap()];
        let out = out.join().unwrap();
        assert_ne!(accepted.contains(&true), out, "{accepted:?}");
        assert_eq!(pulse.is_out(), out);
    }
    /// A judge that was told to spare it comes again, with what it sees of the beat by then: it never
    /// condemns for the silence before.
    beat_x_condemn_condemn [bound: 3] {
        let pulse = Arc::new(Pulse::new(0));
        let beat = beater(&pulse, 1);
        let judge = {
            let pulse = Arc::clone(&pulse);
            spawn(move || {
                let first = pulse.condemn(0);
                let last = pulse.last();
                (first, last, !first && pulse.condemn(last))
            })
        };
        let accepted = beat.join().unwrap();
        let (first, last, second) = judge.join().unwrap();
        if first {
            assert!(!accepted);
        } else if accepted {
            assert!(!second || last == 1, "for the silence after the beat, not for that before");
        }
        assert_eq!(pulse.is_out(), first || second);
    }
    /// A registration comes while another is judged, and one is dropped: each is told once, and the ones
    /// that are there are judged.
    register_x_check_x_drop [bound: 2, std_arc] {
        let (clock, health, died, left) = registry();
        let old = health.register("old", detector());
        clock.advance(Duration::from_secs(1));
        let (checker, registrar) = (health.clone(), health.clone());
        let checker = spawn(move || {
            let snapshot = checker.check();
            snapshot.beats.iter().filter(|beat| beat.status == Status::Dead).count()
        });
        let registrar = spawn(move || registrar.register("new", detector()));
        let dropper = spawn(move || drop(old));
        let dead = checker.join().unwrap();
        let new = registrar.join().unwrap();
        dropper.join().unwrap();
        // Who told last may have been told to by another: nothing is left untold.
        assert_eq!(died.load(Ordering::Relaxed) as usize, dead);
        assert_eq!(left.load(Ordering::Relaxed), 1);
        let snapshot = health.check();
        assert_eq!(snapshot.beats.len(), 1);
        assert_eq!(snapshot.beats[0].status, Status::Alive);
        drop(new);
    }
    /// Two judges, and a beat: one death at most is told, and it is the beater's.
    check_x_check_x_beat [bound: 2, std_arc] {
        let (clock, health, died, _left) = registry();
        let beat = std::sync::Arc::new(health.register("a", detector()));
        clock.advance(Duration::from_secs(1));
        let checkers: Vec<_> = (0..2)
            .map(|_| {
                let health = health.clone();
                spawn(move || drop(health.check()))
            })
            .collect();
        let beater = std::sync::Arc::clone(&beat);
        let accepted = spawn(move || beater.beat().is_ok()).join().unwrap();
        for checker in checkers {
            checker.join().unwrap();
        }
        assert_eq!(died.load(Ordering::Relaxed), u32::from(!accepted));
        assert_eq!(beat.is_given_up(), !accepted);
    }
    /// The clock moves while the judge goes to sleep: it looks again, and finds who was silent.
    judge_x_advance [bound: 2, std_arc] {
        let (clock, health, death) = mortal();
        let beat = health.register("a", detector());
        let judge = health.start_judge(Duration::from_secs(1)).unwrap();
        let mover = spawn(move || clock.advance(Duration::from_secs(1)));
        assert!(death.get().is_ok());
        mover.join().unwrap();
        drop((beat, judge));
    }
    /// Somebody registers, and is silent, while the judge goes to sleep because there is nobody.
    judge_x_register [bound: 1, std_arc] {
        let (clock, health, death) = mortal();
        let judge = health.start_judge(Duration::from_secs(1)).unwrap();
        let registrar = spawn(move || {
            let beat = health.register("a", detector());
            clock.advance(Duration::from_secs(1));
            beat
        });
        assert!(death.get().is_ok());
        drop((registrar.join().unwrap(), judge));
    }
    /// The judge is dropped while it goes to sleep: its thread ends. (One that sleeps on is a deadlock.)
    judge_x_drop [bound: 3, std_arc] {
        let (_clock, health, _died, _left) = registry();
        let (judge, sits) = judge_of(&health, Duration::from_secs(1));
        let (sitting, dropper) = (spawn(sits), spawn(move || drop(judge)));
        dropper.join().unwrap();
        sitting.join().unwrap();
    }
    /// The registry is dropped while the judge goes to sleep: its thread ends, too.
    judge_x_last_owner [bound: 3, std_arc] {
        let (_clock, health, _died, _left) = registry();
        let (judge, sits) = judge_of(&health, Duration::from_secs(1));
        let (sitting, dropper) = (spawn(sits), spawn(move || drop(health)));
        dropper.join().unwrap();
        sitting.join().unwrap();
        drop(judge);
    }
}
