//! Health through the public API: beats, suspicion, death, listeners, judges; phi against a reference.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tenure::clock::{Clock, ManualClock, Timestamp};
use tenure::health::{
    Beat, Change, ConfigError, Detector, GivenUp, Health, HealthEvent, JudgeError, PhiAccrual,
    Reason, Status, Verdict,
};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);

#[track_caller]
fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::yield_now();
    }
}

fn detector(suspect: u32, dead: u32) -> Detector {
    Detector::deadline(suspect * SECOND, dead * SECOND).unwrap()
}

/// Who, and what happened.
type Heard = Arc<Mutex<Vec<(String, &'static str)>>>;

/// A registry whose clock is moved by hand, and what its listener heard.
fn manual() -> (Health, ManualClock, Heard) {
    let clock = ManualClock::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&heard);
    let health = Health::builder()
        .clock(clock.clone())
        .on_change(move |event| sink.lock().unwrap().push((event.name.to_string(), name(event))))
        .build();
    (health, clock, heard)
}

fn name(event: &HealthEvent) -> &'static str {
    match event.change {
        Change::Registered => "registered",
        Change::Suspected { .. } => "suspected",
        Change::Recovered => "recovered",
        Change::Died { .. } => "died",
        Change::Left => "left",
        _ => "other",
    }
}

fn statuses(health: &Health) -> Vec<Status> {
    health.check().beats.iter().map(|beat| beat.status).collect()
}

#[test]
fn silence_makes_suspect_a_beat_makes_well_and_too_much_is_final() {
    let (health, clock, heard) = manual();
    let beat = health.register("a", detector(5, 30));
    assert_eq!(statuses(&health), [Status::Alive]);
    clock.advance(5 * SECOND);
    assert_eq!(statuses(&health), [Status::Suspect]);
    assert_eq!(beat.beat(), Ok(()));
    assert_eq!(statuses(&health), [Status::Alive]);
    clock.advance(30 * SECOND);
    assert_eq!(statuses(&health), [Status::Dead]);
    assert!(beat.is_given_up());
    assert_eq!(beat.beat(), Err(GivenUp));
    assert_eq!(statuses(&health), [Status::Dead], "it stays dead");
    assert_eq!(health.check().living().count(), 0);
    drop(beat);
    assert_eq!(statuses(&health), []);
    let heard = heard.lock().unwrap();
    let changes: Vec<_> = heard.iter().map(|(_, change)| *change).collect();
    assert_eq!(changes, ["registered", "suspected", "recovered", "died", "left"]);
}

#[test]
fn a_beat_that_came_in_time_is_enough_whenever_somebody_checks() {
    let (health, clock, _) = manual();
    let beat = health.register("a", detector(5, 10));
    for _ in 0..100 {
        clock.advance(4 * SECOND);
        beat.beat().unwrap();
    }
    assert_eq!(statuses(&health), [Status::Alive]);
    clock.advance(100 * SECOND);
    // Nobody checked: so it was not given up.
    assert_eq!(beat.beat(), Ok(()));
    assert_eq!(statuses(&health), [Status::Alive]);
}

#[test]
fn verdicts_name_their_reasons_and_go_together() {
    let (health, clock, _) = manual();
    assert_eq!(health.check().verdict().to_string(), "ready");
    let _slow = health.register("slow", detector(1, 100));
    let gone = health.register("gone", detector(1, 2));
    clock.advance(2 * SECOND);
    let verdict = health.check().verdict();
    assert!(verdict.is_live() && !verdict.is_ready());
    assert!(matches!(
        verdict.reasons(),
        [Reason::Suspect { silence, .. }, Reason::Dead { .. }] if *silence == 2 * SECOND
    ));
    let text = "not ready: slow has been silent for 2s; gone is dead, silent for 2s";
    assert_eq!(verdict.to_string(), text);
    drop(gone);
    assert!(health.check().verdict().is_ready());
    let _vital = health.register_vital("heart", detector(1, 2));
    clock.advance(2 * SECOND);
    let verdict = health.check().verdict();
    assert!(!verdict.is_live() && !verdict.is_ready());
    let both = Verdict::well().and(verdict).and(Verdict::well());
    assert!(!both.is_live() && !both.is_ready());
    assert_eq!(both.reasons().len(), 2);
}

