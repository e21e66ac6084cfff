//! `mirror` when things go wrong: attempts that fail, panic and hang; interrupts; sudden death.

#![cfg(unix)]

mod mirror_support;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use mirror_support::{Home, Said, command, json, run, temporaries};
use rustix::process::{Pid, Signal, kill_process};

#[test]
fn chaos_changes_nothing_about_the_result() {
    for seed in 1..=3 {
        let home = Home::with_tree(300, seed);
        let seed = seed.to_string();
        let said = json(
            &home.src(),
            &home.dst(),
            &["--chaos", "0.3", "--seed", &seed, "--attempt-timeout", "50ms"],
        );
        home.assert_same();
        let count = |what: &str| said[what].as_u64().unwrap();
        // Some 370 jobs, each struck with probability 0.3 and then again: a third of them hang.
        assert!(count("retried") > 80, "{said}");
        assert!(count("taken_over") > 20, "{said}");
        assert_eq!(count("failed"), 0);
        assert!(count("copied") > 300, "{said}");
    }
}

#[test]
fn late_attempts_are_fenced_and_counted() {
    let home = Home::with_tree(200, 5);
    // One worker at a time, so that hung attempts have come back before the end.
    let options = ["--chaos", "0.4", "--seed", "5", "--attempt-timeout", "20ms", "--workers", "1"];
    let said = json(&home.src(), &home.dst(), &options);
    home.assert_same();
    assert!(said["fenced"].as_u64().unwrap() > 5, "{said}");
}

#[test]
fn chaos_leaves_what_is_there_alone_and_still_deletes() {
    let home = Home::with_tree(200, 6);
    json(&home.src(), &home.dst(), &[]);
    for n in 0..20 {
        home.file(&format!("dst/extra {n}/a/b/c"), "x");
        home.file(&format!("dst/extra {n}/file"), "x");
    }
    let said = json(
        &home.src(),
        &home.dst(),
        &["--delete", "--chaos", "0.3", "--attempt-timeout", "50ms"],
    );
    assert_eq!((&said["deleted"], &said["copied"]), (&100.into(), &0.into()), "{said}");
    home.assert_same();
}

#[test]
fn files_that_never_succeed_are_all_listed_and_leave_nothing() {
    let home = Home::with_tree(50, 7);
    let options = ["--json", "--chaos", "1", "--attempts", "2", "--attempt-timeout", "50ms"];
    let said = run(&home.src(), &home.dst(), &options);
    assert_eq!(said.code(), 1, "{said:?}");
    let said = said.json();
    let failures = said["failures"].as_array().unwrap();
    let jobs = walkdir::WalkDir::new(home.src())
        .into_iter()
        .filter(|e| !e.as_ref().unwrap().file_type().is_dir());
    assert_eq!(failures.len(), jobs.count());
    for failure in failures {
        assert_eq!(failure["history"].as_array().unwrap().len(), 2, "{failure}");
    }
    assert_eq!(temporaries(&home.dst()), Vec::<std::path::PathBuf>::new());
    assert_whole(&home);
    json(&home.src(), &home.dst(), &[]);
    home.assert_same();
}

