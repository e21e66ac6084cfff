//! Leases beside what people build by hand: one thread on one key, threads on one key and on many.
//!
//! Every implementation keeps a `u64` under a key, reads the same clock, and checks token and deadline
//! in every call. "coarse" names read the kernel's coarse clock everywhere, without the correction near
//! the deadline that the lease table makes; the others read the precise one.

mod lease_peers;

use std::cell::LazyCell;
use std::hint::black_box;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lease_peers::*;
use tenure::lease::LeaseTable;

type Table = LeaseTable<u64, u64>;

fn table(keys: u64) -> Table {
    let table = Table::new();
    for key in 0..keys {
        table.handle(&key).unwrap();
    }
    table
}

/// Makes a peer.
type Make = Box<dyn Fn() -> Box<dyn Peer>>;

/// The peers, by name, each with `keys` keys.
fn peers(keys: u64) -> Vec<(&'static str, Make)> {
    macro_rules! peer {
        ($name:literal, $new:expr) => {
            (
                $name,
                Box::new(move || Box::new($new) as Box<dyn Peer>) as Box<dyn Fn() -> Box<dyn Peer>>,
            )
        };
    }
    vec![
        peer!("mutex_slab", Slab::<Precise>::new(keys)),
        peer!("mutex_slab_coarse", Slab::<Coarse>::new(keys)),
        peer!("one_mutex_map", OneMutex::<Precise>::new(keys)),
        peer!("one_mutex_map_coarse", OneMutex::<Coarse>::new(keys)),
        peer!("sharded_64", Sharded::<Precise>::new(keys)),
        peer!("sharded_64_coarse", Sharded::<Coarse>::new(keys)),
        peer!("dashmap", Dash::<Precise>::new(keys)),
        peer!("dashmap_coarse", Dash::<Coarse>::new(keys)),
        peer!("papaya_cas", ByCas(Papaya::<Precise>::new(keys))),
        peer!("papaya_cas_coarse", ByCas(Papaya::<Coarse>::new(keys))),
        peer!("scc_cas", ByCas(Scc::<Precise>::new(keys))),
        peer!("scc_cas_coarse", ByCas(Scc::<Coarse>::new(keys))),
    ]
}

fn one_key(c: &mut Criterion) {
    let table = table(1);
    let handle = table.handle(&0).unwrap();
    let peers: Vec<_> = peers(1).into_iter().map(|(name, new)| (name, new())).collect();

    let mut group = c.benchmark_group("lease: acquire, commit and release");
    group.bench_function("tenure_handle", |b| {
        b.iter(|| {
            let mut lease = handle.try_acquire(TTL).unwrap();
            *lease += 1;
            lease.commit().unwrap();
        })
    });
    group.bench_function("tenure_index", |b| {
        b.iter(|| {
            let mut lease = table.try_acquire(black_box(&0), TTL).unwrap();
            *lease += 1;
            lease.commit().unwrap();
        })
    });
    for (name, peer) in &peers {
        group.bench_function(*name, |b| {
            b.iter(|| {
                let key = black_box(0);
                let (token, value) = peer.take(key).unwrap();
                assert!(peer.commit(key, token, value + 1));
            })
        });
    }
    group.finish();

    let mut group = c.benchmark_group("lease: acquire and release");
    group.bench_function("tenure_handle", |b| {
        b.iter(|| drop(black_box(handle.try_acquire(TTL).unwrap())))
    });
    let pures: LeaseTable<u64, ()> = LeaseTable::new();
    let pure = pures.handle(&0).unwrap();
    group.bench_function("tenure_handle_pure", |b| {
        b.iter(|| drop(black_box(pure.try_acquire(TTL).unwrap())))
    });
    for (name, peer) in &peers {
        group.bench_function(*name, |b| {
            b.iter(|| {
                let key = black_box(0);
                let (token, _) = peer.take(key).unwrap();
                assert!(peer.release(key, token));
            })
        });
    }
    group.finish();

    let mut lease = handle.try_acquire(TTL).unwrap();
    let held: Vec<_> = peers.iter().map(|(_, peer)| peer.take(0).unwrap().0).collect();

    let mut group = c.benchmark_group("lease: valid");
    group.bench_function("tenure", |b| b.iter(|| assert!(black_box(&lease).is_valid())));
    group.bench_function("clock_alone_coarse", |b| b.iter(|| black_box(Coarse::now())));
    group.bench_function("clock_alone_precise", |b| b.iter(|| black_box(Precise::now())));
    for ((name, peer), token) in peers.iter().zip(&held) {
        group.bench_function(*name, |b| b.iter(|| assert!(peer.valid(black_box(0), *token))));
    }
    group.finish();

    let mut group = c.benchmark_group("lease: renew");
    group.bench_function("tenure", |b| b.iter(|| black_box(&lease).renew(TTL).unwrap()));
    for ((name, peer), token) in peers.iter().zip(&held) {
        group.bench_function(*name, |b| b.iter(|| assert!(peer.renew(black_box(0), *token))));
    }
    group.finish();

    for ((_, peer), token) in peers.iter().zip(&held) {
        assert!(peer.renew(0, *token));
    }
    let mut group = c.benchmark_group("lease: checkpoint");
    group.bench_function("tenure", |b| {
        b.iter(|| {
            lease.renew(TTL).unwrap();
            *lease += 1;
            lease.checkpoint().unwrap();
        })
    });
    for ((name, peer), token) in peers.iter().zip(&held) {
        group.bench_function(*name, |b| {
            let mut value = 0;
            b.iter(|| {
                assert!(peer.renew(0, *token));
                value += 1;
                assert!(peer.checkpoint(black_box(0), *token, value));
            })
        });
    }
    group.finish();
}

