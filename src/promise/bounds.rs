//! What does not compile, each beside its twin that does.
//!
//! A value that must stay on its thread:
//!
//! ```compile_fail,E0277
//! let (promise, eventual) = tenure::promise::promise::<std::rc::Rc<u32>, ()>();
//! std::thread::spawn(move || drop(promise));
//! # drop(eventual);
//! ```
//! ```
//! let (promise, eventual) = tenure::promise::promise::<std::sync::Arc<u32>, ()>();
//! std::thread::spawn(move || drop(promise)).join().ok();
//! # drop(eventual);
//! ```
//!
//! On its own thread it may pass through all the same:
//!
//! ```
//! let (promise, eventual) = tenure::promise::promise::<std::rc::Rc<u32>, ()>();
//! promise.set(std::rc::Rc::new(1)).ok();
//! assert_eq!(eventual.get().ok().as_deref(), Some(&1));
//! ```
//!
//! An error that must stay on its thread:
//!
//! ```compile_fail,E0277
//! let (promise, eventual) = tenure::promise::promise::<(), std::rc::Rc<u32>>();
//! std::thread::spawn(move || drop(eventual));
//! # drop(promise);
//! ```
//! ```
//! let (promise, eventual) = tenure::promise::promise::<(), std::sync::Arc<u32>>();
//! std::thread::spawn(move || drop(eventual)).join().ok();
//! # drop(promise);
//! ```
//!
//! A callback that cannot be sent, since it may run wherever the promise is set:
//!
//! ```compile_fail,E0277
//! let (promise, eventual) = tenure::promise::promise::<u32, ()>();
//! let here = std::rc::Rc::new(1);
//! eventual.on_complete(move |_| drop(here));
//! # drop(promise);
//! ```
//! ```
//! let (promise, eventual) = tenure::promise::promise::<u32, ()>();
//! let here = std::sync::Arc::new(1);
//! eventual.on_complete(move |_| drop(here));
//! # drop(promise);
//! ```
//!
//! One for an executor, and a task:
//!
//! ```compile_fail,E0277
//! let (promise, eventual) = tenure::promise::promise::<u32, ()>();
//! let here = std::rc::Rc::new(1);
//! eventual.on_complete_via(tenure::executor::Inline, move |_| drop(here));
//! # drop(promise);
//! ```
//! ```compile_fail,E0277
//! let here = std::rc::Rc::new(1);
//! tenure::executor::Task::new(move || drop(here)).run();
//! ```
//! ```
//! let here = std::sync::Arc::new(1);
//! tenure::executor::Task::new(move || drop(here)).run();
//! ```
//!
//! A stage whose closure, or whose value, cannot be sent:
//!
//! ```compile_fail,E0277
//! let (promise, eventual) = tenure::promise::promise::<u32, ()>();
//! let mapped = eventual.map(std::rc::Rc::new);
//! # drop((promise, mapped));
//! ```
//! ```
//! let (promise, eventual) = tenure::promise::promise::<u32, ()>();
//! let mapped = eventual.map(std::sync::Arc::new);
//! # drop((promise, mapped));
//! ```
//!
//! A callback that borrows from the stack:
//!
//! ```compile_fail,E0597
//! let (promise, eventual) = tenure::promise::promise::<u32, ()>();
//! {
//!     let local = 1;
//!     eventual.on_complete(|_| assert_eq!(&local, &1));
//! }
//! # drop(promise);
//! ```
//! ```
//! let (promise, eventual) = tenure::promise::promise::<u32, ()>();
//! {
//!     let local = 1;
//!     eventual.on_complete(move |_| assert_eq!(&local, &1));
//! }
//! # drop(promise);
//! ```
//!
//! A promise is set once, an eventual is got once:
//!
//! ```compile_fail,E0382
//! let (promise, eventual) = tenure::promise::promise::<u32, ()>();
//! promise.set(1).ok();
//! promise.set(2).ok();
//! # drop(eventual);
//! ```
//! ```compile_fail,E0382
//! let (promise, eventual) = tenure::promise::promise::<u32, ()>();
//! let _ = eventual.get();
//! let _ = eventual.get();
//! # drop(promise);
//! ```
//! ```
//! let (promise, mut eventual) = tenure::promise::promise::<u32, ()>();
//! promise.set(1).ok();
//! let _ = eventual.try_get();
//! let _ = eventual.get();
//! ```
//!
//! Sharing is by reference between threads, so it asks for `Sync`:
//!
//! ```compile_fail,E0599
//! let (promise, eventual) = tenure::promise::promise::<std::cell::Cell<u32>, ()>();
//! let shared = eventual.share();
//! # drop(promise);
//! ```
//! ```
//! let (promise, eventual) = tenure::promise::promise::<std::sync::Mutex<u32>, ()>();
//! let shared = eventual.share();
//! # drop((promise, shared));
//! ```
//!
//! `Send` and `Sync` of every public type, in the direction in which they hold…
//!
//! ```
//! use std::cell::Cell;
//! use tenure::executor::{Executor, Inline, Task};
//! use tenure::promise::*;
//!
//! fn send<T: Send>() {}
//! fn sync<T: Sync>() {}
//! // `Cell` is `Send`, not `Sync`: to hand it over is enough.
//! send::<Promise<Cell<u8>, Cell<u8>>>();
//! sync::<Promise<Cell<u8>, Cell<u8>>>();
//! send::<Eventual<Cell<u8>, Cell<u8>>>();
//! sync::<Eventual<Cell<u8>, Cell<u8>>>();
//! send::<SharedPromise<Cell<u8>, Cell<u8>>>();
//! sync::<SharedPromise<Cell<u8>, Cell<u8>>>();
//! send::<Slot<Cell<u8>, Cell<u8>>>();
//! sync::<Slot<Cell<u8>, Cell<u8>>>();
//! send::<Completions<Cell<u8>, Cell<u8>>>();
//! send::<Via<Cell<u8>, Cell<u8>, Inline>>();
//! send::<Shared<u8, u8>>();
//! sync::<Shared<u8, u8>>();
//! send::<SharedFuture<'static, u8, u8>>();
//! send::<Canceller>();
//! sync::<Canceller>();
//! send::<Task>();
//! sync::<Task>();
//! send::<EventualError<Cell<u8>>>();
//! sync::<EventualError<u8>>();
//! sync::<PanicPayload>();
//! send::<SetError<Cell<u8>>>();
//! ```
//!
//! …and not where they do not, each beside its twin:
//!
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::Promise<std::rc::Rc<u8>, ()>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::Promise<std::sync::Arc<u8>, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Promise<std::rc::Rc<u8>, ()>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Promise<std::sync::Arc<u8>, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::Eventual<std::rc::Rc<u8>, ()>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::Eventual<std::sync::Arc<u8>, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Eventual<std::rc::Rc<u8>, ()>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Eventual<std::sync::Arc<u8>, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::SharedPromise<std::rc::Rc<u8>, ()>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::SharedPromise<std::sync::Arc<u8>, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::SharedPromise<std::rc::Rc<u8>, ()>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::SharedPromise<std::sync::Arc<u8>, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::Slot<std::rc::Rc<u8>, ()>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::Slot<std::sync::Arc<u8>, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Slot<std::rc::Rc<u8>, ()>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Slot<std::sync::Arc<u8>, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::Promise<(), std::rc::Rc<u8>>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::Promise<(), std::sync::Arc<u8>>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Promise<(), std::rc::Rc<u8>>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Promise<(), std::sync::Arc<u8>>>();
//! ```
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::Eventual<(), std::rc::Rc<u8>>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::Eventual<(), std::sync::Arc<u8>>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Eventual<(), std::rc::Rc<u8>>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Eventual<(), std::sync::Arc<u8>>>();
//! ```
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::Completions<std::rc::Rc<u8>, ()>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::Completions<std::sync::Arc<u8>, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Completions<std::rc::Rc<u8>, ()>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Completions<std::sync::Arc<u8>, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::Via<std::rc::Rc<u8>, (), tenure::executor::Inline>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::Via<std::sync::Arc<u8>, (), tenure::executor::Inline>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Via<std::rc::Rc<u8>, (), tenure::executor::Inline>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Via<std::sync::Arc<u8>, (), tenure::executor::Inline>>();
//! ```
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::Via<(), (), std::rc::Rc<u8>>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::Via<(), (), std::sync::Arc<u8>>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Via<(), (), std::cell::Cell<u8>>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Via<(), (), std::sync::Arc<u8>>>();
//! ```
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::Shared<std::cell::Cell<u8>, ()>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::Shared<u8, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Shared<std::cell::Cell<u8>, ()>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::Shared<u8, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::SharedFuture<'static, std::cell::Cell<u8>, ()>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::SharedFuture<'static, u8, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::SharedFuture<'static, std::cell::Cell<u8>, ()>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::SharedFuture<'static, u8, ()>>();
//! ```
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::EventualError<std::rc::Rc<u8>>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::EventualError<std::sync::Arc<u8>>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::EventualError<std::cell::Cell<u8>>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::EventualError<u8>>();
//! ```
//! ```compile_fail,E0277
//! fn send<T: Send>() {}
//! send::<tenure::promise::SetError<std::rc::Rc<u8>>>();
//! ```
//! ```
//! fn send<T: Send>() {}
//! send::<tenure::promise::SetError<std::sync::Arc<u8>>>();
//! ```
//! ```compile_fail,E0277
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::SetError<std::cell::Cell<u8>>>();
//! ```
//! ```
//! fn sync<T: Sync>() {}
//! sync::<tenure::promise::SetError<u8>>();
//! ```
//!
//! Whatever they are of, these are both: a canceller, a task, a panic's payload, a state, the executors.
//!
//! ```
//! fn both<T: Send + Sync>() {}
//! both::<tenure::promise::Canceller>();
//! both::<tenure::promise::PanicPayload>();
//! both::<tenure::promise::State>();
//! both::<tenure::executor::Task>();
//! both::<tenure::executor::Inline>();
//! both::<tenure::executor::ThreadPerTask>();
//! ```
//!
//! A group's members have to be sendable, since whoever completes one works on all:
//!
//! ```compile_fail,E0277
//! let (promise, eventual) = tenure::promise::promise::<std::rc::Rc<u8>, ()>();
//! let whole = tenure::promise::all([eventual]);
//! # drop((promise, whole));
//! ```
//! ```
//! let (promise, eventual) = tenure::promise::promise::<std::sync::Arc<u8>, ()>();
//! let whole = tenure::promise::all([eventual]);
//! # drop((promise, whole));
//! ```
//!
//! A hook runs on the canceller's thread:
//!
//! ```compile_fail,E0277
//! let (mut promise, eventual) = tenure::promise::promise::<u8, ()>();
//! let here = std::rc::Rc::new(1);
//! promise.on_cancel(move || drop(here));
//! # drop(eventual);
//! ```
//! ```
//! let (mut promise, eventual) = tenure::promise::promise::<u8, ()>();
//! let here = std::sync::Arc::new(1);
//! promise.on_cancel(move || drop(here));
//! # drop(eventual);
//! ```
//!
//! An executor that a stage is bound to goes along with it:
//!
//! ```compile_fail,E0277
//! # use tenure::executor::{Executor, Task};
//! #[derive(Clone)]
//! struct Here(std::rc::Rc<u8>);
//! impl Executor for Here {
//!     fn execute(&self, task: Task) -> Result<(), Task> { Err(task) }
//! }
//! let (promise, eventual) = tenure::promise::promise::<u8, ()>();
//! eventual.on_complete_via(Here(std::rc::Rc::new(1)), drop);
//! # drop(promise);
//! ```
//! ```
//! # use tenure::executor::{Executor, Task};
//! #[derive(Clone)]
//! struct There(std::sync::Arc<u8>);
//! impl Executor for There {
//!     fn execute(&self, task: Task) -> Result<(), Task> { Err(task) }
//! }
//! let (promise, eventual) = tenure::promise::promise::<u8, ()>();
//! eventual.on_complete_via(There(std::sync::Arc::new(1)), drop);
//! # drop(promise);
//! ```
