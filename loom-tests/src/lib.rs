//! Loom models of tenure's protocols, one race each.
//!
//! `cargo loom` runs them (see `.cargo/config.toml`). Without `--cfg tenure_loom` there is nothing
//! to run, and one ignored test says so.
//!
//! Each room's file in `src/models/` lists its models with `models!`: the list gives one `#[test]`
//! a model, and the same list to tools that run models one at a time.

#[cfg(not(tenure_loom))]
mod unarmed {
    #[test]
    #[ignore = "models need --cfg tenure_loom: run `cargo loom`"]
    fn models_are_not_compiled_in() {
        panic!("run `cargo loom`");
    }
}

#[cfg(tenure_loom)]
#[macro_use]
pub mod harness;
#[cfg(tenure_loom)]
pub mod models;
