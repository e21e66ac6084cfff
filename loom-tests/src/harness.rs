//! How a model is described, listed and run.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// One race, explored by loom.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    /// The room whose protocol it models.
    pub room: &'static str,
    /// Its name: `this_x_that`.
    pub name: &'static str,
    /// The most preemptions explored; `None` explores all.
    pub bound: Option<usize>,
    /// Whether timed waits fire at once (`true`) or never.
    pub timeouts_fire: bool,
    /// One execution.
    pub body: fn(),
}

/// What running a model took.
#[derive(Clone, Copy, Debug)]
pub struct Explored {
    /// Executions explored.
    pub executions: u64,
    /// Time it took.
    pub time: Duration,
}

impl Model {
    /// Explores the model. Panics, or aborts the process, when an execution fails.
    pub fn explore(&self) -> Explored {
        let executions = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&executions);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = self.bound;
        builder.max_branches = 50_000;
        let (body, fire) = (self.body, self.timeouts_fire);
        let start = Instant::now();
        builder.check(move || {
            tenure::sync::site::begin_execution(fire);
            count.fetch_add(1, Ordering::Relaxed);
            body();
        });
        Explored { executions: executions.load(Ordering::Relaxed), time: start.elapsed() }
    }

    /// Explores the model as a test: prints one line that tools read.
    pub fn test(&self) {
        let explored = self.explore();
        println!(
            "model {}::{} bound={} executions={} ms={}",
            self.room,
            self.name,
            self.bound.map_or_else(|| "none".into(), |b| b.to_string()),
            explored.executions,
            explored.time.as_millis()
        );
    }

    /// Explores a model that has to fail, for tests of the models themselves. The body must share
    /// through `std::sync::Arc`, so that a failure unwinds.
    pub fn fails(&self) -> bool {
        let quiet = std::panic::catch_unwind(AssertUnwindSafe(|| self.explore()));
        quiet.is_err()
    }
}

/// Lists a room's models.
///
/// ```ignore
/// models! { "promise";
///     /// Why this race matters.
///     set_x_poll { … }                       // explores everything
///     set_x_get [bound: 3] { … }             // at most three preemptions
///     set_x_get_timeout [fires] { … }        // timed waits fire at once
///     three_at_once [bound: 2, fires] { … }
/// }
/// ```
#[macro_export]
macro_rules! models {
    ($room:literal; $( $(#[doc = $doc:literal])+ $name:ident $([ $($setting:tt)* ])? $body:block )*) => {
        $( $(#[doc = $doc])+ fn $name() $body )*

        /// The room's models.
        pub const MODELS: &[$crate::harness::Model] = &[ $(
            $crate::models!(@settings ($room, $name) $($($setting)*)?)
        ),* ];

        #[cfg(test)]
        mod explored { $(
            #[test]
            fn $name() {
                super::MODELS.iter().find(|m| m.name == stringify!($name)).expect("listed").test();
            }
        )* }
    };
    (@settings ($room:literal, $name:ident)) => { $crate::models!(@model $room, $name, None, false) };
    (@settings ($room:literal, $name:ident) bound: $bound:literal) => { $crate::models!(@model $room, $name, Some($bound), false) };
    (@settings ($room:literal, $name:ident) fires) => { $crate::models!(@model $room, $name, None, true) };
    (@settings ($room:literal, $name:ident) bound: $bound:literal, fires) => { $crate::models!(@model $room, $name, Some($bound), true) };
    (@model $room:literal, $name:ident, $bound:expr, $fires:expr) => {
        $crate::harness::Model { room: $room, name: stringify!($name), bound: $bound, timeouts_fire: $fires, body: $name }
    };
}
