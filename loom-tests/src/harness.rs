//! How a model is described, listed and run.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use tenure::model::Settings;

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
    /// Whether the passes with injected early wakes and failures are left out.
    pub once: bool,
    /// Whether the last owner of a `std` `Arc` drops atomics here: loom does not see what orders it.
    pub std_arc: bool,
    /// One execution.
    pub body: fn(),
}

/// One way to explore a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pass {
    /// As it is.
    Plain,
    /// The first wait of each execution returns early for no reason. The only pass in which a wait
    /// ends without the ordering that loom's `unpark` adds.
    EarlyWake,
    /// The first weak compare-and-exchange of each execution fails for no reason.
    WeakFailure,
}

/// What running a model took, over its passes.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// Executions explored.
    pub executions: u64,
    /// Time it took.
    pub time: Duration,
    /// Which passes made sense, with the time of each.
    pub passes: Vec<(Pass, Duration)>,
}

impl Pass {
    /// All, the plain one first.
    pub const ALL: [Self; 3] = [Self::Plain, Self::EarlyWake, Self::WeakFailure];
}

impl Model {
    /// A model that explores everything; `models!` changes what its list says.
    #[must_use]
    pub const fn new(room: &'static str, name: &'static str, body: fn()) -> Self {
        Self { room, name, bound: None, timeouts_fire: false, once: false, std_arc: false, body }
    }

    /// Explores the model in one pass. Panics, or aborts the process, when an execution fails.
    pub fn pass(&self, pass: Pass) -> tenure::model::Explored {
        let settings = Settings {
            preemption_bound: self.bound,
            timeouts_fire: self.timeouts_fire,
            early_wakes: u32::from(pass == Pass::EarlyWake),
            weak_failures: u32::from(pass == Pass::WeakFailure),
            unordered_drops: self.std_arc,
        };
        settings.check(self.body)
    }

    /// Explores the model in each pass that makes sense for it: with an early wake if it waits,
    /// with a failed weak compare-and-exchange if it has one.
    pub fn explore(&self) -> Explored {
        let plain = self.pass(Pass::Plain);
        let mut explored = Explored::default();
        explored.add(Pass::Plain, plain);
        if plain.waits > 0 && !self.once {
            explored.add(Pass::EarlyWake, self.pass(Pass::EarlyWake));
        }
        if plain.weak > 0 && !self.once {
            explored.add(Pass::WeakFailure, self.pass(Pass::WeakFailure));
        }
        explored
    }

    /// Explores the model as a test: prints one line that tools read.
    pub fn test(&self) {
        let explored = self.explore();
        println!(
            "model {}::{} bound={} executions={} ms={} passes={}",
            self.room,
            self.name,
            self.bound.map_or_else(|| "none".into(), |b| b.to_string()),
            explored.executions,
            explored.time.as_millis(),
            explored.passes.len(),
        );
    }

    /// Explores a model that has to fail, for tests of the models themselves. The body must share
    /// through `std::sync::Arc`, so that a failure unwinds.
    pub fn fails(&self) -> bool {
        let quiet = std::panic::catch_unwind(AssertUnwindSafe(|| self.explore()));
        quiet.is_err()
    }
}

impl Explored {
    fn add(&mut self, pass: Pass, explored: tenure::model::Explored) {
        self.executions += explored.executions;
        self.time += explored.time;
        self.passes.push((pass, explored.time));
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
///     big [bound: 2, once] { … }             // no passes with injected early wakes and failures
///     listener [std_arc] { … }               // drops that only a `std` `Arc` orders
/// }
/// ```
#[macro_export]
macro_rules! models {
    ($room:literal; $( $(#[doc = $doc:literal])+ $name:ident $([ $($setting:tt)* ])? $body:block )*) => {
        $( $(#[doc = $doc])+ fn $name() $body )*

        /// The room's models.
        pub const MODELS: &[$crate::harness::Model] = &[ $( {
            #[allow(unused_mut)]
            let mut model = $crate::harness::Model::new($room, stringify!($name), $name);
            $( $crate::models!(@set model $($setting)*); )?
            model
        } ),* ];

        #[cfg(test)]
        mod explored { $(
            #[test]
            fn $name() {
                super::MODELS.iter().find(|m| m.name == stringify!($name)).expect("listed").test();
            }
        )* }
    };
    (@set $model:ident bound: $bound:literal $(, $($rest:tt)*)?) => {
        $model.bound = Some($bound);
        $( $crate::models!(@set $model $($rest)*); )?
    };
    (@set $model:ident fires $(, $($rest:tt)*)?) => {
        $model.timeouts_fire = true;
        $( $crate::models!(@set $model $($rest)*); )?
    };
    (@set $model:ident std_arc $(, $($rest:tt)*)?) => {
        $model.std_arc = true;
        $( $crate::models!(@set $model $($rest)*); )?
    };
    (@set $model:ident once $(, $($rest:tt)*)?) => {
        $model.once = true;
        $( $crate::models!(@set $model $($rest)*); )?
    };
}