#[test]
fn extreme_durations_are_fine() {
    let (health, clock, _) = manual();
    let forever = Detector::deadline(Duration::MAX, Duration::MAX).unwrap();
    let hair = Detector::deadline(Duration::from_nanos(1), Duration::from_nanos(1)).unwrap();
    let never = PhiAccrual::builder()
        .acceptable_pause(Duration::MAX)
        .first_interval(Duration::MAX)
        .min_deviation(Duration::MAX)
        .build()
        .unwrap();
    let beats = [
        health.register("forever", forever),
        health.register("hair", hair),
        health.register("never", Detector::phi(never, f64::MAX).unwrap()),
    ];
    assert_eq!(statuses(&health), [Status::Alive; 3]);
    clock.advance(Duration::MAX);
    assert_eq!(statuses(&health), [Status::Alive, Status::Dead, Status::Alive]);
    for beat in &beats {
        let _ = beat.beat_at(Timestamp::NEVER);
        let _ = beat.beat_at(Timestamp::ORIGIN);
    }
    let _ = health.check();
    assert!(matches!(health.start_judge(Duration::ZERO), Err(JudgeError::Period(_))));
    let judge = health.start_judge(Duration::MAX).unwrap();
    drop(judge);
}

#[test]
fn phi_learns_the_rhythm_of_whoever_beats() {
    let (health, clock, _) = manual();
    let phi = || {
        PhiAccrual::builder().min_deviation(Duration::from_millis(10)).window(50).build().unwrap()
    };
    let fast = health.register("fast", Detector::phi(phi(), 12.0).unwrap());
    let slow = health.register("slow", Detector::phi(phi(), 12.0).unwrap());
    for tick in 1..=1_000 {
        clock.advance(SECOND / 10);
        fast.beat().unwrap();
        if tick % 10 == 0 {
            slow.beat().unwrap();
        }
        let _ = health.check();
    }
    clock.advance(SECOND / 2);
    assert_eq!(statuses(&health), [Status::Dead, Status::Alive]);
    let snapshot = health.check();
    assert!(snapshot.beats[0].phi.unwrap() > 12.0 && snapshot.beats[1].phi.unwrap() < 1.0);
    clock.advance(3 * SECOND);
    assert_eq!(statuses(&health), [Status::Dead, Status::Dead]);
}

#[test]
fn the_listener_may_do_anything() {
    let clock = ManualClock::new();
    let slot = Arc::new(Mutex::new(None::<(Health, Option<Beat>)>));
    let inner = Arc::clone(&slot);
    let depth = Arc::new(AtomicUsize::new(0));
    let log = Arc::new(Mutex::new(Vec::new()));
    let (inside, sink) = (Arc::clone(&depth), Arc::clone(&log));
    let health = Health::builder()
        .clock(clock.clone())
        .on_change(move |event| {
            assert_eq!(inside.fetch_add(1, SeqCst), 0, "never inside itself");
            sink.lock().unwrap().push(name(event));
            // Re-enters: checks, registers, drops a beat.
            let taken = inner.lock().unwrap().take();
            if let Some((health, beat)) = taken {
                let _ = health.check();
                drop(health.register("inner", detector(1, 2)));
                drop(beat);
            }
            inside.fetch_sub(1, SeqCst);
            if matches!(event.change, Change::Died { .. }) {
                std::panic::panic_any(17_u8);
            }
        })
        .build();
    let first = health.register("first", detector(1, 2));
    let second = health.register("second", detector(5, 9));
    *slot.lock().unwrap() = Some((health.clone(), Some(second)));
    clock.advance(3 * SECOND);
    let _ = health.check();
    drop(first);
    assert_eq!(
        *log.lock().unwrap(),
        ["registered", "registered", "died", "registered", "left", "left", "left"]
    );
    // The registry's own owner goes last of all.
    drop(health);
}

#[test]
fn a_listener_that_does_not_return_holds_up_one_thread() {
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let told = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&told);
    let (inside, entered) = mpsc::channel();
    let health = Health::builder()
        .on_change(move |_| {
            if count.fetch_add(1, SeqCst) == 0 {
                inside.send(()).unwrap();
                let _ = gate.lock().unwrap().recv();
            }
        })
        .build();
    let other = health.clone();
    let held = std::thread::spawn(move || drop(other.register("held", detector(1, 2))));
    entered.recv_timeout(LONG).unwrap();
    // 1024 are kept for it.
    for _ in 0..600 {
        drop(health.register("busy", detector(10, 20)));
    }
    assert_eq!(health.check().events_lost, 1_200 - 1_024);
    assert_eq!(told.load(SeqCst), 1);
    go.send(()).unwrap();
    held.join().unwrap();
    until("the others are told", || told.load(SeqCst) > 1_024);
}

