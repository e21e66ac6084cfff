//! Random schedules (uniform and PCT) for what needs more threads or steps than loom can explore.
//!
//! `cargo shuttle` runs them. Every atomic is sequentially consistent here: lost wakes, lost values,
//! deadlocks and overlaps are found, faults of ordering are not. A failure prints a schedule;
//! `TENURE_SHUTTLE_REPLAY=<schedule>` runs just that one. `TENURE_STRESS=<factor>` tries more.

#![cfg_attr(not(tenure_shuttle), allow(unused))]

#[cfg(not(tenure_shuttle))]
#[test]
#[ignore = "random schedules need --cfg tenure_shuttle: run `cargo shuttle`"]
fn schedules_are_not_compiled_in() {
    panic!("run `cargo shuttle`");
}

#[cfg(tenure_shuttle)]
#[path = "shuttle/mod.rs"]
mod schedules;
