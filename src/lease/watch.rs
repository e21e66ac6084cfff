//! Being told when a lease is over.

use core::convert::Infallible;

use super::core::{Core, lost_by, superseded};
use super::error::Lost;
use super::keeper::Keeper;
use super::slot::Slot;
use super::word::State;
use super::{FencingToken, LeaseKey, LeaseValue};
use crate::clock::Clock;
use crate::promise::{Eventual, promise};
use crate::sync::Arc;

/// Tells when, and how, the grant with `token` is over.
pub(super) fn watch<K: LeaseKey, V: LeaseValue, C: Clock>(
    slot: &Slot<K, V, C>,
    token: FencingToken,
) -> Eventual<Lost, Infallible> {
    let (promise, eventual) = promise();
    let mut left = Some(promise);
    let core = &slot.core;
    let _ = core.index.annexed(&slot.key, |_, annex| {
        annex.watchers.extend(left.take().map(|promise| (token, promise)));
    });
    if let Some(promise) = left {
        let _ = promise.set(Lost::Removed);
    }
    look(core, &slot.key, token);
    eventual
}

/// Tells whoever watches `token` that it is over, if it is, or looks again at its deadline.
fn look<K: LeaseKey, V: LeaseValue, C: Clock>(
    core: &Arc<Core<K, V, C>>,
    key: &K,
    token: FencingToken,
) {
    loop {
        // A key that is gone told its watchers.
        let Ok(slot) = core.follow(key) else { return };
        // In the order of the word's changes: who ends the term after this sees the annex's flag.
        let word = slot.word.touch();
        let lost = match word.state() {
            State::Gone => continue,
            State::Held | State::Pending if slot.token(word) == token => {
                if core.is_over_for_holder(&slot, word) {
                    // Tells them, if it was this call that ended it.
                    let _ = core.end_late(&slot, word);
                    continue;
                }
                let at = core.ticks.look_at(core.deadline_of(&slot, word));
                let (later, key) = (Arc::clone(core), key.clone());
                // Without a keeper they are told by whoever ends the term.
                let _ =
                    Keeper::at(core, &core.keeper, at, Box::new(move || look(&later, &key, token)));
                return;
            }
            State::Free if slot.epoch_of(token) == Some(word.epoch()) => lost_by(word.ended()),
            State::Free | State::Held | State::Pending => superseded(&slot, word),
        };
        let watchers = core.index.annexed(key, |_, annex| annex.take_watchers(token));
        for (_, watcher) in watchers.ok().flatten().unwrap_or_default() {
            // Foreign code, with nothing held.
            let _ = watcher.set(lost);
        }
        return;
    }
}
