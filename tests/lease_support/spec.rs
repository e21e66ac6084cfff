//! The sequential model of a key: what each call may say, and what is true after it.
//!
//! A call reads the clock somewhere between its begin and its end, at times that the recorder does
//! not see; it knows the readings before and after. So a call may act on any time between the two,
//! and the deadline that it leaves is one of several: a step has a set of outcomes.

/// Milliseconds since the table was made.
pub(crate) type Time = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    Acquire { ttl: Time },
    Renew { token: u64, ttl: Time },
    Valid { token: u64 },
    Checkpoint { token: u64, value: u64 },
    Commit { token: u64, value: u64 },
    Release { token: u64 },
    Revoke { token: u64 },
    Transfer { token: u64, within: Time },
    Accept { token: u64, ttl: Time },
    Peek,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ret {
    /// A token, and the value and version that came with it.
    Granted {
        token: u64,
        value: u64,
        version: u64,
    },
    Held {
        by: u64,
    },
    Done,
    /// Expired, superseded, revoked, released: not this token's any more.
    Lost,
    Already,
    Offered {
        token: u64,
    },
    Seen {
        value: u64,
        version: u64,
        held: Option<u64>,
        latest: u64,
    },
}

/// One recorded call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) thread: usize,
    pub(crate) op: Op,
    pub(crate) ret: Ret,
    /// Its begin and end, in the order of all begins and ends.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    /// The clock before and after.
    pub(crate) early: Time,
    pub(crate) late: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Term {
    Free { released: bool },
    Held { until: Time },
    Pending { until: Time },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) token: u64,
    pub(crate) term: Term,
    pub(crate) value: u64,
    pub(crate) version: u64,
}

impl Key {
    pub(crate) fn new() -> Self {
        Self { token: 0, term: Term::Free { released: true }, value: 0, version: 0 }
    }

    fn with(self, term: Term) -> Self {
        Self { term, ..self }
    }

    fn lost(self) -> Self {
        self.with(Term::Free { released: false })
    }

    /// The deadline, if `token` runs.
    fn held_by(&self, token: u64) -> Option<Time> {
        match self.term {
            Term::Held { until } if self.token == token => Some(until),
            _ => None,
        }
    }

    fn until(&self) -> Option<Time> {
        match self.term {
            Term::Held { until } | Term::Pending { until } => Some(until),
            Term::Free { .. } => None,
        }
    }

    /// What may be true after `call`; nothing if it cannot have happened here.
    ///
    /// A term past its deadline may have been ended before, by a call that is still under way and comes
    /// to something else in the end: an acquisition that ends it, and then finds that another was
    /// faster.
    pub(crate) fn after(self, call: &Call) -> Vec<Self> {
        let mut after = self.step(call);
        if self.until().is_some_and(|until| call.late > until) {
            for next in self.lost().step(call) {
                if !after.contains(&next) {
                    after.push(next);
                }
            }
        }
        after
    }

    fn step(self, call: &Call) -> Vec<Self> {
        let (early, late) = (call.early, call.late);
        let deadlines = |ttl: Time| (early + ttl)..=(late + ttl);
        match (call.op, call.ret) {
            (Op::Acquire { ttl }, Ret::Granted { token, value, version }) => {
                let free = self.until().is_none_or(|until| late > until);
                if !free || (token, value, version) != (self.token + 1, self.value, self.version) {
                    return vec![];
                }
                deadlines(ttl)
                    .map(|until| Self { token, term: Term::Held { until }, ..self })
                    .collect()
            }
            (Op::Acquire { .. }, Ret::Held { by }) => {
                let held = self.until().is_some_and(|until| early <= until);
                if held && by == self.token { vec![self] } else { vec![] }
            }
            (Op::Renew { token, ttl }, Ret::Done) => match self.held_by(token) {
                Some(until) if early < until => deadlines(ttl)
                    .map(|next| self.with(Term::Held { until: until.max(next) }))
                    .collect(),
                _ => vec![],
            },
            (Op::Valid { token }, Ret::Done) => match self.held_by(token) {
                Some(until) if early < until => vec![self],
                _ => vec![],
            },
            (Op::Checkpoint { token, value }, Ret::Done) => match self.held_by(token) {
                Some(until) if early < until => {
                    vec![Self { value, version: self.version + 1, ..self }]
                }
                _ => vec![],
            },
            (Op::Commit { token, value }, Ret::Done) => match self.held_by(token) {
                Some(until) if early < until => vec![Self {
                    value,
                    version: self.version + 1,
                    term: Term::Free { released: true },
                    ..self
                }],
                _ => vec![],
            },
            (Op::Transfer { token, within }, Ret::Offered { token: next }) => {
                match self.held_by(token) {
                    Some(until) if early < until && next == token + 1 => deadlines(within)
                        .map(|until| Self { token: next, term: Term::Pending { until }, ..self })
                        .collect(),
                    _ => vec![],
                }
            }
            (Op::Accept { token, ttl }, Ret::Done) => match self.term {
                Term::Pending { until } if self.token == token && early < until => {
                    deadlines(ttl).map(|until| self.with(Term::Held { until })).collect()
                }
                _ => vec![],
            },
            // Refused: not the token's, or past the deadline, which has ended it then.
            (
                Op::Renew { token, .. }
                | Op::Valid { token }
                | Op::Checkpoint { token, .. }
                | Op::Commit { token, .. }
                | Op::Transfer { token, .. }
                | Op::Accept { token, .. },
                Ret::Lost,
            ) => {
                let until = self.until().filter(|_| self.token == token);
                match until {
                    None => vec![self],
                    Some(until) if late >= until => vec![self.lost()],
                    Some(_) => vec![],
                }
            }
            (Op::Release { token }, Ret::Done) => {
                if self.token == token && self.until().is_some() {
                    vec![self.with(Term::Free { released: true })]
                } else {
                    vec![]
                }
            }
            (Op::Release { token }, Ret::Already) => {
                let already = self.token == token && self.term == Term::Free { released: true };
                if already { vec![self] } else { vec![] }
            }
            (Op::Release { token }, Ret::Lost) => {
                let other = self.token != token || self.term == Term::Free { released: false };
                if other { vec![self] } else { vec![] }
            }
            (Op::Revoke { token }, Ret::Done) => {
                if self.token == token && self.until().is_some() {
                    vec![self.lost()]
                } else {
                    vec![]
                }
            }
            (Op::Revoke { token }, Ret::Lost) => {
                let stale = self.token != token || self.until().is_none();
                if stale { vec![self] } else { vec![] }
            }
            (Op::Peek, Ret::Seen { value, version, held, latest }) => {
                if (value, version, latest) != (self.value, self.version, self.token) {
                    return vec![];
                }
                match (self.until(), held) {
                    (None, None) => vec![self],
                    (Some(until), Some(by)) if by == self.token && early <= until => vec![self],
                    (Some(until), None) if late > until => vec![self.lost()],
                    _ => vec![],
                }
            }
            _ => vec![],
        }
    }
}