#[test]
fn a_judge_looks_by_itself_and_ends_with_its_handle_or_the_registry() {
    struct Gone(Arc<AtomicBool>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let gone = Arc::new(AtomicBool::new(false));
    let mark = Gone(Arc::clone(&gone));
    let (died, deaths) = mpsc::channel();
    let died = Mutex::new(died);
    let clock = ManualClock::new();
    let health = Health::builder()
        .clock(clock.clone())
        .on_change(move |event| {
            let _ = &mark;
            if matches!(event.change, Change::Died { .. }) {
                died.lock().unwrap().send(event.name.to_string()).unwrap();
            }
        })
        .build();
    let judge = health.start_judge(SECOND).unwrap();
    let beat = health.register("a", detector(5, 10));
    // Until the judge has planned its next look, and then looks late enough.
    let name = loop {
        clock.advance(SECOND);
        match deaths.recv_timeout(Duration::from_millis(1)) {
            Ok(name) => break name,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(name, "a");
    drop(beat);
    let second = health.start_judge(SECOND).unwrap();
    drop(judge);
    drop(health);
    until("the registry goes, and its judges with it", || gone.load(SeqCst));
    drop(second);
}

#[test]
fn a_judge_by_the_real_clock_finds_who_is_silent() {
    let health = Health::new();
    let _judge = health.start_judge(Duration::from_millis(2)).unwrap();
    let millis = Duration::from_millis;
    let silent = health.register("silent", Detector::deadline(millis(5), millis(10)).unwrap());
    until("given up", || silent.is_given_up());
}

#[test]
fn handles_go_to_other_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Health>();
    shared::<Beat>();
    shared::<Verdict>();
    shared::<PhiAccrual>();
}

/// Beaters, a clock that jumps, checkers: a death is told once, and is what its beater hears from then on.
#[test]
fn beats_checks_and_drops_race() {
    let rounds = std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1) * 30;
    let deaths = Arc::new(AtomicUsize::new(0));
    let lefts = Arc::new(AtomicUsize::new(0));
    let (died, left) = (Arc::clone(&deaths), Arc::clone(&lefts));
    let clock = ManualClock::new();
    let health = Health::builder()
        .clock(clock.clone())
        .on_change(move |event| {
            match event.change {
                Change::Died { .. } => died.fetch_add(1, SeqCst),
                Change::Left => left.fetch_add(1, SeqCst),
                _ => 0,
            };
        })
        .build();
    let over = AtomicBool::new(false);
    let given_up: usize = std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    clock.advance(SECOND);
                    let _ = health.check();
                }
            });
        }
        let beaters: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut given_up = 0;
                    for _ in 0..rounds {
                        let beat = health.register("b", detector(3, 6));
                        let mut accepted = 0;
                        while beat.beat().is_ok() && accepted < 2_000 {
                            accepted += 1;
                        }
                        if beat.is_given_up() {
                            given_up += 1;
                            assert_eq!(beat.beat(), Err(GivenUp));
                        } else {
                            // Silent on purpose.
                            until("given up", || beat.is_given_up());
                            given_up += 1;
                        }
                    }
                    given_up
                })
            })
            .collect();
        let given_up = beaters.into_iter().map(|beater| beater.join().unwrap()).sum();
        over.store(true, SeqCst);
        given_up
    });
    until("all is told", || lefts.load(SeqCst) == 3 * rounds);
    assert_eq!((given_up, deaths.load(SeqCst)), (3 * rounds, 3 * rounds));
    assert!(health.check().beats.is_empty());
}

// --- phi ----------------------------------------------------------------------------------------

/// −log₁₀ of the normal tail, by Simpson's rule over φ(y + t) ÷ φ(y).
fn reference_tail(y: f64) -> f64 {
    if y < 0.0 {
        let below = 10_f64.powf(-reference_tail(-y));
        return -(-below).ln_1p() / std::f64::consts::LN_10;
    }
    let end = (40.0 / (y + 1.0)).min(10.0);
    let steps = 1_000;
    let width = end / f64::from(steps);
    let at = |i: i32| {
        let t = f64::from(i) * width;
        (-y * t - 0.5 * t * t).exp()
    };
    let inner: f64 = (1..steps).map(|i| if i % 2 == 0 { 2.0 * at(i) } else { 4.0 * at(i) }).sum();
    let ratio = (at(0) + inner + at(steps)) * width / 3.0;
    let density = -0.5 * y * y - 0.5 * (2.0 * std::f64::consts::PI).ln();
    -(density + ratio.ln()) / std::f64::consts::LN_10
}

