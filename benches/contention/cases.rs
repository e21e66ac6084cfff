//! Which shapes of contention are run.

/// What is special about a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    Plain,
    /// Each thread has a processor of its own.
    Pinned,
    /// All threads on one processor.
    OneProcessor,
    /// 99 % of the sections take 100 ns, 1 % take 200 µs.
    Bimodal,
    /// Two threads beside that do nothing but burn the processors.
    Hogs,
}

/// One shape of contention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Contending threads.
    pub(crate) threads: usize,
    /// Nanoseconds of work under the lock.
    pub(crate) section: u64,
    /// Nanoseconds of work outside of it.
    pub(crate) outside: u64,
    /// What is special about it.
    pub(crate) kind: Kind,
}

impl Case {
    /// `threads x section/outside`, and what is special.
    pub(crate) fn name(&self) -> String {
        let Self { threads, section, outside, kind } = self;
        match kind {
            Kind::Plain => format!("{threads}x{section}/{outside}"),
            Kind::Pinned => format!("{threads}x{section}/{outside} pinned"),
            Kind::OneProcessor => format!("{threads}x{section}/{outside} one cpu"),
            Kind::Bimodal => format!("{threads}x bimodal"),
            Kind::Hogs => format!("{threads}x{section}/{outside} hogs"),
        }
    }
}

impl Case {
    /// About how long it takes until each thread has had so many turns, on two processors.
    pub(crate) fn turns(&self, turns: u64) -> std::time::Duration {
        let round = self.threads as u64 * self.section.max((self.section + self.outside) / 2);
        std::time::Duration::from_nanos(turns * round)
    }
}

/// Every case; or a few that show the most.
pub(crate) fn all(short: bool) -> Vec<Case> {
    let sections: &[u64] = if short { &[0, 600, 6_000] } else { &[0, 60, 600, 6_000, 60_000] };
    let threads = if short {
        vec![(2, Kind::Pinned), (4, Kind::Plain), (16, Kind::Plain)]
    } else {
        vec![
            (2, Kind::Pinned),
            (2, Kind::Plain),
            (4, Kind::Plain),
            (16, Kind::Plain),
            (64, Kind::Plain),
        ]
    };
    let outsides: &[u64] = if short { &[0, 1] } else { &[0, 1, 4] };
    let mut cases = Vec::new();
    for (threads, kind) in threads {
        for &section in sections {
            for &times in outsides {
                // Around nothing, "as much outside" would be nothing as well.
                let outside = times * if section == 0 { 60 } else { section };
                cases.push(Case { threads, section, outside, kind });
            }
        }
    }
    for threads in [4, 16] {
        cases.push(Case { threads, section: 0, outside: 0, kind: Kind::Bimodal });
        cases.push(Case { threads, section: 600, outside: 600, kind: Kind::Hogs });
        cases.push(Case { threads, section: 600, outside: 600, kind: Kind::OneProcessor });
    }
    cases
}
