//! Which changes an operation can have.

use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use tenure::sync::site::{Change, Op};

/// An operation in the source, as the door names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Operation {
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// The name of its [`Op`].
    pub(crate) op: String,
    /// Its ordering; `None` for waits and wakes.
    pub(crate) order: Option<String>,
}

impl Operation {
    /// Each single step down, then the whole operation left out.
    pub(crate) fn changes(&self, orderings_only: bool) -> Vec<String> {
        let order = self.order.as_deref().unwrap_or("");
        let reads = ["Load", "CompareFailed"].contains(&self.op.as_str());
        let writes = self.op == "Store";
        let weaker: &[&str] = match order {
            "SeqCst" if reads => &["Acquire"],
            "SeqCst" if writes => &["Release"],
            "SeqCst" => &["AcqRel"],
            "AcqRel" => &["Acquire", "Release"],
            "Acquire" | "Release" if self.op == "Fence" => &[],
            "Acquire" | "Release" => &["Relaxed"],
            _ => &[],
        };
        let mut changes: Vec<String> = weaker.iter().map(|w| format!("{order}->{w}")).collect();
        // A fence left out is a weakened ordering; the others are dropped transitions.
        if self.op == "Fence" || (!orderings_only && !reads) {
            changes.push("dropped".into());
        }
        changes
    }
}

/// Whether a change is to an ordering, rather than a dropped transition.
pub(crate) fn is_ordering(op: &str, change: &str) -> bool {
    op == "Fence" || change != "dropped"
}

pub(crate) fn op_name(op: Op) -> &'static str {
    match op {
        Op::Load => "Load",
        Op::Store => "Store",
        Op::Rmw => "Rmw",
        Op::Compare => "Compare",
        Op::CompareFailed => "CompareFailed",
        Op::Fence => "Fence",
        Op::Recheck => "Recheck",
        Op::Wake => "Wake",
    }
}

pub(crate) fn parse_op(name: &str) -> Option<Op> {
    [Op::Load, Op::Store, Op::Rmw, Op::Compare, Op::CompareFailed, Op::Fence, Op::Recheck, Op::Wake]
        .into_iter()
        .find(|op| op_name(*op) == name)
}

pub(crate) fn parse_change(text: &str) -> Option<Change> {
    if text == "dropped" {
        return Some(Change::Drop);
    }
    Some(Change::Order(match text.split_once("->")?.1 {
        "Relaxed" => Ordering::Relaxed,
        "Acquire" => Ordering::Acquire,
        "Release" => Ordering::Release,
        "AcqRel" => Ordering::AcqRel,
        _ => return None,
    }))
}
