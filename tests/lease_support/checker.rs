//! Whether a history can be put in an order that the sequential model allows and that no call's begin
//! and end contradict (Wing and Gong's search, remembering what was tried).

use std::collections::HashSet;

use super::spec::{Call, Key};

/// At most 64 calls, on one key.
pub(crate) fn is_linearizable(history: &[Call]) -> bool {
    assert!(history.len() <= 64, "a bit for each call");
    let mut calls = history.to_vec();
    calls.sort_by_key(|call| call.begin);
    let all = if calls.len() == 64 { u64::MAX } else { (1 << calls.len()) - 1 };
    let mut tried = HashSet::new();
    search(&calls, all, Key::new(), &mut tried)
}

fn search(calls: &[Call], left: u64, key: Key, tried: &mut HashSet<(u64, Key)>) -> bool {
    if left == 0 {
        return true;
    }
    if !tried.insert((left, key)) {
        return false;
    }
    let remaining = || (0..calls.len()).filter(|at| left & (1 << at) != 0);
    // Whatever comes next began before the first of the others ended.
    let first_end = remaining().map(|at| calls[at].end).min().unwrap_or(u64::MAX);
    for at in remaining() {
        if calls[at].begin > first_end {
            break;
        }
        for next in key.after(&calls[at]) {
            if search(calls, left & !(1 << at), next, tried) {
                return true;
            }
        }
    }
    false
}
