//! Model checking *your* code that uses this crate. Only with `--cfg tenure_loom`.
//!
//! Under that cfg the crate's primitives run on [loom](https://docs.rs/loom) types, so a loom test
//! of yours can use them as they are. Start it with [`check`] instead of `loom::model`, or with
//! [`Settings`] to bound it:
//!
//! ```ignore
//! #[test]
//! fn the_cache_is_filled_once() {
//!     tenure::model::Settings { preemption_bound: Some(3), ..Default::default() }.check(|| {
//!         let cache = loom::sync::Arc::new(Cache::new());
//!         let filler = loom::thread::spawn({ let cache = cache.clone(); move || cache.fill() });
//!         let other = loom::thread::spawn({ let cache = cache.clone(); move || cache.fill() });
//!         filler.join().unwrap();
//!         other.join().unwrap();
//!         assert_eq!(cache.fills(), 1);
//!     });
//! }
//! ```
//!
//! `loom::model` works too, with the defaults of [`Settings`]. The difference: under [`check`] a
//! word of ours that was made in a `const` context is there from the start of each execution; under
//! `loom::model` it comes to life at its first use in the first execution, which adds an ordering
//! between its first user and the later ones there.
//!
//! What is not modelled: time (a timed wait fires at once or never, see
//! [`Settings::timeouts_fire`]), spinning and learning (the spin cap is 0), the order in which the
//! system wakes sleepers (here: first come, first woken), memory orderings stronger than `AcqRel`
//! on accesses (loom treats `SeqCst` loads and stores as acquire and release; fences are right).

use std::time::{Duration, Instant};

use crate::sync::execution::{self, Behaviour};

/// How a model is explored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// The most preemptions in one execution. Defaults to `LOOM_MAX_PREEMPTIONS`, or to no bound.
    pub preemption_bound: Option<usize>,
    /// Whether timed waits run out at once, as if the thread had slept, or never. Defaults to never.
    pub timeouts_fire: bool,
    /// How many waits of each execution, the first ones, return early for no reason. Defaults to 0.
    pub early_wakes: u32,
    /// How many weak compare-and-exchanges of each execution, the first ones, fail for no reason.
    /// Defaults to 0.
    pub weak_failures: u32,
    /// Whether an atomic of ours may be dropped although loom sees nothing that orders the drop after
    /// other threads' accesses. Set it where a `std` `Arc`, which loom cannot see, is what orders it.
    /// Defaults to false: such a drop fails the model.
    pub unordered_drops: bool,
}

/// What an exploration took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Explored {
    /// Executions.
    pub executions: u64,
    /// Time.
    pub time: Duration,
    /// Waits for a word, over all executions: with none, early wakes change nothing.
    pub waits: u64,
    /// Weak compare-and-exchanges, over all executions: with none, weak failures change nothing.
    pub weak: u64,
}

/// Explores `body` with the default [`Settings`].
///
/// # Panics
///
/// When an execution panics, deadlocks, races on a cell, gives an atomic back that another thread may
/// still be using, or leaks one; loom may abort the process.
pub fn check(body: impl Fn() + Send + Sync + 'static) -> Explored {
    Settings::default().check(body)
}

impl Settings {
    /// Explores `body` with these settings.
    ///
    /// # Panics
    ///
    /// As [`check`].
    pub fn check(self, body: impl Fn() + Send + Sync + 'static) -> Explored {
        /// Also after a panic, so that the next model on this system thread starts afresh.
        struct End;
        impl Drop for End {
            fn drop(&mut self) {
                execution::end();
            }
        }
        let behaviour = Behaviour {
            timeouts_fire: self.timeouts_fire,
            early_wakes: self.early_wakes,
            weak_failures: self.weak_failures,
            unordered_drops: self.unordered_drops,
        };
        let executions = std::sync::Arc::new(std::sync::Mutex::new(0_u64));
        let count = std::sync::Arc::clone(&executions);
        let body = std::sync::Arc::new(move || {
            execution::begin(behaviour);
            *count.lock().unwrap_or_else(std::sync::PoisonError::into_inner) += 1;
            body();
        });
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = self.preemption_bound.or(builder.preemption_bound);
        builder.max_branches = builder.max_branches.max(50_000);
        let _end = End;

        // One execution to find out which words are made in `const` contexts: the search proper then
        // has them in stock from its start.
        let mut first = loom::model::Builder::new();
        first.preemption_bound = builder.preemption_bound;
        first.max_branches = builder.max_branches;
        first.checkpoint_interval = 1;
        first.max_permutations = Some(2);
        let once = std::sync::Arc::clone(&body);
        first.check(move || once());
        *executions.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = 0;
        let _ = execution::take_asked();

        let start = Instant::now();
        builder.check(move || body());
        let asked = execution::take_asked();
        let executions = *executions.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Explored { executions, time: start.elapsed(), waits: asked.waits, weak: asked.weak }
    }
}
