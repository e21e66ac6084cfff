//! Locks under a processor quota of a half: threads are stopped at any moment, for tens of milliseconds,
//! the owner too.
//!
//! Needs the right to make a control group. Where that is missing, the test says SKIPPED and shows
//! nothing.

#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use tenure::lock::{AdaptiveCondvar, AdaptiveMutex, AdaptiveRwLock};

const CHILD: &str = "TENURE_QUOTA_CHILD";
const THREADS: u64 = 4;
const ROUNDS: u64 = 200_000;

/// A control group, removed at the end.
struct Group(PathBuf);

impl Group {
    /// One with 5 ms of every 10; or why there is none.
    fn with_half_a_processor() -> Result<Self, String> {
        let name = format!("tenure-quota-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let second = root.join("cgroup.controllers").exists();
        let place = if second { root.join(name) } else { root.join("cpu").join(name) };
        if !second && !root.join("cpu/cpu.cfs_quota_us").exists() {
            return Err("no processor controller".into());
        }
        fs::create_dir(&place).map_err(|error| format!("{}: {error}", place.display()))?;
        let group = Self(place);
        let files: &[(&str, &str)] = if second {
            &[("cpu.max", "5000 10000")]
        } else {
            &[("cpu.cfs_period_us", "10000"), ("cpu.cfs_quota_us", "5000")]
        };
        for (file, text) in files {
            fs::write(group.0.join(file), text).map_err(|error| format!("{file}: {error}"))?;
        }
        Ok(group)
    }

    fn adopt(&self, process: u32) -> Result<(), String> {
        let procs = self.0.join("cgroup.procs");
        fs::write(procs, process.to_string()).map_err(|error| format!("cgroup.procs: {error}"))
    }

    /// How often the group was stopped.
    fn stopped(&self) -> u64 {
        let text = fs::read_to_string(self.0.join("cpu.stat")).unwrap_or_default();
        let number = text.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        number.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// What the child does: every way to wait.
fn contend() {
    let mutex = Arc::new(AdaptiveMutex::new(0_u64));
    let shared = Arc::new(AdaptiveRwLock::new(0_u64));
    let turn = Arc::new((AdaptiveMutex::new(0_u64), AdaptiveCondvar::new()));
    let threads: Vec<_> = (0..THREADS)
        .map(|me| {
            let (mutex, shared, turn) = (mutex.clone(), shared.clone(), turn.clone());
            thread::spawn(move || {
                for round in 0..ROUNDS {
                    if round % 2 == 0 {
                        *mutex.lock() += 1;
                    } else {
                        let taken = || mutex.try_lock_for(Duration::from_micros(50));
                        while taken().map(|mut n| *n += 1).is_none() {}
                    }
                    if round % 100 == 0 {
                        *shared.write() += 1;
                    } else {
                        assert!(*shared.read() <= THREADS * ROUNDS);
                    }
                }
                // Everybody's turn, one after the other.
                for round in 0..50 {
                    let mut now = turn.0.lock();
                    turn.1.wait_while(&mut now, |now| *now != round * THREADS + me);
                    *now += 1;
                    drop(now);
                    turn.1.notify_all();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*mutex.lock(), THREADS * ROUNDS);
    assert_eq!(*shared.read(), THREADS * ROUNDS / 100);
}

#[test]
fn locks_work_while_a_quota_stops_their_threads() {
    if std::env::var_os(CHILD).is_some() {
        // Told to begin when it is in the group.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return contend();
    }
    let group = match Group::with_half_a_processor() {
        Ok(group) => group,
        Err(why) => {
            eprintln!("SKIPPED: no lock was tried under a processor quota: {why}");
            return;
        }
    };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "locks_work_while_a_quota_stops_their_threads"])
        .env(CHILD, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let adopted = group.adopt(child.id());
    // Also where it was not: the child waits for it.
    drop(child.stdin.take());
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begin.elapsed() > Duration::from_secs(120) {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the child got no further under its quota");
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(status.success());
    match adopted {
        Ok(()) => println!("stopped {} times in {:?}", group.stopped(), begin.elapsed()),
        Err(why) => eprintln!("SKIPPED: no lock was tried under a processor quota: {why}"),
    }
}
