//! The models, a file a room.

use crate::harness::Model;

pub mod clock;

/// Every model of every room.
#[must_use]
pub fn all() -> Vec<Model> {
    [clock::MODELS].concat()
}