/// Mean and deviation in two passes.
fn reference_moments(intervals: &[f64]) -> (f64, f64) {
    let count = intervals.len() as f64;
    let mean = intervals.iter().sum::<f64>() / count;
    let variance = intervals.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

fn close(a: f64, b: f64, tolerance: f64) -> bool {
    (a - b).abs() <= tolerance * (1.0 + a.abs().max(b.abs()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// Against a float reference that keeps all intervals and forgets nothing it should not.
    #[test]
    fn phi_is_that_of_the_reference(
        window in 2_usize..40,
        min_millis in 1_u64..200,
        pause_millis in 0_u64..500,
        first_millis in 1_u64..2_000,
        gaps in prop::collection::vec(1_u64..5_000_000_000, 0..120),
        silence in 0_u64..20_000_000_000,
    ) {
        let millis = Duration::from_millis;
        let mut phi = PhiAccrual::builder()
            .window(window)
            .min_deviation(millis(min_millis))
            .acceptable_pause(millis(pause_millis))
            .first_interval(millis(first_millis))
            .build()
            .unwrap();
        let mut now = 7_u64;
        phi.beat(Timestamp::from_nanos(now));
        let first = first_millis * 1_000_000;
        let mut all = vec![(first - first / 4) as f64, (first + first / 4) as f64];
        let expect = |all: &[f64], silence: u64| {
            let (mean, deviation) = reference_moments(&all[all.len().saturating_sub(window)..]);
            let deviation = deviation.max(min_millis as f64 * 1e6);
            let y = (silence as f64 - mean - pause_millis as f64 * 1e6) / deviation;
            (reference_tail(y), mean, deviation)
        };
        for gap in gaps {
            let (before, ..) = expect(&all, gap);
            // At the threshold itself either may be right.
            prop_assume!(!close(before, 8.0, 1e-6));
            if before < 8.0 {
                all.push(gap as f64);
            }
            now += gap;
            phi.beat(Timestamp::from_nanos(now));
        }
        let (wanted, mean, deviation) = expect(&all, silence);
        prop_assert!(close(phi.mean().as_nanos() as f64, mean, 1e-6));
        prop_assert!(close(phi.deviation().as_nanos() as f64, deviation, 1e-6));
        let got = phi.phi(Timestamp::from_nanos(now + silence));
        prop_assert!(close(got, wanted, 1e-6), "{got} instead of {wanted}");
    }

    /// A longer silence is at least as suspicious, whatever came before; and nothing is NaN, negative or
    /// infinite, whatever the clock does.
    #[test]
    fn phi_grows_with_the_silence_whatever_the_clock_does(
        times in prop::collection::vec(any::<u64>(), 0..50),
        mut silences in prop::collection::vec(any::<u64>(), 1..50),
        min in 1_u64..u64::MAX,
        pause in any::<u64>(),
        first in 1_u64..u64::MAX,
    ) {
        let nanos = Duration::from_nanos;
        let mut phi = PhiAccrual::builder()
            .window(8)
            .min_deviation(nanos(min))
            .acceptable_pause(nanos(pause))
            .first_interval(nanos(first))
            .build()
            .unwrap();
        let mut last = None;
        for at in times {
            let at = Timestamp::from_nanos(at);
            phi.beat(at);
            prop_assert!(phi.last_beat() >= last, "it never goes back");
            last = phi.last_beat();
        }
        silences.push(u64::MAX);
        silences.sort_unstable();
        let mut before = 0.0;
        for silence in silences {
            let now = phi.phi_after(nanos(silence));
            prop_assert!(now.is_finite() && now >= before * (1.0 - 1e-12), "{now} after {before}");
            before = now;
        }
        prop_assert!(phi.phi_after(Duration::MAX).is_finite());
        prop_assert!(phi.phi(Timestamp::NEVER).is_finite());
    }
}

#[test]
fn phi_knows_nothing_before_the_first_beat_and_little_after_it() {
    let mut phi = PhiAccrual::builder().build().unwrap();
    assert_eq!((phi.phi(Timestamp::NEVER), phi.mean()), (0.0, Duration::ZERO));
    assert!(!phi.is_suspicious(Timestamp::NEVER));
    let clock = ManualClock::new();
    phi.beat(clock.now());
    assert_eq!((phi.mean(), phi.deviation()), (SECOND, SECOND / 4));
    clock.advance(2 * SECOND);
    assert!(phi.phi(clock.now()) > 4.0 && !phi.is_suspicious(clock.now()));
    clock.advance(SECOND);
    assert!(phi.is_suspicious(clock.now()));
    // An outage is not a habit.
    phi.beat(clock.now());
    assert_eq!(phi.mean(), SECOND);
}

#[test]
fn settings_out_of_range_are_named() {
    let builder = PhiAccrual::builder;
    for window in [0, 1, 16_385, usize::MAX] {
        let error = builder().window(window).build().unwrap_err();
        assert_eq!(error, ConfigError::Window { got: window, max: 16_384 });
    }
    for threshold in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = builder().threshold(threshold).build().unwrap_err();
        assert!(matches!(error, ConfigError::Threshold(_)));
    }
    let zero = Duration::ZERO;
    assert_eq!(builder().min_deviation(zero).build().unwrap_err(), ConfigError::MinDeviation);
    assert_eq!(builder().first_interval(zero).build().unwrap_err(), ConfigError::FirstInterval);
}
