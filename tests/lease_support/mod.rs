//! Recorded histories of one key, what a key may do one call at a time, and whether the two agree.

pub(crate) mod checker;
pub(crate) mod record;
pub(crate) mod spec;
