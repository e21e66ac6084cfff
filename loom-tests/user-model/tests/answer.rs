//! Models of the answer. Run them with
//!
//! ```text
//! RUSTFLAGS="--cfg tenure_loom" cargo test --release --target x86_64-unknown-linux-gnu
//! ```
//!
//! (`--target` keeps the flag off build scripts.) Without the flag the ignored test says so.

#[cfg(not(tenure_loom))]
#[test]
#[ignore = "models need RUSTFLAGS=\"--cfg tenure_loom\""]
fn models_are_not_compiled_in() {}

#[cfg(tenure_loom)]
mod models {
    use loom::sync::Arc;
    use loom::thread;
    use tenure::clock::ManualClock;
    use tenure::model::Settings;
    use user_model::{Answer, TURN, Turn};

    /// Three preemptions find most faults, and keep two callers under a second.
    fn bounded() -> Settings {
        Settings { preemption_bound: Some(3), ..Settings::default() }
    }

    fn call(answer: &Answer, mine: u64) -> u64 {
        match answer.turn() {
            Turn::Yours(lease) => {
                assert!(answer.finish(lease, mine), "nobody moves the clock here");
                mine
            }
            Turn::Theirs(eventual) => eventual.get().expect("its owner serves the queue"),
            Turn::Known(value) => value,
        }
    }

    #[test]
    fn all_callers_get_the_same_answer() {
        let explored = bounded().check(|| {
            let answer = Arc::new(Answer::new(ManualClock::new()));
            let callers: Vec<_> = (1..=2)
                .map(|mine| {
                    let answer = answer.clone();
                    thread::spawn(move || call(&answer, mine))
                })
                .collect();
            let got: Vec<u64> = callers.into_iter().map(|c| c.join().unwrap()).collect();
            assert_eq!(got[0], got[1]);
        });
        println!("{explored:?}");
    }

    #[test]
    fn a_late_owner_is_fenced() {
        bounded().check(|| {
            let clock = ManualClock::new();
            let answer = Arc::new(Answer::new(clock.clone()));
            let Turn::Yours(late) = answer.turn() else { panic!("nobody else is here") };
            clock.advance(TURN * 2);
            let successor = thread::spawn({
                let answer = answer.clone();
                move || match answer.turn() {
                    Turn::Yours(lease) => answer.finish(lease, 2),
                    other => panic!("the late one has no lease any more: {other:?}"),
                }
            });
            let late = thread::spawn({
                let answer = answer.clone();
                move || answer.finish(late, 1)
            });
            assert!(!late.join().unwrap());
            assert!(successor.join().unwrap());
            assert!(matches!(answer.turn(), Turn::Known(2)));
        });
    }

    fn served_too_early() {
        bounded().check(|| {
            let answer = Arc::new(Answer::new(ManualClock::new()));
            let callers: Vec<_> = (1..=2)
                .map(|mine| {
                    let answer = answer.clone();
                    thread::spawn(move || match answer.turn() {
                        Turn::Yours(lease) => drop(answer.finish_too_early(lease, mine)),
                        Turn::Theirs(eventual) => drop(eventual.get()),
                        Turn::Known(_) => {}
                    })
                })
                .collect();
            for caller in callers {
                caller.join().unwrap();
            }
        });
    }

    /// The models can fail: a fault that a test with real threads hardly ever meets is found. In a
    /// process of its own, because a model that fails may abort it.
    #[test]
    fn a_queue_that_is_served_too_early_is_found() {
        const NAME: &str = "models::a_queue_that_is_served_too_early_is_found";
        if std::env::var_os("USER_MODEL_FAULT").is_some() {
            return served_too_early();
        }
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env("USER_MODEL_FAULT", "1")
            .output()
            .unwrap();
        assert!(!child.status.success());
        let report =
            String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
        assert!(report.contains("deadlock"), "{report}");
    }
}
