//! Real threads, real time, leases of a millisecond: owners that are late, revoked, dropped and handed
//! over, readers at every moment. `TENURE_STRESS=n` runs n times as long.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::lease::*;

const KEYS: u64 = 3;
const THREADS: u64 = 4;

/// A value whose parts must agree: a torn or half-dropped one shows.
#[derive(Clone, Debug)]
struct Ledger {
    commits: u64,
    tokens: Vec<u64>,
    sum: u64,
}

impl Ledger {
    fn new() -> Self {
        Self { commits: 0, tokens: Vec::new(), sum: 0 }
    }

    fn add(&mut self, token: u64) {
        self.commits += 1;
        self.sum += token;
        self.tokens.push(token);
        if self.tokens.len() > 16 {
            self.tokens.remove(0);
        }
    }

    fn check(&self) {
        assert!(self.tokens.windows(2).all(|pair| pair[0] <= pair[1]), "{:?}", self.tokens);
        assert_eq!(self.tokens.len() as u64, self.commits.min(16));
        if self.commits <= 16 {
            assert_eq!(self.tokens.iter().sum::<u64>(), self.sum);
        }
    }
}

fn number(token: FencingToken) -> u64 {
    u64::from_be_bytes(token.to_bytes())
}

fn run(epoch_limit: u64, seed: u64, time: Duration) {
    println!("epochs {epoch_limit}, seed {seed}");
    let table: LeaseTable<u64, Ledger> =
        LeaseTable::<u64, Ledger>::builder().epoch_limit(epoch_limit).build();
    for key in 0..KEYS {
        let _ = table.insert(key, Ledger::new()).expect("new");
    }
    let stop = AtomicBool::new(false);
    let published: Vec<_> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let refused = AtomicU64::new(0);
    let gates: Vec<_> = (0..KEYS).map(|_| FencedCell::new(0_u64)).collect();
    let granted: Vec<_> = (0..KEYS).map(|_| Mutex::new(BTreeMap::new())).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, stop, published, refused, gates, granted) =
                (&table, &stop, &published, &refused, &gates, &granted);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed ^ (thread << 32));
                let handles: Vec<_> =
                    (0..KEYS).map(|key| table.find(&key).expect("made")).collect();
                while !stop.load(Ordering::Relaxed) {
                    let key = rng.u64(0..KEYS);
                    let at = key as usize;
                    let ttl = Duration::from_millis(rng.u64(0..3));
                    let Ok(mut lease) = handles[at].try_acquire_owned(ttl) else {
                        let peek = table.peek(&key).expect("made");
                        peek.value.check();
                        if rng.u8(..) < 8
                            && let (LeaseState::Held, Some(token)) = (peek.state, peek.token)
                        {
                            let _ = table.revoke(&key, token, "stress");
                        }
                        continue;
                    };
                    let token = number(lease.token());
                    let twice = granted[at].lock().expect("no panic").insert(token, thread);
                    assert_eq!(twice, None, "token {token} of key {key} was granted twice");
                    Ledger::check(&lease);
                    if rng.u8(..) < 16 {
                        // Late, often.
                        std::thread::sleep(Duration::from_micros(rng.u64(0..4000)));
                    }
                    let mut done = 0;
                    lease.add(token);
                    if rng.u8(..) < 64 && lease.checkpoint().is_ok() {
                        done += 1;
                        lease.add(token);
                    }
                    if rng.u8(..) < 16 {
                        match lease.transfer("other", ttl) {
                            Ok(handoff) => match handoff.accept(ttl) {
                                Ok(heir) => lease = heir,
                                Err(_) => {
                                    published[at].fetch_add(done, Ordering::Relaxed);
                                    continue;
                                }
                            },
                            Err(late) => lease = late.into_guard(),
                        }
                        granted[at].lock().expect("no panic").insert(number(lease.token()), thread);
                    }
                    let _ = lease.renew(ttl);
                    if let Ok(permit) = lease.check() {
                        let token = permit.token();
                        let _ = gates[at].write(token, |seen| {
                            assert!(*seen <= number(token));
                            *seen = number(token);
                        });
                    }
                    if rng.u8(..) < 16 {
                        drop(lease);
                    } else if lease.commit().is_ok() {
                        done += 1;
                    } else {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    published[at].fetch_add(done, Ordering::Relaxed);
                }
            });
        }
        let begin = Instant::now();
        while begin.elapsed() < time {
            for info in table.list() {
                table.peek(&info.key).expect("made").value.check();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let mut all = 0;
    for key in 0..KEYS {
        let peek = table.peek(&key).expect("made");
        peek.value.check();
        let commits = published[key as usize].load(Ordering::Relaxed);
        assert_eq!(
            peek.value.commits, commits,
            "each commit that was accepted, once, and no other"
        );
        assert_eq!(peek.version, commits);
        all += commits;
    }
    println!("{all} commits, {} refused", refused.load(Ordering::Relaxed));
    assert!(all > 0);
}

#[test]
fn every_accepted_commit_counts_once_and_no_other_does() {
    let factor: u32 = std::env::var("TENURE_STRESS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let seed = fastrand::u64(..);
    for epoch_limit in [u64::MAX, 15, 1] {
        run(epoch_limit, seed, Duration::from_millis(700) * factor);
    }
}