/// Whatever is in the copy is complete: contents, times and permissions of each file.
#[track_caller]
fn assert_whole(home: &Home) {
    for entry in walkdir::WalkDir::new(home.dst()) {
        let entry = entry.unwrap();
        let ours = home.src().join(entry.path().strip_prefix(home.dst()).unwrap());
        if entry.file_type().is_dir() {
            continue;
        }
        if entry.file_type().is_symlink() {
            assert_eq!(fs::read_link(&ours).unwrap(), fs::read_link(entry.path()).unwrap());
            continue;
        }
        let (a, b) = (fs::symlink_metadata(&ours).unwrap(), entry.metadata().unwrap());
        let about = |m: &fs::Metadata| (m.len(), m.mtime(), m.mtime_nsec(), m.mode());
        assert_eq!(about(&a), about(&b), "{ours:?}");
        assert!(fs::read(&ours).unwrap() == fs::read(entry.path()).unwrap(), "{ours:?}");
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Starts a slow, unlucky run and sends `with` after `after`. `None` if it was over by then.
fn interrupted(home: &Home, after: Duration, with: Signal) -> Option<Said> {
    let options = ["--json", "--chaos", "0.2", "--attempt-timeout", "100ms", "--workers", "3"];
    let mut child = command(&home.src(), &home.dst(), &options).spawn().unwrap();
    std::thread::sleep(after);
    if child.try_wait().unwrap().is_some() {
        return None;
    }
    signal(&child, with);
    let sent = Instant::now();
    let output = child.wait_with_output().unwrap();
    let took = sent.elapsed();
    assert!(took < Duration::from_secs(20), "it took {took:?} to end");
    Some(Said {
        status: output.status,
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    })
}

/// Interrupts runs at moments from the first millisecond on, as many as `TENURE_STRESS` asks for.
fn interrupt_often(with: Signal, seed: u64) {
    let factor: u32 = std::env::var("TENURE_STRESS").ok().and_then(|f| f.parse().ok()).unwrap_or(1);
    let mut rng = fastrand::Rng::with_seed(seed);
    for round in 0..5 * factor {
        let home = Home::with_tree(400, seed + u64::from(round));
        // Early moments are the crowded ones.
        let after = Duration::from_millis(rng.u64(1..1000) * rng.u64(1..1000) / 1000);
        let Some(said) = interrupted(&home, after, with) else { continue };
        let about = format!("round {round}, after {after:?}: {said:?}");
        if said.status.code() == Some(0) {
            home.assert_same(); // it was faster
            continue;
        }
        if said.status.code().is_none() {
            continue; // it had not begun yet to handle signals
        }
        assert_eq!(said.code(), 130, "{about}");
        let report = said.json();
        assert_eq!(report["interrupted"], true, "{about}");
        assert_eq!(report["warnings"].as_array().unwrap().len(), 0, "{about}");
        if home.dst().exists() {
            assert_eq!(temporaries(&home.dst()), Vec::<std::path::PathBuf>::new(), "{about}");
            assert_whole(&home);
        }
        json(&home.src(), &home.dst(), &[]);
        home.assert_same();
    }
}

#[test]
fn an_interrupt_leaves_whole_files_and_a_second_run_finishes() {
    interrupt_often(Signal::INT, 100);
}

#[test]
fn so_does_a_request_to_terminate() {
    interrupt_often(Signal::TERM, 200);
}

#[test]
fn after_sudden_death_a_second_run_cleans_up_and_finishes() {
    let mut seen = 0;
    for round in 0..6 {
        let home = Home::with_tree(400, 300 + round);
        if interrupted(&home, Duration::from_millis(100 + 50 * round), Signal::KILL).is_none() {
            continue;
        }
        if home.dst().exists() {
            seen += temporaries(&home.dst()).len();
            for file in fs::read_dir(home.dst()).unwrap() {
                let _ = file.unwrap();
            }
        }
        json(&home.src(), &home.dst(), &[]);
        home.assert_same();
    }
    println!("{seen} temporary files were left and removed");
}

#[test]
fn an_interrupt_ends_a_large_copy_between_two_chunks() {
    let home = Home::new();
    fs::create_dir(home.src()).unwrap();
    make_large(&home.src().join("large"), 300 << 20);
    let mut child = command(&home.src(), &home.dst(), &["--json"]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while temporaries_in(&home.dst()) == 0 && Instant::now() < deadline {
        if child.try_wait().unwrap().is_some() {
            return; // a file system that copies by reference: nothing to interrupt
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    signal(&child, Signal::INT);
    let sent = Instant::now();
    let status = child.wait().unwrap();
    assert!(sent.elapsed() < Duration::from_secs(10), "{:?}", sent.elapsed());
    if status.code() == Some(0) {
        return;
    }
    assert_eq!(status.code(), Some(130));
    assert_eq!(fs::read_dir(home.dst()).unwrap().count(), 0);
}

fn temporaries_in(dir: &Path) -> usize {
    if dir.exists() { temporaries(dir).len() } else { 0 }
}

/// A file of `len` bytes of data, written quickly.
fn make_large(path: &Path, len: u64) {
    use std::io::Write as _;
    let mut file = fs::File::create(path).unwrap();
    let chunk = vec![0x5A_u8; 1 << 20];
    for _ in 0..len >> 20 {
        file.write_all(&chunk).unwrap();
    }
}
