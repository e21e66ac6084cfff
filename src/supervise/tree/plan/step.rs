//! From what is to what should be: first what has to stop, in reverse order; then what should be up, in order.

use super::{Act, Phase, Plan, Status};
use crate::clock::Timestamp;
use crate::supervise::tree::Strategy;

impl Plan {
    /// Does what can be done now. Call it after each of the above, and when the time of a `Wake` has come.
    pub(in crate::supervise::tree) fn step(&mut self, now: Timestamp, acts: &mut Vec<Act>) {
        let closing = match self.phase {
            Phase::Over => return,
            Phase::Stopping => true,
            Phase::Starting | Phase::Running => false,
        };
        let in_order = matches!(self.strategy, Strategy::OneForAll | Strategy::RestForOne);
        let one_by_one = in_order || (closing && self.strategy != Strategy::Dynamic);
        let mut busy = false;
        for child in self.children.iter_mut().rev() {
            let must_stop = closing || child.marked || !child.wanted;
            match child.status {
                Status::Stopping => busy = true,
                Status::Starting | Status::Up if must_stop => {
                    child.status = Status::Stopping;
                    acts.push(Act::Stop { key: child.key, incarnation: child.incarnation });
                    busy = true;
                }
                Status::Starting | Status::Up | Status::Down | Status::Abandoned => {}
            }
            if busy && one_by_one {
                break;
            }
        }
        if closing {
            if !busy {
                self.phase = Phase::Over;
                acts.push(Act::Over);
            }
            return;
        }
        if busy && in_order {
            return;
        }
        let in_order = in_order || self.phase == Phase::Starting;
        let mut wake: Option<Timestamp> = None;
        let mut all_up = true;
        for child in &mut self.children {
            if !child.wanted {
                continue;
            }
            let may_start = match child.status {
                Status::Up => continue,
                Status::Starting | Status::Stopping => false,
                Status::Abandoned => child.traits.overlaps,
                Status::Down => true,
            };
            all_up = false;
            if may_start && child.not_before <= now {
                child.left_behind += u32::from(child.status == Status::Abandoned);
                child.status = Status::Starting;
                child.stuck = false;
                child.marked = false;
                child.incarnation += 1;
                acts.push(Act::Start { key: child.key, incarnation: child.incarnation });
            } else if may_start {
                wake = Some(wake.map_or(child.not_before, |at| at.min(child.not_before)));
            }
            if in_order {
                break;
            }
        }
        if let Some(at) = wake.filter(|at| !at.is_never()) {
            acts.push(Act::Wake { at });
        }
        if all_up && self.phase == Phase::Starting {
            self.phase = Phase::Running;
            acts.push(Act::Ready);
        }
    }
}
