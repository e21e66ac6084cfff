//! Coming from tokio, `futures`, C++ or Java: what is called what here, and what differs.
//!
//! # From `tokio::sync::oneshot`
//!
//! | there | here | differs |
//! |---|---|---|
//! | `channel()` | [`promise()`](super::promise()) | the error is typed: `promise::<T, E>()` |
//! | `Sender::send(v)` | [`Promise::set`](super::Promise::set) | gives the value back in the error, too |
//! | `Sender::closed().await`, `poll_closed` | [`Promise::cancelled`](super::Promise::cancelled), `poll_cancelled` | also a reader that *asks*, and stays |
//! | `Sender::is_closed` | [`Promise::is_cancelled`](super::Promise::is_cancelled) | |
//! | `rx.await` | `eventual.await` | a poll after the result is `Err(Taken)`, not a panic |
//! | `blocking_recv` | [`Eventual::get`](super::Eventual::get) | never panics inside a runtime: it blocks that thread |
//! | `try_recv` | [`Eventual::try_get`](super::Eventual::try_get) | `None` is "not yet" |
//! | `timeout(d, rx)` | [`get_timeout`](super::Eventual::get_timeout), [`within`](super::Eventual::within) | the eventual is usable afterwards |
//! | `rx.close()` | [`Eventual::cancel`](super::Eventual::cancel) | a request: the result that is set first counts |
//! | `RecvError` | [`Broken`](super::EventualError::Broken) | |
//! | a task that awaits and goes on | [`on_complete`](super::Eventual::on_complete), [`map`](super::Eventual::map) | no task, no runtime |
//!
//! ```
//! use tenure::promise::{EventualError, promise};
//!
//! // let (tx, rx) = oneshot::channel();
//! let (tx, rx) = promise::<u32, ()>();
//! // tokio::spawn(async move { tx.send(3) });
//! let worker = std::thread::spawn(move || tx.set(3));
//! // match rx.await { Ok(v) => …, Err(_) => … }
//! match rx.get() {
//!     Ok(v) => assert_eq!(v, 3),
//!     Err(EventualError::Broken) => unreachable!("the sender was dropped"),
//!     Err(error) => unreachable!("{error:?}"),
//! }
//! # worker.join().ok();
//! ```
//!
//! Not here: an asynchronous timer of its own. `.await` works on tokio's threads; a limit there is
//! `tokio::time::timeout`, or [`within`](super::Eventual::within) with any timer.
//!
//! # From `futures`
//!
//! | there | here | differs |
//! |---|---|---|
//! | `FutureExt::map`, `TryFutureExt::and_then`, … | the same names | pushed by the writer, not polled: they run without a reader |
//! | `FutureExt::shared` | [`Eventual::share`](super::Eventual::share) | by `&T`: no `Clone` needed; callbacks, too |
//! | `join_all`, `try_join_all` | [`all_settled`](super::all_settled), [`all`](super::all) | |
//! | `select_all`, `select_ok` | [`any`](super::any), [`any_ok`](super::any_ok) | losers are dropped, so asked to stop |
//! | `FuturesUnordered` | [`Completions`](super::Completions) | blocks, polls, or streams |
//! | `AbortHandle` | [`Canceller`](super::Canceller) | |
//!
//! ```
//! use tenure::promise::{Completions, all, ready};
//!
//! // let sum = try_join_all(futures).map_ok(|v| v.iter().sum::<u32>());
//! let sum = all((1..=3).map(ready::<u32, ()>)).map(|v| v.iter().sum::<u32>());
//! assert_eq!(sum.get().ok(), Some(6));
//! // let mut each: FuturesUnordered<_> = futures.collect(); while let Some(n) = each.next().await …
//! let each: Completions<u32, ()> = (1..=3).map(ready).collect();
//! assert_eq!(each.filter_map(|(_, outcome)| outcome.ok()).sum::<u32>(), 6);
//! ```
//!
//! The difference that matters: a future does nothing until it is polled, and then runs where its task
//! runs. A stage here runs without anybody, on the thread that completes what it hangs on. A chain of
//! futures is one value without allocations; a stage is one pooled block.
//!
//! # From C++: `std::future`, folly
//!
//! | there | here | differs |
//! |---|---|---|
//! | `std::promise::set_value`, `set_exception` | [`set`](super::Promise::set), [`set_error`](super::Promise::set_error) | a second set does not compile |
//! | `broken_promise` | [`Broken`](super::EventualError::Broken) | |
//! | `wait_for` | [`get_timeout`](super::Eventual::get_timeout) | takes the value if it is there |
//! | `~future` that blocks (`std::async`) | dropping never blocks | it asks the writer to stop |
//! | folly `thenValue`, `thenTry`, `thenError` | `map`/`and_then`, `transform`/`then`, `recover`/`or_else` | |
//! | folly `via(executor)` | [`Eventual::via`](super::Eventual::via) | honoured on a ready value, too |
//! | folly `thenInline` | the default | |
//! | folly `raise`, `setInterruptHandler` | [`cancel`](super::Eventual::cancel), [`on_cancel`](super::Promise::on_cancel) | reaches the head of a chain in one step |
//! | folly `SharedPromise` | [`Shared`](super::Shared), on the reading side | ours of [that name](super::SharedPromise) is for many *writers* |
//! | folly `collectAll`, `collectAny`, `collectN` | [`all_settled`](super::all_settled), [`any`](super::any), [`first_n`](super::first_n) | |
//! | folly `within` | [`Eventual::within`](super::Eventual::within) | |
//!
//! ```
//! use tenure::executor::ThreadPerTask;
//! use tenure::promise::promise;
//!
//! // folly::Promise<int> p; auto f = p.getSemiFuture().via(&executor)
//! //     .thenValue([](int n) { return n + 1; }).thenError(…);
//! let (p, f) = promise::<i32, String>();
//! let f = f.via(ThreadPerTask).map(|n| n + 1).recover(|_| -1).unbind();
//! // p.setValue(1); std::move(f).get();
//! p.set(1).ok();
//! assert_eq!(f.get().ok(), Some(2));
//! ```
//!
//! A recursion of `thenValue` that returns futures grows neither stack nor memory, as in folly: see
//! [`and_then`](super::Eventual::and_then). `std::future::get` twice is undefined; here the second is
//! [`Taken`](super::EventualError::Taken), or does not compile.
//!
//! # From Java's `CompletableFuture`
//!
//! | there | here | differs |
//! |---|---|---|
//! | one object, completed and read | two handles | who may complete is in the type; [`SharedPromise`](super::SharedPromise) for many |
//! | `complete(v)` → `boolean` | [`SharedPromise::try_set`](super::SharedPromise::try_set) | gives the value back |
//! | `thenApply`, `thenCompose`, `handle`, `exceptionally`, `whenComplete` | `map`, `and_then`, `transform`, `recover`, `inspect` | |
//! | `thenApplyAsync(f, executor)` | `via(executor).map(f)` | no hidden common pool |
//! | dependents run last in, first out | shared callbacks run in the order of registration | |
//! | `cancel(true)` completes it | [`cancel`](super::Eventual::cancel) asks | and goes up the chain, which there it does not |
//! | `orTimeout` | [`within`](super::Eventual::within) | |
//! | `allOf`, `anyOf` | [`all`](super::all), [`any`](super::any) | typed; losers are asked to stop |
//! | `getNow(d)`, `join` | [`try_get`](super::Eventual::try_get), [`get`](super::Eventual::get) | |
//!
//! ```
//! use tenure::promise::{SharedPromise, promise};
//!
//! // var f = new CompletableFuture<Integer>();
//! let (p, f) = promise::<u32, String>();
//! let p = SharedPromise::from(p);
//! // f.thenApply(n -> n * 2).exceptionally(e -> 0).thenAccept(System.out::println);
//! f.map(|n| n * 2).recover(|_| 0).on_complete(|n| println!("{:?}", n.ok()));
//! // f.complete(1); f.complete(2);
//! assert!(p.try_set(1).is_ok());
//! assert!(p.try_set(2).is_err());
//! ```
//!
//! A `CompletableFuture` with many dependents is a [`Shared`](super::Shared): an eventual has one
//! reader. Its `join` in a common pool's thread may start helpers; here a thread that waits deep in
//! callbacks first runs what its own queue holds.
