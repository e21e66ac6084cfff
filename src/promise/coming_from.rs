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