/// The time that `threads` threads take for `iters` rounds each, begun together. A round gives how many
/// of its tries succeeded; the sum is printed, as losing tries are cheap.
fn together<S, R>(threads: u64, iters: u64, start: S) -> (Duration, u64)
where
    S: Fn(u64) -> R + Sync,
    R: FnMut() -> bool,
{
    let barrier = Barrier::new(threads as usize + 1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (barrier, start) = (&barrier, &start);
                scope.spawn(move || {
                    let mut round = start(thread);
                    barrier.wait();
                    let mut won = 0;
                    for _ in 0..iters {
                        won += u64::from(round());
                    }
                    won
                })
            })
            .collect();
        barrier.wait();
        let begin = Instant::now();
        let won = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
        (begin.elapsed(), won)
    })
}

/// A cheap walk over `keys` keys in an order that no prefetcher follows; threads share none.
struct Walk {
    state: u64,
    keys: u64,
    threads: u64,
    thread: u64,
}

impl Walk {
    #[inline]
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        let part = self.keys / self.threads;
        self.thread * part + ((self.state as u128 * part as u128) >> 64) as u64
    }
}

fn walk(keys: u64, threads: u64, thread: u64) -> Walk {
    Walk { state: 0x9E37_79B9_7F4A_7C15 ^ (thread + 1), keys, threads, thread }
}

fn disjoint(c: &mut Criterion) {
    for keys in [1_000, 1_000_000] {
        let mut group = c.benchmark_group(format!("lease: cycle on {keys} keys, disjoint"));
        group.sample_size(10);
        for threads in [1, 2, 4] {
            group.throughput(Throughput::Elements(threads));
            // Made when first asked for: a filtered run makes nothing else.
            let table = LazyCell::new(|| table(keys));
            group.bench_function(BenchmarkId::new("tenure_index", threads), |b| {
                let table: &Table = &table;
                b.iter_custom(|iters| {
                    together(threads, iters, |thread| {
                        let mut walk = walk(keys, threads, thread);
                        move || {
                            let mut lease = table.try_acquire(&walk.next(), TTL).unwrap();
                            *lease += 1;
                            lease.commit().is_ok()
                        }
                    })
                    .0
                })
            });
            // Each thread's own, made once.
            let handles = LazyCell::new(|| {
                let part = keys / threads;
                let of = |thread| (0..part).map(move |key| thread * part + key);
                (0..threads)
                    .map(|thread| {
                        Mutex::new(of(thread).map(|key| table.handle(&key).unwrap()).collect())
                    })
                    .collect::<Vec<Mutex<Vec<_>>>>()
            });
            group.bench_function(BenchmarkId::new("tenure_handles", threads), |b| {
                let handles = &*handles;
                b.iter_custom(|iters| {
                    together(threads, iters, |thread| {
                        let part = keys / threads;
                        let handles = handles[thread as usize].lock().unwrap();
                        let mut walk = walk(keys, threads, thread);
                        move || {
                            let at = (walk.next() - thread * part) as usize;
                            let mut lease = handles[at].try_acquire(TTL).unwrap();
                            *lease += 1;
                            lease.commit().is_ok()
                        }
                    })
                    .0
                })
            });
            drop(handles);
            drop(table);
            for (name, new) in peers(keys) {
                let peer = LazyCell::new(new);
                group.bench_function(BenchmarkId::new(name, threads), |b| {
                    let peer: &dyn Peer = &**peer;
                    b.iter_custom(|iters| {
                        together(threads, iters, |thread| {
                            let mut walk = walk(keys, threads, thread);
                            move || {
                                let key = walk.next();
                                let (token, value) = peer.take(key).unwrap();
                                peer.commit(key, token, value + 1)
                            }
                        })
                        .0
                    })
                });
            }
        }
        group.finish();
    }
}

