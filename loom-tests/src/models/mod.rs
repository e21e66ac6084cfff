//! The models, a file a room.

use crate::harness::Model;

pub mod clock;
pub mod specimen;

/// Every model of every room.
#[must_use]
pub fn all() -> Vec<Model> {
    [clock::MODELS, specimen::MODELS].concat()
}