/// Threads on one key: time for a *successful* grant, over all threads.
fn contended(c: &mut Criterion) {
    let mut group = c.benchmark_group("lease: one key contended, a grant");
    group.sample_size(20);
    for threads in [1, 2, 4] {
        let table = table(1);
        let a_grant = |(time, won): (Duration, u64), iters: u64| {
            time.mul_f64(iters as f64 / won.max(1) as f64)
        };
        group.bench_function(BenchmarkId::new("tenure_handle", threads), |b| {
            b.iter_custom(|iters| {
                let run = together(threads, iters, |_| {
                    let handle = table.handle(&0).unwrap();
                    move || match handle.try_acquire(TTL) {
                        Ok(mut lease) => {
                            *lease += 1;
                            lease.commit().is_ok()
                        }
                        Err(_) => false,
                    }
                });
                a_grant(run, iters)
            })
        });
        for (name, new) in peers(1) {
            let peer = new();
            group.bench_function(BenchmarkId::new(name, threads), |b| {
                b.iter_custom(|iters| {
                    let run = together(threads, iters, |_| {
                        let peer = &*peer;
                        move || match peer.take(0) {
                            Some((token, value)) => peer.commit(0, token, value + 1),
                            None => false,
                        }
                    });
                    a_grant(run, iters)
                })
            });
        }
    }
    group.finish();
}

/// 10,000 leases kept: one by one, or through their session.
fn many(c: &mut Criterion) {
    const LEASES: u64 = 10_000;
    let table = table(2 * LEASES);
    let handles: Vec<_> = (0..2 * LEASES).map(|key| table.handle(&key).unwrap()).collect();
    let mut group = c.benchmark_group("lease: 10,000 leases renewed");
    let session = table.session(TTL).unwrap();
    let (ours, alone) = handles.split_at(LEASES as usize);
    let kept: Vec<_> = ours.iter().map(|handle| session.try_acquire(handle).unwrap()).collect();
    group.bench_function("tenure_session", |b| b.iter(|| session.renew(TTL).unwrap()));
    assert!(kept.iter().all(|lease| lease.is_valid()));
    let leases: Vec<_> = alone.iter().map(|handle| handle.try_acquire(TTL).unwrap()).collect();
    group.bench_function("tenure_one_by_one", |b| {
        b.iter(|| leases.iter().for_each(|lease| lease.renew(TTL).unwrap()))
    });
    let slab = Slab::<Precise>::new(LEASES);
    let tokens: Vec<_> = (0..LEASES).map(|key| slab.take(key).unwrap().0).collect();
    group.bench_function("mutex_slab_one_by_one", |b| {
        b.iter(|| (0..LEASES).all(|key| slab.renew(key, tokens[key as usize])))
    });
    group.finish();
}

/// From a release to the waiting thread's first step as owner, and from a deadline to it.
fn woken(c: &mut Criterion) {
    let mut group = c.benchmark_group("lease: woken");
    group.sample_size(10);
    let table = table(2);
    group.bench_function("after_release", |b| {
        b.iter_custom(|iters| {
            let handle = table.handle(&0).unwrap();
            let mut took = Duration::ZERO;
            for _ in 0..iters {
                let held = handle.acquire(TTL).unwrap();
                let waiting = handle.acquire_async(TTL);
                let waiter = std::thread::spawn(move || {
                    let lease = waiting.get().unwrap();
                    (Instant::now(), lease)
                });
                // Long enough for the waiter to sleep.
                std::thread::sleep(Duration::from_micros(300));
                let begin = Instant::now();
                drop(held);
                took += waiter.join().unwrap().0.duration_since(begin);
            }
            took
        })
    });
    group.bench_function("after_deadline_of_5ms, how late", |b| {
        b.iter_custom(|iters| {
            let ttl = Duration::from_millis(5);
            let handle = table.handle(&0).unwrap();
            let mut late = Duration::ZERO;
            for _ in 0..iters {
                let stuck = handle.acquire(ttl).unwrap();
                let due = Instant::now() + stuck.remaining();
                drop(handle.acquire(ttl).unwrap());
                late += due.elapsed();
            }
            late
        })
    });
    group.finish();
}

criterion_group!(benches, one_key, disjoint, contended, many, woken);
criterion_main!(benches);
